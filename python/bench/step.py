#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""step.py - what gpc.vllm costs the scheduler of an engine, in microseconds of its thread for a request of a step.

A step has 64 requests, as vLLM's scheduler has them: 8 new prompts of 16 chunks that nobody has, which are looked up, claimed
and stored; 8 prompts that are in the cache, which are looked up and loaded; and 48 that go on, of which 4 have a chunk to
store.  Loads and stores of the step before are completed, and its figures are taken.  Steps of new and cached prompts alone
are told beside it, per prompt, and so are steps beside a writer that is stopped.  Then the same steps with a disk below RAM,
which has none of these prompts, and without it, in turn; and steps whose cached prompts are on that disk and not in RAM: they
are asked for there, and told to be pending.

PYTHONPATH=build/python:python/tests python3 python/bench/step.py [STEPS]
"""

import os
import signal
import statistics
import sys
import tempfile
import time

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import below_tiers as tiers  # noqa: E402
from gpc.vllm import GPCOffloadingSpec  # noqa: E402

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
CHUNKS, GOAL = 16, 50
NAME = os.environ.get("GPC_T_CACHE", f"step-{os.getpid()}")
EXTRA = {"gpc_name": NAME, "gpc_weights": "w", "gpc_bytes": (64 + 32768) * 4096, "gpc_stock": 512, "gpc_claim_chunks": 256}
MISS = fake.LookupResult.MISS
ROUNDS = 6
serial = iter(range(10 ** 9))
tiers.make_room()


def manager(**more):
    m = GPCOffloadingSpec(fake.config({**EXTRA, **more})).get_manager()
    m.set_chained({0: True})
    return m


def lookup(m, ctx, keys):
    for i, k in enumerate(keys):
        if m.lookup(k, ctx) is MISS:
            return i
    return len(keys)


class Engine:
    def __init__(self, m):
        self.m, self.stores, self.loads, self.known = m, [], [], []

    def prepare(self):
        """What vLLM has before its step: contexts and keys."""
        new = [fake.prompt(f"new {next(serial)}", CHUNKS) for _ in range(8)]
        old = [fake.prompt(text, CHUNKS) for text in self.known]
        self.known = [ctx.req_id for ctx, _ in new]
        return new, old, [fake.prompt(f"more {next(serial)}", 1) for _ in range(4)]

    def step(self, new, old, more):
        m, stores, loads = self.m, self.stores, self.loads
        self.stores, self.loads = [], []
        for ctx, keys in loads:
            m.complete_load(set(keys), ctx)
            m.on_request_finished(ctx)
        for ctx, keys in stores:
            m.complete_store(set(keys), ctx)
            m.on_request_finished(ctx)
        for ctx, keys in new + old:
            n = lookup(m, ctx, keys)
            if n:
                m.prepare_load(keys[:n], ctx)
                self.loads.append((ctx, keys[:n]))
        m.on_schedule_end(None)
        for ctx, keys in new + more:
            out = m.prepare_store(keys, ctx)
            if out and out.keys_to_store:
                self.stores.append((ctx, out.keys_to_store))
        m.has_pending_work()
        m.get_stats()

    def run(self, steps, pause, going=48):
        """going: requests that go on; 0: only those that come are told, each one by itself."""
        took, loaded = [], 0
        for _ in range(steps):
            new, old, more = self.prepare()
            n = len(new) + len(old) + going
            wall, cpu = time.perf_counter(), time.thread_time()
            self.step(new, old, more if going else [])
            took.append(((time.thread_time() - cpu) * 1e6 / n, (time.perf_counter() - wall) * 1e6 / n))
            loaded += sum(len(k) for _, k in self.loads)
            time.sleep(pause)            # the model: others run meanwhile
        return took, loaded


def tell(what, took, mark=True):
    cpu, wall = (sorted(t) for t in zip(*took))
    median, late = statistics.median(cpu), len(cpu) * 95 // 100
    print(f"{what:38} {median:6.1f} us (95 %: {cpu[late]:.1f}; by the clock {statistics.median(wall):.1f}, {wall[late]:.1f})" +
          f"; mark {GOAL}: {'met' if median <= GOAL else 'missed'}" * mark, flush=True)


def beside_a_disk(e, folder):
    """Steps with a disk, and without, in turn."""
    took, steward = {False: [], True: []}, None
    for i in range(2 * ROUNDS):
        on = bool(i % 2) != bool(i // 2 % 2)         # off on on off: neither is always first
        if on != (steward is not None):
            steward = tiers.Steward(NAME, disk=folder + "/disk", disk_blocks=4096) if on else steward.end()
        e.m.finder.below.looked = None
        e.m.finder.below.look()
        assert bool(e.m.finder.below.mask) == on
        took[on] += e.run(max(STEPS // ROUNDS, 5), 0.01)[0]
    tell("a request of a step, without tiers", took[False])
    tell("a request of a step, with a disk", took[True])
    off, on = (statistics.median(t for t, _ in took[x]) for x in (False, True))
    print(f"with a disk / without: {on / off:.3f}")
    if steward:
        steward.end()


def on_disk(folder):
    """The lookup of a prompt that is on disk, and of one that is in RAM: what the step pays that asks."""
    small = {**EXTRA, "gpc_name": NAME + "-s", "gpc_bytes": (64 + 256) * 4096, "gpc_stock": 0, "gpc_below_ms": 60000}
    m = GPCOffloadingSpec(fake.config(small)).get_manager()
    m.set_chained({0: True})
    steward, took = tiers.Steward(NAME + "-s", disk=folder + "/small", disk_blocks=2048), {"in RAM": [], "on disk": [], "nowhere": []}
    m.finder.below.looked = None
    m.finder.below.look()
    prompts = [f"stored {i}" for i in range(64)]

    def once(text, kind):
        ctx, keys = fake.prompt(text, CHUNKS)
        at = time.thread_time()
        got = [m.lookup(k, ctx) for k in keys]
        took[kind].append((time.thread_time() - at) * 1e6)
        m.on_schedule_end(None)
        while kind == "on disk" and got[0] is fake.LookupResult.HIT_PENDING:
            time.sleep(0.001)
            got = [m.lookup(k, ctx) for k in keys]
            m.on_schedule_end(None)
        m.finder.asker.settle(60)
        m.on_request_finished(ctx)

    for text in prompts:
        ctx, keys = fake.prompt(text, CHUNKS)
        out = fake.offer(m, keys, ctx)
        m.complete_store(set(out.keys_to_store), ctx)
        m.publisher.collect(60)
        m.on_request_finished(ctx)
        m.c.tiers_sync(60)
    for text in prompts * 2:
        once(text, "on disk")
        once(text, "in RAM")
        once(f"none {next(serial)}", "nowhere")
    for kind, us in took.items():
        us.sort()
        print(f"a lookup of {CHUNKS} chunks, {kind:10} {statistics.median(us):8.1f} us (95 %: {us[len(us) * 95 // 100]:.1f})")
    m.shutdown()
    steward.end()
    gpc.unlink(NAME + "-s")


r, w = os.pipe()
pid = os.fork()
if pid == 0:
    m = manager()
    os.write(w, b"x")
    signal.pause()
os.read(r, 1)
try:
    e = Engine(manager(gpc_serve=False))
    e.run(3, 0.01)
    took, loaded = e.run(STEPS, 0.01)
    tell("a request of a step", took)
    print(f"{loaded} chunks were loaded, {e.m.counts['no_room']} had no room")
    tell("a prompt, in steps of prompts alone", e.run(STEPS, 0.01, 0)[0], False)
    os.kill(pid, signal.SIGSTOP)
    tell("a request, the writer is stopped", e.run(10, 0.01)[0])
    os.kill(pid, signal.SIGCONT)
    e.m.finder.asker.settle(60)
    with tempfile.TemporaryDirectory() as folder:
        e.run(3, 0.01)
        beside_a_disk(e, folder)
        on_disk(folder)
finally:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    gpc.unlink(NAME)
os._exit(0)
