#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect peers names who takes too much, by its number; and tells processes of other PID
# namespaces from one's own, whatever their numbers are.
# Tests: tools/inspect/peers.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

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

lie()	# WHAT: $pid, of a peer with that label
{
	start "$1" "$helpers/lie" "$shm" crew "$1" "$1"
	until_ok grep -q lying "$tmp/$1.out" || bail "lie $1: $(cat "$tmp/$1.err")"
}

# ---- who takes too much ----

serve crew --block-size 16 --vram-blocks 64 --quota 12
lie reserved
reserved=$pid
lie refs
refs=$pid
lie sections
sections=$pid
lie ring
ring=$pid

is "$(head -n 1 "$tmp/reserved.out")" 'reserved: Disk quota exceeded' "a quota ends"
like "$(head -n 1 "$tmp/refs.out")" 'Value too large' "references end"
like "$(head -n 1 "$tmp/sections.out")" 'Resource temporarily' "sections end"
like "$(head -n 1 "$tmp/ring.out")" 'Resource temporarily' "the ring ends"

inspect --json peers crew
exits 0 "peers --json"
is "$(of reserved pid state reserved refs sections)" "$reserved alive 12 0 0" \
	"who has used up its quota"
is "$(of refs pid state reserved refs sections)" "$refs alive 0 32768 0" \
	"who has all the references there are"
is "$(of sections pid state reserved refs sections)" "$sections alive 0 0 56" \
	"who has all sections"
like "$(of sections oldest_section_ns)" '^[1-9][0-9]*$' "and for how long"
is "$(of ring pid state reserved refs sections)" "$ring alive 0 0 0" "who fills its ring"
like "$(of ring ring_full)" '^[1-9][0-9]*$' "and how often it was full"
is "$(of reserved here ring_full)" 'true 0' "others' are not"

are_held()	# the writer looks for references ten times a second
{
	inspect --json peers crew
	test "$(of refs refs_held_ns)" != null
}
until_ok are_held

inspect peers crew
exits 0 "peers"
aligned "peers is aligned"
prints "^ +[0-9]+ +$reserved +reserved +alive +0 +- +12 +0 +- " "a quota in the table"
prints "^ +[0-9]+ +$refs +refs +alive +32768 +[0-9.]+ (us|ms|s) +0 +0 +- " "references in the table"
prints "^ +[0-9]+ +$sections +sections +alive +0 +- +0 +56 +[0-9.]+ (us|ms|s) " \
	"sections in the table"
prints "^ +[0-9]+ +$ring +ring +alive +0 +- +0 +0 +- +0 +- +0 +- +[1-9]" "a full ring in the table"

# their neighbour has what is left
start neighbour "$helpers/hold" "$shm" crew neighbour 6 4 1 500
until_ok grep -q holding "$tmp/neighbour.out"
ok $? "a neighbour goes on" "$tmp/neighbour.err"
for liar in $reserved $refs $sections $ring $pid; do
	kill $liar
	finish $liar
done
inspect check crew
exits 0 "the cache is sound"

# ---- two houses ----

house=
for house in 'unshare -pf --mount-proc' 'unshare -Urpf --mount-proc' ''; do
	test -n "$house" && $house true 2>/dev/null && break
done
if test -z "$house"; then
	skip 11 "no PID namespaces here"
	done_testing
fi

# The first process of each is a shell, the next one has number 2 in both.
start gpcd $house sh -c 'gpcd two --dir "$1" --block-size 16 --vram-blocks 64 & wait' sh "$shm"
until_ok gpc-inspect --dir "$shm" stat two || bail "gpcd: $(cat "$tmp/gpcd.err")"
daemon=$pid
start far $house sh -c '"$1" "$2" two far 2 3 1 900 & wait' sh "$helpers/hold" "$shm"
until_ok grep -q holding "$tmp/far.out" || bail "hold: $(cat "$tmp/far.err")"
far=$pid

inspect --json peers two
exits 0 "peers, from outside"
is "$(of gpcd pid)" "$(of far pid)" "both have the same number"
is "$(of gpcd state here)" 'writer false' "one is the writer, elsewhere"
is "$(of far state here alive refs reserved sections)" 'elsewhere false true 2 3 1' \
	"the other one is not, and elsewhere, too"
inspect peers two
prints ' far +elsewhere +2 +(-|[0-9.]+ (us|ms|s)) +3 +1 ' "it is in the table"
run $house gpc-inspect --dir "$shm" --json peers two
is "$(of gpcd state)$(of far state)" writerelsewhere "from a third house it looks the same"
inspect --json list
is "$(value '*/name' '*/peers' | awk '$1 ~ /name/ && $2 == "two" { split($1, at, "/") }
	at[1] != "" && $1 == at[1] "/peers" { print $2 }')" 2 "list counts both"

children()	# PID: of a shell that waits
{
	cat "/proc/$1/task/$1/children" 2>/dev/null
}

for child in $(children "$far"); do
	kill -9 "$child"
done
finish "$far"
only_gpcd()
{
	gpc-inspect --dir "$shm" --json peers two >"$tmp/out" && test "$(value '')" = '[1]'
}
until_ok only_gpcd
ok $? "a house that is killed as a whole is reaped from the other one"
inspect --json peers two
is "$(of gpcd state)" writer "the writer lives"
for child in $(children "$daemon"); do
	kill -9 "$child"
done
finish "$daemon"
inspect --json peers two
is "$(of gpcd state alive)" 'dead false' "and is dead when its house is"
inspect --json reap two
is "$(value dead remain)" '1
0' "which can be reaped from anywhere"

done_testing
