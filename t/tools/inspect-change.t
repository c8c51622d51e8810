#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect clear and drop: what is named is forgotten, what is held comes back later, with a writer and without;
# and ls --csv.
# Tests: tools/inspect/change.c tools/inspect/ls.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

holds()	# FIRST: a worker that holds a chain of five blocks of tag 7
{
	start worker "$helpers/hold" "$shm" one worker 5 0 0 "$1"
	worker=$pid
	until_ok grep -q holding "$tmp/worker.out" || bail "hold: $(cat "$tmp/worker.err")"
}

lets_go()
{
	kill -TERM "$worker"
	finish "$worker"
}

nothing_dying()
{
	gpc-inspect --dir "$shm" --json stat one >"$tmp/out" && test "$(value stats/refs stats/dying | paste -sd' ')" = '0 0'
}

key()	# N: of the chain, from 1
{
	sed -n "$1p" "$tmp/worker.out"
}

# ---- mistakes ----

refuses 2 'clear: NAME is missing' gpc-inspect --dir "$shm" clear
refuses 2 'drop: KEY is missing' gpc-inspect --dir "$shm" drop
refuses 2 "drop: 'one' is not a key of 32 hex digits" gpc-inspect --dir "$shm" drop one
refuses 2 'drop: NAME is missing' gpc-inspect --dir "$shm" drop 00000000000000000000000000000001
refuses 2 '--tag: .*out of range' gpc-inspect --dir "$shm" clear one --tag 0
refuses 2 '--tag is an option of clear' gpc-inspect --dir "$shm" drop one --tag 1
refuses 2 '--csv is an option of ls' gpc-inspect --dir "$shm" stat --csv
refuses 2 'either --csv or --json' gpc-inspect --dir "$shm" ls --csv --json
refuses 1 'absent' gpc-inspect --dir "$shm" clear absent
serve one --block-size 16 --vram-blocks 64 --max-peers 4
writer=$pid
refuses 1 'one has no pool 3' gpc-inspect --dir "$shm" clear one --pool 3
refuses 1 'one has no pool 3' gpc-inspect --dir "$shm" drop one --pool 3 00000000000000000000000000000001

# ---- drop ----

holds 1
inspect drop one 00000000000000000000000000000001
is "$status $(cat "$tmp/out")" '1 not found' "a key that no block has"
inspect drop one "$(key 4)"
is "$status $(cat "$tmp/out")" '0 one: dropped 1 block with that key, and what follows' "a key in the middle"
inspect --json stat one
is "$(value stats/live)" 3 "three are left"
inspect lookup one "$(key 5)"
exits 1 "what followed it is gone, too"
inspect --json drop one "$(key 3)"
is "$(value name dropped)" 'one
1' "as JSON"

# ---- clear ----

refuses 1 'one: --if-idle: [0-9]+ blocks? .* held, so nothing was cleared' gpc-inspect --dir "$shm" clear one --if-idle
inspect --json clear one --tag 8
is "$(value live_before live held)" '2
2
3' "another tag: nothing goes, and what was dropped is held"
inspect clear one --tag 7 --pool 0
is "$status $(cat "$tmp/out")" '0 one: live blocks: 0, before that 2; held, and found no more: 5' "its tag, and its pool"
inspect --json stat one
is "$(value stats/refs)" 5 "the worker holds all five still"
lets_go
until_ok nothing_dying
ok $? "and they come back when it lets go"

# ---- csv ----

holds 11
inspect ls one --csv
is "$(sed -n 1p "$tmp/out")" 'pool,slot,depth,tag,refs,stamp,key,parent' "ls --csv: the names of the fields"
is "$(awk -F, 'NR > 1 && NF == 8 { print $1, $3, $4, $5, $7 }' "$tmp/out")" "$(
	for n in 1 2 3 4 5; do echo "0 $((n - 1)) 7 1 $(key $n)"; done)" "and a line for each block"
is "$(awk -F, 'NR == 2 { print $8 } NR == 3 { print $8 }' "$tmp/out")" "-
$(key 1)" "the first one has no parent"
lets_go

# ---- without a writer ----

kill -9 "$writer"
until_ok is_gone "$writer"
inspect clear one --if-idle
is "$status $(cat "$tmp/out")" '0 one: live blocks: 0, before that 5; held, and found no more: 0' \
	"without a writer, gpc-inspect is it"
inspect check one
exits 0 "the cache is sound"
inspect rm one
exits 0 "and nobody uses it"

done_testing
