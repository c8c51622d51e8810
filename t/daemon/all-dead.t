#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A cache whose processes were all killed, with no seat left: gpcd serves it again, a standby does,
# and gpc-inspect reap clears the seats.
# Tests: lib/index/takeover/open.c tools/daemon/serve.c tools/inspect/admin.c
. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

hold()	# LABEL
{
	start "$1" "$helpers/hold" "$shm" full "$1" 2 1 1 "$2"
	until_ok grep -q holding "$tmp/$1.out" || bail "$1: $(cat "$tmp/$1.err")"
}

# Three seats, all of the dead.
bury()
{
	serve full --block-size 16 --vram-blocks 64 --max-peers 3
	writer=$pid
	hold first 100
	first=$pid
	hold second 200
	second=$pid
	kill -9 "$writer" "$first" "$second"
	finish "$first"
	finish "$second"
	until_ok is_gone "$writer" || bail "the writer lives"
}

sound()	# WHO
{
	inspect --json stat full
	is "$(values stats/live stats/refs stats/sections)" "4 0 0" "$1: blocks stay, holds of the dead do not"
	inspect check full
	exits 0 "$1: the cache is sound"
}

bury
run gpcd full --dir "$shm" --daemonize --quiet --pidfile "$tmp/full.pid"
exits 0 "gpcd serves a cache whose seats are all of the dead"
pid=$(cat "$tmp/full.pid")
until_ok sh -c "gpc-inspect --dir '$shm' --json peers full | grep -c '\"alive\": *false' | grep -qx 0"
sound gpcd
kill "$pid"
until_ok is_gone "$pid"
inspect rm full

bury
start standby gpcd full --dir "$shm" --standby
standby=$pid
until_ok grep -q 'writer of full' "$tmp/standby.err"
ok $? "a standby serves such a cache" "$tmp/standby.err"
is "$(grep -c 'has no writer' "$tmp/standby.err")" 1 "and says once why it cleared seats"
is "$(grep -c ') died: taking back' "$tmp/standby.err")" 3 "whose, each once"
sound standby
kill "$standby"
finish "$standby"
is "$status" 0 "it ends"
inspect rm full

bury
inspect --json reap full
exits 0 "reap clears such a cache"
is "$(values dead left remain)" "3 0 0" "and tells how many had died"
sound reap
inspect reap full
prints '^full: .*dead: 0, .*closed the cache: 0; not cleared yet: 0' "a second time there is nobody"

done_testing
