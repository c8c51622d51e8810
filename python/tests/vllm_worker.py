# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm's worker, without torch: bytes go both ways and are the same, with chunks of several blocks that begin
inside, by two ranks; bad bytes are told and dropped; who comes after its manager's death writes nothing."""


import ast
import contextvars
import ctypes
import glob
import json
import logging
import os
import threading
import time
from array import array
from itertools import groupby

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import gpc.vllm.image  # noqa: E402
import gpc.vllm.worker  # noqa: E402
from gpc import _gpc  # noqa: E402
from gpc.vllm import private  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec  # noqa: E402
from gpc.vllm.chunks import chunks_of  # noqa: E402
from gpc.vllm.connector import layers_of  # noqa: E402
from gpc.vllm.cuda import CudaMover  # noqa: E402
from gpc.vllm.worker import runs_of  # noqa: E402
from cuda_fake import Runtime  # noqa: E402
from tap import _made, done, is_, name, ok, raises  # noqa: E402

gpc.vllm.finder.ASK = gpc.vllm.worker.SEAT = 60
PAGES = (64, 192)                # of two layers
PER_CHUNK, WORLD = 4, 2
EXTRA = {"gpc_name": name, "gpc_weights": "w", "gpc_bytes": (64 + 20) * WORLD * 4096, "gpc_threads": 3,
         "gpc_stock": 0, "gpc_free_target": -1}
_made.add(name)


def config(rank=0, **more):
    return fake.config(EXTRA, rank=rank, **{"world": WORLD, "blocks_per_chunk": PER_CHUNK, "block_bytes": sum(PAGES),
                                            **more})


class Rank:
    """A worker process of an engine, as far as bytes go."""

    def __init__(self, conf, blocks=32):
        self.kv = [fake.Tensor(blocks, page, gap) for page, gap in zip(PAGES, (0, 8))]
        self.worker = GPCOffloadingSpec(conf).get_worker(fake.caches(self.kv))
        self.job = 0

    def fill(self, text):
        for i, t in enumerate(self.kv):
            for b in range(t.blocks):
                t.put(b, f"{text} {i} {b} ".encode())

    def get(self, blocks):
        return [t.get(b) for b in blocks for t in self.kv]

    def do(self, store, blocks, slots):
        self.job += 1
        if store:
            self.worker.submit_store(self.job, blocks, slots)
        else:
            self.worker.submit_load(self.job, slots, blocks)
        self.worker.wait({self.job})
        (r,) = self.worker.get_finished()
        is_(r.job_id, self.job, "one job is finished")
        return r.success


spec = GPCOffloadingSpec(config())
m = spec.get_manager()
m.set_chained({0: True})
ranks = [Rank(config(r)) for r in range(WORLD)]
for r, rank in enumerate(ranks):
    rank.fill(f"rank {r}")

# ---- there and back ----

ctx, keys = fake.prompt("one", 3, tokens=16 * PER_CHUNK)
out = fake.offer(m, keys, ctx)
source = list(range(20, 8, -1))
for rank in ranks:
    ok(rank.do(True, fake.blocks(source), out.store_spec), "stored")
m.complete_store(set(keys), ctx)
m.publisher.collect(60)
m.c.ticket_wait()
is_(m.c.stats().refs + m.c.stats().reserved, 0, "published")

wants = [rank.get(source) for rank in ranks]
ctx, _ = fake.prompt("one", 3, tokens=16 * PER_CHUNK)
is_({m.lookup(k, ctx) for k in keys}, {fake.LookupResult.HIT}, "found")
slots = m.prepare_load(keys, ctx)
ok(not wants[0] == wants[1], "the ranks have different bytes")
for rank, want in zip(ranks, wants):
    rank.fill("empty")
    ok(rank.do(False, fake.blocks(list(range(12))), slots), "loaded")
    is_(rank.get(range(12)), want, "each has its own")
    ok(rank.get([12])[0].startswith(b"empty"), "and no block more")
m.complete_load(set(keys), ctx)

# from the second block of the first chunk to the second of the last one
m.on_schedule_end(None)
for k in keys:
    m.lookup(k, ctx)
slots = m.prepare_load(keys, ctx)
ranks[0].fill("empty")
ok(ranks[0].do(False, fake.blocks(list(range(9)), indices=(1,)), slots), "a load that begins and ends inside")
is_(ranks[0].get(range(9)), wants[0][2:20], "has these blocks")
m.complete_load(set(keys), ctx)

# two groups, of which the second has one chunk
ctx, both = fake.prompt("two", 2, tokens=16 * PER_CHUNK, groups=(0, 1))
m.set_chained({1: False})
some = both[0] + both[1][1:]
ranks[0].fill("groups")
two = ranks[0].worker
whole = two.runs[0]
is_(len(whole), 2, "tensors of different pages are copied one by one")
two.set_runs([[run] for run in whole])      # each group has one of the tensors
out = fake.offer(m, some, ctx)
spans = dict(sizes=[8, 4], indices=(0, 4))
ok(ranks[0].do(True, fake.blocks(list(range(12)), **spans), out.store_spec), "two groups: stored")
want = [ranks[0].kv[0].get(b) for b in range(8)] + [ranks[0].kv[1].get(b) for b in range(8, 12)]
ranks[0].fill("empty")
ok(ranks[0].do(False, fake.blocks(list(range(12)), **spans), out.store_spec), "loaded")
is_([ranks[0].kv[0].get(b) for b in range(8)] + [ranks[0].kv[1].get(b) for b in range(8, 12)], want, "the same")
ok(ranks[0].kv[1].get(0).startswith(b"empty") and ranks[0].kv[0].get(8).startswith(b"empty"), "no other tensor's")
two.set_runs([whole])
m.complete_store(set(some), ctx, success=False)
raises(ValueError, "2 chunks of the engine, 3 slots", lambda: chunks_of(fake.blocks(list(range(8))), out.store_spec, PER_CHUNK),
       "blocks and slots that do not fit")

# ---- bad bytes ----

ctx, _ = fake.prompt("one", 3, tokens=16 * PER_CHUNK)
for k in keys:
    m.lookup(k, ctx)
slots = m.prepare_load(keys, ctx)
view = memoryview(m.c.pool_map(0)[0])
of = m.c.pool_runs(0)[1]         # what rank 1 has of all slots
at = slots.block_ids[1] * of.slot_stride + of.offset + 700
view[at] ^= 1
view.release()
ok(ranks[0].do(False, fake.blocks(list(range(12))), slots), "a bit of rank 1 is wrong: rank 0 sees no harm")
ranks[1].fill("empty")
is_(ranks[1].do(False, fake.blocks(list(range(12))), slots), False, "rank 1 does: the job fails where nobody asks")
is_(ranks[1].worker.take_load_errors(), {4, 5, 6, 7}, "the blocks of the bad chunk")
is_(ranks[1].worker.take_load_errors(), set(), "are told once")
ok(ranks[1].get([4])[0].startswith(b"empty"), "none of its bytes has come")
is_(ranks[1].get(range(4)), wants[1][:8], "those before have")
m.c.ticket_wait()
ranks[1].worker.beside[slots.where].c.ticket_wait()
m.complete_load(set(keys), ctx)
m.on_schedule_end(None)
is_(m.c.lookup(m.finder.keys(keys)).count(-1), 1, "it is dropped, and what follows it stays")

# ---- what vLLM promises nobody ----

there = {where: fake.ns(**has) for where, has in fake.private().items()}
is_(private.missing(there), None, "a vLLM that has what is used")


class Other:
    """As vLLM's, which makes all in __init__, but for one thing."""

    def __init__(self):
        self.worker = None
        self.loads = {}


where = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker"
there["vllm"] = fake.ns(__version__="0.99.1")
there[where].OffloadingConnectorWorker = Other
raises(ImportError, "vLLM 0.99.1, and gpc.vllm is made for 0.32 and 0.33: OffloadingConnectorWorker has no _load_jobs",
       lambda: private.check(there), "one without is refused, with its version")
del there[where].OffloadingConnectorWorker
is_(private.missing(there), where + " has no OffloadingConnectorWorker", "or with another name of it")


def words_in(paths):
    """(attributes that are asked for, names that are defined there) of Python files."""
    asked, ours = set(), set()
    for path in paths:
        with open(path) as f:
            nodes = list(ast.walk(ast.parse(f.read())))
        for n in nodes:
            if isinstance(n, ast.Attribute):
                (ours if isinstance(n.ctx, ast.Store) and getattr(n.value, "id", "") == "self" else asked).add(n.attr)
            elif isinstance(n, (ast.FunctionDef, ast.ClassDef)):
                ours.add(n.name)
            elif isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name):
                ours.add(n.target.id)
            elif isinstance(n, ast.Call) and getattr(n.func, "id", "") == "getattr":
                asked.add(n.args[1].value if isinstance(n.args[1], ast.Constant) else "__init__")
    return asked, ours


folder = os.path.dirname(private.__file__)
every = sorted(glob.glob(folder + "/*.py")) + sorted(glob.glob(folder + "/../engines/*.py"))
asked, ours = words_in([folder + "/connector.py", folder + "/prompts.py", folder + "/adapters.py"])
known = {n for of in private.NEEDS.values() for n in of}
# of tensors, of the interface of connectors and of vLLM's configuration; and Python's own
interface = {"shape", "stride", "dtype", "attn_backend", "get_name", "kv_cache_groups", "kv_connector_extra_config",
             "kv_transfer_config", "compilation_config", "TOLD", "name", "__init__"}
python = {n for kind in (dict, list, set, str, bytes, int, os, os.stat_result, os.DirEntry, array, json, logging,
                                contextvars.ContextVar) for n in dir(kind)}
kinds = words_in(every)[1] | {"Namespace"} | {*dir(gpc.Cache), *dir(gpc)} | {"block_tokens", "keep_tokens", "array"}
is_(sorted(asked - kinds - known - interface - python), [], "all that is used of vLLM beside is looked for at import")
overrides = {n for n in vars(GPCConnector) if not n.startswith("_")} & (words_in([folder + "/connector.py"])[1])
own = {"unregister_kv_caches"}           # of 0.33
is_(sorted(overrides - known - own), [], "all that GPCConnector overrides as well")
is_(sorted(known - words_in(every)[0] - overrides - {"completed_jobs"}), [], "and nothing that is not used")


def connector(groups):
    half = fake.ns(worker=ranks[1].worker, _load_jobs={})
    return GPCConnector(None, "worker", fake.ns(half=half, kv_cache_groups=[None] * groups))


def bad_load(link, request):
    """The requests and the blocks that vLLM is told of: a slot that nobody has sealed is loaded."""
    ctx, keys = fake.prompt(f"bad {link.several} {request}", 1, tokens=16 * PER_CHUNK)
    out = fake.offer(m, keys, ctx)
    link.connector_worker._load_jobs[77] = request
    ranks[1].worker.submit_load(77, out.store_spec, fake.blocks([3, 4, 5, 6]))
    ranks[1].worker.wait({77})
    got = link.get_transfer_results(set()).failed_recving, link.get_block_ids_with_load_errors()
    m.complete_store(set(keys), ctx, success=False)
    return got


link = connector(1)
steps = []
ranks[1].worker.step = steps.append
link.bind_connector_metadata(None)
steps.append("kernels")
link.get_transfer_results(set())
is_(steps, [True, "kernels", False], "the worker is told when a step's launches begin and end")
del ranks[1].worker.step
ranks[1].worker.reported = False
link.register_kv_caches({})
ctx, _ = fake.prompt("one", 3, tokens=16 * PER_CHUNK)
is_([m.lookup(k, ctx) for k in keys[:2]], [fake.LookupResult.HIT, fake.LookupResult.MISS], "so the next one misses")
slots = m.prepare_load(keys[:1], ctx)
slots.keys = bytes(16)           # the slot has another key's bytes
ok(ranks[1].do(False, fake.blocks(list(range(4))), slots), "with the connector the job does not fail")
is_(link.get_block_ids_with_load_errors(), {0, 1, 2, 3}, "which tells the blocks")
m.complete_load(set(keys[:1]), ctx)
link.get_transfer_results(set())
is_(bad_load(link, "r"), (set(), {3, 4, 5, 6}), "one KV group: blocks are told")
link = connector(2)
is_(bad_load(link, "r"), ({"r"}, set()), "two KV groups, whose blocks may have one number: requests are")
is_(bad_load(link, None), (set(), {3, 4, 5, 6}), "a load whose request does not wait: its blocks, so vLLM ends")

# ---- a store that was cut off: nothing is published of it, and its bytes do not verify ----

ctx, keys = fake.prompt("cut", 1, tokens=16 * PER_CHUNK)
out = fake.offer(m, keys, ctx)
ok(ranks[0].do(True, fake.blocks([1, 2, 3, 4]), out.store_spec), "a store ...")
mover = ranks[0].worker.mover


class Fails:
    fence, hasten, text, abandon, on_device = mover.fence, mover.hasten, mover.text, mover.abandon, False
    sums = None

    copied = 0

    @staticmethod
    def copy(to, to_pitch, source, pitch, width, height, kind, stream):
        Fails.copied += 1
        if Fails.copied > 1:
            return 5
        ctypes.memmove(to, source, width)
        return 0

    def begin(self, fence):
        calls = [Fails.call, *[Fails.other] * 3]
        return array("Q", [ctypes.cast(f, ctypes.c_void_p).value for f in calls] + [0] * (_gpc._SHARE_CALLS - len(calls)))


P, N = ctypes.c_void_p, ctypes.c_size_t
Fails.call = ctypes.CFUNCTYPE(ctypes.c_int, P, N, P, N, N, N, ctypes.c_int, P)(Fails.copy)
Fails.other = ctypes.CFUNCTYPE(ctypes.c_int, P, P, ctypes.c_uint)(lambda *a: 0)
ranks[0].worker.mover = Fails()
ranks[0].fill("torn")
ranks[0].worker.take_unmoved()
ok(ranks[0].do(True, fake.blocks([1, 2, 3, 4]), out.store_spec),
    "... and another one into its slot, which fails after one page: the engine goes on")
is_([*ranks[0].worker.take_unmoved().values()], [out.store_spec.block_ids], "the manager is told")
ranks[0].worker.mover = mover
ranks[0].worker.reported = True
ok(ranks[0].do(False, fake.blocks([1, 2, 3, 4]), out.store_spec), "its load ...")
is_(ranks[0].worker.take_load_errors(), {1, 2, 3, 4}, "... fails")
m.complete_store(set(keys), ctx, success=False)

# ---- tensors at equal distances ----

many = fake.Tensor(40, 64, 0)    # four layers of ten blocks in one allocation
layers = [many.piece(i * 10, 10) for i in range(4)] + [fake.Tensor(10, 64, 8)]
even = GPCOffloadingSpec(config(0, block_bytes=5 * 64)).get_worker(fake.caches(layers))
is_([(r.count, r.pitch, r.host_pitch) for r in even.runs[0]], [(4, 640, 256), (1, 64, 256)],
    "layers at equal distances: one pitched copy takes all pages of a block")
even.shutdown()
is_([r.count for r in runs_of([fake.ns(address=a, page=64, stride=64, offset=256 * i)
                               for i, a in enumerate((0, 640, 1280, 1000, 3 << 30))], 4)], [3, 1, 1],
    "other distances, falling ones and those that are too long for CUDA are not one")

even = Rank(config(0))
even.worker.shutdown()
whole = fake.Tensor(32, 128)
even.kv = [whole.piece(0, 16), whole.piece(16, 16)]
even.worker = GPCOffloadingSpec(config(0)).get_worker(fake.caches(even.kv))
is_([r.count for r in even.worker.runs[0]], [2], "two layers in one copy")
ctx, keys = fake.prompt("even", 2, tokens=16 * PER_CHUNK)
out = fake.offer(m, keys, ctx)
even.fill("even")
want = even.get(range(3, 11))
ok(even.do(True, fake.blocks(list(range(3, 11))), out.store_spec), "stored")
even.fill("empty")
ok(even.do(False, fake.blocks(list(range(15, 7, -1))), out.store_spec), "loaded")
is_(even.get(range(15, 7, -1)), want, "the same bytes")
even.worker.shutdown()
m.complete_store(set(keys), ctx, success=False)

# ---- the calls of the CUDA runtime, by one that copies here ----

rt = Runtime()
gpu = Rank(config(0))
gpu.worker.mover = CudaMover(3, lambda: fake.ns(cuda_event=55), rt)
gpu.worker.mover.turn = 3 * gpu.kv[0].page
ctx, keys = fake.prompt("gpu", 1, tokens=16 * PER_CHUNK)
out = fake.offer(m, keys, ctx)
gpu.fill("gpu")
want = gpu.get(range(4))
ok(gpu.do(True, fake.blocks([0, 1, 2, 3]), out.store_spec), "a store by the runtime")
copies = [c for c in rt.calls if c[0] not in ("cudaSetDevice", "cudaHostRegister")]
turns = [[c[5] * c[6] for c in of] for _, of in groupby((c for c in copies if c[0] == "cudaMemcpy2DAsync"), lambda c: c[-1])]
is_([c[0][4:] for c in copies if c[0] != "cudaMemcpy2DAsync"],
    ["StreamWaitEvent", *["EventRecord", "StreamWaitEvent"] * (len(turns) - 1), "EventRecord", "EventSynchronize"],
    "it waits for the engine's stream, copies in two streams in turns, and waits for its own")
is_((sum(map(len, turns)), len(turns) > 2, all(sum(t[:-1]) < gpu.worker.mover.turn <= sum(t) for t in turns[:-1])), (8, True, True),
    f"the copy that reaches {gpu.worker.mover.turn} bytes ends a turn: {turns}")
is_(copies[0], ("cudaStreamWaitEvent", 77, 55, 0), "the fence of the job")
is_(rt.strict, {"cudaSetDevice"}, "a capture of a graph by the engine's thread goes on beside its threads")
gpu.fill("empty")
ok(gpu.do(False, fake.blocks([0, 1, 2, 3]), out.store_spec), "a load by the runtime")
is_(gpu.get(range(4)), want, "the same bytes")
rt.fails = "cudaMemcpy2DAsync"
del rt.calls[:]
gpu.worker.reported = True
ok(gpu.do(False, fake.blocks([0, 1, 2, 3]), out.store_spec), "a copy that is refused ...")
is_((gpu.worker.take_load_errors(), rt.names()[-1]), ({0, 1, 2, 3}, "StreamSynchronize"),
    "... is told, when those before it have ended")
is_(rt.names().count("Memcpy2DAsync"), 1, "no other one is tried")
is_(gpu.worker.bad, 0, "the slot is not bad, but its key is to be found by nobody")
rt.fails = ""
while gpu.worker.mover.registering()[0]:
    time.sleep(0.001)
gpu.worker.shutdown()
is_(rt.names()[-17:], ["HostUnregister"] + ["EventDestroy"] * 14 + ["StreamDestroy"] * 2, "and gives back what it had")
m.complete_store(set(keys), ctx, success=False)

lost = CudaMover(3, lambda: fake.ns(cuda_event=55), Runtime("cudaStreamSynchronize"))
lost._mine()
lost.abandon()
is_(lost.rt.names().count("StreamSynchronize"), 2, "a stream that cannot be waited for does not end the wait for the other one")
lost.close()

# ---- chunks of one block, beside each other and apart, by this thread and by the runtime ----

ones = Rank(config(0, blocks_per_chunk=1, world=1), blocks=64)
ones.worker.image.bytes = spec.image.bytes       # any slot is large enough
for called, mover in (("this thread", ones.worker.mover), ("the runtime", CudaMover(3, lambda: fake.ns(cuda_event=5), rt))):
    ones.worker.mover = mover
    ctx, keys = fake.prompt(called, 16, tokens=16)
    out = fake.offer(m, keys, ctx)
    blocks = [*range(3, 12), 40, 30, 31, 32, 50, 51, 52]
    ones.fill(called)
    want = ones.get(blocks)
    rt.calls.clear()
    ok(ones.do(True, fake.blocks(blocks), out.store_spec), f"16 chunks are stored by {called}")
    copies = rt.names().count("Memcpy2DAsync")
    ones.fill("empty")
    ok(ones.do(False, fake.blocks(blocks), out.store_spec), "and loaded")
    is_(ones.get(blocks), want, "the same bytes")
    ones.fill("empty")
    rest = [ones.get([b]) for b in range(64)]
    ones.do(False, fake.blocks(blocks), out.store_spec)
    is_([b for b in range(64) if b not in blocks and ones.get([b]) != rest[b]], [], "and no other block has changed")
    m.complete_store(set(keys), ctx, success=False)
    mover.close()
ok(copies < 2 * 16, f"{copies} copies for them: a row is a block where slots and blocks follow each other")

# ---- images that the device of the KV caches sums: here the calling thread, which wants no stream for it ----


class SumsHere(CudaMover):
    def _sum_stream(self):
        return 0


by_device = SumsHere(3, lambda: fake.ns(cuda_event=5), rt)
by_device.sums = _gpc._sums_open("host", array("Q", [n for t in ones.worker.tensors for n in (t.address, t.stride, t.page)]), 1)
by_thread = gpc.vllm.worker.HostMover()
ones.worker.reported = True
blocks = [*range(30, 35), 3, 60, *range(40, 49)]
ctx, keys = fake.prompt("summed", 16, tokens=16)
out = fake.offer(m, keys, ctx)
ones.fill("summed")
want = ones.get(blocks)
for stores, loads in ((by_device, by_thread), (by_thread, by_device), (by_device, by_device)):
    ones.worker.mover = stores
    ok(ones.do(True, fake.blocks(blocks), out.store_spec), f"stored, sums by {type(stores).__name__}")
    ones.worker.mover = loads
    ones.fill("empty")
    ok(ones.do(False, fake.blocks(blocks), out.store_spec), f"and loaded by {type(loads).__name__}")
    is_((ones.get(blocks), ones.worker.take_load_errors()), (want, set()), "the same bytes")
rt.calls.clear()
ones.worker.mover = by_device
ones.do(False, fake.blocks(blocks), out.store_spec)
# of a load: the fence, the copies so far for the sums, and the ends
waits, recorded = ({c[1] for c in rt.calls if c[0] == call} for call in ("cudaEventSynchronize", "cudaEventRecord"))
followed = {c[2] for c in rt.calls if c[:2] == ("cudaStreamWaitEvent", None)}
ok(waits and waits <= rt.sleeps, "a thread sleeps for the ends of a load")
ok(followed and not followed & rt.sleeps and recorded == waits | followed, "no thread is woken by what the sums follow")
view = memoryview(m.c.pool_map(0)[0])
base, stride = m.c.pool_runs(0)[0].offset, m.c.pool_runs(0)[0].slot_stride
for chunk in (5, 15):
    view[base + out.store_spec.block_ids[chunk] * stride + ones.worker.image.offset(0) + 100] ^= 1
view.release()
out.store_spec.keys = out.store_spec.keys[:16 * 9] + bytes(16) + out.store_spec.keys[16 * 10:]
ones.fill("empty")
empty = ones.get([blocks[9]])
ok(ones.do(False, fake.blocks(blocks), out.store_spec), "three of them are bad")
is_(ones.worker.take_load_errors(), {blocks[5], blocks[9], blocks[15]}, "which is told")
is_((ones.get(blocks[:5]), ones.get([blocks[9]])), (want[:10], empty), "what has another key is not copied, good ones are")
m.complete_store(set(keys), ctx, success=False)

# chunks of several blocks, whose blocks lie anywhere
fours = Rank(config(0), blocks=64)
ok(fours.worker._is_one_image(), "a chunk of four blocks is what the device can sum")
in_fours = SumsHere(3, lambda: fake.ns(cuda_event=5), rt)
in_fours.sums = _gpc._sums_open("host", array("Q", [n for t in fours.worker.tensors for n in (t.address, t.stride, t.page)]),
                                PER_CHUNK)
fours.worker.reported = True
spread = [*range(40, 45), 3, 60, *range(20, 30), 7, 50, 9]
ctx, keys = fake.prompt("in fours", 5, tokens=16 * PER_CHUNK)
out = fake.offer(m, keys, ctx)
fours.fill("in fours")
want = fours.get(spread)
for stores, loads in ((in_fours, by_thread), (by_thread, in_fours), (in_fours, in_fours)):
    fours.worker.mover = stores
    ok(fours.do(True, fake.blocks(spread), out.store_spec), f"chunks of four are stored, sums by {type(stores).__name__}")
    fours.worker.mover = loads
    fours.fill("empty")
    ok(fours.do(False, fake.blocks(spread), out.store_spec), f"and loaded by {type(loads).__name__}")
    is_((fours.get(spread), fours.worker.take_load_errors()), (want, set()), "the same bytes")
fours.fill("empty")
ok(fours.do(False, fake.blocks(spread[2:18], indices=(2,)), out.store_spec), "half of the first and of the last one")
is_((fours.get(spread[2:18]), fours.worker.take_load_errors()), (want[4:36], set()), "who has no whole chunk sums in RAM")
view = memoryview(m.c.pool_map(0)[0])
for chunk in (0, 3):
    view[base + out.store_spec.block_ids[chunk] * stride + fours.worker.image.offset(0) + 1000] ^= 1
view.release()
ok(fours.do(False, fake.blocks(spread), out.store_spec), "two of them are bad")
is_(fours.worker.take_load_errors(), {*spread[:4], *spread[12:16]}, "which is told")
ok(fours.do(False, fake.blocks(spread[2:18], indices=(2,)), out.store_spec), "half of a bad one")
is_(fours.worker.take_load_errors(), {*spread[2:4], *spread[12:16]}, "is bad as well")
fours.worker.mover = by_thread
fours.worker.shutdown()
m.complete_store(set(keys), ctx, success=False)

# jobs that are under way together, and those of the same slots, which are not
ones.worker.mover = by_device
ctx, keys = fake.prompt("together", 16, tokens=16)
halves = [fake.offer(m, keys[:8], ctx).store_spec, fake.offer(m, keys[8:], ctx).store_spec]
ones.fill("together")
want = ones.get(blocks)
for job, half in enumerate((0, 1, 1, 0, 0, 1, 0), 100):
    ones.worker.submit_store(job, fake.blocks(blocks[8 * half:8 * half + 8]), halves[half])
ones.worker.wait({*range(100, 107)})
is_([r.job_id for r in ones.worker.get_finished()], [*range(100, 107)], "seven jobs end in their order")
ones.worker.mover = by_thread
ones.fill("empty")
ok(ones.do(False, fake.blocks(blocks[:8]), halves[0]) and ones.do(False, fake.blocks(blocks[8:]), halves[1]), "loaded")
is_((ones.get(blocks), ones.worker.take_load_errors()), (want, set()), "the same bytes")

# an expedited load goes before what is not begun


class Gate(gpc.vllm.worker.HostMover):
    """Its first job waits."""
    begun, go = threading.Event(), threading.Event()

    def begin(self, fence):
        self.begun.set()
        self.go.wait()


ones.worker.mover = Gate()
ones.worker.submit_store(110, fake.blocks(blocks[:8]), halves[0])
Gate.begun.wait()
ones.worker.submit_store(111, fake.blocks(blocks[:8]), halves[0])
ones.worker.submit_load(112, halves[1], fake.blocks(blocks[8:]))
ones.worker.submit_load(113, halves[1], fake.blocks(blocks[8:]), expedited=True)
ones.worker.submit_load(114, halves[1], fake.blocks(blocks[8:]), expedited=True)
Gate.go.set()
ones.worker.drain()
is_([r.job_id for r in ones.worker.get_finished()], [110, 113, 114, 111, 112], "an expedited load waits for the job that is begun, and no other")
ones.worker.mover = by_thread
ones.fill("empty")

# a step asks for results while a job is told


class AsksAtOnce:
    """A lock: the engine's thread gets it as soon as another one gives it up."""

    def __init__(self, lock):
        self.lock, self.asks, self.got = lock, threading.current_thread(), []

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *error):
        self.lock.release()
        if threading.current_thread() is not self.asks and not self.got:
            self.got = ["none"]
            self.got = ones.worker.get_finished()


lock, ones.worker.lock = ones.worker.lock, AsksAtOnce(ones.worker.lock)
with lock:                       # so that it does not end yet
    ones.worker.submit_store(115, fake.blocks(blocks[:8]), halves[0])
    event = ones.worker.ended[115]
while ones.worker.thread.is_alive() and not event.wait(0.01):
    pass
ok(event.is_set(), "a job ends")
is_([r.job_id for r in ones.worker.lock.got], [115], "a step that has waited for this has its result")
ones.worker.lock = lock

# the engine's thread hands a load over to one that waits for it, and waits for no other

gpc.vllm.worker.HAND_OVER = 60
while not ones.worker.idle:
    time.sleep(0.001)
ones.worker.submit_load(120, halves[0], fake.blocks(blocks[:8]))
ok(ones.worker.got.is_set(), "a load that is submitted to a thread without work is taken when that returns")
ones.worker.drain()
Gate.begun.clear()
Gate.go.clear()
ones.worker.mover = Gate()
ones.worker.submit_load(121, halves[0], fake.blocks(blocks[:8]))
Gate.begun.wait()
ones.worker.submit_load(122, halves[1], fake.blocks(blocks[8:]))
ok(not ones.worker.got.is_set() and not Gate.go.is_set(), "one behind another is not")
Gate.go.set()
ones.worker.drain()
is_([r.job_id for r in ones.worker.get_finished()], [120, 121, 122], "all of them end")
ones.worker.take_load_errors()
ones.worker.mover = by_thread
ones.fill("empty")
gpc.vllm.worker.HAND_OVER = 0.001

# shares of jobs take turns, and one that fails at once ends after those before it
ones.fill("shares")
want = ones.get(blocks)
most, gpc.vllm.worker.MOST = gpc.vllm.worker.MOST, 8
whole = gpc.vllm.image.Slots(halves[0].where, halves[0].pool, halves[0].block_ids + halves[1].block_ids,
                             halves[0].keys + halves[1].keys)
ones.worker.mover = by_device
ctx, more = fake.prompt("apart", 2, tokens=16)
apart = fake.offer(m, more, ctx).store_spec
for job, (slots, ids) in enumerate(((apart, [0, 20]), (whole, blocks), (apart, [0, 20]), (apart, [0])), 200):
    ones.worker.submit_store(job, fake.blocks(ids), slots)
ones.worker.wait({*range(200, 204)})
done_jobs = ones.worker.get_finished()
is_([(r.job_id, r.success) for r in done_jobs], [(j, True) for j in range(200, 204)], "four jobs end in their order")
gpc.vllm.worker.MOST = 4
rt.calls.clear()
ok(ones.do(False, fake.blocks(blocks), whole), "a load of four shares")
names = rt.names()
copies = [names[:names.index("EventSynchronize")].count("Memcpy2DAsync"), names.count("Memcpy2DAsync")]
ok(copies[0] < copies[1], f"{copies[0]} of {copies[1]} copies are given, two shares, before the end of the first one is waited for")
gpc.vllm.worker.MOST = most
is_([ones.worker._share_of(0), fours.worker._share_of(0)], [gpc.vllm.worker.COPIES // 2, gpc.vllm.worker.FEWEST],
    "a share has a number of copies, or a least number of chunks")
ones.worker.mover = by_thread
ones.fill("empty")
ok(ones.do(False, fake.blocks(blocks), whole) and not ones.worker.take_load_errors(), "each share verifies")
is_(ones.get(blocks), want, "the same bytes")
ok(ones.do(False, fake.blocks([0, 20]), apart) and not ones.worker.take_load_errors(), "and what was beside it")
m.complete_store({*keys, *more}, ctx, success=False)
by_device.close()
ones.worker.mover = by_thread
ones.worker.shutdown()

# ---- KV caches of another structure: as many bytes, which mean something else ----


class Like:
    """A tensor of torch, as far as its bytes' order goes."""

    def __init__(self, shape, strides, dtype="bfloat16"):
        self.shape, self.strides, self.dtype = shape, strides, dtype

    def stride(self, dim=None):
        return self.strides if dim is None else self.strides[dim]


def worker_of(tensors, refs, layers=(), **more):
    kv = fake.caches(tensors)
    kv.group_data_refs = [[fake.ns(tensor_idx=i, page_size_bytes=n) for i, n in group] for group in refs]
    w = GPCOffloadingSpec(fake.config({**EXTRA, **more}, world=WORLD, blocks_per_chunk=PER_CHUNK, block_bytes=256)).get_worker(kv)
    w.reported = True
    w.set_layers(layers)
    return w


def moves(w, store, slots, ids=range(4)):
    (w.submit_store if store else w.submit_load)(1, *((fake.blocks(list(ids)), slots) if store else (slots, fake.blocks(list(ids)))))
    w.wait({1})
    (r,) = w.get_finished()
    return r.success and not w.take_load_errors()


def layer(size=(8, 16, 4, 2), strides=(128, 8, 2, 1), dtype="bfloat16", backend="FLASH"):
    return layers_of({"a": Like(size, strides, dtype), "b": [Like(size, strides, dtype)]},
                     {"a": fake.ns(attn_backend=fake.ns(get_name=lambda: backend))})


two = [fake.Tensor(8, 128), fake.Tensor(8, 128)]
for i, t in enumerate(two):
    for b in range(8):
        t.put(b, f"layer {i} block {b} ".encode())
each = [[(0, 128), (1, 128)]]
for more in ({}, {"gpc_checksum": False}):
    stores = worker_of(two, each, layer(), **more)
    ctx, keys = fake.prompt(f"structure {more}", 1, tokens=16 * PER_CHUNK)
    out = fake.offer(m, keys, ctx)
    slots = out.store_spec
    ok(moves(stores, True, slots), "stored by an engine of two tensors")
    packed = fake.Tensor(8, 256)
    for what, w in {
            "one packed tensor": worker_of([packed], [[(0, 256)]], layer(), **more),
            "pages of other sizes": worker_of([fake.Tensor(8, 64), fake.Tensor(8, 192)], [[(0, 64), (1, 192)]], layer(), **more),
            "layers in another order": worker_of(two, [[(1, 128), (0, 128)]], layer(), **more),
            "heads before tokens": worker_of(two, each, layer((8, 4, 16, 2), (128, 32, 2, 1)), **more),
            "other strides": worker_of(two, each, layer(strides=(128, 2, 32, 1)), **more),
            "another dtype": worker_of(two, each, layer(dtype="float16"), **more),
            "another kernel": worker_of(two, each, layer(backend="AITER"), **more)}.items():
        is_((moves(w, False, slots), packed.get(0)), (False, bytes(256)), f"{what}: a bad slot, and no byte has come")
        w.shutdown()
    same = worker_of([fake.Tensor(16, 128), fake.Tensor(16, 128, 8)], each, layer((99, 16, 4, 2)), **more)
    ok(moves(same, False, slots), "more blocks, at other distances: the same structure")
    is_([t.tensor.get(3) for t in same.tensors], [t.get(3) for t in two], "and bytes")
    m.complete_store(set(keys), ctx, success=False)
    for w in (stores, same):
        w.shutdown()
is_(layer((8, 2, 4, 2), (8, 64, 2, 1))[0][3], ["outside", 2, 1], "a stride over all blocks is not one inside a block")
raises(ValueError, "bytes of a chunk and rank", lambda: gpc.vllm.image.Image(1, 1 << 32, True), "a part of 4 GiB")

# ---- one part for all ranks ----

single = GPCOffloadingSpec(config(rank=1, replicated_layout=True))
is_((single.image.parts, single.replicated_layout), (1, True), "the same bytes in all ranks: stored once")
last = Rank(config(rank=1, replicated_layout=True))
is_(last.worker.part, 0, "and rank 1 loads them, too")
last.worker.shutdown()

# ---- the life of the manager ----

peers = {m.c.stats(i).leader for i in range(3)}
is_(peers, {-1, m.c.info().peer}, "workers are companions of the manager")
ctx, keys = fake.prompt("late", 1, tokens=16 * PER_CHUNK)
out = fake.offer(m, keys, ctx)
other = gpc.attach(name, serve=True)
m.shutdown()
slot = gpc.BLOCK(0, out.store_spec.block_ids[0])
taken = other.reserve(0, 20, flags=gpc.PARTIAL)
ok(taken and slot not in taken, "the manager has gone: its slot is given to nobody while its workers live")
other.release(taken)
ok(ranks[0].do(True, fake.blocks([1, 2, 3, 4]), out.store_spec), "who may still write")
fresh = Rank(config(0))
before = bytes(memoryview(other.pool_map(0)[0]))
fresh.fill("never")
ok(fresh.do(True, fake.blocks([1, 2, 3, 4]), out.store_spec), "a worker that comes later ...")
is_(fresh.worker.beside, {}, "... does not get beside it")
is_(bytes(memoryview(other.pool_map(0)[0])) == before, True, "and writes nothing")
for rank in (*ranks, fresh):
    rank.worker.shutdown()
while slot not in taken:
    taken = other.reserve(0, 20, flags=gpc.PARTIAL)
    other.release(taken)
ok(True, "when they have gone, it is free")
is_(other.check(), 0, "all invariants hold")
other.close()
done()
