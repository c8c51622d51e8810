#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd --metrics beside clients that send byte by byte: as many as there may be keep no scrape out, and each
# is closed in the end; one address does not push out another's.
# Tests: tools/daemon/http.c

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/metrics.sh"

run gpcd --metrics 1 nobody --dir "$shm/nowhere"
case $(cat "$tmp/err") in
*'without libmicrohttpd'*) skip_all "this gpcd has no --metrics" ;;
esac

start one gpcd demo --dir "$shm" --block-size 16 --vram-blocks 64 --metrics 0
one=$pid
until_ok grep -q 'serving as process' "$tmp/one.err"
port=$(sed -n 's|.*metrics at http://.*:\([0-9]*\)/metrics$|\1|p' "$tmp/one.err")

cat >"$tmp/slow.py" <<'END'
import select
import socket
import sys
import threading
import time

port, what = int(sys.argv[1]), sys.argv[2]
BOUND = 64
ASK = b'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'


def connect(address):
    s = socket.create_connection(('127.0.0.1', port), timeout=20, source_address=(address, 0))
    return s


def begin(address='127.0.0.1'):     # a header that never ends
    s = connect(address)
    s.sendall(ASK[:-2] + b'X: ')
    return s


def ask(s):                         # one whole answer
    s.sendall(ASK)
    got = b''
    while b'\r\n\r\n' not in got:
        chunk = s.recv(65536)
        if not chunk:
            raise OSError('closed')
        got += chunk
    head, body = got.split(b'\r\n\r\n', 1)
    assert head.startswith(b'HTTP/1.1 200'), head
    n = int([x for x in head.split(b'\r\n') if x.lower().startswith(b'content-length:')][0].split(b':')[1])
    while len(body) < n:
        body += s.recv(65536)


def scrape(when):
    try:
        s = connect('127.0.0.1')
        ask(s)
        s.close()
    except OSError as e:
        sys.exit(f'{when}: {e}')


def is_closed(s):
    try:
        while select.select([s], [], [], 0)[0]:
            if not s.recv(65536):
                return True
        return False
    except OSError:
        return True


class Dribble(threading.Thread):    # a byte to each, five times a second
    def __init__(self, slow):
        super().__init__(daemon=True)
        self.slow, self.stop = slow, False
        self.start()

    def run(self):
        while not self.stop:
            for s in self.slow:
                try:
                    s.sendall(b'a')
                except OSError:
                    pass
            time.sleep(0.2)


if what == 'full':
    slow = [begin() for _ in range(BOUND)]
    d = Dribble(slow)
    for i in range(5):
        scrape(f'scrape {i} beside {BOUND} slow ones')
    slow += [begin() for _ in range(3 * BOUND)]
    scrape(f'a scrape beside {4 * BOUND} slow ones')
    d.stop = True
elif what == 'deadline':
    slow = [begin() for _ in range(BOUND - 1)]
    d = Dribble(slow)
    kept = connect('127.0.0.1')
    end = time.monotonic() + 60
    while not all([is_closed(s) for s in slow]) and time.monotonic() < end:
        ask(kept)                   # who has whole answers is not closed meanwhile
        time.sleep(0.5)
    n = sum(not is_closed(s) for s in slow)
    if n:
        print(f'{n} slow ones are open after 60 s')
    ask(kept)
else:
    kept = begin()
    slow = [begin('127.0.0.2') for _ in range(2 * BOUND)]
    kept.sendall(b'a\r\n\r\n')
    if not kept.recv(20).startswith(b'HTTP/1.1 200'):
        print('another address pushed it out')
    end = time.monotonic() + 20
    while not is_closed(slow[0]):   # it was first, so it goes first
        if time.monotonic() > end:
            sys.exit('no slow one of the address gave way')
        time.sleep(0.01)
    scrape('a scrape beside the slow ones of another address')
END

"$PYTHON" "$tmp/slow.py" "$port" full >"$tmp/out" 2>&1
is "$(cat "$tmp/out")" '' "sixty-four slow connections keep no scrape out, nor do more"
is "$(grep -c 'slow connections were closed, 1 so far: a request has 10 seconds, and 64 connections' "$tmp/one.err")" 1 \
	"gpcd says so"
"$PYTHON" "$tmp/slow.py" "$port" address >"$tmp/out" 2>&1
is "$(cat "$tmp/out")" '' "nor do those of one address close that of another"
"$PYTHON" "$tmp/slow.py" "$port" deadline >"$tmp/out" 2>&1
is "$(cat "$tmp/out")" '' "each is closed when its time is over, whatever it sends, and no other"
is "$(grep -c 'slow connections were closed' "$tmp/one.err")" 1 "gpcd says it once a minute at most"
kill "$one"
finish "$one"
is "$status" 0 "gpcd ends well"
done_testing
