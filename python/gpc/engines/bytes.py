# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/sglang-storage.t
"""Bytes at addresses: what an object of an engine is, and what lies in a slot.

An object is a list of (address, bytes).  It is cut into pieces that fit into a slot behind a header:

    | header of 64 | bytes of the piece | unused

The header is written last, behind the bytes, so a slot whose store was cut off never verifies.
"""

import ctypes
import struct

import gpc

_HEADER = struct.Struct("<4sI16sQQ")     # magic, CRC32C of the piece or 0, gpc key, bytes of the object, of the piece
_MAGIC = b"gpcE"
HEADER = 64


def address_of(buffer):
    """(what keeps it, [(address, bytes)]) of a writable buffer, and of a copy of another one."""
    view = memoryview(buffer)            # of any format: no cast, which refuses those of ctypes
    if view.readonly:
        view = memoryview(bytearray(view.tobytes()))
    keep = (ctypes.c_char * view.nbytes).from_buffer(view) if view.nbytes else view
    return keep, [(ctypes.addressof(keep), view.nbytes)] if view.nbytes else []


def size_of(parts):
    return sum(n for _, n in parts)


def copy(to, source):
    """Fill the one list of parts from the other, which has as many bytes.  Threads run meanwhile."""
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
        self.part = cache.pool_map(pool)[0]
        (run,) = cache.pool_runs(pool)
        self.base, self.stride, self.checksum = self.part.address + run.offset, run.slot_stride, checksum
        self.room = run.bytes - HEADER

    def pieces(self, total):
        return max(1, -(-total // self.room))

    def piece(self, slot, total, i):
        """The bytes of piece i of an object."""
        return self.base + slot * self.stride + HEADER, max(0, min(self.room, total - i * self.room))

    def _sum(self, at, n):
        return gpc.crc32c((ctypes.c_char * n).from_address(at)) if self.checksum and n else 0

    def clear(self, slot):
        ctypes.memset(self.base + slot * self.stride, 0, HEADER)

    def seal(self, slot, key, total, i):
        at, n = self.piece(slot, total, i)
        ctypes.memmove(at - HEADER, _HEADER.pack(_MAGIC, self._sum(at, n), key, total, n), _HEADER.size)

    def total(self, slot, key):
        """Bytes of the object that this slot has a piece of; -1: not of that key."""
        magic, _, of, total, _ = _HEADER.unpack(ctypes.string_at(self.base + slot * self.stride, _HEADER.size))
        return total if magic == _MAGIC and of == key and total < 1 << 50 else -1

    def good(self, slot, key, total, i):
        at, n = self.piece(slot, total, i)
        magic, crc, of, t, m = _HEADER.unpack(ctypes.string_at(at - HEADER, _HEADER.size))
        return (magic, of, t, m) == (_MAGIC, key, total, n) and (not self.checksum or crc == self._sum(at, n))
