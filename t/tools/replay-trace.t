#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-replay reads traces that others wrote: a line that is no request is an error with
# its number, and nothing is replayed.
# Tests: tools/replay/trace.c tools/replay/row.c tools/replay/known.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

trace=$tmp/trace.jsonl

bad()	# REGEX LINE: the third of four
{
	{
		echo '{"timestamp": 1, "input_length": 40, "hash_ids": [0, 1]}'
		echo
		printf '%s\n' "$2"
		echo '{"timestamp": 2, "hash_ids": [0, 2]}'
	} >"$trace"
	run gpc-replay "$trace" --dir "$shm" --json
	test "$status" -eq 1 && grep -Eq -e "^gpc-replay: $trace:3: .*$1" "$tmp/err" &&
		! test -s "$tmp/out" && test "$(wc -l <"$tmp/err")" -eq 1
	ok $? "line 3 is refused: $1: $(printf '%s' "$2" | cut -c1-60)" "$tmp/err" ||
		diag "exit status $status"
}

good()	# REQUESTS REFS NAME, after $trace was written
{
	run gpc-replay "$trace" --dir "$shm" --json
	is "$status $(values requests block_refs wrong_blocks)" "0 $1 $2 0" "$3"
}

# ---- not JSON ----

bad . '{"timestamp": 1, "hash_ids": [0, 1}'
bad . '{"timestamp": 1, "hash_ids": [0, 1]'
bad . '{"timestamp": 1, "hash_ids": [0, 1]} {}'
bad . 'nonsense'
bad . '{timestamp: 1}'
bad . '{"timestamp": 1, "hash_ids": [0, 01]}'
bad . '{"timestamp": 1, "hash_ids": [0,]}'
bad . '{"timestamp": 1, "hash_ids": [0], "hash_ids": [1]}'
bad . '{"hash_ids": [0, 123456789012345678901234567890]}'
bad . "$(printf '{"hash_ids": [0], "x": "\377\376"}')"
bad . "$(printf '[%.0s' $(awk 'BEGIN { for (i = 0; i < 5000; i++) print i }'))"

# ---- JSON, but no request ----

bad 'the row: .0,1. is not a JSON object' '[0, 1]'
bad 'the row: 17 is not a JSON object' '17'
bad 'the row: null is not a JSON object' 'null'
bad 'hash_ids is missing: an array' '{"timestamp": 1}'
bad 'hash_ids: null is not an array' '{"timestamp": 1, "hash_ids": null}'
bad 'hash_ids: [{]"0":1[}] is not an array' '{"timestamp": 1, "hash_ids": {"0": 1}}'
bad 'hash_ids: "0, 1" is not an array' '{"timestamp": 1, "hash_ids": "0, 1"}'
bad 'hash_ids.1.: "1" is not a whole number from 0 to 9223372036854775807' '{"timestamp": 1, "hash_ids": [0, "1"]}'
bad 'hash_ids.1.: 1.5 is not a whole number from 0 to 9223372036854775807' '{"timestamp": 1, "hash_ids": [0, 1.5]}'
bad 'hash_ids.1.: .1. is not a whole number from 0 to 9223372036854775807' '{"timestamp": 1, "hash_ids": [0, [1]]}'
bad 'hash_ids.1.: null is not a whole number from 0 to 9223372036854775807' '{"timestamp": 1, "hash_ids": [0, null]}'
bad 'hash_ids.1.: true is not a whole number from 0 to 9223372036854775807' '{"timestamp": 1, "hash_ids": [0, true]}'
bad 'hash_ids.0.: -1 is not' '{"timestamp": 1, "hash_ids": [-1]}'
bad 'timestamp: "noon" is not a number' '{"timestamp": "noon", "hash_ids": [0, 1]}'
bad 'input_length: -4 is not a whole number from 0 to 2147483647' '{"timestamp": 1, "input_length": -4, "hash_ids": [0, 1]}'
bad 'output_length: "9" is not a whole number' '{"timestamp": 1, "output_length": "9", "hash_ids": [0, 1]}'

bad 'input_length: 2147483648 is not' '{"input_length": 2147483648, "hash_ids": [0, 1]}'
for name in '""' '-1' '1.5' '[]' 'true'; do
	bad "session: $(printf '%s' "$name" | tr '[]' '..') is not a whole number >= 0 or a string of 1 to 256 bytes" \
		"{\"hash_ids\": [0], \"session\": $name}"
done
bad 'session: "a{36}[.]{3} is not' "{\"hash_ids\": [0], \"session\": \"$(printf 'a%.0s' $(seq 257))\"}"
bad 'session: [[]"[\\]u001B[[]2J"[]] is not' '{"hash_ids": [0], "session": ["\u001b[2J"]}'
bad 'session_id: this row has one, and line 1 has none' '{"hash_ids": [0], "input_length": 1, "session_id": "a"}'

# each id names one whole prefix
bad 'another predecessor here than in line 1' '{"timestamp": 1, "hash_ids": [1]}'
bad 'another predecessor here than in line 1' '{"timestamp": 1, "hash_ids": [5, 0]}'
bad 'id 7 comes twice in one request' '{"timestamp": 1, "hash_ids": [7, 8, 7]}'
bad 'id 3 comes twice in one request' '{"timestamp": 1, "hash_ids": [3, 3]}'

# ---- lines of any length ----

awk 'BEGIN {
	printf "{\"timestamp\": 1, \"hash_ids\": ["
	for (i = 0; i < 200000; i++)
		printf "%d, ", i
	print "200000]}"
}' >"$tmp/long"
bad . "$(sed 's/\]}$/, x]}/' "$tmp/long")"
cp "$tmp/long" "$trace"
good 1 200001 "a request of 200,001 blocks on a cache of 10,000"
is "$(value inserted unplaced)" "10000
190001" "keeps its first 10,000 blocks"

# ---- what is fine ----

printf '{"timestamp": 0.25, "hash_ids": [0, 1]}\n\n  \n%s' \
	'{"hash_ids": [0, 1, 2], "more": {}}' >"$trace"
good 2 5 "seconds, blank lines, fields of others, no newline at the end"
is "$(value prefix_hit_blocks)" 2 "and hits"
printf '{"hash_ids": []}\r\n{"hash_ids": [9223372036854775807]}\r\n' >"$trace"
good 2 1 "lines of another system, a request without blocks, the highest id"

# ---- no trace ----

: >"$trace"
refuses 1 "$trace: there are no requests" gpc-replay "$trace" --dir "$shm"
printf '\n\n' >"$trace"
refuses 1 "$trace: there are no requests" gpc-replay "$trace" --dir "$shm"
refuses 1 "$tmp/absent: No such file" gpc-replay "$tmp/absent" --dir "$shm"
refuses 1 "$tmp: Is a directory" gpc-replay "$tmp" --dir "$shm"
run_with /dev/null gpc-replay - --dir "$shm"
exits 1 "an empty standard input"
says '-: there are no requests' "is named"
if test "$(id -u)" -ne 0; then
	chmod 0 "$trace"
	refuses 1 "$trace: Permission denied" gpc-replay "$trace" --dir "$shm"
else
	skip 1 "root reads everything"
fi
is "$(ls "$shm")" '' "nothing is left of all that"

done_testing
