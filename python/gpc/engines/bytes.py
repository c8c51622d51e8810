# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/sglang-storage.t
"""Bytes at addresses: the bytes of an engine's object, and the bytes in a slot.

An object is a list of (address, bytes).  It is cut into pieces that fit into a slot.  Where a piece is shorter than the
slot, the rest keeps its old bytes.  The cache keeps two facts of a slot (gpc_seal): the sum of all of its bytes, and
the number of the object's bytes.  The sum begins with a word of the cache's layout.  Both go along to a disk or a
store.  A slot is sealed after its bytes are written, so a slot whose store was cut off never verifies.
"""

import ctypes

import gpc


def address_of(buffer):
    """(the object to keep alive, [(address, bytes)]) of a writable buffer, or of a copy of any other one."""
    view = memoryview(buffer)            # of any format: no cast, which refuses those of ctypes
    if view.readonly:
        view = memoryview(bytearray(view.tobytes()))
    keep = (ctypes.c_char * view.nbytes).from_buffer(view) if view.nbytes else view
    return keep, [(ctypes.addressof(keep), view.nbytes)] if view.nbytes else []


def size_of(parts):
    return sum(n for _, n in parts)


def copy(to, source):
    """Fills the one list of parts from the other, which has as many bytes.  Other threads run meanwhile."""
    to, source = [list(p) for p in reversed(to)], [list(p) for p in reversed(source)]
    while to and source:
        n = min(to[-1][1], source[-1][1])
        ctypes.memmove(to[-1][0], source[-1][0], n)
        for parts in (to, source):
            parts[-1][0] += n
            parts[-1][1] -= n
            if not parts[-1][1]:
                parts.pop()


class Slots:
    """The slots of one pool, mapped here."""

    def __init__(self, cache, pool, checksum):
        self.c, self.part, self.checksum = cache, cache.pool_map(pool)[0], checksum
        (run,) = cache.pool_runs(pool)
        self.base, self.stride, self.room = self.part.address + run.offset, run.slot_stride, run.bytes
        self.first = gpc.BLOCK(pool, 0)
        self.seed = int.from_bytes(cache.info().layout[:4], "little") | 1    # 0 stands for no object
        cache.pool_seed(pool, 0, self.seed)

    def pieces(self, total):
        return max(1, -(-total // self.room))

    def piece(self, slot, total, i):
        """The bytes of piece i of an object."""
        return self.base + slot * self.stride, max(0, min(self.room, total - i * self.room))

    def _sum(self, slot):
        return gpc.crc32c((ctypes.c_char * self.room).from_address(self.base + slot * self.stride), self.seed)

    def seal(self, slots, keys, total):
        """Seals all pieces of an object, after their bytes were written."""
        flags = 0 if self.checksum else gpc.SEAL_UNSUMMED
        self.c.seal([self.first + s for s in slots], keys,
                    [gpc.Sum(self._sum(s) if self.checksum else 0, self.seed, flags, 0, total) for s in slots])

    def _sealed(self, slot, key):
        (s,) = self.c.sealed([self.first + slot], key)
        return s

    def total(self, slot, key):
        """The size of the object that this slot has a piece of; -1: the slot is not of that key."""
        s = self._sealed(slot, key)
        return s.word if not s.result and s.seed == self.seed and s.word < 1 << 50 else -1

    def good(self, slot, key, total):
        s = self._sealed(slot, key)
        if s.result or (s.seed, s.word) != (self.seed, total):
            return False
        return not self.checksum or not s.flags and s.crc == self._sum(slot)
