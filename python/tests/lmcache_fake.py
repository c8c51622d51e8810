# SPDX-License-Identifier: Apache-2.0
"""The part of LMCache's interface that gpc.lmcache is made for, with the same names and signatures: what is abstract
there is abstract here.  And objects without torch."""

import abc
import ctypes
import dataclasses
import enum
import os
import sys
import types
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class ObjectKey:
    chunk_hash: bytes
    model_name: str = "model"
    kv_rank: int = 0
    object_group_id: int = 0
    cache_salt: str = ""


class Bitmap:
    def __init__(self, size, prefix_bits=0):
        self.bits = [i < prefix_bits for i in range(size)]

    def set(self, index):
        self.bits[index] = True

    def get_indices_list(self):
        return [i for i, b in enumerate(self.bits) if b]


class L2StoreResult(int):
    def __new__(cls, success, bytes_transferred):
        return super().__new__(cls, bytes_transferred if success else -1)

    def is_successful(self):
        return int(self) >= 0

    def bytes_transferred(self):
        return max(0, int(self))


class AdapterUsage(NamedTuple):
    total_bytes_used: int
    total_capacity_bytes: int
    bytes_by_cache_salt: dict = {}


class Notifier:
    def __init__(self):
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self):
        return self.fd

    def notify(self):
        os.eventfd_write(self.fd, 1)

    def close(self):
        os.close(self.fd)


class L2AdapterInterface(abc.ABC):
    def __init__(self, max_capacity_bytes=0):
        self._max_capacity_bytes, self.told = max_capacity_bytes, []

    @abc.abstractmethod
    def get_store_event_fd(self): ...
    @abc.abstractmethod
    def get_lookup_and_lock_event_fd(self): ...
    @abc.abstractmethod
    def get_load_event_fd(self): ...
    @abc.abstractmethod
    def submit_store_task(self, keys, objects): ...
    @abc.abstractmethod
    def pop_completed_store_tasks(self): ...
    @abc.abstractmethod
    def submit_lookup_and_lock_task(self, keys, group_layout_descs): ...
    @abc.abstractmethod
    def query_lookup_and_lock_result(self, task_id): ...
    @abc.abstractmethod
    def submit_unlock(self, keys): ...
    @abc.abstractmethod
    def submit_load_task(self, keys, objects): ...
    @abc.abstractmethod
    def query_load_result(self, task_id): ...
    @abc.abstractmethod
    def close(self): ...
    @abc.abstractmethod
    def get_memory_tags(self): ...

    def submit_touch(self, keys):
        self._notify_keys_accessed(keys)

    def delete(self, keys): ...
    def get_usage(self): ...
    def report_status(self): ...

    def _notify_keys_stored(self, keys, sizes):
        self.told.append(("stored", keys, sizes))

    def _notify_keys_accessed(self, keys):
        self.told.append(("accessed", keys))

    def _notify_keys_deleted(self, keys, sizes):
        self.told.append(("deleted", keys, sizes))


class MemorySegment(str, enum.Enum):
    DRAM = "dram"


class MemoryResidency(str, enum.Enum):
    LOCAL = "local"


@dataclasses.dataclass(frozen=True)
class MemoryTags:
    segment: MemorySegment
    residency: MemoryResidency


@dataclasses.dataclass
class MemoryLayoutDesc:
    shapes: list
    dtypes: list


def install():
    """Put it where gpc.lmcache imports it from."""
    for path, has in {"lmcache.lmcache_native": {"Bitmap": Bitmap},
                      "lmcache.v1.distributed.api": {c.__name__: c for c in (
                          ObjectKey, MemorySegment, MemoryResidency, MemoryTags, MemoryLayoutDesc)},
                      "lmcache.v1.distributed.internal_api": {"L2StoreResult": L2StoreResult},
                      "lmcache.v1.distributed.l2_adapters.base": {"L2AdapterInterface": L2AdapterInterface,
                                                                  "AdapterUsage": AdapterUsage},
                      "lmcache.v1.platform": {"create_event_notifier": Notifier}}.items():
        whole = ""
        for part in path.split("."):
            parent, whole = whole, (whole + "." + part).lstrip(".")
            if whole not in sys.modules:
                sys.modules[whole] = types.ModuleType(whole)
                if parent:
                    setattr(sys.modules[parent], part, sys.modules[whole])
        for n, what in has.items():
            setattr(sys.modules[path], n, what)


class Memory:
    """As MemoryObj: byte_array is a view of a ctypes array at its address."""

    def __init__(self, n, text="", layout=None):
        if layout:
            self.metadata = types.SimpleNamespace(shapes=layout.shapes, dtypes=layout.dtypes, shape=layout.shapes[0],
                                                  dtype=layout.dtypes[0])
        self.own = (ctypes.c_ubyte * n)()
        if text:
            ctypes.memmove(self.own, (text * n)[:n].encode(), n)

    @property
    def byte_array(self):
        return memoryview(self.own)

    def read(self):
        return bytes(self.own)
