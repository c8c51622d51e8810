#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect hot: of a load that is known, the prefixes, roots and tags in their order, with rates near those of the load.
# Tests: tools/inspect/hot.c tools/inspect/hot_table.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

refuses 2 '--looks is an option of hot' gpc-inspect --dir "$shm" ls --looks 3
refuses 2 '--looks: 1 is out of range \(2 to 100000\)' gpc-inspect --dir "$shm" hot one --looks 1
refuses 2 'hot: --limit: 1000 is out of range \(1 to 999\)' gpc-inspect --dir "$shm" hot one --limit 1000
refuses 1 'absent' gpc-inspect --dir "$shm" hot absent
serve one --block-size 16 --vram-blocks 64 --max-peers 8 --keep-digests
refuses 1 'one has no pool 3' gpc-inspect --dir "$shm" hot one --pool 3
inspect hot one --looks 2
is "$status $(sed 's/[0-9.]* s apart/N s apart/' "$tmp/out")" "0 one: 2 looks, N s apart: no block was used" "nothing is used"

start load "$helpers/uses" "$shm" one 2 0.8 0.4
load=$pid
until_ok grep -q using "$tmp/load.out" || bail "uses: $(cat "$tmp/load.err")"
inspect --json hot one --looks 60
exits 0 "a known load"
cp "$tmp/out" "$tmp/hot.json"
kill "$load"
finish "$load"
test "$status" -eq 0 && grep -q '^used' "$tmp/load.out" || bail "the load ends with $status: $(cat "$tmp/load.out" "$tmp/load.err")"

key()	# N: that line of the load
{
	sed -n "$1p" "$tmp/load.out"
}

of()	# LIST N FIELD
{
	"$helpers/json" "$tmp/hot.json" "$1/$2/$3"
}

is "$(of prefixes 0 key) $(of prefixes 0 blocks) $(of prefixes 0 tag)" "$(key 1) 3 7" \
	"the prefix that two prompts have in common comes first, as a whole"
is "$(of prefixes 1 key) $(of prefixes 1 blocks)" "$(key 2) 4" "then the prompt that is used more"
is "$(of roots 0 words) $(of roots 1 words) $(of tags 0 tag) $(of tags 1 tag)" 'often seldom 7 9' "roots by their words, and tags"
! grep -q "$(key 5)\|\"tag\": 11" "$tmp/hot.json"
ok $? "what is never used is not there" "$tmp/hot.json"

# The interval is of 95 of 100: half as much again on both sides is more than four deviations.
near()	# LIST N USES NAME
{
	awk -v uses="$3" -v s="$(sed -n 's/^used .* //p' "$tmp/load.out")" -v least="$(of "$1" "$2" least)" -v most="$(of "$1" "$2" most)" '
		BEGIN { r = uses / s; exit !(least / 1.5 <= r && (most == "null" || r <= most * 1.5)) }'
	ok $? "$4" "$tmp/hot.json" || diag "used $3: $(sed -n '/^used/p' "$tmp/load.out")"
}

uses()	# N: of that prompt
{
	sed -n '/^used/p' "$tmp/load.out" | cut -d' ' -f$(($1 + 1))
}

near prefixes 0 $(($(uses 1) + $(uses 2))) "its rate is that of both prompts"
near prefixes 1 "$(uses 1)" "that of one"
near roots 1 "$(uses 3)" "that of the other root"
near tags 0 $(($(uses 1) + $(uses 2))) "that of a tag"
inspect check one
exits 0 "the cache is sound"

start load "$helpers/uses" "$shm" one 30 0 0
load=$pid
until_ok grep -q using "$tmp/load.out" || bail "uses: $(cat "$tmp/load.err")"
inspect hot one --looks 4 --limit 1
kill "$load"
finish "$load"
prints '^PREFIX +BLOCKS +TAG +LOOKS +USES/S +LEAST +MOST$' "a table"
is "$(grep -c "^[0-9a-f]\{32\}  " "$tmp/out")" 2 "--limit: one root, and one prefix"
aligned "its columns"

done_testing
