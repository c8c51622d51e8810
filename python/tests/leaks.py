# SPDX-License-Identifier: Apache-2.0
"""Ten thousand calls leave nothing behind: neither references to arguments, nor memory."""

import array
import gc
import sys
import tracemalloc

import gpc
from tap import create, done, is_, ok

c = create(vram_blocks=64, ram_blocks=64, block_bytes=4096, keep_digests=1)
digests = [bytes([i] * 32) for i in range(20)]
keys = c.key_import(digests)
each = [keys[i:i + 16] for i in range(0, 320, 16)]
root = c.key_root([(1, b"model")])
blocks = c.reserve(0, 20)
c.publish(bytes(16) + keys[:-16], keys, blocks)
out = array.array("i", [0] * 20)
resident = array.array("i", [0] * 2)
tokens = array.array("I", range(64))
wide = [1 << 20 | i for i in range(20)]
extra = [(3, b"abc")]
part = c.pool_map(1)[0]


def fails(call, *args, **options):
    try:
        call(*args, **options)
    except (gpc.Error, TypeError, ValueError):
        return
    raise AssertionError("no exception")


def publish():
    b = c.reserve(0, 2)
    c.publish(None, keys[:32], b, timeout=0, resident=resident)
    c.ticket_wait()
    c.release(b)
    c.release(resident)


calls = {
    "lookup": lambda: (c.lookup(keys), c.lookup(each), c.lookup(keys, out=out)),
    "match": lambda: (c.match(keys, [0, 20]), c.match(keys, [0, 20], lens=resident, out=out)),
    "groups": lambda: (c.match_groups([(keys, 0, 0), (each, 8, 1)]), fails(c.match_groups, [(keys, 0, 0), 1]),
                       fails(c.match_groups, [(keys, 70000, 0)]), c.key_hash_group(1, 8, root, tokens)),
    "acquire, ref, release": lambda: (c.acquire(keys), c.ref(keys, blocks), c.release(blocks), c.release(blocks)),
    "prefix": lambda: (c.prefix(digests), c.prefix(digests, out=out), c.release(out), c.release(out)),
    "keys": lambda: (c.key_hash(root, tokens, extras=extra), c.key_hash_many(root, [tokens, tokens[:20]]),
                     fails(c.key_hash_many, root, [tokens, "x"]), c.key_import(digests), c.key_root([(1, b"x")])),
    "roots": lambda: (c.root_get(c.root_keep([(1, b"x"), (2, b"y")])), fails(c.root_keep, [(1, bytes(481))]),
                      fails(c.root_keep, [(1, b"x", 1)]), fails(c.root_get, bytes(16))),
    "aliases": lambda: (c.alias(each[:2], each[2:4]), c.alias_resolve(keys), c.alias_resolve(each, out=bytearray(320)),
                        fails(c.alias, each[:1], each[:1])),
    "reserve": lambda: c.release(c.reserve(0, 3)),
    "publish": publish,
    "records": lambda: (c.info(), c.stats(), c.pool_get(0), c.pool_memory(1), c.pool_runs(1)),
    "walks": lambda: (list(c.walk()), list(c.claims()), list(c.transfers()), c.event_read(0, 5)),
    "errors": lambda: (fails(c.lookup, b"x"), fails(c.lookup, each[:3] + [b""]), fails(c.release, wide),
                       fails(c.pool_get, 9), fails(c.lookup, keys, nix=1), fails(c.publish, None, keys, [1])),
    "memory": lambda: (memoryview(part).release(), part.__dlpack__(), part.__dlpack__(max_version=(1, 0))),
    "attach": None,
}


def attach():
    with gpc.attach(gpc_name, log=lambda *a: None, label="leak") as d:
        d.lookup(keys)


from tap import name as gpc_name
calls["attach"] = attach

watched = (keys, each, each[0], digests, digests[0], out, resident, tokens, root, None, c, part, gpc.Entry)
for what, call in calls.items():
    rounds = 100 if what == "attach" else 10000 if what in ("lookup", "prefix") else 1000
    for _ in range(20):
        call()
    gc.collect()
    before = [sys.getrefcount(o) for o in watched]
    tracemalloc.start()
    for _ in range(20):
        call()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    for _ in range(rounds):
        call()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - size
    tracemalloc.stop()
    after = [sys.getrefcount(o) for o in watched]
    worst = max(abs(x - y) for x, y in zip(before, after))
    if not ok(grown < rounds * 8 and worst < 20, f"{what}: {rounds} calls leave nothing behind"):
        print(f"# {grown} bytes grown, references differ by {[y - x for x, y in zip(before, after)]}")
c.release(blocks)
is_((c.stats().refs, c.stats().reserved), (0, 0), "nothing is held")
c.close()
done()
