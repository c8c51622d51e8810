#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect watch: the feed as lines, and as JSON.
# Tests: tools/inspect/watch.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

serve one --block-size 16 --vram-blocks 64
writer=$pid

start watch gpc-inspect --dir "$shm" watch one --since 0
watch=$pid
start hold "$helpers/hold" "$shm" one worker 3 0 0
until_ok grep -q holding "$tmp/hold.out"
ok $? "a worker publishes three blocks"
first=$(head -n 1 "$tmp/hold.out")
inspect watch one --since 0 --limit 3
exits 0 "what has happened"
is "$(wc -l <"$tmp/out" | tr -d ' ')" 3 "three changes"
prints "^1 +stored +0:[0-9]+ $first tag 7$" "the first one, of a first block"
prints "^3 +stored +0:[0-9]+ [0-9a-f]{32} below [0-9a-f]{32} tag 7$" "the last one, with its parent"
inspect --json watch one --since 2 --limit 1
exits 0 "from the second on, as JSON"
is "$(wc -l <"$tmp/out" | tr -d ' ')" 1 "an object a line"
is "$(value seq) $(value what) $(value pool) $(value tag)" "2 stored 0 7" "its fields"
is "$(value parent)" "$first" "a parent"
! grep -q -e digest -e from_slot "$tmp/out"
ok $? "and none that it has not" "$tmp/out"

run "$helpers/clear" "$shm" one
exits 0 "a clear"
inspect --json watch one --since 4 --limit 1
is "$(value what) $(value pool)" "cleared 0" "is told"
inspect watch one --since 4 --limit 1
prints '^4 +cleared +pool 0$' "to people, too"

kill -9 "$writer"
until_ok is_gone "$writer"
inspect watch one --since 0 --limit 4
exits 0 "a cache without a writer tells what has happened"
run gpc-inspect --dir "$shm" watch one --since 77 --limit 0
exits 0 "nothing is asked for"

start ahead gpc-inspect --dir "$shm" watch one --since 77
until_ok grep -q ahead "$tmp/ahead.out"
prints_of()	# LABEL REGEX
{
	grep -Eq "$2" "$tmp/$1.out"
}
prints_of ahead '^77 +ahead +of the last change, 4: those behind that one follow$'
ok $? "a change that has not happened yet was not lost" "$tmp/ahead.out"
kill "$pid"
finish "$pid"
start ahead_json gpc-inspect --dir "$shm" --json watch one --since 77
until_ok grep -q ahead "$tmp/ahead_json.out"
is "$(cat "$tmp/ahead_json.out")" '{"seq":77,"what":"ahead","last":4}' "as JSON"
kill "$pid"
finish "$pid"

refuses 2 'stat: --since is an option of watch$' gpc-inspect stat one --since 3
refuses 2 '--since: .x. is not a number' gpc-inspect watch one --since x
refuses 1 'no cache absent' gpc-inspect --dir "$shm" watch absent
until_ok grep -q cleared "$tmp/watch.out"
ok $? "who watches sees it as it happens" "$tmp/watch.out"
kill -TERM "$watch"
finish "$watch"
is "$(wc -l <"$tmp/watch.out" | tr -d ' ')" 4 "each change once"

done_testing
