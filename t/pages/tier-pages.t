#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The examples of the pages that have a tier below RAM, run as they stand there.  Other are only the sizes, which are
# those of large machines, the folders and addresses, which are ours alone, and the name of the cache.
# Tests: man/gpc_remote.7 man/gpc-cluster.7

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

other_caches="$cache-a $cache-b"
chmod 755 "$tmp"
mkdir "$tmp/plugins"
for plugin in folder redis; do
	test ! -e "$builddir/plugins/.libs/gpc_remote_$plugin.so" ||
		install -m 644 "$builddir/plugins/.libs/gpc_remote_$plugin.so" "$tmp/plugins"
done
cd "$tmp" || exit 99

# The first literal block of EXAMPLES in which a line is like REGEX; roff's \e \& \- undone.
example()	# PAGE REGEX
{
	awk -v regex="$2" '
	/^\.Sh / { on = /^\.Sh EXAMPLES$/ }
	/^\.Bd / && on { block = 1; text = ""; found = 0; next }
	/^\.Ed/ { if (block && found) { printf "%s", text; exit } block = 0 }
	block { gsub(/\\&/, ""); gsub(/\\-/, "-"); gsub(/\\e/, "\\"); text = text $0 "\n"; found = found || $0 ~ regex }' \
		"$srcdir/man/$1" |
		sed "s|--remote \([a-z]*\):|--remote $tmp/plugins/gpc_remote_\1.so:|"
}

commands()	# NAME: those in $tmp/commands
{
	run sh -e commands
	exits 0 "$1"
}

stat_has()	# CACHE REGEX
{
	gpc-inspect stat "$1" | grep -Eq -e "$2"
}

over()	# CACHE...: their daemons end, and they go
{
	for name; do
		daemon=$(gpc-inspect --json stat "$name" >out && value writer_pid)
		kill "$daemon"
		until_ok is_gone "$daemon"
		gpc-inspect rm "$name" >out 2>err
		ok $? "$name goes" err
	done
}

# ---- gpcd(8): a disk ----

example gpcd.8 '--disk ' | sed "s|/var/lib/gpc|$tmp/lib|g; s/llama /$cache /; s/64k/100/; s/1M/64k/; s/400G/40M/" >commands
is "$(grep -c -e '--disk-bytes 40M' -e "^gpcd $cache .*--ram-blocks 100 --block-bytes 64k" commands)" 2 \
	"gpcd(8) has an example with a disk"
commands "which starts"
stat_has "$cache" '^DISK +1 +[0-9]+ +1 +up +64.0 KiB'
ok $? "and keeps the tier"
over "$cache"
is "$(stat -c '%a' lib lib/* | tr '\n' ' ')" '700 600 600 ' "its folder, its key and its file are this user's alone"
commands "it starts again"
stat_has "$cache" '^DISK +1 '
ok $? "on the file that is there"
over "$cache"

# ---- and a folder ----

example gpcd.8 '--remote folder:' | sed "s|/tmp/try|$tmp/store|g; s/gpcd try /gpcd $cache /" >commands
is "$(grep -c . commands)" 3 "gpcd(8) has an example with a store"
commands "which starts"
until_ok stat_has "$cache" '^REMOTE +1 +[0-9]+ +1 +up +64.0 KiB'
ok $? "and keeps that tier"
over "$cache"

# ---- gpc-replay(1) ----

cp "$small_trace" trace.jsonl
example gpc-replay.1 '--disk-blocks' | sed "s|trace.jsonl|& --dir $shm --disk $tmp/replay.disk|" >commands
is "$(grep -c -e --disk-blocks commands)" 1 "gpc-replay(1) has an example with a disk"
commands "which finds no wrong block"
prints '^restarts of gpcd +1$' "beside a restart"

# ---- gpc-cluster(7): two machines, which are two caches here ----

redis=
test ! -e plugins/gpc_remote_redis.so || ! command -v redis-cli >/dev/null || redis=$(command -v redis-server)
if test -z "$redis"; then
	skip 10 "no redis-server, or no plugin for it"
	done_testing
fi
events="s|--events [^ ]*|--events ipc://$tmp/events-NAME|"
grep -q '^#define HAVE_EVENTS 1' "$builddir/config.h" || events='s|--events [^ ]*||'
for number in 1 2 3 4 5 6 7 8; do        # a port that nobody has
	port=$((20000 + ($$ * 8 + number) % 10000))
	redis-cli -p $port ping 2>&1 | grep -q refused && break
done
example gpc-cluster.7 '^redis-server ' |
	sed "s|/etc/gpc|$tmp/gpc|g; s/10\.0\.0\.1/127.0.0.1/; s/6379/$port/; s/200gb/64mb/" >commands
is "$(grep -c "$tmp/gpc" commands) $(grep -c "127.0.0.1" commands)" '3 1' "gpc-cluster(7) has a server"
commands "which starts"
until_ok redis-cli -p $port ping
is "$(stat -c %a gpc gpc/redis | tr '\n' ' ')" '700 600 ' "with a password"
for name in "$cache-a" "$cache-b"; do
	example gpc-cluster.7 '^gpcd ' | sed "s|/etc/gpc|$tmp/gpc|g; s/10\.0\.0\.1/127.0.0.1:$port/; $events
		s/NAME/$name/; s/gpcd llama /gpcd $name /; s/100000/100/; s/1M/64k/" >commands
	commands "a machine starts"
done
is "$("$helpers/node" "$cache-a" fill 1 50)" 50 "one computes 50 blocks"
found=$("$helpers/node" "$cache-b" load 1 50)
is "${found% *}" '50 50' "the other one loads them, with their bytes"
over "$cache-a" "$cache-b"
redis-cli -p $port -a "$(cat gpc/redis)" --no-auth-warning shutdown
ok $? "and the server ends"
done_testing
