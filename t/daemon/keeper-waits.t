#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A keeper waits for the cache and for a writer, says so, and a signal ends it meanwhile.
# Tests: tools/daemon/keep.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

is_written()	# REGEX FILE
{
	grep -Eq -e "$1" "$2"
}

keep()	# LABEL
{
	start "$1" gpcd kept --dir "$shm" --keep --device host --vram-blocks 32 --block-bytes 64k
}

is_waiting()	# LABEL REGEX NAME
{
	until_ok is_written "$2" "$tmp/$1.err"
	ok $? "$3" "$tmp/$1.err"
}

ends_well()	# LABEL PID NAME
{
	kill -TERM "$2"
	finish "$2"
	is "$status" 0 "SIGTERM ends it well: $3"
	like "$(cat "$tmp/$1.err")" 'kept: ended by SIGTERM$' "and it says so"
}

pools()	# how many the cache has
{
	inspect --json stat kept
	value pools | tr -d '[]'
}

memory_files()
{
	ls "$shm" | grep -c '^gpc\.kept\.p'
}

# ---- no cache ----

keep none
is_waiting none 'waiting up to 10 seconds: .*kept.*--block-size and without --keep makes one' \
	"it says that it waits for the cache, and what makes one"
kill -USR1 "$pid"
is_waiting none 'a keeper that waits' "asked, it says so again"
ends_well none "$pid" "while there is no cache"

# ---- no writer ----

start writer gpcd kept --dir "$shm" --block-size 16 --max-blocks 1k
writer=$pid
until_ok is_written 'serving as' "$tmp/writer.err" || bail "$(cat "$tmp/writer.err")"
kill -KILL "$writer"
finish "$writer"
keep alone
is_waiting alone 'waiting up to 30 seconds: no process is the writer' "it waits for a writer"
ends_well alone "$pid" "while there is no writer"
keep later
later=$pid
is_waiting later 'waiting up to 30 seconds: no process is the writer' "another one waits"
start next gpcd kept --dir "$shm"
next=$pid
is_waiting later 'keeping pool 0, 32 blocks' "and keeps its pool when a writer comes"
kill -TERM "$later"
finish "$later"

# ---- a writer that is stopped ----

no_pool()
{
	test "$(memory_files)" = 0
}
until_ok no_pool || bail "the pool has not gone"
stop_process "$next"
keep long
long=$pid
is_waiting long 'waiting up to 30 seconds: .*is stopped: kill -CONT' "a writer that is stopped is waited for"
is "$(memory_files)" 1 "memory is made once"
kill -CONT "$next"
is_waiting long 'keeping pool 0, 32 blocks' "and answers"
is "$(pools)" 1 "there is one pool"
is "$(memory_files)" 1 "and one memory"
kill -TERM "$long"
finish "$long"
is "$status" 0 "the keeper ends well"
kill -TERM "$next"
finish "$next"

done_testing
