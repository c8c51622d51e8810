# SPDX-License-Identifier: Apache-2.0
"""What gpc.sglang and gpc.lmcache store under, with tiers below RAM: objects that RAM does not have are found, and loaded, in
gpc_below_ms at most; a tier that hangs is waited for once."""

import logging
import tempfile
import time

import lmcache_fake
import sglang_fake
import vllm_fake as fake

sglang_fake.install()
lmcache_fake.install()

import gpc  # noqa: E402
import gpc.engines.below as below  # noqa: E402
import below_tiers as tiers  # noqa: E402
from gpc.engines.bytes import address_of  # noqa: E402
from gpc.engines.cache import open_cache  # noqa: E402
from gpc.engines.store import Store  # noqa: E402
from gpc.lmcache import GPCL2Adapter  # noqa: E402
from gpc.sglang import GPCStorage  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

below.LOOK, below.PAUSE = 0, 3600
SLOT, RAM = 4096, 64
_made.update({name, name + "-d", name + "-m", name + "-w"})
tiers.make_room()
folder = tempfile.TemporaryDirectory()


def opened(called, ms=60000):
    conf = fake.ns(bytes=(64 + RAM) * SLOT, bytes_key="bytes", dir="", serve=True, stock=0, attach_ms=60000, max_peers=8,
                   free_target=-1, tag=1, checksum=True, wait_ms=60000, below_ms=ms)
    return Store(open_cache(called, conf, bytes(32), SLOT, 16, "store", logging.getLogger("store")), conf)


def digests(text, n):
    return [f"{text} {i:3}".encode().ljust(32)[:32] for i in range(n)]


def data(digest, size=1000):
    return (digest * (size // 32 + 1))[:size]


def put(s, names, size=1000):
    for d in names:
        keep, parts = address_of(data(d, size))
        until = time.monotonic() + 60    # the steward holds what it writes below for a moment
        while s.put([d], [parts]) != [True]:
            assert time.monotonic() < until
            time.sleep(0.01)
    s.c.tiers_sync(60)


def get(s, names, size=1000):
    held = [address_of(bytearray(size)) for _ in names]
    good = s.get(names, [p for _, p in held])
    return [bytes(k) == data(d, size) if g else None for g, d, (k, _) in zip(good, names, held)]


def in_ram(s, names):
    return sum(b >= 0 for b in s.c.lookup(s._keys([d + bytes(4) for d in names]), spaces=1, flags=gpc.QUIET))


def held(s):
    s.c.ticket_wait()
    st = s.c.stats(s.c.info().peer)
    return st.refs, st.reserved


# ---- a disk: more objects than RAM has room for ----

s = opened(name)
is_(s.exists(digests("none", 3)), [False] * 3, "without tiers, what is not there is not there")
steward = tiers.Steward(name, disk=folder.name + "/disk", disk_blocks=2048)
many = digests("many", 200)
for at in range(0, 200, 20):
    put(s, many[at:at + 20])
n = in_ram(s, many)
ok(n <= RAM, f"{n} of 200 objects are in RAM")
is_(s.exists(many), [True] * 200, "all of them exist")
is_((s.counts["hits_ram"], s.counts["hits_disk"]), (n, 200 - n), "hits are told by their source")
was = s.c.stats(s.c.info().peer)
is_(get(s, many), [True] * 200, "and all are loaded, in one call, with their bytes")
st = s.c.stats(s.c.info().peer)
is_((st.lookups - was.lookups, st.hit_ram - was.hit_ram, st.miss - was.miss), (200, 200, 0), "which is a question, and an answer")
# what a part before has brought along counts as in RAM
ok(0 < st.hit_disk <= 200, f"the cache's own figures have {st.hit_disk} from disk")
is_(s.exists(digests("none", 3)), [False] * 3, "what is nowhere is not")
is_(held(s), (0, 0), "nothing is held")

large = digests("large", 3)
for d in large:
    put(s, [d], 3 * SLOT)
put(s, digests("between", 2 * RAM))
is_((in_ram(s, large), s.exists(large)), (0, [True] * 3), "objects of several pieces")
is_(get(s, large, 3 * SLOT), [True] * 3, "are loaded as well")
pinned, = s.pin(large[:1])
s.release([pinned])
raw = s._keys([large[0] + i.to_bytes(4, "big") for i in range(len(pinned))])
s.c.release(s.c.lookup(raw[:16], flags=gpc.REF))
is_(s.c.reclaim(pinned[1:], keys=raw[16:])[0], 0, "one whose first piece alone is in RAM")
s.c.release(pinned[1:])
is_((s.exists(large[:1]), get(s, large[:1], 3 * SLOT)), ([True], [True]), "is brought as well")
put(s, digests("gone", 2))
put(s, digests("push", 2 * RAM))
is_(s.drop(digests("gone", 2)), [None] * 2, "what is below alone")
s.c.tiers_sync(60)
is_(s.exists(digests("gone", 2)), [False] * 2, "is forgotten as well when it is dropped")

# ---- it hangs ----

s.close()
s = opened(name, 300)
far = [d for d in many if not in_ram(s, [d])][:40]
steward.stop()
since = time.monotonic()
is_(get(s, far[:20]), [None] * 20, "of a tier that hangs nothing is loaded")
took = time.monotonic() - since
ok(took >= 0.3, "after gpc_below_ms")
asked = s.below.counts["asked"]
is_((s.exists(far[20:]), get(s, far[20:])), ([False] * 20, [None] * 20), "then nothing of it exists")
is_(s.below.counts["asked"], asked, "and nobody asks it")
below.PAUSE = 0.01
s.below.late[below.DISK][:2] = [0, 0.01]
steward.go()
while below.DISK in s.below.late:
    s.exists(far[20:21])
    time.sleep(0.01)
while get(s, far[20:]) != [True] * 20:   # on a busy machine some come behind the deadline, and are there then
    time.sleep(0.01)
ok(s.below.counts["asked"] > asked, "when it answers, all is there again")
is_(held(s), (0, 0), "nothing is held")
s.close()
steward.end()

# ---- a store that two machines share ----

shared = tempfile.TemporaryDirectory()
spec = f"{tiers.FOLDER}:dir={shared.name}"
a, b = opened(name + "-d"), opened(name + "-m")
of_a, of_b = (tiers.Steward(name + x, remote=spec, remote_blocks=2048) for x in ("-d", "-m"))
put(a, digests("shared", 30))
put(a, digests("push", RAM))
put(a, digests("again", RAM))
is_(b.exists(digests("shared", 30) + digests("none", 2)), [True] * 30 + [False] * 2, "another machine finds what is in the store")
is_(get(b, digests("shared", 30)), [True] * 30, "and loads it")
is_(b.counts["hits_store"] > 0, True, "hits of the store are told")
is_((held(a), held(b)), ((0, 0), (0, 0)), "nothing is held")
a.close()
b.close()
of_a.end()
of_b.end()

# ---- gpc.sglang ----

EXTRA = {"backend_name": "gpc", "module_path": "gpc.sglang", "class_name": "GPCStorage", "interface_v1": 1,
         "gpc_name": name + "-w", "gpc_weights": "w1", "gpc_bytes": (64 + RAM) * 4096, "gpc_free_target": -1, "gpc_stock": 0,
         "gpc_wait_ms": 60000, "gpc_below_ms": 60000}
pool = sglang_fake.HostPool(256)
g = GPCStorage(sglang_fake.config(EXTRA), {})
g.register_mem_pool_host(pool)
steward = tiers.Steward(name + "-w", disk=folder.name + "/sglang", disk_blocks=2048)
pages = [[f"{p} page-{i}" for i in range(40)] for p in range(3)]
for p in range(3):
    for i in range(40):
        pool.fill(40 * p + i, f"{p} page {i} ")
    for at in range(0, 40, 8):
        extra, some = fake.ns(prefix_keys=pages[p][:at]), range(40 * p + at, 40 * p + at + 8)
        is_(g.batch_set_v1(pages[p][at:at + 8], pool.indices(*some), extra), [True] * 8, "a batch is stored")
        g.store.c.tiers_sync(60)
for p in range(3):
    is_(g.batch_exists(pages[p]), 40, "SGLang finds a prompt, whatever of it RAM has")
    ok(all(g.batch_get_v1(pages[p], pool.indices(*range(128, 168)))), "and loads it")
    ok(all(pool.read(128 + i) == pool.read(40 * p + i) for i in range(40)), "with its bytes")
ok(g.store.counts["hits_disk"] > 50, "much of it from disk")
g.close()
steward.end()

# ---- gpc.lmcache ----

gpc.unlink(name + "-w")
params = {"gpc_name": name + "-w", "gpc_weights": "w1", "gpc_bytes": (64 + RAM) * 4096, "gpc_slot_bytes": 4096,
          "gpc_free_target": -1, "gpc_wait_ms": 60000, "gpc_below_ms": 60000}
x = GPCL2Adapter(params)
steward = tiers.Steward(name + "-w", disk=folder.name + "/lmcache", disk_blocks=2048)


def task(take, number):
    while (got := take(number)) is None:
        time.sleep(0.001)
    return set(got.get_indices_list())


def letters(i):
    return f"object {i} "


keys = [lmcache_fake.ObjectKey(bytes([i]) * 32) for i in range(100)]
for at in range(0, 100, 10):
    number, got = x.submit_store_task(keys[at:at + 10], [lmcache_fake.Memory(3000, letters(i)) for i in range(at, at + 10)]), {}
    while number not in got:
        got = x.pop_completed_store_tasks()
        time.sleep(0.001)
    x.store.c.tiers_sync(60)
first = keys[:30]
is_(task(x.query_lookup_and_lock_result, x.submit_lookup_and_lock_task(first, {})), {*range(30)},
    "LMCache's lookup finds, and locks, what has left RAM")
to = [lmcache_fake.Memory(3000) for _ in first]
is_(task(x.query_load_result, x.submit_load_task(first, to)), {*range(30)}, "and loads it")
ok([t.read() for t in to] == [lmcache_fake.Memory(3000, letters(i)).read() for i in range(30)], "with its bytes")
nowhere = lmcache_fake.ObjectKey(b"n" * 32)
is_(x.query_lookup_and_lock_result(x.submit_lookup_and_lock_task([nowhere], {})) is not None, True,
    "a lookup of what is nowhere is answered by the call")
x.submit_unlock(first)
is_(held(x.store), (0, 0), "nothing is held")
x.close()
steward.end()
done()
