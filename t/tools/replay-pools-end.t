#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Replays with pools of memory that are ended, or whose processes are: what was made in shared
# memory goes, a worker's death spoils no block, and a keeper's is told.
# Tests: tools/replay/pools.c tools/replay/own.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

on_gpu && short_trace 100 && times=2
in_pools="--payload 4k --device $device"

child()	# PID REGEX: the child of that process with these words on its command line
{
	for one in $(cat "/proc/$1/task/$1/children"); do
		tr '\0' ' ' <"/proc/$one/cmdline" | grep -q -e "$2" && echo "$one"
	done
}

is_empty()	# there is no file of any cache
{
	test -z "$(ls "$shm")"
}

# ---- a worker is killed ----

serve loss --block-size 16 --max-blocks 1k --ram-blocks 200 --block-bytes 4k --max-peers 12 \
	--device "$device"
server=$pid
run gpcd loss --keep --dir "$shm" --daemonize --quiet --pidfile "$tmp/keeper" --device "$device" \
	--vram-blocks 300 --block-bytes 4k --pieces 8 --demote-to 0
exits 0 "a keeper"
keeper=$(cat "$tmp/keeper")
catch_replay replay loss 500 --name loss --workers 4 --json $in_pools
ok $? "four workers at work" "$tmp/replay.err"
replay=$pid
kill -9 "$(child $replay '--worker 1')"
kill -CONT $writer
finish $replay
cp "$tmp/replay.out" "$tmp/out"
is "$status $(values wrong_blocks workers_failed)" '1 0 1' \
	"one is killed, the others go on to the end, without a wrong block" ||
	diag "$(cat "$tmp/replay.err")"
like "$(cat "$tmp/replay.err")" 'worker 2 was killed by signal 9' "it is said"
run gpc-replay "$small_trace" --dir "$shm" --name loss --workers 4 --json $in_pools
is "$status $(value wrong_blocks)" '0 0' "what it has left behind is right" ||
	diag "$(cat "$tmp/err")"

nothing_held()
{
	inspect --json stat loss
	test "$(values stats/refs stats/reserved stats/sections)" = '0 0 0'
}
until_ok nothing_held
ok $? "nothing is held any more" "$tmp/out"
inspect check loss
exits 0 "the cache is sound"

# ---- the keeper is killed ----

catch_replay orphan loss 500 --name loss --workers 2 $in_pools
orphan=$pid
kill -9 "$keeper"
kill -CONT $writer
finish $orphan
is "$status" 1 "without its keeper a replay fails"
like "$(cat "$tmp/orphan.err")" 'worker [12]: .*pool( is)? 1' "and says which pool"
refuses 1 'loss has no VRAM pool \(gpcd --keep makes one\)' gpc-replay "$small_trace" --dir "$shm" \
	--name loss $in_pools
run gpcd loss --keep --dir "$shm" --daemonize --quiet --pidfile "$tmp/keeper" --device "$device" \
	--vram-blocks 100 --block-bytes 4k --demote-to 0
exits 0 "another keeper"
run gpc-replay "$small_trace" --dir "$shm" --name loss --workers 2 --json $in_pools
is "$status $(values wrong_blocks vram_blocks)" '0 0 100' "and another replay, in its pool" ||
	diag "$(cat "$tmp/err")"
keeper=$(cat "$tmp/keeper")
kill "$keeper"
until_ok is_gone "$keeper"
kill "$server"
until_ok is_gone "$server"
inspect rm --force loss
is "$(ls "$shm")" '' "the cache goes with its memory"

# ---- a replay with a cache of its own ----

for signal in INT $(on_gpu || echo TERM); do
	catch_replay replay own 500 --workers 2 --vram-blocks 300 --ram-blocks 200 $in_pools
	replay=$pid
	kill -$signal $replay
	kill -CONT "$writer"
	finish $replay
	is "$signal $status" "$(echo "INT 130 TERM 143" | grep -o "$signal [0-9]*")" \
		"SIG$signal ends a replay by that signal"
	is "$(ls "$shm")" '' "nothing is left of it"
done

catch_replay replay own 500 --workers 2 --vram-blocks 300 --ram-blocks 200 $in_pools
replay=$pid
kill -9 $replay
kill -CONT "$writer"
finish $replay
until_ok is_empty
ok $? "killed, it leaves nothing, either" || diag "$(ls -l "$shm")"

catch_replay replay own 500 --workers 2 --vram-blocks 300 --ram-blocks 200 $in_pools
replay=$pid
kill -9 "$(child $replay '--keep')"
kill -CONT "$writer"
finish $replay
is "$status" 1 "without its own keeper it fails"
like "$(cat "$tmp/replay.err")" 'worker [12]: ' "and says so"
is "$(ls "$shm")" '' "and leaves nothing"

cat >"$tmp/gpcd" <<-END
	#!/bin/sh
	case \$* in *--keep*) exit 1 ;; esac
	exec gpcd "\$@"
END
chmod +x "$tmp/gpcd"
run env GPCD="$tmp/gpcd" gpc-replay "$small_trace" --dir "$shm" $in_pools
is "$status $(tail -n 1 "$tmp/err")" '1 gpc-replay: gpcd --keep did not start' \
	"a keeper that ends at once"
is "$(ls "$shm")" '' "is the end of its cache"

done_testing
