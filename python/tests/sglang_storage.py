# SPDX-License-Identifier: Apache-2.0
"""gpc.sglang's storage against the contract of HiCacheStorage: host pools of several layouts, versions 1 and 2, two
processes, ranks, bad bytes, no room, clear and configuration."""

import ctypes
import inspect
import itertools
import os
import sys
import tempfile
import threading

import sglang_fake as fake

fake.install()

import gpc  # noqa: E402
from gpc.engines.config import ConfigError  # noqa: E402
from gpc.sglang import GPCStorage  # noqa: E402
from gpc.sglang import engine  # noqa: E402
from gpc.sglang.config import KEYS, Config  # noqa: E402
from gpc.sglang.name import fingerprint  # noqa: E402
from gpc.sglang.pages import Pages  # noqa: E402
from gpc.sglang.storage import _left  # noqa: E402
from tap import _made, done, is_, name, ok, raises  # noqa: E402

EXTRA = {"backend_name": "gpc", "module_path": "gpc.sglang", "class_name": "GPCStorage", "interface_v1": 1,
         "gpc_name": name, "gpc_weights": "w1", "gpc_bytes": (64 + 16) * 4096, "gpc_free_target": -1, "gpc_stock": 0,
         "gpc_wait_ms": 60000, "gpc_attach_ms": 60000}
_made.add(name)
_made.add(name + "-m")
KV, MAMBA, SWA = fake.PoolName.KV, fake.PoolName.MAMBA, fake.PoolName.SWA


def storage(pool=None, config=None, **more):
    s = GPCStorage(config or fake.config({**EXTRA, **more}), {})
    s.register_mem_pool_host(pool or fake.HostPool(32))
    s.on_host_pools_registered()
    return s


def page_keys(text, n):
    return [f"{text}-{i}" for i in range(n)]


def held(s):
    s.store.c.ticket_wait()
    st = s.store.c.stats(s.store.c.info().peer)
    return st.refs, st.reserved


def fill(pool, text, n, first=0):
    for i in range(n):
        pool.fill(first + i, f"{text} {i} ")


# ---- the interface ----

for n, f in vars(fake.HiCacheStorage).items():
    if inspect.isfunction(f) and n != "get_stats":
        is_(list(inspect.signature(getattr(GPCStorage, n)).parameters), list(inspect.signature(f).parameters), n)
        ok(getattr(GPCStorage, n) is not f, "is ours")

# ---- configuration ----

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpc/sglang/README.md")) as f:
    page = f.read()
for n, k in KEYS.items():
    value = str(k.default).lower() if k.kind is bool else k.default
    ok(f"| `{n}` | {'needed' if k.needed else value if value != '' else ''}".rstrip() in page, f"{n} is on the page")
raises(ConfigError, "gpc_bytes: it is missing", lambda: Config({}), "a key that is needed")
raises(ConfigError, "gpc_wait_ms: 0, 1 to", lambda: Config({**EXTRA, "gpc_wait_ms": 0}), "a range")
raises(ConfigError, "gpc_waitms: there is no such key", lambda: Config({**EXTRA, "gpc_waitms": 1}), "a typing error")
raises(ConfigError, "gpc_weights", lambda: storage(gpc_weights=""), "a model without weights that can be told")
raises(ConfigError, "gpc_bytes: 4096, at least", lambda: storage(gpc_name=name + "-d", gpc_bytes=4096),
       "too little memory")
raises(ConfigError, "no host pool", lambda: GPCStorage(fake.config(EXTRA)).exists("k"), "no host pool")

# ---- version 1: pages of the host pool, both ways, in layouts that tell addresses and in one that does not ----

pa, pb = fake.HostPool(32), fake.HostPool(32, layout="page_first")
a, b = storage(pa), storage(pb)
is_(a.store.c.pool_get(0).blocks, 16, "the first one makes the cache, of 16 slots")
keys = page_keys("one", 4)
fill(pa, "one", 4)
is_(a.batch_exists(keys), 0, "nothing is there")
is_(a.batch_get_v1(keys, pa.indices(8, 9, 10, 11)), [False] * 4, "nothing can be loaded")
is_(a.batch_set_v1(keys[:3], pa.indices(0, 1, 2)), [True] * 3, "three pages are stored")
is_((b.batch_exists(keys), b.exists(keys[2]), b.exists(keys[3])), (3, True, False), "another engine finds them")
is_(b.batch_exists(keys[2:] + keys[:2]), 1, "counted until the first one that is missing")
before = pb.read(5)
is_(b.batch_get_v1(keys, pb.indices(7, 3, 9, 5)), [True, True, True, False], "and loads them, out of order")
is_([pb.read(i) for i in (7, 3, 9)], [pa.read(i) for i in (0, 1, 2)], "the bytes are these")
is_(pb.read(5), before, "a page that was not loaded is untouched")
is_((pa.through, pb.through), (0, 0), "none went through a tensor")
entries = {e.digest: e for e in a.store.c.walk()}
d = a.names.digests(keys)
is_([entries[d[i]].parent for i in (1, 2)], [entries[d[i]].key for i in (0, 1)], "a page continues the one before it")
is_(a.batch_set_v1(keys[3:], pa.indices(3), fake.ns(prefix_keys=keys[:3])), [True], "and a batch the one before")
is_({e.digest: e for e in a.store.c.walk()}[d[3]].parent, entries[d[2]].key, "where SGLang tells its keys")
counts = a.store.counts["stored"]
is_((a.batch_set_v1(keys, pa.indices(0, 1, 2, 3)), a.store.counts["stored"], a.store.counts["duplicate"]),
    ([True] * 4, counts, 0),
    "what is there is not stored again")
is_((held(a), held(b)), ((0, 0), (0, 0)), "nothing is held")
is_(a.batch_set_v1(["x", "y"], pa.indices(0, 1)[:-1]), [False, False], "a wrong number of indices")
is_((a.batch_set_v1([], []), a.batch_get_v1([], [])), ([], []), "no keys at all")
for layout, through in (("layer_first", 0), ("no addresses", 2), ("no flat pages", 0)):
    p = fake.HostPool(32, layout=layout)
    s = storage(p, gpc_name=name + "-m")
    p.through = 0                # a page was tried
    fill(p, layout, 1)
    is_(s.batch_set_v1([layout], p.indices(0)), [True], f"{layout}: stored")
    is_((s.batch_get_v1([layout], p.indices(9)), p.read(9)), ([True], p.read(0)), "and loaded")
    is_(p.through, through, "by way of a tensor only where there are no addresses")
    s.close()
    gpc.unlink(name + "-m")

raises(ConfigError, "layout 'unsupported' of host pool kv is not supported (ValueError: Unsupported layout: unsupp",
       lambda: storage(fake.HostPool(32, layout="unsupported")), "neither addresses nor pages: refused at once")
raises(ConfigError, "of host pool swa is not", lambda: a.register_mem_host_pool_v2(
    fake.HostPool(32, layout="unsupported"), SWA), "of another pool as well")

# ---- tensors of SGLang's own ----

t, u = fake.Tensor(1024), fake.Tensor(1024)
t.bytes[:] = b"t" * 1024
is_((a.set("t", t), b.exists("t")), (True, True), "set")
ok(b.get("t", u) is u and u.bytes == t.bytes, "get")
is_(bytes(b.get("t").bytes), bytes(t.bytes), "get without a place makes one")
is_((b.get("no", u), b.get("no")), (None, None), "get of what is missing")
is_(a.batch_set(["t1", "t2"], [t, u]), True, "batch_set")
got = b.batch_get(["t1", "no", "t2"], [fake.Tensor(1024) for _ in range(3)])
is_([x and bytes(x.bytes) for x in got], [bytes(t.bytes), None, bytes(u.bytes)], "batch_get")
is_(b.batch_get(["t1"], [fake.Tensor(8)]), [None], "a place of another size")
is_((held(a), held(b)), ((0, 0), (0, 0)), "nothing is held")

# ---- bad bytes ----

(block,) = a.store.c.lookup(a.store._keys([d[1] + bytes(4)]))
at, n = a.store.slots.piece(gpc.SLOT(block), 1024, 0)
ctypes.memset(at + 500, 0xaa, 1)
is_(b.batch_get_v1(keys, pb.indices(0, 1, 2, 3)), [True, False, True, True], "a changed byte is a miss")
b.store.c.ticket_wait()
is_((b.store.counts["bad"], a.batch_exists(keys)), (1, 1), "it is dropped")
is_(a.batch_get_v1(keys[2:], pa.indices(8, 9)), [True, True], "and what follows it is there")
is_(a.batch_set_v1(keys, pa.indices(0, 1, 2, 3)), [True] * 4, "and can be stored again")
is_(b.batch_get_v1(keys, pb.indices(0, 1, 2, 3)), [True] * 4, "and loaded")
is_((held(a), held(b)), ((0, 0), (0, 0)), "nothing is held")

mine, b.store.slots.seed = b.store.slots.seed, 12
is_((b.batch_exists(keys[3:]), b.store.counts["bad"]), (0, 2), "a slot of another structure is dropped by a lookup")
b.store.slots.seed = mine
b.store.c.ticket_wait()
is_(a.batch_exists(keys), 3, "nobody finds it")
b.store.pin = lambda digests, counts=True: [None] * len(digests)
is_((b.batch_set_v1(keys[:2], pb.indices(0, 1)), b.store.counts["duplicate"]), ([True] * 2, 2),
    "a page that another engine stores meanwhile is there")
del b.store.pin
is_((held(a), held(b)), ((0, 0), (0, 0)), "nothing is held")

# ---- room ----

for i in range(24):
    pa.fill(i, f"big {i} ")
big = page_keys("big", 24)
is_(a.batch_set_v1(big, pa.indices(*range(24))), [True] * 16 + [False] * 8, "little room: the first pages are stored")
is_((b.batch_exists(big), a.store.counts["no_room"]), (16, 8), "and found")
is_(b.batch_get_v1(big[:16], pb.indices(*range(16))), [True] * 16, "and loaded")
is_([pb.read(i) for i in range(16)], [pa.read(i) for i in range(16)], "each with its bytes")
pinned = b.store.pin(b.names.digests(big[:16]))
is_(a.batch_set_v1(["none"], pa.indices(0)), [False], "all held: there is no room")
b.store.release(pinned)
is_(a.batch_set_v1(["one", "one"], pa.indices(0, 0)), [True, True], "a key twice in a batch")
is_((held(a), held(b)), ((0, 0), (0, 0)), "nothing is held")

# ---- clear ----

is_((a.clear(), a.exists("one"), b.exists("one")), (True, False, True), "a namespace begins: others keep theirs")
is_((a.batch_set_v1(["one", "new"], pa.indices(0, 1)), b.exists("new")), ([True] * 2, False),
    "what it stores from then on is its own")
is_((a.clear(), a.exists("one")), (True, False), "each time another one")
is_(len({a.namespace.salt, b.namespace.salt, b""}), 2, "random, where nobody says which")
a.batch_set_v1(["detached"], pa.indices(0))
a.close()
a = storage(pa)
is_((a.exists("detached"), a.exists("one")), (True, False), "SGLang detaches it and attaches one: the weights are the same")
a.close()
_left.clear()
a = storage(pa)
is_((a.exists("one"), a.exists("detached")), (True, False), "a restarted engine has those of the files")
c = storage(gpc_tag=7, gpc_reset="tag")
is_(c.batch_set_v1(["tagged"], c.mem_pool_host.indices(0)), [True], "stored under another tag")
is_((c.clear(), c.exists("tagged"), a.exists("tagged"), a.exists("one")), (True, False, False, True),
    "by tag: only what has it is forgotten, also for others")
c.close()
_left.clear()

with tempfile.TemporaryDirectory() as folder:
    version = os.path.join(folder, "version")
    with open(version, "w") as f:
        f.write("step 1\n")
    v1, v2 = storage(pa, gpc_version_file=version), storage(pb, gpc_version_file=version)
    is_((v1.exists("one"), v1.batch_set_v1(["v"], pa.indices(0)), v2.exists("v"), a.exists("v")),
        (False, [True], True, False), "engines of one version share")
    with open(version, "w") as f:
        f.write("step 2")
    is_((v2.exists("v"), v1.clear(), v1.exists("v"), v2.exists("v")), (True, True, False, True),
        "it is read at a clear")
    is_((v2.clear(), v1.batch_set_v1(["w"], pa.indices(0)), v2.exists("w")), (True, [True], True),
        "and when both have cleared they share again")
    os.unlink(version)
    is_((v1.clear(), v2.clear(), v1.batch_set_v1(["x"], pa.indices(0)), v2.exists("x")), (True, True, [True], False),
        "without the file each has its own")
    v1.close()
    v2.close()
_left.clear()


class Distributed:
    """Of two ranks, which take turns; the store is theirs."""
    said = {}

    def is_initialized(self):
        return True

    def get_world_size(self):
        return 2

    def compare_set(self, key, expected, desired):
        return self.said.setdefault(key, desired).encode()


dist = sys.modules["torch.distributed"] = Distributed()
sys.modules["torch.distributed.distributed_c10d"] = fake.ns(_get_default_store=lambda: dist)
one, other = (engine.common_random(None) for _ in range(2))
turns = []
for get in (one, other):
    engine._resets = itertools.count(1)
    turns.append([get(), get()])
ok(turns[0] == turns[1] and len(set(turns[0])) == 2, "ranks of an engine have the same random namespaces")
del sys.modules["torch.distributed"], sys.modules["torch.distributed.distributed_c10d"]

# ---- who shares ----

raises(gpc.Error, "layout", lambda: storage(gpc_weights="w2"), "a cache of that name with other weights")
raises(gpc.Error, "layout", lambda: storage(fake.HostPool(32, layout="layer_first")), "or another layout")
raises(gpc.Error, "layout", lambda: storage(config=fake.config(EXTRA, size=2)), "or more ranks")
raises(gpc.Error, "layout", lambda: storage(fake.HostPool(32, dtype="uint8", device_dtype="float8_e4m3fn")), "or fp8")
prints = set()
for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
    prints.add(fingerprint(a.config, "w", Pages(fake.HostPool(32, dtype="uint8", device_dtype=dtype)), {}))
is_(len(prints), 3, "what bytes of a host pool mean on the device is part of it")
plain = engine.meaning(a.config, fake.ARGS)
for arg, value in (("json_model_override_args", '{"rope_scaling": {"factor": 4.0}}'), ("quantization", "fp8"),
                   ("kv_cache_dtype", "fp8_e5m2"), ("dtype", "float16"), ("revision", "v2"), ("load_format", "dummy")):
    was = getattr(fake.ARGS, arg)
    setattr(fake.ARGS, arg, value)
    raises(gpc.Error, "layout", storage, f"or another {arg}")
    ok(engine.meaning(a.config, fake.ARGS) != plain, "which an engine is told")
    setattr(fake.ARGS, arg, was)
fake.ARGS.json_model_override_args = "{ }"
is_(engine.meaning(a.config, fake.ARGS), plain, "no override is none, however it is written")
fake.ARGS.load_format = "safetensors"
is_(engine.meaning(a.config, fake.ARGS), plain, "the format of the files is none of their meaning")
fake.ARGS.load_format = "auto"


def of_pool(pool, args=fake.ARGS):
    s = GPCStorage(fake.config(EXTRA))
    s.args = args
    s.register_mem_host_pool_v2(pool, "draft_kv")
    return s.names.digests(["k"], "draft_kv")[0]


is_(len({of_pool(fake.HostPool(8)), of_pool(fake.HostPool(8, dtype="uint8", device_dtype="float8_e5m2")),
         of_pool(fake.HostPool(8), fake.ns(speculative_draft_model_path="d"))}), 3,
    "a page of another pool is named by that pool's dtype, and by the draft model")
b.close()
b.close()
a.close()
gpc.unlink(name)
r0, r1 = (storage(config=fake.config(EXTRA, rank=r, size=2)) for r in (0, 1))
is_((r0.batch_set_v1(["k"], pa.indices(0)), r0.exists("k"), r1.exists("k")), ([True], True, False),
    "each rank has its own pages")
r0.close()
r1.close()
gpc.unlink(name)
r0, r1 = (storage(config=fake.config(EXTRA, rank=r, size=2, mla=True)) for r in (0, 1))
is_((r0.batch_set_v1(["k"], pa.indices(0)), r1.exists("k")), ([True], True), "with MLA they share")
m0, m1 = fake.HostPool(8, page=600, page_size=1), fake.HostPool(8, page=600, page_size=1)
for s, p in ((r0, m0), (r1, m1)):
    s.register_mem_host_pool_v2(p, MAMBA)
is_(r0.batch_set_v2([fake.PoolTransfer(MAMBA, m0.indices(0), keys=["k"])]), {MAMBA: [True]}, "but for Mamba states")
is_([s.batch_exists_v2(["k"], [fake.PoolTransfer(MAMBA, keys=["k"])]).kv_hit_pages for s in (r0, r1)], [1, 0],
    "which are each rank's own")
r0.close()
r1.close()
gpc.unlink(name)

# ---- version 2: other pools beside ----

a = storage(pa, gpc_bytes=(64 + 40) * 4096)
swa, mamba = fake.HostPool(32, page=512), fake.HostPool(32, page=10000, page_size=1, layout="no addresses")
a.register_mem_host_pool_v2(swa, SWA)
a.register_mem_host_pool_v2(mamba, MAMBA)
fill(swa, "swa", 6)
fill(mamba, "mamba", 6)
keys = page_keys("two", 6)
is_(a.batch_exists_v2(keys), fake.PoolTransferResult(0, {}, []), "nothing is there")
is_(a.batch_set_v1(keys[:5], pa.indices(0, 1, 2, 3, 4)), [True] * 5, "five pages of KV")
out = a.batch_set_v2([fake.PoolTransfer(SWA, swa.indices(0, 1, 3, 4), keys=[keys[i] for i in (0, 1, 3, 4)]),
                      fake.PoolTransfer(MAMBA, mamba.indices(2), keys=[keys[2]])])
is_(out, {SWA: [True] * 4, MAMBA: [True]}, "windows and a state, of another size")
is_(a.batch_exists_v2(keys), fake.PoolTransferResult(5, {KV: 5}, [1, 2, 3, 4, 5]), "KV alone")
swa_all = fake.PoolTransfer(SWA)
swa_two = fake.PoolTransfer(SWA, keys=keys[-2:], hit_policy=fake.PoolHitPolicy.TRAILING_PAGES)
state = fake.PoolTransfer(MAMBA, keys=keys[-1:], hit_policy=fake.PoolHitPolicy.TRAILING_PAGES)
is_(a.batch_exists_v2(keys, [swa_all]), fake.PoolTransferResult(2, {KV: 5, SWA: 2}, [1, 2]), "all pages")
is_(a.batch_exists_v2(keys, [swa_two]), fake.PoolTransferResult(5, {KV: 5, SWA: 5}, [1, 2, 5]), "the last two")
is_(a.batch_exists_v2(keys, [state]), fake.PoolTransferResult(3, {KV: 5, MAMBA: 3}, [3]), "a state")
is_(a.batch_exists_v2(keys, [swa_two, state]), fake.PoolTransferResult(0, {KV: 5, SWA: 5, MAMBA: 3}, []),
    "both: nowhere")
raises(ValueError, "block_groups", lambda: a.batch_exists_v2(
    keys, [fake.PoolTransfer(SWA, hit_policy=fake.PoolHitPolicy.BLOCK_GROUPS)]), "a policy that is not known")
out = a.batch_get_v2([fake.PoolTransfer(SWA, swa.indices(10, 11), keys=[keys[3], keys[2]]),
                      fake.PoolTransfer(MAMBA, mamba.indices(9), keys=[keys[2]]),
                      fake.PoolTransfer(KV, pa.indices(20), keys=[keys[0]]),
                      fake.PoolTransfer(fake.PoolName.INDEXER, [0], keys=[keys[0]])])
is_(out, {SWA: [True, False], MAMBA: [True], KV: [True], fake.PoolName.INDEXER: [False]}, "loaded, by pool")
is_((swa.read(10), mamba.read(9), pa.read(20)), (swa.read(3), mamba.read(2), pa.read(0)), "with their bytes")
is_(sum(e.digest == a.names.digests([keys[2]], MAMBA)[0] for e in a.store.c.walk()), 10, "a large one takes ten slots")
first = a.store.c.lookup(a.store._keys([a.names.digests([keys[2]], MAMBA)[0] + bytes([0, 0, 0, 1])]))
a.store.c.drop(first)
is_(a.batch_exists_v2(keys, [state]).kv_hit_pages, 0, "one of which is missing: a miss")
is_(held(a), (0, 0), "nothing is held")

# ---- threads ----

wrong = []


def work(k):
    pool = a.mem_pool_host
    for i in range(20):
        ks = [f"thread {k} {i % 3}"]
        pool.fill(24 + k, ks[0])
        a.batch_set_v1(ks, pool.indices(24 + k))
        want = pool.read(24 + k)
        pool.fill(24 + k, "-")
        if a.batch_get_v1(ks, pool.indices(24 + k)) == [True] and pool.read(24 + k) != want:
            wrong.append((k, i))


threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
for t in threads:
    t.start()
for t in threads:
    t.join()
is_((wrong, held(a)), ([], (0, 0)), "three threads at once")

# ---- a logical anchor ----

s = GPCStorage(fake.config({**EXTRA, "gpc_name": name + "-m"}))
s.register_mem_pool_host(fake.Anchor())
p = fake.HostPool(8, page=2048)
s.register_mem_host_pool_v2(p, SWA)
s.on_host_pools_registered()
is_(s.batch_set_v2([fake.PoolTransfer(SWA, p.indices(0, 1), keys=keys[:2])]), {SWA: [True, True]},
    "an anchor without pages")
is_(s.batch_exists_v2(keys, [swa_all]).kv_hit_pages, 2, "its other pools decide")
is_((s.batch_set_v1(keys[:2], p.indices(0, 1)), s.batch_get_v1(keys[:2], p.indices(0, 1))), ([True] * 2, [True] * 2),
    "and its own pages need no bytes")
s.close()

# ---- another process ----

pid = os.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, "-c", f"""
import sglang_fake as fake
fake.install()
from gpc.sglang import GPCStorage
p = fake.HostPool(32)
s = GPCStorage(fake.config({EXTRA!r}))
s.register_mem_pool_host(p)
good = s.batch_get_v1({keys[:2]!r}, p.indices(1, 2)) == [True, True] and p.read(1) == {pa.read(0)!r}
p.fill(5, "from the child")
good = good and s.batch_set_v1(["child"], p.indices(5)) == [True]
s.store.c.ticket_wait()
import os
os._exit(not good)                       # dies without a close
"""])
is_(os.waitpid(pid, 0)[1], 0, "another process finds the pages, and stores one")
pb.fill(0, "from the child")
is_((a.batch_get_v1(["child"], pa.indices(30)), pa.read(30)), ([True], pb.read(0)), "which stays when it dies")
is_(a.store.c.check(), 0, "all invariants hold")
a.close()
done()
