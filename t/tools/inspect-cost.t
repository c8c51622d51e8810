#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What list, stat, peers and metrics cost does not follow the capacity: with 64 seats taken they read less
# than 1 MB, of a cache of any size, and have no more memory.
# Tests: tools/inspect/list.c tools/inspect/stat.c tools/inspect/peers.c tools/inspect/metrics.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

MOST=1000000             # bytes
SPREAD=20000             # numbers in other files, of /proc for instance, have more digits or fewer

set -- $(cd "$shm" && "$helpers/cost" true) || skip_all "the kernel does not count bytes"

full()	# NAME BLOCKS: a cache in a folder of its own, with all of 64 seats taken
{
	mkdir "$shm/$1"
	run gpcd "$1" --dir "$shm/$1" --block-size 16 --max-blocks "$2" --vram-blocks "$2" \
		--max-peers 64 --device host --daemonize --quiet
	test $status -eq 0 || bail "gpcd $1: $(cat "$tmp/err")"
	start "$1" "$helpers/crowd" "$shm/$1" "$1" 63
	until_ok grep -q holding "$tmp/$1.out" || bail "crowd: $(cat "$tmp/$1.err")"
}

full small 4k
full large 256k
inspect --dir "$shm/large" --json peers large
is "$(value '')" '[64]' "64 peers"
large=$(du -sb "$shm/large" | cut -f 1)
test "$large" -gt $((MOST * 40))
ok $? "of a cache of $large bytes"

for command in list stat peers metrics; do
	for size in small large; do
		set -- --dir "$shm/$size" $command
		test $command = list || set -- "$@" $size
		"$helpers/cost" gpc-inspect "$@" >"$tmp/$size" || bail "gpc-inspect $*"
		diag "$command, $size: $(awk '{ print $1 " bytes, " $2 " KiB, " $3 " ms" }' \
			"$tmp/$size")"
	done
	read -r small_bytes small_kib ms <"$tmp/small"
	read -r bytes kib ms <"$tmp/large"
	test "$bytes" -lt $MOST
	ok $? "$command reads $bytes bytes"
	test $((bytes - small_bytes)) -lt $SPREAD && test $((small_bytes - bytes)) -lt $SPREAD
	ok $? "as of a cache 64 times smaller: $small_bytes"
	test $((kib - small_kib)) -lt 2048
	ok $? "with as much memory: $kib and $small_kib KiB"
done

done_testing
