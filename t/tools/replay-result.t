#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-replay's options and what it prints: the table, the JSON object, the progress bar; a
# cache of its own or that of a gpcd that runs.
# Tests: tools/replay/report.c tools/replay/options.c tools/replay/main.c tools/replay/cache.c
#   tools/replay/replay.h

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

replay()	# OPTION...
{
	run gpc-replay "$small_trace" --dir "$shm" "$@"
}

requests=$(grep -c . "$small_trace")
asked=$(sed 's/.*"hash_ids": \[//; s/\].*//; s/,/\n/g' "$small_trace" | grep -c '[0-9]')

# ---- mistakes ----

refuses 2 'which TRACE' gpc-replay
refuses 2 'one TRACE only' gpc-replay one two
refuses 2 "option '--nonsense' is unknown" gpc-replay "$small_trace" --nonsense
refuses 2 "option '--v' is ambiguous: it may be --vram-blocks, --version$" gpc-replay "$small_trace" --v
refuses 2 "option '--json' takes no value" gpc-replay "$small_trace" --json=1
refuses 2 "no option '-x'" gpc-replay "$small_trace" -x
refuses 2 "option '--workers' needs a value" gpc-replay "$small_trace" --workers
while read -r option bad text; do
	refuses 2 "$option: .*$text" gpc-replay "$small_trace" "$option" "$bad"
done <<-END
	--workers 0 out of range
	--workers 241 out of range
	--workers four is not a number
	--vram-blocks 0 out of range
	--vram-blocks 16777217 out of range
	--ram-blocks -1 is not a number
	--ram-blocks 16777217 out of range
	--block-tokens 0 out of range
	--block-tokens 70000 out of range
	--payload 23 out of range
	--payload 16777217 out of range
END
refuses 2 "'a/b' cannot name a cache" gpc-replay "$small_trace" --name a/b
refuses 2 'the name is too long' gpc-replay "$small_trace" --device \
	cuda:00000000000000000000000000000000000000000000000
for device in foo cuda: GPU- GPU-zz ''; do
	refuses 2 "'$device' is not none, host, cuda:N, or GPU-" gpc-replay "$small_trace" \
		--device "$device"
done
refuses 1 '--device cuda:63: .*(GPU|CUDA)' gpc-replay "$small_trace" --dir "$shm" \
	--workers 3 --device cuda:63
is "$(grep -c '^gpc-replay:' "$tmp/err")" 1 "and that is said once"
refuses 2 'path is too long' gpc-replay "$small_trace" --dir "/$(printf '%05000d' 0)"
refuses 1 'gpcd did not start' gpc-replay "$small_trace" --dir "$shm/nowhere"
refuses 1 'nobody' gpc-replay "$small_trace" --dir "$shm" --name nobody
refuses 1 'no room for [0-9]+ bytes of payload' \
	gpc-replay "$small_trace" --dir "$shm" --payload 16M --vram-blocks 256k
run env GPCD="$tmp/no-gpcd" gpc-replay "$small_trace" --dir "$shm"
exits 1 "a gpcd that is not there"
says "cannot run $tmp/no-gpcd: No such file" "is named"
run env GPCD=/bin/false gpc-replay "$small_trace" --dir "$shm"
exits 1 "a gpcd that ends at once"
says 'gpcd did not start' "is noticed"
is "$(ls "$shm")" '' "nothing is left of all that"

run gpc-replay --help
exits 0 "--help"
prints '^Usage: gpc-replay TRACE' "--help goes to standard output"
run gpc-replay --version
prints '^gpc-replay [0-9.]+ \(libgpc [0-9.]+\)$' "--version"

# ---- JSON ----

replay --json --vram-blocks 150 --ram-blocks 100 --payload 128 --block-tokens 32 \
	--device host --workers 2
exits 0 "--json"
plain "is plain text, without a bar"
is "$(cat "$tmp/err")" '' "and nothing else is said"
is "$(value workers workers_failed vram_blocks ram_blocks payload_bytes requests \
	block_refs wrong_blocks)" "2
0
150
100
128
$requests
$asked
0" "it says what was replayed, and on what"
for field in prefix_hit_blocks vram_hit_blocks ram_hit_blocks inserted evicted demoted \
	promoted dropped duplicates unplaced refused retries \
	lookup_ns_p50 lookup_ns_p99; do
	like "$(value $field)" '^[0-9]+$' "$field is a number"
done
for field in seconds requests_per_second hit_rate; do
	value $field | awk '{ exit !($1 > 0) }'
	ok $? "$field is above 0"
done
is "$(value trace)" "$small_trace" "trace names it"
is "$(value prefix_hit_blocks)" $(($(value vram_hit_blocks) + $(value ram_hit_blocks))) \
	"hits are those in VRAM and those in RAM"
value hit_rate prefix_hit_blocks block_refs requests_per_second seconds requests |
	paste -sd' ' - >"$tmp/rates"
awk 'function is(x, y) { return x > y * 0.999 && x < y * 1.001 }
	{ exit !(is($1, $2 / $3) && is($4, $6 / $5)) }' "$tmp/rates"
ok $? "the rates are what their parts say" "$tmp/rates"
test "$(value lookup_ns_p50)" -gt 0 &&
	test "$(value lookup_ns_p50)" -le "$(value lookup_ns_p99)"
ok $? "the median is not above the last percent"
test "$(value inserted)" -ge "$(($(value evicted) + $(value dropped)))"
ok $? "what went had come"
is "$(ls "$shm")" '' "its cache goes with it"

run_with "$small_trace" gpc-replay - --dir "$shm" --json
exits 0 "a trace from standard input"
is "$(value requests block_refs)" "$requests
$asked" "is the same trace"
expected=$(value prefix_hit_blocks inserted)
replay --json --block-tokens 1 --payload 24
is "$(value prefix_hit_blocks inserted payload_bytes)" "$expected
24" "--block-tokens and --payload change no result"

# ---- for people ----

replay --vram-blocks 150 --ram-blocks 100
exits 0 "the table"
plain "is plain text"
prints "^$small_trace: 1 worker on a cache of its own, 150 VRAM \+ 100 RAM blocks$" \
	"it says what was replayed, and on what"
prints "^requests +$requests$" "it counts requests"
prints '^prefix hits +[0-9]+ +[0-9.]+ %$' "it shows shares"
prints '^wrong blocks +0$' "it counts wrong blocks"
awk 'NR > 2 { print substr($0, 26, 12) }' "$tmp/out" | grep -v '^ *[0-9.]\+$' >"$tmp/bad"
test ! -s "$tmp/bad"
ok $? "all values end in one column" "$tmp/bad"
run sh -c 'exec gpc-replay "$1" --dir "$2" >/dev/full' sh "$small_trace" "$shm"
exits 1 "a full disk"
says 'cannot write the output' "says so"

if command -v script >/dev/null; then
	run script -qec "gpc-replay '$small_trace' --dir '$shm' --workers 2" /dev/null
	exits 0 "on a terminal"
	tr '\r' '\n' <"$tmp/out" >"$tmp/lines"
	grep -Eq '^\[[# ]{40}\] +[0-9]+ %  [0-9]+/[0-9]+' "$tmp/lines"
	ok $? "there is a bar" "$tmp/lines"
	sed -n '/^ *$/,$p' "$tmp/lines" | grep -q 'wrong blocks *0'
	ok $? "which is wiped before the table" "$tmp/lines"
else
	skip 3 "script is not installed"
fi

# ---- the cache of somebody else ----

serve shared --block-size 16 --vram-blocks 2000 --ram-blocks 500
replay --name shared --json
exits 0 "--name"
is "$(value vram_blocks ram_blocks cache wrong_blocks)" "2000
500
shared
0" "the sizes are those of the cache"
cold=$(value prefix_hit_blocks)
is "$(ls "$shm" | grep replay)" '' "the payload goes with the last replay"
replay --name shared --json --vram-blocks 2000 --ram-blocks 500 --block-tokens 16
exits 0 "sizes may be given if they are right"
is "$(value prefix_hit_blocks wrong_blocks)" "$cold
0" "what an earlier replay left without payload is forgotten"
refuses 1 'shared has 2000 VRAM blocks, not 100' \
	gpc-replay "$small_trace" --dir "$shm" --name shared --vram-blocks 100
refuses 1 'shared has 500 RAM blocks, not 0' \
	gpc-replay "$small_trace" --dir "$shm" --name shared --ram-blocks 0
refuses 1 'shared has 16 tokens a block, not 8' \
	gpc-replay "$small_trace" --dir "$shm" --name shared --block-tokens 8
inspect check shared
exits 0 "the cache is sound, and still there"

serve foreign --block-size 16 --vram-blocks 40 --ram-blocks 40
start others "$helpers/hold" "$shm" foreign others 30 0 0
until_ok grep -q holding "$tmp/others.out"
kill -9 "$pid"
until_ok gpc-inspect --dir "$shm" reap foreign
replay --name foreign --json
exits 0 "a cache with blocks of another program"
is "$(value wrong_blocks)" 0 "they are not wrong"
inspect --json stat foreign
test "$(value stats/demoted)" -ge 30
ok $? "though they were moved"
inspect --json stat shared
is "$(value peers stats/refs stats/reserved)" "1
0
0" "nothing of the replays is left in it"

serve poolless --block-size 16
refuses 1 'poolless has no VRAM pool' \
	gpc-replay "$small_trace" --dir "$shm" --name poolless

done_testing
