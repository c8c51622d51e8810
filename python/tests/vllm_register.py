# SPDX-License-Identifier: Apache-2.0
"""Slots of a rank registered with its GPU, by a runtime that copies here: loads and stores before a piece is registered,
meanwhile, after it and where the driver refuses have the same bytes, and no copy goes from one piece to another; each rank
registers its part alone; the end comes in the middle; one process at a time, whatever becomes of the one that has its turn."""

import fcntl
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

import vllm_fake as fake

fake.install()

import gpc.vllm.finder  # noqa: E402
import gpc.vllm.worker  # noqa: E402
from cuda_fake import Runtime  # noqa: E402
from gpc.vllm import GPCOffloadingSpec, register  # noqa: E402
from gpc.vllm.cuda import CudaMover  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = gpc.vllm.worker.SEAT = 60
register.PATIENCE, register.REST = 60, 0
register.DENSE = 0               # no job registers
PAGE, BLOCKS, WORLD, SLOT, SLOTS = 256, 64, 2, 4096, 64 + 64
register.PIECE = 5 * SLOT        # not a part of SLOTS
_made.add(name)


class Gated(Runtime):
    """Each registration waits until it is let go."""

    def __init__(self, fails=""):
        super().__init__(fails)
        self.begun, self.gate, self.refuse_from = threading.Semaphore(0), threading.Semaphore(0), 1 << 30

    def cudaHostRegister(self, address, nbytes, flags):
        self.begun.release()
        self.gate.acquire()
        self.refuse_from -= 1
        return 2 if self.refuse_from < 0 else super().cudaHostRegister(address, nbytes, flags)

    def let(self, n=1):
        for _ in range(n):
            self.gate.release()


class Said(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def about(self, text):
        return [line for line in self.lines if text in line]


said = Said()
logging.getLogger("vllm.gpc").addHandler(said)
logging.getLogger("vllm.gpc").setLevel(logging.INFO)


def config(rank=0):
    return fake.config({"gpc_name": name, "gpc_weights": "w", "gpc_bytes": SLOTS * WORLD * SLOT, "gpc_stock": 0,
                        "gpc_free_target": -1, "gpc_checksum": False}, rank=rank, world=WORLD, blocks_per_chunk=1, block_bytes=PAGE)


class Rank:
    def __init__(self, rt, rank=0):
        self.rt, self.kv = rt, fake.Tensor(BLOCKS, PAGE, 0)
        self.worker = GPCOffloadingSpec(config(rank)).get_worker(fake.caches([self.kv]))
        self.worker.mover = CudaMover(rank, lambda: fake.ns(cuda_event=5), rt)
        self.job = 0

    def registration(self):
        (r,) = self.worker.mover.registrations.values()
        return r

    def fill(self, text):
        for b in range(BLOCKS):
            self.kv.put(b, f"{text} {b} ".encode())

    def get(self, blocks):
        return [self.kv.get(b) for b in blocks]

    def do(self, store, blocks, slots):
        self.job += 1
        if store:
            self.worker.submit_store(self.job, fake.blocks(blocks), slots)
        else:
            self.worker.submit_load(self.job, slots, fake.blocks(blocks))
        self.worker.wait({self.job})
        (r,) = self.worker.get_finished()
        return r.success

    def there_and_back(self, slots, text, what):
        """Blocks in a row, so that copies take as many slots as they may."""
        blocks = list(range(len(slots.block_ids)))
        self.fill(text)
        want = self.get(blocks)
        ok(self.do(True, blocks, slots), f"{what}: stored")
        self.fill("empty")
        ok(self.do(False, blocks, slots), f"{what}: loaded")
        ok(self.get(blocks) == want, f"{what}: the same bytes")
        is_(self.rt.crossed, 0, f"{what}: no copy goes from one piece to another")


m = GPCOffloadingSpec(config()).get_manager()
m.set_chained({0: True})
ctx, keys = fake.prompt("one", 32, tokens=16)
slots = fake.offer(m, keys, ctx).store_spec
at = slots.block_ids
ok(sum(b == a + 1 for a, b in zip(at, at[1:])) > 16, "slots that follow each other")

# ---- before, meanwhile, afterwards ----

rt = Gated()
rank = Rank(rt)
rank.there_and_back(slots, "before", "before the first piece")
r = rank.registration()
is_((r.each, len(r.pieces), r.registered()), (5, 26, 0), "pieces of whole slots, of which none is registered")
copies = rt.names().count("Memcpy2DAsync")
ok(copies < 2 * 32, f"{copies} copies")
rt.let(7)
for _ in range(8):
    rt.begun.acquire()
is_(Counter(r.states), {register.DONE: 7, register.UNDER_WAY: 1, register.NEW: 18}, "some are, and one is under way")
is_(rank.worker.mover.registering(), (True, 7 * 5 * SLOT), "which the worker tells")
rank.there_and_back(slots, "meanwhile", "while some are")
rt.let(100)
r.thread.join()
is_((set(r.states), r.registered(), rank.worker.mover.registering()), ({register.DONE}, SLOTS * SLOT, (False, SLOTS * SLOT)), "all are")
is_(sum(rt.ranges.values()), SLOTS * SLOT, "what was registered is all slots, of one rank")
rank.there_and_back(slots, "afterwards", "when all are")
is_(len(said.about("of slots are registered")), 1, "which is told once")

# ---- the other rank ----

second = Rank(Runtime(), 1)
second.there_and_back(slots, "rank 1", "another rank")
second.registration().thread.join()
base = [rank.worker.beside[slots.where].c.pool_map(0)[0].address, second.worker.beside[slots.where].c.pool_map(0)[0].address]
mine, theirs = ({a - b + i for a, n in some.ranges.items() for i in range(0, n, SLOT)}
                for some, b in zip((rt, second.rt), base))
is_((len(mine & theirs), len(mine | theirs)), (0, WORLD * SLOTS), "each has registered its part of all slots")
kept = rank.get(range(32))
ok(rank.do(False, list(range(32)), slots), "and the first one ...")
ok(rank.get(range(32)) == kept, "... has its bytes")
second.worker.shutdown()
is_(second.rt.ranges, {}, "the end: nothing is registered")
rank.worker.shutdown()
is_(rt.ranges, {}, "nor here")

# ---- the end in the middle ----

rt = Gated()
rank = Rank(rt)
rank.there_and_back(slots, "middle", "registering")
r = rank.registration()
rt.let(3)
for _ in range(4):
    rt.begun.acquire()
end = threading.Thread(target=rank.worker.shutdown)
end.start()
r.stop.wait()
rt.let(100)
end.join()
names = rt.names()
is_((names.count("HostRegister"), names.count("HostUnregister"), rt.ranges), (4, 4, {}), "it ends with the piece that is under way")
is_(set(r.states), {register.ENDED}, "and nothing is left of it")
ok(names.index("HostUnregister") > max(i for i, n in enumerate(names) if n == "Memcpy2DAsync"), "after the last copy")

# ---- a driver that refuses ----

said.lines.clear()
rt = Gated()
rt.refuse_from = 3
rt.let(100)
rank = Rank(rt)
rank.there_and_back(slots, "refused", "where the driver refuses")
r = rank.registration()
r.thread.join()
is_(Counter(r.states), {register.DONE: 3, register.REFUSED: 1, register.NEW: 22}, "after the first refusal no piece is tried")
is_(rt.names().count("GetLastError"), 1, "nobody else is told")
is_([len(said.about(t)) for t in ("and no more of them: cudaHostRegister: a failure (2)", "60 of 512 KiB")], [1, 0], "one warning")
rank.there_and_back(slots, "some", "with three pieces")
rank.worker.shutdown()
is_((rt.ranges, rt.names().count("HostUnregister")), ({}, 3), "these are given back")

# ---- what others have registered ----

rt = Runtime()
rank = Rank(rt)
rank.worker.mover = None
mover = CudaMover(0, lambda: fake.ns(cuda_event=5), rt)
memory = fake.Tensor(SLOTS, SLOT, 0)
base = (memory.data_ptr() + 4095) & ~4095
rt.ranges[base] = 2 * SLOT
mover.open(base, SLOTS - 1, SLOT, None)
mover.registrations[base].thread.join()
is_(Counter(mover.registrations[base].states), {register.OTHERS: 1, register.DONE: 25}, "a piece that another one has registered")
mover.release(base)
is_(rt.ranges, {base: 2 * SLOT}, "stays his")
mover.release(base)
rank.worker.mover = gpc.vllm.worker.HostMover()
rank.worker.shutdown()

# ---- beside steps ----

rank = Rank(Runtime())
rank.there_and_back(slots, "steps", "an engine that has made no step")
r = rank.registration()
r.thread.join()
register.REST = 15
short = register.SHORT
is_((r.rest(0.004), r.rest(1)), (short, short), "its thread makes no pause but for others")
rank.worker.step(True)
steps = rank.worker.mover.steps
beside = [short, 15 * 0.001, register.MOST_REST]
is_([r.rest(t) for t in (0, 0.001, 1)], beside, "a step is launched: fifteen times as long as the piece took")
steps.last -= 1000
is_([r.rest(t) for t in (0, 0.001, 1)], beside, "however long that takes")
rank.worker.step(False)
steps.last += 1000               # or a machine that is busy makes it long ago
is_([r.rest(t) for t in (0, 0.001, 1)], beside, "and so just after its launches")
steps.last = time.monotonic() - register.BUSY
is_(r.rest(0.004), short, "a moment later: no pause again")
is_(rank.rt.strict, {"cudaSetDevice"}, "no capture of a graph ends because of its thread")
register.REST = 0
rank.worker.shutdown()

# ---- jobs that register their own pieces ----


class Slow(Gated):
    """Registers nothing for the thread of register.py, until it is let go; and at once for any other."""

    def __init__(self):
        super().__init__()
        self.others = []

    def cudaHostRegister(self, address, nbytes, flags):
        if threading.current_thread().name == "gpc-register":
            return super().cudaHostRegister(address, nbytes, flags)
        self.others.append(address.value)
        self.refuse_from -= 1
        return 2 if self.refuse_from < 0 else Runtime.cudaHostRegister(self, address, nbytes, flags)


def touched(r):
    return sorted({s // r.each for s in slots.block_ids})


register.DENSE = 2
rt = Slow()
rank = Rank(rt)
rank.there_and_back(slots, "dense", "slots that fill their pieces")
r = rank.registration()
rt.begun.acquire()
rank.there_and_back(slots, "dense", "the same slots")
first = r.states.index(register.UNDER_WAY)
is_(Counter(r.states[i] for i in touched(r) if i != first), {register.DONE: len({*touched(r)} - {first})},
    "their job registers these, but for the one that is under way")
is_(len(rt.others), len({*rt.others}), "each once")
is_(r.next, touched(r)[-1] + 1, "and the thread goes on behind the last slot of a store")
names = rt.names()
ok(max(i for i, c in enumerate(rt.calls) if c[0] == "cudaHostRegister") < names.index("Memcpy2DAsync"), "they are registered before the first copy")
rt.let(100)
r.thread.join()
is_((set(r.states), sum(rt.ranges.values())), ({register.DONE}, SLOTS * SLOT), "the thread registers all others")
is_(rt.strict, {"cudaSetDevice"}, "no capture of a graph ends because of a job")
rank.worker.shutdown()
is_(rt.ranges, {}, "and the end gives back all of them")

rt = Slow()
rank = Rank(rt)
few = gpc.vllm.image.Slots(slots.where, slots.pool, slots.block_ids[::5], b"".join(slots.keys[16 * i:16 * i + 16] for i in range(0, 32, 5)))
ok(rank.do(True, list(range(len(few.block_ids))), few), "slots that are few in each piece")
is_(rt.others, [], "are copied without")
r = rank.registration()
rt.begun.acquire()
for _ in range(3):
    rt.let()
    rt.begun.acquire()
order = [a for c, a, *_ in rt.calls if c == "cudaHostRegister"]
behind = [r.pieces[(touched(r)[-1] + 1 + i) % len(r.pieces)][0] for i in range(3)]
ok(order[-2:] == behind[:2] or order[-2:] == behind[1:], "the thread registers those behind the store first")
rt.let(100)
r.thread.join()
is_(set(r.states), {register.DONE}, "and then all before it")
rank.worker.shutdown()

said.lines.clear()
rt = Slow()
rt.refuse_from = 2
rank = Rank(rt)
rank.there_and_back(slots, "refused", "a driver that refuses the pieces of a job")
r = rank.registration()
rt.let(100)
r.thread.join()
is_((Counter(r.states)[register.REFUSED] in (1, 2), len(said.about("and no more of them: cudaHostRegister: a failure (2)"))), (True, 1),
    "one warning, and no piece is tried from then on")
is_(len(said.about("are registered with the GPU, ")), 1, "nobody says that all are registered")
rank.there_and_back(slots, "refused", "and again")
rank.worker.shutdown()
is_(rt.ranges, {}, "the others are given back")

# the last piece is a job's, and the driver refuses it
said.lines.clear()
rt = Slow()
rt.refuse_from = 0
rt.let(100)
mover = CudaMover(0, lambda: fake.ns(cuda_event=5), rt)
memory = fake.Tensor(9, SLOT, 0)
base = (memory.data_ptr() + 4095) & ~4095
with tempfile.TemporaryDirectory() as folder:
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)       # the thread waits for its turn
    mover.open(base, 5, SLOT, folder)
    mover.hasten(base, range(5), range(5), True)
    os.close(fd)
    mover.registrations[base].thread.join()
is_((mover.registrations[base].states, len(said.about("and no more of them")), len(said.about("are registered with the GPU, "))),
    ([register.REFUSED], 1, 1), "the last piece is refused: nobody says that all are registered")
mover.close()

# all of a job counts, and the bytes of its new pieces; the last one has two slots
memory = fake.Tensor(14, SLOT, 0)
base = (memory.data_ptr() + 4095) & ~4095
with tempfile.TemporaryDirectory() as folder:
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    for share, job, want in ((range(2), range(2), ""), (range(2), range(10), "D"), (range(2, 7), range(2, 7), "DD"),
                             ([11], [11], "  D"), (range(2, 5), [*range(2, 5), 5, 10], "")):
        mover = CudaMover(0, lambda: fake.ns(cuda_event=5), Slow())
        mover.open(base, 12, SLOT, folder)
        mover.hasten(base, share, job, False)
        r = mover.registrations[base]
        is_("".join("D" if s == register.DONE else " " for s in r.states).rstrip(), want, f"a share of {[*share]}, of {[*job]}: {want!r}")
        r.stop.set()
        mover.close()
    for store in (True, False):
        mover, waits = CudaMover(0, lambda: fake.ns(cuda_event=5), Slow()), []
        mover.open(base, 12, SLOT, folder)
        r = mover.registrations[base]
        r.stop = fake.ns(is_set=r.stop.is_set, set=r.stop.set, wait=lambda s, wait=r.stop.wait: waits.append(s) or wait(s))
        mover.hasten(base, range(10), range(10), store)
        is_(register.SHORT in waits, store, "a store lets launches go between its pieces, a load does not")
        r.stop.set()
        mover.close()
    os.close(fd)
register.DENSE = 0

# ---- a worker that does not get so far ----

peers = m.c.info().peers
rank = Rank(Runtime())
seed, rank.worker._seed = rank.worker._seed, lambda beside: 1 // 0
said.lines.clear()
ok(not rank.do(False, list(range(32)), slots), "an attachment that fails behind its first steps")
is_((m.c.info().peers, rank.worker.beside, rank.rt.calls), (peers, {}, []), "has no seat, and nothing is registered")
rank.worker._seed = seed
rank.there_and_back(slots, "again", "the next job")
rank.worker.shutdown()
is_((m.c.info().peers, rank.rt.ranges), (peers, {}), "and its end")

# ---- one process at a time ----


class Driver:
    """Of a process, as far as turns go."""
    under, most, order, lock = 0, 0, [], threading.Lock()

    def __init__(self, who):
        self.who = who

    def start(self):
        pass

    def register(self, address, nbytes):
        with Driver.lock:
            Driver.under += 1
            Driver.most = max(Driver.most, Driver.under)
            Driver.order.append(self.who)
        threading.Event().wait(0.001)
        with Driver.lock:
            Driver.under -= 1

    def unregister(self, address):
        pass


def registration(who, folder):
    return register.Registration(Driver(who), 1 << 30, 100, SLOT, folder, register.Steps())


with tempfile.TemporaryDirectory() as folder:
    with open("/dev/null") as nothing:   # nobody begins before both are there
        fd = os.open(folder, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        both = [registration(who, folder) for who in "ab"]
        os.close(fd)
    for x in both:
        x.thread.join()
    is_((Driver.most, Counter(Driver.order)), (1, {"a": 20, "b": 20}), "two processes: one at a time")
    turns = sum(x != y for x, y in zip(Driver.order, Driver.order[1:]))
    ok(turns > 1, f"{turns} turns: who has had one leaves the next to the other")
    for x in both:
        x.close()

    code = "import fcntl, os, sys, time; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); print(flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE)
    holder.stdout.readline()
    a = registration("a", folder)
    a.stop.wait(0.05)
    is_(a.registered(), 0, "a process that has its turn")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    a.thread.join()
    is_(a.registered(), 100 * SLOT, "is killed: its turn is over")
    a.close()

    holder = subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE)
    holder.stdout.readline()
    holder.send_signal(signal.SIGSTOP)
    register.PATIENCE = 0.05
    a = registration("a", folder)
    a.thread.join()
    is_(a.registered(), 100 * SLOT, "is stopped: the others go on without")
    a.close()
    register.PATIENCE = 60
    a = registration("a", folder)
    a.stop.wait(0.01)
    a.close()
    is_(a.registered(), 0, "who ends while he waits has registered nothing")
    holder.kill()
    holder.wait()
a = registration("a", "/nonexistent")
a.thread.join()
is_(a.registered(), 100 * SLOT, "without a folder there are no turns")
a.close()

m.complete_store(set(keys), ctx, success=False)
m.shutdown()
done()
