#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-replay --fetch: workers with VRAM of their own share RAM, by gpc_fetch and gpc_spill_ahead.  One
# worker's hits are known exactly; workers that are killed at random spoil no block and leave nothing.
# The device is that of GPC_TEST_DEVICE; the host device plays it elsewhere.
# Tests: tools/replay/fetch.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

on_gpu && short_trace 60
times=3

replay()	# OPTION...
{
	run gpc-replay "$small_trace" --dir "$shm" --json "$@"
}

fetch()	# OPTION...
{
	replay --fetch --payload 4k --device "$device" "$@"
}

# ---- mistakes ----

refuses 2 '--fetch: give --payload and --device' gpc-replay "$small_trace" --fetch
refuses 2 '--fetch: give --payload and --device' gpc-replay "$small_trace" --fetch --payload 4k \
	--device none
refuses 2 '--fetch and --name exclude each other' gpc-replay "$small_trace" --fetch --payload 4k \
	--device host --name some
refuses 2 '--fetch: 32 workers are too many' gpc-replay "$small_trace" --fetch --payload 4k \
	--device host --workers 32
refuses 2 '--kill: give --fetch' gpc-replay "$small_trace" --kill 1
refuses 2 '--kill: .*out of range' gpc-replay "$small_trace" --kill 10001
is "$(ls "$shm")" '' "nothing is left of that"

# ---- one worker: what hits ----

hits='prefix_hit_blocks inserted'
none='wrong_blocks workers_failed bad uncommitted claims_pending refused unplaced duplicates left'
zeros='0 0 0 0 0 0 0 0 0'
on_gpu && sizes='60' || sizes='60 300'
replay
all=$(values $hits)
for vram in $sizes; do
	replay --vram-blocks $vram
	alone=$(values $hits) vram_hits=$(value vram_hit_blocks)

	fetch --vram-blocks $vram --ram-blocks 0
	is "$status $(values $hits)" "0 $alone" "$vram blocks, no RAM: what is least recent goes" ||
		diag "$(cat "$tmp/err")"
	is "$(values $none fetched spilled)" "$zeros 0 0" "nothing is wrong, and nothing comes or goes"

	fetch --vram-blocks $vram --ram-blocks 4k
	is "$status $(values $hits)" "0 $all" "RAM for all: each block is computed once" ||
		diag "$(cat "$tmp/err")"
	is "$(values vram_hit_blocks $none)" "$vram_hits $zeros" "VRAM has what it had without"
	is "$(value fetched)" "$(value ram_hit_blocks)" "what is not in VRAM is fetched"
	is "$(value claimed)" "$(value inserted)" "what is computed was claimed"
	test "$(value spilled)" -gt 0 && test "$(value spilled)" -le "$(value inserted)"
	ok $? "and is spilled once at most" || diag "$(values spilled inserted)"

	fetch --vram-blocks $vram --ram-blocks 70
	once=$(values $hits ram_hit_blocks spilled)
	is "$status $(values vram_hit_blocks $none)" "0 $vram_hits $zeros" "little RAM: the same"
	fetch --vram-blocks $vram --ram-blocks 70
	is "$(values $hits ram_hit_blocks spilled)" "$once" "and again"
done

table()
{
	run gpc-replay "$small_trace" --dir "$shm" --fetch --payload 4k --device "$device" \
		--vram-blocks 100 --ram-blocks 200 --workers 2 --kill 1
	exits 0 "the table"
	prints '^fetched to VRAM +[0-9]+$' "has what was fetched"
	prints '^spilled to RAM +[0-9]+$' "what was spilled"
	prints '^workers killed +1$' "who was killed"
	prints '^left behind +0$' "and what was left"
	refuses 1 'gpcd did not start' gpc-replay "$small_trace" --dir "$shm" --fetch --payload 4k \
		--device host --vram-blocks 16M --workers 31
}
on_gpu || table

# ---- many workers, alive and dead ----

every='prefix_hit_blocks inserted duplicates refused unplaced'
total()	# COUNT...
{
	values "$@" | tr ' ' '\n' | awk '{ n += $1 } END { print n }'
}

many()	# WORKERS KILLS OPTION...
{
	workers=$1 kills=$2
	shift 2
	fetch --workers $workers --kill $kills "$@"
	is "$status $(values requests kills wrong_blocks workers_failed bad left)" \
		"0 $(grep -c . "$small_trace") $kills 0 0 0 0" \
		"$workers workers, $kills kills: no block is wrong, nothing is left" ||
		diag "$(cat "$tmp/err")"
	is "$(total $every)" "$(value block_refs)" "each block is counted once" ||
		diag "$(values $every)"
	test "$(value prefix_hit_blocks)" -le "${all% *}" || test $kills -gt 0
	ok $? "as a hit no more often than with one worker and RAM for all"
	test "$(value ram_hit_blocks)" -gt 0 && test "$(value fetched)" -ge "$(value ram_hit_blocks)"
	ok $? "they have fetched" || diag "$(values ram_hit_blocks fetched)"
	test $kills = 0 || test "$(value verified_after_kills)" -gt 0
	ok $? "and verified the RAM after each kill"
	is "$(ls "$shm")" '' "no file is left"
}

if on_gpu; then
	many 2 0 --vram-blocks 100 --ram-blocks 300
	many 2 3 --vram-blocks 100 --ram-blocks 300
else
	many 4 0 --vram-blocks 100 --ram-blocks 300
	many 4 20 --vram-blocks 100 --ram-blocks 300 --payload 16k
	many 2 10 --vram-blocks 64 --ram-blocks 64
	many 7 10 --vram-blocks 300 --ram-blocks 1k --pieces 3 --payload 999
fi

# ---- a stray store ----

# In RAM, while the replay is at work: the checksum tells, and the block is computed anew.  A hundred blocks, since
# the workers wait 10 s for the writer that is stopped meanwhile.  The key is in
# the block's trailer as well; byte 1016 from there is padding of another trailer.
own_memory()
{
	ls -S "$shm" | sed -n "/\.$watched\.p/s|^|$shm/|p" | head -n 1
}

catch_replay stray own 500 --json --fetch --payload 4k --device "$device" --vram-blocks 60 \
	--ram-blocks 2k
ok $? "a replay at work" "$tmp/stray.err"
replay=$pid
gpc-inspect --dir "$shm" ls "$watched" | awk '$1 == 0 && n++ < 100 { print $(NF - 1) }' >"$tmp/keys"
ram=$(own_memory)
spoiled=0
while read -r key; do
	"$helpers/spoil" "$key" 1016 "$ram" && spoiled=$((spoiled + 1))
done <"$tmp/keys" >/dev/null 2>&1
kill -CONT "$writer"
finish $replay
cp "$tmp/stray.out" "$tmp/out"
test "$spoiled" -gt 10
ok $? "some blocks of RAM have a byte changed: $spoiled"
is "$status $(values wrong_blocks workers_failed left)" '0 0 0 0' "none of these is a hit" ||
	diag "$(cat "$tmp/stray.err")"
test "$(value bad)" -gt 0
ok $? "their checksums tell: $(value bad)"

done_testing
