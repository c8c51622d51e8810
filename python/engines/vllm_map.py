# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest for vLLM's own tests: what its BlockPool knows of cached blocks is a gpc cache.

The engine keeps its allocator and its order of eviction, as doc/engine.md's "An engine with blocks of its own" says: each
pool is one of GPC_POOL_CALLER.  A hash that vLLM caches is published, one that it forgets is dropped, and a lookup is
one of gpc.  gpc has one block for a key and one key for a block; what vLLM has beyond that waits here until it can be
published.
"""

import hashlib
import os
import weakref
from itertools import count

import gpc
import pytest
from vllm.v1.core import block_pool
from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id

BLOCKS = 1 << 15                 # of one cache; some tests have pools of 10000
_numbers = count()
totals = {"caches": 0, "published": 0, "found": 0, "missed": 0, "dropped": 0, "others": 0}


class Poked(dict):
    """BlockHashToBlockMap._cache, which tests read, and which some change."""

    def __init__(self, owner, *args):
        super().__init__(*args)
        self.owner = owner

    def __copy__(self):
        return dict(self)

    def pop(self, key, *default):
        for block in self.owner.blocks_of(key):
            self.owner.pop(key, block.block_id)
        return super().pop(key, *default)

    def clear(self):
        for key in list(self):
            self.pop(key)

    def __setitem__(self, key, value):
        for block in value.values() if isinstance(value, dict) else [value]:
            self.owner.insert(key, block)
        super().__setitem__(key, value)


class Map(block_pool.BlockHashToBlockMap):
    def __init__(self):
        name = f"{os.environ.get('GPC_T_CACHE', 'vllm-map')}-{os.getpid()}-{next(_numbers)}"
        self.c = gpc.create(name, serve=True, max_blocks=BLOCKS, block_tokens=16)
        gpc.unlink(name)
        weakref.finalize(self, self.c.close)
        self.pool = self.c.pool_add(kind=gpc.VRAM, blocks=BLOCKS, flags=gpc.POOL_CALLER)
        self.blocks = {}         # number -> vLLM's object; the numbers are gpc's answers
        self.key_of = {}         # number -> the hash that it was published with
        self.others = {}         # hash -> {number: object}: duplicates, and second hashes of a block
        totals["caches"] += 1

    @staticmethod
    def _cut(hash):
        """Tests have hashes of any length."""
        h = get_block_hash(hash)
        return h if len(h) == 32 else hashlib.sha256(h).digest()

    def _key(self, hash):
        return self.c.key_import(self._cut(hash), size=32, group=get_group_id(hash))

    def _first(self, key):
        """The block that gpc has for it."""
        (found,) = self.c.lookup(self._key(key))
        return self.blocks[gpc.SLOT(found)] if found >= 0 else None

    def get_one_block(self, key):
        blocks = self.blocks_of(key)
        totals["found" if blocks else "missed"] += 1
        return blocks[0] if blocks else None

    def blocks_of(self, key):
        first = self._first(key)
        return ([first] if first else []) + list(self.others.get(key, {}).values())

    def contain(self, key, block_id):
        return any(b.block_id == block_id for b in self.blocks_of(key))

    def insert(self, key, block):
        n = block.block_id
        self.blocks[n] = block
        if self._first(key) or n in self.key_of:
            self.others.setdefault(key, {})[n] = block
            totals["others"] += 1
        else:
            self._publish(key, n)

    def _publish(self, key, n):
        id = gpc.BLOCK(self.pool, n)
        got = self.c.publish(None, self._key(key), [id], flags=gpc.NO_REF, resident=True)
        if got != [id]:
            raise AssertionError(f"publish of block {n}: {got}")
        self.key_of[n] = key
        totals["published"] += 1

    def pop(self, key, block_id):
        if self.key_of.get(block_id) != key:
            return self._forget(key, block_id)
        if self.c.drop([gpc.BLOCK(self.pool, block_id)]) != 1:
            raise AssertionError(f"block {block_id} was not live")
        del self.key_of[block_id]
        totals["dropped"] += 1
        heir = next((n for n in self.others.get(key, ()) if n not in self.key_of), None)
        if heir is not None:
            self._forget(key, heir)
            self._publish(key, heir)
        return self.blocks[block_id]

    def _forget(self, key, n):
        others = self.others.get(key, {})
        block = others.pop(n, None)
        if not others:
            self.others.pop(key, None)
        return block

    def _keys(self):
        return dict.fromkeys([*self.key_of.values(), *self.others])

    @property
    def _cache(self):
        out = {}
        for key in self._keys():
            some = self.blocks_of(key)
            out[key] = some[0] if len(some) == 1 else {b.block_id: b for b in some}
        return Poked(self, out)

    def __len__(self):
        if self.c.stats().live != len(self.key_of):
            raise AssertionError(f"{self.c.stats().live} keys are live, {len(self.key_of)} were published")
        return len(self._keys())


block_pool.BlockHashToBlockMap = Map


def pytest_collection_modifyitems(items):
    for i in items:
        i.add_marker(pytest.mark.skip_global_cleanup)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line("gpc: " + ", ".join(f"{v} {k}" for k, v in totals.items()))
