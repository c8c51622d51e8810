#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-replay with a tier on disk hits what an exact LRU hits: in VRAM what fits there, in VRAM and RAM what fits in both,
# and in all three what fits in their sum; with gpcd, which keeps the tier, killed and started again in between.
# Tests: tools/replay/disk.c tools/replay/moves.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"
. "$srcdir/t/sh/lru.sh"

while read -r options; do
	set -- $options
	what=$1
	shift
	# shellcheck disable=SC2086
	refuses 2 "$what" gpc-replay "$small_trace" "$@"
done <<-END
	--disk-blocks:.give --disk-blocks 10
	--disk-blocks:.give --disk-blocks 10 --payload 4k --device host
	--restart:.give --restart 1
	--disk:.give --disk $tmp/file
	--disk-blocks.and.--fetch.exclude --disk-blocks 10 --payload 4k --device host --ram-blocks 10 --fetch
	--disk-blocks.and.--name.exclude --disk-blocks 10 --payload 4k --device host --ram-blocks 10 --name x
END
: >"$tmp/mine"
refuses 1 'there is a file of that name' gpc-replay "$small_trace" --dir "$shm" --payload 4k --device host \
	--vram-blocks 60 --ram-blocks 60 --disk-blocks 60 --disk "$tmp/mine"
test -e "$tmp/mine"
ok $? "a file of somebody else's stays"

hits()	# VRAM RAM DISK OPTION...
{
	vram=$1
	ram=$2
	disk=$3
	shift 3
	run gpc-replay "$small_trace" --dir "$shm" --payload 4k --device host --vram-blocks "$vram" --ram-blocks "$ram" \
		--disk-blocks "$disk" --disk "$tmp/file" --json "$@"
	test "$status" = 0 || diag "$(cat "$tmp/err")"
	hot=$(lru "$vram" "$small_trace")
	two=$(lru $((vram + ram)) "$small_trace")
	all=$(lru $((vram + ram + disk)) "$small_trace")
	is "$status $(values requests block_refs prefix_hit_blocks vram_hit_blocks ram_hit_blocks disk_hit_blocks \
		wrong_blocks refused duplicates workers_failed disk_failed)" \
		"0 $all ${hot##* } $((${two##* } - ${hot##* })) $((${all##* } - ${two##* })) 0 0 0 0 0" \
		"$vram blocks of VRAM, $ram of RAM, $disk on disk${*:+, $*}"
	is "$(value inserted)" $(($(value block_refs) - $(value prefix_hit_blocks))) "what did not hit was inserted"
	test ! -e "$tmp/file"
	ok $? "the file is gone"
}

hits 60 100 200
hits 100 60 40
hits 150 300 900
hits 60 61 500

hits 60 100 200 --restart 3
is "$(values restarts disk_restored)" "3 200" "a full disk was published again"
hits 150 300 900 --restart 2
hits 100 60 40 --restart 5

done_testing
