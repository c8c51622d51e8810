# SPDX-License-Identifier: Apache-2.0
"""GPC_TRACE: a load has a line of its scheduler and one of each worker, with all moments in order; without it there is none."""

import json
import os
import tempfile
import time

import vllm_fake as fake

fake.install()

import gpc.vllm.finder  # noqa: E402
import gpc.vllm.worker  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec, trace  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = gpc.vllm.worker.SEAT = 60
RANKS, BLOCKS = 2, 6
KIND = fake.ns(group_idx=0, sliding_window_size_in_chunks=None)
file = tempfile.NamedTemporaryFile(prefix=name)


class Scheduler:
    """vLLM's half, as far as the connector asks it."""

    def __init__(self, m):
        self.manager, self._req_status, self._jobs = m, {}, {}
        self.config = fake.ns(kv_group_configs=[KIND], blocks_per_chunk=1)

    def found(self, request, computed):
        return 16 * BLOCKS


class Engine:
    def __init__(self, suffix):
        _made.add(name + suffix)
        extra = {"gpc_name": name + suffix, "gpc_weights": "w", "gpc_bytes": 104 * RANKS * 4096, "gpc_stock": 0, "gpc_free_target": -1}
        conf = dict(extra=extra, world=RANKS, block_bytes=64, engine_id=name + suffix)
        specs = [GPCOffloadingSpec(fake.config(rank=r, **conf)) for r in range(RANKS)]
        self.m = GPCOffloadingSpec(fake.config(**conf)).get_manager()
        self.half = Scheduler(self.m)
        self.link = GPCConnector(None, "scheduler", fake.ns(half=self.half, kv_cache_groups=[KIND]))
        self.workers = [spec.get_worker(fake.caches([fake.Tensor(64, 64)])) for spec in specs]

    def tell(self, jobs):
        """Each worker ends them, and a step of it hears so."""
        for w in self.workers:
            w.wait(jobs)
            w.get_finished()

    def store(self, text):
        ctx, keys = fake.prompt(text, BLOCKS)
        out = fake.offer(self.m, keys, ctx)
        for w in self.workers:
            w.submit_store(1, fake.blocks(list(range(BLOCKS))), out.store_spec)
        self.tell([1])
        self.m.complete_store(set(keys), ctx)
        self.m.publisher.collect(60)
        self.m.c.ticket_wait()

    def load(self, text, number):
        """The steps of a request, as vLLM makes them."""
        ctx, keys = fake.prompt(text, BLOCKS)
        request = fake.ns(request_id=ctx.req_id, num_computed_tokens=0)
        self.half._req_status[ctx.req_id] = fake.ns(req_context=ctx, req=request, group_states=(), transfer_jobs={number},
                                                    update_offload_keys=lambda: None)
        self.link.on_new_request(request)
        self.link.get_num_new_matched_tokens(request, 0)
        hits = [k for k in keys if self.m.lookup(k, ctx) is fake.LookupResult.HIT]
        spec = self.m.prepare_load(hits, ctx)
        self.link.update_state_after_alloc(request, fake.ns(get_block_ids=lambda: ([*range(BLOCKS)],)), 16 * BLOCKS)
        step(self.link, {number: fake.ns(req_id=ctx.req_id)}, {})
        for w in self.workers:
            w.submit_load(number, spec, fake.blocks(list(range(BLOCKS))))
        step(self.link, {}, {ctx.req_id: 1})     # its load is under way: no step has it
        self.tell([number])
        self.half._req_status[ctx.req_id].transfer_jobs.clear()
        self.m.complete_load(set(hits), ctx)
        self.link.update_connector_output(fake.ns(failed_recving=set(), invalid_block_ids=set(), finished_recving={ctx.req_id},
                                                  kv_connector_worker_meta=None))
        step(self.link, {}, {ctx.req_id: 1})
        self.link.request_finished(request, [])
        return len(hits)

    def end(self):
        for w in self.workers:
            w.shutdown()
        self.m.shutdown()


def step(link, loads, scheduled):
    base = fake.OffloadingConnector.build_connector_meta
    fake.OffloadingConnector.build_connector_meta = lambda self, output: fake.ns(load_jobs=loads)
    link.build_connector_meta(fake.ns(num_scheduled_tokens=scheduled))
    fake.OffloadingConnector.build_connector_meta = base


def lines():
    with open(file.name) as f:
        return [json.loads(line) for line in f]


# ---- without ----

os.environ.pop("GPC_TRACE", None)
e = Engine("")
e.store("one")
is_((e.load("one", 7), e.link.trace, [w.trace for w in e.workers]), (BLOCKS, None, [None] * RANKS), "without GPC_TRACE nothing is traced")
e.end()
is_(lines(), [], "and nothing is written")

# ---- with ----

os.environ["GPC_TRACE"] = file.name
e = Engine("-t")
began = time.monotonic_ns()
e.store("one")
is_(lines(), [], "a store has no line")
is_(e.load("one", 7), BLOCKS, "a load")
got = lines()
is_(sorted((x["side"], x["job"], x["engine"]) for x in got), [("scheduler", 7, name + "-t"), *[("worker", 7, name + "-t")] * RANKS],
    "has a line of the scheduler and one of each worker, with its engine and its job")
for x in got:
    moments = trace.SCHEDULER if x["side"] == "scheduler" else trace.WORKER
    is_([s for s in moments if s not in x], [], f"{x['side']}: no moment is missing")
    times = [began, *(x[s] for s in moments), time.monotonic_ns()]
    ok(times == sorted(times), f"{x['side']}: they are in order")
ends = {x["side"]: x for x in got}
ok(ends["scheduler"]["sent"] <= ends["worker"]["taken"] and ends["worker"]["told"] <= ends["scheduler"]["complete"],
   "what the worker has seen is between the step that sends the job and the one that hears of its end")
is_({(x["chunks"], x["blocks"], x["bytes"], x["failed"]) for x in got if x["side"] == "worker"}, {(BLOCKS, BLOCKS, 64 * BLOCKS, 0)},
    "the worker's has what was moved")
is_(ends["scheduler"]["tokens"], 16 * BLOCKS, "the scheduler's has the tokens")
is_([len(d) for d in (e.link.trace.moments, e.link.trace.jobs, e.link.trace.tokens, e.link.trace.done)], [0] * 4, "nothing of it is kept")
e.end()
done()
