#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A replay that is ended, or whose gpcd is: by a signal it cleans up, without a standby it
# says what is missing, with one it goes on as if nothing had been.
# Tests: tools/replay/own.c tools/replay/child.c tools/replay/main.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

nobody_else()	# of the processes that run the tools, $but excepted
{
	for one in $(crew); do
		case " $but " in
		*" $one "*) continue ;;
		esac
		case $(readlink "/proc/$one/exe") in
		*gpcd|*gpc-replay) return 1 ;;
		esac
	done
	return 0
}

# ---- its own gpcd is killed: nobody comes, and it gives up in the end ----

catch_replay orphan own 2000 --workers 2 --vram-blocks 301
kill -9 "$writer"
orphan=$pid
orphaned_at=$(date +%s)

# ---- a cache without a writer: it is told at once, and waits ----

unserved()	# NAME: a cache whose writer is dead
{
	serve "$1" --block-size 16 --vram-blocks 300
	kill -9 "$pid"
	until_ok is_gone "$pid"
}

unserved nobody
start without gpc-replay "$small_trace" --dir "$shm" --name nobody
without=$pid
until_ok grep -q 'nobody has no writer: waiting 10 s for one (start gpcd nobody)$' "$tmp/without.err"
ok $? "without a writer it says so before it waits" "$tmp/without.err"

unserved late
start late gpc-replay "$small_trace" --dir "$shm" --name late --workers 2 --json
late=$pid
until_ok grep -q 'late has no writer: waiting' "$tmp/late.err"
run gpcd late --dir "$shm" --daemonize --quiet --pidfile "$tmp/late.pid"
exits 0 "a writer comes"
finish $late
cp "$tmp/late.out" "$tmp/out"
is "$status $(values wrong_blocks workers_failed)" '0 0 0' "and the replay goes on" ||
	diag "$(cat "$tmp/late.err")"

unserved ended
start ended gpc-replay "$small_trace" --dir "$shm" --name ended
ended=$pid
until_ok grep -q 'ended has no writer: waiting' "$tmp/ended.err"
kill -TERM $ended
finish $ended
is "$status $(grep -c . "$tmp/ended.err")" '143 1' "SIGTERM ends the wait, without another word"
is "$(ls "$shm" | grep gpc-replay)" '' "it has left no payload"
kill "$(cat "$tmp/late.pid")"

# two of the replays above are still there
but="$without $orphan $(cat "/proc/$orphan/task/$orphan/children" 2>/dev/null)"

# ---- by a signal, with a cache of its own ----

for signal in HUP INT TERM; do
	catch_replay replay own 2000 --workers 4 --vram-blocks 300 --ram-blocks 200
	replay=$pid
	kill -$signal $replay
	kill -CONT "$writer"
	finish $replay
	is "$signal $status" \
		"$(echo "HUP 129 INT 130 TERM 143" | grep -o "$signal [0-9]*")" \
		"SIG$signal ends a replay by that signal"
	is "$(cat "$tmp/replay.out")" '' "without a result"
	is "$(ls "$shm" | grep "replay-$replay")" '' "its cache is gone"
	until_ok nobody_else
	ok $? "and all of its processes"
done

catch_replay replay own 2000 --workers 4 --vram-blocks 300
replay=$pid
kill -9 $replay
kill -CONT "$writer"
finish $replay
until_ok nobody_else
ok $? "killed, it takes its workers and its gpcd along"
is "$(ls "$shm" | grep "replay-$replay")" '' "gpcd has removed the cache"

# ---- by a signal, with the cache of somebody else ----

idle()	# CACHE: nobody but the writer, nothing held
{
	inspect --json stat "$1"
	test "$(values peers stats/refs stats/reserved)" = '1 0 0'
}

serve theirs --block-size 16 --vram-blocks 300 --ram-blocks 200
catch_replay replay theirs 2000 --name theirs --workers 4
replay=$pid
kill -INT $replay
finish $replay
is "$status" 130 "SIGINT with --name, while the writer is stopped"
kill -CONT "$writer"
is "$(ls "$shm" | grep gpc-replay)" '' "the payload is gone"
until_ok idle theirs
ok $? "the workers have left, with all they held" "$tmp/out"
inspect check theirs
exits 0 "the cache is sound"
run gpc-replay "$small_trace" --dir "$shm" --name theirs --workers 2 --json
is "$status $(value wrong_blocks)" '0 0' "and good for the next replay"

# ---- gpcd is killed in the middle, with a standby ----

between()	# CACHE PID: a writer that is not this one
{
	inspect --json stat "$1"
	second=$(value writer_pid)
	test "$second" != null && test "$second" != "$2"
}

while read -r name sizes; do
	serve $name --block-size 16 --max-peers 10 $sizes
	first=$pid
	run gpcd $name --dir "$shm" --standby --daemonize --quiet --pidfile "$tmp/$name.second"
	run gpcd $name --dir "$shm" --standby --daemonize --quiet --pidfile "$tmp/$name.third"
	catch_replay replay $name 5000 --name $name --workers 4 --json
	replay=$pid
	kill -9 "$first"
	until_ok between $name "$first"
	ok $? "$name: a standby takes over in the middle" "$tmp/out"
	kill -9 "$second"
	if is_gone $replay; then
		skip 1 "$name: the replay was over before the second one was killed"
	else
		ok 0 "$name: and is killed in the middle, too"
	fi
	finish $replay
	cp "$tmp/replay.out" "$tmp/out"
	is "$status $(values requests wrong_blocks workers_failed)" \
		"0 $requests 0 0" "$name: the replay goes on, no block is wrong" ||
		diag "$(cat "$tmp/replay.err")"
	until_ok idle $name
	inspect --json stat $name
	is "$(values writer_generation stats/refs stats/reserved)" '3 0 0' \
		"$name: the third writer serves, and nothing is held"
	inspect check $name
	exits 0 "$name: check is clean"
done <<-END
	tier1 --vram-blocks 300
	tier2 --vram-blocks 150 --ram-blocks 300
	target0 --vram-blocks 100 --ram-blocks 100 --free-target 0 --device host
END

# ---- those of the beginning ----

finish $without
is "$status" 1 "a replay that waited for a writer fails in the end"
is "$(tail -n 1 "$tmp/without.err")" 'gpc-replay: nobody has no writer: none came in 10 s' \
	"and says why"
is "$(cat "$tmp/without.out")" '' "without a result"

finish $orphan
is "$status" 1 "a replay without a writer fails in the end"
like "$(cat "$tmp/orphan.err")" 'worker [12]: .*no process is the writer' "and says why"
diag "after $(($(date +%s) - orphaned_at)) s"
is "$(ls "$shm" | grep "replay-$orphan")" '' "its cache is gone"

done_testing
