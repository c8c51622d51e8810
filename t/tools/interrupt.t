#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tools end at once when they are interrupted, also while a writer is stopped and all wait for
# it: exit status 130, workers gone, the cache they made gone.
# Tests: tools/common/cli.c tools/replay/child.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

GPCD=$(command -v gpcd)                 # a program, and no script before it
export GPCD
times=300                               # longer than a test takes to look
long_trace
patient=3                               # seconds that "at once" may take here

children()	# PID
{
	cat "/proc/$1/task/$1/children" 2>/dev/null
}

named()	# NAME PID...: those of them that run that program
{
	what=$1
	shift
	for p; do
		case $(tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null) in
		"$what"*) echo "$p" ;;
		esac
	done
}

workers()	# PID of the replay
{
	named 'gpc-replay --worker' $(children "$1")
}

works()	# PID: its workers have begun
{
	test "$(workers "$1" | grep -c .)" -eq 2 &&
		gpc-inspect --dir "$shm" --json stat "$2" >"$tmp/seen" 2>/dev/null &&
		test "$("$helpers/json" "$tmp/seen" stats/published)" -gt 0
}

# From the signal to the end, and what is left of it.
ends()	# NAME PID CHILD...
{
	name=$1
	victim=$2
	shift 2
	from=$(date +%s%N)
	kill -INT "$victim"
	finish "$victim"
	took=$((($(date +%s%N) - from) / 1000000))
	is "$status" 130 "$name: status 130"
	soon "$took" $((patient * 1000))
	ok $? "$name: at once ($took ms)"
	for p; do
		is_gone "$p" || echo "$p lives"
	done >"$tmp/lives"
	test ! -s "$tmp/lives"
	ok $? "$name: nobody it started is left" "$tmp/lives"
}

# ---- a cache of its own ----

for stop in nobody writer workers all; do
	start own gpc-replay "$tmp/long.jsonl" --dir "$shm" --vram-blocks 100 --workers 2
	replay=$pid
	until_ok works "$replay" "replay-$replay" || bail "no replay: $(cat "$tmp/own.err")"
	writer=$(named gpcd $(children "$replay"))
	crew=$(workers "$replay")
	case $stop in
	writer) halt=$writer ;;
	workers) halt=$crew ;;
	all) halt="$writer $crew" ;;
	*) halt= ;;
	esac
	for p in $halt; do
		stop_process "$p"
	done
	ends "own cache, $stop stopped" "$replay" $writer $crew
	is "$(ls "$shm")" '' "own cache, $stop stopped: the cache is removed"
done

# ---- while gpcd starts ----

start own gpc-replay "$tmp/long.jsonl" --dir "$shm" --vram-blocks 1M --workers 2
replay=$pid
until_ok test -e "/proc/$replay/task/$replay/children"
until_ok sh -c "test -n \"\$(cat /proc/$replay/task/$replay/children)\""
ends "before the cache is there" "$replay"
is "$(ls "$shm")" '' "before the cache is there: nothing is left"

# ---- a cache of somebody else's, whose writer is stopped ----

serve theirs --block-size 16 --vram-blocks 100
writer=$pid
stop_process "$writer"
start first gpc-replay "$tmp/long.jsonl" --dir "$shm" --name theirs --workers 2
replay=$pid
until_ok grep -q '[0-9]' "/proc/$replay/task/$replay/children"
ends "theirs, before the first request" "$replay"
is "$(ls "$shm" | grep -v '^gpc\.theirs\.')" '' "its payload is removed"
kill -CONT "$writer"
start second gpc-replay "$tmp/long.jsonl" --dir "$shm" --name theirs --workers 2
replay=$pid
until_ok works "$replay" theirs || bail "no replay: $(cat "$tmp/second.err")"
crew=$(workers "$replay")
stop_process "$writer"
ends "theirs, in the middle" "$replay" $crew
ls "$shm" | grep -q '^gpc\.theirs\.idx$'
ok $? "the cache of others stays"
! is_stopped "$writer"
test $? -eq 1
ok $? "and so does its writer"
kill -CONT "$writer"
kill "$writer"

# ---- the others ----

start bench gpc-bench --dir "$shm" --entries 64k --rounds 1000 lookup
bench=$pid
until_ok sh -c "test \"\$(cat /proc/$bench/task/$bench/children | wc -w)\" -ge 2"
crew=$(children "$bench")
set -- $crew
shift $(($# - 1))
stop_process "$1"
ends gpc-bench "$bench" $crew
is "$(ls "$shm" | grep -v '^gpc\.theirs\.')" '' "gpc-bench: its cache is removed"

serve crew --block-size 16 --vram-blocks 100
writer=$pid
start held "$helpers/hold" "$shm" crew held 0 1 0
held=$pid
until_ok grep -q holding "$tmp/held.out"
stop_process "$writer"
kill -9 "$held"
finish "$held"
start reap perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' gpc-inspect --dir "$shm" reap crew
reap=$pid
until_ok sh -c "tr '\\0' ' ' </proc/$reap/cmdline | grep -q '^gpc-inspect'"
if command -v perl >/dev/null; then
	ends gpc-inspect "$reap"
else
	skip 3 "perl is not installed"
fi

done_testing
