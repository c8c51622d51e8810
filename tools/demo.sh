#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make demo: one gpcd, four worker processes that replay a trace against its cache, a look at
# them from outside while they run, and the result.  Then the same with bytes: each worker has VRAM
# of its own, played by the host, and all share RAM.  Whatever ends it, nothing stays behind.
#
#	tools/demo.sh [TRACE]           with gpcd, gpc-inspect and gpc-replay in the PATH
set -u

trace=${1:-${TRACE:?which trace?}}
workers=4
vram=400
ram=600
name=demo-$$
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-$name.XXXXXX") || exit 1
replay=

# PID: still there, and not just waiting for us to notice its end.  Its memory goes before its locks do, and its first
# thread may go before the others.
is_running()
{
	test ! -e "/proc/$1/exe" || return 0
	set -- "$1" "/proc/$1/task"/*
	test -e "/proc/$1" && { test $# -gt 2 || ! grep -q '^State:.*[ZX]' "/proc/$1/status" 2>/dev/null; } && test -e "/proc/$1"
}

stop_gpcd()
{
	daemon=$(cat "$tmp/gpcd.pid" 2>/dev/null) || return
	kill "$daemon" 2>/dev/null
	patience=60
	while is_running "$daemon" && test $patience -gt 0; do
		patience=$((patience - 1))
		sleep 0.05
	done
	is_running "$daemon" && kill -9 "$daemon"
}

start_gpcd()
{
	gpcd "$name" --block-size 16 --vram-blocks $vram --ram-blocks $ram --device host \
		--daemonize --quiet --pidfile "$tmp/gpcd.pid"
}

take_down()
{
	trap - EXIT
	test -z "$replay" || kill "$replay" 2>/dev/null
	wait
	stop_gpcd
	gpc-inspect rm "$name" >/dev/null 2>&1
	rm -rf "$tmp"
}
trap take_down EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM

show()	# TITLE FILE: unless there is nothing in it
{
	test -s "$2" || return 0
	printf '\n$ %s\n' "$1"
	cat "$2"
}

all_attached()	# FILE
{
	test "$(grep -c "gpc-replay [0-9]* of $workers" "$1")" -eq $workers
}

# Wait for all workers, let them work a moment, look.  False: they were done before that.
look()
{
	until gpc-inspect peers "$name" >"$tmp/peers" && all_attached "$tmp/peers"; do
		is_running "$replay" || return 1
		sleep 0.02
	done
	sleep 0.3
	gpc-inspect stat "$name" >"$tmp/stat" &&
		gpc-inspect peers "$name" >"$tmp/peers" && all_attached "$tmp/peers"
}

# ---- one cache ----

test -r "$trace" || { echo "demo: cannot read $trace" >&2; exit 1; }
start_gpcd || exit 1
echo "gpcd serves the cache $name: $vram blocks of VRAM, $ram of RAM, a mirror on the host device"

# ---- four workers ----

# A short trace is over before anybody can look: it is replayed several times over then, with
# a fresh cache, so that what it shows is one replay's.
copy=${trace##*/}
cp "$trace" "$tmp/$copy" && cd "$tmp" || exit 1
times=1
while :; do
	timeout -k 20 60 gpc-replay "$copy" --workers $workers --name "$name" \
		>"$tmp/result" &
	replay=$!
	look
	seen=$?
	wait $replay
	status=$?
	replay=
	test $seen -ne 0 && test $status -eq 0 && test $times -lt 4096 || break
	test $times -ne 1 ||
		echo "the replay ended too soon to be shown at work: it is made longer, with a fresh cache"
	times=$((times * 4))
	# a session of turns would go on in the next copy
	for part in 1 2 3 4; do
		sed 's/"session_id" *: *"/&'$part./ "$copy"
	done >more && mv more "$copy" || exit 1
	stop_gpcd
	gpc-inspect rm "$name" >/dev/null && start_gpcd || exit 1
done
test $status -ne 0 || echo "$workers workers replay $trace$(test $times -eq 1 || echo ", $times times over")"

if test $seen -eq 0; then
	show "gpc-inspect stat $name" "$tmp/stat"
	show "gpc-inspect peers $name" "$tmp/peers"
fi
show "gpc-replay $copy --workers $workers --name $name" "$tmp/result"
if test $status -eq 124; then
	echo "demo: the replay did not end in time" >&2
fi
test $status -eq 0 || exit $status

# ---- and it is sound ----

gpc-inspect check "$name" >"$tmp/check"
status=$?
show "gpc-inspect check $name" "$tmp/check"
test $status -eq 0 || exit $status

# ---- bytes ----

printf '\nThe same requests, with bytes: each worker has %s blocks of VRAM of its own, 4 KiB each.  All share %s blocks
of RAM: what one has spilled another fetches, and every block of a hit is verified.\n' $((vram / workers)) $ram
set -- "${trace##*/}" --workers $workers --vram-blocks $((vram / workers)) --ram-blocks $ram \
	--device host --payload 4096 --fetch
timeout -k 20 60 gpc-replay "$@" >"$tmp/result"
status=$?
show "gpc-replay $*" "$tmp/result"
exit $status
