# SPDX-License-Identifier: Apache-2.0
"""A prompt that is longer than RAM: without a tier its beginning stays and serves others, and what has no place is counted; with a disk
all of it is there in the end."""

import logging
import tempfile
import time

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.engines.below as below  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import below_tiers as tiers  # noqa: E402
from gpc.engines.bytes import address_of  # noqa: E402
from gpc.engines.cache import open_cache  # noqa: E402
from gpc.engines.store import Store  # noqa: E402
from gpc.vllm import GPCOffloadingSpec  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = 60
below.LOOK = 0
RAM, LONG, STEP, SLOT = 32, 96, 8, 4096
tiers.make_room()
folder = tempfile.TemporaryDirectory()


def manager(called, free_target):
    _made.add(called)
    extra = {"gpc_name": called, "gpc_weights": "w", "gpc_bytes": (64 + RAM) * SLOT, "gpc_free_target": free_target,
             "gpc_stock": 0, "gpc_max_peers": 8, "gpc_below_ms": 60000}
    m = GPCOffloadingSpec(fake.config(extra)).get_manager()
    m.set_chained({0: True})
    return m


def store(m, ctx, keys):
    """Those of these that the manager takes, published."""
    out = fake.offer(m, keys, ctx)
    m.complete_store(set(out.keys_to_store), ctx)
    m.publisher.collect(60)
    m.c.ticket_wait()
    return out.keys_to_store


def prefix(there):
    return next((i for i, t in enumerate(there) if not t), len(there))


def in_ram(m, keys):
    return [b >= 0 for b in m.c.lookup(m.finder.keys(keys), spaces=1, flags=gpc.QUIET)]


# ---- vLLM, RAM alone ----

for target in (-1, 4):
    m = manager(f"{name}-{target}", target)
    ctx, keys = fake.prompt("long", LONG)
    taken = [len(store(m, ctx, keys[i:i + STEP])) for i in range(0, LONG, STEP)]
    there = in_ram(m, keys)
    ok(prefix(there) >= RAM - 2 * STEP, f"free_target {target}: the first {prefix(there)} chunks of {LONG} are there")
    ok(m.counts["no_room"] >= LONG - RAM - STEP, f"the others are counted: {m.counts['no_room']}")
    is_(m.counts["no_room"] + sum(taken), LONG, "each chunk is stored or counted")
    m.on_request_finished(ctx)
    m.on_schedule_end(None)
    again, _ = fake.prompt("long", LONG)
    hits = [m.lookup(k, again) for k in keys[:prefix(there)]]
    is_({h.name for h in hits}, {"HIT"}, "another request finds what is there")
    m.on_request_finished(again)
    m.on_schedule_end(None)
    other, others = fake.prompt("other", STEP)
    is_(len(store(m, other, others)), STEP, "and another prompt is stored")
    m.on_request_finished(other)
    m.shutdown()

# ---- vLLM, with a disk ----

m = manager(name, -1)
steward = tiers.Steward(name, disk=folder.name + "/disk", disk_blocks=512)
m.finder.below.look()
ctx, keys = fake.prompt("long", LONG)
for i in range(0, LONG, STEP):
    store(m, ctx, keys[i:i + STEP])
    m.c.tiers_sync(60)
m.on_request_finished(ctx)
m.on_schedule_end(None)
is_(m.counts["no_room"], 0, "with a disk that is as fast nothing is left out")
raw = m.finder.keys(keys)
is_(sum(bool(s) for s in m.finder.below.tiers_of(raw)), LONG, "all of it is in RAM or on disk")
is_(m.c.prefetch(0, raw[:16 * (RAM - STEP)], timeout=60), RAM - STEP, "and its beginning comes up again")

ctx, keys = fake.prompt("fast", LONG)
for i in range(0, LONG, STEP):
    store(m, ctx, keys[i:i + STEP])
m.c.tiers_sync(60)
m.on_request_finished(ctx)
m.on_schedule_end(None)
there = [bool(s) for s in m.finder.below.tiers_of(m.finder.keys(keys))]
is_(prefix(there), sum(there), "where the disk is slower, nothing is there without what comes before it")
ok(sum(there) >= RAM - 2 * STEP, f"and not less than RAM has room for: {sum(there)}")
m.shutdown()
steward.end()

# ---- SGLang's and LMCache's store ----


def opened(called):
    _made.add(called)
    conf = fake.ns(bytes=(64 + RAM) * SLOT, bytes_key="bytes", dir="", serve=True, stock=0, attach_ms=60000, max_peers=8,
                   free_target=-1, tag=1, checksum=True, wait_ms=60000, below_ms=60000)
    return Store(open_cache(called, conf, bytes(32), SLOT, 16, "store", logging.getLogger("store")), conf)


def put(s, names):
    """One after the other, each behind the one before."""
    stored = []
    for i in range(0, LONG, STEP):
        some = names[i:i + STEP]
        held = [address_of((d * 32)[:1000]) for d in some]
        stored += s.put(some, [p for _, p in held], parents=[names[i + k - 1] if i + k else None for k in range(STEP)])
    return stored


s = opened(name + "-s")
names = [f"object {i:3}".encode().ljust(32) for i in range(LONG)]
stored = put(s, names)
there = s.exists(names)
is_(prefix(there), sum(there), "objects: nothing is there without what comes before it")
is_(sum(there), RAM, "RAM is full of the first ones")
is_((sum(stored), s.counts["no_room"]), (RAM, LONG - RAM), "the others are told, and counted")
s.close()

s = opened(name + "-d")
steward = tiers.Steward(name + "-d", disk=folder.name + "/objects", disk_blocks=512)
below.LOOK = 0
at, until = 0, time.monotonic() + 60
while at < LONG and time.monotonic() < until:      # as who tries again does
    held, parts = address_of((names[at] * 32)[:1000])
    if s.put([names[at]], [parts], parents=[names[at - 1] if at else None]) == [True]:
        at += 1
    else:
        s.c.tiers_sync(60)
is_(at, LONG, "with a disk all of them find room, as soon as those before are written")
s.c.tiers_sync(60)
is_(sum(s.exists(names)), LONG, "and all are there")
s.close()
steward.end()

done()
