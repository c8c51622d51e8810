#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A process is stopped in a section: stores come to an end, and stat and peers name it, with what can be done; when it
# goes on, nobody is named.
# Tests: tools/inspect/behind.c tools/inspect/stat.c tools/inspect/peers.c tools/inspect/sample.c

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

waits()	# stat names somebody
{
	inspect --json stat held
	test "$(value eviction_waits/pid)" = "$paused"
}

nobody()
{
	inspect --json stat held
	test "$(value eviction_waits)" = null
}

serve held --block-size 16 --vram-blocks 32 --max-peers 8 --free-target 0
start paused "$helpers/hold" "$shm" held paused 0 0 1
paused=$pid
until_ok grep -q holding "$tmp/paused.out" || bail "hold: $(cat "$tmp/paused.err")"
nobody
ok $? "nothing dies, so nobody is named" "$tmp/out"
stop_process "$paused"

# blocks that leave while it is stopped are not free before it goes on
start first "$helpers/hold" "$shm" held first 16 0 0 100
first=$pid
until_ok grep -q holding "$tmp/first.out" || bail "hold: $(cat "$tmp/first.err")"
kill "$first"
finish "$first"
inspect clear held --pool 0
until_ok waits
ok $? "stat --json names who eviction waits for" "$tmp/out"
is "$(value eviction_waits/label eviction_waits/stopped eviction_waits/here | paste -sd' ' -)" "paused true true" \
	"its label, and its state"
like "$(value eviction_waits/section_ns)" '^[1-9][0-9]{9,}$' "since when"
line="eviction waits for process $paused \\(paused\\), whose section has been open for [0-9.]+ s: kill -CONT $paused, or kill -9 $paused"
inspect stat held
prints "^$line\$" "stat has the line"
inspect peers held
prints "^$line\$" "and peers"
inspect --json peers held
is "$(value '*/eviction_waits' | grep -c true)" 1 "one of them has eviction_waits"

kill -CONT "$paused"
kill "$paused"
finish "$paused"
until_ok nobody
ok $? "when it has ended nobody is named"

done_testing
