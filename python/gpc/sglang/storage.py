# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/store-below.t
"""GPCStorage: HiCache's storage on a gpc cache.  SGLang is imported here.

The threads of SGLang that prefetch and back up call it at the same time.  The cache is opened when the host pool is
known, since its slots have the size of a page.
"""

import json
import logging

from sglang.srt.mem_cache import hicache_storage as api

from ..engines.cache import open_cache
from ..engines.config import ConfigError
from ..engines.namespace import Namespace
from ..engines.store import Store
from ..engines.weights import weights_of
from . import engine
from .config import Config
from .name import Names, cache_name, fingerprint
from .pages import Pages, tensor_parts

log = logging.getLogger("sglang.gpc")

_left = {}                       # key -> salt of a closed storage: SGLang detaches and attaches one, and its
                                 # weights stay the same


class GPCStorage(api.HiCacheStorage):
    def __init__(self, storage_config, kwargs=None):
        self.config = storage_config
        self.conf = Config(storage_config.extra_config or {})
        self.weights = weights_of(storage_config.model_name or "", self.conf.weights)
        self.args = engine.server_args()
        if self.args is None:
            log.warning("gpc: SGLang does not tell its arguments: give engines with other --json-model-override-args, "
                        "--quantization, --kv-cache-dtype or --revision another gpc_weights")
        self.names = Names(storage_config)
        self.who = json.dumps([self.conf.name, storage_config.model_name, self.names.own,
                               getattr(storage_config, "dp_rank", 0)])
        self.namespace = Namespace(self.conf.version_file, log, random=engine.common_random(log))
        self.namespace.salt = self.namespace.salt or _left.pop(self.who, b"")
        self.names.salt = self.namespace.salt
        self.registered_pools, self.pages, self.store = {}, {}, None

    # ---- host pools ----

    def register_mem_pool_host(self, mem_pool_host):
        self.mem_pool_host = mem_pool_host
        self.pages[api.PoolName.KV] = Pages(mem_pool_host)
        self._open(self.pages[api.PoolName.KV])

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        self.registered_pools[host_pool_name] = host_pool
        pages = self.pages[host_pool_name] = Pages(host_pool, host_pool_name)
        self.names.meanings[str(host_pool_name)] = {
            **pages.meaning(), "draft": engine.draft(self.args) if "draft" in str(host_pool_name) else None}

    def on_host_pools_registered(self):
        """Where the first pool has no bytes of its own, the largest of the others gives the slots their size."""
        self._open(max(self.pages.values(), key=lambda p: p.bytes))

    def _open(self, pages):
        host_pool, n = pages.pool, pages.bytes
        if self.store or not n:
            return
        layout = fingerprint(self.config, self.weights, pages, engine.meaning(self.config, self.args))
        name = cache_name(self.conf, layout)
        log.info("gpc: the cache is %s, of pages of %d bytes", name, n)
        tokens = getattr(host_pool, "page_size", 1) or 1
        self.store = Store(open_cache(name, self.conf, layout, n, tokens,
                                      f"sglang {self.config.pp_rank}.{self.config.tp_rank}", log), self.conf)

    def _ready(self):
        if not self.store:
            raise ConfigError("gpc.sglang: no host pool with pages of its own was registered")
        return self.store

    # ---- one pool, by the indices of its pages ----

    def _empty(self, pool):
        """A logical anchor, whose pages have no bytes: there is nothing to bring."""
        return pool in self.pages and not self.pages[pool].bytes

    def _get(self, pool, keys, host_indices):
        if self._empty(pool):
            return [True] * len(keys)
        got = self.pages[pool].targets(len(keys), host_indices) if pool in self.pages else None
        if got is None:
            return self._wrong("get", pool, keys, host_indices)
        finish, parts = got
        done = self._ready().get(self.names.digests(keys, pool), parts)
        for i, good in enumerate(done):
            if good and finish:
                finish(i)
        return done

    def _set(self, pool, keys, host_indices, chained=False, extra_info=None):
        if self._empty(pool):
            return [True] * len(keys)
        got = self.pages[pool].sources(len(keys), host_indices) if pool in self.pages else None
        if got is None:
            return self._wrong("set", pool, keys, host_indices)
        keep, parts = got
        done = self._put(pool, keys, parts, chained, extra_info)
        del keep                         # the parts had to stay until here
        return done

    def _put(self, pool, keys, parts, chained, extra_info=None):
        prefix = getattr(extra_info, "prefix_keys", None)
        digests = self.names.digests(keys, pool)
        before = self.names.digests(prefix[-1:], pool) if prefix else [None]
        return self._ready().put(digests, parts, (before + digests)[:-1] if chained else None)

    def _wrong(self, what, pool, keys, host_indices):
        if keys:
            log.error("gpc: %s: %d keys and %d indices for pool %s; it is registered: %s", what, len(keys),
                      0 if host_indices is None else len(host_indices), pool, pool in self.pages)
        return [False] * len(keys)

    # ---- version 1 ----

    def batch_exists(self, keys, extra_info=None):
        found = self._ready().exists(self.names.digests(keys))
        return found.index(False) if False in found else len(found)

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        return self._get(api.PoolName.KV, keys, host_indices)

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        return self._set(api.PoolName.KV, keys, host_indices, True, extra_info)

    # ---- version 2 ----

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        if self._empty(api.PoolName.KV):
            kv = len(keys)               # a logical anchor: its other pools decide
        else:
            kv = self.batch_exists(keys, extra_info)
        hits, may = ({api.PoolName.KV: kv} if kv else {}), set(range(1, kv + 1))
        for t in pool_transfers or []:
            if not may:
                break
            found = self._ready().exists(self.names.digests(keys[:kv], t.name))
            legal = _legal(found, t)
            if legal:
                hits[t.name] = max(legal)
            may &= legal
        return api.PoolTransferResult(max(may, default=0), hits, sorted(may))

    def batch_get_v2(self, transfers, extra_info=None):
        return {t.name: self._get(t.name, t.keys or [], _indices(t)) for t in transfers}

    def batch_set_v2(self, transfers, extra_info=None):
        """Pages of these pools are stored each by itself, since states and windows have holes."""
        return {t.name: self._set(t.name, t.keys or [], _indices(t)) for t in transfers}

    # ---- without indices: tensors of the caller ----

    def get(self, key, target_location=None, target_sizes=None):
        return self.batch_get([key], None if target_location is None else [target_location])[0]

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        if target_locations is None:
            return [self._new_tensor(d) for d in self.names.digests(keys)]
        done = self._ready().get(self.names.digests(keys), [tensor_parts(t) for t in target_locations])
        return [t if good else None for t, good in zip(target_locations, done)]

    def _new_tensor(self, digest):
        pinned = self._ready().pin([digest])
        try:
            if pinned[0] is None:
                return None
            import torch
            t = torch.empty(self.store.size(digest, pinned[0]), dtype=torch.uint8)
            return t if self.store.get([digest], [tensor_parts(t)])[0] else None
        finally:
            self.store.release(pinned)

    def set(self, key, value=None, target_location=None, target_sizes=None):
        return self.batch_set([key], [value if value is not None else target_location])

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        flat = [t.contiguous() for t in (values if values is not None else target_locations)]
        return all(self._put(api.PoolName.KV, keys, [tensor_parts(t) for t in flat], len(keys) > 1))

    def exists(self, key):
        return self._ready().exists(self.names.digests([key]))[0]

    # ---- the rest ----

    def clear(self):
        """The weights are others from now on, or may be.  No page of before is found here, and no engine with other
        weights finds later pages.  Others use the cache, so it is not emptied.  gpc_reset=tag forgets the pages with
        our tag."""
        store = self._ready()
        whose = self.namespace.reset()
        self.names.salt = self.namespace.salt
        log.info("gpc: clear: this engine's namespace in the cache is %s from now on; others keep theirs", whose)
        if self.conf.reset == "tag":
            store.clear()
        return True

    def close(self):
        if self.namespace.salt:
            _left[self.who] = self.namespace.salt
        if self.store:
            self.store.close()


def _indices(transfer):
    return transfer.host_indices if transfer.host_indices is not None else []


def _legal(found, transfer):
    """Lengths of the prefix that this pool can restore."""
    if transfer.hit_policy == api.PoolHitPolicy.ALL_PAGES:
        return set(range(1, (found.index(False) if False in found else len(found)) + 1))
    if transfer.hit_policy == api.PoolHitPolicy.TRAILING_PAGES:
        window = max(1, len(transfer.keys or ()))
        return {n for n in range(1, len(found) + 1) if all(found[max(0, n - window):n])}
    raise ValueError(f"gpc: pool {transfer.name}: hit policy {transfer.hit_policy.value}, "
                     "all_pages or trailing_pages is wanted")
