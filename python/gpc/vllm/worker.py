# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-shares.t t/python/vllm-worker.t t/python/vllm-gpu.t t/python/vllm-register.t
#   t/python/vllm-trace.t t/python/vllm-failures.t
"""The worker's side: bytes between the engine's KV caches and slots of the cache, one process for each rank.

No vLLM here, and torch only where the KV caches are tensors of a GPU (cuda.py): a KV cache is anything with data_ptr()
and stride(0).  One thread begins and ends the jobs in the order in which they came, expedited ones first.  Several
threads do a job, or a device does shares of jobs, two at a time.  Without expedited jobs, which vLLM 0.32 does not have,
the manager relies on that order (Manager.reset_cache).

Each job names the peer whose companion the worker has to be.  The worker attaches before the first byte.  From then on
no other process gets blocks that the manager holds, while this process lives.  If the manager is gone already, nothing
is copied.
"""

import functools
import itertools
import logging
import queue
import threading
import time
from array import array
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import gpc
from gpc import _gpc

from ..engines import words
from ..engines.cache import slots_of
from . import meet, trace
from .cache import POOL, attach_beside, explain_attach
from .chunks import chunks_of
from .drops import Drops
from .image import Slots

log = logging.getLogger("vllm.gpc")

SEAT = 10                        # seconds that a worker waits for a seat, once; then the job fails, and later ones at once
BAD, FAILED = -1, -2             # a slot that does not verify; a copy that the device refused
FIRST, IN_TURN, LAST = range(3)  # of jobs that are not begun
LANES = 2                        # shares that are under way on a device: the next one begins while one is copied
MOST = 4096 // LANES             # chunks of a share; answers of a gpc_sums
# Copies that are given for a share, but those of FEWEST chunks at least.  A driver takes about a thousand of a stream; then
# the call that gives the next one waits for one to end.
COPIES, FEWEST = 400, 64
MAX_PITCH = 0x7fffffff           # of a pitched copy of CUDA
HAND_OVER = 0.001                # seconds
SUM = 24                         # bytes of a struct gpc_sum
MOST_BLOCKS = 256                # of a chunk that a GPU sums


class Tensor:
    """One KV cache: block b is `page` bytes at address + b * stride, and `offset` in a block's image."""

    def __init__(self, canonical, offset):
        t = canonical.tensor
        self.address, self.page, self.offset = t.data_ptr(), canonical.page_size_bytes, offset
        self.stride = t.stride(0) * t.element_size()
        self.tensor = t


class Run:
    """Tensors of one group at equal distances: one pitched copy takes a block of all of them."""

    def __init__(self, tensors, per_chunk):
        t = tensors[0]
        self.address, self.offset, self.page, self.stride = t.address, t.offset, t.page, t.stride
        self.count = len(tensors)
        self.pitch = tensors[1].address - t.address if self.count > 1 else t.page
        self.host_pitch = t.page * per_chunk

    def numbers(self):
        """The runs in the form of pages.c."""
        return [self.address, self.offset, self.page, self.stride, self.count, self.pitch, self.host_pitch]


def runs_of(tensors, per_chunk):
    """Tensors that follow each other in the image, with pages of one size, as long as their distances are equal."""
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

    sums = None                      # another device that sums images: a capsule of _gpc._sums_open
    on_device = False                # one thread keeps the copies going

    def fence(self):
        """Called by the engine's thread when it gives us a job: its results are in memory already."""

    def step(self, launching):
        """The engine's thread launches a step's kernels from now on, or has done so."""

    def open(self, base, slots, stride, folder):
        """So many slots are copied from now on, the first one at base.  Returns the slots of a piece, which no copy
        leaves; 0: there are no pieces."""
        return 0

    def begin(self, fence):
        """This thread copies for the job of that fence, with these calls (struct pages_calls of pages.h); None: it
        copies by itself."""

    def hasten(self, base, slots, of_job, store):
        """The next copies of this thread go from these slots, or, in a store, to them; all slots of their job."""

    def text(self, err):
        """A text for the error of one of those calls."""
        return f"error {err}"

    def abandon(self):
        """Called after a copy that failed: when it returns, no copy of this thread is under way."""

    def release(self, base):
        """The end of open, called when no copy is under way."""

    def registering(self):
        """Is a thread registering?  And the number of bytes that are registered."""
        return False, 0

    def close(self):
        pass


class Beside:
    """The attachment beside one manager, and a rank's part of the slots of its cache: `area` bytes after base and each
    stride."""

    def __init__(self, slots, image, part, label, timeout):
        self.c, self.pool, self.dir = attach_beside(slots.where, label, timeout), slots.pool, slots.where.dir
        try:
            self._find(image, part)
        except Exception:
            self.close()
            raise

    def _find(self, image, part):
        self.part, runs = self.c.pool_map(self.pool)[0], self.c.pool_runs(self.pool)
        if sum(r.count * r.bytes for r in runs) != image.bytes:
            raise ValueError(f"slots of {sum(r.count * r.bytes for r in runs)} bytes, {image.bytes} are wanted")
        run, self.area = _run_of(runs, image.offset(part), image.rank_bytes)
        self.base, self.stride = self.part.address + run.offset, run.slot_stride
        self.blocks = array("i", [gpc.BLOCK(self.pool, 0)])[0]

    def open(self, mover):
        """The part is used from now on: copies may begin."""
        self.each = mover.open(self.base, slots_of(self.c), self.stride, self.dir)

    def blocks_of(self, slots):
        return array("i", [self.blocks + s for s in slots] if self.blocks else slots)

    def close(self):
        self.c.close()


def _run_of(runs, offset, nbytes):
    """The run that has these bytes of an image, and the place in it where they begin."""
    at = 0
    for r in runs:
        if r.count == 1 and at <= offset and offset + nbytes <= at + r.bytes:
            return r, offset - at
        at += r.count * r.bytes
    raise ValueError(f"{nbytes} bytes from {offset} on lie in several pieces of a slot")


class Job:
    """A job that a thread of the engine has asked for, and its progress."""

    def __init__(self, number, store, blocks, slots, fence, since, taken=0):
        self.number, self.store, self.blocks, self.slots = number, store, blocks, slots
        self.moments = {"taken": taken}      # of trace.py
        self.fence, self.since = fence, since
        self.beside, self.by, self.left = None, None, 0          # left: shares that have not ended
        self.moved, self.errors, self.bad = 0, set(), []
        self.unmoved = []        # slots that a store has not filled, or a load has not brought

    @functools.cached_property
    def touched(self):
        return {int(s) for s in self.slots.block_ids}

    def on_device(self, mover, image):
        """Is there no part of it for a thread to copy or to sum?"""
        self.by = mover.sums if image.checksum else None
        return mover.on_device and bool(self.by or not image.checksum)


class Worker:
    def __init__(self, kv_caches, blocks_per_chunk, image, part, conf, result, mover=None, label="vllm worker",
                 engine=None):
        """result: makes a TransferResult.  part: our part in the image; ranks that hold the same bytes have one part.
        engine: its number, for meet.py."""
        self.blocks_per_chunk, self.image, self.part, self.conf = blocks_per_chunk, image, part, conf
        self.result, self.mover, self.label, self.engine = result, mover or HostMover(), label, engine
        self.tensors, self.beside, offset = [], {}, 0
        for t in kv_caches.tensors:
            self.tensors.append(Tensor(t, offset))
            offset += t.page_size_bytes * blocks_per_chunk
        self.refs = [[[r.tensor_idx, r.page_size_bytes] for r in refs] for refs in kv_caches.group_data_refs]
        if offset > image.rank_bytes:
            raise ValueError(f"the KV caches have {offset} bytes a chunk, and {image.rank_bytes} were reckoned with")
        self.structure = self.form = None
        self.set_layers(())
        self.set_runs([runs_of([self.tensors[i] for i in sorted({r.tensor_idx for r in refs})], blocks_per_chunk)
                       for refs in kv_caches.group_data_refs])
        if self.mover.on_device and self._is_one_image():
            self.mover.sum_images([(t.address, t.stride, t.page) for t in self.tensors], blocks_per_chunk)
        self.jobs, self.lock = queue.PriorityQueue(), threading.Lock()
        self.order = itertools.count()
        self.idle, self.got = False, threading.Event()           # does the thread wait for a job, and is there one
        self.done, self.ended, self.errors, self.failed = [], {}, set(), set()
        self.bad, self.reported, self.lane = 0, False, 0
        self.unmoved, self.drops, self.tried = {}, Drops(), set()
        file = trace.opened()
        self.trace = trace.Worker(file, engine, part) if file else None
        self.pool = ThreadPoolExecutor(conf.threads, "gpc-copy")
        self.thread = threading.Thread(target=self._run, name="gpc-jobs", daemon=True)
        self.thread.start()

    def set_layers(self, layers):
        """The structure of a chunk's bytes for this worker, as a word that the sums of its part begin with.  layers: a
        text that also distinguishes it (connector.py), given before the first job."""
        self.form = {"blocks": self.blocks_per_chunk, "tensors": [[t.page, t.offset] for t in self.tensors],
                     "groups": self.refs, "layers": list(layers)}
        self.structure = gpc.crc32c(words.bytes_of(self.form))
        for b in self.beside.values():
            self._seed(b)

    def _seed(self, beside):
        """Images from a disk or a store must have this structure; other engines of the cache may have another."""
        if beside.c.pool_seed(POOL, self.part, self.structure):
            log.warning("gpc: %s: an engine has put its KV caches together otherwise than this one: neither uses what the other "
                        "stores; other names (gpc_name) give each its cache", self.label)

    def _is_one_image(self):
        """Is a chunk made of its blocks of all tensors, and do these fill its part?  Then its sum can be computed from
        the blocks."""
        return (self.image.checksum and self.blocks_per_chunk <= MOST_BLOCKS and len(self.runs) == 1 and
                sum(r.count * r.page for r in self.runs[0]) * self.blocks_per_chunk == self.image.rank_bytes)

    def set_runs(self, runs):
        """Of each group."""
        self.runs = runs
        self.tables = [array("q", [n for r in of for n in r.numbers()]) for of in runs]

    # ---- what the engine calls ----

    def step(self, launching):
        self.mover.step(launching)

    def submit_store(self, job_id, src_spec, dst_spec):
        return self._submit(job_id, True, src_spec, dst_spec)

    def submit_load(self, job_id, src_spec, dst_spec, expedited=False):
        """expedited, of vLLM 0.33: a step waits for the job.  It goes before jobs that are not begun.  Its slots are
        live, so no store into them is under way; vLLM has waited for the stores of its blocks."""
        return self._submit(job_id, False, dst_spec, src_spec, FIRST if expedited else IN_TURN)

    def _submit(self, job_id, store, blocks, slots, when=IN_TURN):
        self.ended[job_id], idle = threading.Event(), self.idle
        self.got.clear()
        self.jobs.put((when, next(self.order), (job_id, store, blocks, slots, self.mover.fence(), time.perf_counter(),
                                                trace.now() if self.trace else 0)))
        if idle and not store:  # else it may wait for the interpreter as long as a step goes on without a pause
            self.got.wait(HAND_OVER)
        return True

    def drain(self):
        """Waits until the jobs that were given have ended."""
        self.wait(list(self.ended))

    def get_finished(self):
        with self.lock:
            done, self.done = self.done, []
            for r, errors, unmoved, _ in done:
                self.ended.pop(r.job_id, None)
                if unmoved:
                    self.unmoved[r.job_id] = unmoved
                self.errors |= errors    # these blocks are told together with the end of their load
                self.failed |= {r.job_id} if errors else set()
        if self.trace:
            self.trace.told([job for _, _, _, job in done if not job.store], [len(of) for of in self.runs])
        return [r for r, _, _, _ in done]

    def wait(self, job_ids):
        for j in job_ids:
            event = self.ended.get(j)
            if event:
                event.wait()

    def take_load_errors(self):
        """Blocks of the engine whose load failed: the connector asks for them, so a failed load does not end the
        engine."""
        self.reported = True
        with self.lock:
            errors, self.errors = self.errors, set()
        return errors

    def take_failed_loads(self):
        """The jobs of these blocks."""
        with self.lock:
            failed, self.failed = self.failed, set()
        return failed

    def take_unmoved(self):
        """For each job that was told: the slots that its store has not filled, or its load has not brought."""
        with self.lock:
            unmoved, self.unmoved = self.unmoved, {}
        return unmoved

    def attach_at_start(self):
        """Attaches beside the manager, before the first job.  Without a seat, or without a cache that this process
        sees, no job can succeed.  If the cache is being made, the first job attaches.  vLLM 0.33 asks again when an engine
        wakes."""
        if self.beside:
            return
        timeout = self.conf.attach_ms / 1000
        try:
            found = meet.attach(self.conf.dir, self.engine, lambda where: self._attach(Slots(where, POOL, [], []), timeout))
        except gpc.Error as e:
            raise explain_attach(e, self.conf.dir, self.label) from None
        if found is None:
            raise explain_attach(None, self.conf.dir, self.label)

    def shutdown(self):
        if self.thread.is_alive():
            self.jobs.put((LAST, next(self.order), None))
            self.thread.join()
        self.pool.shutdown()
        for b in self.beside.values():
            self.mover.release(b.base)
            b.close()
        self.beside.clear()
        self.mover.close()

    # ---- the thread of the jobs ----

    def _run(self):
        under = deque()                  # (job, share): begun on the device, in order
        while True:
            while under and (len(under) == LANES or self.jobs.empty()):
                self._end_first(under)
            self.idle = True
            asked = self.jobs.get()[-1]
            self.idle = False
            self.got.set()
            job = Job(*asked) if asked else None
            while under and not (job and self._goes_beside(job, under)):
                self._end_first(under)
            if job is None:
                return
            shares = self._prepare(job)
            if shares and job.on_device(self.mover, self.image):
                self._do_on_device(job, shares, under)
                continue
            while under:                 # if it has failed: jobs end in their order
                self._end_first(under)
            self._do_by_threads(job, shares)
            self._finish(job)

    def _goes_beside(self, job, under):
        """A job that stores into a slot, or loads from it, does so after the jobs before it."""
        return job.on_device(self.mover, self.image) and all(job.touched.isdisjoint(other.touched) for other, _ in under)

    def _prepare(self, job):
        """Its shares; nothing: there are no chunks to copy, or it has failed."""
        self._stamp(job, "begun")
        try:
            groups = chunks_of(job.blocks, job.slots, self.blocks_per_chunk)
            if job.store and self.blocks_per_chunk > 1:
                groups = self._whole(job, groups)
            if groups:
                job.beside = self._attach(job.slots)
            if job.on_device(self.mover, self.image):
                return [s for g in groups for s in g.shares_of(self._share_of(g.group))]
            return [s for g in groups for s in g.shares(self.conf.threads)]
        except Exception as e:           # not attached: no byte was moved
            if isinstance(e, gpc.Error) and not job.beside:
                log.error("gpc: %s", explain_attach(e, self.conf.dir, self.label))
            self._give_up(job)
            return []

    def _share_of(self, group):
        """Chunks."""
        return min(MOST, max(FEWEST, COPIES // (self.blocks_per_chunk * max(1, len(self.runs[group])))))

    def _do_on_device(self, job, shares, under):
        job.left = len(shares)
        for chunks in shares:
            while len(under) == LANES:
                self._end_first(under)
            self.lane = (self.lane + 1) % LANES
            under.append((job, self._begin_share(job, chunks, self.lane)))

    def _end_first(self, under):
        job, begun = under.popleft()
        self._count(job, *self._end_share(job, begun))
        job.left -= 1
        if not job.left:
            self._finish(job)

    def _do_by_threads(self, job, shares):
        """They sum, and copy, side by side.  All of them have ended when this returns, also where one has failed."""
        for chunks, ends in self.pool.map(lambda s: self._end_share(job, self._begin_share(job, s, 0)), shares):
            self._count(job, chunks, ends)

    def _whole(self, job, groups):
        """A sum is that of a whole chunk: a chunk that a store covers in part gets none, and is told as not stored."""
        out = []
        for whole, others in (g.split(self.blocks_per_chunk) for g in groups):
            job.unmoved += others
            out += [whole] if whole else []
        return out

    def _give_up(self, job):
        log.exception("gpc: job %d", job.number)
        job.errors = set() if job.store else {int(b) for b in job.blocks.block_ids}
        job.moved, job.unmoved = 0, [int(s) for s in job.slots.block_ids]

    def _finish(self, job):
        try:
            if job.bad:
                self._drop(job.beside, job.slots, job.bad)
            self.drops.again()
        except Exception:
            self._give_up(job)
        self._stamp(job, "ended")
        # a failed load is told by its blocks; if the connector does not ask for them, by the job
        r = self.result(job.number, not job.errors or self.reported, job.moved, time.perf_counter() - job.since)
        with self.lock:                  # get_finished forgets it at once
            self.done.append((r, job.errors, job.unmoved, job if self.trace else None))
            self.ended[job.number].set()

    def _stamp(self, job, moment):
        if self.trace:
            job.moments[moment] = trace.now()

    def _count(self, job, chunks, ends):
        if min(ends) > 0:
            job.moved += sum(ends)
            return
        for i, n in enumerate(ends):
            if n > 0:
                job.moved += n
                continue
            job.unmoved.append(chunks.slots[i])
            if not job.store:
                job.errors.update(chunks.blocks(i))
                job.bad.append((chunks.slots[i], chunks.key(i), n))

    def _attach(self, slots, timeout=None):
        b = self.beside.get(slots.where)
        if b is None:
            if timeout is None:
                timeout = 0 if slots.where in self.tried else SEAT
            self.tried.add(slots.where)
            b = Beside(slots, self.image, self.part, self.label, timeout)
            try:
                self._seed(b)
            except Exception:
                b.close()
                raise
            b.open(self.mover)
            self.beside[slots.where] = b
        return b

    def _begin_share(self, job, chunks, lane):
        """(chunks, the argument of _end_share, their sums).  A store that fails seals nothing; the manager is told, and
        publishes none of it."""
        try:
            sums = bytearray(SUM * len(chunks))
            self.mover.hasten(job.beside.base, chunks.slots, job.slots.block_ids, job.store)
            if not job.store:
                job.beside.c.sealed(job.beside.blocks_of(chunks.slots), chunks.keys, self.part, out=sums)
            return chunks, _gpc._share_begin(
                store=job.store, runs=self.tables[chunks.group], slots=chunks.slots, of=sums,
                starts=chunks.starts, pages=chunks.pages, calls=self.mover.begin(job.fence), base=job.beside.base,
                where=(job.beside.stride, job.beside.area, self.structure, job.beside.each),
                bytes=self.image.rank_bytes, sums=self.image.checksum, by=job.by, lane=lane), sums
        except Exception:
            log.exception("gpc: slots from %d", chunks.slots[0])
            return chunks, None, None

    def _end_share(self, job, begun):
        """(chunks, for each: bytes moved, or the kind of failure)."""
        chunks, share, sums = begun
        failed = [0 if job.store else FAILED] * len(chunks)
        if not share:
            return chunks, failed
        try:
            return chunks, self._end(job, chunks, share, sums)
        except Exception:                # other shares of the job may be under way: they end, and count
            log.exception("gpc: slots from %d", chunks.slots[0])
            self.mover.abandon()
            return chunks, failed

    def _end(self, job, chunks, share, sums):
        ends, err, stamps = _gpc._share_end(share)
        if self.trace:
            self.trace.share(job, stamps)
        if err:
            self.mover.abandon()
            log.error("gpc: a copy: %s", self.mover.text(err))
        return self._seal(job, chunks, ends, sums) if job.store else ends

    def _seal(self, job, chunks, ends, sums):
        """Seals the chunks that have their bytes, after these.  A block that is not reserved any more belongs to
        another process by now."""
        try:
            whole = [i for i, n in enumerate(ends) if n > 0]
            slots, keys = chunks.slots, chunks.keys
            if len(whole) < len(ends):
                slots, keys = [slots[i] for i in whole], b"".join(map(chunks.key, whole))
                sums = b"".join(sums[SUM * i:SUM * (i + 1)] for i in whole)
            job.beside.c.seal(job.beside.blocks_of(slots), keys, sums, self.part)
            return ends
        except gpc.Error as e:
            log.error("gpc: a store into slots from %d counts for nothing: %s", chunks.slots[0], e.strerror)
            return [0] * len(chunks)

    def _drop(self, beside, slots, failed):
        """Drops these, so that no lookup finds them.  Chunks that follow them in a chain stay, since their own bytes
        are good.  The manager still references them, so they have the keys that we were told."""
        for slot, key, why in failed:
            if why != BAD:
                log.error("gpc: slot %d of %s, key %s, could not be copied; it is dropped", slot, slots.where.name,
                          key.hex())
                continue
            self.bad += 1
            (was,) = beside.c.sealed([gpc.BLOCK(slots.pool, slot)], key, self.part)
            other = not was.result and was.seed != self.structure
            log.error("gpc: slot %d of %s: its bytes are %snot those of key %s; it is dropped", slot,
                      slots.where.name, "of another structure of KV caches, or " * other, key.hex())
        self.drops.drop(beside.c, [gpc.BLOCK(slots.pool, slot) for slot, _, _ in failed], [key for _, key, _ in failed])
