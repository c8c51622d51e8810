# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm's manager against the contract of vLLM's interface: two of them share a cache, wait for each other and
die; pins, chains, windows, resets, events, metrics and configuration."""

import inspect
import json
import logging
import os
import signal
import sys
import tempfile
import time

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.engines.weights  # noqa: E402
import gpc.vllm.finder  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingManager, GPCOffloadingSpec, GPCOffloadingWorker  # noqa: E402
from gpc.vllm.config import KEYS, Config, ConfigError  # noqa: E402
from gpc.vllm.name import fingerprint, label, weights_of  # noqa: E402
from tap import _made, done, is_, name, ok, raises  # noqa: E402

gpc.vllm.finder.ASK = 60         # a scheduler does not wait so long for a busy writer, a test does

HIT, MISS, PENDING = fake.LookupResult.HIT, fake.LookupResult.MISS, fake.LookupResult.HIT_PENDING
EXTRA = {"gpc_name": name, "gpc_weights": "w1", "gpc_bytes": (64 + 40) * 4096, "gpc_free_target": -1,
         "gpc_stock": 0, "gpc_pending_ms": 60000}
_made.add(name)


def manager(chained=True, config=None, **more):
    m = GPCOffloadingSpec(config or fake.config({**EXTRA, **more})).get_manager()
    m.set_chained({0: chained})
    return m


def settle(m):
    """The writer has done all that m has asked for."""
    m.finder.asker.settle(60)
    m.publisher.collect(60)
    m.on_schedule_end(None)
    m.c.ticket_wait()


def store(m, ctx, keys):
    out = fake.offer(m, keys, ctx)
    m.complete_store(set(out.keys_to_store), ctx)
    settle(m)
    return out


def answers(m, ctx, keys):
    """As vLLM's prefix lookup asks: it stops at a miss."""
    got = []
    for k in keys:
        got.append(m.lookup(k, ctx))
        if got[-1] is MISS:
            break
    m.finder.asker.settle(60)    # what it claims
    return got


def held(c):
    c.ticket_wait()
    s = c.stats(c.info().peer)
    return s.refs, s.reserved


# ---- the interface ----

for ours, theirs in ((GPCOffloadingManager, fake.OffloadingManager), (GPCOffloadingWorker, fake.OffloadingWorker)):
    for n, f in vars(theirs).items():
        if inspect.isfunction(f):
            want = list(inspect.signature(f).parameters)
            is_(list(inspect.signature(getattr(ours, n)).parameters)[:len(want)], want, f"{ours.__name__}.{n}")
            ok(getattr(ours, n) is not f, "is ours")

# ---- configuration and name ----

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpc/vllm/README.md")) as f:
    page = f.read()
for n, k in KEYS.items():
    value = {True: "true", False: "false"}.get(k.default, k.default) if k.kind is bool else k.default
    ok(f"| `{n}` | {value if value not in ('', None) else ''}".rstrip() in page, f"{n} is on the page")
raises(ConfigError, "gpc_bytes: it is missing, 1 to", lambda: Config({}), "a key that is needed")
for given, bytes_, key in (({"gpc_bytes": 7}, 7, "gpc_bytes"), ({"cpu_bytes_to_use": 8}, 8, "cpu_bytes_to_use"),
                           ({"cpu_bytes_to_use": 8, "gpc_bytes": 7}, 7, "gpc_bytes")):
    is_((Config(given).bytes, Config(given).bytes_key), (bytes_, key), f"{' and '.join(given)}: {key} counts")
raises(ConfigError, "gpc_threads: 65, 1 to 64", lambda: Config({**EXTRA, "gpc_threads": 65}), "a range")
raises(ConfigError, "gpc_threads: '2 k', a number", lambda: Config({**EXTRA, "gpc_threads": "2 k"}), "a kind")
raises(ConfigError, "gpc_threads: True", lambda: Config({**EXTRA, "gpc_threads": True}), "a bool is no number")
raises(ConfigError, "refuse, tag", lambda: Config({**EXTRA, "gpc_reset": "all"}), "one of some values")
raises(ConfigError, "gpc_thread: there is no such key", lambda: Config({**EXTRA, "gpc_thread": 2}), "a typing error")
raises(ConfigError, "canonical_layout", lambda: Config({**EXTRA, "canonical_layout": True}), "a layout of vLLM's own")
raises(ConfigError, "at least 266240 are wanted", lambda: manager(gpc_name=name + "-d", gpc_bytes=4096),
       "too little memory")
# vLLM asks the class before it loads a model
is_((GPCConnector.requires_piecewise_for_cudagraph(EXTRA), GPCConnector.get_required_kvcache_layout(
    fake.ns(kv_transfer_config=fake.ns(kv_connector_extra_config=EXTRA)))), (False, "LBHNC"), "what vLLM asks for early")
raises(ConfigError, "gpc_thread: there is no such key",
       lambda: GPCConnector.requires_piecewise_for_cudagraph({**EXTRA, "gpc_thread": 2}), "an error then, 0.32 on a GPU")
raises(ConfigError, "gpc_bytes: it is missing", lambda: GPCConnector.get_required_kvcache_layout(
    fake.ns(kv_transfer_config=fake.ns(kv_connector_extra_config={}))), "or with the layout")
is_(label("/models/Llama-3.1-8B/", 1234567), "vllm Llama-3.1-8B 1234567", "an engine's label: model and process")
is_(label("org/" + "\u00e9" * 40, 77), "vllm " + "\u00e9" * 11 + " 77", "31 bytes of it")
is_(Config({"gpc_bytes": 1e9}).bytes, 10 ** 9, "a number in exponent form")
is_({k for k in KEYS if k.startswith("gpc_")} - set(dir(gpc)), {k for k in KEYS if k.startswith("gpc_")}, "prefix")
prints = set()
for change in ({}, {"world": 2}, {"blocks_per_chunk": 2}, {"kv_cache_layout": "HND"}, {"groups": 2},
               {"model": fake.ns(name="model", dtype="float8")}):
    prints.add(fingerprint(fake.config({}, **change), "w", 1024, 1))
prints.add(fingerprint(fake.config({}), "other", 1024, 1))
prints.add(fingerprint(fake.config({}), "w", 2048, 1))
is_(len(prints), 8, "each change of meaning is another fingerprint")
is_(fingerprint(fake.config({}, model=fake.ns(name="moved", dtype="bfloat16")), "w", 1024, 1) in prints, True,
    "the model's name is none")
with tempfile.TemporaryDirectory() as d:
    raises(ConfigError, "gpc_weights", lambda: weights_of(d), "a folder without weights")
    with open(d + "/a.safetensors", "wb") as f:
        f.write(bytes(3 << 20))
    one = weights_of(d)
    is_(weights_of(d), one, "weights have a name")
    with open(d + "/a.safetensors", "r+b") as f:
        f.seek((3 << 20) - 5)
        f.write(b"x")
    ok(weights_of(d) != one, "other bytes, another one")
    is_(weights_of(d, "v2"), "given v2", "or what is given")
with tempfile.TemporaryDirectory() as d:
    # as a file beyond what is read whole: a tensor of 1 KB among large ones
    gpc.engines.weights.WHOLE = 1 << 20
    head = json.dumps({"big": {"data_offsets": [0, 8 << 20]}, "small": {"data_offsets": [8 << 20, (8 << 20) + 1024]},
                       "none": {"data_offsets": [0, 0]}, "__metadata__": {"format": "pt"}}).encode()
    with open(d + "/a.safetensors", "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + bytes((8 << 20) + 1024))
    prints = {weights_of(d)}
    for at in (len(head) + 8 + (8 << 20), len(head) + 8 + (8 << 20) + 512, len(head) + 8 + (8 << 20) + 1023,
               len(head) + 8, len(head) + 8 + (4 << 20), 12):
        with open(d + "/a.safetensors", "r+b") as f:
            f.seek(at)
            was = f.read(1)
            f.seek(at)
            f.write(bytes([was[0] ^ 1]))
        prints.add(weights_of(d))
    is_(len(prints), 7, "a large file: the ends and the middle of each tensor count, and the header")
    with open(d + "/a.safetensors", "r+b") as f:
        f.write((1 << 60).to_bytes(8, "little"))
    ok(weights_of(d) not in prints, "a header that cannot be is no obstacle")

# ---- engines that start at once ----

_made.add(name + "-w")
crew = []
for i in range(4):
    pid = os.fork()
    if not pid:
        # of different sizes: the first one's counts
        m = manager(gpc_name=name + "-w", gpc_bytes=(64 + 100 + i) * 4096)
        os._exit(0 if m.c.pool_get(0).blocks >= 100 and m.c.info().pools == 1 else 1)
    crew.append(pid)
is_([os.waitpid(pid, 0)[1] for pid in crew], [0] * 4, "four engines that start at once have one cache")

# ---- store, hit, pins ----

a = manager()
is_(a.c.pool_get(0).blocks, 40, "the first manager makes the cache")
ctx, keys = fake.prompt("one", 6)
a.on_new_request(ctx)
is_(answers(a, ctx, keys), [MISS], "nothing is there")
is_(a.c.stats().claims, 6, "what is to be computed is claimed")
out = fake.offer(a, keys, ctx)
is_((out.keys_to_store, len(set(out.store_spec.block_ids)), out.evicted_keys), (keys, 6, []), "all are to be stored")
is_(a.lookup(keys[0], ctx), PENDING, "a store under way")
is_(fake.offer(a, keys, ctx).keys_to_store, [], "is not begun twice")
a.complete_store(set(keys), ctx)
settle(a)
a.on_request_finished(ctx)
is_(held(a.c), (0, 0), "published, and nothing is held")
entries = {e.digest: e for e in a.c.walk()}
is_([entries[k[:32]].depth for k in keys], [1, 2, 3, 4, 5, 6] if entries[keys[0][:32]].depth else list(range(6)),
    "chained in the order of the prompt")

b = manager()
ctx2, _ = fake.prompt("one", 6)
more = keys + fake.prompt("more", 1)[1]
ctx2._offload_key_positions[more[-1]] = 7 * 16
is_(answers(b, ctx2, more), [HIT] * 6 + [MISS], "another manager finds it")
is_(held(b.c), (6, 1), "hits are pinned, the next one is claimed")
slots = b.prepare_load(keys[:4], ctx2)
is_([gpc.BLOCK(0, s) for s in slots.block_ids], a.c.lookup(a.finder.keys(keys[:4])), "the slots of these blocks")
b.on_schedule_end(None)
is_(held(b.c), (4, 1), "at the end of the step only what is to be loaded is")
b.prepare_load(keys[4:5], ctx2)
is_(held(b.c), (5, 1), "a load of what is there, without a lookup in this step: pinned now")
b.complete_load({keys[4]}, ctx2)
is_(a.c.evict(0, 6, timeout=100) and a.c.lookup(a.finder.keys(keys[:4])).count(-1), 0, "and cannot be evicted")
raises(KeyError, "no lookup", lambda: b.prepare_load(more[-1:], ctx2), "a load of what is not there")
b.complete_load(set(keys[:4]), ctx2)
is_(held(b.c), (0, 1), "loaded: released")
b.on_request_finished(ctx2)
is_(held(b.c), (0, 0), "the claim ends with its request")

# ---- vLLM has no blocks for a request yet: it claims nothing, and nobody waits for it ----

def queued(what, *ends):
    """A request of b that asks once: its keys, and then keys that end inside a chunk, as vLLM asks for some models."""
    ctx, keys = fake.prompt(what, 4)
    b.on_new_request(ctx)
    b.ask_again(ctx)
    answers(b, ctx, keys)
    for at, k in enumerate(ends):
        ctx._offload_key_positions[k] = 8 + 16 * at
        b.lookup(k, ctx)
    settle(b)
    return ctx, keys


b.later = {}                                                     # GPCConnector tells when it has them
ctx, keys = queued("queued")
for _ in range(3):
    b.on_schedule_end(None)
    b.ask_again(ctx)
    answers(b, ctx, keys)
    settle(b)
is_(held(b.c), (0, 0), "a request that waits for room asks in each step, and claims nothing")
ctx2, _ = fake.prompt("queued", 4)
is_(answers(a, ctx2, keys), [MISS], "and another engine does not wait for it")
a.on_request_finished(ctx2)
settle(a)                        # its own claim has ended
b.ask_again(ctx)
answers(b, ctx, keys)
b.claim_wanted(ctx)
settle(b)
is_(b.c.stats(b.c.info().peer).claims, 4, "when it has room, it claims what it computes")
b.on_request_finished(ctx)
is_(held(b.c), (0, 0), "until it ends")
ctx, keys = queued("asked again")
b.on_schedule_end(None)
b.ask_again(ctx)
b.claim_wanted(ctx)
settle(b)
is_(held(b.c), (0, 0), "a question that was followed by another one claims nothing")
b.on_request_finished(ctx)
ctx, keys = queued("ended")
b.on_request_finished(ctx)
b.claim_wanted(ctx)
settle(b)
is_(held(b.c), (0, 0), "nor does one of a request that has ended")
ctx, keys = queued("partial", *(bytes([i]) * 32 + bytes(4) for i in (1, 2)))
b.claim_wanted(ctx)
settle(b)
is_(sorted(b.finder.ahead), sorted(keys), "vLLM asks for ends inside a chunk as well: its chunks are claimed, and no ends")
b.on_request_finished(ctx)
b.groups[1] = True                                               # a second group of full attention
ctx, keys = fake.prompt("two groups", 4)
both = keys + [k[:-4] + (1).to_bytes(4, "big") for k in keys]
for at, k in enumerate(both[4:]):
    ctx._offload_key_positions[k] = 16 * (at + 1)
b.on_new_request(ctx)
b.ask_again(ctx)
b.lookup(both[0], ctx)
b.lookup(both[4], ctx)
b.claim_wanted(ctx)
settle(b)
is_(sorted(b.finder.ahead), sorted(both), "each group claims its chunks")
b.on_request_finished(ctx)
del b.groups[1]
is_(held(b.c), (0, 0), "and gives them back")
b.later = None

# ---- pending elsewhere ----

ctx, keys = fake.prompt("two", 4)
is_(answers(a, ctx, keys), [MISS], "a computes")
ctxb, _ = fake.prompt("two", 4)
is_(answers(b, ctxb, keys), [PENDING] * 4, "b is told to wait")
is_(held(b.c), (0, 0), "and holds nothing")
b.on_schedule_end(None)
is_(answers(b, ctxb, keys), [PENDING] * 4, "in the next step too")
b.on_schedule_end(None)
is_(fake.offer(b, keys, fake.prompt("two", 4)[0]).keys_to_store, [], "b does not store what a computes")
store(a, ctx, keys[:2])
is_(answers(b, ctxb, keys), [HIT, HIT, PENDING, PENDING], "what is there is a hit")
b.on_schedule_end(None)
b.finder.clock = lambda: time.monotonic() + 3600
is_(answers(b, ctxb, keys), [HIT, HIT, MISS], "at its deadline b computes")
is_(b.counts["gave_up"], 1, "which is counted")
b.on_schedule_end(None)
is_(fake.offer(b, keys[2:], ctxb).keys_to_store, keys[2:], "and stores")
b.complete_store(set(keys[2:]), ctxb)
settle(b)
del b.finder.clock
b.finder.clock = time.monotonic
out = fake.offer(a, keys[2:], ctx)
is_(out.keys_to_store, [], "a finds that it is there")
a.on_request_finished(ctx)
b.on_request_finished(ctxb)
settle(a)
is_((held(a.c), held(b.c)), ((0, 0), (0, 0)), "nothing is held")

ctx, keys = fake.prompt("three", 3)
answers(a, ctx, keys)
ctxb, _ = fake.prompt("three", 3)
is_(answers(b, ctxb, keys), [PENDING] * 3, "pending again")
b.on_schedule_end(None)
a.on_request_finished(ctx)
settle(a)
is_(answers(b, ctxb, keys), [MISS], "whose claim ends without a store: the other one computes")
b.on_schedule_end(None)
b.on_request_finished(ctxb)
settle(b)

ctx, keys = fake.prompt("both", 3)
out = fake.offer(a, keys, ctx)
ctxb, _ = fake.prompt("both", 3)
b._request(ctxb).gave_up = True
is_(store(b, ctxb, keys).keys_to_store, keys, "whoever has waited enough stores what another one is storing")
a.complete_store(set(keys), ctx)
settle(a)
is_((a.counts["duplicate"], held(a.c), held(b.c)), (3, (0, 0), (0, 0)),
    "the second one to publish gives its slots back")
is_(a.c.lookup(a.finder.keys(keys)).count(-1), 0, "and finds the first one's")

# ---- a store that fails, and one without room ----

ctx, keys = fake.prompt("four", 3)
out = fake.offer(a, keys, ctx)
a.complete_store(set(keys), ctx, success=False)
is_((held(a.c), a.c.lookup(a.finder.keys(keys))), ((0, 0), [-1] * 3), "failed: given back, not findable")
settle(a)
settle(b)
ctx, keys = fake.prompt("five", 50)
out = fake.offer(a, keys, ctx)
is_(out.keys_to_store, keys[:40], "little room: the first chunks of the prompt")
ctxb, other = fake.prompt("six", 2)
is_(fake.offer(b, other, ctxb).keys_to_store, [], "no room: none")
is_(answers(b, ctxb, other), [MISS], "and a lookup is a miss")
a.complete_store(set(out.keys_to_store), ctx, success=False)
a.on_request_finished(ctx)
b.on_request_finished(ctxb)
settle(a)
settle(b)
is_((a.counts["no_room"], b.counts["no_room"]), (10, 2), "which is counted when their requests end")

# ---- groups ----

two = fake.config({**EXTRA, "gpc_name": name + "-m"}, groups=2)
_made.add(name + "-m")
m = GPCOffloadingSpec(two).get_manager()
groups = [fake.ns(group_idx=0, sliding_window_size_in_chunks=None),
          fake.ns(group_idx=1, sliding_window_size_in_chunks=2)]
half = fake.ns(manager=m, config=fake.ns(kv_group_configs=groups, blocks_per_chunk=4), _req_status={})
link = GPCConnector(None, "scheduler", fake.ns(half=half, kv_cache_groups=groups))
is_(m.groups, {0: True, 1: False}, "the connector tells which groups are chained")
ctx, keys = fake.prompt("hybrid", 5, groups=(0, 1))
store(m, ctx, keys[0] + keys[1][2:4])
entries = {(e.group, e.digest): e for e in m.c.walk()}
ok(all(entries[1, k[:32]].parent == bytes(16) for k in keys[1][2:4]), "a window group is flat")
ok(all(entries[0, k[:32]].parent != bytes(16) for k in keys[0][1:]), "full attention is chained")
is_([m.lookup(k, ctx) for k in reversed(keys[1])], [MISS, HIT, HIT, MISS, MISS], "its keys are looked up one by one")
is_(m.c.stats().claims, 0, "nobody waits for them")
m.on_schedule_end(None)
is_(held(m.c), (0, 0), "their pins end with the step")
m.shutdown()

# ---- after a failed load ----


def stored_from(requests=(), blocks=(), under_way=True):
    """From which chunk of each group on vLLM stores, of a request that found 5 chunks."""
    state = fake.ns(group_states=[fake.ns(next_stored_chunk_idx=5) for _ in groups], transfer_jobs={1},
                    req_context=fake.Context())
    half._req_status["r"] = state
    found = fake.ns(get_block_ids=lambda: ([10 + i for i in range(20)], [0] * 12 + [40 + i for i in range(8)]))
    link.update_state_after_alloc(fake.ns(request_id="r"), found, 320)
    link.update_connector_output(fake.ns(failed_recving=set(), invalid_block_ids=set()))
    if not under_way:
        state.transfer_jobs.clear()
        link.update_connector_output(fake.ns(failed_recving=set(), invalid_block_ids=set()))
    link.update_connector_output(fake.ns(failed_recving=set(requests), invalid_block_ids=set(blocks)))
    return [g.next_stored_chunk_idx for g in state.group_states]


is_(stored_from(), [5, 5], "what was found is not stored again")
is_(stored_from(blocks=(19, 99)), [2, 5], "what is computed for a bad block, and what follows it, is")
is_(stored_from(blocks=(40,)), [5, 3], "in its group")
is_(stored_from(requests=("r",)), [0, 0], "and all of a request that looks again")
is_(stored_from(blocks=(19,), under_way=False), [5, 5], "a later load has other blocks")

# ---- a stock, and a writer that answers late ----

small = {"gpc_name": name + "-k", "gpc_stock": 64}
_made.add(name + "-k")
k = [manager(**small), manager(**small)]
for i, x in enumerate(k):
    ctx, keys = fake.prompt(f"stock {i}", 10)
    store(x, ctx, keys)
    x.on_request_finished(ctx)
is_(k[0].c.stats().live, 20, "stocks of 64 leave a small cache its slots")
is_([answers(k[1 - i], *fake.prompt(f"stock {i}", 10)) for i in range(2)], [[HIT] * 10] * 2, "for all")
for x in k:
    x.shutdown()

r, w = os.pipe()
late = {**EXTRA, "gpc_name": name + "-l"}
_made.add(name + "-l")
pid = os.fork()
if pid == 0:
    os.dup2(w, 1)
    os.execv(sys.executable, [sys.executable, "-c", f"""
import signal
import vllm_fake as fake
fake.install()
from gpc.vllm import GPCOffloadingSpec
m = GPCOffloadingSpec(fake.config({late!r})).get_manager()
print("ready", flush=True)
signal.pause()
"""])
os.close(w)
os.fdopen(r).readline()
m = manager(gpc_name=name + "-l", gpc_serve=False)
ctx, keys = fake.prompt("late", 4)
os.kill(pid, signal.SIGSTOP)
os.waitpid(pid, os.WUNTRACED)    # until it has stopped
is_([m.lookup(k, ctx) for k in keys], [MISS] * 4, "the writer does not answer, and a lookup does not wait for it")
is_([m.prepare_store(keys, ctx) for _ in range(3)], [None] * 3, "nor does a store")
m.on_schedule_end(None)
is_(m.finder.asker.under_way, 1, "the question is asked once")
os.kill(pid, signal.SIGCONT)
is_(fake.offer(m, keys, ctx).keys_to_store, keys, "a later step has the answer")
m.complete_store(set(keys), ctx)
settle(m)
m.shutdown()
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)

# ---- kv_load_tiers of a request ----

ctx, keys = fake.prompt("tiers", 3)
store(a, ctx, keys)
CPU, STORAGE, LOCAL, REMOTE = fake.Medium.CPU, fake.Medium.STORAGE, fake.Locality.LOCAL, fake.Locality.REMOTE
was = dict(a.counts)
for matchers, found in (([(None, None)], HIT), ([(CPU, None)], HIT), ([(CPU, LOCAL)], HIT), ([(STORAGE, None), (None, LOCAL)], HIT),
                        ([], MISS), ([(STORAGE, None)], MISS), ([(CPU, REMOTE)], MISS)):
    ctx, keys = fake.prompt("tiers", 3)
    ctx.load_tier_filter = fake.TierFilter(tuple(fake.TierMatcher(*m) for m in matchers))
    is_(a.lookup(keys[0], ctx), found, f"a request that wants {matchers} of the tiers")
    a.on_request_finished(ctx)
    a.on_schedule_end(None)
ctx, keys = fake.prompt("tiers, new", 3)
ctx.load_tier_filter = fake.TierFilter()
is_(a.lookup(keys[0], ctx), MISS, "one that wants none")
out = fake.offer(a, keys, ctx)
is_((out.keys_to_store, a.lookup(keys[0], ctx)), (keys, MISS), "stores all the same, and does not wait for that")
a.complete_store(set(keys), ctx, success=False)
is_({n: c - was[n] for n, c in a.counts.items() if c != was[n]}, {"lookups": 12, "hits": 12, "hits_ram": 12, "failed": 3}, "nor is it a question")

# ---- reset ----

ctx, keys = fake.prompt("seven", 3)
store(a, ctx, keys)
answers(a, ctx, keys)
slots = a.prepare_load(keys[:1], ctx)
ctx8, keys8 = fake.prompt("eight", 2)
fake.offer(a, keys8, ctx8)
answers(a, *fake.prompt("eight b", 2))
old = a.finder.keys(keys)
a.reset_cache()
is_(a.c.lookup(old).count(-1), 0, "the others' cache is as it was")
is_(a.c.lookup(a.finder.keys(keys)), [-1] * 3, "and this engine has other keys")
is_(held(a.c), (1, 2), "transfers that vLLM has forgotten keep their blocks ...")
tells, a.api.tells_flushed = a.api.tells_flushed, False
a.complete_store(set(store(a, *fake.prompt("nine", 1)).keys_to_store), ctx)
is_(held(a.c), (0, 0), "... until a later one is complete")
fake.offer(a, fake.prompt("ten", 2)[1], fake.prompt("ten", 2)[0])
a.reset_cache()
a.api.tells_flushed = True
ctx11, keys11 = fake.prompt("eleven", 1)
a.complete_store(set(fake.offer(a, keys11, ctx11).keys_to_store), ctx11, success=False)
is_(held(a.c), (0, 2), "with vLLM 0.33 not so: an expedited load may have gone before them")
a.on_reset_flushed()
is_(held(a.c), (0, 0), "it says when the workers have ended them")
a.api.tells_flushed = tells
t = manager(gpc_tag=5, gpc_reset="tag")
ctx, mine = fake.prompt("tagged", 2)
store(t, ctx, mine)
tagged = t.finder.keys(mine)
t.reset_cache()
t.finder.asker.settle(60)
is_((t.c.lookup(tagged), t.c.lookup(old).count(-1)), ([-1, -1], 0), "by tag: only what has it is forgotten")
t.shutdown()

# ---- events and metrics ----

conf = fake.config(EXTRA, enable_kv_cache_events=True)
e = manager(config=conf)
a.shutdown()
counted, a = a.counts, manager()          # in the namespace of its files again
a.counts.update(counted)
first = list(e.take_events())
ok(set(keys) <= {k for x in first for k in x.keys} and not any(x.removed for x in first), "what is there at first")
ctx, more = fake.prompt("events", 2)
store(a, ctx, more)
is_([(set(x.keys), x.removed, x.medium) for x in e.take_events()], [(set(more), False, fake.Medium.CPU)],
    "what another one stores")
a.c.drop(a.c.lookup(a.finder.keys(more[1:])))
is_([(x.keys, x.removed) for x in e.take_events()], [(more[1:], True)], "and what goes")

told = "metadata_only" in getattr(fake.OffloadingEvent, "__dataclass_fields__", ())      # 0.33
claimed = [fake.prompt(f"claimed {i}", 1) for i in range(4)]
waits = [fake.prompt(f"claimed {i}", 1)[0] for i in range(4)]
for i, (c, _) in enumerate(claimed):
    c.req_id, waits[i].req_id = f"a{i}", f"e{i}"
mine = [a.lookup(k[0], c) for c, k in claimed]
settle(a)                                 # its claims are answered
is_(mine + [e.lookup(k[0], w) for (_, k), w in zip(claimed, waits)],
    [MISS] * 4 + [fake.LookupResult.HIT_PENDING] * 4, "an engine claims four keys, and another one waits")
is_(list(e.take_events()), [], "which is no event")
store(a, *claimed[0])
store(a, *claimed[1])
a.on_request_finished(claimed[2][0])
a.on_request_finished(claimed[3][0])
settle(a)
settle(e)
is_([e.lookup(claimed[i][1][0], waits[i]) for i in (0, 2)], [fake.LookupResult.HIT, MISS],
    "it stores two, and gives up two: two answers")
for w in (waits[1], waits[3]):
    e.on_request_finished(w)
noted = [(x.keys, x.removed) for x in e.take_events() if getattr(x, "metadata_only", False)]
is_(noted, [([claimed[2][1][0], claimed[3][1][0]], True)] if told else [],
    "vLLM is told of those that are nowhere: its notes of them end")
is_(list(e.take_events()), [], "once")
e.lookup(claimed[2][1][0], waits[2])
e.on_request_finished(waits[2])
e.on_request_finished(waits[0])
is_((e.pending.waiting, e.pending.left), ({}, []), "and nothing of it is kept")
is_(e.config_info(), [dict(zip(GPCOffloadingSpec.config_info_keys({}), (
    name, 40, 1024, e.conf.claim_chunks, e.conf.checksum)))], "facts of the cache, for vLLM's page")
settle(a)
settle(e)
stats = a.get_stats()
is_((stats.counters["vllm:kv_offload_gpc_stored"], stats.gauges["vllm:kv_offload_gpc_storing"]), (19, 0), "counts")
is_(stats.gauges["vllm:kv_offload_gpc_available"], 40, "all slots could be had")
is_(a.get_stats(), None, "since the last call, and nothing where nothing has changed")
is_(set(stats.counters) | set(stats.gauges) <= set(GPCOffloadingSpec.build_metric_definitions({})), True,
    "each is defined")
e.shutdown()

# ---- how much RAM ----

said = []
keep = logging.Handler()
keep.emit = lambda record: said.append(record.getMessage())
logging.getLogger("vllm.gpc").addHandler(keep)
_made.add(name + "-z")
for more in ({"gpc_bytes": 64 << 20}, {"cpu_bytes_to_use": 128 << 20}, {"gpc_bytes": 64 << 20, "cpu_bytes_to_use": 128 << 20}):
    size = {k: v for k, v in EXTRA.items() if k != "gpc_bytes"}
    manager(config=fake.config({**size, "gpc_name": name + "-z", **more})).shutdown()
said = [text for text in said if "in vLLM" in text]
is_(len(said), 1, "vLLM's key alone: one warning")
ok("cpu_bytes_to_use: 128 MiB" in said[0] and f"{name}-z has 64 MiB" in said[0] and "gpc_bytes is the key" in said[0],
   "of what is asked for, what there is, and which key says what it means")
logging.getLogger("vllm.gpc").removeHandler(keep)

# ---- identity ----

raises(gpc.Error, "differs: weights is given w2 here and given w1 there", lambda: manager(gpc_weights="w2"), "a cache of that name with other weights")
_made.add(name + "-f")
with gpc.create(name + "-f", block_tokens=16, ram_blocks=64):
    raises(gpc.Error, f"gpc_name: {name}-f has no fingerprint, as gpcd makes", lambda: manager(config=fake.config({**EXTRA, "gpc_name": name + "-f"})),
           "a cache of that name without any")

# ---- death in the middle of a store ----

ctx, keys = fake.prompt("dies", 4)
r, w = os.pipe()
a.shutdown()
is_(a.c.closed, True, "shut down ...")
a.shutdown()
ok(True, "... twice")
pid = os.fork()
if pid == 0:
    os.close(r)
    os.dup2(w, 1)
    os.execv(sys.executable, [sys.executable, "-c", f"""
import signal
import vllm_fake as fake
fake.install()
from gpc.vllm import GPCOffloadingSpec
m = GPCOffloadingSpec(fake.config({EXTRA!r})).get_manager()
m.set_chained({{0: True}})
ctx, keys = fake.prompt("dies", 4)
m.lookup(keys[0], ctx)
fake.offer(m, keys[:2], ctx)
print("ready", flush=True)
signal.pause()
"""])
os.close(w)
is_(os.fdopen(r).readline(), "ready\n", "another process is in the middle of a store")
ctx, _ = fake.prompt("dies", 4)
is_(answers(b, ctx, keys), [PENDING] * 4, "its keys are pending")
b.on_schedule_end(None)
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
end = time.monotonic() + 60
while (got := answers(b, ctx, keys)) == [PENDING] * 4 and time.monotonic() < end:
    b.on_schedule_end(None)
is_(got, [MISS], "it is killed: who waited computes")
b.on_schedule_end(None)
is_(store(b, ctx, keys).keys_to_store, keys, "and stores")
b.on_request_finished(ctx)
is_(b.c.check(), 0, "all invariants hold")
is_(held(b.c), (0, 0), "nothing is held")
b.shutdown()
done()
