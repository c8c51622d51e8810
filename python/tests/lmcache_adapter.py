# SPDX-License-Identifier: Apache-2.0
"""gpc.lmcache's adapter against the contract of L2AdapterInterface: tasks and their descriptors, locks, objects of
several slots, two processes, bad bytes, no room and configuration."""

import ctypes
import dataclasses
import inspect
import logging
import os
import select
import sys
import threading
import time

import lmcache_fake as fake

fake.install()

import gpc  # noqa: E402
from gpc.engines.config import ConfigError  # noqa: E402
from gpc.lmcache import GPCL2Adapter  # noqa: E402
from gpc.lmcache.chains import Chains  # noqa: E402
from gpc.lmcache.config import KEYS, Config  # noqa: E402
from gpc.lmcache.layouts import NONE  # noqa: E402
from gpc.lmcache.name import digest  # noqa: E402
from tap import _made, done, is_, name, ok, raises  # noqa: E402

PARAMS = {"gpc_name": name, "gpc_weights": "w1", "gpc_bytes": (64 + 16) * 8192, "gpc_slot_bytes": 8192,
          "gpc_free_target": -1, "gpc_wait_ms": 60000, "gpc_attach_ms": 60000}
_made.add(name)


def adapter(**more):
    return GPCL2Adapter({**PARAMS, **more}, l1_memory_desc=None)


def wait(fd):
    """The event of a task, and back to unsignalled."""
    if not select.select([fd], [], [], 60)[0]:
        raise TimeoutError("no event")
    os.eventfd_read(fd)


def store(a, keys, objects):
    task, done = a.submit_store_task(keys, objects), {}
    while not done:              # the event of a task that was taken before it may come first
        wait(a.get_store_event_fd())
        done = a.pop_completed_store_tasks()
    assert list(done) == [task]
    return done[task]


def bits(bitmap, n):
    return [i in bitmap.get_indices_list() for i in range(n)]


def lookup(a, keys, layouts={}):
    task = a.submit_lookup_and_lock_task(keys, layouts)
    wait(a.get_lookup_and_lock_event_fd())
    return bits(a.query_lookup_and_lock_result(task), len(keys))


def load(a, keys, objects):
    task = a.submit_load_task(keys, objects)
    wait(a.get_load_event_fd())
    return bits(a.query_load_result(task), len(keys))


def told(a, n):
    """Of the first n keys that listeners were told of, each by itself, in the order of the test's names; it waits for
    the thread that follows the events."""
    out = []
    while len(out) < n:
        a.feed.read()
        out = [(what, *one) for what, *lists in list(a.told) for one in zip(*lists)]
    return sorted(out, key=lambda t: (t[1].chunk_hash, t[0]))


def forget(a):
    """Until now."""
    a.feed.read()
    while a.feed.news or a.feed.telling:
        time.sleep(0.001)
    a.told.clear()


def held(a):
    a.store.c.ticket_wait()
    s = a.store.c.stats(a.store.c.info().peer)
    return s.refs, s.reserved


def keys_of(text, n, **more):
    return [fake.ObjectKey(f"{text} {i}".encode(), **more) for i in range(n)]


# ---- the interface ----

THEIRS = ("register_listener", "set_backend_identity", "supports_global_eviction", "list_l2_keys")
for n, f in vars(fake.L2AdapterInterface).items():
    if inspect.isfunction(f) and not n.startswith("_") and n not in THEIRS:
        is_(list(inspect.signature(getattr(GPCL2Adapter, n)).parameters), list(inspect.signature(f).parameters), n)
        ok(getattr(GPCL2Adapter, n) is not f, "is ours")

# ---- configuration ----

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpc/lmcache/README.md")) as f:
    page = f.read()
for n, k in KEYS.items():
    value = str(k.default).lower() if k.kind is bool else k.default
    ok(f"| `{n}` | {'needed' if k.needed else value if value != '' else ''}".rstrip() in page, f"{n} is on the page")
raises(ConfigError, "gpc_bytes: it is missing", lambda: Config({}), "a key that is needed")
raises(ConfigError, "bytes: there is no such key", lambda: Config({**PARAMS, "bytes": 1}), "a typing error")
raises(ConfigError, "multiple of 4096", lambda: Config({**PARAMS, "gpc_slot_bytes": 5000}), "an odd slot")
raises(ConfigError, "gpc_bytes: 4096, at least", lambda: adapter(gpc_name=name + "-d", gpc_bytes=4096),
       "too little memory")

# ---- store, lookup and lock, load, unlock ----

a, b = adapter(), adapter()
is_((a._max_capacity_bytes, a.store.c.pool_get(0).blocks), (0, 16),
    "the first one makes the cache, LMCache does not evict")
is_(len({f() for x in (a, b) for f in (x.get_store_event_fd, x.get_lookup_and_lock_event_fd, x.get_load_event_fd)}), 6,
    "descriptors differ")
keys = keys_of("one", 3)
objects = [fake.Memory(n, f"object {n} ") for n in (100, 8192 - 64, 20000)]
is_(lookup(a, keys), [False] * 3, "nothing is there")
is_(a.pop_completed_store_tasks(), {}, "no store is complete")
is_(store(a, keys, objects), 100 + 8128 + 20000, "stored: so many bytes")
is_(told(a, 3), [("stored", k, n) for k, n in zip(keys, (100, 8128, 20000))], "listeners are told")
is_(a.pop_completed_store_tasks(), {}, "the answer is had once")
is_((store(a, keys, objects), len(told(a, 3))), (0, 3), "what is there is not stored again")
more = keys[:1] + keys_of("none", 1) + keys[1:]
task = b.submit_lookup_and_lock_task(more, {})
wait(b.get_lookup_and_lock_event_fd())
is_(bits(b.query_lookup_and_lock_result(task), 4), [True, False, True, True], "another server finds them")
is_((b.query_lookup_and_lock_result(task), b.query_load_result(task)), (None, None), "the answer is had once")
is_(held(b), (5, 0), "each of their slots is locked")
a.store.c.evict(0, 16, timeout=100)
to = [fake.Memory(n) for n in (100, 8128, 20000)]
is_(load(b, keys, to), [True] * 3, "so it is not evicted, and loaded")
is_([t.read() for t in to], [o.read() for o in objects], "the bytes are these")
is_(b.told, [("accessed", keys)], "listeners are told")
is_(load(b, more[:2] + keys[1:2], [to[0], to[0], fake.Memory(5)]), [True, False, False],
    "what is missing or of another size is not")
is_(lookup(b, keys[:1]), [True], "a second lock")
b.submit_unlock(keys)
is_((held(b), b.report_status()["locked"]), ((1, 0), 1), "unlocked once")
b.submit_unlock(keys + keys_of("none", 1))
is_(held(b), (0, 0), "unlocked: what has no lock is left out")
a.store.c.evict(0, 16, timeout=100)
is_(lookup(b, keys), [False] * 3, "and can be evicted")

# ---- names ----

base = fake.ObjectKey(b"hash")
others = [dataclasses.replace(base, **{f: v}) for f, v in (
    ("chunk_hash", b"hasi"), ("model_name", "m2"), ("kv_rank", 1), ("object_group_id", 1), ("cache_salt", "s"))]
is_(len({a.names.name(k) for k in others + [base]}), 6, "each part of a key is part of its name")
s = adapter(gpc_name=name + "-m", gpc_weights="")
_made.add(name + "-m")
is_((store(s, [base], objects[:1]), lookup(s, [base]), load(s, [base], to[:1])), (-1, [False], [False]),
    "weights that cannot be told: nothing is cached")
s.delete([base])
s.close()
raises(gpc.Error, "layout", lambda: adapter(gpc_weights="w2"), "a cache of that name with other weights")

# ---- bad bytes ----

is_(store(a, keys, objects).is_successful(), True, "stored")
(block,) = a.store.c.lookup(a.store._keys([digest(a.names.name(keys[2]), NONE) + bytes([0, 0, 0, 2])]))
ctypes.memset(a.store.slots.piece(gpc.SLOT(block), 20000, 2)[0] + 7, 0xaa, 1)
blank = [fake.Memory(n) for n in (100, 8128, 20000)]
is_(lookup(b, keys), [True] * 3, "the third piece of an object changes")
is_(load(b, keys, blank), [True, True, False], "it is a miss")
is_(blank[2].read(), bytes(20000), "and its buffer is untouched")
b.submit_unlock(keys)
b.store.c.ticket_wait()
is_(lookup(a, keys), [True, True, False], "nobody finds it")
a.submit_unlock(keys)
is_(store(a, keys, objects), 20000, "it can be stored again")

# ---- delete, usage, status ----

forget(a)
a.delete(keys[1:] + keys_of("none", 1))
is_(told(a, 2), [("deleted", keys[1], 8128), ("deleted", keys[2], 20000)], "deleted, and told")
is_(lookup(a, keys), [True, False, False], "what is deleted is missing")
a.submit_unlock(keys)
used = b.get_usage()
is_((used.total_bytes_used, used.total_capacity_bytes, dict(used.bytes_by_cache_salt)), (8192, 16 * 8192, {}),
    "one slot of sixteen is used")
status = b.report_status()
is_((status["is_healthy"], status["live"], status["slots"], status["available"], status["bad"]), (True, 1, 16, 16, 1),
    "status")

# ---- room ----

many = keys_of("many", 8)
objects = [fake.Memory(3 * 8000, f"many {i} ") for i in range(8)]
is_(store(a, many, objects).is_successful(), False, "little room: LMCache keeps its own")
is_((lookup(b, many), a.store.counts["no_room"]), ([True] * 5 + [False] * 3, 3), "but the first ones are there")
to = [fake.Memory(3 * 8000) for _ in range(8)]
is_((load(b, many, to), [t.read() for t in to[:5]]), ([True] * 5 + [False] * 3, [o.read() for o in objects[:5]]),
    "and are loaded")
is_(store(a, keys[1:], [fake.Memory(8128), fake.Memory(20000)]).is_successful(), False, "all locked: there is no room")
b.submit_unlock(many)
is_((held(a), held(b)), ((0, 0), (0, 0)), "nothing is held")

# ---- dtypes and shapes: another one is another object ----

bf16, fp16 = (fake.MemoryLayoutDesc([(2, 1, 500)], [d]) for d in ("torch.bfloat16", "torch.float16"))
flat = fake.MemoryLayoutDesc([(2000,)], ["torch.uint8"])
typed = keys_of("typed", 1)
is_(store(a, typed, [fake.Memory(2000, "bf16 ", bf16)]), 2000, "an object of bfloat16")
is_(lookup(b, typed, {0: fp16}), [False], "an engine of float16 does not find it")
is_(load(b, typed, [fake.Memory(2000, "", fp16)]), [False], "nor load it")
is_(store(b, typed, [fake.Memory(2000, "fp16 ", fp16)]), 2000, "and stores its own")
to = [fake.Memory(2000, "", d) for d in (bf16, fp16)]
is_([lookup(a, typed, {0: d}) for d in (bf16, fp16)], [[True], [True]], "both are there")
is_([load(a, typed, [t])[0] and t.read()[:5] for t in to], [b"bf16 ", b"fp16 "], "each with its bytes")
a.submit_unlock(typed * 2)
is_((held(a), a.report_status()["locked"]), ((0, 0), 0), "an unlock names no layout")
one = fake.Memory(2000, "", fp16)
one.metadata.shapes = one.metadata.dtypes = None
is_(load(b, typed, [one]), [True], "one shape is a list of one")
forget(a)
forget(b)
fresh = adapter()
fresh.delete(typed)
is_([lookup(a, typed, {0: d}) for d in (bf16, fp16)], [[False], [False]], "a server deletes objects of all layouts")
is_([[t[0] for t in told(x, 1)] for x in (a, b)], [["deleted"]] * 2, "which those who stored them are told")
fresh.close()

packed = keys_of("packed", 1, model_name="packed")
is_((lookup(a, packed, {0: bf16}), store(a, packed, [fake.Memory(2000, "packed ", flat)])), ([False], 2000),
    "flat bytes, as LMCache's serde stores them")
is_((lookup(a, packed, {0: bf16}), load(a, packed, [fake.Memory(2000, "", flat)])), ([True], [True]),
    "have the layout that lookups name")
is_(lookup(b, packed, {0: fp16}), [False], "and no other")
a.submit_unlock(packed)
more = keys_of("more", 1, model_name="packed")
lookup(a, more, {0: fp16})
is_((store(a, more, [fake.Memory(2000, "packed ", flat)]), [lookup(a, more, {0: d}) for d in (bf16, fp16)]),
    (2000, [[False], [False]]), "where lookups name two, they are found by neither")
a.store.c.evict(0, 16, timeout=100)

# ---- a prompt goes from its end ----


def rest(a, keys):
    """Which of these are there."""
    found = lookup(a, keys)
    a.submit_unlock(keys)
    return found


def ranks(text, n):
    """Keys of two ranks, the rows of LMCache's lookups."""
    return [fake.ObjectKey(f"{text} {i}".encode(), kv_rank=r) for r in (0, 1) for i in range(n)]


def next_tick(key):
    """Uses within one tick of the cache's clock are equally recent: until the next one, by uses of this key."""
    d = digest(a.names.name(key), NONE)

    def now():
        a.store.touch([d])
        return next(e.stamp for e in a.store.c.walk() if e.digest == d) >> 10
    first = now()
    while now() == first:
        time.sleep(0.001)


def left(a, keys):
    """How many keys of each of two rows are there, without a use of them; None: not a prefix."""
    live = {e.digest for e in a.store.c.walk()}
    found = [digest(a.names.name(k), NONE) in live for k in keys]
    rows = found[:len(keys) // 2], found[len(keys) // 2:]
    return [None if sorted(r, reverse=True) != r else sum(r) for r in rows]


for size, slots in ((12000, 2), (8000, 1)):
    a.store.c.evict(0, 16, timeout=100)
    forget(a)
    prompt = ranks(f"prompt {slots}", 4)
    rest(a, prompt)
    for some in (prompt[:2], prompt[3:1:-1], prompt[4:]):    # of the second task the last one first
        ok(store(a, some, [fake.Memory(size, "prompt ") for _ in some]).is_successful(), f"stored, slots each: {slots}")
    next_tick(prompt[0])
    is_((left(a, prompt), rest(b, prompt)), ([4, 4], [True] * 8), "a prompt of two ranks, and it is looked up")
    for n in (3, 2, 1, 0):
        a.store.c.evict(0, 2 * slots, timeout=100)
        is_(left(a, prompt), [n, n], f"two objects less: its first {n} of each rank are left")
    is_({k.chunk_hash for w, k, _ in told(a, 16) if w == "deleted"}, {k.chunk_hash for k in prompt},
        "listeners are told of evictions")

# what no lookup has named
for tasks, text in (([6], "one task"), ([2, 2, 2], "tasks of 2")):
    a.store.c.evict(0, 16, timeout=100)
    alone, others, at = [fake.ObjectKey(f"{text} {i}".encode()) for i in range(6)], keys_of(f"beside {text}", 13), 0
    for n in tasks:
        if at:
            next_tick(alone[0])
        store(a, alone[at:at + n], [fake.Memory(8000, text) for _ in range(n)])
        at += n
    next_tick(alone[0])
    ok(store(a, others, [fake.Memory(8000, text) for _ in others]).is_successful(), f"stored without a lookup, {text}; then others")
    is_((rest(b, alone), rest(b, others)), ([True] * 3 + [False] * 3, [True] * 13), "the first ones are left, and nothing keeps the others out")
first, second = keys_of("first", 3), keys_of("second", 3)
lookup(a, first)
store(a, first[:1], [fake.Memory(8000, "first")])
a.store.c.evict(0, 16, timeout=100)
ok(store(a, first[1:], [fake.Memory(8000, "first") for _ in first[1:]]).is_successful() and rest(a, first) == [False, True, True],
   "behind one that is not there any more it is the first of its chain")
a.store.c.evict(0, 16, timeout=100)
put, begun = a.store.put, threading.Event()


def slowly(digests, *more):
    if digests[0] == digest(a.names.name(first[0]), NONE):
        begun.wait()
    return put(digests, *more)


a.store.put = slowly
lookup(a, first)
tasks = [a.submit_store_task([k], [fake.Memory(8000, "first")]) for k in first]
begun.set()
got = {}
while len(got) < 3:
    wait(a.get_store_event_fd())
    got.update(a.pop_completed_store_tasks())
a.store.put = put
is_([[k for k, d in zip(first, (digest(a.names.name(x), NONE) for x in first)) if (e.digest == d)][0].chunk_hash
     for e in sorted(a.store.c.walk(), key=lambda e: e.parent != bytes(16))][:1] +
    [sum(e.parent == bytes(16) for e in a.store.c.walk()), a.writing], [first[0].chunk_hash, 1, {}],
   "tasks that run at once are behind one another all the same")
a.store.c.evict(0, 16, timeout=100)
forget(a)
chain = Chains()
numbered = [b"%d" % i for i in range(200)]
is_(chain.of_store([first[0]] * 100, numbered[:100])[1:], ([None] * 100, numbered[36:100]), "so many are used once more")
chain.of_lookup([first[0]], [b"a"], [None])
is_(chain.of_store([first[0]] * 2, numbered[100:102])[2], numbered[100:102], "and none of before a lookup")

ring = Chains(2)
ring.of_lookup(prompt[:6:2], [b"a", b"b", b"c"], [None] * 3)
ring.of_lookup(prompt[:6:2], [b"c", b"a", b"b"], [None] * 3)
is_(sorted(ring.of_store(prompt[:6:2], [b"a", b"b", b"c"])[0]), [0, 1, 2], "a ring has some order")
is_(len(ring.before), 2, "and so many objects are remembered")

# ---- what others evict, and events that were missed ----

forget(a)
forget(b)
lost = keys_of("lost", 2)
ok(store(a, lost, [fake.Memory(100), fake.Memory(9000)]).is_successful(), "two objects")
b.delete(lost[1:])
is_((told(a, 3), told(b, 1)), ([("stored", lost[0], 100), ("deleted", lost[1], 9000), ("stored", lost[1], 9000)],
                               [("deleted", lost[1], 9000)]), "another server deletes one: both are told")
forget(a)


class Late:
    """The cache, of whose events too many were missed."""

    def __getattr__(self, n):
        return getattr(a.store.c, n)

    def event_read(self, cursor, n):
        a.feed.c = a.store.c
        b.delete(lost[:1])
        e = gpc.Stale("too late")
        e.cursor = a.store.c.event_read(gpc.FROM_NOW, 1)[1]
        raise e


a.feed.c = Late()
is_(told(a, 1), [("deleted", lost[0], 100)], "after too many events, what is there is compared")
is_((a.feed.objects, a.feed.pieces), ({}, {}), "and nothing of it is kept")

# ---- touch and tags, of 0.5.7 ----

has_tags = hasattr(fake.L2AdapterInterface, "get_memory_tags")      # of the interface that this runs over

tags = a.get_memory_tags() if has_tags else None
ok(not has_tags or (tags.segment.value, tags.residency.value) == ("dram", "local"), "RAM of this machine")
a.store.c.evict(0, 16, timeout=100)
three = keys_of("three", 3)
for k in three:
    lookup(a, [k])
    store(a, [k], [fake.Memory(100)])
forget(a)
next_tick(three[2])
b.submit_touch(three[:1])
is_(b.told[-1], ("accessed", three[:1]), "a touch is told")
a.store.c.evict(0, 1, timeout=100)
is_(rest(b, three), [True, False, True], "and what was not touched goes first")
a.store.c.pool_clear(0)
is_(told(a, 3), [("deleted", k, 100) for k in three], "a clear of all is told")

# ---- how well slots fit ----

lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
logging.getLogger("lmcache.gpc").addHandler(handler)
logging.getLogger("lmcache.gpc").setLevel(logging.INFO)
for n in (8001, 8200, 8001):
    store(a, keys_of(f"size {n}", 1), [fake.Memory(n)])
is_([x for x, _ in lines], ["INFO", "INFO", "WARNING"], "the size of objects is told once")
ok("objects of 8001 bytes take 1 slots of 8192 bytes, of which they use 97 %" in lines[0][1], "with its use")
ok("gpc_slot_bytes: 8192: objects of 8200 bytes use 50 % of their slots; of 12288 it were 66 %" in lines[2][1],
   "and with what is better")
logging.getLogger("lmcache.gpc").removeHandler(handler)

# ---- health ----

a.store.c.evict(0, 16, timeout=100)
h, w = GPCL2Adapter({**PARAMS, "gpc_wait_ms": 1, "gpc_lock_s": 100}), GPCL2Adapter({**PARAMS, "gpc_wait_ms": 600000})
kept = keys_of("kept", 16)
ok(store(a, kept, [fake.Memory(100) for _ in kept]).is_successful(), "all slots have an object")
s1, s2 = h.report_status(), a.report_status()
is_((s1["is_healthy"], s1["why"], s1["oldest_lock_s"], s2["is_healthy"]), (True, "", 0.0, True), "nothing is held: all servers are well")
lookup(a, kept)
while not h.report_status()["oldest_held_s"] > 0.2:      # the writer looks ten times a second
    time.sleep(0.01)
s1, s2 = h.report_status(), a.report_status()
is_((s1["is_healthy"], s1["available"], s1["locked"]), (False, 0, 0), "another server holds all: this one cannot store, and is not well")
ok("all slots are held" in s1["why"] and s2["oldest_lock_s"] > 0.1, "it says why; the other one says how old its locks are")
is_(w.report_status()["is_healthy"], True, "one that may wait for longer has not met that yet")
is_((store(w, keys_of("no room", 1), [fake.Memory(100)]).is_successful(), w.report_status()["is_healthy"]), (False, False), "a store of its own does")
w.close()
a.submit_unlock(kept[:1])
is_(h.report_status()["is_healthy"], True, "one slot can be had: it can")
lookup(h, kept[:1])
lookup(h, kept[:1])
h.locked = {n: [(t - 101, p) if i == 0 else (t, p) for i, (t, p) in enumerate(ps)] for n, ps in h.locked.items()}
s1 = h.report_status()
ok(not s1["is_healthy"] and "gpc_lock_s" in s1["why"], "a lock of its own that nobody unlocks")
h.submit_unlock(kept[:1])
is_((h.report_status()["is_healthy"] or "all slots" in h.report_status()["why"], h.report_status()["locked"]), (True, 1), "the oldest lock is unlocked first")
h.close()
a.submit_unlock(kept[1:])
is_(a.report_status()["is_healthy"], True, "nothing is held any more")

# ---- many tasks at once ----

a.store.c.evict(0, 16, timeout=100)
tasks = {a.submit_store_task([k], [o]): k for k, o in zip(many[:5], objects)}
got = {}
while len(got) < 5:
    wait(a.get_store_event_fd())
    got.update(a.pop_completed_store_tasks())
is_((set(got), all(r.is_successful() for r in got.values())), (set(tasks), True), "tasks are told by their number")

# ---- another process ----

r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(r)
    os.dup2(w, 1)
    os.execv(sys.executable, [sys.executable, "-c", f"""
import os, select, signal
import lmcache_fake as fake
fake.install()
from gpc.lmcache import GPCL2Adapter
a = GPCL2Adapter({PARAMS!r})
keys = [fake.ObjectKey(f"many {{i}}".encode()) for i in range(5)]
task = a.submit_lookup_and_lock_task(keys, {{}})
print(a.query_lookup_and_lock_result(task).bits, flush=True)
signal.pause()
"""])
os.close(w)
is_(os.fdopen(r).readline(), f"{[True] * 5}\n", "another process locks what this one has stored")
os.kill(pid, 9)
os.waitpid(pid, 0)
got = False
for _ in range(600):
    if got := store(a, keys_of("after", 1), [fake.Memory(16 * 8100)]).is_successful():
        break
ok(got, "it is killed: its locks end")

# ---- the end ----

lookup(a, keys_of("after", 1))
task = a.submit_load_task(keys_of("after", 1), [fake.Memory(16 * 8100)])
is_(a.store.c.check(), 0, "all invariants hold")
a.close()
is_((a.store.c.closed, bits(a.loads.answers[task], 1)), (True, [True]), "tasks under way are carried out")
a.close()
is_(held(b), (0, 0), "nothing is held")
is_(lookup(b, keys_of("after", 1)), [True], "what was stored stays")
b.close()
done()
