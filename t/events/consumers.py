# SPDX-License-Identifier: Apache-2.0
"""gpcd's KV events, as those read them whom they are for: Dynamo's indexer, and msgspec with engines' structs."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import msgspec
import zmq

import gpc
import tap

BLOCK = 4
NAME = 0xFEDC_0000_0000_0000
build = sys.argv[1]
dir_ = tempfile.mkdtemp(dir="/dev/shm", prefix="gpc-check-events-")
started = []


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
                 "--ram-blocks", "256", "--free-target", "0", "--keep-tokens", "--keep-digests", "--events", EVENTS,
                 "--events-replay", REPLAY, *more)


def key(c, n):
    return c.key_import([struct.pack("<Q", n)]) if n else bytes(16)


def tokens(n):
    return [n * 16 + i for i in range(BLOCK)]


def store(c, parent, n, pool=0):
    b = c.reserve(pool, 1)
    c.publish([key(c, parent)], [key(c, n)], b, tokens=tokens(n), digests=[struct.pack(">Q", NAME + n)])
    c.release(b)
    return b


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

    def answer(self, *blocks):
        """Blocks of that prompt that it knows in VRAM, and in RAM or VRAM."""
        a = self.call("/query", {"token_ids": [t for n in blocks for t in tokens(n)], "model_name": "m"})
        one = a.get("instances", {}).get("1", {})
        return one.get("gpu", 0) // BLOCK, one.get("cpu", 0) // BLOCK

    def knows(self, want, blocks, what):
        got = [None]

        def same():
            got[0] = self.answer(*blocks)
            return got[0] == want

        tap.ok(until(same), f"Dynamo: {what}") or print(f"# got {got[0]}, want {want}", flush=True)


# ---- what engines declare: vLLM's, and SGLang's, which has fewer fields and numbers alone ----

class Event(msgspec.Struct, omit_defaults=True, tag=True, tag_field="type"):
    pass


class BlockStored(Event):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list | None = None
    group_idx: int | None = None


class BlockRemoved(Event):
    block_hashes: list[int | bytes]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class SglangStored(Event, tag="BlockStored"):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None


class SglangRemoved(Event, tag="BlockRemoved"):
    block_hashes: list[int]
    medium: str | None = None


class SglangBatch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list[SglangStored | SglangRemoved | AllBlocksCleared]
    attn_dp_rank: int | None = None


def decode(sub, want):
    """All batches up to that change; how many events of each kind."""
    decoder, kinds, last = msgspec.msgpack.Decoder(Batch), {}, -1
    sglang = msgspec.msgpack.Decoder(SglangBatch)
    encoder = msgspec.msgpack.Encoder()
    same = True
    while last < want:
        if not sub.poll(10000):
            return None, same
        _, sequence, payload = sub.recv_multipart()
        last = int.from_bytes(sequence, "big")
        batch = decoder.decode(payload)
        same = same and encoder.encode(batch) == payload
        same = same and len(sglang.decode(payload).events) == len(batch.events)
        for e in batch.events:
            kinds[type(e).__name__] = kinds.get(type(e).__name__, 0) + 1
    return kinds, same


def last_change(c):
    return c.event_read(gpc.FROM_NOW, 1)[1] - 1


def main():
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

    kinds, same = decode(sub, last_change(c))
    tap.ok(kinds and kinds.get("BlockStored", 0) >= 6 and kinds.get("BlockRemoved", 0) >= 1,
           f"msgspec: every batch has the engines' types: {kinds}")
    tap.ok(same, "and encoded again is the same bytes")
    c.close()
    second.send_signal(signal.SIGTERM)
    tap.is_(second.wait(10), 0, "gpcd ends well")


with open(f"{dir_}/log", "w+") as log:
    try:
        main()
    finally:
        for p in started:
            p.kill()
            p.wait()
        for f in os.listdir(dir_):
            os.unlink(f"{dir_}/{f}")
        os.rmdir(dir_)
tap.done()
