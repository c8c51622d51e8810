#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect peers: what each process holds, and in which state it is; gpc-inspect reap:
# the dead let go.

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

hold()	# LABEL CACHE REFS RESERVED SECTIONS [FIRST]: $pid
{
	held_by=$1
	where=$2
	shift 2
	start "$held_by" "$helpers/hold" "$shm" "$where" "$held_by" "$@"
	until_ok grep -q holding "$tmp/$held_by.out" ||
		bail "hold: $(cat "$tmp/$held_by.err")"
}

of()	# LABEL FIELD...: of the peer with that label
{
	seat=$(value '*/label' | awk -v label="$1" '
		{ at = $1; sub(/^[^ ]* /, "") }
		$0 == label { sub(/label/, "", at); print at }')
	shift
	for field in "$@"; do
		value "$seat$field"
	done | paste -sd' ' -
}

state_is()	# CACHE LABEL STATE
{
	inspect --json peers "$1"
	test "$(of "$2" state)" = "$3"
}

# ---- who holds what ----

serve crew --block-size 16 --vram-blocks 64
writer=$pid
hold careful crew 5 2 3 100
careful=$pid
hold modest crew 1 0 0 200
modest=$pid
hold evil_31m_name. crew 0 4 0
relabel crew evil_31m_name. 'evil\033[31m\tname'

inspect --json peers crew
exits 0 "peers --json"
is "$(value '')" '[4]' "four are attached"
is "$(of careful pid state refs reserved sections published)" "$careful alive 5 2 3 5" \
	"references, reserved blocks and sections of one"
is "$(of modest pid state refs reserved sections published)" "$modest alive 1 0 0 1" \
	"of another"
is "$(of gpcd pid state refs reserved sections)" "$writer writer 0 0 0" "of the writer"
is "$(of "$(printf 'evil\033[31m\tname')" refs reserved)" "0 4" "a label is what it is in JSON"
is "$(of modest oldest_section_ns)" null "no section, no age"
young=$(of careful oldest_section_ns)
like "$young" '^[1-9][0-9]*$' "the oldest section has an age"
inspect --json peers crew
old=$(of careful oldest_section_ns)
test "$old" -gt "$young"
ok $? "which grows: $young, $old"

inspect peers crew
exits 0 "peers"
aligned "peers is aligned"
plain "and plain text"
prints ' evil\\x1b\[31m\\x09name ' "a label cannot speak to the terminal"
prints "^ +[0-9]+ +$careful +careful +alive +5 +2 +3 +[0-9.]+ (us|ms|s) " \
	"it shows the age with its unit"
prints "^ +[0-9]+ +$modest +modest +alive +1 +0 +0 +- " "and none where there is none"
inspect --json stat crew
is "$(value stats/refs stats/reserved stats/sections)" "6
6
3" "stat has the sums"

kill -STOP "$modest"
until_ok state_is crew modest stopped
ok $? "a stopped process is named"
is "$(of modest alive refs)" "true 1" "it lives, and holds what it holds"
kill -CONT "$modest"
until_ok state_is crew modest alive
ok $? "it goes on"

# ---- the dead, with a writer ----

forgotten()	# CACHE LABEL
{
	inspect --json peers "$1"
	test -z "$(of "$2" pid)"
}

kill -9 "$careful"
finish "$careful"
until_ok forgotten crew careful
ok $? "a writer reaps one that was killed"
inspect --json stat crew
is "$(value stats/live stats/refs stats/sections)" "6
1
0" "its references and sections are gone, its blocks are there"
inspect reap crew
exits 0 "reap, with nobody dead"
prints '^crew: seats of processes that are dead: 0, that had closed the cache: 0; not cleared yet: 0$' "says so"
inspect --json reap crew
is "$(value name dead left remain served)" "crew
0
0
0
false" "reap --json"
kill "$modest"
finish "$modest"
is "$status" 0 "a worker leaves"
inspect check crew
exits 0 "the cache is sound"

# ---- the dead, without a writer ----

serve orphan --block-size 16 --vram-blocks 64
writer=$pid
hold first orphan 3 4 1 300
first=$pid
hold second orphan 2 0 0 400
second=$pid
hold polite orphan 0 0 0
polite=$pid
kill -9 "$writer"
until_ok is_gone "$writer"
kill -9 "$first"
finish "$first"
kill "$polite"
finish "$polite"
is "$status" 0 "one leaves while there is no writer"
inspect --json peers orphan
is "$(of polite state alive)" "left false" "it has left, and is not dead"
is "$(of first state alive refs reserved sections)" "dead false 3 4 1" \
	"without a writer the dead stay, with what they held"
is "$(of gpcd state)" dead "the writer among them"
is "$(of second state refs)" 'alive 2' "the living are alive"
inspect peers orphan
exits 0 "peers with dead ones"
aligned "is aligned"
prints "^ +[0-9]+ +$polite +polite +left " "and tells who left from who died"
inspect check orphan
exits 0 "the cache is sound"
inspect --json list
is "$(value '*/name' '*/state' | sort)" "0/name crew
0/state served
1/name orphan
1/state no writer" "list knows that there is no writer"
is "$(value 1/peers 1/dead)" "1
3" "it counts who lives, and beside them the seats of who does not"
inspect --json stat orphan
is "$(value peers dead)" "1
3" "stat counts the same"

inspect --json reap orphan
exits 0 "reap takes the writer's seat"
is "$(value name dead left remain served)" "orphan
2
1
0
true" "and serves until they are gone"
inspect --json peers orphan
is "$(value '')" '[1]' "who lives stays"
is "$(of second refs)" 2 "with what it holds"
inspect --json stat orphan
is "$(value writer_pid stats/live stats/refs stats/reserved stats/sections)" "null
5
2
0
0" "the rest was given back, the seat as well"
inspect reap orphan
prints '^orphan: seats .* dead: 0, .* cache: 0; not cleared yet: 0; there was no writer' "a second time there is nobody"
inspect check orphan
exits 0 "the cache is sound"

# ---- a writer that is stopped ----

serve frozen --block-size 16 --vram-blocks 64
writer=$pid
hold third frozen 1 0 0
kill -STOP "$writer"
until_ok state_is frozen gpcd "writer stopped"
kill -9 "$pid"
finish "$pid"
inspect reap frozen
exits 1 "reap cannot take the seat of a writer that is stopped"
says 'frozen: 1 .*dead.*its writer may be stopped' "and says so"
kill -CONT "$writer"
until_ok forgotten frozen third
ok $? "the writer goes on, and reaps"

done_testing
