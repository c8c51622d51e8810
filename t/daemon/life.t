#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The life of gpcd: ready, seen by a service manager and by scripts; one writer for each
# cache; a standby; and every way to end.
# Tests: tools/daemon/main.c tools/daemon/process.c tools/daemon/serve.c tools/daemon/name.c
#   tools/daemon/daemon.h

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

is_written()	# REGEX FILE
{
	grep -Eq -e "$1" "$2"
}

writer()	# NAME: process id, or null
{
	inspect --json stat "$1"
	value writer_pid
}

writer_is()	# NAME PID
{
	test "$(writer "$1")" = "$2"
}

# ---- in the foreground, under a service manager ----

listen()	# LABEL SOCKET
{
	start "$1" "$helpers/notify" "$2"
	until_ok is_written listening "$tmp/$1.out" || bail "$2: $(cat "$tmp/$1.err")"
}

listen manager "$tmp/socket"
start first env NOTIFY_SOCKET="$tmp/socket" \
	gpcd first --dir "$shm" --block-size 16 --vram-blocks 64 --foreground
first=$pid
until_ok is_written '^READY=1$' "$tmp/manager.out"
ok $? "a service manager hears READY=1" "$tmp/first.err"
until_ok is_written "^STATUS=serving as process $first$" "$tmp/manager.out"
ok $? "and what it does" "$tmp/manager.out"
is "$(writer first)" "$first" "it is the writer"
kill -TERM "$first"
finish "$first"
is "$status" 0 "SIGTERM ends it well"
until_ok is_written '^STOPPING=1$' "$tmp/manager.out"
ok $? "the manager hears STOPPING=1" "$tmp/manager.out"
is "$(grep -c READY "$tmp/manager.out")" 1 "READY=1 was said once"
like "$(cat "$tmp/first.err")" 'gpcd: first: serving as process' "it says what it does"
like "$(cat "$tmp/first.err")" 'gpcd: first: ended by SIGTERM, the cache stays' \
	"and why it ends"
is "$(cat "$tmp/first.out")" '' "on standard error alone"
is "$(writer first)" null "the cache stays, without a writer"
inspect check first
exits 0 "and sound"

name=@$tmp/abstract
listen abstract "$name"
start first env NOTIFY_SOCKET="$name" gpcd first --dir "$shm" --quiet
first=$pid
until_ok is_written '^READY=1$' "$tmp/abstract.out"
ok $? "a cache that exists needs no geometry; the socket may be abstract"
kill -INT "$first"
finish "$first"
is "$status" 0 "SIGINT ends it well"
is "$(cat "$tmp/first.err")" '' "--quiet says nothing when all is well"

start first env NOTIFY_SOCKET="$tmp/nobody" setsid gpcd first --dir "$shm"
first=$pid
until_ok writer_is first "$first"
ok $? "a manager that is not there is no reason not to serve"
until_ok is_written 'cannot notify' "$tmp/first.err"
ok $? "but is told" "$tmp/first.err"
kill -HUP "$first"
until_ok is_written 'SIGHUP: the options were read again' "$tmp/first.err"
ok $? "without a terminal SIGHUP does not end it" "$tmp/first.err"
kill "$first"
finish "$first"
is "$status" 0 "as SIGTERM does"

# ---- in the background ----

cd "$tmp"
run gpcd second --dir "$shm" --block-size 16 --vram-blocks 64 --daemonize --pidfile pid
exits 0 "--daemonize returns when it is ready"
second=$(cat "$tmp/pid")
is "$(writer second)" "$second" "the process of --pidfile is the writer"
is "$(readlink "/proc/$second/cwd")" / "it has left the working folder"
is "$(readlink "/proc/$second/fd/0" "/proc/$second/fd/1" "/proc/$second/fd/2")" \
	"/dev/null
/dev/null
/dev/null" "and the terminal"
is "$(cut -d' ' -f6 "/proc/$second/stat")" "$second" "and the session"

run gpcd second --dir "$shm" --pidfile "$tmp/pid"
exits 3 "a second writer is refused with a status of its own"
says "has a writer already \(process $second\)" "and told who is the first"
run gpcd second --dir "$shm" --pidfile "$tmp/pid" --daemonize
exits 3 "the same with --daemonize"
is "$(cat "$tmp/pid")" "$second" "the first one's pid file is untouched"

for how in --foreground --daemonize; do
	refuses 1 "--pidfile .*/pid: process $second has it, and is alive" \
		gpcd another --dir "$shm" --block-size 16 --pidfile "$tmp/pid" $how
	refuses 1 "process $second has it" \
		gpcd second --dir "$shm" --standby --pidfile "$tmp/pid" $how
done
is "$(cat "$tmp/pid")" "$second" "the file of a process that lives stays its own"
is "$(ls "$shm" | grep another)" '' "and who asks for it makes no cache"

run gpcd second --dir "$shm" --block-size 32 --daemonize
exits 1 "--daemonize passes on what went wrong"
says 'second exists with --block-size 16 instead of 32' "and says it"

kill -TERM "$second"
until_ok is_gone "$second"
ok $? "SIGTERM ends the daemon"
is "$(ls "$tmp/pid" 2>/dev/null)" '' "its pid file goes with it"
is "$(writer second)" null "the cache stays"

echo "$$ is no gpcd" >"$tmp/pid"
run gpcd second --dir "$shm" --quiet --pidfile "$tmp/pid" --daemonize
exits 0 "a pid file that nobody stands behind is taken over"
second=$(cat "$tmp/pid")
is "$(cat "$tmp/err")$(writer second)" "$second" "silently"
echo other >"$tmp/other"
mv "$tmp/other" "$tmp/pid"
kill "$second"
until_ok is_gone "$second"
is "$(cat "$tmp/pid")" other "a file that came to its place is left alone"
rm "$tmp/pid"

run gpcd second --dir "$shm" --pidfile "$tmp/no/such/folder"
exits 1 "a pid file that cannot be written is an error"
says 'no/such/folder: it cannot be made: its folder does not exist' "and named"
mkdir "$tmp/folder"
run gpcd second --dir "$shm" --pidfile "$tmp/folder" --daemonize
exits 1 "the same with --daemonize"
says 'folder: it is a folder: name a file' "and named"
is "$(writer second)" null "nobody serves afterwards"

serve second --unlink
kill "$pid"
until_ok is_gone "$pid"
ok $? "with --unlink it ends"
is "$(ls "$shm" | grep second)" '' "and takes the cache with it"

run gpcd "$cache" --block-size 16 --daemonize --quiet --pidfile "$tmp/pid" --unlink
exits 0 "without --dir"
is "$(stat -c %a "/dev/shm/gpc.$cache.idx" "/dev/shm/gpc.$cache.ctl")" "600
600" "the cache is in /dev/shm"
kill "$(cat "$tmp/pid")"

# ---- the geometry of a cache that exists ----

serve fixed --block-size 16 --max-blocks 300 --vram-blocks 100 --ram-blocks 50 \
	--max-peers 6 --layout 0123
for other in '--block-size 8' '--block-size 16 --max-blocks 400' \
	'--block-size 16 --vram-blocks 301' '--block-size 16 --max-peers 7' \
	'--block-size 16 --layout 0124' '--layout 0124'; do
	run gpcd fixed --dir "$shm" $other
	exits 1 "a cache that differs: $other"
	says '^gpcd: fixed: ' "is refused by name: $other"
done
refuses 1 'too small: it has 300 blocks and 16 pools, and --vram-blocks 301 and --ram-blocks 0 are asked for' \
	gpcd fixed --dir "$shm" --block-size 16 --vram-blocks 301
run gpcd fixed --dir "$shm" --block-size 16 --max-blocks 300 --vram-blocks 100 \
	--ram-blocks 50 --max-peers 6 --layout 0123
exits 3 "the same geometry is let in, to find a writer"

# ---- standby ----

serve pair --block-size 16 --vram-blocks 64
first=$pid
start kept "$helpers/hold" "$shm" pair kept 5 2 0
until_ok grep -q holding "$tmp/kept.out" || bail "hold: $(cat "$tmp/kept.err")"
listen standby "$tmp/standby.socket"
start second env NOTIFY_SOCKET="$tmp/standby.socket" \
	gpcd pair --dir "$shm" --standby --pidfile "$tmp/standby.pid"
second=$pid
until_ok is_written '^READY=1$' "$tmp/standby.out"
ok $? "a standby is ready when it waits" "$tmp/second.err"
until_ok is_written '^STATUS=standing by' "$tmp/standby.out"
ok $? "and says that it does" "$tmp/standby.out"
is "$(cat "$tmp/standby.pid")" "$second" "it has its pid file"
inspect peers pair
prints "$second +gpcd standby +alive" "peers shows it"
prints "$first +gpcd +writer" "and the writer as what it is"
is "$(writer pair)" "$first" "the first one is still the writer"

kill -9 "$first"
until_ok writer_is pair "$second"
ok $? "killed, its standby takes over" "$tmp/second.err"
inspect --json stat pair
is "$(value writer_generation)" 2 "the generation grows"
is "$(value stats/live stats/refs stats/reserved)" "5
5
2" "blocks, references and reservations are still there"
until_ok is_written "^STATUS=serving as process $second$" "$tmp/standby.out"
ok $? "the manager hears that it serves" "$tmp/standby.out"
inspect peers pair
prints "$second +gpcd standby +writer" "peers shows that a standby took over"
inspect check pair
exits 0 "the cache is sound"

start third gpcd pair --dir "$shm" --standby --unlink
third=$pid
until_ok is_written 'standing by' "$tmp/third.err"
kill "$third"
finish "$third"
is "$status" 0 "a standby ends on SIGTERM"
is "$(writer pair)" "$second" "and leaves the cache to its writer, --unlink or not"
like "$(cat "$tmp/third.err")" 'the cache stays' "and says that it stays"
kill "$second"
finish "$second"
is "$status" 0 "the successor ends well"

start fourth gpcd pair --dir "$shm" --standby
until_ok writer_is pair "$pid"
ok $? "a standby without a writer serves at once"
fourth=$pid
start fifth gpcd pair --dir "$shm" --standby
until_ok is_written 'standing by' "$tmp/fifth.err"
inspect peers pair
prints "$fourth +gpcd +writer" "peers shows it as no standby"
prints "$pid +gpcd standby +alive" "unlike the next one, which waits"
kill "$fourth"
finish "$fourth"
until_ok writer_is pair "$pid"
ok $? "a standby takes over from one that ends well, too"

# ---- a cache that loses its name ----

start nameless gpcd nameless --dir "$shm" --block-size 16 --vram-blocks 64
server=$pid
until_ok writer_is nameless "$server"
start tenant "$helpers/hold" "$shm" nameless tenant 3 0 0
tenant=$pid
until_ok grep -q holding "$tmp/tenant.out" || bail "hold: $(cat "$tmp/tenant.err")"
start waiting gpcd nameless --dir "$shm" --standby
waiting=$pid
until_ok is_written 'standing by' "$tmp/waiting.err"
inspect rm nameless --force
finish "$waiting"
is "$status" 1 "a standby of a cache that has lost its name ends"
like "$(cat "$tmp/waiting.err")" 'nameless: the cache has lost its name' "and says why"
until_ok is_written 'has lost its name: served until' "$tmp/nameless.err"
ok $? "the writer says it, too" "$tmp/nameless.err"
serve nameless --block-size 16 --vram-blocks 64
is "$(writer nameless)" "$pid" "the name is another cache's by now"
is_gone "$server"
is $? 1 "who is attached is served as before"
kill "$tenant"
finish "$tenant"
finish "$server"
is "$status" 1 "the writer ends when nobody is attached any more"
is "$(grep -c 'lost its name: served until' "$tmp/nameless.err")" 1 "it has warned once"
like "$(cat "$tmp/nameless.err")" 'nobody else is attached: it is gone' "and says the end of it"
is "$(grep stays "$tmp/nameless.err")" '' "nor does the cache stay"
is "$(writer nameless)" "$pid" "the other cache is untouched"

start owner gpcd lost --dir "$shm" --block-size 16 --vram-blocks 64 --unlink
owner=$pid
until_ok writer_is lost "$owner"
start tenant "$helpers/hold" "$shm" lost tenant 3 0 0
tenant=$pid
until_ok grep -q holding "$tmp/tenant.out" || bail "hold: $(cat "$tmp/tenant.err")"
inspect rm lost --force
serve lost --block-size 16 --vram-blocks 64
other=$pid
kill "$owner"
finish "$owner"
is "$status" 0 "SIGTERM ends a writer of a lost cache well"
like "$(cat "$tmp/owner.err")" 'ended by SIGTERM, the cache has lost its name' "with the truth"
is "$(writer lost)" "$other" "--unlink removes no other cache of that name"
kill "$tenant"

# stopped, a standby cannot see that the name goes before the seat is free
serve early --block-size 16 --vram-blocks 64
early=$pid
start late gpcd early --dir "$shm" --standby
late=$pid
until_ok is_written 'standing by' "$tmp/late.err"
stop_process "$late"
kill "$early"
until_ok is_gone "$early"
rm "$shm/gpc.early."*
kill -CONT "$late"
finish "$late"
is "$status" 1 "a standby does not serve what has lost its name"
is "$(grep -c serving "$tmp/late.err")" 0 "not even for a moment" "$tmp/late.err"

done_testing
