#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Messages of gpcd to a service manager: more time while memory is made or something is missing, READY=1 when it serves,
# and WATCHDOG=1 from the loop that serves, stands by or keeps.
# Tests: tools/daemon/manager.c tools/daemon/process.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

is_written()	# PATTERN FILE
{
	grep -q -e "$1" "$2"
}

listen()	# LABEL
{
	start "$1" "$helpers/notify" "$tmp/$1.socket"
	until_ok is_written listening "$tmp/$1.out" || bail "$1: $(cat "$tmp/$1.err")"
}

twice_more()	# LABEL: the dog is fed twice from now on
{
	fed=$(grep -c '^WATCHDOG=1$' "$tmp/$1.out")
	until_ok sh -c 'test "$(grep -c "^WATCHDOG=1$" "$1")" -ge "$2"' sh "$tmp/$1.out" $((fed + 2))
}

before_ready()	# FILE: what was heard before READY=1
{
	sed '/^READY=1$/,$d' "$1"
}

# ---- memory is made ----

listen makes
start writer env NOTIFY_SOCKET="$tmp/makes.socket" WATCHDOG_USEC=200000 gpcd dog --dir "$shm" --block-size 16 --max-peers 8 \
	--ram-blocks 2000 --block-bytes 16k --quiet
writer=$pid
until_ok is_written '^READY=1$' "$tmp/makes.out"
ok $? "READY=1" "$tmp/writer.err"
before_ready "$tmp/makes.out" >"$tmp/before"
is_written '^EXTEND_TIMEOUT_USEC=60000000$' "$tmp/before"
ok $? "before that it asks for more time" "$tmp/makes.out"
is_written "^STATUS=the RAM pool's memory is being made: [0-9]* of 32 MiB" "$tmp/before"
ok $? "and says what for, with --quiet as well" "$tmp/makes.out"
is_written WATCHDOG "$tmp/before"
is $? 1 "no dog is fed before"
twice_more makes
ok $? "then the dog is fed, again and again" "$tmp/makes.out"
sed '1,/^READY=1$/d' "$tmp/makes.out" | grep -q EXTEND
is $? 1 "and no time is asked for any more"

# ---- a standby and a keeper ----

listen stands
start standby env NOTIFY_SOCKET="$tmp/stands.socket" WATCHDOG_USEC=200000 gpcd dog --dir "$shm" --standby --quiet
standby=$pid
until_ok is_written '^READY=1$' "$tmp/stands.out"
twice_more stands
ok $? "a standby feeds it" "$tmp/stands.out"

listen keeps
start keeper env NOTIFY_SOCKET="$tmp/keeps.socket" WATCHDOG_USEC=200000 gpcd late --dir "$shm" --keep --device host \
	--vram-blocks 8 --block-bytes 4k
keeper=$pid
until_ok is_written '^STATUS=waiting: there is no cache late' "$tmp/keeps.out"
ok $? "a keeper says what it waits for" "$tmp/keeps.out"
is_written '^EXTEND_TIMEOUT_USEC=' "$tmp/keeps.out"
ok $? "and asks for time"
start late gpcd late --dir "$shm" --block-size 16 --max-blocks 100 --max-peers 4 --quiet
late=$pid
until_ok is_written '^READY=1$' "$tmp/keeps.out"
ok $? "until it keeps" "$tmp/keeper.err"
twice_more keeps
ok $? "and feeds the dog" "$tmp/keeps.out"
kill "$keeper" "$late"

# ---- whose dog it is ----

kill "$writer"
finish "$writer"
until_ok is_written "^STATUS=serving as process $standby$" "$tmp/stands.out"
twice_more stands
ok $? "a standby that has taken over feeds it" "$tmp/stands.out"
kill "$standby"
finish "$standby"
listen other
start writer env NOTIFY_SOCKET="$tmp/other.socket" WATCHDOG_USEC=100000 WATCHDOG_PID=1 gpcd dog --dir "$shm" --quiet
until_ok is_written '^READY=1$' "$tmp/other.out"
kill "$pid"
finish "$pid"
until_ok is_written '^STOPPING=1$' "$tmp/other.out"
is_written WATCHDOG "$tmp/other.out"
is $? 1 "the dog of another process is not fed"

done_testing
