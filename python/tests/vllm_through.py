# SPDX-License-Identifier: Apache-2.0
"""Loads that go through memory of the GPU, by a runtime that copies here, in any order that its events allow: the bytes are
those of a load that goes straight, one copy brings slots in a row over the bus, and others go as they did.  Bad chunks,
copies that fail, and a GPU without memory for it."""

import logging
from array import array

import vllm_fake as fake

fake.install()

import gpc.vllm.cuda  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import gpc.vllm.worker  # noqa: E402
from cuda_fake import Late, Runtime  # noqa: E402
from gpc import _gpc  # noqa: E402
from gpc.vllm import GPCOffloadingSpec, register  # noqa: E402
from gpc.vllm.cuda import CudaMover  # noqa: E402
from gpc.vllm.image import Slots  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = gpc.vllm.worker.SEAT = 60
register.REST = 0
LAYERS, PAGE, BLOCKS, CHUNKS, SLOT = 4, 256, 128, 32, 4096
register.PIECE = 11 * SLOT
_made.add(name)


def config(checksum=False, blocks_per_chunk=1):
    return fake.config({"gpc_name": f"{name}-{blocks_per_chunk}", "gpc_weights": "w", "gpc_bytes": (64 + 3 * CHUNKS) * SLOT, "gpc_stock": 0,
                        "gpc_free_target": -1, "gpc_checksum": checksum}, blocks_per_chunk=blocks_per_chunk, block_bytes=LAYERS * PAGE)


class SumsHere(CudaMover):
    """The calling thread sums, which wants no stream for it."""

    def _make_stream(self):
        return super()._make_stream() if not self.streams else 0


class Engine:
    """KV caches and a worker.  Its device has memory for `part` chunks in a row; 0: none."""

    def __init__(self, rt, part=4, checksum=False, blocks_per_chunk=1):
        self.rt, whole = rt, fake.Tensor(LAYERS * BLOCKS, PAGE)
        self.kv = [whole.piece(i * BLOCKS, BLOCKS) for i in range(LAYERS)]
        self.worker = w = GPCOffloadingSpec(config(checksum, blocks_per_chunk)).get_worker(fake.caches(self.kv))
        w.mover, w.reported, self.job = (SumsHere if checksum else CudaMover)(0, lambda: fake.ns(cuda_event=5), rt), True, 0
        if checksum:
            w.mover.sums = _gpc._sums_open("host", array("Q", [n for t in w.tensors for n in (t.address, t.stride, t.page)]),
                                           blocks_per_chunk)
        gpc.vllm.cuda._PART = part * w.image.rank_bytes
        if part:
            w.mover.go_through(w.image.rank_bytes)

    def fill(self, text):
        for i, t in enumerate(self.kv):
            for b in range(BLOCKS):
                t.put(b, f"{text} {i} {b} ".encode())

    def get(self, blocks):
        return [t.get(b) for b in blocks for t in self.kv]

    def submit(self, store, blocks, slots, **where):
        self.job += 1
        if store:
            self.worker.submit_store(self.job, fake.blocks(blocks, **where), slots)
        else:
            self.worker.submit_load(self.job, slots, fake.blocks(blocks, **where))
        return self.job

    def end(self, jobs):
        self.worker.wait(jobs)
        return all(r.success for r in self.worker.get_finished())

    def do(self, *args, **where):
        return self.end({self.submit(*args, **where)})

    def copies(self):
        """(over the bus into memory of the device, within the device, straight)"""
        inside = [(a, a + len(m)) for a, m in self.rt.memory.items()]
        through = lambda at: any(a <= at < z for a, z in inside)     # noqa: E731
        calls = [c for c in self.rt.calls if c[0] == "cudaMemcpy2DAsync"]
        to, of = [through(c[1]) for c in calls], [through(c[3]) for c in calls]
        return sum(to), sum(of), len(calls) - sum(to) - sum(of)


def some(slots, order):
    """A load of these slots, in this order."""
    ids, keys = [slots.block_ids[i] for i in order], b"".join(slots.keys[16 * i:16 * i + 16] for i in order)
    return Slots(slots.where, slots.pool, ids, keys)


m = GPCOffloadingSpec(config()).get_manager()
m.set_chained({0: True})
ctx, keys = fake.prompt("one", CHUNKS)
slots = fake.offer(m, keys, ctx).store_spec
is_([b - slots.block_ids[0] for b in slots.block_ids], [*range(CHUNKS)], "slots in a row")
blocks = [37 * i % BLOCKS for i in range(CHUNKS)]

# ---- the bytes are the same, whatever the order of the copies ----

e = Engine(Runtime(), part=0)
e.fill("one")
want = e.get(blocks)
ok(e.do(True, blocks, slots), "stored")
e.worker.shutdown()
ORDERS = {
    "a row": [*range(CHUNKS)],
    "a row with holes": [i for i in range(CHUNKS) if i % 7 != 3],
    "rows backwards": [i for at in range(CHUNKS - 8, -1, -8) for i in range(at, at + 8)],
    "no row": [*range(0, CHUNKS, 2), *range(CHUNKS - 1, 0, -2)],
    "short rows": [i for at in (28, 1, 9, 17, 24, 5) for i in range(at, at + 3)],
    "rows and others": [5, 1, 2, 3, 4, 31, 30, 6, 7, 8, 9, 10, 11, 29],
}
for what, order in ORDERS.items():
    for seed in range(8):
        e = Engine(Late(seed), part=3 + seed % 4)
        e.fill("empty")
        ok(e.do(False, blocks[:len(order)], some(slots, order)), f"{what}: loaded")
        is_(e.get(blocks[:len(order)]), [p for i in order for p in want[LAYERS * i:LAYERS * i + LAYERS]], "the bytes of each chunk")
        ok(all(e.kv[0].get(b).startswith(b"empty") for b in {*range(BLOCKS)} - {*blocks}), "and no other block has changed")
        is_(e.rt.crossed, 0, "no copy goes from one piece of registered memory to another")
        e.worker.shutdown()

# two jobs that are under way together take the parts of that memory in turn
for seed in range(12):
    e = Engine(Late(seed))
    e.fill("empty")
    jobs = {e.submit(False, blocks[at:at + 8], some(slots, range(at, at + 8))) for at in range(0, CHUNKS, 8)}
    ok(e.end(jobs), "four jobs")
    is_(e.get(blocks), want, "the same bytes")
    e.worker.shutdown()

# ---- the copies ----


def counted(order, **more):
    """After all slots are registered."""
    e = Engine(Runtime(), **more)
    e.do(False, blocks[:1], some(slots, [0]))
    (r,) = e.worker.mover.registrations.values()
    r.thread.join()
    e.rt.calls.clear()
    e.do(False, blocks[:len(order)], some(slots, order))
    got = e.copies()
    e.worker.shutdown()
    return got


first = slots.block_ids[0]
at = [i for i in range(CHUNKS) if (first + i) % 11 == 0][0]      # the begin of a piece
is_(counted(range(at, at + 8)), (2, 8, 0), "eight in a row: two copies over the bus, of four each")
is_(counted(range(at, at + 11), part=16), (1, 11, 0), "one if they fit")
is_(counted(range(at, at + 16), part=16), (2, 16, 0), "but none leaves a piece")
is_(counted(range(at, at + 3)), (0, 0, 3), "three would save little")
is_(counted([at, at + 1, at + 2, at + 4, at + 5, at + 6, at + 7]), (1, 4, 3), "a row, and others")
is_(counted(range(at, at + 8), part=0), (0, 0, 8), "without memory of the device all go straight")
is_(counted(range(at, at + 8), part=1), (0, 0, 8), "nor do single chunks go through it")

# ---- failures ----

e = Engine(Runtime())
e.rt.fails = "cudaMalloc"
said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("vllm.gpc").addHandler(handler)
logging.getLogger("vllm.gpc").setLevel(logging.INFO)
e.fill("empty")
ok(e.do(False, blocks, slots), "a GPU that has no memory left")
is_((e.get(blocks), e.rt.memory), (want, {}), "the same bytes")
ok("GetLastError" in e.rt.names(), "nobody else gets its error")
is_(len([s for s in said if s.startswith("gpc: loads go straight: cudaMalloc of 0 MiB: a failure (2)")]), 1, "one line tells it")
e.worker.shutdown()

for fails in ("cudaMemcpy2DAsync", "cudaStreamWaitEvent", "cudaEventRecord"):
    e = Engine(Runtime())
    e.do(False, blocks[:1], some(slots, [0]))
    e.rt.fails = fails
    ok(e.do(False, blocks, slots), f"{fails} fails")
    is_(e.worker.take_load_errors(), {*blocks}, "all blocks of the load are told")
    is_(e.rt.names()[-2:], ["StreamSynchronize"] * 2, "when the copies of both streams have ended")
    e.rt.fails = ""
    e.fill("empty")
    ok(e.do(False, blocks, slots) and e.get(blocks) == want, "the next load is good")
    memory = {*e.rt.memory}
    e.worker.shutdown()
    is_((len(memory), e.rt.memory, e.rt.names()[-1]), (1, {}, "Free"), "the end gives the memory back")

# ---- sums by the device ----

e = Engine(Runtime(), checksum=True)
e.fill("sums")
want = e.get(blocks)
ok(e.do(True, blocks, slots), "stored with sums")
e.fill("empty")
e.rt.calls.clear()
ok(e.do(False, blocks, slots), "and loaded")
is_((e.get(blocks), e.worker.take_load_errors()), (want, set()), "the sums are those of the bytes that have arrived")
ok(e.copies()[0] > 4, "through memory of the device")
beside = e.worker.beside[slots.where]
view = memoryview(beside.part)
view[beside.base - beside.part.address + slots.block_ids[6] * beside.stride + 100] ^= 1
view.release()
other = Slots(slots.where, slots.pool, slots.block_ids, slots.keys[:16 * 13] + bytes(16) + slots.keys[16 * 14:])
e.fill("empty")
ok(e.do(False, blocks, other), "a chunk with a wrong bit, and one of another key")
is_(e.worker.take_load_errors(), {blocks[6], blocks[13]}, "both are told")
ok(e.kv[0].get(blocks[13]).startswith(b"empty"), "the latter does not arrive")
good = [i for i in range(CHUNKS) if i not in (6, 13)]
is_(e.get([blocks[i] for i in good]), [p for i in good for p in want[LAYERS * i:LAYERS * i + LAYERS]], "and all others do")
e.worker.shutdown()
m.complete_store(set(keys), ctx, success=False)
m.shutdown()

# ---- chunks of several blocks ----

m = GPCOffloadingSpec(config(blocks_per_chunk=4)).get_manager()
m.set_chained({0: True})
ctx, keys = fake.prompt("four", 8, tokens=64)
slots = fake.offer(m, keys, ctx).store_spec
e = Engine(Runtime(), part=0, blocks_per_chunk=4)
e.fill("four")
want = e.get(blocks)
ok(e.do(True, blocks, slots), "chunks of four blocks")
e.worker.shutdown()
for seed in range(8):
    e = Engine(Late(seed), part=1 + seed % 3, blocks_per_chunk=4)
    e.fill("empty")
    ok(e.do(False, blocks[2:31], slots, indices=(2,)), "a load that begins and ends inside")
    is_(e.get(blocks[2:31]), want[2 * LAYERS:31 * LAYERS], "the same bytes")
    ok(e.kv[0].get(blocks[1]).startswith(b"empty") and e.kv[0].get(blocks[31]).startswith(b"empty"), "and no block more")
    e.worker.shutdown()
for part, brought in ((1, 6), (4, 2)):
    e = Engine(Runtime(), part=part, blocks_per_chunk=4)
    e.do(False, blocks[2:31], slots, indices=(2,))
    is_(e.copies(), (brought, 24, 5), "whole chunks go through memory of the device, and the first and the last one straight")
    e.worker.shutdown()
m.complete_store(set(keys), ctx, success=False)
m.shutdown()
done()
