#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd makes the memory of its RAM pool: what it is asked for, what it refuses, how it tells the way
# there, and that whoever removes the cache removes the memory.
# Tests: tools/daemon/serve.c lib/bytes/memfile/pages.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

memory()	# NAME: the files of its memory
{
	ls "$shm" | grep -E "^gpc\.$1\.p[0-9a-f]{16}\$"
}

serves()	# LABEL
{
	grep -q 'serving as process' "$tmp/$1.err"
}

serve_ram()	# NAME OPTION...: until it serves; $pid
{
	label=$1
	shift
	start "$label" gpcd "$label" --dir "$shm" --max-peers 4 --block-size 16 "$@"
	until_ok serves "$label" || diag "$(cat "$tmp/$label.err")"
}

is_there_or_gone()	# NAME: the cache that $pid makes
{
	test -e "$shm/gpc.$1.idx" || is_gone "$pid"
}

stop()
{
	kill -TERM "$pid"
	finish "$pid"
}

# ---- mistakes ----

while read -r bytes; do
	refuses 2 "--block-bytes: $bytes is out of range" \
		gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --block-bytes "$bytes"
done <<-END
	0
	1025G
END
refuses 2 "--block-bytes: 'many' is not a number" \
	gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --block-bytes many
refuses 2 '--block-bytes: --ram-blocks is missing' \
	gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --block-bytes 4k
refuses 2 '--block-bytes: --ram-blocks is missing' \
	gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --vram-blocks 8 --block-bytes 4k
refuses 2 'the VRAM of --vram-blocks gets memory from a keeper: gpcd NAME --keep' \
	gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --vram-blocks 8 --block-bytes 4k
refuses 2 '--block-bytes: 1099511627776 is too many for --vram-blocks 4194305: a pool has at most [0-9]+ bytes' \
	gpcd "$cache" --dir "$shm" --keep --device host --vram-blocks 4194305 --block-bytes 1024G
refuses 2 '--numa: --block-bytes is missing' \
	gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --numa bind
refuses 2 '--huge-dir: --block-bytes is missing' \
	gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --huge-dir "$shm"
for policy in '' none bin bind: bind:a bind:0, bind:0- bind:1-0 bind:64 bind:0-64 bind:0:1 \
	default:0 interleave:-1 BIND 'bind: 0' bind:0-1-2; do
	refuses 2 "--numa: '$policy' is not default, interleave, bind" \
		gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --block-bytes 4k --numa "$policy"
done
refuses 2 '--numa: the set of nodes is 0x8000000000000000: it must be within 0x' \
	gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --block-bytes 4k --numa bind:63
refuses 2 "--huge-dir is $shm: it must be a folder of a hugetlbfs" \
	gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --block-bytes 4k --huge-dir "$shm"
refuses 1 "$cache: .* lacks [0-9]+ bytes .*: $cache needs [0-9]+ MiB, [0-9]+ MiB of them for the memory of its RAM pool, .*; raise it or lower --ram-blocks, " \
	gpcd "$cache" --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --block-bytes 1024G
is "$(grep -c "$cache: $cache" "$tmp/err")" 0 "and the cache is named once"
is "$(ls "$shm")" '' "nothing is left of all these"

# ---- made ----

serve_ram one --vram-blocks 4 --ram-blocks 8 --block-bytes 64k
inspect --json list
is "$(value '*/pool_bytes')" "0/pool_bytes 4718592" "list: 8 blocks and 64 in transit"
ok $? "gpcd serves a cache whose RAM pool has memory"
is "$(memory one | wc -l)" 1 "in one file"
bytes=$(stat -c %s "$shm/$(memory one)")
is $((bytes >= 72 * 65536)) 1 "with room for 8 blocks and 64 in transit"
is "$(stat -c %a "$shm/$(memory one)")" 600 "of the cache's mode"
is "$(grep -c 'the RAM pool.s memory is being made' "$tmp/one.err")" 1 "one line tells of it, as it took no second"
like "$(cat "$tmp/one.err")" 'gpcd: one: the RAM pool.s memory is being made: 0 of 4 MiB' "namely this"
file=$(memory one)
stop
is "$(memory one)" "$file" "it stays with the cache"
serve_ram one --vram-blocks 4 --ram-blocks 8 --block-bytes 64k
ok $? "a second gpcd goes on with it"
is "$(memory one)" "$file" "and makes no other"
stop
refuses 1 'one exists, but with --block-bytes 65536, not 4096' \
	gpcd one --dir "$shm" --max-peers 4 --block-size 16 --vram-blocks 4 --ram-blocks 8 --block-bytes 4k
inspect rm one
is "$(ls "$shm")" '' "gpc-inspect rm removes it"

for policy in default interleave bind interleave:0 bind:0; do
	if ! test -e /sys/devices/system/node/node0 && test $policy != default; then
		skip 2 "no NUMA here"
		continue
	fi
	name=numa-${policy%:*}
	start "$name" gpcd "$name" --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --block-bytes 4k \
		--numa "$policy" --quiet --unlink
	until_ok is_there_or_gone "$name"
	if grep -q 'Operation not permitted' "$tmp/$name.err"; then
		skip 2 "this user may not set a policy"
		continue
	fi
	is "$(cat "$tmp/$name.err")" '' "--numa $policy, and --quiet says nothing"
	stop
	is "$(ls "$shm")" '' "--unlink removes it"
done

# ---- ended by a signal while it makes memory ----

makes()
{
	test -n "$(memory ended)"
}

# its first line has nowhere to go, so there it stays
mkfifo "$tmp/full"
exec 3<>"$tmp/full"
for end in TERM INT; do
	dd if=/dev/zero bs=4096 count=16 2>/dev/null >&3
	gpcd ended --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --block-bytes 64k \
		2>"$tmp/full" 3>&- &
	pid=$!
	until_ok makes
	kill -$end "$pid"
	dd bs=4096 count=16 <&3 >"$tmp/zeros" 2>/dev/null
	finish "$pid"
	is "$status" 0 "SIG$end ends a gpcd that makes memory"
	is "$(ls "$shm")" '' "and nothing is left of that"
	echo END >&3
	sed -u /END/q <&3 >"$tmp/said"
	like "$(cat "$tmp/said")" "ended by SIG$end before it had the cache" "which it says"
done
exec 3>&-

# ---- killed ----

serve_ram dead --ram-blocks 8 --block-bytes 4k
kill -KILL "$pid"
finish "$pid"
is "$(memory dead | wc -l)" 1 "a killed gpcd leaves the cache and its memory"
inspect rm --stale
prints '^removed dead$' "rm --stale knows it"
is "$(ls "$shm")" '' "and removes all"
serve_ram lone --ram-blocks 8 --block-bytes 4k
kill -KILL "$pid"
finish "$pid"
rm "$shm/gpc.lone.idx" "$shm/gpc.lone.ctl" "$shm/gpc.lone.lock"
inspect rm --stale
prints '^removed the remains of lone, which was no whole cache: ' "and memory whose cache has gone"
is "$(ls "$shm")" '' "of which nothing is left"

# ---- parts of blocks, each at a page of its own ----

padded()	# SUMS: the log of a cache with blocks of 64k, and what stat says
{
	run gpcd "parts$1" --dir "$shm" --block-size 16 --ram-blocks 4 --block-bytes 64k --sums "$1" --daemonize \
		--pidfile "$tmp/parts.pid"
	cp "$tmp/err" "$tmp/parts.err"
	inspect --json stat "parts$1"
	got="$(value pools/0/memory/sums) $(value pools/0/memory/checksums) $(value pools/0/memory/bytes)"
	kill "$(cat "$tmp/parts.pid")"
	until_ok test ! -e "$tmp/parts.pid"
}
for sums in 1 16; do
	padded $sums
	is "$got" "$sums 1 $((68 * 65536))" "--sums $sums: as large as the blocks"
	is "$(grep -c 'stay empty' "$tmp/parts.err")" 0 "and nothing is said"
done
padded 256
is "$got" "256 1 $((68 * 256 * 4096))" "--sums 256: 16 times as large"
grep -q 'parts256: --sums 256: each part of a block has 256 bytes and takes 4096: the memory is 68.0 MiB, of which 63.8 MiB stay empty' "$tmp/parts.err"
ok $? "and the log says so" "$tmp/parts.err"
inspect stat parts256
prints '^   *0 .* 256 ' "stat shows the number"
done_testing
