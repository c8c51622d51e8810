#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect stat: its reserved blocks are the sum of those in peers, and the part of the steward is told, which holds
# the empty slots of tiers.
# Tests: tools/inspect/stat.c tools/inspect/peers.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

hold()	# LABEL RESERVED
{
	start "$1" "$helpers/hold" "$shm" kept "$1" 0 "$2" 0
	until_ok grep -q holding "$tmp/$1.out" || bail "$(cat "$tmp/$1.err")"
}

of_peers()	# [LABEL]: RESERVED, added up
{
	inspect peers kept
	awk -v label="$1" '
		NR == 1 { at = index($0, "RESERVED") + 7; next }
		label == "" || $3 == label { n = split(substr($0, 1, at), f, / +/); sum += f[n] }
		END { print sum + 0 }' "$tmp/out"
}

serve kept --block-size 16 --ram-blocks 50 --block-bytes 4k --max-peers 8
plain=$pid
hold worker 7
worker=$pid
inspect --json stat kept
is "$(value stats/reserved)" 7 "without tiers: what a worker has"
! grep -q reserved_by_steward "$tmp/out"
ok $? "and no part of a steward"
inspect stat kept
! grep -q steward "$tmp/out"
ok $? "nor a line of it"
kill "$worker" "$plain"
finish "$worker"
until_ok is_gone "$plain"
inspect rm kept

serve kept --block-size 16 --ram-blocks 50 --block-bytes 4k --max-peers 8 --disk "$tmp/disk" --disk-blocks 100
hold worker 7
worker=$pid
hold other 5
other=$pid
sum=$(of_peers)
inspect --json stat kept
is "$(value stats/reserved)" "$sum" "the sum is that of the peers"
is "$(value stats/reserved_by_steward)" "$(of_peers tiers)" "the steward's part is that of its seat"
is "$(of_peers worker) $(of_peers other)" '7 5' "others have theirs"
is $((sum - $(of_peers tiers))) 12 "and the rest is theirs alone"
inspect stat kept
prints '^reserved blocks: +112$' "for people: all"
prints '^  by the steward: +100$' "and the empty slots of the disk"
aligned "in columns"
kill "$worker" "$other"

done_testing
