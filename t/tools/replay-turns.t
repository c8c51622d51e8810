#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-replay on rows that have one turn each: prompts and their order are those of t/sh/replay-model.py, and rows that
# are none are refused with line, field, value and limit.
# Tests: tools/replay/turns.c tools/replay/row.c tools/replay/session.c tools/replay/trace.c t/data/turns.jsonl

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

turns=$srcdir/t/data/turns.jsonl
trace=$tmp/trace.jsonl

bad()	# REGEX ROW: the third line
{
	{
		echo '{"session_id": "a", "input_length": 1024, "output_length": 10, "hash_ids": [0, 1], "timestamp": 0}'
		echo '{"session_id": "a", "input_length": 512, "output_length": 10, "hash_ids": [2], "delay": 5}'
		printf '%s\n' "$2"
		echo '{"session_id": "a", "input_length": 512, "hash_ids": [3], "delay": 5}'
	} >"$trace"
	run gpc-replay "$trace" --plot "$tmp/none.svg"
	test "$status" -eq 1 && grep -Eq -e "^gpc-replay: $trace:3: $1" "$tmp/err" && ! test -s "$tmp/out" &&
		test "$(wc -l <"$tmp/err")" -eq 1 && ! test -e "$tmp/none.svg"
	ok $? "line 3 is refused: $1" "$tmp/err" || diag "exit status $status"
}

# ---- rows that are no turns ----

bad 'session_id: this row has none, and line 1 has one' '{"input_length": 512, "hash_ids": [3]}'
bad 'session_id: this row has none, and line 1 has one' '{"session_id": null, "input_length": 512, "hash_ids": [3]}'
bad 'session_id: 7 is not a string of 1 to 256 bytes' '{"session_id": 7, "input_length": 512, "hash_ids": [3]}'
bad 'session_id: "" is not a string of 1' '{"session_id": "", "input_length": 512, "hash_ids": [3]}'
bad 'session_id: "x{36}[.]{3} is not' \
	"{\"session_id\": \"$(printf 'x%.0s' $(seq 257))\", \"input_length\": 512, \"hash_ids\": [3]}"
bad 'hash_ids is missing: an array' '{"session_id": "a", "input_length": 512}'
bad 'hash_ids: "3" is not an array' '{"session_id": "a", "input_length": 512, "hash_ids": "3"}'
bad 'hash_ids[[]0[]]: -3 is not a whole number from 0 to 9223372036854775807' \
	'{"session_id": "a", "input_length": 512, "hash_ids": [-3]}'
bad 'no JSON: too big integer' '{"session_id": "a", "input_length": 512, "hash_ids": [9223372036854775808]}'
bad 'input_length is missing: a whole number from 0 to 2147483647' '{"session_id": "a", "hash_ids": [3]}'
bad 'input_length: 512.0 is not a whole number' '{"session_id": "a", "input_length": 512.0, "hash_ids": [3]}'
bad 'input_length: 9223372036854775807 is not a whole number from 0 to 2147483647' \
	'{"session_id": "a", "input_length": 9223372036854775807, "hash_ids": [3]}'
bad 'output_length: -1 is not' '{"session_id": "a", "input_length": 512, "output_length": -1, "hash_ids": [3]}'
bad 'delay: -1 is not a number from 0 to 1e15' '{"session_id": "a", "input_length": 512, "delay": -1, "hash_ids": [3]}'
bad 'delay: "1" is not a number' '{"session_id": "a", "input_length": 512, "delay": "1", "hash_ids": [3]}'
bad 'delay: 1.0*[eE][+]?15 is not a number from|delay: 1000000000000001.0 is not a number from' \
	'{"session_id": "a", "input_length": 512, "delay": 1000000000000001.0, "hash_ids": [3]}'
bad 'timestamp: 1[.][0-9]*e[+]?300 is not' '{"session_id": "a", "input_length": 512, "timestamp": 1e300, "hash_ids": [3]}'
bad 'is_restart: 1 is not true or false' '{"session_id": "a", "input_length": 512, "is_restart": 1, "hash_ids": [3]}'
bad 'hash_ids: 1 ids, and input_length 513 makes 2 blocks of 512 tokens: --block-tokens' \
	'{"session_id": "a", "input_length": 513, "hash_ids": [3]}'
bad 'hash_ids: 1 ids, and input_length 0 makes 0 blocks' '{"session_id": "a", "input_length": 0, "hash_ids": [3]}'

# a short row may ask for a long prompt, and a long time
long='{"session_id": "a", "input_length": 0, "output_length": 536870000, "hash_ids": []}'
printf '%s\n' "$long" "$long" >"$trace"
refuses 1 "$trace:2: hash_ids: with it the prompt has 2097148 blocks: at most 1048576" gpc-replay "$trace" \
	--block-tokens 256 --plot "$tmp/none.svg"
{
	echo '{"session_id": "a", "input_length": 0, "output_length": 536870000, "hash_ids": []}'
	for i in $(seq 300); do
		echo '{"session_id": "a", "input_length": 0, "hash_ids": []}'
	done
} >"$trace"
refuses 1 "$trace:258: hash_ids: with it all prompts have more than 268435456 blocks together" gpc-replay "$trace" \
	--plot "$tmp/none.svg"
for i in $(seq 5); do
	echo '{"session_id": "a", "input_length": 0, "hash_ids": [], "delay": 1e15}'
done >"$trace"
refuses 1 "$trace:5: timestamp, delay: the turn would end after more than 4e15 ms" gpc-replay "$trace" \
	--plot "$tmp/none.svg"

# ---- options ----

for how in 0 1.5 2M nonsense; do
	refuses 2 'concurrency' gpc-replay "$turns" --concurrency $how
done
refuses 1 "--concurrency: the rows of .* are whole prompts" gpc-replay "$small_trace" --concurrency 4
echo '{"hash_ids": [1]}' >"$trace"
refuses 1 "--sticky: no row of $trace has a session" gpc-replay "$trace" --sticky session
refuses 2 "--sticky: 'user' is neither session nor hash" gpc-replay "$small_trace" --sticky user

# ---- prompts ----

command -v python3 >/dev/null || { skip 1 "there is no python3"; done_testing; exit; }
model()
{
	python3 "$srcdir/t/sh/replay-model.py" "$@"
}

same()	# NAME TRACE OPTION...: as the model's whole prompts
{
	name=$1
	file=$2
	shift 2
	run gpc-replay "$file" --workers 3 --sticky session --plot "$tmp/turns.svg" --json "$@"
	mv "$tmp/out" "$tmp/turns.out"
	run gpc-replay "$tmp/model.jsonl" --workers 3 --sticky session --plot "$tmp/prompts.svg" --json
	sed 's/"trace": .*//' "$tmp/out" >"$tmp/prompts.out"
	sed 's/"trace": .*//' "$tmp/turns.out" | cmp -s - "$tmp/prompts.out"
	ok $? "$name: as the model's prompts in its order" "$tmp/turns.out"
}

model rows "$turns" >"$tmp/model.jsonl"
is "$(wc -l <"$tmp/model.jsonl")" 11 "the model has all turns"
same "a trace that a reader can follow" "$turns"
run gpc-replay "$turns" --dir "$shm" --json
is "$status $(values requests block_refs prefix_hit_blocks sessions concurrency wrong_blocks)" "0 11 $(grep -o '[[].*' "$tmp/model.jsonl" |
	tr -cd '[,' | wc -c) $(model hits "$turns" 1 one none 10000) 3 64 0" "and is replayed"
for concurrency in 1 2; do
	model rows "$turns" 512 $concurrency >"$tmp/model.jsonl"
	same "$concurrency at a time" "$turns" --concurrency $concurrency
done
for seed in 1 2 3; do
	model sessions 90 $seed >"$trace"
	model rows "$trace" >"$tmp/model.jsonl"
	same "90 sessions, seed $seed" "$trace"
	for concurrency in 1 7; do
		model rows "$trace" 512 $concurrency >"$tmp/model.jsonl"
		same "seed $seed, $concurrency at a time" "$trace" --concurrency $concurrency
	done
done
# sessions begin at times of their own, and all of them may be under way
awk '{ sub(/"timestamp": 0.0/, "\"timestamp\": " (NR * 7919) % 200000 ".25"); print }' "$trace" >"$tmp/when.jsonl"
model rows "$tmp/when.jsonl" >"$tmp/model.jsonl"
same "sessions that begin when they say" "$tmp/when.jsonl"
run gpc-replay "$tmp/when.jsonl" --dir "$shm" --json
is "$(value concurrency)" 0 "with no limit"

# a block is what its id says behind what is before it
printf '%s\n' '{"session_id": "a", "input_length": 2048, "hash_ids": [5, 5, 5, 6]}' \
	'{"session_id": "b", "input_length": 1024, "hash_ids": [6, 5]}' \
	'{"session_id": "c", "input_length": 1536, "hash_ids": [5, 5, 9223372036854775807]}' >"$trace"
run gpc-replay "$trace" --dir "$shm" --json
is "$status $(values requests block_refs prefix_hit_blocks)" "0 3 9 2" "ids of contents may come again and anywhere"
is "$(ls "$shm")" '' "nothing is left of all that"

done_testing
