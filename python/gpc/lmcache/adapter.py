# SPDX-License-Identifier: Apache-2.0
# Tests: t/893-lmcache-adapter.t
"""GPCL2Adapter: LMCache's L2 on a gpc cache.  LMCache is imported here.

Lookups, locks and unlocks wait for nobody, so the calls that submit them carry them out.  Stores and loads copy in
threads.  A lock is a reference on each block of an object; a load takes references of its own.
"""

import itertools
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters import base
from lmcache.v1.platform import create_event_notifier

from ..engines.bytes import address_of, size_of
from ..engines.cache import POOL, open_cache
from ..engines.store import Store
from .config import Config
from .name import Names, cache_name, fingerprint
from .tasks import Tasks

log = logging.getLogger("lmcache.gpc")


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
        self.lock = threading.Lock()     # of what follows
        self.locked = {}                 # digest -> the pins of each lookup that locked it
        self.ids = itertools.count()
        self.stores, self.lookups, self.loads = (Tasks(create_event_notifier(), self.lock) for _ in range(3))
        self.threads = ThreadPoolExecutor(self.conf.threads, thread_name_prefix="gpc-l2")

    def get_store_event_fd(self):
        return self.stores.fileno()

    def get_lookup_and_lock_event_fd(self):
        return self.lookups.fileno()

    def get_load_event_fd(self):
        return self.loads.fileno()

    def _told(self, keys):
        """(places, digests) of the keys whose weights can be told."""
        all_ = [(i, self.names.digest(k)) for i, k in enumerate(keys)]
        return [i for i, d in all_ if d is not None], [d for _, d in all_ if d is not None]

    # ---- store ----

    def submit_store_task(self, keys, objects):
        task = next(self.ids)
        self.threads.submit(self._run_store, task, keys, objects)
        return task

    def _run_store(self, task, keys, objects):
        """A task succeeds when all of its objects are there.  One that does not may have stored some of them: LMCache
        may forget its own copies only of all or of none."""
        result = L2StoreResult(False, 0)
        try:
            result = self._store(keys, objects)
        except Exception:
            log.exception("gpc: store task %d", task)
        finally:
            self.stores.finish(task, result)

    def _store(self, keys, objects):
        at, digests = self._told(keys)
        held = [address_of(objects[i].byte_array) for i in at]
        parts = [p for _, p in held]
        fresh = set()
        done = self.store.put(digests, parts, fresh=fresh)
        new = [(keys[i], size_of(p)) for i, d, p in zip(at, digests, parts) if d in fresh]
        if new:
            self._notify_keys_stored([k for k, _ in new], [n for _, n in new])
        return L2StoreResult(len(at) == len(keys) and all(done), sum(n for _, n in new))

    def pop_completed_store_tasks(self):
        return self.stores.take_all()

    # ---- lookup and lock ----

    def submit_lookup_and_lock_task(self, keys, group_layout_descs):
        task, bits = next(self.ids), Bitmap(len(keys))
        try:
            at, digests = self._told(keys)
            pinned = self.store.pin(digests)
            with self.lock:
                for i, d, p in zip(at, digests, pinned):
                    if p is not None:
                        self.locked.setdefault(d, []).append(p)
                        bits.set(i)
        except Exception:
            log.exception("gpc: lookup task %d", task)
        self.lookups.finish(task, bits)
        return task

    def query_lookup_and_lock_result(self, task_id):
        return self.lookups.take(task_id)

    def submit_unlock(self, keys):
        """One lock of each key.  A release cannot fail but for a key that has none: that is left out."""
        pins, digests = [], self._told(keys)[1]
        with self.lock:
            for d in digests:
                if d in self.locked:
                    pins.append(self.locked[d].pop())
                    if not self.locked[d]:
                        del self.locked[d]
        self.store.release(pins)

    # ---- load ----

    def submit_load_task(self, keys, objects):
        task = next(self.ids)
        self.threads.submit(self._run_load, task, keys, objects)
        return task

    def _run_load(self, task, keys, objects):
        bits = Bitmap(len(keys))
        try:
            at, digests = self._told(keys)
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
        """Whoever stored them.  What somebody loads stays until that is done, but nobody finds it."""
        at, digests = self._told(keys)
        gone = [(keys[i], n) for i, n in zip(at, self.store.drop(digests)) if n is not None]
        if gone:
            self._notify_keys_deleted([k for k, _ in gone], [n for _, n in gone])

    def get_usage(self):
        """Of the cache, with what others have stored.  What gpc has evicted cannot be told by salt, so no salt is."""
        c = self.store.c
        return base.AdapterUsage(total_bytes_used=c.stats().live * self.conf.slot_bytes,
                                 total_capacity_bytes=c.pool_get(POOL).blocks * self.conf.slot_bytes)

    def report_status(self):
        info, stats = self.store.c.info(), self.store.c.stats()
        with self.lock:
            locked = sum(len(p) for p in self.locked.values())
        return {"is_healthy": info.writer_pid != 0, "type": "GPCL2Adapter", "name": self.name, "live": stats.live,
                "slots": self.store.c.pool_get(POOL).blocks, "available": self.store.c.pool_available(POOL),
                "locked": locked, **self.store.counts}

    def close(self):
        """Tasks under way are carried out first; locks end."""
        if self.store.c.closed:
            return
        self.threads.shutdown()
        with self.lock:
            pins, self.locked = [p for ps in self.locked.values() for p in ps], {}
        self.store.release(pins)
        self.store.close()
        for t in (self.stores, self.lookups, self.loads):
            t.close()
