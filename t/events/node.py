# SPDX-License-Identifier: Apache-2.0
"""A node for the checks of KV events: gpcd in a folder of its own, and what a worker does."""

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error

import gpc

BLOCK = 4
NAME = 0xFEDC_0000_0000_0000
build = sys.argv[1]
dir_ = tempfile.mkdtemp(dir="/dev/shm", prefix="gpc-check-events-")
started = []
log = open(f"{dir_}/log", "w+")


def start(*argv, **env):
    p = subprocess.Popen(argv, env=dict(os.environ, **env), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    started.append(p)
    return p


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(what, seconds=15):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if what():
                return True
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.02)
    return False


# ---- gpcd and a worker ----

EVENTS, REPLAY = f"tcp://127.0.0.1:{port()}", f"tcp://127.0.0.1:{port()}"


def gpcd(*more):
    return start(f"{build}/tools/gpcd", "kv", "--dir", dir_, "--block-size", str(BLOCK), "--vram-blocks", "256",
                 "--ram-blocks", "256", "--max-blocks", "800", "--free-target", "0", "--keep-tokens", "--keep-digests", "--events", EVENTS,
                 "--events-replay", REPLAY, *more)


def key(c, n):
    return c.key_import([struct.pack("<Q", n)]) if n else bytes(16)


def tokens(n):
    return [n * 16 + i for i in range(BLOCK)]


def store(c, parent, n, pool=0):
    """parent: a number, 0 for none, or a root key."""
    b = c.reserve(pool, 1)
    c.publish([parent if isinstance(parent, bytes) else key(c, parent)], [key(c, n)], b, tokens=tokens(n), digests=[struct.pack(">Q", NAME + n)])
    c.release(b)
    return b


def main(run):
    """run(), and whatever comes of it, nothing is left."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        run()
    finally:
        for p in started:
            p.kill()
            p.wait()
        log.close()
        for f in os.listdir(dir_):
            os.unlink(f"{dir_}/{f}")
        os.rmdir(dir_)


def last_change(c):
    return c.event_read(gpc.FROM_NOW, 1)[1] - 1
