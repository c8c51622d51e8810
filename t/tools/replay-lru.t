#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-replay with one worker hits what an exact LRU hits.  The LRU is the few lines of awk in
# t/sh/lru.sh.
# Tests: tools/replay/request.c tools/replay/worker.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

. "$srcdir/t/sh/lru.sh"

is "$("$srcdir/t/data/make-trace.sh" | cksum)" "$(cksum <"$small_trace")" \
	"the trace is what its script makes"

# ---- a model of the model: a trace that a reader can follow ----

for ids in '1, 2, 3' '1, 2, 4' '5' '1, 2, 3' '5, 6' ''; do
	echo "{\"timestamp\": 1, \"hash_ids\": [$ids]}"
done >"$tmp/tiny.jsonl"
is "$(lru 100 "$tmp/tiny.jsonl")" "6 12 6" "all fits: 1 2 hit, 1 2 3 hit, 5 hits"
is "$(lru 3 "$tmp/tiny.jsonl")" "6 12 4" "three fit: 3 goes, then 4"
is "$(lru 1 "$tmp/tiny.jsonl")" "6 12 1" "one fits: the root of a chain"

hits()	# WHAT TRACE VRAM [RAM]
{
	trace=$2
	vram=$3
	ram=${4:-0}
	run gpc-replay "$trace" --dir "$shm" --vram-blocks "$vram" --ram-blocks "$ram" \
		--json
	hot=$(lru "$vram" "$trace")
	both=$(lru $((vram + ram)) "$trace")
	is "$status $(values requests block_refs prefix_hit_blocks vram_hit_blocks \
		ram_hit_blocks wrong_blocks refused duplicates workers_failed)" \
		"0 $both ${hot##* } $((${both##* } - ${hot##* })) 0 0 0 0" \
		"$1: $vram blocks of VRAM, $ram of RAM"
	is "$(value inserted)" $(($(value block_refs) - $(value prefix_hit_blocks) - \
		$(value unplaced))) "what did not hit was inserted"
}

hits tiny "$tmp/tiny.jsonl" 3
hits tiny "$tmp/tiny.jsonl" 1
hits tiny "$tmp/tiny.jsonl" 3 2

# ---- one tier; the longest request has 60 blocks ----

for vram in 10 45 61 100 300 1200; do
	hits small "$small_trace" $vram
	inserted=$(value inserted)
	is "$(values evicted demoted promoted dropped)" \
		"$((inserted > vram ? inserted - vram : 0)) 0 0 0" \
		"what is not there any more was evicted"
done

# ---- requests longer than what one command may name ----

awk 'BEGIN {
	for (r = 0; r < 7; r++) {
		printf "{\"timestamp\": %d, \"hash_ids\": [", r
		for (i = 0; i < 5000; i++)
			printf "%s%d", i ? ", " : "", r % 3 * 5000 + i
		print "]}"
	}
}' >"$tmp/long.jsonl"
hits long "$tmp/long.jsonl" 12000
hits long "$tmp/long.jsonl" 5000 7000

# ---- two tiers, exclusive; VRAM holds the longest request ----

while read -r vram ram; do
	hits small "$small_trace" "$vram" "$ram"
done <<-END
	60 5
	60 140
	100 100
	150 700
	300 2000
END

done_testing
