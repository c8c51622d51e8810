# SPDX-License-Identifier: Apache-2.0
"""The cost of a load of a long prompt for the scheduler: one question for all of its chunks, with the answer that vLLM's lookups one by
one would have; references that go from the lookup to the load, and to others of it; where the tokens came from."""

import pickle

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import gpc.vllm.worker  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec, connector  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = gpc.vllm.worker.SEAT = 60
HIT, MISS, PENDING = fake.LookupResult.HIT, fake.LookupResult.MISS, fake.LookupResult.HIT_PENDING
CHUNKS, SHORT = 600, 6           # more than are kept one by one, and fewer
FULL, WINDOW = fake.ns(group_idx=0, sliding_window_size_in_chunks=None), fake.ns(group_idx=1, sliding_window_size_in_chunks=2)
_made.add(name)


class Half:
    """vLLM's, as far as the connector asks it."""

    def __init__(self, m, kinds, describes=False):
        self.manager, self._req_status, self._jobs, self.describes = m, {}, {}, describes
        self.config = fake.ns(kv_group_configs=kinds, blocks_per_chunk=1)

    def request(self, ctx, ranges=(), own=0):
        request = fake.ns(request_id=ctx.req_id, num_computed_tokens=own)
        self._req_status[ctx.req_id] = fake.ns(req_context=ctx, req=request, group_states=(), transfer_jobs=set(),
                                               load_key_ranges=list(ranges), num_locally_computed_tokens=own)
        return request


def manager(kinds=(FULL,), **more):
    extra = {"gpc_name": name, "gpc_weights": "w", "gpc_bytes": (64 + 1100) * 4096, "gpc_stock": 0, "gpc_free_target": -1,
             "gpc_pending_ms": 60000}
    return GPCOffloadingSpec(fake.config(extra, groups=len(kinds), **more)).get_manager()


def link(m, kinds=(FULL,), describes=False):
    return GPCConnector(None, "scheduler", fake.ns(half=Half(m, kinds, describes), kv_cache_groups=list(kinds)))


def settle(m):
    m.finder.asker.settle(60)
    m.publisher.collect(60)
    m.on_schedule_end(None)
    m.c.ticket_wait()


def store(m, text, chunks):
    ctx, keys = fake.prompt(text, chunks)
    out = fake.offer(m, keys, ctx)
    m.complete_store(set(out.keys_to_store), ctx)
    settle(m)
    m.on_request_finished(ctx)
    return keys


class Counted:
    """Calls of an object's method."""

    def __init__(self, of, what):
        self.n, self.of, self.what, self.was = 0, of, what, getattr(of, what)
        setattr(of, what, self)

    def __call__(self, *a, **k):
        self.n += 1
        return self.was(*a, **k)

    def end(self):
        setattr(self.of, self.what, self.was)
        return self.n


def held(c):
    c.ticket_wait()
    return c.stats(c.info().peer).refs


def ask(a, b, text, chunks, more=()):
    """The answers to one question, and to lookups one by one of another engine's request: (ours, vLLM's)."""
    got = []
    for m, once in ((a, True), (b, False)):
        ctx, keys = fake.prompt(text, chunks)
        for i, k in enumerate(more):
            ctx._offload_key_positions[k] = (chunks + i + 1) * 16
        half = m.connector_scheduler if once else Half(m, ())
        got.append(half._maximal_prefix_lookup([*keys, *more], ctx) if once else fake.prefix_lookup(m, [*keys, *more], ctx))
        of = half.manager if once else m
        of.finder.asker.settle(60)
        of.on_schedule_end(None)
        of.on_request_finished(ctx)
        settle(of)
    return got


# ---- one question ----

a = link(manager())
m = a.connector_scheduler.manager
other = manager()
long = store(m, "long", CHUNKS)
short = store(m, "short", SHORT)
nobody = fake.prompt("nobody", 3)[1]
for text, chunks, more, want in (("long", CHUNKS, (), CHUNKS), ("long", CHUNKS, nobody, CHUNKS), ("short", SHORT, nobody, SHORT),
                                 ("nowhere", 3, (), 0), ("short", SHORT, (), SHORT)):
    is_(ask(a, other, text, chunks, more), [want, want], f"{text}, {chunks} chunks and {len(more)} that nobody has: as lookups one by one say")
is_(a.connector_scheduler._maximal_prefix_lookup([], fake.prompt("x", 1)[0]), 0, "of no keys, none")

ctx, keys = fake.prompt("long", CHUNKS)
lookups, acquires = Counted(m, "lookup"), Counted(m.finder, "_prefix")
is_(a.connector_scheduler._maximal_prefix_lookup(keys, ctx), CHUNKS, "all are there")
is_((lookups.end(), acquires.end()), (1, 1), "one question for all of them")
is_(held(m.c), CHUNKS, "which holds them")
whole = bytes(m.finder.keys(keys))
is_((m.finder.keys_of(keys, m._request(ctx)) == whole, m.finder.keys_of(keys[100:300], m._request(ctx)) == whole[1600:4800],
     m.finder.keys_of(keys[7:9], m._request(ctx)) == whole[112:144], m.finder.keys_of(keys[:9], m._request(ctx)) == whole[:144]), (True,) * 4,
    "its keys, in whatever pieces they are asked for")
spec = m.prepare_load(keys, ctx)
is_(([gpc.BLOCK(0, s) for s in spec.block_ids], spec.keys), (m.c.lookup(whole), whole), "a load of all has their slots and keys")
ok(len(pickle.dumps(spec)) < 24 * CHUNKS, "which is few bytes for the workers")
m.on_schedule_end(None)
is_(held(m.c), CHUNKS, "and holds them after the step")
is_(a.connector_scheduler._maximal_prefix_lookup(keys, ctx), CHUNKS, "what is being loaded is there")
again = m.prepare_load(keys[:9], ctx)
is_(again.block_ids, spec.block_ids[:9], "a second load of some of them")
m.later = {}
m.complete_load(set(keys), ctx)
m.on_schedule_end(None)
is_(held(m.c), 9, "which holds these when the first one has ended")
m.complete_load(set(keys[:9]), ctx)
is_((held(m.c), m.loads, m._request(ctx).loading, m._request(ctx).again), (0, set(), {}, {}), "until it has ended")

is_(a.connector_scheduler._maximal_prefix_lookup(keys, ctx), CHUNKS, "asked again")
m.prepare_load(keys[:500], ctx)
m.on_schedule_end(None)
is_(held(m.c), 500, "a load of a part holds that part")
m.complete_load(set(keys[:500]), ctx)
is_(held(m.c), 0, "and no longer than it lasts")
m._request(ctx).failed.add(keys[40])
is_(a.connector_scheduler._maximal_prefix_lookup(keys, ctx), 40, "nothing from a chunk on whose load has failed")
m.on_request_finished(ctx)
m.on_schedule_end(None)
is_(held(m.c), 0, "nothing is held")

ctx, keys = fake.prompt("computed", SHORT)
is_(a.connector_scheduler._maximal_prefix_lookup(keys, ctx), 0, "nobody has it")
m.claim_wanted(ctx)
m.finder.asker.settle(60)
theirs = fake.prompt("computed", SHORT)[0]
b = link(other)
is_(b.connector_scheduler._maximal_prefix_lookup(keys, theirs), None, "somebody computes it: asked again")
other.on_schedule_end(None)
out = fake.offer(m, keys, ctx)
is_(a.connector_scheduler._maximal_prefix_lookup(keys, ctx), None, "our own worker writes it: asked again")
m.complete_store(set(keys), ctx)
settle(m)
is_(b.connector_scheduler._maximal_prefix_lookup(keys, theirs), SHORT, "it is there")
for x, c in ((m, ctx), (other, theirs)):
    x.on_request_finished(c)
    x.on_schedule_end(None)

told = link(other, describes=True)
ctx, keys = fake.prompt("long", CHUNKS)
lookups = Counted(other, "lookup")
is_(told.connector_scheduler._maximal_prefix_lookup(keys, ctx), CHUNKS, "where vLLM's events describe what it finds ...")
is_(lookups.end(), CHUNKS, "it asks for each")
other.on_request_finished(ctx)
other.on_schedule_end(None)

# ---- keys ----


def one_by_one(state, configs):
    """vLLM's update_offload_keys."""
    for config, group in zip(configs, state.group_states):
        while config.hashes_per_chunk * (len(group.offload_keys) + 1) <= len(state.req.block_hashes):
            at = config.hashes_per_chunk * (len(group.offload_keys) + 1) - 1
            group.offload_keys.append(fake.make_offload_key(state.req.block_hashes[at], config.group_idx))
            state.req_context._offload_key_positions[group.offload_keys[-1]] = len(group.offload_keys) * config.tokens_per_chunk


configs = [fake.ns(group_idx=g, hashes_per_chunk=n, tokens_per_chunk=16 * n) for g, n in ((0, 1), (3, 4))]
both = [fake.ns(req=fake.ns(block_hashes=[]), req_context=fake.Context(), group_states=[fake.ns(offload_keys=[]) for _ in configs])
        for _ in range(2)]
for n in (0, 3, 4, 4, 130, 131, 140):
    for state, make in zip(both, (connector.make_keys, one_by_one)):
        state.req.block_hashes += [i.to_bytes(32, "big") for i in range(len(state.req.block_hashes), n)]
        make(state, configs)
    got, want = (([g.offload_keys for g in x.group_states], x.req_context._offload_key_positions) for x in both)
    is_(got, want, f"{n} hashes: the keys and places that vLLM would make")
was, connector.make_offload_key = connector.make_offload_key, lambda h, g: b"other" + h
both[0].req.block_hashes.append(bytes(32))
connector.make_keys(both[0], configs)
is_(len(both[0].group_states[0].offload_keys), 140, "keys of another form are left to vLLM")
connector.make_offload_key = was

# ---- where the tokens came from ----

HOST, NOBODY = fake.CacheHitSource.HOST, fake.CacheHitSource.EXTERNAL_UNSPECIFIED
ctx, keys = fake.prompt("long", CHUNKS)
m._request(ctx)
each = [(16 * i, 16 * i + 16, k) for i, k in enumerate(keys[:SHORT])]
hybrid = link(other, (FULL, WINDOW))
other._request(ctx)
for ranges, own, n, want, what in (
        (each, 0, 16 * SHORT, {HOST: 16 * SHORT}, "all of it is loaded"),
        (each[2:], 32, 16 * SHORT - 32, {HOST: 16 * SHORT - 32}, "its beginning is the engine's"),
        (each[2:], 0, 16 * SHORT, {HOST: 16 * SHORT - 32, NOBODY: 32}, "its beginning is of nobody"),
        (each[:3] + each[4:], 8, 80, {HOST: 64, NOBODY: 16}, "a gap, of two groups"),
        (each[4:] + each, 0, 16 * SHORT, {HOST: 16 * SHORT}, "a window and all of it"),
        (each[4:] + [(0, 90, keys[0])], 16, 80, {HOST: 80}, "a state covers all before it"),
        ([], 0, 32, {NOBODY: 32}, "nothing is loaded"), (each, 0, 0, {}, "no tokens")):
    for which in (hybrid,) if ranges and [x[0] for x in ranges] != [*range(ranges[0][0], 16 * SHORT, 16)] else (a, hybrid):
        request = which.connector_scheduler.request(ctx, ranges, own)
        is_(which.get_external_cache_hit_sources(request, n), want, f"sources of tokens: {what}")
    is_(fake.hit_sources(m, ranges, own, n, ctx), want, "as vLLM says, which asks for each key")
asked = Counted(m, "get_load_source")
a.get_external_cache_hit_sources(a.connector_scheduler.request(ctx, each), 16 * SHORT)
is_(asked.end(), 0, "no key is asked for where all is of RAM")
m._request(ctx).came = {keys[1]: gpc.engines.below.DISK}
is_(a.get_external_cache_hit_sources(a.connector_scheduler.request(ctx, each), 32), fake.hit_sources(m, each, 0, 32, ctx),
    "what came from below is told as vLLM finds it")
m.on_request_finished(ctx)

# ---- what a worker makes of it ----

blocks = fake.blocks(list(range(SHORT)))
spec = fake.ns(block_ids=list(range(5, 5 + SHORT)), keys=whole[:16 * SHORT])
(chunks,) = gpc.vllm.worker.chunks_of(blocks, spec, 1)
is_((list(chunks.slots), [chunks.key(i) for i in range(len(chunks))], [list(chunks.blocks(i)) for i in range(len(chunks))]),
    (spec.block_ids, [whole[16 * i:16 * i + 16] for i in range(SHORT)], [[i] for i in range(SHORT)]), "each chunk has its slot, key and blocks")
is_((chunks.part(2, 4).key(1), list(chunks.part(2, 4).slots)), (whole[48:64], [7, 8]), "and so has one of a part")

m.shutdown()
other.shutdown()
done()
