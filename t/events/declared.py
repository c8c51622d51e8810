# SPDX-License-Identifier: Apache-2.0
"""Every event that gpcd sends, decoded by the modules in which vLLM and SGLang declare them, field by field; and encoded
again by vLLM's it is the same bytes."""

import os
import struct
import sys

import msgspec
import zmq

import gpc
import modules
import tap
from node import BLOCK, EVENTS, NAME, REPLAY, dir_, gpcd, key, last_change, main, store, tokens, until

END = 2**64 - 1
NONE = dict.fromkeys(("lora_id", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
                      "kv_cache_spec_sliding_window", "locality", "ownership", "session_id", "cache_salt"))


class Declared:
    """The types of one engine.  An event that is expected is a name and all fields that any engine has; those that its
    module declares are compared, all of them."""

    def __init__(self, what, module):
        self.what, self.module = what, module
        self.decoder = msgspec.msgpack.Decoder(module.KVEventBatch)

    def event(self, name, fields):
        type_ = getattr(self.module, name)
        return type_(**{f: fields[f] for f in type_.__struct_fields__})

    def compare(self, got, want, what):
        """got: (sequence, payload); want: (sequence, rank, [(name, fields)])."""
        wrong = []
        for (sequence, payload), (number, rank, events) in zip(got, want):
            b = self.decoder.decode(payload)
            has = {f: getattr(b, f) for f in b.__struct_fields__}
            its = (sequence, has.pop("events"), *(v for f, v in has.items() if f != "ts"))
            if its != (number, [self.event(*e) for e in events], rank) or not 1e9 < has["ts"] < 1e11:
                wrong.append((its, number, rank, events))
        tap.ok(len(got) == len(want) and not wrong, f"{self.what}: {what}: {len(got)} batches")
        if wrong or len(got) != len(want):
            print(f"# {len(got)} batches, want {len(want)}; the first wrong one: {wrong[:1]}", flush=True)


def stored(n, parent, medium="GPU", **more):
    return "BlockStored", {**NONE, "block_hashes": [NAME + n], "parent_block_hash": NAME + parent if parent else None,
                           "token_ids": tokens(n), "block_size": BLOCK, "medium": medium, **more}


def removed(n, medium="GPU", **more):
    return "BlockRemoved", {**NONE, "block_hashes": [NAME + n], "medium": medium, **more}


CLEARED = "AllBlocksCleared", {}


def live(sub, got, last):
    """The batches that have come, with those up to that sequence."""
    while not got or got[-1][0] < last:
        if not sub.poll(10000):
            break
        _, sequence, payload = sub.recv_multipart()
        sequence = int.from_bytes(sequence, "big")
        if sequence and (not got or sequence > got[-1][0]):
            got.append((sequence, payload))
    return got


def asked(first):
    with zmq.Context.instance().socket(zmq.DEALER) as s:
        s.connect(REPLAY)
        s.send_multipart([b"", struct.pack(">Q", first)])
        got = []
        while s.poll(10000):
            _, _, sequence, payload = s.recv_multipart()
            if int.from_bytes(sequence, "big") == END:
                break
            got.append((int.from_bytes(sequence, "big"), payload))
        return got


def changes(c, sub):
    """What a worker does; what gpcd has to say to it, as (sequence, rank, [event]), and what it says.  It is waited
    for each time: a block that is gone by then would be told to nobody."""
    want, got = [], []

    def say(*events, rank=0):
        want.append((len(want) + 1, rank, list(events)))
        live(sub, got, len(want))

    store(c, 0, 1)
    say(stored(1, 0))
    store(c, 1, 2)
    say(stored(2, 1))
    german = c.root_keep([(1, b"llama"), (2, b"german"), (3, b"tenant-a")])
    first = store(c, german, 9)
    words = dict(lora_name="german", cache_salt="tenant-a")
    say(stored(9, 0, **words, extra_keys=[("german", "tenant-a")]))
    second = store(c, 9, 10)
    say(stored(10, 9, **words, extra_keys=[("german",)]))
    c.drop(second)
    say(removed(10))
    c.drop(first)
    say(removed(9))
    last = store(c, 2, 3)
    say(stored(3, 2))
    group = c.reserve(0, 1)
    c.publish(None, [key(c, 4)], group, group=3, digests=[struct.pack(">Q", NAME + 4)])
    say(stored(4, 0, token_ids=[], group_idx=3))
    plain = c.reserve(0, 1)
    c.publish([key(c, 2)], [key(c, 5)], plain)
    h = int.from_bytes(key(c, 5)[:8], "little")
    say(stored(5, 2, block_hashes=[h], token_ids=[]))
    c.commit(c.demote(0, 1, last, 1))
    say(stored(3, 2, "CPU"), removed(3))
    back = c.acquire([key(c, n) for n in (1, 2, 3)])
    c.commit(c.promote(back[2:], 0))
    say(stored(3, 2), removed(3, "CPU"))
    back = c.acquire([key(c, n) for n in (1, 2, 3)])
    c.release(back)
    c.release(back)
    c.release(group + plain)
    c.drop(group)
    say(removed(4, group_idx=3))
    c.drop(plain)
    say(removed(5, block_hashes=[h]))
    far = c.pool_add(kind=gpc.RAM, blocks=4, space=5, flags=gpc.POOL_UNCHAINED)
    store(c, 2, 6, far)
    say(stored(6, 2, "CPU"), rank=5)
    c.pool_clear(far)
    say(removed(6, "CPU"), rank=5)
    store(c, 2, 7, far)
    say(stored(7, 2, "CPU"), rank=5)
    return want, got


def run():
    folder = sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    vllm, sglang = Declared("vLLM", modules.vllm(folder)), Declared("SGLang", modules.sglang(folder))
    p = gpcd()
    c = gpc.attach("kv", dir=dir_, timeout=10)
    until(lambda: c.info().writer_pid == p.pid)
    sub = zmq.Context.instance().socket(zmq.SUB)
    sub.subscribe(b"")
    sub.connect(EVENTS)
    tap.ok(sub.poll(10000), "a subscriber has the first batch")

    def both(got, want, what):
        vllm.compare(got, want, what)
        sglang.compare(got, want, what)
        again = [msgspec.msgpack.encode(vllm.decoder.decode(payload)) for _, payload in got]
        # vLLM has the salt in extra_keys alone, and leaves SGLang's field out
        tap.ok(all(a == payload or b"cache_salt" in payload for a, (_, payload) in zip(again, got)),
               f"vLLM: {what}: encoded again they are the same bytes")

    want, got = changes(c, sub)
    last = len(want)
    tap.is_(last_change(c), last, "each change is one batch")
    both(got, want, "stores, moves, removals")
    both(asked(0), [(last - 2, 5, [CLEARED]), (last - 1, 0, [CLEARED, stored(1, 0), stored(2, 1), stored(3, 2)]),
                    (last, 5, [stored(7, 2, "CPU")])], "a snapshot")
    both(asked(last), want[-1:], "a replay")
    tap.is_(c.pool_clear(-1), 0, "a clear of all pools")
    until(lambda: last_change(c) > last)
    end = last_change(c)
    store(c, 0, 8)
    got = live(sub, got, end + 1)[last:]
    tap.is_([s for s, _ in got], list(range(last + 1, end + 2)), "the clears, one a pool, and a store")
    names = [type(e).__name__ for _, payload in got for e in vllm.decoder.decode(payload).events]
    tap.is_(names, ["BlockRemoved"] * 3 + ["AllBlocksCleared", "BlockStored"],
            "vLLM: each of a pool that others outlive, then one word for all")
    both(got[-1:], [(end + 1, 0, [stored(8, 0)])], "what comes after a clear")
    both(asked(last), [(end, 5, [CLEARED]), (end + 1, 0, [CLEARED, stored(8, 0)])], "a snapshot after a clear")
    c.close()


main(run)
tap.done()
