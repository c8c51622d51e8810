#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-replay with its payload in pools with memory: VRAM of a device, RAM in shared memory.  What
# hits is what hits without, byte for byte; and a byte that is wrong is found, wherever it is.
# The device is that of GPC_TEST_DEVICE; the host device plays it elsewhere.  On a GPU there is less
# of each, and nothing is left out but what no GPU takes part in.
# Tests: tools/replay/payload_pool.c tools/replay/payload.h tools/replay/pools.c
#   tools/replay/image.c tools/replay/image_cuda.c tools/replay/image_kernels.cu
#   tools/replay/moves.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

on_gpu && short_trace 60
exact='requests block_refs prefix_hit_blocks vram_hit_blocks ram_hit_blocks inserted unplaced
	refused duplicates demoted promoted evicted dropped wrong_blocks workers_failed'

replay()	# OPTION...
{
	run gpc-replay "$small_trace" --dir "$shm" --json "$@"
}

# ---- mistakes ----

refuses 2 '--pieces: give --payload and --device' gpc-replay "$small_trace" --pieces 4
refuses 2 '--pieces: give --payload and --device' gpc-replay "$small_trace" --pieces 4 --payload 4k
refuses 2 '--pieces: give --payload and --device' gpc-replay "$small_trace" --pieces 4 \
	--payload 4k --device none
refuses 2 '--pieces: 3 does not divide --payload 4096' gpc-replay "$small_trace" --pieces 3 \
	--payload 4k --device host
refuses 2 '--pieces and --name exclude each other' gpc-replay "$small_trace" --pieces 4 \
	--payload 4k --device host --name some
refuses 2 '--pieces: .*out of range' gpc-replay "$small_trace" --pieces 0
refuses 1 '--device cuda:63: .*(GPU|CUDA)' gpc-replay "$small_trace" --dir "$shm" --payload 4k \
	--device cuda:63
refuses 1 'gpcd did not start' gpc-replay "$small_trace" --dir "$shm" --payload 16M --device host \
	--vram-blocks 64 --ram-blocks 256k
is "$(ls "$shm")" '' "nothing is left of all that"

# ---- a cache of its own: the same as without ----

sizes='60 140 16k 64
100 100 1000 4 --pieces 4'
on_gpu || sizes="$sizes
150 300 4k 16
300 0 25 1
120 90 100 1"
while read -r vram ram payload pieces more; do
	replay --vram-blocks "$vram" --ram-blocks "$ram"
	want=$(values $exact)
	demoted=$(value demoted) promoted=$(value promoted)
	replay --vram-blocks "$vram" --ram-blocks "$ram" --payload "$payload" \
		--device "$device" $more
	is "$status $(values $exact)" "0 $want" \
		"$vram blocks of VRAM, $ram of RAM: the same counts" || diag "$(cat "$tmp/err")"
	bytes=$(value payload_bytes)
	is "$(values payload_pieces payload_device demoted_bytes promoted_bytes)" \
		"$pieces $device $((demoted * bytes)) $((promoted * bytes))" \
		"$payload bytes in $pieces pieces: so much was copied"
	test "$(value demote_copy_ns)" -ge "$demoted" &&
		test "$(value promote_copy_ns)" -ge "$promoted"
	ok $? "and it took its time"
	is "$(ls "$shm")" '' "nothing is left of it"
done <<END
$sizes
END

replay --vram-blocks 100 --ram-blocks 100 --workers 4 --payload 8k --device "$device"
exits 0 "four workers"
is "$(values requests wrong_blocks workers_failed payload_pieces)" \
	"$(grep -c . "$small_trace") 0 0 32" "share the requests, no block is wrong"
table()
{
	test "$(value promoted)" -lt "$(value ram_hit_blocks)"
	ok $? "not all hits in RAM could be promoted"
	run gpc-replay "$small_trace" --dir "$shm" --vram-blocks 100 --ram-blocks 100 --payload 8k \
		--device "$device"
	exits 0 "the table"
	prints '^copied to RAM +[0-9.]+ MB$' "shows what was copied down"
	prints '^copied to VRAM +[0-9.]+ MB$' "and up"
	prints '^  in seconds +[0-9.]+$' "and how long that took"
}
on_gpu || table

# ---- the cache of somebody else ----

keep()	# CACHE OPTION...
{
	kept=$1
	shift
	run gpcd "$kept" --keep --dir "$shm" --daemonize --quiet --pidfile "$tmp/$kept.keeper" "$@"
	test $status -eq 0 || bail "gpcd $kept --keep $*: $(cat "$tmp/err")"
}

no_pools()
{
	serve bare --block-size 16 --vram-blocks 100 --ram-blocks 100 --device "$device"
	refuses 1 'pool 0 of bare, of VRAM, has no memory \(gpcd --keep' gpc-replay "$small_trace" \
		--dir "$shm" --name bare --payload 4k --device "$device"
	serve ram --block-size 16 --max-blocks 1k --ram-blocks 8 --block-bytes 4k --device "$device"
	refuses 1 'ram has no VRAM pool \(gpcd --keep' gpc-replay "$small_trace" \
		--dir "$shm" --name ram --payload 4k --device "$device"
	serve half --block-size 16 --max-blocks 1k --ram-blocks 8 --device "$device"
	run gpcd half --keep --dir "$shm" --quiet --device "$device" --vram-blocks 8 \
		--block-bytes 4k --demote-to 0 --pidfile "$tmp/half.keeper" --daemonize
	if test $status = 0; then
		refuses 1 'pool 0 of half, which pool 1 demotes to, has no memory \(gpcd --block-bytes' \
			gpc-replay "$small_trace" --dir "$shm" --name half --payload 4k \
			--device "$device"
	else
		says 'pool' "a pool with memory demotes to none without"
	fi
}
on_gpu || no_pools

serve kept --block-size 16 --tick exact --free-target 0 --max-blocks 1k --ram-blocks 16 \
	--block-bytes 4k --device "$device"
keep kept --device "$device" --vram-blocks 8 --block-bytes 4k --pieces 8 --demote-to 0
refuses 1 'kept has 4096 bytes a block, not 8192' gpc-replay "$small_trace" --dir "$shm" \
	--name kept --payload 8k --device "$device"
refuses 1 "pool 1 of kept has memory: --payload 4096 --device $device uses it" \
	gpc-replay "$small_trace" --dir "$shm" --name kept
if test "$device" = host; then
	serve far --block-size 16 --max-blocks 1k --device host
	keep far --device host --vram-blocks 8 --block-bytes 4k
	refuses 1 'pool 0 of far is on host, not on cuda:5' gpc-replay "$small_trace" --dir "$shm" \
		--name far --payload 4k --device cuda:5
fi

echo '{"hash_ids": [1, 2, 3, 4]}' >"$tmp/again.jsonl"
{
	cat "$tmp/again.jsonl"
	echo '{"hash_ids": [11, 12, 13, 14, 15, 16, 17, 18]}'
} >"$tmp/first.jsonl"

kept()	# TRACE: by a new process, on what is there
{
	run gpc-replay "$1" --dir "$shm" --name kept --payload 4k --device "$device" --json
}

key()	# POOL DEPTH: of a block
{
	gpc-inspect --dir "$shm" ls kept | awk -v pool="$1" -v depth="$2" '
		$1 == pool && $3 == depth { print $(NF - 1) }'
}

kept "$tmp/first.jsonl"
is "$status $(values inserted demoted wrong_blocks)" '0 12 4 0' \
	"a replay fills VRAM, and four move to RAM"
kept "$tmp/again.jsonl"
is "$status $(values ram_hit_blocks promoted demoted wrong_blocks)" '0 4 4 4 0' \
	"the next one finds them, with their bytes"
kept "$tmp/first.jsonl"
is "$status $(values vram_hit_blocks ram_hit_blocks wrong_blocks)" '0 8 4 0' "and again" ||
	diag "$(cat "$tmp/out" "$tmp/err")"

# ---- a stray store ----

memory()	# of kept: file of RAM, file of VRAM, by their sizes
{
	ls -S "$shm" | grep '^gpc\.kept\.p' | sed "s|^|$shm/|"
}

spoiled()	# BYTE WHERE: of the third block of the first request, in RAM
{
	kept "$tmp/first.jsonl"
	third=$(key 0 2)
	run "$helpers/spoil" "$third" "$1" "$(memory | head -n 1)"
	exits 0 "byte $1 of a block $2 changes"
	kept "$tmp/again.jsonl"
	is "$status $(values ram_hit_blocks wrong_blocks)" '1 4 1' "which a replay finds"
	says "worker 1: block 0x[0-9a-f]* of pool [01] has not the bytes of its key $third: byte $1 of" \
		"and says which byte"
	run "$helpers/clear" "$shm" kept
}
spoiled 2049 'in RAM'
on_gpu || spoiled 0 'in RAM, of its key,'
on_gpu || spoiled 4095 'in RAM, the last one,'

if test "$device" = host; then
	kept "$tmp/again.jsonl"
	run "$helpers/spoil" "$(key 1 1)" 300 "$(memory | tail -n 1)"
	exits 0 "a byte of a block in VRAM changes"
	kept "$tmp/again.jsonl"
	is "$status $(values vram_hit_blocks wrong_blocks)" '1 4 1' "which a replay finds"
	kept "$tmp/first.jsonl"
	is "$status $(values vram_hit_blocks demoted wrong_blocks)" '1 4 4 2' \
		"where it hits, and where it moves"
	run "$helpers/clear" "$shm" kept
fi

kept "$tmp/first.jsonl"
run "$helpers/spoil" "$(key 0 2)" 77 "$(memory | head -n 1)"
exits 0 "a byte of a block in RAM changes"
start full "$helpers/hold" "$shm" kept full 0 8 0 1 1
until_ok grep -q holding "$tmp/full.out" || bail "$(cat "$tmp/full.err")"
kept "$tmp/again.jsonl"
is "$status $(values ram_hit_blocks promoted wrong_blocks)" '1 4 0 1' \
	"where VRAM is full, it is found in RAM"
kill $pid
finish $pid
run "$helpers/clear" "$shm" kept

kept "$tmp/first.jsonl"
is "$status $(values inserted wrong_blocks)" '0 12 0' "what is written anew is right"
inspect --json stat kept
is "$(values stats/refs stats/reserved)" '0 0' "nothing is held"
inspect check kept
exits 0 "the cache is sound"

done_testing
