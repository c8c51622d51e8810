#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What gpcd says: up to --log-level, with priorities in the journal, and a line of state when SIGUSR1 asks for it.
# Tests: tools/daemon/say.c tools/daemon/state.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

# begin LABEL OPTION...: a daemon of the cache LABEL that has made its cache: $pid
begin()
{
	label=$1
	shift
	start "$label" gpcd "$label" --dir "$shm" --block-size 16 --vram-blocks 64 "$@"
	until_ok gpc-inspect --dir "$shm" stat "$label" >"$tmp/stat" 2>&1
	until_ok sh -c 'gpc-inspect --dir "$1" list | grep -q "^$2 .* served"' sh "$shm" "$label"
}

stop()
{
	kill "$pid"
	finish "$pid"
}

# ---- levels ----

begin info
stop
grep -q '^gpcd: info: serving as process' "$tmp/info.err"
ok $? "by default it says what it does" "$tmp/info.err"
begin notice --log-level notice
stop
is "$(cat "$tmp/notice.err")" '' "--log-level notice: nothing of that"
begin number --log-level 7
stop
grep -q '^gpcd: number: serving' "$tmp/number.err"
ok $? "a number is a level" "$tmp/number.err"
begin named
refuses 3 'has a writer already' gpcd named --dir "$shm" --log-level err
run gpcd named --dir "$shm" --log-level crit
exits 3 "--log-level crit: the same end"
is "$(cat "$tmp/err")" '' "without a word"
stop
refuses 2 "log-level: 'loud' is no level" gpcd named --dir "$shm" --log-level loud
refuses 2 "log-level: '8' is no level" gpcd named --dir "$shm" --log-level 8
refuses 2 '--quiet and --log-level exclude each other' gpcd named --dir "$shm" --quiet --log-level err

# ---- the journal ----

: >"$tmp/stream"
JOURNAL_STREAM=$(stat -c %d:%i "$tmp/stream")
export JOURNAL_STREAM
# the file that is its standard error, and not one of the same name
start journal sh -c 'exec gpcd journal --dir "$1" --block-size 16 2>>"$2"' sh "$shm" "$tmp/stream"
until_ok grep -q 'serving as' "$tmp/stream"
run sh -c 'gpcd journal --dir "$1" 2>>"$2"' sh "$shm" "$tmp/stream"
kill "$pid"
finish "$pid"
is "$(sed -n 's/^\(<6>journal: serving\) as.*/\1/p' "$tmp/stream")" '<6>journal: serving' "the journal: <6> for information"
is "$(sed -n 's/^\(<3>journal has a writer\).*/\1/p' "$tmp/stream")" '<3>journal has a writer' "and <3> for an error"
begin elsewhere
stop
grep -q '^gpcd: elsewhere: serving' "$tmp/elsewhere.err"
ok $? "another standard error than the journal's is as ever" "$tmp/elsewhere.err"
unset JOURNAL_STREAM

# ---- who died ----

begin buried --max-peers 8
buried=$pid
start named "$helpers/hold" "$shm" buried somebody 0 0 0
named=$pid
start nameless "$helpers/hold" "$shm" buried '' 0 0 0
nameless=$pid
until_ok grep -q holding "$tmp/named.out"
until_ok grep -q holding "$tmp/nameless.out"
kill -9 "$named" "$nameless"
until_ok grep -q "(pid $named, somebody) died" "$tmp/buried.err"
ok $? "with its label" "$tmp/buried.err"
until_ok grep -q "(pid $nameless) died" "$tmp/buried.err"
ok $? "and without one" "$tmp/buried.err"
pid=$buried
stop

# ---- SIGUSR1 ----

begin state --quiet --max-peers 8
start held "$helpers/hold" "$shm" state held 5 2 0
held=$pid
until_ok grep -q holding "$tmp/held.out" || bail "hold: $(cat "$tmp/held.err")"
start second gpcd state --dir "$shm" --standby --quiet
standby=$pid
until_ok sh -c 'gpc-inspect --dir "$1" peers state | grep -q "gpcd standby"' sh "$shm"
writer=$(gpc-inspect --dir "$shm" --json stat state >"$tmp/out" && value writer_pid)
kill -USR1 "$writer"
until_ok grep -q serving "$tmp/state.err"
ok $? "SIGUSR1: a line, also with --quiet" "$tmp/state.err"
is "$(wc -l <"$tmp/state.err")" 1 "a single one"
like "$(cat "$tmp/state.err")" "^gpcd: state: serving; writer $writer for [0-9]+ s, generation 1; peers 3, dead 0; live 5, free 57, dying 0, reserved 2, references 5; lookups 0, hits 0; evicted 0; commands [0-9]+, pending 0$" \
	"with the state of the cache"
kill -USR1 "$standby"
until_ok grep -q 'standing by; writer' "$tmp/second.err"
ok $? "a standby answers, too" "$tmp/second.err"
kill "$writer" "$held" "$standby"
start vram gpcd kept --dir "$shm" --block-size 16 --max-blocks 128 --quiet
vram=$pid
until_ok gpc-inspect --dir "$shm" stat kept >"$tmp/out" 2>&1
start keeper gpcd kept --dir "$shm" --keep --device host --vram-blocks 16 --block-bytes 4k
keeper=$pid
until_ok grep -q 'keeping pool' "$tmp/keeper.err"
kill -USR1 "$keeper"
until_ok grep -q 'keeping a pool; writer' "$tmp/keeper.err"
ok $? "and so does a keeper" "$tmp/keeper.err"
kill "$keeper" "$vram"

done_testing
