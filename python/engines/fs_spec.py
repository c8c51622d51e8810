# SPDX-License-Identifier: Apache-2.0
"""What the table of ttft.py compares with: vLLM's own tiers, its RAM tier and behind it the fs tier, in which engines
find each other's blocks.  Its managers are as they are.  Its worker needs a GPU, so gpc.vllm's worker copies between
the KV caches and the RAM tier, without slots of gpc and without checksums.

fs_spec.py - a test of that worker.  TAP.
"""

import gc
import os
import struct
import weakref
from types import SimpleNamespace

import gpc
from gpc.vllm.spec import API
from gpc.vllm.worker import Worker
from vllm.v1.kv_offload.base import OffloadingWorker
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

KEY = bytes(16)                  # of all rows
SUM = struct.Struct("<IIIiQ")    # struct gpc_sum


class Rows:
    """The RAM tier as the worker has slots, and in place of the cache.  Nobody seals a row: it is as good as one of this
    structure without a sum."""

    def __init__(self, region, rows, at):
        self.region, self.stride = region, region._row_stride      # which would be unmapped without anybody who has it
        self.base, self.area, self.each, self.c, self.structure = region._base.data_ptr(), at, rows, self, 0

    def blocks_of(self, slots):
        return slots

    def sealed(self, rows, keys, part, out):
        SUM.pack_into(out, 0, 0, self.structure, gpc.SEAL_UNSUMMED, 0, 0)
        out[:] = out[:SUM.size] * len(rows)

    def seal(self, rows, keys, sums, part):
        pass


class Image:
    checksum = False

    def __init__(self, at, nbytes):
        self.at, self.rank_bytes = at, nbytes

    def offset(self, part):
        return self.at


class RegionWorker(Worker, OffloadingWorker):
    def __init__(self, region, rows, kv_caches, per_chunk, at, nbytes, conf, result):
        self.rows = Rows(region, rows, at)
        super().__init__(kv_caches, per_chunk, Image(at, nbytes), 0, conf, result)

    def _submit(self, job_id, store, blocks, slots, *when):
        rows = [int(b) for b in slots.block_ids]
        return super()._submit(job_id, store, blocks, SimpleNamespace(block_ids=rows, keys=KEY * len(rows)), *when)

    def _attach(self, slots, timeout=None):
        self.rows.structure = self.structure
        return self.rows


class FsSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if not self._worker:
            rank, each = self.config.parallel.rank, self.cpu_page_size_per_worker
            region = SharedOffloadRegion(engine_id=self._engine_id, num_chunks=self.num_chunks, rank=rank,
                                         kv_bytes_per_chunk=self.kv_bytes_per_chunk, cpu_page_size=each)
            self._worker = RegionWorker(region, self.num_chunks, kv_caches, self.blocks_per_chunk, rank * each, each,
                                        SimpleNamespace(threads=2), API.TransferResult)
        return self._worker


def test():
    import torch
    from tap import done, is_, name, ok
    from vllm.v1.kv_offload.base import (
        CanonicalKVCacheRef,
        CanonicalKVCaches,
        CanonicalKVCacheTensor,
        GPULoadStoreSpec,
    )
    kv = [torch.arange(8 * 64, dtype=torch.int8).reshape(8, 64) * m for m in (1, 3)]
    region = SharedOffloadRegion(engine_id=f"{name}-{os.getpid()}", num_chunks=8, rank=2, kv_bytes_per_chunk=4096,
                                 cpu_page_size=128)
    ram, alive = region._base.view(8, 4096), weakref.ref(region)
    worker = RegionWorker(region, 8, CanonicalKVCaches(
        [CanonicalKVCacheTensor(t, 64) for t in kv], [[CanonicalKVCacheRef(0, 64), CanonicalKVCacheRef(1, 64)]]),
        1, 256, 128, SimpleNamespace(threads=2), API.TransferResult)
    del region
    gc.collect()
    ok(alive(), "a worker keeps its region")

    def moved(job, submit, blocks, rows):
        gpu = GPULoadStoreSpec(blocks, group_sizes=[len(blocks)], block_indices=[0])
        pair = gpu, SimpleNamespace(block_ids=rows)
        submit(job, *(pair if submit == worker.submit_store else pair[::-1]))
        worker.wait([job])
        (r,) = worker.get_finished()
        return r.success, r.transfer_size
    is_(moved(1, worker.submit_store, [3, 4], [5, 2]), (True, 256), "a store moves all bytes")
    ok(all(torch.equal(ram[row, 256 + 64 * i:320 + 64 * i], kv[i][b]) for row, b in ((5, 3), (2, 4)) for i in range(2)),
       "into the rank's part of its rows")
    ok(not ram[5, :256].any() and not ram[5, 384:].any() and not ram[3].any(), "and nothing beside it")
    ram[6] = ram[5]                      # as the fs tier brings it
    is_(moved(2, worker.submit_load, [7], [6]), (True, 128), "a load of a row that another engine has stored")
    ok(all(torch.equal(t[7], t[3]) for t in kv), "brings its bytes")
    worker.shutdown()
    del ram
    alive().cleanup()
    done()


if __name__ == "__main__":
    test()
