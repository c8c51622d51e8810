# SPDX-License-Identifier: Apache-2.0
"""The worker's side: bytes between the engine's KV caches and slots of the cache, one process for each rank.

No vLLM here, and torch only where the KV caches are tensors of a GPU (cuda.py): a KV cache is anything with
data_ptr() and stride(0).  One thread does the jobs in the order in which they came, each job by several threads.
The manager relies on that order (Manager.reset_cache).

Each job says whose companion the worker has to be.  It attaches before the first byte, so from then on what the
manager holds is given to nobody else while this process lives.  If the manager is gone already, nothing is copied.
"""

import ctypes
import logging
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import gpc

from .cache import attach_beside

log = logging.getLogger("vllm.gpc")

SEAT = 10                        # seconds that a worker waits for a seat; then the job fails
BAD, FAILED = -1, -2             # a slot that does not verify; a copy that the device refused
MAX_PITCH = 0x7fffffff           # of a pitched copy of CUDA


class Tensor:
    """One KV cache: block b is `page` bytes at address + b * stride, and `offset` in a block's image."""

    def __init__(self, canonical, offset):
        t = canonical.tensor
        self.address, self.page, self.offset = t.data_ptr(), canonical.page_size_bytes, offset
        self.stride = t.stride(0) * t.element_size()
        self.tensor = t


class Run:
    """Tensors of one group at equal distances: what one pitched copy of a block takes."""

    def __init__(self, tensors, per_chunk):
        t = tensors[0]
        self.address, self.offset, self.page, self.stride = t.address, t.offset, t.page, t.stride
        self.count = len(tensors)
        self.pitch = tensors[1].address - t.address if self.count > 1 else t.page
        self.host_pitch = t.page * per_chunk


def runs_of(tensors, per_chunk):
    """Those that follow each other in the image, with pages of one size, as long as their distances are equal."""
    out, at = [], 0
    while at < len(tensors):
        n = at + 1
        while n < len(tensors) and _fits(tensors[at:n], tensors[n], per_chunk):
            n += 1
        out.append(Run(tensors[at:n], per_chunk))
        at = n
    return out


def _fits(have, t, per_chunk):
    last, first = have[-1], have[0]
    pitch = t.address - last.address
    return (t.page == first.page and t.stride == first.stride and t.offset - last.offset == t.page * per_chunk and
            t.page <= pitch <= MAX_PITCH and (len(have) < 2 or pitch == last.address - have[-2].address))


class HostMover:
    """KV caches in memory of this process."""

    def fence(self):
        """Called by the engine's thread when it gives us a job: what it has computed is in memory already."""

    def open(self, address, nbytes):
        pass

    def begin(self, fence):
        """This thread copies for the job of that fence."""

    def copy(self, to, to_pitch, source, pitch, width, height):
        """height pieces of width bytes, the next one at a pitch from the one before."""
        for i in range(height):          # other threads run meanwhile
            ctypes.memmove(to + i * to_pitch, source + i * pitch, width)

    def finish(self):
        """All copies of this thread are done."""

    def abandon(self):
        """After a copy that failed: none of this thread may still be under way."""

    def release(self, address):
        """The end of open."""

    def close(self):
        pass


class Beside:
    """The attachment beside one manager, and the slots of its cache."""

    def __init__(self, slots, image, mover, label, timeout):
        self.c = attach_beside(slots.where, label, timeout)
        self.part = self.c.pool_map(slots.pool)[0]
        (run,) = self.c.pool_runs(slots.pool)
        if run.bytes != image.bytes:
            raise ValueError(f"slots of {run.bytes} bytes, {image.bytes} are wanted")
        self.base, self.stride = self.part.address + run.offset, run.slot_stride
        mover.open(self.part.address, self.part.nbytes)

    def at(self, slot):
        return self.base + slot * self.stride

    def close(self):
        self.c.close()


class Worker:
    def __init__(self, kv_caches, blocks_per_chunk, image, part, conf, result, mover=None, label="vllm worker"):
        """result: what makes a TransferResult.  part: ours in the image; ranks that hold the same have one."""
        self.blocks_per_chunk, self.image, self.part, self.conf = blocks_per_chunk, image, part, conf
        self.result, self.mover, self.label = result, mover or HostMover(), label
        self.tensors, offset = [], 0
        for t in kv_caches.tensors:
            self.tensors.append(Tensor(t, offset))
            offset += t.page_size_bytes * blocks_per_chunk
        if offset > image.rank_bytes:
            raise ValueError(f"the KV caches have {offset} bytes a chunk, and {image.rank_bytes} were reckoned with")
        self.runs = [runs_of([self.tensors[i] for i in sorted({r.tensor_idx for r in refs})], blocks_per_chunk)
                     for refs in kv_caches.group_data_refs]
        self.jobs, self.lock = queue.SimpleQueue(), threading.Lock()
        self.done, self.ended, self.errors, self.failed = [], {}, set(), set()
        self.beside, self.bad, self.reported = {}, 0, False
        self.pool = ThreadPoolExecutor(conf.threads, "gpc-copy")
        self.thread = threading.Thread(target=self._run, name="gpc-jobs", daemon=True)
        self.thread.start()

    # ---- what the engine calls ----

    def submit_store(self, job_id, src_spec, dst_spec):
        return self._submit(job_id, True, src_spec, dst_spec)

    def submit_load(self, job_id, src_spec, dst_spec, expedited=False):
        return self._submit(job_id, False, dst_spec, src_spec)

    def _submit(self, job_id, store, blocks, slots):
        self.ended[job_id] = threading.Event()
        self.jobs.put((job_id, store, blocks, slots, self.mover.fence()))
        return True

    def get_finished(self):
        with self.lock:
            done, self.done = self.done, []
            for r, errors in done:
                self.ended.pop(r.job_id, None)
                self.errors |= errors    # told together with the end of their load
                self.failed |= {r.job_id} if errors else set()
        return [r for r, _ in done]

    def wait(self, job_ids):
        for j in job_ids:
            event = self.ended.get(j)
            if event:
                event.wait()

    def take_load_errors(self):
        """Blocks of the engine whose load failed: the connector asks, so a failed load does not end the engine."""
        self.reported = True
        with self.lock:
            errors, self.errors = self.errors, set()
        return errors

    def take_failed_loads(self):
        """Their jobs."""
        with self.lock:
            failed, self.failed = self.failed, set()
        return failed

    def shutdown(self):
        if self.thread.is_alive():
            self.jobs.put(None)
            self.thread.join()
        self.pool.shutdown()
        for b in self.beside.values():
            self.mover.release(b.part.address)
            b.close()
        self.beside.clear()
        self.mover.close()

    # ---- the thread of the jobs ----

    def _run(self):
        while True:
            job = self.jobs.get()
            if job is None:
                return
            since = time.perf_counter()
            try:
                n, errors = self._job(*job[1:])
            except Exception:            # not attached: no byte was moved
                log.exception("gpc: job %d", job[0])
                n, errors = 0, set() if job[1] else {int(b) for b in job[2].block_ids}
            # a failed load is told by its blocks, or, where nobody asks for them, by the job
            r = self.result(job[0], not errors or self.reported, n, time.perf_counter() - since)
            with self.lock:
                self.done.append((r, errors))
            self.ended[job[0]].set()

    def _attach(self, slots):
        b = self.beside.get(slots.where)
        if b is None:
            b = Beside(slots, self.image, self.mover, self.label, SEAT)
            self.beside[slots.where] = b
        return b

    def _pairs(self, blocks, slots):
        """(group, slot, key, [(place in the chunk, the engine's block)]) for each chunk: the first chunk of a group
        may begin, and the last one end, inside."""
        out, first, at = [], 0, 0
        for g, (n, index) in enumerate(zip(blocks.group_sizes, blocks.block_indices)):
            skip = index % self.blocks_per_chunk
            for i in range(n):
                chunk, place = divmod(skip + i, self.blocks_per_chunk)
                if i == 0 or place == 0:
                    out.append((g, slots.block_ids[at + chunk], slots.keys[at + chunk], []))
                out[-1][3].append((place, int(blocks.block_ids[first + i])))
            first += n
            at += -(-(skip + n) // self.blocks_per_chunk) if n else 0
        if at != len(slots.block_ids):
            raise ValueError(f"{at} chunks of the engine, {len(slots.block_ids)} slots")
        return out

    def _job(self, store, blocks, slots, fence):
        pairs = self._pairs(blocks, slots)
        if not pairs:
            return 0, set()
        beside = self._attach(slots)
        # all of them have ended when this returns, also where one has failed
        share = -(-len(pairs) // self.conf.threads)
        ends = [n for part in self.pool.map(lambda i: [self._one(store, beside, p, fence) for p in pairs[i:i + share]],
                                            range(0, len(pairs), share)) for n in part]
        failed = [p for p, n in zip(pairs, ends) if n < 0]
        bad = [p for p, n in zip(pairs, ends) if n == BAD]
        if bad:
            self._drop(beside, slots, bad)
        return sum(n for n in ends if n > 0), {b for _, _, _, places in failed for _, b in places}

    def _drop(self, beside, slots, failed):
        """Nobody is to find these, nor what follows them in a chain.  The manager still references them, so they
        have the keys that we were told."""
        self.bad += len(failed)
        for _, slot, key, _ in failed:
            log.error("gpc: slot %d of %s: its bytes are not those of key %s; it is dropped", slot,
                      slots.where.name, key.hex())
        try:
            beside.c.drop([gpc.BLOCK(slots.pool, slot) for _, slot, _, _ in failed], timeout=0)
        except gpc.Error as e:
            log.error("gpc: drop: %s", e)

    def _pages(self, pair, slot):
        """(in the slot, pitch there, in the KV cache, pitch there, bytes of a page, pages)"""
        area = slot + self.image.offset(self.part)
        for r in self.runs[pair[0]]:
            for place, block in pair[3]:
                yield (area + r.offset + place * r.page, r.host_pitch, r.address + block * r.stride, r.pitch,
                       r.page, r.count)

    def _one(self, store, beside, pair, fence):
        """Bytes moved, or what kind of failure.  A store that fails leaves no sealed header, so whoever loads it
        drops it, and the engine goes on."""
        try:
            self.mover.begin(fence)
            return (self._store_one if store else self._load_one)(beside, pair)
        except Exception:
            log.exception("gpc: slot %d", pair[1])
            self.mover.abandon()
            return 0 if store else FAILED

    def _store_one(self, beside, pair):
        slot, total = beside.at(pair[1]), 0
        self.image.clear(slot, self.part)
        for host, host_pitch, kv, pitch, width, height in self._pages(pair, slot):
            self.mover.copy(host, host_pitch, kv, pitch, width, height)
            total += width * height
        self.mover.finish()
        self.image.seal(slot, self.part, pair[2])        # the last bytes: until then it never verifies
        return total

    def _load_one(self, beside, pair):
        slot, total = beside.at(pair[1]), 0
        if not self.image.good(slot, self.part, pair[2]):
            return BAD
        for host, host_pitch, kv, pitch, width, height in self._pages(pair, slot):
            self.mover.copy(kv, pitch, host, host_pitch, width, height)
            total += width * height
        self.mover.finish()
        return total
