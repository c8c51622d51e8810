# SPDX-License-Identifier: Apache-2.0
"""gpc.lmcache's adapter against the contract of L2AdapterInterface: tasks and their descriptors, locks, objects of
several slots, two processes, bad bytes, no room and configuration."""

import ctypes
import dataclasses
import inspect
import os
import select
import sys

import lmcache_fake as fake

fake.install()

import gpc  # noqa: E402
from gpc.engines.config import ConfigError  # noqa: E402
from gpc.lmcache import GPCL2Adapter  # noqa: E402
from gpc.lmcache.config import KEYS, Config  # noqa: E402
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


def lookup(a, keys):
    task = a.submit_lookup_and_lock_task(keys, {})
    wait(a.get_lookup_and_lock_event_fd())
    return bits(a.query_lookup_and_lock_result(task), len(keys))


def load(a, keys, objects):
    task = a.submit_load_task(keys, objects)
    wait(a.get_load_event_fd())
    return bits(a.query_load_result(task), len(keys))


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
is_(a.told, [("stored", keys, [100, 8128, 20000])], "listeners are told")
is_(a.pop_completed_store_tasks(), {}, "the answer is had once")
is_((store(a, keys, objects), len(a.told)), (0, 1), "what is there is not stored again")
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
is_(len({a.names.digest(k) for k in others + [base]}), 6, "each part of a key is part of its name")
s = adapter(gpc_name=name + "-m", gpc_weights="")
_made.add(name + "-m")
is_((store(s, [base], objects[:1]), lookup(s, [base]), load(s, [base], to[:1])), (-1, [False], [False]),
    "weights that cannot be told: nothing is cached")
s.delete([base])
s.close()
raises(gpc.Error, "layout", lambda: adapter(gpc_weights="w2"), "a cache of that name with other weights")

# ---- bad bytes ----

is_(store(a, keys, objects).is_successful(), True, "stored")
digest = a.names.digest(keys[2])
(block,) = a.store.c.lookup(a.store._keys([digest + bytes([0, 0, 0, 2])]))
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

a.told.clear()
a.delete(keys[1:] + keys_of("none", 1))
is_(a.told, [("deleted", keys[1:], [8128, 20000])], "deleted, and told")
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

# ---- many tasks at once ----

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
