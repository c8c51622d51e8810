# SPDX-License-Identifier: Apache-2.0
"""Figures of gpc.vllm that mean something: what its counters and those of the library say is what vLLM counts as external
hits.  Stores and touches are no lookups, a request that asks again is one question, and what an engine has in its own
prefix cache is no hit of gpc."""

import logging
import random

import vllm_fake as fake

fake.install()

import gpc.vllm.finder  # noqa: E402
from gpc.engines.bytes import address_of  # noqa: E402
from gpc.engines.cache import open_cache  # noqa: E402
from gpc.engines.store import Store  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = 60
HIT, MISS, PENDING = fake.LookupResult.HIT, fake.LookupResult.MISS, fake.LookupResult.HIT_PENDING
EXTRA = {"gpc_name": name, "gpc_weights": "w", "gpc_bytes": (64 + 400) * 4096, "gpc_free_target": -1,
         "gpc_stock": 0, "gpc_pending_ms": 60000}
_made.update({name, name + "-s"})
numbers = iter(range(10 ** 6))


class Engine:
    """As vLLM: an own prefix cache, and what it counts."""

    def __init__(self):
        self.m = GPCOffloadingSpec(fake.config(EXTRA)).get_manager()
        groups = [fake.ns(group_idx=0, sliding_window_size_in_chunks=None)]
        half = fake.ns(manager=self.m, config=fake.ns(kv_group_configs=groups, blocks_per_chunk=1), _req_status={},
                       found=lambda request, computed: 0)
        self.link, self.half = GPCConnector(None, "scheduler", fake.ns(half=half, kv_cache_groups=groups)), half
        self.own, self.asked, self.hits, self.own_hits = set(), 0, 0, 0

    def ask(self, ctx, keys):
        """The chunks of a prompt that vLLM may load, and whether it has to wait."""
        got = []
        for k in keys:
            got.append(self.m.lookup(k, ctx))
            if got[-1] is MISS:
                break
        self.m.finder.asker.settle(60)
        return got.count(HIT), PENDING in got

    def has_blocks(self, ctx, found):
        """vLLM counts a request here."""
        self.link.update_state_after_alloc(fake.ns(request_id=ctx.req_id), fake.ns(get_block_ids=lambda: ()), 16 * found)

    def waits(self, prompt, chunks):
        """Asked for, and there is no room yet."""
        ctx, keys = fake.prompt(prompt, chunks)
        ctx.req_id = f"r{next(numbers)}"
        self.half._req_status[ctx.req_id] = fake.ns(req_context=ctx, req=None, group_states=())
        self.ask(ctx, keys)
        self.m.on_schedule_end(None)
        return ctx, keys

    def run(self, prompt, chunks, again=0):
        """again: how often the scheduler has no room at first."""
        ctx, keys = fake.prompt(prompt, chunks)
        ctx.req_id = f"r{next(numbers)}"
        self.half._req_status[ctx.req_id] = fake.ns(req_context=ctx, req=None, group_states=())
        own = 0
        while own < chunks and keys[own] in self.own:
            own += 1
        for _ in range(again + 1):
            self.link.get_num_new_matched_tokens(fake.ns(request_id=ctx.req_id), own * 16)
            found, _ = self.ask(ctx, keys[own:])
            if again:
                self.m.on_schedule_end(None)
                again -= 1
        self.has_blocks(ctx, found)
        self.asked, self.hits, self.own_hits = self.asked + chunks - own, self.hits + found, self.own_hits + own
        load = keys[own:own + found]
        if load:
            self.m.prepare_load(load, ctx)
        self.m.on_schedule_end(None)
        self.m.complete_load(set(load), ctx)
        self.m.touch(keys, ctx)
        out = fake.offer(self.m, keys, ctx)        # vLLM offers what it has in its own cache, too
        self.m.complete_store(set(out.keys_to_store), ctx)
        self.m.publisher.collect(60)
        self.m.on_request_finished(ctx)
        self.m.on_schedule_end(None)
        self.m.c.ticket_wait()
        self.own.update(keys)

    def told(self):
        s = self.m.c.stats(self.m.c.info().peer)
        return s.lookups, s.hit_ram, s.miss


e = Engine()
e.run("one", 62)
is_(e.told(), (62, 0, 62), "a prompt that nobody has: its store is no lookup")
e.run("one", 62)
is_(e.told(), (62, 0, 62), "a hit in the own prefix cache is none of gpc")
is_(e.m.counts["hits_own"], 62, "and counted as what it is")
e.own.clear()
e.run("one", 62, again=3)
is_(e.told(), (124, 62, 62), "a request that the scheduler asks for four times is one question")

was = e.told()
ctx, keys = e.waits("one", 62)
is_(e.told(), was, "a request without room is none yet")
e.has_blocks(ctx, 62)
is_(e.told(), (was[0] + 62, was[1] + 62, was[2]), "one that has room is counted")
was = e.told()
ctx, keys = e.waits("one", 62)
e.link.get_num_new_matched_tokens(fake.ns(request_id=ctx.req_id), 61 * 16)
e.m.lookup(keys[61], ctx)
e.has_blocks(ctx, 1)
is_([y - x for x, y in zip(was, e.told())], [1, 1, 0], "of a prompt that came into the own prefix cache meanwhile the rest counts")
e.m.on_schedule_end(None)
was = e.told()
ctx, keys = e.waits("one", 62)
e.link.get_num_new_matched_tokens(fake.ns(request_id=ctx.req_id), 62 * 16)
e.has_blocks(ctx, 0)
is_(e.told(), was, "and of one that has all of it by then, nothing")

# two engines share some prompts, with reset prefix caches and prompts that grow
a, b, r = Engine(), Engine(), random.Random(7)
for i in range(200):
    x = r.choice((a, b))
    if r.random() < 0.1:
        x.own.clear()
    x.run(f"p{r.randrange(12)}", r.randrange(3, 25), again=r.randrange(3))
for x in (a, b):
    is_(x.told(), (x.asked, x.hits, x.asked - x.hits), "lookups and hits are those of vLLM, exactly")
    stats = x.m.get_stats().counters
    is_([stats["vllm:kv_offload_gpc_" + n] for n in ("lookups", "hits", "hits_ram", "hits_own")],
        [x.asked, x.hits, x.hits, x.own_hits], "and so are the metrics")
ok(a.hits + b.hits > 200, f"{a.hits + b.hits} hits")

# one that waits for another: its question is answered when it waits no more
ctx, keys = fake.prompt("waits", 4)
a.ask(ctx, keys)
a.m.claim_wanted(ctx)
fake.settle(a.m)
was = b.told()
other, _ = fake.prompt("waits", 4)
other.req_id = "other"
b.half._req_status["other"] = fake.ns(req_context=other, req=None, group_states=())
is_(b.ask(other, keys), (0, True), "another engine computes it")
b.m.on_schedule_end(None)
is_(b.told(), was, "the question has no answer yet")
out = fake.offer(a.m, keys, ctx)
a.m.complete_store(set(keys), ctx)
a.m.publisher.collect(60)
a.m.on_schedule_end(None)
a.m.c.ticket_wait()
is_(b.ask(other, keys), (4, False), "it comes")
b.m.prepare_load(keys, other)
b.has_blocks(other, 4)
b.m.complete_load(set(keys), other)
is_([y - x for x, y in zip(was, b.told())], [4, 4, 0], "four hits")
b.m.on_request_finished(other)

# vLLM asks in each step: one has an answer where something has changed, and now and then
now, live = [1e9], "vllm:kv_offload_gpc_live"
b.m.on_schedule_end(None)
b.m.figures.clock = lambda: now[0]
was = b.m.get_stats()
is_(b.m.get_stats(), None, "nothing has changed: no figures")
ctx, keys = fake.prompt("of the other engine", 3)
fake.offer(a.m, keys, ctx)
a.m.complete_store(set(keys), ctx)
a.m.publisher.collect(60)
a.m.on_request_finished(ctx)
is_(b.m.get_stats(), None, "the other engine stores")
now[0] += 0.6
got = b.m.get_stats()
is_((got.gauges[live] - was.gauges[live], got.counters, b.m.get_stats()), (3, {}, None), "which is seen a little later, once")
ctx, keys = b.waits("its own", 2)
is_(b.m.get_stats(), None, "a request without room claims nothing")
b.has_blocks(ctx, 0)
b.m.finder.asker.settle(60)
got = b.m.get_stats()
is_((got.gauges["vllm:kv_offload_gpc_ahead"], got.counters), (2, {"vllm:kv_offload_gpc_lookups": 2}),
    "what it claims is told at once, and its question")
b.m.count_own(ctx, 32)
is_(b.m.get_stats().counters, {"vllm:kv_offload_gpc_hits_own": 2}, "so is a count alone")
b.m.on_request_finished(ctx)
is_(b.m.get_stats().gauges["vllm:kv_offload_gpc_ahead"], 0, "and the end of what it claimed")
for x in (a, b, e):
    x.m.shutdown()

# ---- gpc.sglang and gpc.lmcache ----

conf = fake.ns(bytes=(64 + 100) * 4096, bytes_key="bytes", dir="", serve=True, stock=0, attach_ms=60000, max_peers=4,
               free_target=-1, tag=1, checksum=True, wait_ms=60000)
c = open_cache(name + "-s", conf, bytes(32), 4096, 16, "store", fake.ns(info=print, warning=print, log=print))
s = Store(c, conf)
digests, data = [bytes([i]) * 32 for i in range(11)], bytearray(range(200))
hold, parts = address_of(data)
is_(s.put(digests, [parts] * 11), [True] * 11, "eleven objects are stored")
t = c.stats(c.info().peer)
is_((t.lookups, t.miss, s.counts["lookups"]), (0, 0, 0), "which asks nothing")
is_(s.exists(digests + [bytes(32)[:31] + b"x"]), [True] * 11 + [False], "a question")
t = c.stats(c.info().peer)
is_((t.lookups, t.hit_ram, s.counts["lookups"], s.counts["hits"]), (12, 11, 12, 11), "is one")
s.close()
done()
