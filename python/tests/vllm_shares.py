# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm's worker, with jobs by chance: stores and loads of slots that others have as well, of several KV groups, in many
shares, of which some fail.  Each job is told in its turn, with the bytes, slots and blocks that it should have, and by then
its bytes are there.  A stream copies as late as it may.  GPC_SEED=N: the first of the numbers that the jobs come from."""

import collections
import logging
import os
import random
import threading
from array import array

import vllm_fake as fake

fake.install()

import gpc.vllm.finder  # noqa: E402
import gpc.vllm.worker as worker  # noqa: E402
from cuda_fake import Runtime  # noqa: E402
from gpc import _gpc  # noqa: E402
from gpc.vllm import GPCOffloadingSpec, register  # noqa: E402
from gpc.vllm.cuda import CudaMover  # noqa: E402
from gpc.vllm.image import Slots  # noqa: E402
from tap import _made, done, is_, name  # noqa: E402

logging.disable(logging.CRITICAL)
gpc.vllm.finder.ASK = worker.SEAT = 60
register.PIECE, register.REST = 5 * 4096, 0
PAGE, BLOCKS, SLOTS, JOBS, BATCHES = 128, 160, 48, 14, 4
SEED = int(os.environ.get("GPC_SEED", 1))
FAILS = ("hasten", "begin", "copy", "wait", "text", "seal")      # calls that fail in a share; "text": of a copy's error


class Plan(threading.local):
    """Of the share that this thread begins or ends: the call that fails, and whether it has done so."""
    job, store, fails, copies, failed = 0, False, None, 0, False

    def fail(self, *calls):
        self.failed |= self.fails in calls
        return self.fails in calls

    def check(self, *calls):
        if self.fail(*calls):
            raise RuntimeError(calls[0])


class Late(Runtime):
    """A stream copies when a thread waits for it, or for a stream that follows it.  pieces: as many are registered, and then
    the driver refuses.  turn: a stream that has got so many bytes to store gets no more before it has followed another one, or a thread
    has waited for it."""

    def __init__(self, plan, late, pieces, turn):
        super().__init__()
        self.plan, self.late, self.pieces, self.turn = plan, late, pieces, turn
        self.given, self.got = collections.defaultdict(list), collections.Counter()  # stream -> (job, call), and how many are done
        self.marks, self.turned, self.longer = {}, collections.Counter(), 0

    def left(self):
        return {n for stream, calls in self.given.items() for n, call in calls[self.got[stream]:] if len(call) > 2}

    def cudaHostRegister(self, *args):
        self.pieces -= 1
        return 2 if self.pieces < 0 else super().cudaHostRegister(*args)

    def _copy(self, *copy):
        self.plan.copies -= 1
        if self.plan.copies < 0 and self.plan.fail("copy", "text"):
            return 5
        stream = copy[-1]
        if self.plan.store:
            self.longer += self.turned[stream] >= self.turn
            self.turned[stream] += copy[4] * copy[5]
        self.given[stream].append((self.plan.job, copy))
        return 0 if self.late else self._catch_up(stream, len(self.given[stream]))

    def _catch_up(self, stream, n):
        while self.got[stream] < n:
            _, call = self.given[stream][self.got[stream]]
            self.got[stream] += 1
            if err := self._catch_up(*call) if len(call) == 2 else super()._copy(*call):
                return err
        return 0

    def _turn(self, stream, ends):
        self.turned[stream] *= not ends

    def _say(self, called, *args):
        if called == "cudaEventRecord":
            self.marks[args[0]] = (args[1], len(self.given[args[1]]))
        elif called == "cudaStreamWaitEvent":
            if args[1] in self.marks:    # what the event says now
                self.given[args[0]].append((self.plan.job, self.marks[args[1]]))
                self._turn(args[0], self.marks[args[1]][0] != args[0])
        elif called == "cudaEventSynchronize":
            if self.plan.fail("wait"):
                return 2
            stream, n = self.marks[args[0]]
            self._catch_up(stream, n)
            self._turn(stream, n == len(self.given[stream]))
        elif called == "cudaStreamSynchronize":
            self._catch_up(args[0], len(self.given[args[0]]))
            self._turn(args[0], True)
        return 0


class Mover(CudaMover):
    def __init__(self, plan, rt, on_device):
        super().__init__(0, lambda: fake.ns(cuda_event=5), rt)
        self.plan, self.on_device, self.turn = plan, on_device, rt.turn

    def _sum_stream(self):               # sums are made by the thread, which wants no stream for them
        return 0

    def hasten(self, base, slots, of_job, store):
        self.plan.check("hasten")
        super().hasten(base, slots, of_job, store)

    def begin(self, fence):
        self.plan.check("begin")
        return super().begin(fence)

    def text(self, err):
        self.plan.check("text")
        return "a failure"


class Cache:
    """A handle, whose gpc_seal fails where it is to fail."""

    def __init__(self, c, plan):
        self.c, self.plan = c, plan

    def __getattr__(self, what):
        return getattr(self.c, what)

    def seal(self, *args):
        self.plan.check("seal")
        self.c.seal(*args)


class Engine:
    """Its blocks, the cache's slots, and what becomes of both if jobs are done one after the other.  Stores take blocks of
    the first half.  Each load has blocks of its own of the second half."""

    def __init__(self, what, seed, per_chunk=1, groups=1, sums=False, on_device=True):
        self.dice, self.per_chunk, self.plan = random.Random(seed), per_chunk, Plan()
        conf = fake.config({"gpc_name": name + what, "gpc_weights": "w", "gpc_bytes": (64 + SLOTS) * 4096, "gpc_stock": 0,
                            "gpc_free_target": -1, "gpc_checksum": sums, "gpc_threads": 3},
                           blocks_per_chunk=per_chunk, block_bytes=PAGE * groups, groups=groups, engine_id=f"{name}{what}")
        _made.add(name + what)
        self.m = GPCOffloadingSpec(conf).get_manager()
        self.m.set_chained({g: True for g in range(groups)})
        self.ctx, keys = fake.prompt(what, SLOTS // groups, tokens=16 * per_chunk, groups=range(groups))
        self.keys = [k for of in (keys.values() if groups > 1 else [keys]) for k in of]
        self.spec = spec = fake.offer(self.m, self.keys, self.ctx).store_spec
        each = len(spec.block_ids) // groups
        self.slots = [spec.block_ids[g * each:(g + 1) * each] for g in range(groups)]
        self.key = {s: bytes(spec.keys[16 * i:16 * i + 16]) for i, s in enumerate(spec.block_ids)}
        self.kv = [fake.Tensor(BLOCKS, PAGE, 0) for _ in range(groups)]
        self.w = w = GPCOffloadingSpec(conf).get_worker(fake.caches(self.kv, groups))
        if groups > 1:                   # each has a tensor of its own
            w.set_runs([worker.runs_of([t], per_chunk) for t in w.tensors])
        self.rt = Late(self.plan, not sums or not on_device, self.dice.choice((3, 1000)), self.dice.choice((1, 3, 1000)) * PAGE)
        w.reported, w.mover = True, Mover(self.plan, self.rt, on_device)
        if sums and on_device:
            w.mover.sums = _gpc._sums_open("host", array("Q", [n for t in w.tensors for n in (t.address, t.stride, t.page)]), per_chunk)
        self.beside = w._attach(spec)
        self.beside.c = Cache(self.beside.c, self.plan)
        worker.COPIES, worker.FEWEST = self.dice.choice((1, 4, 9)) * per_chunk, 1
        self.has, self.unsure = {}, set()        # slot -> pages; slots of which a store has failed
        self.jobs, self.told, self.wrong, self.under, self.dropped, self.together = {}, [], [], [], {}, 0
        self.lock, self.begun, self.gate = threading.Lock(), threading.Event(), threading.Event()
        self.begin_share, self.end_share, self.result = w._begin_share, w._end_share, w.result
        w._begin_share, w._end_share, w.result, w._drop = self.begin, self.end, self.tell, self.drop

    # ---- in the worker's threads ----

    def begin(self, job, chunks, lane):
        self.begun.set()
        self.gate.wait()
        of, slots = self.jobs[job.number], {*chunks.slots}
        share = fake.ns(job=job, slots=slots, lane=lane,
                        fails=next((of.fails[s] for s in chunks.slots if s in of.fails), (None, 0)))
        with self.lock:
            if self.w.mover.on_device and (len(self.under) >= worker.LANES or lane in {s.lane for s in self.under}):
                self.wrong.append(f"job {job.number}: a lane that another share has")
            if any(s.slots & slots and (s.job.store or job.store) for s in self.under):
                self.wrong.append(f"job {job.number}: a slot that another share stores into, or loads")
            self.together += any(s.job is not job for s in self.under)
            of.shares += slots
            self.under.append(share)
        self.plan.job, self.plan.store, (self.plan.fails, self.plan.copies), self.plan.failed = job.number, job.store, share.fails, False
        begun = self.begin_share(job, chunks, lane)
        share.failed = self.plan.failed
        return share, begun

    def end(self, job, begun):
        share, begun = begun
        self.plan.fails, self.plan.failed = share.fails[0], share.failed
        ends = ()
        try:
            chunks, ends = self.end_share(job, begun)
            return chunks, ends
        finally:                         # a thread that copies may have sealed some of them before
            with self.lock:
                good = {s for s, n in zip(chunks.slots, ends) if n > 0} if ends else set()
                self.jobs[job.number].failed |= share.slots - good if self.plan.failed else set()
                self.under.remove(share)

    def drop(self, beside, slots, failed):
        """The slots stay ours."""
        self.dropped = {slot: why for slot, key, why in failed}

    def tell(self, number, success, moved, seconds):
        """The job has ended: the same is done here, and compared."""
        of, say = self.jobs[number], lambda what: self.wrong.append(f"job {number}: {what}")
        self.told.append(number)
        if sorted(of.shares) != sorted(s for s, *_ in of.chunks if s not in of.partial):
            say(f"shares of {sorted(of.shares)}")
        if any(s.job.number == number for s in self.under) or number in self.rt.left():
            say("told while a share or a copy of it is under way")
        bad = (self.stored if of.store else self.loaded)(of, say)
        if (success, moved) != (True, of.moved) and not of.either:
            say(f"success {success}, {moved} bytes; {of.moved} were moved")
        if {s: why for s, why in self.dropped.items() if s not in of.failed | of.either} != bad or \
                not of.store and of.failed - {*self.dropped}:
            say(f"dropped {self.dropped}, bad {bad}, failed {of.failed}")
        self.dropped = {}
        return self.result(number, success, moved, seconds)

    def memory(self, slot, group):
        b = self.beside
        at = b.base + slot * b.stride + b.area + group * PAGE * self.per_chunk - b.part.address
        view = memoryview(b.part)
        got = [bytes(view[at + p * PAGE:at + (p + 1) * PAGE]) for p in range(self.per_chunk)]
        view.release()
        return got

    def stored(self, of, say):
        of.unmoved = of.partial | of.failed
        self.unsure |= of.failed
        for slot, group, pages in of.chunks:
            if slot in of.unmoved:
                continue
            of.moved += PAGE * len(pages)
            self.unsure.discard(slot)
            self.has[slot] = [self.kv[group].get(b) for _, b in pages]
            if self.memory(slot, group) != self.has[slot]:
                say(f"slot {slot} has other bytes")
        return {}

    def loaded(self, of, say):
        bad = {}
        for slot, group, pages in of.chunks:
            if slot not in of.failed and (slot in of.strange or slot not in self.has and slot not in self.unsure):
                bad[slot] = worker.BAD
            if slot in bad or slot in of.failed:
                of.unmoved.add(slot)
                of.errors.update(b for _, b in pages)
            elif slot in self.unsure:
                of.either.add(slot)
            else:
                of.moved += PAGE * len(pages)
                if [self.kv[group].get(b) for _, b in pages] != [self.has[slot][p] for p, _ in pages]:
                    say(f"blocks of slot {slot} have other bytes")
        return bad

    # ---- the engine's thread ----

    def chunks_of(self, blocks, group, n, at, first, last):
        """(slot, group, [(place, block)]) of n slots in a row, or anywhere."""
        slots = self.slots[group]
        begin = self.dice.randrange(len(slots) - n + 1)
        some = self.dice.sample(slots, n) if at == "any" else slots[begin:begin + n][::-1 if at == "down" else 1]
        return [(slot, group, [(p, blocks.pop()) for p in range(first * (i == 0), self.per_chunk - last * (i == n - 1))])
                for i, slot in enumerate(some)]

    def submit(self, first=False):
        """Of a batch, the first one fails nowhere."""
        number, dice = len(self.jobs) + 1, self.dice
        store = first or dice.random() < 0.5
        of = self.jobs[number] = fake.ns(store=store, chunks=[], shares=[], failed=set(), fails={}, either=set(), strange=set(),
                                         moved=0, unmoved=set(), errors=set(), first=not store and dice.random() < 0.2)
        sizes, skips = [], []
        for g in range(len(self.kv)):
            blocks = dice.sample(range(BLOCKS // 2), BLOCKS // 2) if store else self.free[g]
            n = 1 if first else min(dice.choice((0, 1, 2, 5, 12)), len(blocks) // self.per_chunk)
            skip, last = (0, 0) if first else (dice.randrange(self.per_chunk), dice.randrange(self.per_chunk))
            chunks = self.chunks_of(blocks, g, n, dice.choice(("row", "any", "down")), skip, 0 if store or n == 1 else last)
            of.chunks += chunks
            sizes.append(sum(len(pages) for *_, pages in chunks))
            skips.append(skip)
        slots = [s for s, *_ in of.chunks]
        of.partial = {s for s, _, pages in of.chunks if store and len(pages) < self.per_chunk}
        if not first and dice.random() < 0.4:
            of.fails = {dice.choice(slots): (dice.choice(FAILS), dice.randrange(6)) for _ in range(2) if slots}
        if not store:
            of.strange = {s for s in slots if dice.random() < 0.08}
        keys = b"".join(bytes(16) if s in of.strange else self.key[s] for s in slots)
        spec = Slots(self.spec.where, self.spec.pool, slots, keys)
        blocks = fake.blocks([b for *_, pages in of.chunks for _, b in pages], sizes, skips)
        if store:
            self.w.submit_store(number, blocks, spec)
        else:
            self.w.submit_load(number, spec, blocks, expedited=of.first)
        return number

    def batch(self):
        """Jobs that are all there before the first one begins, so each run with these numbers does the same."""
        for t in self.kv:
            for b in range(BLOCKS):
                t.put(b, f"{len(self.jobs)} {b} {self.dice.random()} ".encode())
        self.free = [self.dice.sample(range(BLOCKS // 2, BLOCKS), BLOCKS // 2) for _ in self.kv]
        self.begun.clear()
        self.gate.clear()
        numbers = [self.submit(True)]
        self.begun.wait()
        numbers += [self.submit() for _ in range(JOBS - 1)]
        self.gate.set()
        self.w.drain()
        got = [r.job_id for r in self.w.get_finished()]
        if got != sorted(numbers, key=lambda n: (n != numbers[0], not self.jobs[n].first)):
            self.wrong.append(f"jobs {got} is the order of the ends")
        jobs, unmoved, errors = [self.jobs[n] for n in numbers], self.w.take_unmoved(), self.w.take_load_errors()
        for n, of in zip(numbers, jobs):
            if sorted(s for s in unmoved.get(n, ()) if s not in of.either) != sorted(of.unmoved):
                self.wrong.append(f"job {n}: unmoved {unmoved.get(n)}, and not {of.unmoved}")
        unsure = {b for of in jobs for slot, _, pages in of.chunks if slot in of.either for _, b in pages}
        if errors - unsure != set().union(*(of.errors for of in jobs)) - unsure:
            self.wrong.append(f"up to job {numbers[-1]}: errors {errors}")

    def ends_of_strange(self):
        """A load of a group that is not there."""
        self.w._begin_share, self.w._end_share, self.w.result = self.begin_share, self.end_share, self.result
        n, one = len(self.kv), Slots(self.spec.where, self.spec.pool, self.spec.block_ids[:1], self.spec.keys[:16])
        self.w.submit_load(0, one, fake.blocks([1], [0] * n + [1], [0] * (n + 1)))
        event = self.w.ended[0]
        while self.w.thread.is_alive() and not event.wait(0.01):
            pass
        return event.is_set(), [r.job_id for r in self.w.get_finished()], [*self.w.take_unmoved().values()] == [one.block_ids]

    def end_all(self):
        self.w.shutdown()
        self.m.complete_store(set(self.keys), self.ctx, success=False)
        self.m.shutdown()


for i, (what, more) in enumerate({"on a device": {}, "of two blocks": dict(per_chunk=2), "of two groups": dict(per_chunk=3, groups=2),
                                  "summed by the device": dict(per_chunk=2, sums=True),
                                  "by threads": dict(per_chunk=2, groups=2, sums=True, on_device=False)}.items()):
    for seed in (SEED, SEED + 1):
        e = Engine(f"-{i}{seed}", 1000 * i + seed, **more)
        for _ in range(BATCHES):
            e.batch()
        is_(e.wrong, [], f"chunks {what}, {len(e.told)} jobs of seed {seed}")
        is_((e.together > 0, e.rt.crossed), (e.w.mover.on_device, 0), f"{e.together} shares begin beside one of another job")
        is_(e.rt.longer, 0, f"stores take turns of {e.rt.turn} bytes")
        is_(e.ends_of_strange(), (True, [0], True), "a job of a group that is not there ends")
        e.end_all()
        is_((e.rt.ranges, e.under), ({}, []), "nothing is left of them")
done()
