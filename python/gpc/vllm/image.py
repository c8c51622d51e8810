# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-loads.t t/python/vllm-worker.t
"""The image in a slot: the bytes of each part, without gaps.

    | bytes of part 0 | bytes of part 1 | ...

That is its order in files and stores.  In RAM the parts of all slots lie together, part by part (engines/cache.py).  So
the memory that a rank copies, and registers with its GPU, is in one piece.

A part is stored by one rank; where all ranks hold the same bytes (MLA) there is one part, of rank 0.  Each part has a
sum, which is sealed in the cache (gpc_seal).  The sum goes along to a disk or a store and comes back with the block.  A
store seals after the bytes are written, so a store that was cut off is never published, and a block of an earlier life
has no sum.  Stores and loads are in C: src/pages.h.

Sums begin with structure, a word that tells how the bytes of a part are put together: the worker's tensors and layers
(worker.py).  The fingerprint cannot have it, since the scheduler makes that.  A slot of another structure counts as
bad.
"""

MOST = 0xffffffff                # bytes of an image, as one transfer or one file may have


class Image:
    def __init__(self, parts, rank_bytes, checksum):
        if rank_bytes > MOST:
            raise ValueError(f"{rank_bytes} bytes of a chunk and rank, at most {MOST} are supported")
        self.parts, self.rank_bytes, self.checksum = parts, rank_bytes, checksum
        self.bytes = parts * rank_bytes

    def offset(self, part):
        return part * self.rank_bytes


class Slots:
    """The worker's orders: where each chunk should go or come from, and the peer whose companion the worker has to
    be."""

    def __init__(self, where, pool, slots, keys):
        """keys: 16 bytes for each slot, one after the other."""
        self.where, self.pool, self.block_ids, self.keys = where, pool, slots, keys

    def __repr__(self):
        return f"Slots(pool={self.pool}, {self.block_ids})"
