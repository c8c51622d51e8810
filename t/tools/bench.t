#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-bench prints every row, and marks that follow from its values; or nothing, when an answer
# was wrong.
# Tests: tools/bench/

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"
test -x "$builddir/tools/gpc-bench" || skip_all "gpc-bench is not built"

# ---- options ----

refuses 2 'a WORK is missing' gpc-bench
refuses 2 "there is no work 'nothing'; there are lookup, insert, .*, device, and all" gpc-bench lookup nothing
refuses 2 "'--nonsense' is unknown" gpc-bench --nonsense
refuses 2 'needs a value' gpc-bench lookup --rounds
refuses 2 '--rounds: 0 is out of range' gpc-bench lookup --rounds 0
refuses 2 '--entries: 16 is out of range' gpc-bench lookup --entries 16
refuses 2 '--entries: 32M is out of range|--entries: 33554432 is out' \
	gpc-bench lookup --entries 32M
refuses 2 '--hits: 101 is out of range' gpc-bench lookup --hits 101
refuses 2 "--batch: 'x' is not a number" gpc-bench lookup --batch x
refuses 2 '--json or --csv, not both' gpc-bench lookup --json --csv
refuses 2 '--batch: at most 8 times' gpc-bench lookup --batch 1 --batch 2 --batch 3 --batch 4 \
	--batch 5 --batch 6 --batch 7 --batch 8 --batch 9
refuses 1 'cannot|No such' gpc-bench hash --quick --dir "$tmp/nowhere"
if test "$(awk '/^HugePages_Free/ { print $2 }' /proc/meminfo)" = 0; then
	refuses 1 '--huge: .*nr_hugepages' gpc-bench hash --quick --huge
else
	skip 1 "there are huge pages"
fi
run gpc-bench --version
prints '^gpc-bench ' "--version"

# ---- every row ----

run gpc-bench all --quick --json --dir "$shm"
exits 0 "all of it, quickly"
cp "$tmp/out" "$tmp/all.json"
is "$(ls -A "$shm")" '' "nothing is left"
value 'rows/*/work' | awk '{ print $2 }' | uniq | paste -sd' ' - >"$tmp/works"
is "$(cat "$tmp/works")" \
	'lookup insert match hash evict ref ring scale memory device sync' "all works, in order"

has()	# WORK WHAT: there is such a row
{
	value 'rows/*/work' 'rows/*/what' | sed 's/ / /; s|/work|/1|; s|/what|/2|' |
		awk -v work="$1" -v what="$2" '
		{ row = $1; sub(/\/[12]$/, "", row); text = $0; sub(/^[^ ]* /, "", text) }
		$1 ~ /\/1$/ { works[row] = text }
		$1 ~ /\/2$/ && works[row] == work && index(text, what) { found = 1 }
		END { exit !found }'
	ok $? "$1: $2"
}
while IFS=: read -r work what; do
	has "$work" "$what"
done <<-END
	lookup:limit
	lookup:gpc
	lookup:GPC_QUIET
	lookup:start
	lookup:ck_ht
	lookup:rculfhash
	lookup:LMDB
	lookup:unordered_map
	lookup:flat_map
	lookup:memcached
	lookup:Redis
	insert:the writer's time
	insert:the worker's time
	insert:stocked, until it is done
	insert:chains of 64, the writer's time
	insert:limit
	insert:the writer, nothing else in its time
	insert:the writer, beside the lines of a pair
	insert:24 lines of a pair
	insert:the writer, chains of 64
	insert:what 30 idle peers add
	insert:30 idle peers attached
	insert:start
	insert:memcached
	match:hash, match, references, release
	match:Python
	hash:4096 tokens
	hash:eight prompts
	hash:start
	evict:1 at once
	evict:an engine's own block, by a command
	evict:an engine's own block, from a stock
	evict:grace period, nobody reads
	evict:grace period, beside a reader
	ref:take and drop
	ref:one prompt's
	ref:section
	ring:two workers
	ring:there and back
	ring:nobody attached, CPU
	ring:nobody attached, sleeps
	scale:keys of its own
	scale:a prefix that all share
	scale:10,000 changes
	memory:segments and writer
	sync:on host
	sync:on cuda:0
	device:host
	device:cuda:0
END

# One line a row: its number, then NAME=VALUE.
rows()
{
	value 'rows/*/*' | sed 's|^rows/||' |
		awk '
		{ split($1, at, "/"); text = $0; sub(/^[^ ]* /, "", text); gsub(/ /, "_", text) }
		at[1] != last { if (NR > 1) print line; line = at[1]; last = at[1] }
		{ line = line " " at[2] "=" text }
		END { print line }'
}

rows | awk '
{
	delete v
	for (i = 2; i <= NF; i++) {
		eq = index($i, "=")
		v[substr($i, 1, eq - 1)] = substr($i, eq + 1)
	}
	n++
	if (("value" in v) == ("skipped" in v))
		print "neither or both of value and skipped: " $0
	if (("value" in v) && !((v["value"] + 0 >= 0 || v["what"] ~ /_add$/) && v["value_low"] + 0 <= v["value"] + 0 &&
			v["value"] + 0 <= v["value_high"] + 0 && v["rounds"] + 0 > 0))
		print "no median between its tenths: " $0
	if (("ratio" in v) != ("reference" in v))
		print "a ratio to nothing: " $0
	if (("met" in v) && (!("mark" in v) || "skipped" in v))
		print "met without a mark or a value: " $0
	if (!("met" in v))
		next
	x = v[v["mark_of"]] + 0
	good = v["mark_is"] == "most" ? x <= v["mark"] + 0 : x >= v["mark"] + 0
	if (good != (v["met"] == "true"))
		print "met or missed wrongly: " $0
}
END { if (n < 60) print n " rows" }' >"$tmp/bad"
test ! -s "$tmp/bad"
ok $? "values, ratios and marks agree" "$tmp/bad"
is "$(values met missed skipped)" "$(rows | awk '
	/ met=true/ { met++ }
	/ met=false/ { missed++ }
	/ skipped=/ { skipped++ }
	END { print met + 0, missed + 0, skipped + 0 }')" "and are counted"
rows | awk '
/ work=match / && / what=gpc:_hash_to_release,_beside_Python / { sub(/.* value=/, ""); ours = $1 }
/ reference=gpc:_hash_to_release,_beside_Python/ {
	sub(/.* reference_value=/, "")
	if ($1 != ours)
		print "to " $1 ", not to the row that says " ours
	seen++
}
END { if (seen != 3) print seen + 0 " rows" }' >"$tmp/bad"
if command -v python3 >/dev/null; then
	test ! -s "$tmp/bad"
	ok $? "the ratios of Python are to a row that is there" "$tmp/bad"
else
	skip 1 "python3 is missing"
fi
value machine/cpu machine/cores command seconds >/dev/null
ok $? "machine, command and time are there"

# ---- other forms ----

run gpc-bench hash lookup --quick --entries 4k --batch 64 --hits 100 --csv --dir "$shm"
exits 0 "--csv"
tr -d '\r' <"$tmp/out" >"$tmp/csv"
is "$(head -n 1 "$tmp/csv" | cut -d, -f1-5)" 'work,what,entries,batch,hits' "titles"
sed 's/"[^"]*"/text/g' "$tmp/csv" | awk -F, 'NR == 1 { n = NF } NF != n' >"$tmp/bad"
test ! -s "$tmp/bad" && grep -q '^lookup,gpc,4096,64,100,' "$tmp/csv"
ok $? "each line has as many fields" "$tmp/bad"

run gpc-bench hash ref --quick --dir "$shm"
exits 0 "for people"
prints 'take and drop a reference' "a table"
prints 'marks met' "and a sum"
plain "without control characters"

gpc-bench hash --quick --dir "$shm" >/dev/full 2>"$tmp/err"
is $? 1 "a full disk is an error"

# ---- the picture ----

mkdir "$tmp/bin"
printf '#!/bin/sh\nexec cat\n' >"$tmp/bin/gnuplot"
chmod +x "$tmp/bin/gnuplot"
before=$PATH
PATH=$tmp/bin:$PATH
run gpc-bench lookup --quick --dir "$shm" --plot "$tmp/p.svg"
exits 0 "--plot"
grep -q '^4096 [0-9.e+]*$' "$tmp/p.svg" && grep -q "title 'gpc'" "$tmp/p.svg"
ok $? "rates against entries are what gnuplot gets" "$tmp/p.svg"
run gpc-bench hash --quick --dir "$shm" --plot "$tmp/none.svg"
exits 2 "hash has nothing to draw"
run gpc-bench lookup --quick --dir "$shm" --plot "$tmp/no/p.svg"
exits 1 "a file that cannot be written"
says 'no/p.svg: No such file' "it is named"
is "$(cat "$tmp/out")" '' "before anything is measured"
printf '#!/bin/sh\nexit 127\n' >"$tmp/bin/gnuplot"
run gpc-bench lookup --quick --dir "$shm" --plot "$tmp/q.svg"
exits 1 "without gnuplot"
says 'gnuplot is not installed' "it says so"
test ! -e "$tmp/q.svg"
ok $? "and leaves no file"
PATH=$before
if command -v gnuplot >/dev/null; then
	run gpc-bench lookup --quick --dir "$shm" --plot "$tmp/r.svg"
	grep -q '</svg>' "$tmp/r.svg"
	ok $? "gnuplot draws it"
else
	skip 1 "gnuplot is missing"
fi
is "$(ls -A "$shm")" '' "nothing is left"

done_testing
