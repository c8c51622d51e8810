#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect slow, and the log of gpcd: a call that waits for a stopped writer is in both; the bound is a setting.
# Tests: tools/inspect/slow.c tools/daemon/slow.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

refuses 1 'absent' gpc-inspect --dir "$shm" slow absent
start one gpcd one --dir "$shm" --block-size 16 --ram-blocks 64 --block-bytes 4k --max-blocks 128
writer=$pid
until_ok grep -q 'serving as process' "$tmp/one.err"
gpc-inspect --dir "$shm" slow one >"$tmp/out"
is "$(cat "$tmp/out")" 'one: no call of these processes took more than 100 ms' "nothing is slow"
gpc-inspect --dir "$shm" set one slow-ms=0 >"$tmp/out"
gpc-inspect --dir "$shm" slow one >"$tmp/out"
is "$(cat "$tmp/out")" 'one: nobody notes slow calls: slow-ms is 0' "or nobody notes it"
gpc-inspect --dir "$shm" set one slow-ms=50 >"$tmp/out"
# the second turn of its log has seen that there was none
until_ok test "$(gpc-inspect --dir "$shm" ping one >"$tmp/out" && echo yes)" = yes
stop_process "$writer"
start ask gpc-inspect --dir "$shm" ping one --deadline 300
asks=$pid
finish "$asks"
kill -CONT "$writer"
gpc-inspect --dir "$shm" --json slow one >"$tmp/json"
is "$("$helpers/json" "$tmp/json" slow_ms) $("$helpers/json" "$tmp/json" slow/0/ended)" '50 time was up' \
	"a call that a stopped writer did not answer is there"
gpc-inspect --dir "$shm" slow one >"$tmp/out"
like "$(tail -n 1 "$tmp/out")" 'time was up' "in the table, too"
until_ok grep -q "process $asks, has waited [0-9]* ms .*its time was up" "$tmp/one.err"
ok $? "and in the log" "$tmp/one.err"
kill "$writer"
finish "$writer"
done_testing
