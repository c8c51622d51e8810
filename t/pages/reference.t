#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Recorded traces of real services against counts that somebody else computed.  The folder
# with REFERENCE.json is $GPC_TRACES or ../shared/traces beside the sources; without it
# there is nothing to do.  Every row with leaf-to-root touching counts, and of the rows
# with two tiers those whose VRAM holds the longest request.
# Tests: tools/replay/worker.c lib/index/table/lru.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

traces=${GPC_TRACES:-$srcdir/../shared/traces}
reference=$traces/REFERENCE.json
test -r "$reference" || skip_all "there is no $reference"

reference()	# PATH...
{
	"$helpers/json" "$reference" "$@"
}

size()	# TRACE
{
	reference "$1/requests" "$1/total_block_refs" | paste -sd' ' -
}

# TRACE/lru/CAPACITY/leaf_to_root/prefix_hits HITS
reference '*/lru/*/leaf_to_root/prefix_hits' | tr / ' ' |
	while read -r trace _ capacity _ _ hits; do
		echo "$trace $capacity 0 $hits 0"
	done >"$tmp/rows"

# TRACE/two_tier_exclusive_leaf_to_root/VRAM+RAM/... HITS
reference '*/two_tier_exclusive_leaf_to_root/*/hot' | tr '/+' '  ' |
	while read -r trace tiers vram ram _ hot; do
		test "$(reference "$trace/max_blocks_per_req")" -le "$vram" || continue
		echo "$trace $vram $ram $hot $(reference "$trace/$tiers/$vram+$ram/warm")"
	done >>"$tmp/rows"

test "$(grep -c ' 0 [0-9]* 0$' "$tmp/rows")" -ge 1 &&
	test "$(grep -vc ' 0 [0-9]* 0$' "$tmp/rows")" -ge 1
ok $? "there are rows of one tier and of two" "$tmp/rows"

begin()	# LANE TRACE VRAM RAM HOT WARM
{
	start "$1" gpc-replay "$traces/$2" --dir "$shm" --json --vram-blocks "$3" \
		--ram-blocks "$4"
}

end()	# LANE PID TRACE VRAM RAM HOT WARM
{
	finish "$2"
	mv "$tmp/$1.out" "$tmp/out"
	is "$status $(values requests block_refs vram_hit_blocks ram_hit_blocks \
		wrong_blocks)" "0 $(size "$3") $6 $7 0" \
		"$3, $4 blocks of VRAM, $5 of RAM" || diag "$(cat "$tmp/$1.err")"
}

# a replay waits half of its time for a writer: two rows at once
while read -r one; do
	begin one $one
	first=$pid
	read -r two && begin two $two
	end one $first $one
	test -z "$two" || end two $pid $two
done <"$tmp/rows"

done_testing
