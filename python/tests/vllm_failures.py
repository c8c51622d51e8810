# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm and what cannot succeed: it ends.  Stores that move nothing, or half a chunk, publish nothing; a key whose load
failed is none for its request; workers attach at start, or the engine ends; waits have deadlines, and an engine without a
writer says so."""

import ctypes
import errno
import glob
import logging
import multiprocessing
import os
import tempfile
import time
from array import array

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
from gpc import _gpc  # noqa: E402
import gpc.vllm.drops  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import gpc.vllm.manager  # noqa: E402
import gpc.vllm.manager  # noqa: E402
import gpc.vllm.meet as meet  # noqa: E402
import gpc.vllm.worker  # noqa: E402
import gpc.vllm.writer  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec  # noqa: E402
from gpc.vllm.config import ConfigError  # noqa: E402
from tap import _made, done, is_, name, ok, raises  # noqa: E402

gpc.vllm.finder.ASK = gpc.vllm.worker.SEAT = 60
HIT, MISS, PENDING = fake.LookupResult.HIT, fake.LookupResult.MISS, fake.LookupResult.HIT_PENDING
EXTRA = {"gpc_weights": "w", "gpc_bytes": (64 + 40) * 2 * 4096, "gpc_stock": 0, "gpc_free_target": -1,
         "gpc_pending_ms": 60000, "gpc_attach_ms": 60000}
jobs = iter(range(1, 1000))
logs = []
logging.getLogger("vllm.gpc").addHandler(type("Keep", (logging.Handler,), {
    "emit": lambda self, record: logs.append(record.getMessage())})())
logging.getLogger("vllm.gpc").propagate = False


class Engine:
    """A scheduler and the workers of its ranks, with vLLM's side of them, in one process."""

    def __init__(self, suffix, ranks=1, per_chunk=1, groups=1, attach=True, states=False, **more):
        _made.add(name + suffix)
        conf = dict(extra={**EXTRA, "gpc_name": name + suffix, **more}, world=ranks, blocks_per_chunk=per_chunk,
                    block_bytes=64, groups=groups, engine_id=f"{name}{suffix}-{id(self)}")
        self.workers = [GPCOffloadingSpec(fake.config(rank=r, **conf)) for r in range(ranks)]
        self.m = GPCOffloadingSpec(fake.config(**conf)).get_manager()
        kinds = [fake.ns(group_idx=g, sliding_window_size_in_chunks=(1 if states else 2) if g else None) for g in range(groups)]
        self.half = fake.ns(manager=self.m, config=fake.ns(kv_group_configs=kinds, blocks_per_chunk=per_chunk),
                            _req_status={}, _jobs={})
        self.scheduler = GPCConnector(None, "scheduler", fake.ns(half=self.half, kv_cache_groups=kinds))
        self.kv = [fake.Tensor(64, 64) for _ in range(ranks)]
        self.links = []
        for spec, kv in zip(self.workers, self.kv):
            half = fake.ns(worker=spec.get_worker(fake.caches([kv], groups)), _load_jobs={}, told=[])
            link = GPCConnector(None, "worker", fake.ns(half=half, kv_cache_groups=kinds))
            link.register_kv_caches({})
            self.links.append(link)
        if attach:
            for link in self.links:
                link.get_handshake_metadata()

    def request(self, text, chunks, **more):
        ctx, keys = fake.prompt(text, chunks, tokens=16 * self.half.config.blocks_per_chunk, **more)
        ctx.req_id = f"{text} {next(jobs)}"
        self.half._req_status[ctx.req_id] = fake.ns(req_context=ctx, req=None, group_states=(), transfer_jobs=set())
        return ctx, keys

    def run(self, store, ctx, keys, spec, blocks):
        """All ranks do the job and tell it.  Requests and blocks whose load failed."""
        number = next(jobs)
        self.half._jobs[number] = fake.ns(req_id=ctx.req_id, is_store=store, keys=set(keys))
        metas, failed, errors = [], set(), set()
        for link in self.links:
            w = link.connector_worker.worker
            if store:
                w.submit_store(number, blocks, spec)
            else:
                link.connector_worker._load_jobs[number] = ctx.req_id
                w.submit_load(number, spec, blocks)
            w.wait({number})
            failed |= link.get_transfer_results(set()).failed_recving
            errors |= link.get_block_ids_with_load_errors()
            metas.append(link.build_connector_worker_meta())
        meta = metas[0]
        for other in metas[1:]:
            meta = meta.aggregate(other)
        self.scheduler.update_connector_output(fake.ns(failed_recving=failed, invalid_block_ids=errors,
                                                       kv_connector_worker_meta=meta))
        return failed, errors

    def store(self, ctx, keys, blocks):
        out = fake.offer(self.m, keys, ctx)
        self.run(True, ctx, out.keys_to_store, out.store_spec, blocks)
        self.settle()
        return out

    def settle(self):
        self.m.publisher.collect(60)
        self.m.on_schedule_end(None)
        for c in [self.m.c, *(b.c for spec in self.workers for b in spec.get_worker(None).beside.values())]:
            c.ticket_wait()              # each handle has a ring of its own: drops come by the workers'

    def lookup(self, ctx, keys):
        return [self.m.lookup(k, ctx) for k in keys]

    def load(self, ctx, keys, blocks):
        """One round of a scheduler, which asks up to the first miss: what it is told, and what it loads."""
        got = [self.m.lookup(keys[0], ctx)]
        while got[-1] is HIT and len(got) < len(keys):
            got.append(self.m.lookup(keys[len(got)], ctx))
        hits = [k for k, r in zip(keys, got) if r is HIT]
        errors = self.run(False, ctx, hits, self.m.prepare_load(hits, ctx), blocks)[1] if hits else None
        self.m.on_schedule_end(None)
        return got, errors

    def held(self):
        self.m.c.ticket_wait()
        s = self.m.c.stats(self.m.c.info().peer)
        return s.refs, s.reserved

    def live(self, keys):
        return [b >= 0 for b in self.m.c.lookup(self.m.finder.keys(keys), flags=gpc.QUIET)]

    def end(self):
        for link in self.links:
            link.connector_worker.worker.shutdown()
        self.m.shutdown()


def blocks(n, first=0, per_chunk=1, **more):
    return fake.blocks(list(range(first, first + n * per_chunk)), **more)


class Refuses:
    """A device that takes no copy."""
    fence = step = abandon = hasten = staticmethod(lambda *args: None)
    on_device, sums = False, None
    refuse = ctypes.CFUNCTYPE(ctypes.c_int)(lambda *args: 5)

    def text(self, err):
        return f"error {err}"

    def begin(self, fence):
        return array("Q", [ctypes.cast(self.refuse, ctypes.c_void_p).value] * 4 + [0] * (_gpc._SHARE_CALLS - 4))


def spoil(e, rank, key):
    """A byte of a slot."""
    worker = e.workers[rank].get_worker(None)
    beside = next(iter(worker.beside.values()))
    at = beside.base + beside.stride * gpc.SLOT(e.m.c.lookup(e.m.finder.keys([key]), flags=gpc.QUIET)[0])
    view = memoryview(beside.part)
    view[at - beside.part.address + beside.area + 9] ^= 1
    view.release()


# ---- a store that moves nothing ----

e = Engine("", ranks=2)
ctx, keys = e.request("refused", 4)
mover, e.workers[1].get_worker(None).mover = e.workers[1].get_worker(None).mover, Refuses()
e.store(ctx, keys, blocks(4))
is_((e.live(keys), e.held(), e.m.counts["failed"], e.m.counts["stored"]), ([False] * 4, (0, 0), 4, 0),
    "a store that one rank has not done is given back, and counted as failed")
is_(e.load(e.request("refused", 4)[0], keys, None)[0][0], MISS, "nobody finds it")
e.settle()
e.workers[1].get_worker(None).mover = mover
ctx, keys = e.request("then", 4)
e.store(ctx, keys, blocks(4))
is_((e.live(keys), e.m.counts["failed"]), ([True] * 4, 4), "a later one is published")

# ---- a load that fails ----

again, _ = e.request("then", 4)
spoil(e, 1, keys[2])
got, errors = e.load(again, keys, blocks(4, 8))
is_((got, errors), ([HIT] * 4, {10}), "one chunk of one rank is bad: its block is told")
is_(e.load(again, keys, blocks(2, 8))[0], [HIT, HIT, MISS], "its request does not find it again")
e.settle()
is_(e.live(keys), [True, True, False, True], "nor does anybody else: it is dropped, and nothing else")
out = fake.offer(e.m, keys[2:], again)
is_(out.keys_to_store, keys[2:3], "it is computed and stored again")
e.run(True, again, out.keys_to_store, out.store_spec, blocks(1, 10))
e.settle()
is_(e.live(keys), [True] * 4, "and the whole chain is there")
fresh, _ = e.request("then", 4)
is_(e.load(fresh, keys, blocks(4, 12)), ([HIT] * 4, set()), "for a request that comes later, every chunk of it")

# ---- what was computed instead is stored again, also where the drop is slow ----

for stock, what in ((0, "asked for"), (16, "in hand")):
    s = Engine(f"-slow{stock}", gpc_stock=stock)
    ctx, keys = s.request("p", 4)
    s.store(ctx, keys, blocks(4))
    spoil(s, 0, keys[1])
    drops = s.workers[0].get_worker(None).drops
    send, drops._send = drops._send, lambda c, some: False       # as behind a writer that has much to do
    again, _ = s.request("p", 4)
    is_(s.load(again, keys, blocks(4, 8)), ([HIT] * 4, {9}), f"blocks {what}: a load fails, and the drop has to wait")
    is_(s.live(keys), [True] * 4, "so all of them can still be found")
    out = fake.offer(s.m, keys[1:], again)
    is_(out.keys_to_store, keys[1:2], "what was computed instead is taken; what is behind it is there")
    drops._send = send
    drops.again()
    s.m.c.ticket_wait()
    next(iter(s.workers[0].get_worker(None).beside.values())).c.ticket_wait()
    is_(s.live(keys), [True, False, True, True], "the drop is done")
    s.run(True, again, out.keys_to_store, out.store_spec, blocks(1, 9))
    s.settle()
    is_((s.live(keys), s.held()[0]), ([True] * 4, 0), "and the store after it: all are there again")
    is_(fake.offer(s.m, keys[1:], again).keys_to_store, [], "once")
    s.end()
e.end()

e = Engine("-n", gpc_serve=False)
writer = gpc.attach(name + "-n", serve=True)
ctx, keys = e.request("p", 4)
e.store(ctx, keys, blocks(4))
spoil(e, 0, keys[0])
writer.close()
is_(e.m.c.info().writer_pid, 0, "nobody writes")
again, _ = e.request("p", 4)
rounds = 0
while e.load(again, keys, blocks(4, 8))[1] and rounds < 50:
    rounds += 1
is_(rounds, 1, "so a bad slot stays, and is loaded once by a request")
is_(e.load(again, keys, None)[0], [MISS], "and then is none for it")

e.m.later, plain = None, e.request("p", 4)[0]
for _ in range(gpc.vllm.manager.LOADS):
    is_([e.lookup(plain, keys[:1]), e.m.complete_load(e.m.prepare_load(keys[:1], plain) and keys[:1], plain)], [[HIT], None],
        "without GPCConnector nobody tells of failed loads")
    e.m.on_schedule_end(None)
is_(e.lookup(plain, keys[:1]), [MISS], "so a request that comes back for a key is told some time that there is none")
e.m.later = {}

# ---- a drop that has no room in the ring ----

worker = e.workers[0].get_worker(None)
beside = next(iter(worker.beside.values())).c
live = e.m.c.lookup(e.m.finder.keys(keys), flags=gpc.QUIET)
try:
    while True:
        beside.drop([live[0]], timeout=0)
except gpc.Again:
    pass
worker.mover = Refuses()
other, _ = e.request("p", 4)
e.load(other, keys, blocks(4, 8))
is_([b for _, b in worker.drops.kept], live, "the ring is full: drops are kept, those of copies that a device refused, too")
is_(beside.stats(beside.info().peer).refs, 4, "with a reference each")
writer = gpc.attach(name + "-n", serve=True)
while worker.drops.kept:
    worker.drops.again()
e.settle()
beside.ticket_wait()
is_((e.live(keys), beside.stats(beside.info().peer).refs), ([False] * 4, 0), "a writer comes: they go")
drops, gpc.vllm.drops.MOST = gpc.vllm.drops.Drops(), 2
drops._send = lambda c, some: False
ctx, more = e.request("q", 4)
worker.mover = mover
e.store(ctx, more, blocks(4))
drops.drop(beside, e.m.c.lookup(e.m.finder.keys(more)), [bytes(e.m.finder.keys([k])) for k in more])
is_(len(drops.kept), 2, "no more are kept than MOST")
e.end()
writer.close()

# ---- a state, which vLLM hands over once ----

h = Engine("-once", groups=2, states=True)
h.m.finder.asker.settle(60)
ctx, keys = h.request("state", 3, groups=(0, 1))
gpc.vllm.manager.SOON = 60
is_(h.m.prepare_store(keys[1][2:], ctx).keys_to_store, keys[1][2:], "a state has its block in the step that hands it over")
is_((h.m.prepare_store(keys[0], ctx).keys_to_store, set(h.m.take_later()[ctx.req_id])), ([], set(keys[0])),
    "what is offered again waits for nobody")
h.end()

# ---- half chunks ----

h = Engine("-h", per_chunk=3, groups=2)
ctx, keys = h.request("half", 3, groups=(0, 1))
some = keys[0][:2] + keys[1][:2]
out = fake.offer(h.m, some, ctx)
h.kv[0].bytes[:] = os.urandom(len(h.kv[0].bytes))
# of the window's first chunk vLLM has kept the last block alone
h.run(True, ctx, some, out.store_spec, fake.blocks(list(range(6)) + [9, 10, 11, 12], sizes=[6, 4], indices=(0, 2)))
h.settle()
is_((h.live(keys[0][:2]), h.live(keys[1][:2])), ([True, True], [False, True]), "a store of half a chunk publishes none of it")
is_((h.m.counts["failed"], h.held()), (1, (0, 0)), "and gives it back")
worker = h.workers[0].get_worker(None)
beside = next(iter(worker.beside.values()))
half = out.store_spec.keys[32:48], out.store_spec.block_ids[2]
is_(beside.c.sealed([gpc.BLOCK(0, half[1])], half[0])[0].result, -errno.ENODATA, "it is not sealed")
again, _ = h.request("half", 3, groups=(0, 1))
is_(h.lookup(again, some), [HIT, HIT, MISS, HIT], "the others are found")
was = [h.kv[0].get(b) for b in (3, 4, 5, 11, 12)]
loads = [keys[0][1], keys[1][1]]
errors = h.run(False, again, loads, h.m.prepare_load(loads, again),
               fake.blocks([20, 21, 22, 23, 24], sizes=[3, 2], indices=(3, 4)))[1]
is_((errors, [h.kv[0].get(b) for b in range(20, 25)]), (set(), was), "a load of half a chunk has its half")
h.m.on_schedule_end(None)
h.m.on_request_finished(again)
ctx, keys = h.request("gap", 3, groups=(0, 1))
some = keys[1]
out = fake.offer(h.m, some, ctx)
h.run(True, ctx, some, out.store_spec, fake.blocks(list(range(8)), sizes=[0, 8], indices=(0, 0)))
h.settle()
is_((h.live(some), h.held()), ([False] * 3, (0, 0)), "blocks are missing in the middle: no chunk of that group is whole for sure")
h.end()

# ---- workers attach at start ----

e = Engine("-s", ranks=2, attach=False)
where = glob.glob(meet._prefix(None, f"{name}-s-{id(e)}") + "*")
is_(len(where), 1, "the manager leaves word for its workers")
is_([w.get_worker(None).beside for w in e.workers], [{}, {}], "who are there before it")
e.links[0].get_handshake_metadata()
is_(list(e.workers[0].get_worker(None).beside), [e.m.where], "vLLM asks them: they attach as companions")
seats = []
try:
    while True:
        seats.append(gpc.attach(name + "-s"))
except gpc.Error as err:
    is_(err.errno, 87, "all seats are taken")
e.workers[1].conf.attach_ms = 0
raises(gpc.Error, "gpc_max_peers: vllm worker 1 finds no seat", e.links[1].get_handshake_metadata,
       "no seat is left for a worker: the engine ends at start")
for s in seats:
    s.close()
e.links[1].get_handshake_metadata()
e.m.on_schedule_end(None)
is_(glob.glob(where[0]), [], "the first step removes the word")
ctx, keys = e.request("s", 2)
e.store(ctx, keys, blocks(2))
is_((e.live(keys), [len(w.get_worker(None).beside) for w in e.workers]), ([True] * 2, [1, 1]), "jobs use that attachment")
was = [dict(w.get_worker(None).beside) for w in e.workers]
for link in e.links:
    link.unregister_kv_caches()
    link.get_handshake_metadata()
is_([w.get_worker(None).beside for w in e.workers], was, "vLLM 0.33 asks again when an engine wakes: they have attached")
for link in e.links:
    link.connector_worker.worker.shutdown()
with tempfile.TemporaryDirectory() as folder:
    raises(ConfigError, f"gpc_dir: the workers of this engine get no word of its cache: {folder}/none/gpc-vllm-",
           lambda: meet.leave(e.m.where._replace(dir=folder + "/none"), "e"), "word that cannot be written ends the engine")
    e.workers[1].conf.dir = folder
    raises(ConfigError, f"gpc_dir: vllm worker 1 does not find the cache of its scheduler in {folder}",
           e.links[1].get_handshake_metadata, "nor does it where the worker sees another folder")
e.end()
dead = meet.leave(e.m.where._replace(dir=""), "dead")
is_((meet.attach("", "dead", lambda found: gpc.attach(found.name, leader=found.peer, life=found.life)), os.path.exists(dead)),
    (None, False), "word of a manager that has gone is removed")
said = multiprocessing.get_context("fork").Queue()
lives, dies = (multiprocessing.get_context("fork").Process(target=lambda e=e: (said.put(meet.leave_word("", e)), time.sleep(600)))
               for e in ("lives", "dies"))
lives.start()
of_lives = said.get()
dies.start()
of_dies = said.get()
dies.kill()
dies.join()
mine = [meet.leave_word("", "mine") for _ in range(2)][1]
is_([os.path.exists(p) for p in (of_lives, of_dies, mine)], [True, False, True], "word of a process that was killed goes when another one leaves its own")
lives.kill()
lives.join()
meet.remove(mine)
meet.remove(of_lives)
is_(os.path.exists(mine), False, "and its own goes when it says so")

# no seat at the first job: the next ones wait no more
e = Engine("-t", attach=False, gpc_max_peers=2)
gpc.vllm.worker.SEAT = 0.1
seat = gpc.attach(name + "-t")
raises(gpc.Error, f"gpc_max_peers: all 2 seats of {name}-t are taken", lambda: Engine("-t", attach=False, gpc_attach_ms=0),
       "no seat is left for a scheduler: the engine ends at start, and the key is named")
for folder in ("/nowhere", "/etc/passwd"):
    raises(gpc.Error, f"gpc_dir: {folder}: ", lambda: Engine("-t", attach=False, gpc_dir=folder), "nor does it start without a folder")
for i in range(3):
    ctx, keys = e.request(f"t{i}", 2)
    e.store(ctx, keys, blocks(2))
is_((e.live(keys), e.held(), e.m.counts["failed"]), ([False] * 2, (0, 0), 6), "stores of a worker without a seat publish nothing")
is_(len([t for t in logs if "gpc_max_peers: vllm worker 0 finds no seat" in t]), 3, "and each says why")
seat.close()
gpc.vllm.worker.SEAT = 60
e.store(*e.request("t9", 2), blocks(2))
is_(e.m.counts["stored"], 2, "with a seat, they do")

# ---- a store of one's own that does not end ----

ctx, keys = e.request("hangs", 3)
fake.offer(e.m, keys, ctx)
other, _ = e.request("hangs", 3)
is_(e.lookup(other, keys), [PENDING] * 3, "a store of our own is waited for")
e.m.finder.clock = lambda: time.monotonic() + 59
is_(e.lookup(other, keys), [PENDING] * 3, "up to a deadline")
e.m.finder.clock = lambda: time.monotonic() + 61
is_((e.lookup(other, keys), e.m.counts["gave_up"]), ([MISS] * 3, 1), "then it is computed")
e.m.complete_store(set(keys), ctx, success=False)
e.m.finder.clock = time.monotonic
e.end()

# ---- no writer: said, and shown ----

e = Engine("-q", gpc_serve=False)
now = [0.0]
e.m.writer = gpc.vllm.writer.Writer(e.m.c, name + "-q", e.m.conf, lambda: now[0])
del logs[:]
for now[0] in (0, 0.6, 1.2, 1.8, 2.4, 30, 50):
    e.m.on_schedule_end(None)
gauge = e.m.get_stats().gauges["vllm:kv_offload_gpc_writer"]
is_((len(logs), gauge), (1, 0), "without a writer there is one warning")
ok("no writer" in logs[0] and f"gpcd {name}-q" in logs[0], "which says what to do")
for now[0] in range(60, 200, 10):
    e.m.on_schedule_end(None)
is_(len(logs), 4, "and one more a minute")
writer = gpc.attach(name + "-q", serve=True)
while not e.m.c.info().writer_pid:
    pass
now[0] = 300
e.m.on_schedule_end(None)
is_((e.m.get_stats().gauges["vllm:kv_offload_gpc_writer"], "again" in logs[-1]), (1, True), "until there is one")
e.end()
writer.close()
done()
