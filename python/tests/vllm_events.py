# SPDX-License-Identifier: Apache-2.0
"""What gpcd publishes of an engine with gpc.vllm: the engine's hashes with tokens, adapters and salts, by
gpc_keep_tokens.  The subscriber is made of a socket: nothing has to be installed."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

EXTRA = {"gpc_name": name, "gpc_weights": "w1", "gpc_bytes": (64 + 40) * 4096, "gpc_free_target": -1,
         "gpc_stock": 0, "gpc_keep_tokens": True, "gpc_serve": False}
_made.add(name)
tools = os.path.join(os.environ["PYTHONPATH"].split(":")[0], "..", "tools")


# ---- a subscriber: ZMTP 3.0 ----

class Subscriber:
    def __init__(self, path):
        self.s, self.left = socket.socket(socket.AF_UNIX), b""
        self.s.settimeout(300)
        self._connect(path, time.monotonic() + 60)
        self.s.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        self._take(64)
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"SUB"
        self.s.sendall(bytes([4, len(ready)]) + ready)
        self._frame()
        self.s.sendall(b"\x00\x01\x01")          # subscribe to all

    def _connect(self, path, end):
        """The socket has its name before anybody listens there."""
        while True:
            try:
                return self.s.connect(path)
            except (ConnectionRefusedError, FileNotFoundError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _take(self, n):
        while len(self.left) < n:
            self.left += self.s.recv(65536) or sys.exit("Bail out! gpcd has hung up")
        got, self.left = self.left[:n], self.left[n:]
        return got

    def _frame(self):
        flags = self._take(1)[0]
        n = struct.unpack(">Q", self._take(8))[0] if flags & 2 else self._take(1)[0]
        return flags & 1, self._take(n)

    def batch(self):
        """Sequence, rank, events."""
        frames, more = [], 1
        while more:
            more, frame = self._frame()
            frames.append(frame)
        (_, events, rank), rest = unpack(frames[2])
        assert rest == b"" and len(frames) == 3
        return int.from_bytes(frames[1], "big"), rank, events


def unpack(b):
    """The kinds of MessagePack that batches have: a value, and what is behind it."""
    t, b = b[0], b[1:]
    if t < 0x80:
        return t, b
    if t == 0xc0:
        return None, b
    if t == 0xcb:
        return struct.unpack(">d", b[:8])[0], b[8:]
    if 0xcc <= t <= 0xcf:
        n = 1 << (t - 0xcc)
        return int.from_bytes(b[:n], "big"), b[n:]
    if 0xa0 <= t < 0xc0 or t == 0xd9:
        n, b = (t & 31, b) if t < 0xc0 else (b[0], b[1:])
        return b[:n].decode(), b[n:]
    if 0x90 <= t < 0xa0 or t == 0xdc:
        n, b = (t & 15, b) if t < 0xc0 else (int.from_bytes(b[:2], "big"), b[2:])
        out = []
        for _ in range(n):
            v, b = unpack(b)
            out.append(v)
        return out, b
    assert 0x80 <= t < 0x90, f"type {t:#x}"
    out = {}
    for _ in range(t & 15):
        k, b = unpack(b)
        out[k], b = unpack(b)
    return out, b


# ---- an engine ----

def engine(**more):
    m = GPCOffloadingSpec(fake.config({**EXTRA, **more})).get_manager()
    group = fake.ns(group_idx=0, sliding_window_size_in_chunks=None)
    half = fake.ns(manager=m, config=fake.ns(kv_group_configs=[group], blocks_per_chunk=1), _req_status={})
    GPCConnector(None, "scheduler", fake.ns(half=half, kv_cache_groups=[group]))
    return m, half


def request(half, text, chunks, first, **more):
    ctx, keys = fake.prompt(text, chunks)
    req = fake.ns(**{"all_token_ids": list(range(first, first + 16 * chunks + 5)), "lora_request": None,
                     "cache_salt": None, "prompt_embeds": None, **more})
    half._req_status[text] = fake.ns(req=req)
    return ctx, keys


def store(m, ctx, keys):
    out = fake.offer(m, keys, ctx)
    m.complete_store(set(out.keys_to_store), ctx)
    fake.settle(m)
    m.publisher.collect(60)
    m.on_schedule_end(None)
    m.c.ticket_wait()


def hash_of(key):
    return int.from_bytes(key[24:32], "big")


def want(keys, at, first, **more):
    e = {"type": "BlockStored", "block_hashes": [hash_of(keys[at])],
         "parent_block_hash": hash_of(keys[at - 1]) if at else None,
         "token_ids": list(range(first + 16 * at, first + 16 * at + 16)), "block_size": 16, "lora_id": None,
         "medium": "CPU", "lora_name": None}
    e.update(more)
    return e


def hear(sub, n):
    """The events of the next n changes that are not empty, and of none that was heard already."""
    out = []
    while len(out) < n:
        sequence, rank, events = sub.batch()
        if sequence > hear.last:
            hear.last = sequence
            out += events
    return out


hear.last = 0

m, half = engine()
is_((m.c.info().keep_tokens, m.c.info().writer_pid), (1, 0), "the engine makes a cache that keeps tokens, and serves none")
with tempfile.TemporaryDirectory(prefix="gpc-t-") as folder:
    path = f"{folder}/events"
    gpcd = subprocess.Popen([f"{tools}/gpcd", name, "--events", f"ipc://{path}", "--quiet"])
    try:
        sub = Subscriber(path)
        hear.last = sub.batch()[0]
        ctx, keys = request(half, "plain", 3, 1000)
        store(m, ctx, keys)
        is_(hear(sub, 3), [want(keys, i, 1000) for i in range(3)], "hashes, parents and tokens of three chunks")
        ctx, keys = request(half, "adapted", 2, 70000, lora_request=fake.ns(lora_name="german"), cache_salt="tenant-a")
        store(m, ctx, keys)
        is_(hear(sub, 2), [want(keys, 0, 70000, lora_name="german", extra_keys=[["german", "tenant-a"]], cache_salt="tenant-a"),
                           want(keys, 1, 70000, lora_name="german", extra_keys=[["german"]], cache_salt="tenant-a")],
            "adapter and salt")
        ctx, keys = request(half, "salted", 1, 5, cache_salt="s")
        store(m, ctx, keys)
        is_(hear(sub, 1), [want(keys, 0, 5, extra_keys=[["s"]], cache_salt="s")], "a salt")
        ctx, keys = request(half, "embeds", 1, 5, prompt_embeds=object())
        store(m, ctx, keys)
        is_(hear(sub, 1), [want(keys, 0, 5, token_ids=[])], "a prompt of embeddings has no tokens")
        ctx, keys = request(half, "long", 1, 9, cache_salt="x" * 500)
        store(m, ctx, keys)
        is_(hear(sub, 1), [want(keys, 0, 9)], "a salt that has no room is not told")
        ok(next(e for e in m.c.walk() if e.digest == keys[0][:32]).parent != bytes(16), "but there is one")
        ctx, keys = fake.prompt("unknown", 1)
        store(m, ctx, keys)
        is_(hear(sub, 1), [want(keys, 0, 0, token_ids=[])], "a request that is not known any more")
        ctx, keys = request(half, "short", 2, 40)
        ctx._offload_key_positions[keys[1]] = 30
        store(m, ctx, keys[:1])
        is_(hear(sub, 1), [want(keys, 0, 40)], "a whole chunk")
        store(m, ctx, keys[1:])
        is_(hear(sub, 1)[0]["token_ids"], [], "what ends within a chunk has no tokens")
        other, half2 = engine(gpc_keep_tokens=False)
        ctx, keys = request(half2, "other", 1, 5, cache_salt="secret")
        store(other, ctx, keys)
        is_(hear(sub, 1), [want(keys, 0, 5, token_ids=[])], "an engine that was not asked to tells no tokens and no salt")
        other.shutdown()
    finally:
        gpcd.terminate()
        is_(gpcd.wait(20), 0, "gpcd ends well")
m.shutdown()

_made.add(name + "-d")
c = GPCOffloadingSpec(fake.config({**EXTRA, "gpc_name": name + "-d", "gpc_keep_tokens": False, "gpc_serve": True})).get_manager()
m, half = engine(gpc_name=name + "-d", gpc_serve=True)
is_(m.prompts.block_tokens, 0, "a cache that was made without tokens keeps none")
ctx, keys = request(half, "plain", 1, 1)
store(m, ctx, keys)
is_([e.digest for e in m.c.walk()], [keys[0][:32]], "and serves as before")
m.shutdown()
c.shutdown()
done()
