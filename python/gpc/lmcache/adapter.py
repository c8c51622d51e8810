# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/store-below.t
"""GPCL2Adapter: LMCache's L2 on a gpc cache.  LMCache is imported here.

Locks and unlocks wait for nothing, so the submitting calls carry them out.  The same holds for lookups of objects that
are in RAM, or nowhere.  A thread ends a lookup of objects below RAM, when they have come or gpc_below_ms is over.
Stores and loads copy in other threads.  A lock is a reference on each block of an object; a load takes references of
its own.
"""

import itertools
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters import base
from lmcache.v1.platform import create_event_notifier

from ..engines.bytes import address_of, size_of
from ..engines.cache import POOL, open_cache
from ..engines.store import Store
from .chains import Chains
from .config import Config
from .feed import Feed
from .layouts import Layouts
from .name import Names, cache_name, digest, fingerprint
from .tasks import Tasks

log = logging.getLogger("lmcache.gpc")

_WAITING = 3                     # lookups that wait for tiers below RAM at a time
_WELL_USED = 75                  # % of a slot
_PIECES = 8                      # for objects whose slots waste more, a better size is looked for


def _used(size, slot):
    """The % of its slots that an object uses."""
    return 100 * size // (max(1, -(-size // slot)) * slot)


def _ill(info, stats, available, oldest, refused, conf):
    """The reason why this server cannot do its work, or nothing."""
    held = stats.refs_ns / 1e9
    if not info.writer_pid:
        return "the cache has no writer: nothing can be stored"
    if conf.lock_s and oldest > conf.lock_s:
        return f"a lock of this server is {oldest:.0f} s old, more than gpc_lock_s: nobody unlocks it"
    if not available and (refused or held > conf.wait_ms / 1000):
        return f"nothing can be stored: all slots are held, some for {held:.1f} s; gpc-inspect peers says by whom"
    return ""


class GPCL2Adapter(base.L2AdapterInterface):
    def __init__(self, params, l1_memory_desc=None):
        super().__init__()               # no capacity: gpc evicts, LMCache need not
        self.conf = Config(params)
        layout = fingerprint(self.conf)
        self.name = cache_name(self.conf, layout)
        self.names = Names(self.conf)
        self.store = Store(open_cache(self.name, self.conf, layout, self.conf.slot_bytes, 1, "lmcache", log),
                           self.conf)
        log.info("gpc: the cache is %s", self.name)
        self.layouts, self.chains = Layouts(), Chains()
        self.feed = Feed(self.store.c, self._notify_keys_stored, self._notify_keys_deleted)
        self.sizes = set()               # sizes of objects that the log has named
        self.lock = threading.Lock()     # guards the fields below
        self.locked = {}                 # name -> (when, its pins) for each lookup that locked it
        self.refused = False             # the last store that needed room found none
        self.writing = {}                # digest -> set when its store task has ended
        self.ids = itertools.count()
        self.stores, self.lookups, self.loads = (Tasks(create_event_notifier(), self.lock) for _ in range(3))
        self.threads = ThreadPoolExecutor(self.conf.threads, thread_name_prefix="gpc-l2")
        self.waiting = ThreadPoolExecutor(_WAITING, thread_name_prefix="gpc-l2-below")

    def get_store_event_fd(self):
        return self.stores.fileno()

    def get_lookup_and_lock_event_fd(self):
        return self.lookups.fileno()

    def get_load_event_fd(self):
        return self.loads.fileno()

    def _named(self, keys):
        """(places, names) of the keys whose weights can be told, in the order of their uses."""
        all_ = [(i, self.names.name(keys[i])) for i in self.chains.in_step(keys)]
        return [i for i, n in all_ if n is not None], [n for _, n in all_ if n is not None]

    def _digests(self, keys, objects):
        """(places, digests) of the keys whose weights can be told."""
        at, names = self._named(keys)
        return at, [digest(n, self.layouts.of_object(keys[i], objects[i])) for i, n in zip(at, names)]

    def _of_any_layout(self, keys):
        """(keys, digests) of all layouts that the cache has."""
        layouts = self.feed.read()
        at, names = self._named(keys)
        both = [(keys[i], digest(n, layout)) for i, n in zip(at, names) for layout in layouts]
        return [k for k, _ in both], [d for _, d in both]

    # ---- store ----

    def submit_store_task(self, keys, objects):
        task, done = next(self.ids), threading.Event()
        try:
            plan = self._plan(keys, objects, done)       # here, since it is of the order of tasks
        except Exception:
            log.exception("gpc: store task %d", task)
            self.stores.finish(task, L2StoreResult(False, 0))
        else:
            self.threads.submit(self._run_store, task, keys, plan, done)
        return task

    def _run_store(self, task, keys, plan, done):
        """A task succeeds when all of its objects are there.  A task that fails may have stored some of them: LMCache
        may forget its own copies only of all or of none."""
        result = L2StoreResult(False, 0)
        try:
            result = self._store(keys, *plan)
        except Exception:
            log.exception("gpc: store task %d", task)
        finally:
            done.set()
            with self.lock:
                for d in plan[1]:
                    if self.writing.get(d) is done:
                        del self.writing[d]
            self.stores.finish(task, result)

    def _plan(self, keys, objects, done):
        """(places, digests, objects, parents, tasks that write parents, objects to use afterwards): each one follows
        its parent."""
        at, digests = self._digests(keys, objects)
        held = [address_of(objects[i].byte_array) for i in at]
        order, parents, used = self.chains.of_store([keys[i] for i in at], digests)
        at, digests, held = ([x[i] for i in order] for x in (at, digests, held))
        with self.lock:
            before = {self.writing[p] for p in {*parents}.difference(digests) if p in self.writing}
            self.writing.update(dict.fromkeys(digests, done))
        return at, digests, held, parents, before, used

    def _store(self, keys, at, digests, held, parents, before, used):
        parts = [p for _, p in held]
        sizes, fresh = {d: size_of(p) for d, p in zip(digests, parts)}, set()
        self._tell_sizes(sizes.values())
        for i, d in zip(at, digests):
            self.feed.expect(d, keys[i], sizes[d], self.store.keys_of(d, sizes[d]))
        for task in before:              # earlier tasks, so a thread has them
            task.wait()
        try:
            self.store.touch(used)  # names of before: objects that were published in the same tick were not used since
            done = self._put(digests, parts, parents, fresh)
            self.store.touch(used)
            self.feed.read()             # before the objects that came stop being expected
        finally:
            for d in digests:
                self.feed.expect_no_more(d)
        return L2StoreResult(len(at) == len(keys) and all(done), sum(map(sizes.get, fresh)))

    def _put(self, digests, parts, parents, fresh):
        """An object cannot be stored after one that is missing, so it becomes the first of its chain."""
        others = [p for p in {*parents}.difference(digests) if p]
        pinned = self.store.pin(others, False)   # held, so that they stay
        try:
            gone = {p for p, there in zip(others, pinned) if there is None}
            done = self.store.put(digests, parts, [None if p in gone else p for p in parents], fresh)
            self.refused = not all(done)
            return done
        finally:
            self.store.release(pinned)

    def _tell_sizes(self, sizes):
        """Reports for each size once how well slots fit it."""
        have = self.conf.slot_bytes
        for size in set(sizes) - self.sizes:
            self.sizes.add(size)
            used = _used(size, have)
            log.info("gpc: objects of %d bytes take %d slots of %d bytes, of which they use %d %%", size,
                     self.store.slots.pieces(size), have, used)
            better = max((-(-(-(-size // n)) // 4096) * 4096 for n in range(1, _PIECES + 1)),
                         key=lambda slot: (_used(size, slot), slot))
            if used < _WELL_USED and _used(size, better) > used:
                log.warning("gpc: gpc_slot_bytes: %d: objects of %d bytes use %d %% of their slots; of %d it were "
                            "%d %%, in another cache and for all of its servers", have, size, used, better,
                            _used(size, better))

    def pop_completed_store_tasks(self):
        return self.stores.take_all()

    # ---- lookup and lock ----

    def submit_lookup_and_lock_task(self, keys, group_layout_descs):
        task, bits = next(self.ids), Bitmap(len(keys))
        try:
            at, names = self._named(keys)
            digests = [digest(n, self.layouts.of_lookup(keys[i], group_layout_descs)) for i, n in zip(at, names)]
            (pinned, question), until = self.store.ask(digests), self.store.deadline()
            if self.store.may_bring(digests, pinned):
                self.waiting.submit(self._run_lookup, task, bits, keys, at, names, digests, pinned, question, until)
                return task
            self.store.answered(digests, pinned, question)
            self._lock(bits, keys, at, names, digests, pinned)
        except Exception:
            log.exception("gpc: lookup task %d", task)
        self.lookups.finish(task, bits)
        return task

    def _run_lookup(self, task, bits, keys, at, names, digests, pinned, question, until):
        try:
            try:
                self.store.bring(digests, pinned, until)
                self.store.answered(digests, pinned, question)
            finally:
                self._lock(bits, keys, at, names, digests, pinned)
        except Exception:
            log.exception("gpc: lookup task %d", task)
        self.lookups.finish(task, bits)

    def _lock(self, bits, keys, at, names, digests, pinned):
        self.chains.of_lookup([keys[i] for i in at], digests, pinned)
        with self.lock:
            now = time.monotonic()
            for i, n, p in zip(at, names, pinned):
                if p is not None:
                    self.locked.setdefault(n, []).append((now, p))
                    bits.set(i)

    def query_lookup_and_lock_result(self, task_id):
        return self.lookups.take(task_id)

    def submit_unlock(self, keys):
        """Releases one lock of each key.  It cannot fail, but a key without a lock is left out."""
        pins, names = [], self._named(keys)[1]
        with self.lock:
            for n in names:
                if n in self.locked:
                    # the oldest of equals, so that the age is that of a lock that nobody releases
                    pins.append(self.locked[n].pop(0)[1])
                    if not self.locked[n]:
                        del self.locked[n]
        self.store.release(pins)

    # ---- load ----

    def submit_load_task(self, keys, objects):
        task = next(self.ids)
        self.threads.submit(self._run_load, task, keys, objects)
        return task

    def _run_load(self, task, keys, objects):
        bits = Bitmap(len(keys))
        try:
            at, digests = self._digests(keys, objects)
            held = [address_of(objects[i].byte_array) for i in at]
            done = [i for i, good in zip(at, self.store.get(digests, [p for _, p in held])) if good]
            for i in done:
                bits.set(i)
            if done:
                self._notify_keys_accessed([keys[i] for i in done])
        except Exception:
            log.exception("gpc: load task %d", task)
        finally:
            self.loads.finish(task, bits)

    def query_load_result(self, task_id):
        return self.loads.take(task_id)

    # ---- the rest ----

    def delete(self, keys):
        """Forgets them, whichever process stored them, with the objects that follow them in their prompts.  An object
        that is being loaded stays until that is done, but no lookup finds it."""
        keys, digests = self._of_any_layout(keys)
        ours = self.feed.known(digests)
        gone = [(k, n) for k, d, n in zip(keys, digests, self.store.drop(digests)) if n is not None and d not in ours]
        self.feed.read()
        self.feed.say_deleted([k for k, _ in gone], [n for _, n in gone])

    def get_memory_tags(self):
        """LMCache 0.5.7 asks for the RAM of this machine."""
        from lmcache.v1.distributed.api import MemoryResidency, MemorySegment, MemoryTags
        return MemoryTags(MemorySegment.DRAM, MemoryResidency.LOCAL)

    def submit_touch(self, keys):
        """LMCache 0.5.7 calls it for objects that it has found in its own memory: they become recent here too, and are
        not locked."""
        self.store.touch(self._of_any_layout(keys)[1])
        self._notify_keys_accessed(keys)

    def get_usage(self):
        """Counts of the cache, with the objects of other engines.  Evicted objects cannot be told apart by salt, so
        none are."""
        c = self.store.c
        return base.AdapterUsage(total_bytes_used=c.stats().live * self.conf.slot_bytes,
                                 total_capacity_bytes=c.pool_get(POOL).blocks * self.conf.slot_bytes)

    def report_status(self):
        info, stats = self.store.c.info(), self.store.c.stats()
        with self.lock:
            locked = sum(len(p) for p in self.locked.values())
            since = min((t for ps in self.locked.values() for t, _ in ps), default=None)
        oldest = time.monotonic() - since if since is not None else 0.0
        why = _ill(info, stats, self.store.c.pool_available(POOL), oldest, self.refused, self.conf)
        return {"is_healthy": not why, "why": why, "oldest_lock_s": round(oldest, 3),
                "oldest_held_s": round(stats.refs_ns / 1e9, 3), "type": "GPCL2Adapter", "name": self.name, "live": stats.live,
                "slots": self.store.c.pool_get(POOL).blocks, "available": self.store.c.pool_available(POOL),
                "locked": locked, **self.store.counts}

    def close(self):
        """Tasks under way are carried out first; locks end."""
        if self.store.c.closed:
            return
        self.waiting.shutdown()
        self.threads.shutdown()
        self.feed.close()
        with self.lock:
            pins, self.locked = [p for ps in self.locked.values() for _, p in ps], {}
        self.store.release(pins)
        self.store.close()
        for t in (self.stores, self.lookups, self.loads):
            t.close()
