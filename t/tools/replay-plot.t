#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-replay --plot: its figures are those of replays with these capacities, of the whole trace in one cache, and of
# each worker's part in one of its own; and the picture has them.  The picture in doc/worth.md is of this program.
# Tests: tools/replay/plot.c tools/replay/curve.c tools/replay/svg.c t/data/small.svg doc/worth.md

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

svg=$tmp/hits.svg

figures()	# FILE: the CSV of a picture
{
	sed -n '/^<metadata>$/,/^<\/metadata>$/p' "$1" | sed '1d;$d'
}

hits()	# TRACE BLOCKS: of a replay
{
	run gpc-replay "$1" --dir "$shm" --vram-blocks "$2" --json
	test $status -eq 0 || bail "gpc-replay $*: $(cat "$tmp/err")"
	value prefix_hit_blocks
}

# ---- mistakes ----

for option in '--name some' '--device host' '--fetch' '--vram-blocks 9' '--ram-blocks 9' '--payload 64'; do
	refuses 2 "--plot and ${option%% *} exclude each other" gpc-replay "$small_trace" --plot "$svg" $option
done
refuses 1 '--plot: /dev/null/hits.svg: Not a directory' gpc-replay "$small_trace" --plot /dev/null/hits.svg
refuses 1 '--plot: /dev/full: No space left' gpc-replay "$small_trace" --plot /dev/full
refuses 1 'no requests' gpc-replay /dev/null --plot "$svg"
! test -e "$svg" && test -c /dev/full
ok $? "no picture is left of that, and no device is gone"

# ---- the figures ----

for workers in 1 3 4; do
	run gpc-replay "$small_trace" --workers $workers --plot "$svg" --json
	exits 0 "$workers workers"
	is "$(values workers requests block_refs)" "$workers 400 $(grep -o '"hash_ids": \[[0-9, ]*\]' \
		"$small_trace" | sed 's/.*\[//' | grep -o '[0-9]\+' | wc -l)" "say what was computed"
	n=$(figures "$svg" | sed 1d | wc -l)
	test "$n" -ge 40
	ok $? "the picture has $n points"
	figures "$svg" | sed 1d | while IFS=, read -r blocks one each refs; do
		echo "$blocks $one $each"
	done >"$tmp/points"
	i=0
	while test $i -lt "$n"; do
		value points/$i/blocks points/$i/one_cache_hits points/$i/one_each_hits | paste -sd' ' -
		i=$((i + 7))
	done >"$tmp/some"
	is "$(cat "$tmp/some")" "$(awk 'NR % 7 == 1' "$tmp/points")" "the object and the picture agree"
	sort -n -u -k 1,1 "$tmp/points" | cmp -s - "$tmp/points"
	ok $? "from small to large"

	awk -v n=$workers -v to="$tmp/part" '{ print >(to NR % n ".jsonl") }' "$small_trace"
	for i in 1 $((n / 5)) $((n / 2)) "$n"; do
		read -r blocks one each <<-END
			$(sed -n "${i}p" "$tmp/points")
		END
		is "$one" "$(hits "$small_trace" "$blocks")" "one cache of $blocks blocks"
		sum=0
		for part in $(seq 0 $((workers - 1))); do
			sum=$((sum + $(hits "$tmp/part$part.jsonl" $((blocks / workers)))))
		done
		is "$each" "$sum" "$workers caches of $((blocks / workers)) blocks each"
	done
done
read -r blocks one each <<END
$(sed -n 1p "$tmp/points")
END
is "$blocks" 240 "the first capacity has room for the longest request in each cache"
hits "$small_trace" $((blocks * 100)) >"$tmp/most"
is "$(tail -n 1 "$tmp/points" | cut -d' ' -f 2)" "$(cat "$tmp/most")" "the last one loses nothing"
run gpc-replay "$small_trace" --dir "$shm" --vram-blocks 100 --ram-blocks 140 --json
is "$(value prefix_hit_blocks)" "$one" "and blocks of RAM count as those of VRAM do"

# ---- the picture ----

run gpc-replay "$small_trace" --workers 4 --plot "$svg"
exits 0 "without --json"
prints '^BLOCKS  ONE CACHE  ONE EACH$' "a table"
prints '^ *240 +78\.2 % +35\.6 %$' "of rates"
is "$(grep -c '<path class="[a-z]* line" d="M[0-9.]* [0-9.]*L' "$svg")" 2 "two lines are drawn"
run gpc-replay "$small_trace" --workers 4 --sticky session --plot "$svg"
prints '^ *240 +78\.2 % +35\.6 % +72\.7 %$' "where sessions stick, a third rate"
cmp -s "$svg" "$srcdir/t/data/small.svg"
ok $? "the picture of doc/worth.md is up to date" ||
	diag "gpc-replay t/data/small.jsonl --workers 4 --sticky session --plot t/data/small.svg"
grep -q '(\.\./t/data/small\.svg)' "$srcdir/doc/worth.md"
ok $? "and shown there"

odd="$tmp/<a & b>$(printf '\033')x.jsonl"
echo '{"hash_ids": []}' >"$odd"
run gpc-replay "$odd" --plot "$svg"
exits 0 "a trace that asks for nothing, with an odd name"
grep -q '>&lt;a &amp; b&gt;\\x1bx\.jsonl: 1 requests<' "$svg"
ok $? "which the picture spells out" "$svg"
! grep -qE 'nan|inf' "$svg"
ok $? "with places for all" "$svg"
echo '{"hash_ids": [1, 2, 3]}' >"$tmp/once.jsonl"
run gpc-replay "$tmp/once.jsonl" --workers 240 --plot "$svg"
exits 0 "more workers than requests"
! grep -qE 'nan|inf|="-' "$svg"
ok $? "with places for all" "$svg"
if command -v python3 >/dev/null; then
	for file in "$svg" "$srcdir/t/data/small.svg"; do
		run python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$file"
		exits 0 "it is XML"
	done
else
	skip 2 "there is no python3"
fi
run_with "$small_trace" gpc-replay - --workers 4 --plot "$svg"
grep -q '>standard input: 400 requests' "$svg"
ok $? "a trace from the standard input"
is "$(ls "$shm")" '' "nothing is left of all that"

done_testing
