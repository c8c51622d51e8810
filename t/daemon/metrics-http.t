#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd --metrics: scrapes of a writer and of a standby, what is no scrape, many at once, and slow ones.
# Tests: tools/daemon/http.c tools/daemon/no_http.c tools/daemon/endpoint.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/metrics.sh"

run gpcd --metrics 1 nobody --dir "$shm/nowhere"
case $(cat "$tmp/err") in
*'without libmicrohttpd'*) skip_all "this gpcd has no --metrics" ;;
esac

port_of()	# LABEL: where that daemon listens
{
	sed -n 's|.*metrics at http://.*:\([0-9]*\)/metrics$|\1|p' "$tmp/$1.err"
}

serve()	# LABEL OPTION...: $pid, $port
{
	label=$1
	shift
	start "$label" gpcd demo --dir "$shm" "$@"
	until_ok grep -q 'serving as process\|standing by' "$tmp/$label.err"
	port=$(port_of "$label")
}

get()	# PORT [HOST]: $tmp/scrape
{
	"$PYTHON" -c '
import sys, urllib.request
r = urllib.request.urlopen(f"http://{sys.argv[2]}:{sys.argv[1]}/metrics", timeout=300)
assert r.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", r.headers["Content-Type"]
sys.stdout.buffer.write(r.read())' "$1" "${2:-127.0.0.1}" >"$tmp/scrape" 2>"$tmp/get"
}

# ---- the command line ----

for bad in '' port 65536 -1 127.0.0.1: localhost:1 ::1:9400 '[127.0.0.1]:1' 1.2.3:4 '*:9400'; do
	refuses 2 'is not \[ADDR:\]PORT' gpcd demo --dir "$shm" --metrics "$bad"
done
refuses 2 'exclude each other' gpcd demo --dir "$shm" --metrics 1 --keep --device host --vram-blocks 1 --block-bytes 1

for everywhere in 0.0.0.0 '[::]' '[0::0]' '[::ffff:0.0.0.0]'; do
	refuses 2 "--metrics: .*:9400 is open to every network: name one address, .*, or add --metrics-public" \
		gpcd demo --dir "$shm" --metrics "$everywhere:9400"
done
refuses 2 '--metrics-public: --metrics is missing' gpcd demo --dir "$shm" --metrics-public
refuses 1 'nowhere: No such' gpcd demo --dir "$shm/nowhere" --metrics-public --metrics 0.0.0.0:9400
refuses 1 'nowhere: No such' gpcd demo --dir "$shm/nowhere" --metrics 127.0.0.2:9400

# ---- a writer ----

serve one --block-size 16 --vram-blocks 64 --metrics 0
one=$pid one_port=$port
get "$one_port"
ok $? "a scrape" "$tmp/get"
parse "$tmp/scrape"
ok $? "is well-formed" "$tmp/parse"
like "$(grep gpc_daemon_serving "$tmp/scrape.samples")" '^gpc_daemon_serving{cache="demo"} 1$' "it serves"
promtool_takes "promtool has nothing to say" check metrics <"$tmp/scrape"
start_of()	# when the writer got its seat, as the last scrape tells it
{
	sed -n 's/^gpc_writer_start_time_seconds.* //p' "$tmp/scrape"
}
first=$(start_of)
get "$one_port"
is "$(start_of)" "$first" "the next scrape tells the same start of the writer"
gpc-inspect metrics --list | cut -f1 | sort >"$tmp/names"
sed -n 's/^# TYPE \(gpc_[a-z_]*\) .*/\1/p' "$tmp/scrape" | sort | diff - "$tmp/names" >"$tmp/diff"
ok $? "it has every metric of the list" "$tmp/diff"
get "$one_port" '[::1]'
is $? 1 "only on the loopback address of IPv4"
refuses 1 "cannot listen on 127.0.0.1:$one_port: Address already in use" \
	gpcd two --dir "$shm" --block-size 16 --vram-blocks 8 --metrics "127.0.0.1:$one_port"
refuses 1 "cannot listen on 127.0.0.1:$one_port: Address already in use" \
	gpcd two --dir "$shm" --block-size 16 --vram-blocks 8 --metrics "$one_port"
run gpc-inspect --dir "$shm" stat two
is "$status" 1 "and leaves no cache behind"

# ---- what is no scrape ----

"$PYTHON" - "$one_port" >"$tmp/out" 2>&1 <<'END'
import errno
import socket
import sys

port = int(sys.argv[1])


def ask(data, half=False):
    s = socket.create_connection(('127.0.0.1', port), timeout=300)
    s.sendall(data)
    got = b''
    try:
        if half:
            s.shutdown(socket.SHUT_WR)
        while chunk := s.recv(65536):
            got += chunk
    except OSError as e:            # it has been closed already
        if e.errno not in (errno.ECONNRESET, errno.ENOTCONN):
            raise
    s.close()
    return got


def status(got):
    return got.split(b'\r\n')[0].split(b' ')[1].decode() if got else ''


def is_(got, want, what):
    if got != want:
        print(f'{what}: {got!r}, {want!r} is wanted')


END = b'Host: x\r\nConnection: close\r\n\r\n'
get = ask(b'GET /metrics HTTP/1.1\r\n' + END)
is_(status(get), '200', 'GET')
head = ask(b'HEAD /metrics HTTP/1.1\r\n' + END)
is_(status(head), '200', 'HEAD')
is_(head.split(b'\r\n\r\n')[1], b'', 'the body of HEAD')
is_(b'Content-Length: ' in head, True, 'the length of HEAD')
is_(status(ask(b'GET /metrics?x=1 HTTP/1.1\r\n' + END)), '200', 'a query')
for path in b'/', b'/metrics/', b'/Metrics', b'/../metrics', b'/%00', b'/' + b'x' * 2000:
    is_(status(ask(b'GET ' + path + b' HTTP/1.1\r\n' + END)), '404', f'{path[:20]}')
for method in b'POST', b'PUT', b'DELETE', b'PATCH', b'OPTIONS', b'BREW':
    got = ask(method + b' /metrics HTTP/1.1\r\nContent-Length: 4\r\n' + END + b'body')
    is_(status(got), '405', f'{method}')
    is_(b'\r\nAllow: GET, HEAD\r\n' in got, True, f'{method}: what is allowed')
# whatever the answer is, if there is one: an error
for garbage in (b'\0' * 1000, b'GET\r\n\r\n', b'GET /metrics\r\n\r\n', b'\xff\xfe' * 500 + b'\r\n\r\n', b'\r\n' * 100,
                b'GET /metrics HTTP/9.9\r\n\r\n', b'x' * 100000, b'GET /metrics HTTP/1.1\r\n' + b'a: b\r\n' * 20000,
                b'POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n',
                b'POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n'):
    try:
        got = ask(garbage, half=True)
    except BrokenPipeError:
        continue
    if got.startswith(b'HTTP/1.') and status(got) == '200' and b'HTTP/1.1\r\n\r\n' not in garbage and \
            not garbage.startswith((b'GET /metrics\r', b'GET /metrics HTTP/9')):
        print(f'{garbage[:30]!r}: 200')
is_(status(ask(b'GET /metrics HTTP/1.1\r\n' + END)), '200', 'a scrape behind all that')
END
is "$(cat "$tmp/out")" '' "each has the answer that it should have"

# ---- many, and slow ones ----

"$PYTHON" - "$one_port" >"$tmp/out" 2>&1 <<'END'
import socket
import sys
import threading
import time

port = int(sys.argv[1])
good = []


def scrape():
    for _ in range(50):
        try:
            s = socket.create_connection(('127.0.0.1', port), timeout=300)
            s.sendall(b'GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
            got = b''
            while chunk := s.recv(65536):
                got += chunk
            s.close()
        except OSError:
            got = b''
        if got.startswith(b'HTTP/1.1 200') and got.endswith(b'\n'):
            good.append(1)
            return
        time.sleep(0.1)             # there is no room for more connections now


threads = [threading.Thread(target=scrape) for _ in range(100)]
for t in threads:
    t.start()
for t in threads:
    t.join()
if len(good) != 100:
    print(f'{len(good)} of 100 at once')

# slow ones: a header that never ends; others are answered, and theirs are closed in the end
slow = []
for _ in range(40):
    s = socket.create_connection(('127.0.0.1', port), timeout=300)
    s.sendall(b'GET /metrics HTTP/1.1\r\nHost: ')
    slow.append(s)
good.clear()
began = time.monotonic()
scrape()
if not good or time.monotonic() - began > 5:
    print(f'a scrape beside slow ones took {time.monotonic() - began:.1f} s')
for s in slow:
    s.settimeout(300)
    try:
        while s.recv(1000):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        print('a slow one is open after 30 s')
        break
END
is "$(cat "$tmp/out")" '' "a hundred at once, and forty that are slow"
run gpc-inspect --dir "$shm" check demo
exits 0 "the cache is as it was"

# ---- a standby ----

serve two --standby --metrics '[::1]:0'
two=$pid two_port=$port
if test -z "$two_port"; then
	skip 3 "this machine has no IPv6"
	kill "$two"
	finish "$two"
	serve two --standby --metrics 0
	two=$pid two_port=$port
	host=127.0.0.1
else
	host='[::1]'
	get "$two_port" "$host"
	ok $? "a standby answers, by IPv6" "$tmp/get"
	parse "$tmp/scrape"
	like "$(grep gpc_daemon_serving "$tmp/scrape.samples")" '^gpc_daemon_serving{cache="demo"} 0$' "it stands by"
	like "$(grep gpc_writer_up "$tmp/scrape.samples")" '^gpc_writer_up{cache="demo"} 1$' "beside a writer"
fi
cp "$tmp/scrape" "$tmp/before"
kill -9 "$one"
finish "$one"
until_ok grep -q 'serving as process' "$tmp/two.err"
until_ok sh -c 'sleep 0.1; "$0" -c "
import sys, urllib.request
t = urllib.request.urlopen(sys.argv[1], timeout=300).read()
sys.exit(b\"gpc_daemon_serving{cache=\\\"demo\\\"} 1\" not in t)" "$1"' "$PYTHON" "http://$host:$two_port/metrics"
ok $? "it serves when the writer has died"
get "$two_port" "$host"
parse "$tmp/scrape" "$tmp/before"
ok $? "and no counter has fallen" "$tmp/parse"

# ---- a real server ----

if command -v prometheus >/dev/null; then
	web=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	cat >"$tmp/prometheus.yml" <<END
global: {scrape_interval: 1s, scrape_timeout: 1s}
rule_files: ["$srcdir/tools/dashboard/gpc.rules.yml"]
scrape_configs:
  - job_name: gpc
    static_configs: [{targets: ["$host:$two_port"]}]
END
	start prometheus prometheus --config.file="$tmp/prometheus.yml" --storage.tsdb.path="$tmp/tsdb" \
		--web.listen-address="127.0.0.1:$web"
	prometheus=$pid
	until_ok sh -c 'sleep 0.2; "$0" -c "
import json, sys, urllib.request
u = sys.argv[1] + \"/api/v1/query?query=gpc_daemon_serving\"
r = json.load(urllib.request.urlopen(u, timeout=300))[\"data\"][\"result\"]
sys.exit(not (r and r[0][\"value\"][1] == \"1\"))" "$1"' "$PYTHON" "http://127.0.0.1:$web" 2>/dev/null
	ok $? "a Prometheus scrapes it" "$tmp/prometheus.err"
	kill "$prometheus"
	finish "$prometheus"
else
	skip 1 "there is no prometheus"
fi

# ---- the end ----

"$PYTHON" -c '
import socket, sys, time
host = sys.argv[1].strip("[]")
s = socket.create_connection((host, int(sys.argv[2])))
s.sendall(b"GET /metrics HTTP/1.1\r\n")
print("open", flush=True)
s.recv(1000)' "$host" "$two_port" >"$tmp/open" 2>&1 &
until_ok grep -q open "$tmp/open"
kill "$two"
finish "$two"
is "$status" 0 "SIGTERM ends it while a request is open"

done_testing
