# SPDX-License-Identifier: Apache-2.0
"""gpcd's KV events, as Dynamo's indexer reads them."""

import json
import signal
import sys
import threading
import time
import urllib.request

import zmq

import gpc
import tap
from node import BLOCK, EVENTS, REPLAY, dir_, gpcd, main, port, start, store, tokens, until

# ---- a network that loses batches ----

class Relay(threading.Thread):
    """Between gpcd and the indexer; what a subscriber says goes to gpcd."""

    def __init__(self):
        super().__init__(daemon=True)
        self.losing, self.lost = False, 0
        self.endpoint = f"tcp://127.0.0.1:{port()}"
        self.out = zmq.Context.instance().socket(zmq.XPUB)
        self.out.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.out.bind(self.endpoint)

    def run(self):
        up = zmq.Context.instance().socket(zmq.XSUB)
        up.connect(EVENTS)
        poller = zmq.Poller()
        poller.register(up, zmq.POLLIN)
        poller.register(self.out, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self.out in ready:
                up.send(self.out.recv())
            if up in ready:
                batch = up.recv_multipart()
                self.lost += self.losing
                if not self.losing:
                    self.out.send_multipart(batch)


# ---- Dynamo's indexer ----

class Indexer:
    def __init__(self, endpoint):
        self.port = port()
        self.p = start(sys.executable, "-m", "dynamo.indexer", "--port", str(self.port), "--threads", "1",
                       DYN_LOG="warn")
        if not until(lambda: self.call("/health", None, raw=True) is not None, 30):
            raise RuntimeError("the indexer does not answer")
        self.call("/register", {"instance_id": 1, "endpoint": endpoint, "replay_endpoint": REPLAY,
                                "model_name": "m", "block_size": BLOCK})

    def call(self, path, body, raw=False):
        r = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}",
                                   data=None if body is None else json.dumps(body).encode(),
                                   headers={"content-type": "application/json"})
        with urllib.request.urlopen(r, timeout=5) as f:
            text = f.read()
        return text if raw else json.loads(text)

    def answer(self, *blocks, **more):
        """Blocks of that prompt that it knows in VRAM, and in RAM or VRAM."""
        a = self.call("/query", {"token_ids": [t for n in blocks for t in tokens(n)], "model_name": "m", **more})
        one = a.get("instances", {}).get("1", {})
        return one.get("gpu", 0) // BLOCK, one.get("cpu", 0) // BLOCK

    def knows(self, want, blocks, what, **more):
        got = [None]

        def same():
            got[0] = self.answer(*blocks, **more)
            return got[0] == want

        tap.ok(until(same), f"Dynamo: {what}") or print(f"# got {got[0]}, want {want}", flush=True)


def run():
    first = gpcd()
    c = gpc.attach("kv", dir=dir_, timeout=10)
    until(lambda: c.info().writer_pid == first.pid)
    sub = zmq.Context.instance().socket(zmq.SUB)
    sub.subscribe(b"")
    sub.connect(EVENTS)
    tap.ok(sub.poll(10000), "a subscriber has the first batch")
    for n in (1, 2, 3):
        store(c, n - 1, n)

    relay = Relay()
    relay.start()
    i = Indexer(relay.endpoint)
    i.knows((3, 3), (1, 2, 3), "one that comes late knows what there is")
    b4 = store(c, 3, 4)
    i.knows((4, 4), (1, 2, 3, 4), "and follows")
    i.knows((0, 0), (77, 78), "nothing of another prompt")
    c.drop(b4)
    i.knows((3, 3), (1, 2, 3, 4), "a removal")
    moves = c.demote(0, 1, None, 1)
    c.commit(moves)
    i.knows((2, 3), (1, 2, 3), "the last block is in RAM")
    relay.losing = True
    for n in (4, 5, 6):
        store(c, n - 1 if n > 4 else 0, n)
    tap.ok(until(lambda: relay.lost >= 3), "three batches are lost")
    relay.losing = False
    store(c, 0, 7)
    i.knows((3, 3), (4, 5, 6), "and are asked for")
    i.knows((1, 1), (7,), "the one that came is applied")
    far = c.pool_add(kind=gpc.RAM, blocks=4, space=5, flags=gpc.POOL_UNCHAINED)
    store(c, 0, 30, far)
    i.knows((0, 1), (30,), "a block of another rank")
    relay.losing, lost = True, relay.lost
    c.pool_clear(far)
    tap.ok(until(lambda: relay.lost > lost), "whose clear is lost")
    relay.losing = False
    store(c, 0, 31)
    i.knows((0, 0), (30,), "is gone when the clear was asked for")
    i.knows((3, 3), (4, 5, 6), "and those of the first rank are there")
    store(c, c.root_keep([(2, b"german")]), 20)
    store(c, 20, 21)
    i.knows((2, 2), (20, 21), "two blocks of an adapter", lora_name="german")
    i.knows((0, 0), (20, 21), "are not those of the model without it")
    store(c, c.root_keep([(3, b"tenant-a")]), 22)
    store(c, 22, 23)
    i.knows((2, 2), (22, 23), "two blocks of a salt", cache_salt="tenant-a")
    i.knows((0, 0), (22, 23), "are nobody else's")
    second = gpcd("--standby")
    time.sleep(0.5)
    first.kill()
    first.wait()
    until(lambda: c.info().writer_pid == second.pid)
    store(c, 2, 9)
    i.knows((3, 3), (1, 2, 9), "the writer was killed, a standby goes on")
    c.pool_clear(-1)
    i.knows((0, 0), (1, 2, 3), "a clear")
    store(c, 0, 11)
    i.knows((1, 1), (11,), "and what comes after")

    c.close()
    second.send_signal(signal.SIGTERM)
    tap.is_(second.wait(10), 0, "gpcd ends well")


main(run)
tap.done()
