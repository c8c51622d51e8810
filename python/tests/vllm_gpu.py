# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm's worker on layered tensors of PyTorch: each block is a page of each of 64 layers.  Its bytes go to RAM
that two processes share and come back the same: behind kernels that fill them, beside a matrix product, before their
slots are registered and meanwhile, and from an engine that is killed with copies under way.  The figures are diagnostics.

Without a GPU, or without PyTorch, it is skipped; GPC_T_TORCH=cpu has it run on the CPU, on little.  GPC_T_PIECE_MIB and
GPC_T_REST: other ones than PIECE and REST of gpc.vllm.register."""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time

import vllm_fake as fake

fake.install()

try:
    import torch
    WHERE = os.environ.get("GPC_T_TORCH") or ("cuda" if torch.cuda.is_available() else "")
except ImportError:
    WHERE = ""
if not WHERE:
    print("1..0 # SKIP no GPU, or no PyTorch")
    sys.exit(0)

import gpc  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import gpc.vllm.worker  # noqa: E402
from gpc.vllm import GPCOffloadingSpec, register  # noqa: E402
from gpc.vllm.image import Image  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = gpc.vllm.worker.SEAT = 60
GPU = WHERE == "cuda"
LAYERS, PAGE, CHUNKS = (64, 32 << 10, 128) if GPU else (4, 4 << 10, 16)
BLOCKS, ROUNDS, KILLS = 4096 if GPU else 2 * CHUNKS, 9 if GPU else 2, 8 if GPU else 3
UNEVEN = [1 + (5 * i + i * i) % 7 for i in range(LAYERS)]        # pages before each layer, where they lie unevenly
THREADS = int(os.environ.get("GPC_T_THREADS", 8 if GPU else 2))
SLOTS = 64 + 8 * CHUNKS
register.PIECE = int(os.environ.get("GPC_T_PIECE_MIB", register.PIECE >> 20)) << 20
register.REST = float(os.environ.get("GPC_T_REST", register.REST))


def synchronize():
    if GPU:
        torch.cuda.synchronize()


def caches(tensors):
    return fake.ns(tensors=[fake.ns(tensor=t, page_size_bytes=PAGE) for t in tensors],
                   group_data_refs=[[fake.ns(tensor_idx=i, page_size_bytes=PAGE) for i in range(len(tensors))]])


def config(**more):
    image = Image(1, LAYERS * PAGE, True).bytes
    extra = {"gpc_name": name, "gpc_weights": "w", "gpc_bytes": SLOTS * image, "gpc_threads": THREADS,
             "gpc_stock": 0, "gpc_free_target": -1, "gpc_max_peers": 16, "gpc_claim_chunks": 0, **more}
    return fake.config(extra, block_bytes=LAYERS * PAGE)


def layers(uneven):
    """At equal distances, as an engine's allocations of one size mostly are, or not."""
    n = [BLOCKS + (UNEVEN[i] if uneven else 0) for i in range(LAYERS)]
    whole = torch.zeros(sum(n), PAGE, dtype=torch.uint8, device=WHERE)
    return [t[-BLOCKS:] for t in torch.split(whole, n)]


class Engine:
    """A scheduler and a worker in one process, with KV caches of their own."""

    def __init__(self, uneven=False, **more):
        spec = GPCOffloadingSpec(config(**more))
        self.image = spec.image
        self.kv = layers(uneven)
        self.worker = spec.get_worker(caches(self.kv))
        self.m = spec.get_manager()
        self.m.set_chained({0: True})
        self.step = torch.arange(PAGE, device=WHERE, dtype=torch.int32)
        self.job = 0

    def page(self, key, layer):
        """What that layer has for a key."""
        return ((self.step * (2 * layer + 1) + key[0] + 256 * key[1] // 7) & 0xff).to(torch.uint8)

    def fill(self, blocks, keys):
        for b, k in zip(blocks, keys):
            for i, t in enumerate(self.kv):
                t[b] = self.page(k, i)

    def wrong(self, blocks, keys):
        synchronize()
        return sum(not torch.equal(t[b], self.page(k, i)) for b, k in zip(blocks, keys) for i, t in enumerate(self.kv))

    def wipe(self):
        for t in self.kv:
            t.zero_()

    def submit(self, store, blocks, slots):
        self.job += 1
        if store:
            self.worker.submit_store(self.job, fake.blocks(blocks), slots)
        else:
            self.worker.submit_load(self.job, slots, fake.blocks(blocks))
        return self.job

    def finish(self, job):
        self.worker.wait({job})
        return all(r.success for r in self.worker.get_finished())

    def store(self, text, n, first=0):
        ctx, keys = fake.prompt(text, n)
        out = fake.offer(self.m, keys, ctx)
        blocks = list(range(first, first + len(out.keys_to_store)))
        return keys, blocks, out

    def stored(self, keys):
        ctx, _ = fake.prompt("", 0)
        self.m.complete_store(set(keys), ctx)
        self.m.publisher.collect(60)
        self.m.c.ticket_wait()

    def load(self, text, n, first=0):
        """Brings all of the prompt that is there; how many chunks, and how many pages of them are wrong."""
        ctx, keys = fake.prompt(text, n)
        found = []
        for k in keys:
            if self.m.lookup(k, ctx) != fake.LookupResult.HIT:
                break
            found.append(k)
        if not found:
            self.m.on_schedule_end(None)
            return 0, 0, True
        slots = self.m.prepare_load(found, ctx)
        blocks = list(range(first, first + len(found)))
        since = time.perf_counter()
        good = self.finish(self.submit(False, blocks, slots))
        self.took = 1e3 * (time.perf_counter() - since)      # ms of the job
        self.m.complete_load(set(found), ctx)
        self.m.on_schedule_end(None)
        return len(found), self.wrong(blocks, found), good

    def close(self):
        self.worker.shutdown()
        self.m.shutdown()


# ---- an engine that is killed ----

def victim(text):
    """Stores one prompt after the other, as fast as it can, and says which it has begun."""
    e = Engine()
    i = 0
    while True:
        keys, blocks, out = e.store(f"{text} {i}", CHUNKS // 4)
        e.fill(blocks, keys)
        job = e.submit(True, blocks, out.store_spec)
        print(i, flush=True)
        e.finish(job)
        e.stored(keys)
        i += 1


def registrations(engine):
    return [*engine.worker.mover.registrations.values()] if GPU else []


def await_registered(engine):
    """All bytes of its slots, or less where the driver has refused."""
    for r in registrations(engine):
        r.thread.join()
    return sum(r.registered() for r in registrations(engine))


def neighbour(text):
    """Registers its slots while another engine registers its own."""
    e = Engine()
    keys, blocks, out = e.store(text, 4)
    e.fill(blocks, keys)
    good = e.finish(e.submit(True, blocks, out.store_spec))
    print("attached", flush=True)
    nbytes = await_registered(e)
    e.stored(keys)
    e.wipe()
    print(int(good and e.load(text, 4) == (4, 0, True)), nbytes, flush=True)
    e.close()
    sys.exit(0)


if len(sys.argv) > 1:
    (neighbour if sys.argv[1].startswith("neighbour") else victim)(sys.argv[1])

# ---- there and back ----

_made.add(name)
e = Engine()
keys, blocks, out = e.store("one", CHUNKS)
e.fill(blocks, keys)
ok(e.finish(e.submit(True, blocks, out.store_spec)), f"{CHUNKS} blocks of {LAYERS} layers are stored")
(run,) = e.m.c.pool_runs(out.store_spec.pool)
part = e.m.c.pool_map(out.store_spec.pool)[0]
at = part.address + run.offset + out.store_spec.block_ids[3] * run.slot_stride + e.image.offset(0)
image = ctypes.string_at(at, LAYERS * PAGE)
is_(image == b"".join(bytes(t[blocks[3]].cpu().tolist()) for t in e.kv), True, "the image in RAM is the layers in order")
e.stored(keys)
e.wipe()
is_(e.load("one", CHUNKS, CHUNKS), (CHUNKS, 0, True), "loaded to other blocks: every page is right")
is_(sum(int(t[:CHUNKS].sum()) for t in e.kv), 0, "and no other block has changed")

# ---- in the order of the engine's stream ----

big = torch.ones(4096 if GPU else 64, 4096 if GPU else 64, device=WHERE)
keys, blocks, out = e.store("late", CHUNKS)
e.wipe()
synchronize()
for _ in range(20):
    big = (big @ big).clamp_(max=1)      # the store is asked for long before the blocks are filled
e.fill(blocks, keys)
ok(e.finish(e.submit(True, blocks, out.store_spec)), "a store behind kernels that have not run yet")
e.stored(keys)
e.wipe()
is_(e.load("late", CHUNKS), (CHUNKS, 0, True), "has what they filled")

# ---- beside a matrix product ----


def product(n):
    """So many products; seconds by the device's clock."""
    if not GPU:
        since = time.perf_counter()
        for _ in range(n):
            big @ big
        return time.perf_counter() - since
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(n):
        big @ big
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def median(a):
    return sorted(a)[len(a) // 2]


def copies_beside(n, store):
    """The time of n products while copies go on all the time, and whether all copies were good."""
    slots = beside_slots.store_spec
    stream = torch.cuda.Stream() if GPU else None
    jobs = [e.submit(store, beside_blocks, slots) for _ in range(3)]
    if stream:
        with torch.cuda.stream(stream):
            took = product(n)
    else:
        took = product(n)
    busy = not e.worker.ended[jobs[-1]].is_set()
    return took, all([e.finish(j) for j in jobs]), busy


await_registered(e)
beside_keys, beside_blocks, beside_slots = e.store("beside", CHUNKS)
e.fill(beside_blocks, beside_keys)
synchronize()
product(5)
for store, what in ((True, "stores"), (False, "loads")):
    alone, with_copies, good = [], [], True
    for _ in range(ROUNDS):
        alone.append(product(10))
        took, fine, _ = copies_beside(10, store)
        with_copies.append(took)
        good &= fine
    ok(good, f"{what} beside a matrix product")
    print(f"# a matrix product beside {what}: {median(with_copies) / median(alone):.3f} times as long as alone")
is_(e.wrong(beside_blocks, beside_keys), 0, "every page is right")

# ---- the rate ----

total = CHUNKS * LAYERS * PAGE
if GPU:
    pinned, there = torch.empty(total, dtype=torch.uint8, pin_memory=True), torch.empty(total, dtype=torch.uint8,
                                                                                         device=WHERE)

    whole = [(pinned[i * LAYERS * PAGE:(i + 1) * LAYERS * PAGE], there[i * LAYERS * PAGE:(i + 1) * LAYERS * PAGE])
             for i in range(CHUNKS)]

    def plain(store):
        """The limit: whole blocks, each of one piece on both sides."""
        synchronize()
        since = time.perf_counter()
        for host, device in whole:
            (host if store else device).copy_(device if store else host, non_blocking=True)
        synchronize()
        return time.perf_counter() - since
else:
    def plain(store):
        return 1.0


JOBS = 12                        # one after the other, and no two of the same slots beside each other


def ours(engine, blocks, slots, store, other=None):
    """One job, or JOBS of them."""
    synchronize()
    since = time.perf_counter()
    jobs = [engine.submit(store, blocks, other if other and i % 2 else slots) for i in range(JOBS if other else 1)]
    for j in jobs:
        engine.finish(j)
    return time.perf_counter() - since


def rates(what, engine, blocks, slots, more):
    """Those of more are only for figures."""
    ours(engine, blocks, more, True)
    for checksum in (True, False):
        engine.worker.image.checksum = checksum
        for store in (True, False):
            ours(engine, blocks, slots, store), plain(store)
            both = [(ours(engine, blocks, slots, store), plain(store), ours(engine, blocks, slots, store, more) / JOBS)
                    for _ in range(ROUNDS)]
            mine, limit, many = (median([b[i] for b in both]) for i in range(3))
            print(f"# {what}: {'store' if store else 'load'}, checksums {'on' if checksum else 'off'}: "
                  f"{total / mine / 1e9:.1f} GB/s, {limit / mine:.3f} of copies of whole blocks; {JOBS} jobs: "
                  f"{total / many / 1e9:.1f} GB/s, {limit / many:.3f}")
    engine.worker.image.checksum = True


spare_keys, _, spare = e.store("spare", CHUNKS)
rates("even layers", e, beside_blocks, beside_slots.store_spec, spare.store_spec)
uneven = Engine(uneven=True)
keys, blocks, out = uneven.store("uneven", CHUNKS)
more_keys, _, more = uneven.store("more", CHUNKS)
uneven.finish(uneven.submit(True, blocks, out.store_spec))
await_registered(uneven)
rates("uneven layers", uneven, blocks, out.store_spec, more.store_spec)
blocks.sort(key=lambda b: b * 7919 % 1009)
rates("uneven layers, scattered blocks", uneven, blocks, out.store_spec, more.store_spec)
uneven.fill(blocks, keys)
ok(uneven.finish(uneven.submit(True, blocks, out.store_spec)), "uneven layers: stored")
uneven.wipe()
ok(uneven.finish(uneven.submit(False, blocks, out.store_spec)), "loaded")
is_(uneven.wrong(blocks, keys), 0, "every page is right")
for engine, some in ((e, spare_keys), (uneven, more_keys)):
    engine.m.complete_store(set(some), fake.prompt("", 0)[0], success=False)
uneven.close()
e.worker.image.checksum = True
ok(e.finish(e.submit(True, beside_blocks, beside_slots.store_spec)), "stored with a checksum again")
e.stored(beside_keys)

# ---- before slots are registered, meanwhile, and the end in the middle ----


def kernel():
    """Milliseconds of one that is small, from its launch to its end."""
    since = time.perf_counter()
    small.add_(1)
    synchronize()
    return 1e3 * (time.perf_counter() - since)


small = torch.zeros(64, device=WHERE)
register.PATIENCE = 600
turn = os.open("/dev/shm", os.O_RDONLY)
fcntl.flock(turn, fcntl.LOCK_EX)         # nobody's slots are registered
early = Engine()
early.wipe()
early.load("beside", CHUNKS)             # it attaches
is_(early.load("beside", CHUNKS), (CHUNKS, 0, True), "a load before slots are registered: every page is right")
before = early.took
is_({i for r in registrations(early) for i, s in enumerate(r.states) if s != register.NEW} -
    {s // r.each for r in registrations(early) for s in beside_slots.store_spec.block_ids}, set(), "none is but those of the load")
keys, blocks, out = early.store("early", CHUNKS)
early.fill(blocks, keys)
ok(early.finish(early.submit(True, blocks, out.store_spec)), "and a store")
early.stored(keys)
since = time.perf_counter()
fcntl.flock(turn, fcntl.LOCK_UN)
meanwhile, good, kernels = [], True, []
while any(r.running() for r in registrations(early)) or not meanwhile:
    early.wipe()
    good &= early.load("early", CHUNKS) == (CHUNKS, 0, True)
    meanwhile.append(early.took)
    kernels += [kernel() for _ in range(20)]
took_all = time.perf_counter() - since
ok(good, f"{len(meanwhile)} loads while they are registered")
early.wipe()
is_(early.load("early", CHUNKS), (CHUNKS, 0, True), "and one when all are")
print(f"# a load of {CHUNKS} blocks: {before:.1f} ms before slots are registered, {median(meanwhile):.1f} ({max(meanwhile):.1f} at most) "
      f"meanwhile, {early.took:.1f} when all are; {await_registered(early) >> 20} MiB in {took_all:.2f} s, in pieces of {register.PIECE >> 20} MiB, rest {register.REST:g}")
alone = [kernel() for _ in range(200)]
print(f"# a small kernel and its end: {sum(kernels) / len(kernels):.3f} ms ({median(kernels):.3f} median, {max(kernels):.3f} at most) while "
      f"slots are registered, {sum(alone) / len(alone):.3f} ({median(alone):.3f}, {max(alone):.3f}) afterwards")
early.close()
for pieces in (0, 3):
    fcntl.flock(turn, fcntl.LOCK_EX)
    early = Engine()
    early.load("early", CHUNKS)
    fcntl.flock(turn, fcntl.LOCK_UN)
    some = registrations(early)
    while any(r.running() and r.registered() < pieces * register.PIECE for r in some):
        time.sleep(0.0002)
    early.close()
    is_([s for r in some for s in r.states if s != register.ENDED], [], "an engine ends while it registers: nothing is left")
early = Engine()
is_(early.load("early", CHUNKS), (CHUNKS, 0, True), "the next one has its bytes")
child = subprocess.Popen([sys.executable, __file__, "neighbour"], stdout=subprocess.PIPE, text=True)
is_(child.stdout.readline(), "attached\n", "a second process")
mine = await_registered(early)
is_(child.stdout.readline(), f"1 {mine}\n", "both have registered all their slots")
ok(not GPU or mine == sum(r.nbytes for r in registrations(early)), "which is all of them")
child.wait()
early.close()
os.close(turn)

# ---- two processes, one of which is killed with copies under way ----

found = wrong = failed = 0
for kill in range(KILLS):
    child = subprocess.Popen([sys.executable, __file__, f"victim {kill}"], stdout=subprocess.PIPE, text=True)
    begun = -1
    while begun < 1 + kill % 3:
        begun = int(child.stdout.readline())
    time.sleep(kill * 0.0004)            # somewhere in its copies
    child.send_signal(signal.SIGKILL)
    child.wait()
    for i in range(begun + 2):
        n, bad, good = e.load(f"victim {kill} {i}", CHUNKS // 4)
        found, wrong, failed = found + n, wrong + bad, failed + (not good)
ok(found >= KILLS * (CHUNKS // 4), f"{KILLS} engines are killed while they store: {found} chunks of theirs are found")
is_((wrong, failed), (0, 0), "and every page is right")
is_(e.load("beside", CHUNKS), (CHUNKS, 0, True), "what the other engine has is what it was")
ends = time.monotonic() + 60
while ((st := e.m.c.stats()).reserved or st.refs) and time.monotonic() < ends:
    time.sleep(0.01)         # a dead one that had just published has references, and reserves nothing
is_((st.refs, st.reserved), (0, 0), "nothing of the dead is held")
is_(e.m.c.check(), 0, "all invariants hold")
e.close()
done()
