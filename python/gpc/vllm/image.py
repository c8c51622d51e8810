# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-loads.t t/python/vllm-worker.t
"""The image in a slot: for each part its bytes, and nothing else.

    | bytes of part 0 | bytes of part 1 | ...

That is its order in files and stores.  In RAM the parts of all slots lie together, part by part (engines/cache.py), so
what a rank copies, and registers with its GPU, is one piece of memory.

A part is what one rank stores; where all ranks hold the same bytes (MLA) there is one, of rank 0.  What is known of
them is sealed in the cache (gpc_seal): each part has its sum, which goes along to a disk or a store and comes back with
the block.  A store seals behind the bytes, so what was cut off is never published, and a block of another life has none.
Stores and loads are in C: src/pages.h.

Sums begin with structure, a word of how the bytes of a part are put together: the worker's tensors and layers
(worker.py).  The fingerprint cannot have it, as the scheduler makes that.  A slot of another structure is a bad one.
"""

MOST = 0xffffffff                # bytes of an image: what one transfer, and a file, take


class Image:
    def __init__(self, parts, rank_bytes, checksum):
        if rank_bytes > MOST:
            raise ValueError(f"{rank_bytes} bytes of a chunk and rank, at most {MOST} are supported")
        self.parts, self.rank_bytes, self.checksum = parts, rank_bytes, checksum
        self.bytes = parts * rank_bytes

    def offset(self, part):
        return part * self.rank_bytes


class Slots:
    """What the worker is told: where each chunk is to go or to come from, and whose companion it has to be."""

    def __init__(self, where, pool, slots, keys):
        """keys: 16 bytes for each slot, one behind the other."""
        self.where, self.pool, self.block_ids, self.keys = where, pool, slots, keys

    def __repr__(self):
        return f"Slots(pool={self.pool}, {self.block_ids})"
