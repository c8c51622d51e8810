#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A replay that is ended, or whose gpcd is: by a signal it cleans up, without a standby it
# says what is missing, with one it goes on as if nothing had been.

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

times=40
long=$tmp/long.jsonl
for i in $(seq $times); do
	cat "$small_trace"
done >"$long"
requests=$(grep -c . "$long")

at_work()	# CACHE MIN: more than so many blocks were asked for
{
	inspect --json stat "$1"
	test "$(value stats/lookups)" -gt "$2"
}

own_cache()	# PID: of the replay
{
	inspect --json list
	name=$(value '*/name' | sed -n "s/.* \(replay-$1\)$/\1/p")
	test -n "$name"
}

own_at_work()	# PID
{
	own_cache "$1" && at_work "$name" 2000
}

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

start orphan gpc-replay "$long" --dir "$shm" --workers 2 --vram-blocks 301
orphan=$pid
until_ok own_at_work $orphan
ok $? "a replay is at work" "$tmp/orphan.err"
orphan_cache=$name
but="$orphan $(cat "/proc/$orphan/task/$orphan/children" 2>/dev/null)"
inspect --json stat "$name"
orphaned_at=$(date +%s)
kill -9 "$(value writer_pid)"

# ---- by a signal, with a cache of its own ----

for signal in INT TERM HUP; do
	start replay gpc-replay "$long" --dir "$shm" --workers 4 --vram-blocks 300 \
		--ram-blocks 200
	replay=$pid
	until_ok own_at_work $replay
	kill -$signal $replay
	finish $replay
	is "$status" $((128 + $(kill -l | tr ' ' '\n' | awk -v s="$signal" \
		'$1 == s { print NR }'))) "SIG$signal ends a replay by that signal"
	is "$(cat "$tmp/replay.out")" '' "without a result"
	is "$(ls "$shm" | grep "replay-$replay")" '' "its cache is gone"
	until_ok nobody_else
	ok $? "and all of its processes"
done

start replay gpc-replay "$long" --dir "$shm" --workers 4 --vram-blocks 300
replay=$pid
until_ok own_at_work $replay
kill -9 $replay
finish $replay
until_ok nobody_else
ok $? "killed, it takes its workers and its gpcd along"
is "$(ls "$shm" | grep "replay-$replay")" '' "gpcd has removed the cache"

# ---- by a signal, with the cache of somebody else ----

idle()	# CACHE: nobody but the writer, nothing held
{
	inspect --json stat "$1"
	test "$(value peers stats/refs stats/reserved | paste -sd' ' -)" = '1 0 0'
}

serve theirs --block-size 16 --vram-blocks 300 --ram-blocks 200
start replay gpc-replay "$long" --dir "$shm" --name theirs --workers 4
replay=$pid
until_ok at_work theirs 2000
kill -INT $replay
finish $replay
is "$status" 130 "SIGINT with --name"
is "$(ls "$shm" | grep gpc-replay)" '' "the payload is gone"
until_ok idle theirs
ok $? "the workers have left, with all they held" "$tmp/out"
inspect check theirs
exits 0 "the cache is sound"
run gpc-replay "$small_trace" --dir "$shm" --name theirs --workers 2 --json
is "$status $(value wrong_blocks)" '0 0' "and good for the next replay"

# ---- gpcd is killed in the middle, with a standby ----

writer_is()	# CACHE PID
{
	inspect --json stat "$1"
	test "$(value writer_pid)" = "$2"
}

while read -r name sizes; do
	serve $name --block-size 16 --max-peers 12 $sizes
	first=$pid
	run gpcd $name --dir "$shm" --standby --daemonize --quiet --pidfile "$tmp/second"
	run gpcd $name --dir "$shm" --standby --daemonize --quiet --pidfile "$tmp/third"
	start replay gpc-replay "$long" --dir "$shm" --name $name --workers 4 --json
	replay=$pid
	until_ok at_work $name 5000
	kill -9 "$first"
	until_ok test "$(cat "$tmp/second")" -gt 0
	until_ok at_work $name 25000
	inspect --json stat $name
	second=$(value writer_pid)
	kill -9 "$second"
	is_gone $replay
	is $? 1 "$name: two writers were killed in the middle"
	finish $replay
	cp "$tmp/replay.out" "$tmp/out"
	is "$status $(value requests wrong_blocks workers_failed refused | paste -sd' ' -)" \
		"0 $requests 0 0 0" "$name: the replay goes on to its end, no block is wrong" ||
		diag "$(cat "$tmp/replay.err")"
	like "$first $second" '^[0-9]+ [0-9]+$' "$name: a standby was the second writer"
	until_ok idle $name
	inspect --json stat $name
	is "$(value writer_generation stats/refs stats/reserved | paste -sd' ' -)" '3 0 0' \
		"$name: the third writer serves, and nothing is held"
	inspect check $name
	exits 0 "$name: check is clean"
done <<-END
	tier1 --vram-blocks 300
	tier2 --vram-blocks 150 --ram-blocks 300
	ahead0 --vram-blocks 100 --ram-blocks 100 --ahead 0 --device host
END

# ---- the orphan of the beginning ----

finish $orphan
is "$status" 1 "a replay without a writer fails in the end"
like "$(cat "$tmp/orphan.err")" 'worker [12]: .*no process is the writer' "and says why"
diag "after $(($(date +%s) - orphaned_at)) s"
is "$(ls "$shm" | grep "$orphan_cache")" '' "its cache is gone"

done_testing
