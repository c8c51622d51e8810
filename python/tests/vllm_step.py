# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm's manager and the writer: a step of the scheduler waits for nobody.  What is in stock serves it at once; what is
not is asked for by a thread, and comes in a later step, or goes back where nobody wants it any more."""

import os
import signal
import sys
import tempfile
import threading
import time

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.vllm.asker  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import gpc.vllm.manager  # noqa: E402
import gpc.vllm.spec  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec  # noqa: E402
from gpc.vllm.asker import Asker  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = gpc.vllm.manager.ASK = 60
HIT, MISS, PENDING = fake.LookupResult.HIT, fake.LookupResult.MISS, fake.LookupResult.HIT_PENDING
EXTRA = {"gpc_name": name, "gpc_weights": "w", "gpc_bytes": (64 + 4096) * 4096, "gpc_free_target": -1, "gpc_stock": 32,
         "gpc_pending_ms": 60000, "gpc_max_peers": 5}
_made.add(name)


def manager(**more):
    m = GPCOffloadingSpec(fake.config({**EXTRA, **more})).get_manager()
    m.set_chained({0: True})
    return m


def lookup(m, ctx, keys):
    got = []
    for k in keys:
        got.append(m.lookup(k, ctx))
        if got[-1] is MISS:
            break
    return got


def fill_stock(m):
    """It is refilled behind a use."""
    while True:
        try:
            m.c.release(m.c.reserve(0, 16, flags=gpc.IN_HAND, timeout=0))
            m.c.ticket_wait()
            return
        except gpc.Again:
            m.c.ticket_wait()


# the writer is another process, so that it can be stopped
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.dup2(w, 1)
    os.execv(sys.executable, [sys.executable, "-c", f"""
import signal
import vllm_fake as fake
fake.install()
from gpc.vllm import GPCConnector, GPCOffloadingSpec
m = GPCOffloadingSpec(fake.config({EXTRA!r})).get_manager()
print("ready", flush=True)
signal.pause()
"""])
os.close(w)
os.fdopen(r).readline()
a, b = manager(gpc_serve=False), manager(gpc_serve=False)


def stop():
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)


def go():
    os.kill(pid, signal.SIGCONT)


def idle(m):
    """An engine whose requests have ended steps until nothing is left to do, and then sleeps until the next one comes."""
    while m.has_pending_work():
        m.on_schedule_end(None)
        time.sleep(0.001)


# ---- a request ends before its questions have answers: nobody is to wait for what it had claimed ----

fill_stock(a)
gate = threading.Event()
a.finder.asker.ask(gate.wait)
ctx, keys = fake.prompt("ends before", 8)
is_((lookup(a, ctx, keys), len(a.finder.ahead)), ([MISS], 8), "a prompt has blocks of the stock, whose claim is behind another question")
a.on_schedule_end(None)
block = a.finder.ahead[keys[0]][1]
a.on_request_finished(ctx)
again = []
while block not in again:
    again += a.c.reserve(0, 64, flags=gpc.PARTIAL, timeout=60)
gate.set()
a.finder.asker.settle(60)
is_(lookup(b, fake.prompt("ends before", 8)[0], keys), [MISS],
    "when the claim's turn comes the request has ended, and its blocks are another one's: nobody waits for its keys")
a.c.release(again)
b.finder.asker.settle(60)
b.finder.drop_ahead()
b.on_schedule_end(None)

c = manager(gpc_serve=False, gpc_stock=0)
stop()
ctx, keys = fake.prompt("ends early", 8)
is_((lookup(c, ctx, keys), len(c.finder.asked)), ([MISS], 8), "without a stock the writer, which is stopped, is asked")
c.on_schedule_end(None)
c.on_request_finished(ctx)
ok(c.has_pending_work(), "its request ends, and vLLM goes on stepping")
go()
idle(c)
while c.finder.asker.under_way > len(c.finder.asker.answers):
    time.sleep(0.001)
is_((c.finder.asker.under_way, len(c.finder.asked)), (0, 0), "until all answers have come")
c.c.ticket_wait()                # it has given back the blocks; the writer takes each handle's ring when it likes
is_(lookup(b, fake.prompt("ends early", 8)[0], keys), [MISS], "nobody is told to wait for the engine that sleeps now")
b.finder.asker.settle(60)
b.finder.drop_ahead()
b.on_schedule_end(None)

gate, reserved = threading.Event(), []
c.finder.asker.ask(gate.wait)
ctx, keys = fake.prompt("ends before", 8)
lookup(c, ctx, keys)
c.on_schedule_end(None)
c.on_request_finished(ctx)
c.finder._reserve = lambda *a: reserved.append(a) or gpc.vllm.finder.Finder._reserve(c.finder, *a)
gate.set()
idle(c)
is_((reserved, c.finder.asked), ([], {}), "a question that has not begun when its request ends is none")
c.shutdown()

# ---- out of the stock ----

fill_stock(a)
stop()
ctx, keys = fake.prompt("stocked", 10)
is_(lookup(a, ctx, keys), [MISS], "beside a stopped writer a lookup is answered")
out = a.prepare_store(keys, ctx)
is_((out.keys_to_store, len(set(out.store_spec.block_ids))), (keys, 10), "and the same step stores it, out of the stock")
a.complete_store(set(keys), ctx)
a.on_schedule_end(None)
a.on_request_finished(ctx)
flat, more = fake.prompt("flat", 10)
is_(a.prepare_store(more, flat).keys_to_store, more, "a store without a lookup as well")
a.complete_store(set(more), flat, success=False)

# ---- more than the stock ----

ctx, keys = fake.prompt("long", 100)
is_(lookup(a, ctx, keys), [MISS], "a long prompt is answered")
n = len(a.finder.ahead)
ok(0 < n < 100 and len(a.finder.asked) == 100 - n, f"{n} of its chunks have blocks, the others are asked for")
settle, waits = a.finder.asker.settle, []
a.finder.asker.settle = lambda timeout: (waits.append(timeout), settle(timeout))
is_([a.prepare_store(keys, ctx) for _ in range(3)], [None] * 3, "a store of all has to come again")
is_(waits, [gpc.vllm.manager.SOON], "without GPCConnector it has waited a moment, once")
a.finder.asker.settle = settle
is_(a.prepare_store(keys[:n], ctx).keys_to_store, keys[:n], "one of those that have blocks is begun")
a.on_schedule_end(None)
is_(a.prepare_store(keys[n:], ctx), None, "the others wait for the writer")
gone, its = fake.prompt("gone", 50)
lookup(a, gone, its)
a.on_request_finished(gone)
go()
a.finder.asker.settle(60)
is_([a.finder.is_ahead(k, a._request(ctx)) for k in keys[n:]], [True] * (100 - n), "it goes on: they have blocks")
is_(a.prepare_store(keys[n:], ctx).keys_to_store, keys[n:], "and are stored")
is_((len(a.finder.ahead), len(a.finder.asked)), (0, 0), "what a request asked for that has ended is given back")
a.complete_store(set(keys), ctx)
a.publisher.collect(60)
a.on_request_finished(ctx)
a.c.ticket_wait()
is_(a.c.stats().live, 110, "all are published")

ctx, keys = fake.prompt("answered", 100)
soon, gpc.vllm.manager.SOON = gpc.vllm.manager.SOON, 60
is_(a.prepare_store(keys, ctx).keys_to_store, keys, "and where the writer answers, the same call stores all")
gpc.vllm.manager.SOON = soon
a.complete_store(set(keys), ctx, success=False)
a.on_request_finished(ctx)

# ---- vLLM's connector ----

ctx, keys = fake.prompt("connected", 100)
ctx.req_id = "r"
group = fake.ns(offload_keys=keys, next_stored_chunk_idx=0, stored=[])
kinds = [fake.ns(group_idx=0, sliding_window_size_in_chunks=None)]
half = fake.ns(manager=a, config=fake.ns(kv_group_configs=kinds, blocks_per_chunk=1),
               _req_status={"r": fake.ns(req_context=ctx, req=None, group_states=[group], transfer_jobs=set())})
link = GPCConnector(None, "scheduler", fake.ns(half=half, kv_cache_groups=kinds))
fill_stock(a)
stop()
link.build_connector_meta(None)
n = len(group.stored)
ok(0 < n < 100, f"with GPCConnector, {n} chunks of a step that have a block are stored at once")
is_(group.next_stored_chunk_idx, n, "and the others are offered again")
link.build_connector_meta(None)
is_(len(group.stored), n, "not before the writer has answered")
go()
a.finder.asker.settle(60)
link.build_connector_meta(None)
is_((group.stored, group.next_stored_chunk_idx), (keys, 100), "then each one is stored, once")
a.complete_store(set(keys), ctx, success=False)
a.on_request_finished(ctx)
a.later = None

# ---- who computes it ----

ctx, keys = fake.prompt("both", 4)
lookup(a, ctx, keys)
a.finder.asker.settle(60)
stop()
other, _ = fake.prompt("both", 4)
is_(lookup(b, other, keys), [PENDING] * 4, "that another engine computes a prompt is known without the writer")
b.on_schedule_end(None)
is_(b.prepare_store(keys, fake.prompt("both", 4)[0]).keys_to_store, [], "and a store leaves it to that")
is_(b.counts["skipped"], 4, "which is counted")
go()
a.on_request_finished(ctx)
a.finder.asker.settle(60)
a.c.ticket_wait()
is_(lookup(b, other, keys), [MISS], "until its claim ends")
b.on_schedule_end(None)
b.on_request_finished(other)

# ---- two that look at once: the writer tells them apart ----

b.finder.asker.settle(60)
fill_stock(a)
fill_stock(b)
stop()
ctx, keys = fake.prompt("race", 4)
other, _ = fake.prompt("race", 4)
is_((lookup(a, ctx, keys), lookup(b, other, keys)), ([MISS], [MISS]), "both compute")
is_((len(a.finder.ahead), len(b.finder.ahead)), (4, 4), "each holds blocks")
go()
a.finder.asker.settle(60)
b.finder.asker.settle(60)
is_(sorted((len(a.finder.ahead), len(b.finder.ahead))), [0, 4], "the writer has answered: one holds them")
for m, c in ((a, ctx), (b, other)):
    m.on_schedule_end(None)
    m.on_request_finished(c)

# ---- a reset between question and answer ----

stop()
ctx, keys = fake.prompt("reset", 100)
lookup(a, ctx, keys)
a.on_schedule_end(None)
a.reset_cache()
go()
a.finder.asker.settle(60)
is_((len(a.finder.ahead), len(a.finder.asked)), (0, 0), "what comes after a reset is given back")
a.c.ticket_wait()
is_(a.c.stats().claims, 0, "and nothing is claimed")

# ---- each call of the library by the scheduler's thread ----

FREE = {                                 # wait for nobody, by gpc.h
    "info": "", "stats": "", "pool_get": "", "pool_memory": "", "pool_available": "", "closed": "", "key_import": "no cache at all",
    "key_root": "no cache at all", "lookup": "wait-free", "acquire": "wait-free", "match": "wait-free", "alias_resolve": "wait-free",
    "root_get": "no writer", "event_read": "wait-free", "walk": "wait-free", "drops": "wait-free", "dropped": "wait-free", "hits_add": "waits for nobody", "tier": "no writer",
    "release": "no ring, no writer",
    "reserve": "with timeout 0, IN_HAND", "publish": "with timeout 0", "claim": "with PEEK", "claim_wait": "with timeout 0",
    "ticket_wait": "with timeout 0, of a ticket that is known to be answered",
}
calls, files = set(), set()
adapters = {}                            # request -> vLLM's, of those that have one


def heard(event, args):
    """Files that are opened, and folders that are read."""
    if event in ("open", "os.scandir", "os.listdir") and isinstance(args[0], str) and args[0].startswith(folder.name):
        files.add((threading.current_thread().name == "gpc-adapters", event))


folder = tempfile.TemporaryDirectory()
with open(folder.name + "/adapter_model.safetensors", "w") as f:
    f.write("an adapter")
sys.addaudithook(heard)


class Told:
    """A cache that tells who calls what."""

    def __init__(self, c):
        self.c = c

    def __getattr__(self, called):
        real = getattr(self.c, called)
        if not callable(real):
            return real

        def call(*args, **more):
            timeout = args[1] if called in ("claim_wait", "ticket_wait") and len(args) > 1 else more.get("timeout")
            how = ("" if called not in ("reserve", "publish", "claim", "claim_wait", "ticket_wait", "alias", "pool_clear") else
                   "peek" if more.get("flags", 0) & gpc.PEEK and called == "claim" else
                   "in hand, 0" if called == "reserve" and more.get("flags", 0) & gpc.IN_HAND and timeout == 0 else timeout)
            calls.add((threading.current_thread().name == "gpc-asker", called, how))
            return real(*args, **more)
        return call


opened = gpc.vllm.spec.open_cache
gpc.vllm.spec.open_cache = lambda *args: Told(opened(*args))
p = GPCOffloadingSpec(fake.config({**EXTRA, "gpc_serve": False, "gpc_reset": "tag"}, enable_kv_cache_events=True)).get_manager()
p.set_chained({0: True})
p.config_info()


def whole_step(m, text, n, wants):
    """All calls that vLLM makes for a request."""
    ctx, keys = fake.prompt(text, n)
    m.on_new_request(ctx)
    got = lookup(m, ctx, keys)
    while got[0] is fake.LookupResult.RETRY:
        m.on_schedule_end(None)
        got = lookup(m, ctx, keys)
    is_(got[0], wants, f"{text}: {wants.name}")
    hits = keys[:got.count(HIT)]
    if hits:
        m.prepare_load(hits, ctx)
    m.on_schedule_end(None)
    if hits:
        m.complete_load(set(hits), ctx)
    m.touch(keys, ctx)
    m.later = {}
    out = m.prepare_store(keys, ctx)
    m.finder.asker.settle(60)
    if out.keys_to_store:
        m.complete_store(set(out.keys_to_store), ctx)
    fake.settle(m)
    m.has_pending_work()
    list(m.take_events())
    m.get_stats()
    m.on_request_finished(ctx)
    m.on_schedule_end(None)
    m.finder.asker.settle(60)
    p.c.c.ticket_wait()


fill_stock(p)
calls.clear()
whole_step(p, "new", 10, MISS)
whole_step(p, "new", 10, HIT)
whole_step(p, "of many", 90, MISS)
ctx, keys = fake.prompt("another", 4)
lookup(b, ctx, keys)
b.finder.asker.settle(60)
whole_step(p, "another", 4, PENDING)
b.on_request_finished(ctx)
p.prompts.request_of = lambda number: fake.ns(lora_request=adapters.get(number), cache_salt=None, all_token_ids=[], prompt_embeds=None)
for number, loads in (("adapted", False), ("adapted again", True)):
    adapters[number] = fake.ns(lora_name="one", lora_path=folder.name, lora_int_id=1, load_inplace=loads)
    whole_step(p, number, 10, MISS)
adapters["adapted"] = fake.ns(lora_name="one", lora_path=folder.name, lora_int_id=1, load_inplace=False)
whole_step(p, "adapted", 10, HIT)
is_(files, {(True, "open"), (True, "os.scandir"), (True, "os.listdir")}, "files of adapters are read, by a thread of their own")
p.reset_cache()
p.finder.asker.settle(60)
p.on_reset_flushed()
whole_step(p, "new", 10, MISS)
ours = {(called, how) for by_asker, called, how in calls if not by_asker}
is_(sorted(called for called, _ in ours if called not in FREE), [], "of the scheduler's thread, none but those of the table")
is_(sorted(x for x in ours if x[1] not in ("", "peek", "in hand, 0", 0) or x == ("reserve", 0)), [], "and these without a wait")
ok(("pool_clear", gpc.vllm.finder.ASK) not in ours and (True, "pool_clear", gpc.vllm.finder.ASK) in calls,
   "what a reset has the writer forget is asked for by the thread")
p.shutdown()
gpc.vllm.spec.open_cache = opened

# ---- the thread that asks ----

asker, gpc.vllm.asker.MOST = Asker(), 3
gate, told = threading.Event(), []


def refuses():
    raise gpc.NoSpace(28, "no room")


is_([asker.ask(gate.wait), asker.ask(refuses, told.append), asker.ask(lambda: 7, told.append), asker.ask(lambda: 8)],
    [True, True, True, False], "a bounded number of questions is under way")
asker.take()
is_(told, [], "none has an answer")
gate.set()
asker.stop(60)
is_((told, asker.under_way, asker.thread), ([None, 7], 0, None), "answers come in order; a question that fails has none")
for m in (a, b):
    m.shutdown()
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
with gpc.attach(name, serve=True) as c:
    is_(c.check(), 0, "all invariants hold")
# ---- a cache that is full for a moment ----

_made.add(name + "-full")
m = manager(gpc_name=name + "-full", gpc_bytes=(64 + 100) * 4096, gpc_stock=0)
other = gpc.attach(name + "-full")
asks, reserve = [], m.finder._reserve
m.finder._reserve = lambda raw, n: (asks.append(n), reserve(raw, n))[1]
ahead_of = 0.0
m.finder.clock = lambda: time.monotonic() + ahead_of


def connect(m, ctx, keys):
    group = fake.ns(offload_keys=keys, next_stored_chunk_idx=0, stored=[])
    half = fake.ns(manager=m, config=fake.ns(kv_group_configs=kinds, blocks_per_chunk=1),
                   _req_status={ctx.req_id: fake.ns(req_context=ctx, req=None, group_states=[group], transfer_jobs=set())})
    return GPCConnector(None, "scheduler", fake.ns(half=half, kv_cache_groups=kinds)), group


def step(link):
    link.build_connector_meta(None)
    m.finder.asker.settle(60)
    m.on_schedule_end(None)


theirs = other.reserve(0, 90, timeout=60)
ctx, keys = fake.prompt("short", 30)
link, group = connect(m, ctx, keys)
step(link)
is_((len(group.stored), asks), (0, [30]), "30 blocks are asked for, of a cache that has 10")
step(link)
is_((group.stored, group.next_stored_chunk_idx), (keys[:10], 10), "10 come; the first chunks are stored")
for _ in range(5):
    step(link)
is_((len(group.stored), asks), (10, [30]), "of a full cache nobody asks again")
other.release(theirs[:12])
other.ticket_wait()
step(link)
is_(asks, [30], "nor at once")
ahead_of = 1.0
step(link)
is_(asks, [30, 12], "it has room: as many are asked for as there is room for")
group.offload_keys = keys + fake.prompt("short", 33)[1][30:]
ctx._offload_key_positions.update(fake.prompt("short", 33)[0]._offload_key_positions)
step(link)
is_(group.stored, keys[:22], "which are stored; chunks that come meanwhile wait behind those that have no block")
other.release(theirs[12:])
other.ticket_wait()
ahead_of = 2.0
step(link)
step(link)
keys = group.offload_keys
is_((group.stored, asks), (keys, [30, 12, 11]), "then the others, each once")
is_((m.counts["no_room"], m.counts["skipped"]), (0, 0), "none is left out")
m.complete_store(set(keys), ctx)
m.publisher.collect(60)
m.on_request_finished(ctx)
m.on_schedule_end(None)
m.c.ticket_wait()
is_((m.c.stats().live, m.counts["refused"]), (33, 0), "all are found")

theirs = other.reserve(0, 95, timeout=60)
ctx, keys = fake.prompt("ends short", 30)
link, group = connect(m, ctx, keys)
step(link)
step(link)
is_(group.stored, keys[:5], "of another request 5 of 30 are stored")
other.release(theirs)
other.ticket_wait()
ahead_of = 3.0
step(link)
m.finder.asker.settle(60)
n = len(m.finder.ahead)
m.on_request_finished(ctx)
m.on_schedule_end(None)
is_((n, m.counts["no_room"], len(m.finder.ahead)), (25, 25, 0), "blocks that come when it has ended are given back, its chunks counted")
m.complete_store(set(keys[:5]), ctx, success=False)
m.c.ticket_wait()
is_(m.c.stats(m.c.info().peer).reserved, 0, "and nothing is held")
other.close()
m.shutdown()

# ---- words before the first block that is told ----

_made.add(name + "-words")
sent = []


class Order:
    """A cache that says what is sent to the writer."""

    def __init__(self, c):
        self.c = c

    def __getattr__(self, called):
        real = getattr(self.c, called)
        if called == "root_keep":
            def keep(*args, **more):
                gate.wait()
                answer = real(*args, **more)
                sent.append("words")
                return answer
            return keep
        if called == "publish":
            def publish(*args, **more):
                sent.append(len(args[2]))
                return real(*args, **more)
            return publish
        return real


gate = threading.Event()
gpc.vllm.spec.open_cache = lambda *args: Order(opened(*args))
m = manager(gpc_name=name + "-words", gpc_keep_tokens=True)
gpc.vllm.spec.open_cache = opened
m.later, salted = {}, fake.ns(lora_request=None, cache_salt="tenant", all_token_ids=list(range(1000)), prompt_embeds=None)
m.prompts.request_of = lambda number: None if number == "plain" else salted


def stored(text, n, first=0):
    ctx, keys = fake.prompt(text, n)
    keys = keys[first:]
    while len(got := m.prepare_store(keys, ctx).keys_to_store) < len(keys):
        fill_stock(m)
    m.complete_store(set(got), ctx)
    return ctx, keys


fill_stock(m)
ctx, keys = stored("salted", 2)
is_((sent, len(m.storing), m.has_pending_work()), ([], 2, True), "the words of a salt are not kept yet: its blocks are not published, and vLLM goes on stepping")
is_(m.lookup(keys[0], fake.prompt("salted", 2)[0]), PENDING, "they are blocks of a store that is under way")
stored("plain", 1)
is_(sent, [1], "blocks without a salt wait for nothing")
stored("salted", 3, first=2)
gate.set()
m.finder.asker.settle(60)
is_(sent, [1, "words", 2, 1], "the words, then the blocks, in the order of their prompt")
m.publisher.collect(60)
m.on_schedule_end(None)
is_((len(m.storing), m.counts["stored"], m.counts["refused"]), (0, 4, 0), "all are stored")
stored("more", 1)
is_(sent[4:], [1], "later ones go at once")
root = m.prompts.root(ctx)
i = 0
while m.prompts._has(root):
    i += 1
    m.c.c.root_keep([(3, b"salt %d" % i)], timeout=60)
stored("again", 1)
m.finder.asker.settle(60)
is_(sent[5:], ["words", 1], "words that the cache has forgotten meanwhile are kept again")
gate.clear()
while m.prompts._has(root):
    i += 1
    m.c.c.root_keep([(3, b"salt %d" % i)], timeout=60)
stored("lost", 1)
m.reset_cache()
gate.set()
m.finder.asker.settle(60)
m.on_reset_flushed()
m.publisher.collect(60)
m.c.ticket_wait()
is_((sent[7:], len(m.storing), m.c.stats(m.c.info().peer).reserved <= 64), (["words"], 0, True), "a reset meanwhile: they are not published")
m.shutdown()

# ---- what was asked for, and had from the stock before the answer came ----

_made.add(name + "-mix")
m = manager(gpc_name=name + "-mix", gpc_stock=16)
m.later = {}
fill_stock(m)
ctx, keys = fake.prompt("mix", 40)
m.lookup(keys[0], ctx)
m.claim_wanted(ctx)
while not m.finder.asker.answers or m.finder.asked.keys() != set(keys[16:]):
    time.sleep(0.001)
take, m.finder.asker.take = m.finder.asker.take, lambda: None        # the answer waits
fill_stock(m)
first = m.prepare_store(keys, ctx).keys_to_store
ok(16 < len(first) < 40, f"{len(first)} chunks of 40 have a block of the stock")
m.finder.asker.take = take
m.finder.asker.settle(60)
rest = m.prepare_store([k for k in keys if k not in first], ctx).keys_to_store
is_(first + rest, keys, "the others have those that were asked for")
m.complete_store(set(keys), ctx)
m.publisher.collect(60)
m.on_request_finished(ctx)
m.on_schedule_end(None)
m.c.ticket_wait()
is_(m.c.stats().live, 40, "all are stored")

# ---- two requests of one engine for the same chunks: the first one loads something before, and claims behind the second ----

fill_stock(m)
before = m.c.stats(m.c.info().peer).reserved
first, keys = fake.prompt("twins", 8)
second, _ = fake.prompt("twins", 8)
second.req_id = "second"
m.lookup(keys[0], first)
m.lookup(keys[0], second)
m.claim_wanted(second)
m.finder.asker.settle(60)
fill_stock(m)
m.claim_wanted(first)
m.finder.asker.settle(60)
is_([m.finder.ahead[k][0] is m._request(second) for k in keys], [True] * 8, "it does not take what the other one has claimed")
for ctx in (first, second):
    m.on_request_finished(ctx)
m.finder.asker.settle(60)
m.on_schedule_end(None)
fill_stock(m)
is_((m.c.stats(m.c.info().peer).reserved, m.c.stats().claims), (before, 0), "and nothing stays when both have ended")

first, keys = fake.prompt("two salts", 8)
second, _ = fake.prompt("two salts", 8)
second.req_id = "second"
m.lookup(keys[0], first)
m.claim_wanted(first)
m.finder.asker.settle(60)
fill_stock(m)
m._request(second).salt = b"of another adapter"
out = m.prepare_store(keys, second)
m.finder.asker.settle(60)
is_([m.finder.ahead.get(k, [None])[0] is m._request(first) for k in keys], [True] * 8, "a store with another salt takes none of it either")
m.complete_store(set(out.keys_to_store), second)
for ctx in (first, second):
    m.on_request_finished(ctx)
m.finder.asker.settle(60)
m.publisher.collect(60)
m.on_schedule_end(None)
fill_stock(m)
is_((m.c.stats(m.c.info().peer).reserved, m.c.stats().claims), (before, 0), "and nothing stays then")

# ---- a store whose wait brings answers that give a block back, and then is not answered itself ----

fill_stock(m)
ctx, keys = fake.prompt("given back", 4)
m.lookup(keys[0], ctx)
m.claim_wanted(ctx)
m.finder.asker.settle(60)
more, m.once, m.later = [b"more" * 8 + bytes((0, 0, 0, 0))], {0}, {}
for at, k in enumerate(more):
    ctx._offload_key_positions[k] = 16 * (len(keys) + 1 + at)
m.finder.take_stock = lambda keys, req: 0
m.finder.asker.soon = lambda timeout: m.c.release(m.finder.take_ahead(keys[3:]))
out = m.prepare_store(keys + more, ctx)
is_(out.keys_to_store, keys[:3], "it stores what it still has")
del m.finder.take_stock, m.finder.asker.soon
m.complete_store(set(out.keys_to_store), ctx)
m.on_request_finished(ctx)
m.finder.asker.settle(60)
m.publisher.collect(60)
m.on_schedule_end(None)
m.later = None
m.shutdown()

# ---- blocks of a state are handed over once, and the cache has no room ----

m = manager(gpc_name=name + "full", gpc_bytes=(64 + 100) * 4096, gpc_stock=0)
_made.add(name + "full")
m.set_chained({0: False})
m.once, m.later, other, held = {0}, {}, gpc.attach(name + "full"), []
while m.c.pool_available(0):
    held += other.reserve(0, 10, flags=gpc.PARTIAL, timeout=60)
ctx, keys = fake.prompt("state", 4)
asks, real = [], m.finder.asker.ask
m.finder.asker.ask = lambda call, taken=None: asks.append(1) or real(call, taken)
out = m.prepare_store(keys, ctx)
is_((out.keys_to_store, len(asks)), ([], 1), "the writer is asked once, and the step ends")
m.on_request_finished(ctx)
m.finder.asker.settle(60)
m.on_schedule_end(None)
m.shutdown()
other.close()

# ---- the chunk before ----

m = manager(gpc_name=name + "chain")
_made.add(name + "chain")
ctx, keys = fake.prompt("chain", 4)
req, positions = m._request(ctx), ctx._offload_key_positions
step = positions[keys[1]] - positions[keys[0]]
twin, lost = b"twin" * 8 + bytes((0, 0, 0, 0)), b"lost" * 8 + bytes((0, 0, 0, 0))
is_(m._parents(keys, step, positions, req), [None, *keys[:3]], "each chunk follows the one before it")
is_(m._parents([keys[0], keys[2], keys[3]], step, positions, req), [None, keys[1], keys[2]], "also where that one is not stored now")
is_(m._parents([lost, *keys], step, positions, req), [None, None, *keys[:3]], "the first one follows none, also behind a key without a place")
positions[twin] = positions[keys[1]]
is_([m._parents([keys[0], *some, keys[2]], step, positions, req)[3] for some in ([keys[1], twin], [twin, keys[1]])], [twin, twin],
    "of two at one place, in any order, the later one is followed")
m.shutdown()
done()
