# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-worker.t
"""What lies in a slot: for each part a header, then for each part its bytes.

    | header 0 | header 1 | ... | pad | bytes of part 0 | bytes of part 1 | ... | pad to 4096

The bytes begin at a page, which a GPU reads faster, where that is little beside them; else at a line of 64 bytes.
A part is what one rank stores; where all ranks hold the same bytes (MLA) there is one, of rank 0.  A store clears
its header first and writes it last, behind the bytes, so a slot whose store was cut off never verifies.  Stores and
loads are in C: src/pages.h.

structure is a word of how the bytes of a part are put together: the worker's tensors and layers (worker.py).  The
fingerprint cannot have it, as the scheduler makes that.  A slot of another structure is a bad one.
"""

import ctypes
import struct

import gpc

HEADER = struct.Struct("<4sI16sII")      # magic, CRC32C of the bytes or 0, gpc key, bytes, structure
MAGIC = b"gpcV"


def round_up(n, to):
    return -(-n // to) * to


class Image:
    def __init__(self, parts, rank_bytes, checksum):
        if rank_bytes > 0xffffffff:
            raise ValueError(f"{rank_bytes} bytes of a chunk and rank, at most {0xffffffff} are supported")
        self.parts, self.rank_bytes, self.checksum = parts, rank_bytes, checksum
        self.first = round_up(parts * HEADER.size, 4096 if parts * rank_bytes >= 128 << 10 else 64)
        self.bytes = round_up(self.first + parts * rank_bytes, 4096)

    def offset(self, part):
        return self.first + part * self.rank_bytes

    def _sum(self, slot, part):
        at = slot + self.offset(part)
        # a view, not a copy; crc32c lets other threads run meanwhile
        return gpc.crc32c((ctypes.c_char * self.rank_bytes).from_address(at)) if self.checksum else 0

    def header(self, slot, part):
        return HEADER.unpack(ctypes.string_at(slot + part * HEADER.size, HEADER.size))

    def good(self, slot, part, key, structure=None):
        """Has the slot at that address what a store of that key has sealed?  structure: None for any."""
        magic, crc, of, n, has = self.header(slot, part)
        if magic != MAGIC or of != key or n != self.rank_bytes or structure not in (None, has):
            return False
        return not self.checksum or crc == self._sum(slot, part)


class Slots:
    """What the worker is told: where each chunk is to go or to come from, and whose companion it has to be."""

    def __init__(self, where, pool, slots, keys):
        self.where, self.pool, self.block_ids, self.keys = where, pool, slots, keys

    def __repr__(self):
        return f"Slots(pool={self.pool}, {self.block_ids})"
