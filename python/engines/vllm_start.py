# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm in an engine of vLLM that starts, sleeps, wakes and ends: vLLM's own EngineCore, offloading connector (both sides
of it) and calls of the worker, in the order in which this version makes them.  newest.py runs it.  TAP.

Each worker is a process, as of vLLM's multiprocess executor, or this one where the engine has one process.  No model
runs: tensors of KV are memory of the fake, and the configuration is written down here.
"""

import contextlib
import enum
import glob
import multiprocessing
import os
import sys
import tempfile
import types
import typing

import vllm_fake as fake
from vllm_modules import OFFLOADING, V1

import gpc
from gpc.vllm import GPCConnector, finder, meet, model
from tap import _made, done, is_, name, ok

core = sys.modules["vllm.v1.engine.core"]
worker_calls = sys.modules["vllm.v1.worker.gpu_worker"]
connector = sys.modules[V1 + ".offloading_connector"]
scheduler = sys.modules[OFFLOADING + ".scheduler"]
Role = sys.modules[V1 + ".base"].KVConnectorRole
RealScheduler = sys.modules["vllm.v1.core.sched.scheduler"].Scheduler
finder.ASK = 60
model.words_of = lambda told, weights_of: {}         # of vllm_words.py
processes = multiprocessing.get_context("fork")


class Any(types.SimpleNamespace):
    """What nobody has set is a stand-in."""

    def __getattr__(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return sys.modules["stub"].make(attribute)


def config(suffix, engine, ranks=1, **more):
    _made.add(name + suffix)
    extra = {"spec_name": "GPCOffloadingSpec", "spec_module_path": "gpc.vllm", "gpc_name": name + suffix, "gpc_weights": "w",
             "gpc_bytes": (64 + 40) * 4096, "gpc_stock": 0, "gpc_free_target": -1, "gpc_attach_ms": 60000, **more}
    c = vars(fake.vllm_config())
    return Any(**{n: part and Any(**vars(part)) for n, part in c.items()}, ranks=ranks, max_concurrent_batches=1,
               kv_transfer_config=Any(kv_connector_extra_config=extra, engine_id=f"{name}{suffix}{engine}", is_kv_producer=True),
               parallel_config=Any(world_size=ranks, decode_context_parallel_size=1),
               scheduler_config=Any(get_scheduler_cls=lambda: Scheduler))


def _offloading_config(c, kv_cache_config):
    """vLLM's build_offloading_config, of what is here."""
    t = c.kv_transfer_config
    out = fake.config(t.kv_connector_extra_config, rank=c.rank or 0, world=c.ranks, block_bytes=64, engine_id=t.engine_id,
                      vllm_config=None)
    out.groups[0].sliding_window_size_in_chunks = None
    return out


connector.build_offloading_config = _offloading_config
scheduler.SchedulerOffloadConfig.from_spec = classmethod(lambda cls, spec, *rest: Any(
    kv_group_configs=[Any(group_idx=0, sliding_window_size_in_chunks=None)],
    blocks_per_chunk=1, num_workers=spec.config.parallel.world_size, supports_partial_tail=False))
KV = types.SimpleNamespace(kv_cache_groups=[Any()], num_blocks=8, cache_hit_alignment_tokens=None)


# ---- a worker ----

class Worker:
    """vLLM's calls of one rank."""

    def __init__(self, c, rank):
        self.vllm_config, self.rank, self.link = Any(**{**vars(c), "rank": rank}), rank, None

    def initialize(self):
        self.link = GPCConnector(self.vllm_config, Role.WORKER, KV)
        half = self.link.connector_worker
        half._init_worker(fake.caches([fake.Tensor(8, 64)]))
        half.register_kv_caches = lambda kv_caches: None
        self.link.register_kv_caches({})

    def handshake(self):
        worker_calls.has_kv_transfer_group, worker_calls.get_kv_transfer_group = lambda: True, lambda: self.link
        return worker_calls.Worker.get_kv_connector_handshake_metadata(self)

    def drain(self):
        getattr(self.link, "unregister_kv_caches", lambda: None)()

    def where(self):
        return [tuple(w) for w in self.link.connector_worker.worker.beside]

    def see(self, folder):
        self.link.connector_worker.worker.conf.dir = folder

    def end(self):
        if self.link:
            self.link.shutdown()


def _serve(pipe, c, rank):
    w = Worker(c, rank)
    while True:
        call, args = pipe.recv()
        try:
            pipe.send((True, getattr(w, call)(*args)))
        except Exception as e:
            pipe.send((False, f"{type(e).__name__}: {e}"))
        if call == "end":
            os._exit(0)


class Executor:
    """Of one worker in this process, or of several that are processes.  Those of the last engine are in `last`."""
    is_sleeping, last = False, None

    def __init__(self, c):
        self.calls, self.inside, self.pipes, self.running = [], None, [], []
        Executor.last = self
        if c.ranks == 1:
            self.inside = Worker(c, 0)
        for rank in range(c.ranks if c.ranks > 1 else 0):
            ours, theirs = processes.Pipe()
            p = processes.Process(target=_serve, args=(theirs, c, rank), daemon=True)
            p.start()
            self.pipes.append(ours)
            self.running.append(p)

    def rpc(self, call, *args, only=None):
        if self.inside:
            return [getattr(self.inside, call)(*args)]
        asked = self.pipes if only is None else [self.pipes[only]]
        for pipe in asked:
            pipe.send((call, args))
        answers = [pipe.recv() for pipe in asked]
        for good, text in answers:
            if not good:
                raise RuntimeError(text)         # as vLLM's executor
        return [value for _, value in answers]

    def get_kv_connector_handshake_metadata(self):
        self.calls.append("handshake")
        return self.rpc("handshake")

    def wake_up(self, tags):
        self.calls.append("wake")

    def sleep(self, level):
        self.calls.append("sleep")
        self.rpc("drain")

    def discard(self, tags):
        self.calls.append("discard")
        self.rpc("drain")

    def collective_rpc(self, call, *args):
        self.calls.append(call)

    def __getattr__(self, attribute):            # what is no call of a connector
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return lambda *args, **more: None


class Scheduler:
    """The connector's calls of vLLM's."""
    connector_prefix_cache_stats = aux_output_connector = ec_connector = None
    log_stats, running = False, ()
    reset_prefix_cache, reset_connector_cache = RealScheduler.reset_prefix_cache, RealScheduler.reset_connector_cache

    def __init__(self, vllm_config, **more):
        Executor.last.calls.append("scheduler")
        self.connector = GPCConnector(vllm_config, Role.SCHEDULER, KV)
        self.pause_state, self.prev_step_scheduled_req_ids = core.PauseState.UNPAUSED, set()
        self.kv_cache_manager = types.SimpleNamespace(reset_prefix_cache=lambda: True)

    def get_kv_connector(self):
        return self.connector

    def set_pause_state(self, state):
        self.pause_state = state

    def has_requests(self):
        return False

    def __getattr__(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return lambda *args, **more: None


class Engine(core.EngineCore):
    def _initialize_effective_attention_block_size(self):
        """Of the KV cache."""

    def _initialize_kv_caches(self, vllm_config):
        self.model_executor.calls.append("caches")
        self.model_executor.rpc("initialize")
        return KV

    @property
    def m(self):
        return self.scheduler.connector.connector_scheduler.manager

    def step(self):
        """One in which nothing is scheduled."""
        return self.scheduler.connector.build_connector_meta(Any())

    def end(self):
        self.model_executor.rpc("end")
        self.scheduler.connector.shutdown()


core.PauseMode = typing.Literal["abort", "wait", "keep"]
core.PauseState = enum.Enum("PauseState", "UNPAUSED PAUSED_NEW PAUSED_ALL")
core.resolve_kv_cache_block_sizes = lambda *args: (16, 16)
scheduler.yield_req_data = lambda scheduler_output: ()


def start(*args, **more):
    return Engine(config(*args, **more), Executor, False)


def fails(*args, prepare=None, **more):
    """What the engine ends with."""
    real = Executor.get_kv_connector_handshake_metadata
    if prepare:
        Executor.get_kv_connector_handshake_metadata = lambda self: (prepare(self), real(self))[1]
    try:
        start(*args, **more)
    except Exception as e:
        return str(e)
    finally:
        Executor.get_kv_connector_handshake_metadata = real
        Executor.last.rpc("end")
    return "it starts"


def beside(engine):
    """Whose companions its workers are."""
    return engine.model_executor.rpc("where")


# ---- it starts ----

ORDER = ["caches", "scheduler", "handshake"]
for suffix, ranks in (("", 1), ("-tp", 2)):
    e = start(suffix, "", ranks)
    is_([c for c in e.model_executor.calls if c in ORDER], ORDER, f"vLLM's order at start, of {ranks} ranks")
    is_(beside(e), [[tuple(e.m.where)]] * ranks, "each worker attaches beside its manager then")
    is_(len(glob.glob(meet._prefix(None, name + suffix) + "*")), 1, "by word of it")
    e.step()
    is_(glob.glob(meet._prefix(None, name + suffix) + "*"), [], "which the first step removes")

    # ---- and what reaches it ----

    seen = []
    reset = e.m.reset_cache
    e.m.reset_cache = lambda: (seen.append(e.m.namespace.text), reset())[1]

    def told(call, *args, **more):
        del seen[:]
        was = e.m.namespace.text
        call(*args, **more)
        return len(seen), e.m.namespace.text != was

    is_(told(e.reset_prefix_cache), (0, False), "reset_prefix_cache() is the engine's own")
    is_(e.reset_prefix_cache(reset_connector=True), True, "with reset_connector it is told to be done")
    is_(told(e.reset_prefix_cache, reset_connector=True), (1, True), "and begins a namespace")
    is_(told(e.pause_scheduler, "keep", clear_cache=False), (0, False), "a pause that keeps the caches begins none")
    is_(told(e.pause_scheduler), (1, True), "a pause begins one")
    is_(told(e.resume_scheduler), (0, False), "going on begins none")
    is_(told(e.sleep, 0), (0, False), "nor does sleep of level 0")
    e.resume_scheduler()
    for level in (1, 2):
        is_(told(e.sleep, level), (1, True), f"sleep of level {level} begins one")
        del e.model_executor.calls[:]
        is_(told(e.wake_up), (0, False), "waking begins none")
        ok(e.model_executor.calls in (["wake"], ["wake", "handshake"]), f"and succeeds: {' '.join(e.model_executor.calls)}")
        is_(beside(e), [[tuple(e.m.where)]] * ranks, "the workers have the attachments that they had")
    e.pause_scheduler()
    is_(told(e.release_kv_cache_memory), (1, True), "release_kv_cache_memory begins one")
    e.wake_up(["kv_cache"])
    e.step()
    e.end()

# ---- data-parallel engines: run_engine_core tells their numbers apart ----

two = [start("-dp", f"_dp{i}", 2) for i in range(2)]
is_([beside(e) for e in two], [[[tuple(e.m.where)]] * 2 for e in two], "workers of two data-parallel engines have their own managers")
ok(two[0].m.where.peer != two[1].m.where.peer, "which are two")
for e in two:
    e.end()

# ---- facts of the cache ----

if hasattr(sys.modules["vllm.v1.kv_offload.base"], "ConfigInfo"):
    e = start("-i", "")
    got = []
    stats = sys.modules[OFFLOADING + ".metrics"].OffloadingConnectorStats
    stats.set_info = lambda self, info: got.append(info)
    e.scheduler.connector.get_kv_connector_stats()
    e.scheduler.connector.get_kv_connector_stats()
    (((labels,),),) = [got]
    is_((labels["gpc_name"], labels["gpc_slots"], labels["gpc_chunk_bytes"]), (name + "-i", 40, 4096), "vLLM is told the facts of the cache, once")
    is_(set(labels), set(sys.modules["gpc.vllm.spec"].GPCOffloadingSpec.config_info_keys({})), "those that are declared")
    e.end()

# ---- it does not start ----

for ranks in (1, 2):
    cache = f"-f{ranks}"
    seats = []

    def take_all(executor):
        with contextlib.suppress(gpc.Error):
            while True:
                seats.append(gpc.attach(name + cache))

    text = fails(cache, "", ranks, prepare=take_all, gpc_max_peers=4, gpc_attach_ms=0)
    ok(f"gpc_max_peers: vllm worker {0}" in text or "gpc_max_peers: vllm worker 1" in text, f"{ranks} ranks, no seat: {text[:80]}")
    for s in seats:
        s.close()
    with tempfile.TemporaryDirectory() as folder:
        text = fails(cache, " other", ranks, prepare=lambda executor: executor.rpc("see", folder, only=ranks - 1 if ranks > 1 else None))
        ok(f"gpc_dir: vllm worker {ranks - 1} does not find the cache of its scheduler in {folder}" in text,
           f"{ranks} ranks, a worker sees another folder: {text[:80]}")
done()
