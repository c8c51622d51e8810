#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd without --block-size, before the engine has made the cache: it waits without a limit, tells the log, a service
# manager and probes, and is ready once it has joined.  All that is wrong without a cache is told at once.
# Tests: tools/daemon/serve.c tools/daemon/patience.c tools/daemon/main.c tools/daemon/tiers.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

is_written()	# REGEX FILE
{
	grep -Eq -e "$1" "$2"
}

listen()	# LABEL
{
	start "$1" "$helpers/notify" "$tmp/$1.socket"
	until_ok is_written listening "$tmp/$1.out" || bail "$1: $(cat "$tmp/$1.err")"
}

join()	# LABEL NAME OPTION...: $pid
{
	label=$1 of=$2
	shift 2
	start "$label" gpcd "$of" --dir "$shm" "$@"
	eval "pid_$label=$pid"
}

soon()	# LABEL REGEX NAME; who has ended says no more
{
	until_ok eval "is_written '$2' '$tmp/$1.err' || { test -n \"\$pid_$1\" && is_gone \$pid_$1; }"
	is_written "$2" "$tmp/$1.err"
	ok $? "$3" "$tmp/$1.err"
}

at_once()	# REGEX OPTION...: status 1, and no wait
{
	text=$1
	shift
	start wrong gpcd none "$@"
	until_ok eval "is_gone $pid || is_written waiting '$tmp/wrong.err'"
	kill "$pid" 2>/dev/null
	finish "$pid"
	test "$status" -eq 1 && is_written "^gpcd: .*$text" "$tmp/wrong.err"
	ok $? "at once: $text" "$tmp/wrong.err" || diag "exit status $status, want 1"
}

engine()	# NAME SEATS: $pid
{
	start "engine-$1" env GPC_T_MAKES="$2" "$helpers/hold" "$shm" "$1" engine 0 0 0
	until_ok is_written holding "$tmp/engine-$1.out" || bail "engine: $(cat "$tmp/engine-$1.err")"
}

ends()	# PID WANT NAME
{
	finish "$1"
	is "$status" "$2" "$3"
}

end()	# PID NAME
{
	kill -TERM "$1"
	ends "$1" 0 "$2"
}

waiting="waiting: there is no cache [a-z]+ in $shm; an engine makes it, or a gpcd with --block-size"

# ---- it waits, and says so ----

listen ear
start first env NOTIFY_SOCKET="$tmp/ear.socket" WATCHDOG_USEC=100000 gpcd late --dir "$shm" --quiet --pidfile "$tmp/first.pid"
first=$pid pid_first=$pid
soon first "^gpcd: late: $waiting" "it says what it waits for, and what makes one, with --quiet as well"
until_ok is_written '^STATUS=waiting: there is no cache late in ' "$tmp/ear.out"
ok $? "a service manager hears it" "$tmp/ear.out"
! grep -q READY "$tmp/ear.out"
ok $? "and is told of no readiness" "$tmp/ear.out"
until_ok sh -c "test \$(grep -c '^EXTEND_TIMEOUT_USEC=60000000\$' '$tmp/ear.out') -ge 2"
ok $? "and is asked for time, again and again" "$tmp/ear.out"
kill -USR1 "$first"
soon first 'late: a daemon that waits: there is no cache late' "asked, it says so again"
kill -HUP "$first"
is "$(cat "$tmp/first.pid")" '' "its pid file is empty until it is ready"
join second late --standby
second=$pid
soon second "^gpcd: late: $waiting" "a second one waits, too"
! grep -q -e READY -e WATCHDOG "$tmp/ear.out"
ok $? "nor is it later, and no dog is fed" "$tmp/ear.out"

# ---- there is one ----

engine late 8
engine=$pid
until_ok is_written '^READY=1$' "$tmp/ear.out"
ok $? "an engine makes it: it is ready" "$tmp/first.err"
is "$(sed -n '/^READY=1$/{n;p;q;}' "$tmp/ear.out")" "STATUS=standing by for the writer's seat" "as a standby, without --standby"
until_ok is_written '^WATCHDOG=1$' "$tmp/ear.out"
ok $? "and feeds the dog"
is "$(cat "$tmp/first.pid")" "$first" "its pid file is written"
soon second "late: joined: process $engine .engine. is the writer, and this one takes over when it ends" "so is the second one"
end "$engine" "the engine ends"
until_ok sh -c "grep -q 'STATUS=serving as process $first' '$tmp/ear.out' || grep -q 'serving as process $second' '$tmp/second.err'"
ok $? "one of the two takes over" "$tmp/second.err"
end "$first" "the first one ends well"
end "$second" "the second one ends well"
until_ok is_written '^STOPPING=1$' "$tmp/ear.out"
inspect rm late

# ---- a signal ends it meanwhile ----

listen short
start none env NOTIFY_SOCKET="$tmp/short.socket" gpcd none --dir "$shm" --pidfile "$tmp/none.pid"
soon none "$waiting" "there is nothing"
end "$pid" "SIGTERM ends it well while it waits"
like "$(cat "$tmp/none.err")" 'none: ended by SIGTERM before it had the cache$' "and it says so"
until_ok is_written '^STOPPING=1$' "$tmp/short.out"
ok $? "to a manager, too"
test ! -e "$tmp/none.pid"
ok $? "and its pid file is gone"
is "$(ls "$shm")" '' "nothing is left"

# --daemonize: the one who started it waits as well, and a signal to it ends both
start parent gpcd none --dir "$shm" --daemonize --pidfile "$tmp/daemon.pid"
parent=$pid pid_parent=$pid
soon parent "$waiting" "with --daemonize"
kill -TERM "$parent"
ends "$parent" 0 "SIGTERM to the starting process ends it"
test ! -e "$tmp/daemon.pid"
ok $? "after the daemon, whose pid file is gone"
like "$(cat "$tmp/parent.err")" 'none: ended by SIGTERM before it had the cache$' "which says so"
start parent gpcd none --dir "$shm" --daemonize --pidfile "$tmp/daemon.pid"
parent=$pid pid_parent=$pid
soon parent "$waiting" "with --daemonize"
kill -KILL "$parent"
finish "$parent"
until_ok test ! -e "$tmp/daemon.pid"
ok $? "the starting process is killed: the daemon ends, too"
start parent gpcd none --dir "$shm" --daemonize --pidfile "$tmp/daemon.pid"
parent=$pid pid_parent=$pid
soon parent "$waiting" "with --daemonize"
is_gone "$parent"
is $? 1 "the starting process waits"
engine none 8
ends "$parent" 0 "until it is ready"
daemon=$(cat "$tmp/daemon.pid")
kill "$daemon"
until_ok is_gone "$daemon"
end "$pid" "the engine ends"
inspect rm none

# ---- all seats are taken ----

engine full 1
engine=$pid
join full full
full=$pid
soon full 'full: waiting: all 1 seats of full are taken' "a seat is waited for"
end "$engine" "a worker ends"
soon full 'full: serving as process' "and its seat is taken"
end "$full" "it ends well"

# ---- removed, and made again ----

join twice twice
twice=$pid
soon twice "$waiting" "there is none"
engine twice 8
soon twice 'twice: standing by' "there is one"
inspect rm --force twice
ends "$twice" 1 "removed, it ends with a failure, since others are to be started anew"
join again twice
again=$pid
soon again "$waiting" "started anew it waits for the next one"
kill "$pid" "$again"
finish "$again"
is "$(ls "$shm" | grep twice)" '' "which did not come"

# ---- what comes is no cache for it ----

engine other 8
end "$pid" "an engine makes one"
mkdir "$tmp/aside"
mv "$shm"/gpc.other.* "$tmp/aside"
bring()	# the index last, as a maker does
{
	cp -p "$tmp"/aside/gpc.other.[!i]* "$shm"
	cp -p "$tmp/aside/gpc.other.idx" "$shm/new"
	mv "$shm/new" "$shm/gpc.other.idx"
}
join sound other
soon sound "$waiting" "there is none yet"
bring
soon sound 'other: serving as process' "one without a writer gets one"
end "$pid" "which ends well"
rm "$shm"/gpc.other.*
"$helpers/relayout" "$tmp/aside" other 1
join format other
soon format "$waiting" "there is none yet"
bring
ends "$pid" 1 "one of another format is refused"
like "$(cat "$tmp/format.err")" 'gpcd: other: cache other was made by gpc 0.1 .layout 1.; this library is newer' "and it is said why"
rm -r "$shm"/gpc.other.* "$tmp/aside"
join model other --layout 00ff
soon model "$waiting" "there is none yet"
model=$pid
engine other 8
ends "$model" 1 "one of another model is refused"
like "$(cat "$tmp/model.err")" 'other was made for another model' "and it is said why"
end "$pid" "the engine ends"
mkdir "$shm/gpc.junk.idx"
refuses 1 'gpc.junk.idx is no regular file' gpcd junk --dir "$shm"
rmdir "$shm/gpc.junk.idx"

# ---- what is wrong without a cache ----

mkdir "$tmp/folder"
head -c 8192 /dev/zero >"$tmp/foreign"
echo short >"$tmp/key"
chmod 600 "$tmp/key" "$tmp/foreign"
at_once "nowhere: No such file" --dir "$shm/nowhere"
at_once '/key: it has not the 32 hex digits' --dir "$shm" --key-file "$tmp/key" --disk "$tmp/disk"
at_once '--disk: .*is no regular file' --dir "$shm" --disk "$tmp/folder" --disk-blocks 9
at_once '--disk: .*its folder does not exist' --dir "$shm" --disk "$tmp/no/disk" --disk-blocks 9
at_once '--disk: .*no disk file of gpc' --dir "$shm" --disk "$tmp/foreign" --disk-strict
at_once '--remote: .*no name' --dir "$shm" --remote :a=b
at_once '--pidfile .*its folder does not exist' --dir "$shm" --pidfile "$tmp/no/pid"
is "$(ls "$shm" | grep none)" '' "and nothing is made for it"

# its files are looked at again: the maker may have made them
rm "$tmp/key"
engine tiers 8
end "$pid" "an engine makes one"
mkdir "$tmp/aside"
mv "$shm"/gpc.tiers.* "$tmp/aside"
join tiers tiers --key-file "$tmp/key" --disk "$tmp/disk" --disk-blocks 60
tiers=$pid
soon tiers "$waiting" "a key file that is not there"
test ! -e "$tmp/key"
ok $? "is left to the maker of the cache"
echo short >"$tmp/key"
chmod 600 "$tmp/key"
mv "$tmp"/aside/gpc.tiers.[!i]* "$tmp"/aside/gpc.tiers.idx "$shm"
until_ok eval "is_gone $tiers || is_written 'serving as' '$tmp/tiers.err'"
kill "$tiers" 2>/dev/null
ends "$tiers" 1 "what has become of it meanwhile counts"
like "$(cat "$tmp/tiers.err")" '/key: it has not the 32 hex digits' "and is told"

# ---- probes ----

PYTHON=$(command -v python3)
run gpcd --metrics 1 nobody --dir "$shm/nowhere"
case "${PYTHON:-without libmicrohttpd} $(cat "$tmp/err")" in
*'without libmicrohttpd'*)
	skip 14 "this gpcd has no --metrics, or there is no python3"
	done_testing
	;;
esac
ask()	# PATH
{
	"$PYTHON" -I -S -c '
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=100)
s.sendall(b"GET " + sys.argv[2].encode() + b" HTTP/1.0\r\nHost: localhost\r\n\r\n")
text = b""
while part := s.recv(65536):
    text += part
head, _, body = text.decode().partition("\r\n\r\n")
print(head.split()[1], "; ".join(body.splitlines()))' "$port" "$1" 2>&1
}
answers()	# PATH WANT
{
	test "$(ask "$1")" = "$2"
}
join probed probed --metrics 0
probed=$pid
soon probed "$waiting" "it waits"
port=$(sed -n 's|.*metrics at http://.*:\([0-9]*\)/metrics$|\1|p' "$tmp/probed.err")
is "$(ask /healthz)" '200 alive' "one that waits is alive"
is "$(ask /readyz)" "503 the cache cannot be opened: there is no cache probed in $shm" "and not ready"
ask /metrics | tr ';' '\n' >"$tmp/waits.metrics"
like "$(cat "$tmp/waits.metrics")" ' gpc_daemon_serving\{cache="probed"\} 0' "its metrics are there"
like "$(cat "$tmp/waits.metrics")" ' gpc_up\{cache="probed"\} 0' "the cache is not"
like "$(cat "$tmp/waits.metrics")" ' gpc_daemon_opening\{cache="probed"\} 1' "as the daemon waits for it"
refuses 1 "cannot listen on 127.0.0.1:$port" gpcd other-one --dir "$shm" --metrics "$port"
engine probed 8
until_ok answers /readyz '200 ready'
is "$(ask /readyz)" '200 ready' "ready once it has joined"
like "$(ask /metrics | tr ';' '\n')" ' gpc_daemon_opening\{cache="probed"\} 0' "it waits no more"
end "$probed" "it ends well"
engine seats 1
engine=$pid
join seatless seats --metrics 0
probed=$pid
soon seatless 'seats: waiting: all 1 seats of seats are taken' "a seat is waited for"
port=$(sed -n 's|.*metrics at http://.*:\([0-9]*\)/metrics$|\1|p' "$tmp/seatless.err")
like "$(ask /readyz)" "^503 process $probed has not joined the cache yet" "which is not ready, though others are served"
end "$engine" "the engine ends"
until_ok answers /readyz '200 ready'
is "$(ask /readyz)" '200 ready' "ready once it has a seat"
end "$probed" "it ends well"

done_testing
