#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect peers: what each process holds, and in which state it is, what is on its way, also in
# stat; gpc-inspect reap: the dead let go.
# Tests: tools/inspect/peers.c tools/inspect/waits.c tools/inspect/admin.c tools/inspect/mirrors.c
#   lib/look/transfers.c lib/look/claims.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

hold()	# LABEL CACHE REFS RESERVED SECTIONS [FIRST [POOL [CLAIMS [TRANSFERS]]]]: $pid
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
is "$(of gpcd refs_held_ns)" null "no reference, no time"
are_held()
{
	inspect --json peers crew
	test "$(of careful refs_held_ns)" != null && test "$(of modest refs_held_ns)" != null
}
until_ok are_held
ok $? "references have been there for a time"
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
prints "^ +[0-9]+ +$careful +careful +alive +5 +[0-9.]+ (us|ms|s) +2 +3 +[0-9.]+ (us|ms|s) " \
	"it shows the age with its unit"
prints "^ +[0-9]+ +$modest +modest +alive +1 +[0-9.]+ (us|ms|s) +0 +0 +- " "and none where there is none"
inspect --json stat crew
is "$(value stats/refs stats/reserved stats/sections)" "6
6
3" "stat has the sums"

stop_process "$modest"
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
# the reap before it had a seat, too
nobody_left()
{
	inspect --json reap crew
	test "$(value left)" = 0
}
until_ok nobody_left
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
stop_process "$writer"
until_ok state_is frozen gpcd "writer stopped"
kill -9 "$pid"
finish "$pid"
inspect reap frozen
exits 1 "reap cannot take the seat of a writer that is stopped"
says 'frozen: 1 .*dead.*its writer may be stopped' "and says so"
kill -CONT "$writer"
until_ok forgotten frozen third
ok $? "the writer goes on, and reaps"

# ---- what is on its way ----

serve moving --block-size 16 --max-blocks 512 --ram-blocks 64 --block-bytes 4k
writer=$pid
start keeper gpcd moving --dir "$shm" --keep --device host --vram-blocks 64 --block-bytes 4k \
	--demote-to 0
keeper=$pid
until_ok grep -q 'keeping pool 1' "$tmp/keeper.err" || bail "$(cat "$tmp/keeper.err")"

inspect --json stat moving
is "$(values stats/transfers stats/claims under_way claimed)" '0 0 [0] [0]' "nothing is"
inspect stat moving
grep -Eq '^(TRANSFER|CLAIMED KEY) ' "$tmp/out"
test $? = 1
ok $? "and has no table"

hold idle moving 1 0 0 500 1
idle=$pid
hold mover moving 5 4 0 700 1 3 2
mover=$pid
sed -n '4,5p' "$tmp/mover.out" >"$tmp/spilled"
inspect --json peers moving
is "$(of mover transfers claims)" "2 3" "a process has transfers and claims"
is "$(of idle transfers claims oldest_transfer_ns oldest_claim_ns under_way claimed)" \
	"0 0 null null [0] [0]" "another one has none"
like "$(of mover oldest_transfer_ns oldest_claim_ns)" '^[1-9][0-9]+ [1-9][0-9]+$' "they have ages"
is "$(of mover under_way/0/label under_way/0/pid under_way/0/from under_way/0/to)" \
	"mover $mover 1 0" "a transfer has an owner, and goes somewhere"
is "$(of mover under_way/1/blocks under_way/1/left under_way/1/ranks under_way/1/passed)" \
	"1 1 1 0" "it says how far it is"
is "$(of mover claimed/2/label claimed/2/pid claimed/2/pool)" "mover $mover 1" "and so has a claim"
first=$(of mover claimed/0/age_ns)
last=$(of mover claimed/2/age_ns)
test "$first" -ge "$last"
ok $? "the oldest is first: $first, $last"

inspect --json stat moving
is "$(values stats/transfers stats/claims under_way claimed)" '2 3 [2] [3]' "stat says the same"
is "$(values under_way/0/pid claimed/0/pid claimed/1/label)" "$mover $mover mover" "and whose they are"
claimed=$(value claimed/0/key)
like "$claimed" '^[0-9a-f]{32}$' "with the key"
older=$(value stats/oldest_claim_ns)
test "$older" -gt "$first" && test "$(value claimed/0/age_ns)" = "$older"
ok $? "claims grow older: $first, $older"
inspect stat moving
exits 0 "stat"
plain "is plain text"
prints '^transfers: +2$' "it counts transfers"
prints '^claims: +3$' "and claims"
prints "^ *[0-9]+ +[0-9]+ +$mover +mover +1 +0 +1 +1 +1 +0 +[0-9.]+ (us|ms|s)\$" "names a transfer"
prints "^$claimed +[0-9]+ +$mover +mover +1 +[0-9]+ +[0-9.]+ (us|ms|s)\$" "and a claim"
inspect peers moving
exits 0 "peers"
prints "^ +[0-9]+ +$mover +mover +alive +5 +([0-9.]+ (us|ms|s)|-) +6 +0 +- +2 +[0-9.]+ (us|ms|s) +3 +[0-9.]+ (us|ms|s) " \
	"peers counts both"
prints "^ *[0-9]+ +[0-9]+ +$mover +mover +1 +0 +1 +1 +1 +0 +[0-9.]+ (us|ms|s)\$" "and names them"
prints "^$claimed +[0-9]+ +$mover +mover " "the claim, too"

# many: people see the oldest
hold many moving 0 30 0 2000 1 30
many=$pid
inspect peers moving
is "$(grep -Ec "^[0-9a-f]{32} " "$tmp/out")" 20 "the table of claims has 20 rows"
prints '^and 13 claims more, which are younger$' "and says how many there are beside them"
is "$(grep -E "^[0-9a-f]{32} " "$tmp/out" | grep -c " mover ")" 3 "the oldest are there"
inspect --json peers moving
is "$(of many claims claimed)" '30 [30]' "JSON has all"
kill "$many"
finish "$many"
is "$status" 0 "their process leaves"
claims_are()	# COUNT
{
	inspect --json stat moving
	test "$(values stats/claims claimed)" = "$1 [$1]"
}
until_ok claims_are 3
ok $? "and its claims go" "$tmp/out"

# without a writer those of the dead stay
kill -9 "$writer"
until_ok is_gone "$writer"
kill -9 "$mover"
finish "$mover"
inspect --json peers moving
is "$(of mover state transfers claims under_way claimed)" "dead 2 3 [2] [3]" \
	"those of a process that has died are named, as long as nobody has ended them"
serve moving
none_waits()
{
	inspect --json stat moving
	test "$(values stats/transfers stats/claims under_way claimed)" = '0 0 [0] [0]'
}
until_ok none_waits
ok $? "a writer ends them" "$tmp/out"
inspect check moving
exits 0 "the cache is sound"

# ---- companions ----

serve pair --block-size 16 --vram-blocks 64
writer=$pid
GPC_T_LIFE=yes
export GPC_T_LIFE
hold leader pair 2 3 0
leader=$pid
GPC_T_LEADER=$(sed -n 's/^life //p' "$tmp/leader.out")
export GPC_T_LEADER
hold worker pair 0 0 0
worker=$pid
unset GPC_T_LIFE GPC_T_LEADER
inspect --json peers pair
seat=$(of leader peer)
is "$(of worker leader) $(of leader leader)" "$seat null" "a companion is shown with its leader"
inspect peers pair
prints "^ +[0-9]+ +$worker +worker +alive .* $seat\$" "in the table, too"
kill -9 "$leader"
finish "$leader"
reserved_is()	# CACHE LABEL RESERVED
{
	inspect --json peers "$1"
	test "$(of "$2" reserved)" = "$3"
}
until_ok reserved_is pair leader 0
ok $? "a leader is dead, and the writer has seen it"
is_dead_with()	# LABEL REFS
{
	inspect --json peers pair
	test "$(of "$1" state refs)" = "dead $2"
}
until_ok is_dead_with leader 2   # its process may be there a moment longer than its reservations
ok $? "what it refers to stays"
# the writer may be looking whether that seat's lock is free, so that it seems to be held
reap_says()	# TEXT
{
	inspect reap pair
	test "$status" = 0 && grep -q "$1" "$tmp/out"
}
until_ok reap_says 'dead: 0, that had closed the cache: 0; not cleared yet: 0; kept for their companions: 1$'
ok $? "reap clears what is to be cleared, and says what is kept" "$tmp/out"
kill "$worker"
finish "$worker"
until_ok forgotten pair leader
ok $? "it goes with its companion"
inspect check pair
exits 0 "the cache is sound"

done_testing
