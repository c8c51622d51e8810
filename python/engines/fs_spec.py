# SPDX-License-Identifier: Apache-2.0
"""What the table of ttft.py compares with: vLLM's own tiers, its RAM tier and behind it the fs tier, in which engines
find each other's blocks.  Its managers are as they are.  Its worker needs a GPU, so gpc.vllm's worker copies between
the KV caches and the RAM tier, without slots of gpc and without checksums."""

from types import SimpleNamespace

from gpc.vllm.spec import API
from gpc.vllm.worker import Worker
from vllm.v1.kv_offload.base import OffloadingWorker
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class Image:
    """Of a row of the RAM tier: no header, nothing to verify."""

    def __init__(self, at, nbytes):
        self.at, self.rank_bytes = at, nbytes

    def offset(self, part):
        return self.at

    def clear(self, slot, part): ...
    def seal(self, slot, part, key): ...

    def good(self, slot, part, key):
        return True


class RegionWorker(Worker, OffloadingWorker):
    def __init__(self, region, *args, **more):
        super().__init__(*args, **more)
        self.region = region
        self.rows = SimpleNamespace(at=lambda row: region._base.data_ptr() + row * region._row_stride)

    def _submit(self, job_id, store, blocks, slots):
        rows = [int(b) for b in slots.block_ids]
        return super()._submit(job_id, store, blocks, SimpleNamespace(block_ids=rows, keys=[None] * len(rows)))

    def _attach(self, slots):
        return self.rows


class FsSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if not self._worker:
            rank = self.config.parallel.rank
            region = SharedOffloadRegion(engine_id=self._engine_id, num_chunks=self.num_chunks, rank=rank,
                                         kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                                         cpu_page_size=self.cpu_page_size_per_worker)
            image = Image(rank * self.cpu_page_size_per_worker, self.cpu_page_size_per_worker)
            self._worker = RegionWorker(region, kv_caches, self.blocks_per_chunk, image, 0, SimpleNamespace(threads=2),
                                        API.TransferResult)
        return self._worker
