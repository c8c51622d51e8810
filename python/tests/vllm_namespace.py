# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm and weights that change: a reset begins a namespace, engines meet again by a version file, and the bytes of a LoRA
adapter are in the keys of its requests."""

import os
import tempfile
import threading
import time

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import gpc.vllm.manager  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec, adapters  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = 60
HIT, MISS, PENDING = fake.LookupResult.HIT, fake.LookupResult.MISS, fake.LookupResult.HIT_PENDING
folder = tempfile.TemporaryDirectory()
VERSION = folder.name + "/version"
EXTRA = {"gpc_name": name, "gpc_weights": "w1", "gpc_bytes": (64 + 200) * 4096, "gpc_free_target": -1,
         "gpc_stock": 0, "gpc_pending_ms": 60000, "gpc_keep_tokens": True}
_made.add(name)
engines, requests = [], {}


def manager(config=None, events=False, **more):
    m = GPCOffloadingSpec(config or fake.config({**EXTRA, **more}, enable_kv_cache_events=events)).get_manager()
    m.set_chained({0: True})
    m.prompts.request_of, m.later = requests.get, {}         # as GPCConnector does
    engines.append(m)
    return m


def settle(m):
    fake.settle(m)
    m.publisher.collect(60)
    m.on_schedule_end(None)
    m.c.ticket_wait()


def prompt(text, chunks=3, lora=None):
    """Each one is a request of its own, though its keys are those of its text."""
    ctx, keys = fake.prompt(text, chunks)
    ctx.req_id = f"r{len(requests)}"
    requests[ctx.req_id] = fake.ns(lora_request=lora, cache_salt=None, all_token_ids=list(range(16 * chunks)),
                                   num_computed_tokens=0)
    return ctx, keys


def store(m, text, lora=None):
    ctx, keys = prompt(text, lora=lora)
    out = fake.offer(m, keys, ctx)
    m.complete_store(set(out.keys_to_store), ctx)
    settle(m)
    m.on_request_finished(ctx)
    return len(out.keys_to_store)


def finds(m, text, lora=None):
    ctx, keys = prompt(text, lora=lora)
    got = []
    for k in keys:
        got.append(m.lookup(k, ctx))
        if got[-1] is fake.LookupResult.RETRY:   # in a later step
            fake.settle(m)
            got[-1] = m.lookup(k, ctx)
        if got[-1] is MISS:
            break
    m.on_request_finished(ctx)
    settle(m)
    return HIT in got


def version(text):
    with open(VERSION, "w") as f:
        f.write(text)


# ---- a reset ----

a, b = manager(), manager()
store(a, "one")
is_((finds(a, "one"), finds(b, "one")), (True, True), "two engines of the same files share")
a.reset_cache()
is_((finds(a, "one"), finds(b, "one")), (False, True), "after a reset this one finds nothing of before, others theirs")
store(a, "two")
is_((finds(a, "two"), finds(b, "two")), (True, False), "nobody else finds what it stores from then on")
store(b, "three")
is_(finds(a, "three"), False, "and it finds nothing that others store with the old weights")
a.reset_cache()
is_(finds(a, "two"), False, "another reset, another namespace")
a.shutdown()
a = manager()
is_((finds(a, "one"), finds(a, "two")), (True, False), "a restarted engine has the weights of the files")
t = manager(gpc_reset="tag", gpc_tag=5)
store(t, "tagged")
t.reset_cache()
t.finder.asker.settle(60)
store(t, "poison")
is_((finds(a, "tagged"), finds(a, "poison")), (False, False), "by tag as well: and what comes later is nobody else's")

# ---- under way across a reset ----

ctx, keys = prompt("under way")
out = fake.offer(a, keys, ctx)
is_([a.lookup(k, ctx) for k in keys], [PENDING] * 3, "a store is under way")
claimer = prompt("claimed")
a.lookup(claimer[1][0], claimer[0])
a.claim_wanted(claimer[0])
a.finder.asker.settle(60)
is_(len(a.finder.ahead), 3, "and claims are")
a.reset_cache()
is_((len(a.storing), len(a.finder.ahead)), (0, 0), "a reset: neither is")
a.complete_store(set(keys), ctx)
a.on_reset_flushed()
settle(a)
is_((finds(a, "under way"), finds(b, "under way"), a.c.stats(a.c.info().peer).reserved), (False, False, 0),
    "what was to be stored is nobody's")
ctx, keys = prompt("memo", 1)
a.lookup(keys[0], ctx)
store(b, "memo")
a.reset_cache()
a.on_request_finished(ctx)
b.reset_cache()
store(b, "sent")
out = fake.offer(b, *reversed(prompt("late")))
b.publisher.collect(60)
b.reset_cache()
ok(not finds(b, "sent"), "each reset counts")
b.on_reset_flushed()

# ---- running requests, whose blocks stay as they are ----

states = {}
half = fake.ns(manager=a, config=fake.ns(kv_group_configs=[fake.ns(group_idx=0, sliding_window_size_in_chunks=None)],
                                         blocks_per_chunk=1), _req_status=states)
fake.OffloadingConnector.reset_cache = lambda self: (self.connector_scheduler.manager.reset_cache(), True)[1]
link = GPCConnector(fake.vllm_config(), "scheduler", fake.ns(half=half, kv_cache_groups=[None]))
running, preempted = prompt("running"), prompt("preempted")
for ctx, n in ((running[0], 40), (preempted[0], 0)):
    req = fake.ns(num_computed_tokens=n, lora_request=None, cache_salt=None, all_token_ids=list(range(48)))
    states[ctx.req_id] = fake.ns(req=req, req_context=ctx)
    a.on_new_request(ctx)
is_(link.reset_cache(), True, "vLLM is told that it is done")
is_((fake.offer(a, running[1], running[0]).keys_to_store, a.lookup(running[1][0], running[0])), ([], MISS),
    "one that runs on with blocks of before stores none, and finds none")
out = fake.offer(a, preempted[1], preempted[0])
is_(out.keys_to_store, preempted[1], "one that is computed anew does")
a.complete_store(set(out.keys_to_store), preempted[0])
settle(a)
loader, lk = prompt("preempted")
a.lookup(lk[0], loader)
a.prepare_load(lk[:1], loader)
a.reset_cache()
is_(fake.offer(a, lk, loader).keys_to_store, [], "nor does one whose load was under way")
a.complete_load(set(lk[:1]), loader)
a.on_reset_flushed()
a.prompts.request_of = requests.get

# ---- versions ----

more = {"gpc_version_file": VERSION}
one, two = manager(**more), manager(**more)
store(b2 := manager(), "files")
is_(finds(one, "files"), True, "no file at start: the weights of the files")
version("step 7\n")
one.reset_cache()
two.reset_cache()
store(one, "seven")
is_((finds(two, "seven"), finds(b2, "seven"), finds(two, "files")), (True, False, False), "one content, one namespace")
late = manager(**more)
is_(finds(late, "seven"), True, "which is read at start as well")
version("step 8")
two.reset_cache()
is_((finds(two, "seven"), finds(one, "seven")), (False, True), "and at each reset, not before")
one.reset_cache()
ok("which has not changed" in one.namespace.reset(), "a version that has not changed is told to be the same")
store(two, "eight")
is_((finds(one, "eight"), finds(late, "eight")), (True, False), "together again")
version("step 7")
two.reset_cache()
is_(finds(two, "seven"), True, "back at weights of before, and their KV")
for what in ("  \n", None, "x" * (1 << 21)):
    if what is None:
        os.unlink(VERSION)
    else:
        version(what)
    one.reset_cache()
    two.reset_cache()
    store(one, f"none {what and len(what)}")
    is_((finds(two, f"none {what and len(what)}"), finds(one, "files")), (False, False),
        "empty, missing or too long: each has its own")

# ---- KV that nobody shares ----

_made.update((name + "-z", name + "-m", name + "-w"))
p = [manager(fake.config({**EXTRA, "gpc_name": name + "-z"}, vllm_config=None)) for _ in range(2)]
store(p[0], "plain")
is_((finds(p[0], "plain"), finds(p[1], "plain")), (True, False),
    "without GPCConnector nobody knows the model: nothing is shared")
scales = fake.vllm_config()
scales.cache_config.calculate_kv_scales = True
p = [manager(fake.config({**EXTRA, "gpc_name": name + "-m"}, vllm_config=scales)) for _ in range(2)]
store(p[0], "scales")
is_((finds(p[0], "scales"), finds(p[1], "scales")), (True, False), "nor with scales of the first prompts")

# ---- adapters ----

path = folder.name + "/sql"
os.mkdir(path)


def save(text):
    with open(path + "/adapter_model.safetensors", "w") as f:
        f.write(text)


def lora(number=1, **kw):
    return fake.ns(lora_name="sql", lora_path=kw.pop("path", path), lora_int_id=number, **kw)


a, b = manager(), manager()
save("version 1")
store(a, "adapted", lora())
is_((finds(a, "adapted", lora()), finds(b, "adapted", lora()), finds(b, "adapted")), (True, True, False),
    "an adapter's bytes are in its keys, and another engine that reads them finds them")
save("version 2, longer")
c = manager()
is_(finds(c, "adapted", lora()), False, "saved again: an engine that starts now finds nothing of version 1")
store(c, "adapted 2", lora())
is_((store(b, "unknown", lora()), finds(b, "adapted 2", lora())), (0, False),
    "one that may have either stores and finds nothing for it")
is_(finds(b, "adapted 2", lora(load_inplace=True)), True, "load_inplace: it has the new ones")
is_(finds(b, "adapted 2", lora()), True, "from then on")
is_(finds(b, "adapted 2", lora(number=2)), True, "another number: it is read anew")
ctx, keys = prompt("changes", lora=lora(load_inplace=True))
is_(b.lookup(keys[0], ctx), fake.LookupResult.RETRY, "nobody knows which bytes it has: the question is for a later step")
fake.settle(b)
is_(b.lookup(keys[0], ctx), MISS, "which has the answer")
save("version 3, in the middle of a request")
out = fake.offer(b, keys, ctx)
b.complete_store(set(out.keys_to_store), ctx)
settle(b)
is_((b.c.lookup(b.finder.keys_of(keys, b._request(ctx))), b.counts["refused"], len(b.storing)), ([-1] * 3, 3, 0),
    "a request whose adapter changes stores nothing")
is_(fake.offer(b, prompt("changes", 4)[1][3:], ctx).keys_to_store, [], "from then on")
b.on_request_finished(ctx)
first, keys = prompt("claims", lora=lora(number=6))
b.lookup(keys[0], first)
fake.settle(b)
b.lookup(keys[0], first)
b.claim_wanted(first)
fake.settle(b)
is_(len(b.finder.ahead), 3, "the keys of one version are claimed")
save("version 4")
second, _ = prompt("claims", lora=lora(number=6, load_inplace=True))
out = fake.offer(b, keys, second)
is_(len(b.finder.ahead), 3, "the next version does not store into what that one has claimed")
b.complete_store(set(out.keys_to_store), second)
b.on_request_finished(first)
b.on_request_finished(second)
settle(b)
away = lora(number=9, path="org/no-such-adapter")
store(a, "hub", away)
is_(finds(b, "hub", away), True, "no files that anybody sees: vLLM's names tell")
dtype = manager(fake.config(EXTRA, vllm_config=fake.vllm_config(lora=fake.ns(lora_dtype="float32"))))
store(c3 := manager(), "dtype", lora(number=4))
is_((finds(a := manager(), "dtype", lora(number=4)), finds(dtype, "dtype", lora(number=4)), finds(dtype, "files")),
    (True, False, True), "what adapters are computed in counts for their requests alone")
c3.reset_cache()
is_(finds(c3, "dtype", lora(number=4)), False, "a reset is one for adapters, too")

# ---- an adapter whose files are far away ----

far, gate, state = manager(), threading.Event(), adapters._state
adapters._state = lambda path: (gate.wait(), state(path))[1]
ctx, keys = prompt("far", lora=lora(number=7))
is_((far.lookup(keys[0], ctx), far.lookup(keys[1], ctx)), (fake.LookupResult.RETRY,) * 2, "the scheduler does not wait for them")
far.on_schedule_end(None)
far.later = {}
far.touch(keys, ctx)
is_((far.prepare_store(keys, ctx).keys_to_store, far.take_later()), ([], {ctx.req_id: set(keys)}), "nor does a store, which is offered again")
near, its = prompt("near")
far.lookup(its[0], near)
far.claim_wanted(near)
far.finder.asker.settle(60)
is_(far.prepare_store(its, near).keys_to_store, its, "other requests go on")
far.complete_store(set(its), near)
far.on_request_finished(near)
far.finder.clock = lambda: time.monotonic() + 3600
is_(far.lookup(keys[0], ctx), MISS, "a lookup waits for so long, and then computes")
gate.set()
out = fake.offer(far, keys, ctx)
far.complete_store(set(out.keys_to_store), ctx)
settle(far)
far.on_request_finished(ctx)
is_(finds(far, "far", lora(number=7)), True, "it is stored when they are known")
adapters._state = state
alone = manager()
alone.later = None
ctx, keys = prompt("far", lora=lora(number=8))
soon, gpc.vllm.manager.SOON = gpc.vllm.manager.SOON, 60
is_([alone.lookup(k, ctx) for k in keys], [HIT] * 3, "without GPCConnector, which offers stores again, a question waits a moment")
gpc.vllm.manager.SOON = soon
alone.on_schedule_end(None)
alone.on_request_finished(ctx)

# ---- events ----

e, x = manager(events=True), manager()
list(e.take_events())
store(x, "told")
is_([(len(v.keys), v.removed) for v in e.take_events()], [(3, False)], "what others store is told")
x.reset_cache()
store(x, "not told")
is_(list(e.take_events()), [], "but for what this engine does not find")
e.reset_cache()
told = list(e.take_events())
ok(told and all(v.removed for v in told) and set(fake.prompt("told", 3)[1]) <= {k for v in told for k in v.keys},
   "a reset: all that it could load is gone")
store(e, "mine")
is_([(len(v.keys), v.removed) for v in e.take_events()], [(3, False)], "its own namespace is told")
store(e, "adapter", lora(number=5))
is_([len(v.keys) for v in e.take_events()], [3], "and an adapter that it has seen")
root = {en.digest: en for en in e.c.walk()}[fake.prompt("mine", 1)[1][0][:32]]
is_(e.c.root_get(root.parent), [(3, ("@" + e.namespace.text).encode())], "routers take them for prompts of a salt")

for m in engines:
    m.shutdown()
c = gpc.attach(name, serve=True)
is_(c.check(), 0, "all invariants hold")
c.close()
done()
