#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A writer that is stopped: list, stat and peers say so, with its pid, and that it goes on; what is
# stopped beside it is told from it.
# Tests: tools/inspect/state.c tools/inspect/stat.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

runs()	# PID
{
	! is_stopped "$1"
}

seat_of()	# PID: FIELD...
{
	seat=$(value '*/pid' | awk -v pid="$1" '$2 == pid { sub(/pid$/, "", $1); print $1 }')
	shift
	for field in "$@"; do
		value "$seat$field"
	done | paste -sd' ' -
}

# All commands, as programs and as people see them.
all_say()	# STATE STOPPED PEER: WHEN
{
	inspect --json list
	is "$(value 0/state 0/writer_pid 0/writer_stopped | paste -sd, -)" "$1,$writer,$2" \
		"$4: list --json"
	inspect list
	prints "^shown .* $writer .* $1\$" "$4: list"
	inspect --json stat shown
	is "$(value state writer_pid writer_stopped | paste -sd, -)" "$1,$writer,$2" \
		"$4: stat --json"
	inspect stat shown
	prints "^state: +$1\$" "$4: stat"
	inspect --json peers shown
	is "$(seat_of "$writer" state writer stopped)" "$3 true $2" "$4: peers --json"
	inspect peers shown
	prints "^ +[0-9]+ +$writer +gpcd +$3 +0 " "$4: peers"
}

serve shown --block-size 16 --vram-blocks 64 --max-peers 8
writer=$pid
start worker "$helpers/hold" "$shm" shown worker 1 0 0
worker=$pid
until_ok grep -q holding "$tmp/worker.out" || bail "hold: $(cat "$tmp/worker.err")"

all_say served false writer "at work"
stop_process "$writer"
all_say 'writer stopped' true 'writer stopped' "stopped"
refuses 3 "shown has a writer already \(process $writer\), which is stopped: kill -CONT $writer lets it go on" \
	gpcd shown --dir "$shm"
refuses 1 "time is up: the writer of shown, process $writer, is stopped: kill -CONT $writer lets it go on" \
	gpc-inspect --dir "$shm" clear shown
is "$(inspect --json peers shown; seat_of "$worker" state writer stopped)" 'alive false false' \
	"the worker is not"
stop_process "$worker"
inspect --json peers shown
is "$(seat_of "$worker" state writer stopped)" 'stopped false true' "both are"
kill -CONT "$writer"
until_ok runs "$writer"
all_say served false writer "it goes on"
inspect --json peers shown
is "$(seat_of "$worker" state writer stopped)" 'stopped false true' "the worker does not"

# a standby that is stopped says nothing of the writer
run gpcd shown --dir "$shm" --standby --daemonize --quiet --pidfile "$tmp/standby.pid"
standby=$(cat "$tmp/standby.pid")
stop_process "$standby"
all_say served false writer "a standby is stopped"

# one that was stopped and killed is no writer any more
kill -9 "$standby"
stop_process "$writer"
kill -9 "$writer"
until_ok is_gone "$writer"
inspect --json list
is "$(values 0/state 0/writer_pid 0/writer_stopped)" 'no writer null null' "killed: no writer"

# ---- another PID namespace: nobody can tell ----

if unshare -rpf true 2>/dev/null; then
	start far unshare -rpf gpcd far --dir "$shm" --block-size 16 --vram-blocks 64 --quiet
	served()
	{
		inspect --json stat far
		test "$(value state)" = served
	}
	until_ok served
	ok $? "a writer in another PID namespace serves"
	is "$(values writer_pid writer_stopped)" '1 null' "whether it is stopped cannot be told"
	inspect --json peers far
	is "$(values 0/state 0/writer 0/stopped)" 'writer true null' "nor of its seat"
else
	skip 3 "no PID namespaces here"
fi
done_testing
