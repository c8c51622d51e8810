# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-shares.t t/python/vllm-loads.t t/python/vllm-failures.t
#   t/python/vllm-worker.t
"""The bytes that a job moves: chunks, each of them pages of the engine and a slot, as the arrays of pages.c."""

from array import array


KEY = 16                         # bytes of a key


def _numbers(of):
    """vLLM has them in arrays of NumPy."""
    if getattr(of, "dtype", None) == "int64":
        return array("q", of.tobytes())
    return array("q", of)


class Chunks:
    """The chunks of one KV group.  keys: of all slots, one after the other.  pages: (place in the chunk, block of the
    engine); those of chunk i are from starts[i] to starts[i + 1]."""

    def __init__(self, group, slots, keys, starts, pages):
        self.group, self.slots, self.keys, self.starts, self.pages = group, slots, keys, starts, pages

    def __len__(self):
        return len(self.slots)

    def part(self, i, j):
        return Chunks(self.group, self.slots[i:j], self.keys[KEY * i:KEY * j], self.starts[i:j + 1], self.pages)

    def split(self, per_chunk):
        """For a store: (the chunks that are covered whole, or None; slots of the others).

        vLLM 0.32 asks for a store of a chunk of a window group whose first blocks it has freed, and leaves these out.
        That is known of a first chunk alone.  A last chunk always ends whole in vLLM.  Where it does not here, blocks
        are missing somewhere before, and those that follow belong to other places than it seems.  Then no chunk of the
        group is known to be whole."""
        n = len(self)
        if self.starts[n] - self.starts[n - 1] < per_chunk:
            return None, list(self.slots)
        first = int(self.starts[1] - self.starts[0] < per_chunk)
        return self.part(first, n), list(self.slots[:first])

    def key(self, i):
        return self.keys[KEY * i:KEY * (i + 1)]

    def blocks(self, i):
        """The engine's blocks in chunk i."""
        return self.pages[2 * self.starts[i] + 1:2 * self.starts[i + 1]:2]

    def shares(self, most):
        """Cuts it into at most so many parts, of nearly one size."""
        return self.shares_of(-(-len(self) // most))

    def shares_of(self, n):
        """Cuts it into parts of so many chunks each."""
        return [self.part(i, i + n) for i in range(0, len(self), n)]


def chunks_of(blocks, slots, per_chunk):
    """For each group: its first chunk may begin, and its last one end, inside."""
    out, first, at = [], 0, 0
    ids, of = _numbers(blocks.block_ids), _numbers(slots.block_ids)
    for g, (n, index) in enumerate(zip(blocks.group_sizes, blocks.block_indices)):
        n, skip = int(n), int(index) % per_chunk
        if not n:
            continue
        chunks = -(-(skip + n) // per_chunk)
        pages = array("q", bytes(16 * n))
        if per_chunk > 1:
            pages[::2] = array("q", [(skip + i) % per_chunk for i in range(n)])
        pages[1::2] = ids[first:first + n]
        starts = array("q", range(-skip, chunks * per_chunk - skip + 1, per_chunk))
        starts[0], starts[-1] = 0, n
        out.append(Chunks(g, of[at:at + chunks], slots.keys[KEY * at:KEY * (at + chunks)], starts, pages))
        first += n
        at += chunks
    if at != len(of):
        raise ValueError(f"{at} chunks of the engine, {len(of)} slots")
    return out
