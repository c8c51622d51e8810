#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# /healthz and /readyz of gpcd --metrics: a writer, a standby, tiers, a writer that is stopped, and a loop that does not turn.
# Tests: tools/daemon/health.c tools/daemon/http.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/metrics.sh"

run gpcd --metrics 1 nobody --dir "$shm/nowhere"
case $(cat "$tmp/err") in
*'without libmicrohttpd'*) skip_all "this gpcd has no --metrics" ;;
esac

serve()	# LABEL OPTION...: $pid, $port
{
	label=$1
	shift
	start "$label" gpcd demo --dir "$shm" --metrics 0 "$@"
	until_ok grep -q 'serving as process\|standing by' "$tmp/$label.err" || diag "$(cat "$tmp/$label.err")"
	port=$(sed -n 's|.*metrics at http://.*:\([0-9]*\)/metrics$|\1|p' "$tmp/$label.err")
}

ask()	# PORT PATH: the status, and the lines of the body; without the library of HTTP, which takes most of the time
{
	"$PYTHON" -I -S -c '
import socket, sys
try:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=300)
    s.sendall(b"GET " + sys.argv[2].encode() + b" HTTP/1.0\r\nHost: localhost\r\n\r\n")
    text = b""
    while part := s.recv(65536):
        text += part
except OSError as e:
    sys.exit(str(e))
head, _, body = text.decode().partition("\r\n\r\n")
assert "\r\ncontent-type: text/plain; charset=utf-8" in head.lower() or sys.argv[2] == "/metrics", head
print(head.split()[1], "; ".join(body.splitlines()))' "$1" "$2" 2>&1
}

answers()	# PORT PATH WANT; the pause is for a processor that others need, not for an event
{
	ask "$1" "$2" >"$tmp/answer"
	test "$(cat "$tmp/answer")" = "$3" || ! sleep 0.2
}

soon_is()	# PORT PATH WANT NAME
{
	until_ok answers "$1" "$2" "$3"
	is "$(cat "$tmp/answer")" "$3" "$4"
}

# ---- a writer, and a standby ----

serve one --block-size 16 --max-blocks 1k --ram-blocks 64 --block-bytes 4k
one=$pid one_port=$port
is "$(ask "$one_port" /healthz)" '200 alive' "a writer lives"
soon_is "$one_port" /readyz '200 ready' "and is ready"
is "$(ask "$one_port" /health)" '404 there are /metrics, /healthz and /readyz' "others are named"
serve two --standby --disk "$tmp/disk" --disk-blocks 256
two=$pid two_port=$port
is "$(ask "$two_port" /healthz)" '200 alive' "a standby lives"
is "$(ask "$two_port" /readyz)" '503 tier disk: no process keeps it' "it misses the tier that it is to keep"

# ---- a writer that is stopped, and its successor ----

stop_process "$one"
soon_is "$two_port" /readyz "503 the writer, process $one, is stopped; tier disk: no process keeps it" "a stopped writer"
kill -9 "$one"
soon_is "$two_port" /readyz '200 ready' "the standby has taken over, and has opened its tier"
is "$(ask "$two_port" /healthz)" '200 alive' "and lives"

# ---- a name that is lost ----

start worker "$helpers/hold" "$shm" demo worker 1 0 0
worker=$pid
until_ok grep -q holding "$tmp/worker.out" || bail "hold: $(cat "$tmp/worker.err")"
run gpc-inspect --dir "$shm" rm demo --force
soon_is "$two_port" /readyz "503 the cache cannot be opened: $(gpc-inspect --dir "$shm" check demo 2>&1 |
	sed 's/^gpc-inspect: //; s/; .gpc-inspect list.*//')" "a cache that lost its name"
is "$(ask "$two_port" /healthz)" '200 alive' "whose daemon lives"
run gpcd demo --dir "$shm" --block-size 16 --vram-blocks 64 --daemonize --quiet
soon_is "$two_port" /readyz '503 the cache has lost its name: no process can attach to it; tier disk: no process keeps it' \
	"another one has the name"
kill "$worker" "$two"
finish "$worker"
finish "$two"
kill "$(gpc-inspect --dir "$shm" --json list | sed -n 's/.*"writer_pid": \([0-9]*\).*/\1/p')"
until_ok gpc-inspect --dir "$shm" rm demo

# ---- a store that does not answer ----

redis=$builddir/plugins/.libs/gpc_remote_redis.so
if test -e "$redis"; then
	serve three --block-size 16 --max-peers 8 --ram-blocks 32 --block-bytes 4k --remote-blocks 256 --key-file "$tmp/key" \
		--remote "$redis:server=unix:$tmp/nobody"
	soon_is "$port" /readyz '503 tier remote: it is down' "a store that does not answer"
	is "$(ask "$port" /healthz)" '200 alive' "which no restart heals"
	kill "$pid"
	finish "$pid"
	run gpc-inspect --dir "$shm" rm demo
else
	skip 2 "the plugin for Redis is not built"
fi

# ---- memory that is being made ----

# The pipe has room for the line about the port.  The next one has none, so the maker stays where it makes memory.
line="gpcd: slow: metrics at http://127.0.0.1:12345/metrics"
maker_port=$("$PYTHON" -I -S -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkfifo "$tmp/full"
exec 3<>"$tmp/full"
dd if=/dev/zero bs=4096 count=15 2>/dev/null >&3
head -c $((4096 - ${#line} - 1)) /dev/zero >&3
gpcd slow --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --block-bytes 64k --metrics "$maker_port" \
	2>"$tmp/full" 3>&- &
maker=$!
until_ok eval 'test "$(ask "$maker_port" /healthz)" = "200 alive" || ! kill -0 $maker'
is "$(ask "$maker_port" /healthz)" '200 alive' "a process that makes memory lives"
like "$(ask "$maker_port" /readyz)" '^503 the cache cannot be opened: ' "and is not ready"
like "$(ask "$maker_port" /metrics)" 'gpc_daemon_opening\{cache="slow"\} 1' "and says so"

start waiter gpcd slow --dir "$shm" --max-peers 4 --block-size 16 --ram-blocks 8 --block-bytes 64k --metrics 0 --standby
waiter=$pid
until_ok eval 'grep -q "waiting: slow is being made" "$tmp/waiter.err" || is_gone $waiter'
like "$(cat "$tmp/waiter.err")" 'gpcd: slow: waiting: slow is being made by another process' "a standby says that it waits for it"
port=$(sed -n 's|.*metrics at http://.*:\([0-9]*\)/metrics$|\1|p' "$tmp/waiter.err")
is "$(ask "$port" /healthz)" '200 alive' "and lives"
like "$(ask "$port" /metrics)" 'gpc_daemon_opening\{cache="slow"\} 1' "and waits"
refuses 1 'slow is being made by another process.*; --standby waits until that is done' gpcd slow --dir "$shm" --max-peers 4 \
	--block-size 16 --ram-blocks 8 --block-bytes 64k
kill -USR1 "$waiter"
until_ok eval 'grep -q "a standby that waits: slow is being made" "$tmp/waiter.err" || is_gone $waiter'
is "$(grep -c 'a standby that waits: slow is being made' "$tmp/waiter.err")" 1 "asked, it says so again"
is "$(grep -c ': waiting: ' "$tmp/waiter.err")" 1 "unasked it says so once"
kill -9 "$maker"
finish "$maker"
exec 3>&-
soon_is "$port" /readyz '200 ready' "it makes the memory of a maker that was killed"
kill "$waiter"
finish "$waiter"
run gpc-inspect --dir "$shm" rm slow

serve three --block-size 16 --vram-blocks 32
three=$pid three_port=$port
# ---- a loop that does not turn ----

start holder "$PYTHON" -c '
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
SEIZE, INTERRUPT = 0x4206, 0x4207
for request in SEIZE, INTERRUPT:
    if libc.ptrace(request, pid, None, None) < 0:
        sys.exit("ptrace: " + os.strerror(ctypes.get_errno()))
os.waitpid(pid, 0x40000000)
print("held", flush=True)
signal.pause()' "$three"
holder=$pid
until_ok sh -c "grep -q held '$tmp/holder.out' || grep -q ptrace '$tmp/holder.err'"
if grep -q held "$tmp/holder.out"; then
	late()
	{
		ask "$three_port" /healthz >"$tmp/late"
		grep -q "^503 the loop of process $three has not turned for [0-9]* s\$" "$tmp/late" || ! sleep 0.2
	}
	until_ok late
	ok $? "a loop that does not turn" "$tmp/late"
	like "$(ask "$three_port" /readyz)" "^503 the loop of process $three has not turned for [0-9]+ s" "is not ready, too"
	kill -9 "$holder"
	finish "$holder"
	soon_is "$three_port" /healthz '200 alive' "it goes on"
else
	skip 3 "$(cat "$tmp/holder.err")"
fi
kill "$three"
finish "$three"
is "$status" 0 "and ends well"

done_testing
