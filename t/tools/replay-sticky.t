#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-replay --sticky: the hits of each curve of --plot, the blocks that a share needs and what a change costs are those
# of t/sh/replay-model.py, which runs the caches; a replay deals its requests so, too.
# Tests: tools/replay/deal.c tools/replay/plot.c tools/replay/curve.c tools/replay/svg.c tools/replay/worker.c
#   tools/replay/kill.c tools/replay/session.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

svg=$tmp/hits.svg
command -v python3 >/dev/null || skip_all "there is no python3"

model()
{
	python3 "$srcdir/t/sh/replay-model.py" "$@"
}

figures()	# the CSV of the picture
{
	sed -n '/^<metadata>$/,/^<\/metadata>$/p' "$svg" | sed '1d;$d'
}

# ---- replays ----

# Prompts that no two sessions share: whoever replays a session has published all that its next turn asks for.
awk 'BEGIN {
	for (turn = 0; turn < 12; turn++)
		for (s = 0; s < 40; s++) {
			printf "{\"session\": %d, \"hash_ids\": [", s
			for (i = 0; i <= turn; i++)
				printf "%s%d", i ? ", " : "", s * 100 + i
			print "]}"
		}
}' >"$tmp/own.jsonl"
for how in session hash; do
	run gpc-replay "$tmp/own.jsonl" --dir "$shm" --workers 7 --sticky $how --json
	is "$status $(values requests prefix_hit_blocks duplicates wrong_blocks sessions sticky)" \
		"0 480 $((40 * 66)) 0 0 40 $how" "7 workers, $how: nobody lacks what the same worker had"
done
run gpc-replay "$tmp/own.jsonl" --dir "$shm" --workers 90 --sticky session --json
is "$status $(values requests prefix_hit_blocks duplicates workers_failed)" "0 480 $((40 * 66)) 0 0" \
	"more workers than sessions"
run gpc-replay "$tmp/own.jsonl" --dir "$shm" --workers 3 --sticky session --fetch --kill 4 --vram-blocks 200 \
	--ram-blocks 2000 --payload 256 --device host --json
is "$status $(values requests block_refs wrong_blocks workers_failed kills left)" "0 480 $((40 * 78)) 0 0 4 0" \
	"workers that are killed"
awk '/"session": [0-3],/' "$tmp/own.jsonl" >"$tmp/few.jsonl"
run gpc-replay "$tmp/few.jsonl" --dir "$shm" --workers 24 --sticky session --fetch --kill 3 --vram-blocks 200 \
	--ram-blocks 2000 --payload 256 --device host --json
is "$status $(values requests block_refs wrong_blocks workers_failed kills left)" "0 48 $((4 * 78)) 0 0 3 0" \
	"and some have nothing to do"
# ---- names ----

# a session without a name is one request; of a name in figures and as a text there is one session
printf '%s\n' '{"hash_ids": [0, 1], "session": 7}' '{"hash_ids": [0, 1]}' '{"hash_ids": [0, 1], "session": "7"}' \
	'{"hash_ids": [0, 1]}' >"$tmp/odd.jsonl"
run gpc-replay "$tmp/odd.jsonl" --workers 2 --sticky session --plot "$svg" --json
is "$(values sessions points/0/one_each_hits points/0/sticky_hits)" '3 4 4' "sessions by name"

# two pairs of names of one hash, FNV-1a
for name in 8yn0iYCKYHlIj4-BwPqk GReLUrM4wMqfg9yzV3KQ gMPflVXtwGDXbIhP73TX LtHf1prlU1bCeYZEdqWf; do
	echo "{\"hash_ids\": [], \"session\": \"$name\"}"
	echo "{\"hash_ids\": [], \"session\": \"$name\"}"
done >"$tmp/alike.jsonl"
run gpc-replay "$tmp/alike.jsonl" --workers 2 --sticky hash --plot "$svg" --json
is "$status $(values sessions requests)" '0 4 8' "names of one hash are names of several sessions"

# ---- the curves ----

compare()	# TRACE WORKERS HOW
{
	run gpc-replay "$1" --workers "$2" --sticky "$3" --plot "$svg" --json
	exits 0 "$(basename "$1"), $2 workers, $3"
	n=$(figures | sed 1d | wc -l)
	some="0 $((n / 6)) $((n / 3)) $((n / 2)) $((n - 1))"
	blocks=$(for i in $some; do value points/$i/blocks; done)
	for curve in 'one_cache_hits one none' 'one_each_hits none none' "sticky_hits $3 none"; do
		set -- "$1" "$2" "$3" $curve
		is "$(for i in $some; do value "points/$i/$4"; done | paste -sd' ' -)" \
			"$(model hits "$1" "$2" "$5" "$6" $blocks)" "$4 in caches of $(echo $blocks) blocks"
	done
	sticky=$(for i in $some; do value "points/$i/sticky_hits"; done)
	for change in 'death dies' 'added added' 'removed removed'; do
		test "$change" = 'removed removed' && test "$2" -eq 1 && continue
		is "$(for i in $some; do value "points/$i/lost_to_${change% *}"; done | paste -sd' ' -)" \
			"$(for hits in $(model hits "$1" "$2" "$3" "${change#* }" $blocks); do
				set -- "$1" "$2" "$3" $sticky
				echo $(($4 - hits))
				shift 4
				sticky=$*
			done | paste -sd' ' -)" "lost to ${change% *}"
	done
	figures | sed '1d;s/,/ /g' | while read -r blocks one each refs sticky; do
		echo "$blocks $one $each $refs $sticky"
	done >"$tmp/picture"
	i=0
	while test $i -lt "$n"; do
		values points/$i/blocks points/$i/one_cache_hits points/$i/one_each_hits block_refs \
			points/$i/sticky_hits
		i=$((i + 9))
	done >"$tmp/object"
	is "$(cat "$tmp/object")" "$(awk 'NR % 9 == 1' "$tmp/picture")" "the picture has the figures"
	for k in 1 3; do
		hits=$(value needs/$k/hits)
		for curve in "one_cache one 1" "sticky $3 $2"; do
			set -- "$1" "$2" "$3" $curve
			need=$(value "needs/$k/$4_blocks")
			if test "$need" = null; then
				most=$(model hits "$1" "$2" "$5" none 1000000000)
				test "$most" -lt "$hits"
				ok $? "$hits hits: more than $4 ever has"
				continue
			fi
			set -- "$1" "$2" "$3" $curve $(model hits "$1" "$2" "$5" none "$need" $((need - $6)))
			test "$7" -ge "$hits" && test "$8" -lt "$hits"
			ok $? "$hits hits need $need blocks of $4, and no fewer" || diag "$7 and $8"
		done
	done
}

model sessions 90 4 >"$tmp/turns.jsonl"
for how in session hash; do
	compare "$small_trace" 4 $how
	compare "$tmp/turns.jsonl" 3 $how
done
compare "$tmp/turns.jsonl" 1 session
compare "$tmp/turns.jsonl" 8 hash
run gpc-replay "$tmp/turns.jsonl" --sticky session --plot "$svg" --json
is "$(values points/0/lost_to_removed)" '' "one worker cannot be removed"
run gpc-replay "$small_trace" --workers 4 --plot "$svg" --json
is "$(values sticky points/0/sticky_hits needs/0/sticky_blocks)" null "without --sticky two curves"

# ---- the picture and the tables ----

run gpc-replay "$small_trace" --workers 4 --sticky session --plot "$svg"
exits 0 "without --json"
prints '^BLOCKS  ONE CACHE  ONE EACH  STICKY$' "rates"
prints '^HIT RATE  ONE CACHE  ONE EACH  STICKY$' "needs"
prints '^BLOCKS  DIES  IS ADDED  IS REMOVED$' "changes"
is "$(grep -c '<path class="[a-z]* line" d="M[0-9.]* [0-9.]*L' "$svg")" 3 "three lines are drawn"
is "$(grep -o '<circle class="[a-z]*"' "$svg" | sort | paste -sd' ' -)" \
	'<circle class="each" <circle class="one" <circle class="sticky"' "with a mark on each"
grep -q ': 400 requests of [0-9]* sessions<' "$svg"
ok $? "and say whose requests these are" "$svg"

is "$(ls "$shm")" '' "nothing is left of all that"

done_testing
