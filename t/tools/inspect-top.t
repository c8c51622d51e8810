#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect top on a terminal: keys, another size, a writer that is stopped, killed and replaced, a cache that is
# removed and made again; and stat --watch, which says the same in lines.
# Tests: tools/inspect/top/top.c tools/inspect/top/screen.c tools/inspect/top/no_screen.c
#   tools/inspect/sample_take.c tools/inspect/rates.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

test -x "$helpers/pty" || skip_all "t/sh/pty is not built"
unset COLUMNS
TERM=xterm
export TERM

# ---- stat --watch ----

serve one --block-size 16 --vram-blocks 64 --ram-blocks 32 --max-peers 8
writer=$pid
start worker "$helpers/hold" "$shm" one worker 5 2 0
until_ok grep -q holding "$tmp/worker.out" || bail "hold: $(cat "$tmp/worker.err")"
worker=$pid
inspect stat one --watch 1 --limit 2
exits 0 "stat --watch --limit 2"
is "$(wc -l <"$tmp/out")" 2 "is two lines"
prints '^20[0-9-]+T[0-9:]+Z cache=one state=served seconds=[0-9.]+ hit_rate=[0-9.-]+ lookups/s=[0-9.]+ ' \
	"with time, state and rates"
prints ' live=5 free_blocks=[0-9]+ refs=5 reserved=2 pending=0 peers=2 dead=0 ' "and what is there"
inspect stat one --watch 1 --limit 2 --json
exits 0 "as JSON"
head -n 1 "$tmp/out" >"$tmp/first"
"$helpers/json" "$tmp/first" cache state per_second/published live >"$tmp/values"
is "$(sed -n '1p;2p;4p' "$tmp/values")" "one
served
5" "one object a line"
test "$(sed -n 3p "$tmp/values")" != 0
ok $? "the first one tells what was since the cache was made" "$tmp/values"
tail -n 1 "$tmp/out" >"$tmp/second"
is "$("$helpers/json" "$tmp/second" per_second/published)" 0 "the second one what was since the first"
refuses 2 'stat: --limit goes with --watch$' gpc-inspect --dir "$shm" stat one --limit 3
refuses 2 '--watch: 0 is out of range' gpc-inspect --dir "$shm" stat one --watch 0
refuses 2 'list: --watch is an option of stat and top$' gpc-inspect --dir "$shm" list --watch 1

# ---- stat of all caches ----

serve two --block-size 16 --vram-blocks 64
second=$pid
inspect stat
exits 0 "stat without a name"
is "$(sed -n 's/^cache: *//p' "$tmp/out")" "one
two" "shows all caches"
inspect --json stat
is "$(value '*/name')" "0/name one
1/name two" "as an array"
inspect --json stat one
like "$(value created)" '^20[0-9-]+T[0-9:]+Z$' "stat: when the cache was made"
like "$(value writer_since)" '^20[0-9-]+T[0-9:]+Z$' "and since when it has its writer"
inspect stat --watch 1 --limit 4
is "$(grep -c 'cache=one' "$tmp/out") $(grep -c 'cache=two' "$tmp/out")" '2 2' "stat --watch without a name: all caches"
kill $second
until_ok is_gone $second
inspect rm two

# ---- top ----

inspect top one
exits 1 "top without a terminal"
says "top wants a terminal; .*stat --watch" "says what is for logs"
inspect env >/dev/null
run env TERM=nosuch "$helpers/pty" 80 gpc-inspect --dir "$shm" top one
grep -q 'built without ncurses' "$tmp/out" && skip_top=yes
if test "$skip_top"; then
	done_testing
fi
exits 1 "a terminal that nobody knows"
prints "the terminal 'nosuch' is unknown here" "says so"
run "$helpers/pty" 80 gpc-inspect --dir "$shm" top absent
exits 1 "a cache that is not there"

# top on a terminal of so many columns, with a pipe for its keys
begin()	# COLUMNS
{
	rm -f "$tmp/keys"
	mkfifo "$tmp/keys"
	start top env GPC_T_KEYS="$tmp/keys" "$helpers/pty" "$1" gpc-inspect --dir "$shm" top one --watch 1
	top=$pid
	exec 7<>"$tmp/keys"
}

# A terminal gets what has changed; ^L has it drawn whole.
shown()	# TEXT: since the last look at it
{
	printf '\f' >&7
	tail -c +"$from" "$tmp/top.out" | tr '\033' '\n' | grep -q -e "$1"
}

# Waits for it, from here on.
sees()	# TEXT NAME
{
	until_ok shown "$1"
	ok $? "$2" "$tmp/top.out"
	from=$(($(wc -c <"$tmp/top.out") + 1))
}

from=1
begin 80
sees 'nothing is wrong' "top begins"
stop_process $writer
sees 'is stopped' "a stopped writer is told"
kill -CONT $writer
sees 'nothing is wrong' "one that goes on"
kill -9 $writer
until_ok is_gone $writer
sees 'no writer' "one that was killed"
serve one
writer=$pid
sees 'another writer took over' "the next one"
kill -9 $worker
kill $writer
until_ok is_gone $writer
until_ok gpc-inspect --dir "$shm" rm one >/dev/null
sees 'the cache was removed' "a cache that was removed"
serve one --block-size 16 --vram-blocks 64
sees 'nothing is wrong' "one that was made again"
inspect --json stat one
is "$(value peers)" 1 "it takes no seat"
printf r >&7
printf ' ' >&7
sees 'paused' "keys are read: space pauses"
printf q >&7
finish $top
exits 0 "q ends it"
exec 7>&-

# another size: the pty helper's terminal is that of its child
from=1
begin 160
sees 'nothing is wrong' "160 columns"
child=$(pgrep -P $top 2>/dev/null || ps -o pid= --ppid $top)
child=$(echo $child)
stty cols 40 rows 24 <"/proc/$child/fd/0"
sees '~dying' "40 columns, after a resize"
kill -TERM $child
finish $top
exits 0 "a signal ends it"
exec 7>&-

done_testing
