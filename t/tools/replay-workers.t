#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Many workers on one cache: every request is replayed, no block is wrong, and the cache
# is sound afterwards, whoever dies on the way.
# Tests: tools/replay/crew.c tools/replay/kill.c tools/replay/after.c tools/replay/payload_own.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

small=$(grep -c . "$small_trace")

settled()	# CACHE: nothing is held
{
	inspect --json stat "$1"
	test "$(values stats/refs stats/reserved stats/sections)" = '0 0 0'
}

sound()	# CACHE WHEN
{
	until_ok settled "$1"
	ok $? "$2: nothing is held any more" "$tmp/out"
	inspect check "$1"
	exits 0 "$2: check is clean"
}

# ---- four workers, full to the brim ----

for sizes in '100 0' '100 50' '150 300' '400 600'; do
	vram=${sizes% *}
	ram=${sizes#* }
	name=c$vram-$ram
	serve "$name" --block-size 16 --vram-blocks "$vram" --ram-blocks "$ram" \
		--free-target 0 --device host
	run gpc-replay "$small_trace" --dir "$shm" --name "$name" --workers 4 --json
	exits 0 "four workers on $vram blocks of VRAM, $ram of RAM"
	is "$(values workers requests wrong_blocks workers_failed)" \
		"4 $small 0 0" "all requests, no wrong block"
	test "$(value prefix_hit_blocks)" -gt 0 && test "$(value inserted)" -gt 0
	ok $? "some hit, some miss"
	is $(($(value prefix_hit_blocks) + $(value inserted) + $(value duplicates) + \
		$(value unplaced) + $(value refused))) "$(value block_refs)" \
		"each block has one fate"
	sound "$name" "$vram + $ram"
	run gpcd "$name" --dir "$shm"
	exits 3 "its gpcd is still there"
	kill "$(cat "$tmp/$name.pid")"
done

run gpc-replay "$small_trace" --dir "$shm" --workers 40 --vram-blocks 300 \
	--ram-blocks 300 --json
exits 0 "forty workers"
is "$(values workers requests wrong_blocks)" "40 $small 0" \
	"share the requests"

# ---- a device that the cache does not have ----

serve none --block-size 16 --vram-blocks 100
run gpc-replay "$small_trace" --dir "$shm" --name none --workers 3 --device host
exits 1 "a cache without a mirror"
is "$(cat "$tmp/out" | wc -c) $(grep -c . "$tmp/err")" "0 1" "no table, one message"
says '--device host: none was made without a mirror on device host' "which says why"
kill "$(cat "$tmp/none.pid")"

# ---- seen from outside ----

workers()	# CACHE: how many are attached
{
	inspect --json peers "$1"
	value '*/label' | grep -c 'gpc-replay [0-9]* of'
}

serve shared --block-size 16 --vram-blocks 300 --ram-blocks 200 --max-peers 12
catch_replay one shared 2000 --name shared --workers 4 --json
ok $? "peers shows four workers at work" "$tmp/one.err"
one=$pid
inspect peers shared
exits 0 "peers while a replay runs"
prints ' gpc-replay 3 of 4 +alive ' "shows workers by their labels"
aligned "in columns"
inspect stat shared
exits 0 "stat while a replay runs"
inspect ls shared
exits 0 "ls while a replay runs"
refuses 1 'in use by a replay with another payload' \
	gpc-replay "$small_trace" --dir "$shm" --name shared --payload 128
kill -CONT $writer
inspect check shared # not of a writer that is stopped, perhaps in the middle of a change
exits 0 "check while a replay runs"
start two gpc-replay "$small_trace" --dir "$shm" --name shared --workers 2 --json
finish $pid
is "$status" 0 "a second replay beside it" || diag "$(cat "$tmp/two.err")"
finish $one
is "$status" 0 "the first one ends well" || diag "$(cat "$tmp/one.err")"
for label in one two; do
	cp "$tmp/$label.out" "$tmp/out"
	is "$(values wrong_blocks workers_failed)" '0 0' "no wrong block in $label"
done
is "$(workers shared)" 0 "the workers have left"
is "$(ls "$shm" | grep gpc-replay)" '' "so has the payload"
sound shared "two replays at once"

# ---- a worker is killed ----

serve loss --block-size 16 --vram-blocks 300 --ram-blocks 200 --max-peers 12
catch_replay replay loss 2000 --name loss --workers 4 --json
replay=$pid
inspect --json peers loss
victim=$(value '*/label' '*/pid' | tr / ' ' | awk '
	/gpc-replay 2 of/ { seat = $1 }
	$2 == "pid" { pid[$1] = $3 }
	END { print pid[seat] }')
kill -9 "$victim"
kill -CONT $writer
finish $replay
is "$status" 1 "a worker is killed: the replay has failed"
like "$(cat "$tmp/replay.err")" 'worker 2 was killed by signal 9' "and says why"
cp "$tmp/replay.out" "$tmp/out"
is "$(values wrong_blocks workers_failed)" '0 1' \
	"the others went on to the end, without a wrong block"
sound loss "a worker killed"
run gpc-replay "$small_trace" --dir "$shm" --name loss --workers 4 --json
is "$status $(value wrong_blocks)" '0 0' "the next replay is none the worse"

done_testing
