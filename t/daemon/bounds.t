#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The memory and the descriptors of gpcd have bounds, part by part, and its metrics tell them: each part of the table in
# tools/daemon/own.c that no other test drives to its bound is driven there.
# Tests: tools/daemon/own.c tools/daemon/config.c tools/daemon/http.c tools/common/metrics.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/metrics.sh"

run gpcd --metrics 1 nobody --dir "$shm/nowhere"
case $(cat "$tmp/err") in
*'without libmicrohttpd'*) skip_all "this gpcd has no --metrics" ;;
esac
events="--events ipc://$tmp/events --events-memory 1M --events-replay ipc://$tmp/replay"
case $(gpcd --events ipc:///nowhere/s nobody --dir "$shm/nowhere" 2>&1) in
*'without libzmq'*) events= ;;
esac
NODE_DIR=$shm
export NODE_DIR
RAM=20000 DISK=10000 MOST=31000

port_of()	# LABEL
{
	sed -n 's|.*metrics at http://.*:\([0-9]*\)/metrics$|\1|p' "$tmp/$1.err"
}

serve()	# LABEL COMMAND...: until it serves; $pid, $port
{
	label=$1
	shift
	start "$label" "$@"
	until_ok grep -q 'serving as process' "$tmp/$label.err" || bail "$(cat "$tmp/$label.err")"
	port=$(port_of "$label")
}

look()	# a page
{
	"$PYTHON" -c "
import sys, urllib.request
print(urllib.request.urlopen('http://127.0.0.1:$port/metrics', timeout=60).read().decode())" >"$tmp/page"
}

now()	# METRIC [LABEL]: of the last look
{
	sed -n "s/^gpc_$1{[^}]*$2[^}]*} //p" "$tmp/page"
}

fill()	# FIRST LAST: 1000 blocks of each prompt
{
	for prompt in $(seq "$1" "$2"); do
		"$helpers/node" all fill "$prompt" 1000 >"$tmp/out" 2>"$tmp/err" || bail "$(cat "$tmp/err")"
	done
}

at_most()	# VALUE BOUND NAME
{
	test -n "$1" && test "$1" -le "$2"
	ok $? "$3: $1 of $2"
}

# ---- a cache that is full, with all that a daemon can have ----

# shellcheck disable=SC2086
serve all gpcd all --dir "$shm" --block-size 16 --max-peers 16 --ram-blocks $RAM --block-bytes 512 --max-blocks $MOST \
	--disk "$tmp/disk" --disk-blocks $DISK --metrics 0 $events
look
empty=$(now daemon_memory_bytes private)
at_most "$empty" $((8 << 20)) "an empty cache: private memory"
fill 1 40
look
is "$(now pool_live_blocks 'tier=.disk')" $DISK "the tier is full"
full=$(now daemon_memory_bytes private)
files=$(now daemon_descriptors)
# tables of the writer, of blocks that subscribers know, of the tier; what malloc has beside them
at_most $((full - empty)) $(((60 + 288 + 64) * MOST + 132 * DISK + (8 << 20))) \
	"a full one: private memory beside that"
if test -n "$events"; then
	test "$(now events_known_bytes)" -gt $((RAM * 70))
	ok $? "blocks that subscribers know"
	at_most "$(now events_known_bytes)" $((288 * MOST)) "have a bound"
else
	skip 2 "this gpcd has no --events"
fi
# more may be on its way at once than ever before: then it is the next 60000 that add nothing
first=41
for round in 1 2 3 4; do
	fill $first $((first + 59))
	look
	more=$((($(now daemon_memory_bytes private) - full) / 1024))
	test $more -gt 2048 || break
	full=$(now daemon_memory_bytes private)
	first=$((first + 60))
done
at_most $more 2048 "KiB more after 60000 other blocks"
at_most "$(now daemon_descriptors)" $((files + 16)) "descriptors, with those of a moment"
at_most "$files" "$(now daemon_descriptors_limit)" "of those that it may have"
at_most "$(now daemon_threads)" 60 "threads"

# ---- who scrapes ----

cat >"$tmp/scrapers.py" <<'END'
import socket, sys, time, urllib.request
port = int(sys.argv[1])


def page():
    text = urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=60).read().decode()
    return {l.split('{')[0]: int(l.split()[-1]) for l in text.splitlines() if l.startswith(('gpc_scrape', 'gpc_daemon_desc'))}


before = page()['gpc_daemon_descriptors']
there = []
for i in range(300):
    there.append(socket.create_connection(('127.0.0.1', port)))
    there[-1].sendall(b'GET /metrics HTTP/1.1\r\nX: ')
seen = page()
while seen['gpc_scrape_closed_total'] < 200:    # a page may be one of a moment ago
    seen = page()
print(seen['gpc_scrape_connections'], seen['gpc_daemon_descriptors'] - before, seen['gpc_scrape_closed_total'] < 300)
for s in there:
    s.close()
while page()['gpc_daemon_descriptors'] > before + 2:
    time.sleep(0.1)
print('gone')
END
"$PYTHON" "$tmp/scrapers.py" "$port" >"$tmp/out" 2>"$tmp/err"
read -r there more closed <"$tmp/out"
at_most "$there" 64 "300 that scrape at once: connections"
at_most "$more" 128 "descriptors more"
is "$closed" True "and how many were closed is told"
is "$(tail -n 1 "$tmp/out")" gone "all descriptors come back" || diag "$(cat "$tmp/err")"
"$helpers/crowd" "$shm" all 12 >"$tmp/crowd.out" 2>"$tmp/crowd.err" &
crowd=$!
until_ok grep -q holding "$tmp/crowd.out"
look
look
test "$(now scrape_page_bytes)" -gt 1000
ok $? "the length of a page is told"
at_most "$(now scrape_page_bytes)" $((500 << 10)) "and has a bound"
kill "$crowd"
kill "$pid"
finish "$pid"
run gpc-inspect --dir "$shm" rm all --force

# ---- options that are read again ----

conf=$tmp/o.conf
write()	# LINE...
{
	printf '[gpc]\nname = conf\ndir = %s\n[gpcd]\nblock-size = 16\nvram-blocks = 64\nmetrics = 127.0.0.1:0\n' "$shm" >"$tmp/new"
	printf '%s\n' "$@" >>"$tmp/new"
	mv "$tmp/new" "$conf"
}

reread()	# TIMES
{
	for i in $(seq "$1"); do
		asked=$(($(grep -c 'SIGHUP: the options\|SIGHUP: nothing' "$tmp/conf.err") + 1))
		kill -HUP "$pid"
		until_ok sh -c 'test "$(grep -c "SIGHUP: the options\|SIGHUP: nothing" "$1")" -ge "$2"' sh "$tmp/conf.err" "$asked"
	done
}

# of no use to gpcd, and larger than what is
more=$(printf '[vllm]\nnote = 1\n'; yes " $(printf '%0190d' 0)" | head -n 500)
write 'log-level = info' "$more"
serve conf setsid sh -c 'ulimit -S -n 64; exec "$@"' sh gpcd --config "$conf"
reread 5
look
hard=$(ulimit -H -n)
test "$hard" != unlimited && test "$hard" -le 65536 || hard=65536
is "$(now daemon_descriptors_limit)" "$hard" "a soft limit of descriptors is raised, as systemd has one of 1024"
is "$(now daemon_options_bytes | grep -c '[1-9]')" 1 "values of options that are kept are told"
before=$(now daemon_options_bytes)
private=$(now daemon_memory_bytes private)
reread 100
look
is "$(now daemon_options_bytes)" "$before" "the same file a hundred times more: no value is kept twice"
at_most $((($(now daemon_memory_bytes private) - private) / 1024)) 2048 "KiB of memory more"
# a value of 400 KiB, which goes on line after line, and is another one each time
for i in 1 2 3 4 5 6; do
	write "pidfile = /$i" "$(yes " $(printf '%0190d' "$i")" | head -n 2100)"
	reread 1
done
look
at_most "$(now daemon_options_bytes)" $((2 << 20)) "other values each time: bytes"
grep -q 'SIGHUP: nothing is changed: .*values of files have more than 2097152 bytes so far: a restart forgets' "$tmp/conf.err"
ok $? "one more is refused, with the remedy" "$tmp/conf.err"
write 'log-level = debug' "$more"
reread 1
grep -q 'SIGHUP: --log-level is debug' "$tmp/conf.err" || grep -q "values of files" "$tmp/conf.err"
ok $? "it goes on"
kill "$pid"
finish "$pid"
yes '; a line of no use' | head -n 60000 >"$conf"
refuses 2 'the file has more than 1048576 bytes' gpcd --config "$conf" conf --dir "$shm"

# ---- a store ----

# Debian's redis-tools has the server under another name
if command -v redis-server >/dev/null && test -e "$builddir/plugins/.libs/gpc_remote_redis.so"; then
	start redis redis-server --port 0 --unixsocket "$tmp/redis.sock" --save '' --appendonly no
	redis=$pid
	until_ok test -S "$tmp/redis.sock"
	serve all gpcd all --dir "$shm" --block-size 16 --max-peers 16 --ram-blocks 2000 --block-bytes 512 --metrics 0 \
		--remote "$builddir/plugins/.libs/gpc_remote_redis.so:server=$tmp/redis.sock" --remote-blocks 4000 --key-file "$tmp/key"
	fill 1 6
	for prompt in 1 2 3 4 5 6; do
		"$helpers/node" all load $prompt 1000 >"$tmp/out" 2>&1 &
	done
	wait $! 2>/dev/null
	look
	files=$(now daemon_descriptors)
	at_most "$files" 80 "a store in one Redis, from which six load at once: descriptors"
	fill 7 12
	look
	at_most "$(now daemon_descriptors)" $((files + 18)) "6000 blocks later"
	kill "$pid" "$redis"
	finish "$pid"
else
	skip 2 "there is no redis-server, or no plugin for it"
fi

# ---- few descriptors ----

serve few sh -c 'ulimit -n 80; exec "$@"' sh gpcd few --dir "$shm" --block-size 16 --vram-blocks 64 --metrics 0 $events
if test -n "$events"; then
	cat >"$tmp/strangers.py" <<'END'
import socket, sys
there = []
for i in range(200):
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    try:
        s.connect(sys.argv[1])
        there.append(s)
    except OSError:
        pass
print('there', flush=True)
sys.stdin.read()
END
	mkfifo "$tmp/hold"
	"$PYTHON" "$tmp/strangers.py" "$tmp/events" >"$tmp/strangers.out" 2>&1 <"$tmp/hold" &
	exec 4>"$tmp/hold"
	until_ok grep -q there "$tmp/strangers.out"
	look
	at_most "$(now daemon_descriptors)" "$(now daemon_descriptors_limit)" "beside 200 strangers: descriptors"
	is "$(now daemon_descriptors_limit)" 80 "of those that the system lets it have"
	exec 4>&-
else
	skip 2 "this gpcd has no --events"
fi
run gpc-inspect --dir "$shm" ping few
exits 0 "the writer serves"

done_testing
