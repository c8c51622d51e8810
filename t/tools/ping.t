#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect ping: its exit status says whether the writer answers; --put stores, reads and drops a block, and takes
# none from anybody.
# Tests: tools/inspect/ping.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

# ---- mistakes ----

refuses 2 '--put is an option of ping' gpc-inspect --dir "$shm" stat --put
refuses 2 '--deadline: 0 is out of range \(1 to 600000\)' gpc-inspect --dir "$shm" ping one --deadline 0
refuses 2 '--pool goes with --put' gpc-inspect --dir "$shm" ping one --pool 1
refuses 2 "'two' is one argument too many" gpc-inspect --dir "$shm" ping one two
refuses 3 'absent' gpc-inspect --dir "$shm" ping absent

# ---- a writer ----

state()	# CACHE: what a put must leave as it was
{
	gpc-inspect --dir "$shm" --json stat "$1" >"$tmp/out"
	value stats/live stats/dying stats/reserved stats/refs stats/evicted stats/lookups | paste -sd' '
}

settles()	# CACHE STATE
{
	test "$(state "$1")" = "$2"
}

serve one --block-size 16 --vram-blocks 64 --ram-blocks 64 --block-bytes 4099 --free-target 4
writer=$pid
inspect ping one --deadline 60000
is "$status" 0 "served"
prints "^one: process $writer serves it, round trip [0-9.]+ us\$" "by whom, and the round trip"
inspect ping --json --deadline 60000
is "$status $(values name writer_pid put)" "0 one $writer null" "as JSON, without NAME"
test "$(value round_trip_ns)" -gt 0
ok $? "with the round trip in nanoseconds"
before=$(state one)
inspect --json ping one --put --deadline 60000
is "$status $(values put/pool put/bytes)" '0 1 4099' "--put, in the pool with memory"
until_ok settles one "$before"
is "$(state one)" "$before" "leaves nothing behind, and no statistics"
inspect ping one --put --pool 0 --deadline 60000
prints '^one: a block of pool 0 was stored, read and dropped, 0 bytes, in [0-9.]+ us$' "--put, in a pool without"
refuses 4 'the pool of --pool is not there' gpc-inspect --dir "$shm" ping one --put --pool 3
inspect check one
exits 0 "the cache is sound"

# ---- a pool that is full ----

start worker "$helpers/hold" "$shm" one worker 60 0 0 1 1
worker=$pid
until_ok grep -q holding "$tmp/worker.out" || bail "hold: $(cat "$tmp/worker.err")"
kill "$worker"
finish "$worker"
until_ok sh -c "gpc-inspect --dir '$shm' --json peers one | grep -c '\"pid\"' | grep -qx 1"
inspect ping one --put --pool 1 --deadline 60000
exits 0 "a full pool has a block to spare, of those that the writer keeps free"
start worker "$helpers/hold" "$shm" one worker 0 2 0 1 1
worker=$pid
until_ok grep -q holding "$tmp/worker.out" || bail "hold: $(cat "$tmp/worker.err")"
before=$(state one)
refuses 4 'no block is free beyond those that the writer keeps free, and nothing is evicted for this' \
	gpc-inspect --dir "$shm" ping one --put --pool 1 --deadline 60000
is "$(state one)" "$before" "and with fewer nothing is evicted"
inspect --json ping one --put --deadline 60000
is "$(value put/pool)" 0 "another pool has some"
kill "$worker"
finish "$worker"

# ---- none that answers ----

stop_process "$writer"
refuses 1 "one: time is up" gpc-inspect --dir "$shm" ping one --deadline 50
refuses 1 "one: time is up" gpc-inspect --dir "$shm" ping one --put --deadline 50
kill -CONT "$writer"
inspect ping one --deadline 60000
exits 0 "it goes on"
kill -9 "$writer"
until_ok is_gone "$writer"
refuses 1 'one: no process is the writer' gpc-inspect --dir "$shm" ping one --deadline 60000
refuses 1 'one: no process is the writer' gpc-inspect --dir "$shm" ping one --put

# ---- none that can be opened, and none with pools ----

serve bare --block-size 16 --max-blocks 64 --max-peers 1
refuses 3 'bare: ' gpc-inspect --dir "$shm" ping bare
kill "$pid"
until_ok is_gone "$pid"
serve wide --block-size 16 --max-blocks 64
inspect ping wide --deadline 60000
exits 0 "a cache without pools answers"
refuses 4 'there is no pool from which any process may reserve' gpc-inspect --dir "$shm" ping wide --put --deadline 60000
: >"$shm/gpc.one.idx"
refuses 3 'one: ' gpc-inspect --dir "$shm" ping one

done_testing
