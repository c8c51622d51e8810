#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A bench that finds a wrong answer, that loses its writer, or that is ended: no figures, and
# nothing is left.
# Tests: tools/bench/crew.c tools/bench/cache.c tools/bench/rounds.c tools/bench/report.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"
test -x "$builddir/tools/gpc-bench" || skip_all "gpc-bench is not built"

nobody_else()	# no gpc-bench runs any more
{
	for one in $(crew); do
		case $(readlink "/proc/$one/exe") in
		*gpc-bench) return 1 ;;
		esac
	done
	return 0
}

is_filled()	# sets $name, $writer
{
	name=$(ls "$shm" | sed -n 's/^gpc\.\(gpc-bench-.*\)\.idx$/\1/p')
	test -n "$name" || return 1
	inspect --json stat "$name"
	writer=$(value writer_pid) &&
		test "$(value stats/published 2>/dev/null)" -ge 65536
}

long="--entries 64k --rounds 1000 --dir $shm"

# ---- somebody else has all keys forgotten ----

start bench gpc-bench lookup --batch 64 $long
until_ok is_filled
ok $? "the cache is full" "$tmp/out"
"$helpers/clear" "$shm" "$name" 2>/dev/null    # the writer may be gone before it can answer
finish "$pid"
is "$status" 1 "and then it is cleared: lookups that do not find what was there end the bench"
like "$(cat "$tmp/bench.err")" 'wrong answer: no figures' "it says so"
is "$(cat "$tmp/bench.out")" '' "without a figure"
is "$(ls -A "$shm")" '' "nothing is left"

# ---- its writer is killed ----

start bench gpc-bench insert $long
until_ok is_filled
ok $? "the cache is full" "$tmp/out"
kill -9 "$writer"
finish "$pid"
is "$status" 1 "without a writer it ends"
is "$(cat "$tmp/bench.out")" '' "without a figure"
is "$(ls -A "$shm")" '' "nothing is left"

# ---- signals ----

for signal in HUP INT TERM; do
	start bench gpc-bench lookup $long
	until_ok is_filled
	kill -$signal "$pid"
	finish "$pid"
	is "$signal $status" \
		"$(echo "HUP 129 INT 130 TERM 143" | grep -o "$signal [0-9]*")" \
		"SIG$signal ends a bench by that signal"
	is "$(cat "$tmp/bench.out")" '' "without a figure"
	is "$(ls -A "$shm")" '' "nothing is left"
	until_ok nobody_else
	ok $? "nor anybody"
done

start bench gpc-bench lookup $long
until_ok is_filled
kill -9 "$pid"
finish "$pid"
until_ok nobody_else
ok $? "killed, it takes its processes along"
is "$(ls -A "$shm")" '' "and its cache"

done_testing
