# SPDX-License-Identifier: Apache-2.0
"""The part of SGLang's interface that gpc.sglang is made for, with the same names and signatures: what is abstract
there is abstract here.  And host pools without torch."""

import abc
import ctypes
import dataclasses
import enum
import sys
import types
from typing import Any


class PoolName(str, enum.Enum):
    KV, MAMBA, SWA, INDEXER = "kv", "mamba", "swa", "indexer"

    def __str__(self):
        return self.value


class PoolHitPolicy(str, enum.Enum):
    ALL_PAGES, TRAILING_PAGES, BLOCK_GROUPS = "all_pages", "trailing_pages", "block_groups"


@dataclasses.dataclass
class PoolTransfer:
    name: PoolName
    host_indices: Any = None
    device_indices: Any = None
    keys: Any = None
    hit_policy: PoolHitPolicy = PoolHitPolicy.ALL_PAGES


@dataclasses.dataclass
class PoolTransferResult:
    kv_hit_pages: int
    extra_pool_hit_pages: dict
    restorable_prefix_pages: Any = None


class HiCacheStorage(abc.ABC):
    def register_mem_pool_host(self, mem_pool_host): ...
    def register_mem_host_pool_v2(self, host_pool, host_pool_name): ...
    def on_host_pools_registered(self): ...
    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None): ...
    def batch_get_v2(self, transfers, extra_info=None): ...
    def batch_set_v2(self, transfers, extra_info=None): ...
    def batch_get_v1(self, keys, host_indices, extra_info=None): ...
    def batch_set_v1(self, keys, host_indices, extra_info=None): ...
    @abc.abstractmethod
    def get(self, key, target_location=None, target_sizes=None): ...
    @abc.abstractmethod
    def batch_get(self, keys, target_locations=None, target_sizes=None): ...
    @abc.abstractmethod
    def set(self, key, value=None, target_location=None, target_sizes=None): ...
    @abc.abstractmethod
    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None): ...
    @abc.abstractmethod
    def exists(self, key): ...
    def batch_exists(self, keys, extra_info=None): ...
    def clear(self): ...

    def get_stats(self):
        return None


ARGS = types.SimpleNamespace(json_model_override_args="{}", dtype="auto", quantization=None, kv_cache_dtype="auto",
                             revision=None, load_format="auto")


def install():
    """Put it where gpc.sglang imports it from, and the two names of torch that it needs."""
    whole = ""
    for part in "sglang.srt.mem_cache.hicache_storage".split("."):
        parent, whole = whole, (whole + "." + part).lstrip(".")
        sys.modules[whole] = types.ModuleType(whole)
        if parent:
            setattr(sys.modules[parent], part, sys.modules[whole])
    for c in (PoolName, PoolHitPolicy, PoolTransfer, PoolTransferResult, HiCacheStorage):
        setattr(sys.modules[whole], c.__name__, c)
    sys.modules["sglang.srt.runtime_context"] = ns(get_server_args=lambda: ARGS)
    sys.modules["torch"] = types.SimpleNamespace(empty=lambda n, dtype: Tensor(n), uint8=None)


def ns(**more):
    return types.SimpleNamespace(**more)


def config(extra, rank=0, size=1, mla=False, **more):
    """As SGLang's HiCacheStorageConfig."""
    base = dict(tp_rank=rank, tp_size=size, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=mla,
                enable_storage_metrics=False, is_page_first_layout=True, model_name="model", extra_config=extra,
                dp_rank=0, dcp_size=1, dcp_rank=0)
    base.update(more)
    return ns(**base)


class Tensor:
    """Flat bytes."""

    def __init__(self, n):
        self.bytes = bytearray(n)
        self.keep = (ctypes.c_char * n).from_buffer(self.bytes)

    def data_ptr(self):
        return ctypes.addressof(self.keep)

    def numel(self):
        return len(self.bytes)

    def element_size(self):
        return 1

    def contiguous(self):
        return self


class HostPool:
    """K and V of `pages` pages of `page_size` tokens, one after the other for each, as SGLang's page_first; layers are
    apart in layer_first; "no addresses" is a layout that does not tell them, "no flat pages" one of page_first that makes
    no tensor of a page, "unsupported" has neither."""

    def __init__(self, pages, page=1024, page_size=4, layout="page_first", dtype="bfloat16", device_dtype=None):
        self.dtype, self.device_pool = dtype, ns(dtype=device_dtype or dtype, store_dtype=dtype)
        self.page_size, self.page, self.layout, self.pages = page_size, page, layout, pages
        self.all = Tensor(pages * page)
        self.through = 0             # pages that went through a tensor

    def _runs(self, index):
        """(offset, bytes) of the pieces of a page."""
        i, n = index // self.page_size, 8 if self.layout == "layer_first" else 2
        piece = self.page // n
        return [(r * self.pages * piece + i * piece, piece) for r in range(n)]

    def get_page_buffer_meta(self, indices):
        if self.layout in ("no addresses", "unsupported"):
            raise ValueError("Unsupported layout")
        runs = [r for i in indices[::self.page_size] for r in self._runs(i)]
        return [self.all.data_ptr() + at for at, _ in runs], [n for _, n in runs]

    def get_dummy_flat_data_page(self):
        if self.layout == "no flat pages":
            raise NotImplementedError("head_dim != v_head_dim")
        return Tensor(self.page)

    def get_data_page(self, index, flat=True):
        if self.layout == "unsupported":
            raise ValueError("Unsupported layout: unsupported")
        self.through += 1
        t = Tensor(self.page)
        t.bytes[:] = self.read(index // self.page_size)
        return t

    def set_from_flat_data_page(self, index, data_page):
        self.through += 1
        self.write(index // self.page_size, bytes(data_page.bytes))

    # ---- the test's side ----

    def read(self, page):
        return b"".join(bytes(self.all.bytes[at:at + n]) for at, n in self._runs(page * self.page_size))

    def write(self, page, what):
        for at, n in self._runs(page * self.page_size):
            self.all.bytes[at:at + n], what = what[:n], what[n:]

    def fill(self, page, text):
        self.write(page, (text * self.page)[:self.page].encode())

    def indices(self, *pages):
        return [p * self.page_size + i for p in pages for i in range(self.page_size)]


class Anchor:
    """A host pool that only has indices."""
    page_size = 4

    def get_dummy_flat_data_page(self):
        return ns(data_ptr=lambda: 0, numel=lambda: 0, element_size=lambda: 1)

    def get_page_buffer_meta(self, indices):
        return None
