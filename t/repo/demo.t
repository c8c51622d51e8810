#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What make demo runs: gpcd, four workers, a look at them, the result; and nothing of it
# stays, however it ends.
# Tests: tools/demo.sh

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

demo=$srcdir/tools/demo.sh

left()	# of the caches of demos that this script ran: $pid
{
	ls /dev/shm | grep "demo-$pid\b"
}

alone()	# no tool runs any more
{
	for one in $(crew); do
		case $(readlink "/proc/$one/exe") in
		*gpcd|*gpc-replay|*gpc-inspect) return 1 ;;
		esac
	done
	return 0
}

begun=$(date +%s)
start demo env TMPDIR="$tmp" sh "$demo" "$small_trace"
other_caches=demo-$pid
finish $pid
is "$status" 0 "the demo runs" || diag "$(cat "$tmp/demo.err")"
cp "$tmp/demo.out" "$tmp/out"
cp "$tmp/demo.err" "$tmp/err"
soon $(($(date +%s) - begun)) 100
ok $? "in good time"
is "$(cat "$tmp/err")" '' "gpcd says nothing beside it"
prints '4 workers replay' "four workers replay"
again=$(grep -c 'replay ended too soon to be shown at work' "$tmp/out")
is "$again" "$(grep -c '4 workers replay .* times over' "$tmp/out")" \
	"a replay that was too short is begun anew, and that is said once"
prints '^\$ gpc-inspect stat demo-' "stat is shown"
prints '^\$ gpc-inspect peers demo-' "peers is shown"
is "$(grep -c 'gpc-replay [1-4] of 4 ' "$tmp/out")" 4 "with the workers in it"
prints '^wrong blocks +0$' "the result is shown"
prints 'demo-[0-9]+: clean$' "and that the cache is sound"
plain "all of it is plain text"
is "$(left)" '' "no cache is left"
is "$(ls "$tmp" | grep '^gpc-demo')" '' "no file is left"
until_ok alone
ok $? "no process is left"

# ---- rows of turns: several times over, these are other sessions each time ----

start demo env TMPDIR="$tmp" sh "$demo" "$srcdir/t/data/turns.jsonl"
other_caches="$other_caches demo-$pid"
finish $pid
is "$status" 0 "the demo runs with a trace of turns" || diag "$(cat "$tmp/demo.err")"
is "$(awk '/^requests  / && !n { n = $2 } /^blocks asked for/ && !asked { asked = $4 } END { print asked / n }' \
	"$tmp/demo.out")" "$(echo | awk '{ print 67 / 11 }')" "and each copy asks for as much as the trace"

# ---- interrupted ----

# long enough that it cannot end first, however busy the machine is
awk '{ line[NR] = $0 } END { for (n = 300 * NR; n--;) print line[n % NR + 1] }' \
	"$small_trace" >"$tmp/long.jsonl"
start demo env TMPDIR="$tmp" sh "$demo" "$tmp/long.jsonl"
other_caches="$other_caches demo-$pid"
until_ok grep -q 'serves the cache' "$tmp/demo.out"
kill -TERM $pid
finish $pid
is "$status" 143 "SIGTERM ends it"
until_ok alone
ok $? "no process is left"
is "$(left)" '' "no cache is left"
is "$(ls "$tmp" | grep '^gpc-demo')" '' "no file is left" ||
	diag "$(ls -l "$tmp"/gpc-demo*; cat "$tmp/demo.err")"

run env TMPDIR="$tmp" sh "$demo" "$tmp/no-trace"
exits 1 "a trace that is not there"
says 'no-trace' "is named"

done_testing
