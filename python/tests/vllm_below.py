# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm's manager with tiers below RAM: what RAM does not have is asked for, and comes; the scheduler waits for nobody, and
a request for gpc_below_ms at most."""

import os
import sys
import tempfile
import threading
import time

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.engines.below as below  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import below_tiers as tiers  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = 60
below.LOOK, below.PAUSE = 0, 0.01
HIT, MISS, PENDING, RETRY = (getattr(fake.LookupResult, n) for n in ("HIT", "MISS", "HIT_PENDING", "RETRY"))
STORAGE, CPU = fake.Medium.STORAGE, fake.Medium.CPU
RAM = 64                         # slots
LONG = 60000
EXTRA = {"gpc_name": name, "gpc_weights": "w", "gpc_bytes": (64 + RAM) * 4096, "gpc_free_target": -1, "gpc_stock": 0,
         "gpc_pending_ms": LONG, "gpc_max_peers": 8, "gpc_below_ms": LONG, "gpc_claim_chunks": 16}
_made.update({name, name + "-d", name + "-m"})
tiers.make_room()
folder = tempfile.TemporaryDirectory()
asked_by = set()                 # threads that have asked for what is below


class Told:
    """A cache that tells which threads ask."""

    def __init__(self, c):
        self.c = c

    def __getattr__(self, called):
        if called == "prefetch":
            asked_by.add(threading.current_thread().name)
        return getattr(self.c, called)


def manager(groups=None, windows=None, **more):
    m = GPCOffloadingSpec(fake.config({**EXTRA, **more}, groups=len(groups or {0: True}))).get_manager()
    m.set_chained(groups or {0: True})
    m.windows = windows or {}
    m.finder.below.c = Told(m.c)
    return m


def lookup(m, ctx, keys):
    """As vLLM for full attention: up to the first miss."""
    got = []
    for k in keys:
        got.append(m.lookup(k, ctx))
        if got[-1] is MISS:
            break
    return got


def come(m, ctx, keys, look=lookup):
    """Steps of vLLM until it is told what is there."""
    got = look(m, ctx, keys)
    while PENDING in got or RETRY in got:
        m.on_schedule_end(None)
        time.sleep(0.001)
        got = look(m, ctx, keys)
    m.on_schedule_end(None)
    return got


def store(m, text, n, groups=(0,)):
    ctx, keys = fake.prompt(text, n, groups=groups)
    for some in keys.values() if len(groups) > 1 else [keys]:
        out = fake.offer(m, some, ctx)
        m.complete_store(set(out.keys_to_store), ctx)
    m.publisher.collect(60)
    m.on_request_finished(ctx)
    m.on_schedule_end(None)
    m.c.ticket_wait()
    m.c.tiers_sync(60)
    return keys


def fill(m, text, gone=()):
    """What was in RAM before is below then: these keys, whatever was used when."""
    for i in range(40):
        if i < 4 or gone and there(m, gone):
            store(m, f"{text} {i}", RAM // 4)


def once(m, ctx, keys, look=lookup):
    """Of a request that goes then."""
    got = look(m, ctx, keys)
    m.on_schedule_end(None)
    m.finder.asker.settle(60)
    m.on_request_finished(ctx)
    return got


def there(m, keys):
    return sum(b >= 0 for b in m.c.lookup(m.finder.keys(keys), spaces=1, flags=gpc.QUIET))


def held(m):
    m.c.ticket_wait()
    s = m.c.stats(m.c.info().peer)
    return s.refs, s.reserved


def count(m, *names):
    return tuple(m.counts[n] for n in names)


def wants(text, n, *matchers):
    ctx, keys = fake.prompt(text, n)
    ctx.load_tier_filter = fake.TierFilter(tuple(fake.TierMatcher(*x) for x in matchers))
    return ctx, keys


# ---- a disk ----

m = manager()
m.finder.below.look()
is_(m.finder.below.mask, 0, "without tiers there is nothing below")
idle = manager()
steward = tiers.Steward(name, disk=folder.name + "/disk", disk_blocks=2048)
m.finder.below.look()
is_(m.finder.below.kinds, {below.DISK}, "a tier that is opened later is seen")
two, one = store(m, "two", 5), store(m, "one", 30)
fill(m, "other", one + two)
is_(there(m, one), 0, "a prompt has left RAM")
ctx, keys = wants("two", 5, (STORAGE,), (CPU,))
is_(lookup(idle, ctx, keys), [PENDING] * 5, "an engine that had nothing to do meanwhile sees the tier at its first question")
idle.on_request_finished(ctx)
idle.shutdown()
ctx, keys = fake.prompt("nowhere", 5)
is_((lookup(m, ctx, keys), m.finder.below.counts["asked"]), ([MISS], 0), "one that is nowhere costs no wait")
m.on_schedule_end(None)
m.finder.asker.settle(60)
m.on_request_finished(ctx)
ctx, keys = fake.prompt("one", 30)
is_(lookup(m, ctx, keys), [PENDING] * 30, "of one that is on disk, all is pending")
is_(m.finder.below.counts["asked"], 1, "by one question")
m.on_schedule_end(None)
is_(count(m, "hits_disk"), (0,), "which is no hit yet")
is_(come(m, ctx, keys), [HIT] * 30, "and it comes")
is_(m.get_load_source(keys[3], ctx).name, "DISK", "from disk, as vLLM is told")
is_(asked_by, {"gpc-below"}, "the scheduler's thread asks no tier")
is_(lookup(m, ctx, keys), [HIT] * 30, "the next step asks again")
m.prepare_load(keys, ctx)
m.on_schedule_end(None)
m.complete_load(set(keys), ctx)
is_(count(m, "hits", "hits_ram", "hits_disk"), (30, 0, 30), "hits are told by their source")
m.on_request_finished(ctx)
ctx, keys = fake.prompt("one", 30)
is_(lookup(m, ctx, keys), [HIT] * 30, "another request finds it in RAM")
m.on_schedule_end(None)
is_(count(m, "hits", "hits_ram", "hits_disk"), (60, 30, 30), "which is a hit there")
s = m.c.stats(m.c.info().peer)
is_((s.hit_ram, s.hit_disk, s.hit_store), (60, 30, 0), "and so the cache's own figures say")
is_(m.get_load_source(keys[3], ctx).name, "HOST", "and a load from there")

# preempted: its blocks have left again
fill(m, "more", one)
is_(come(m, ctx, keys), [HIT] * 30, "a request that is looked for again, once more")
m.prepare_load(keys, ctx)
m.complete_load(set(keys), ctx)
fill(m, "yet more", one)
is_(lookup(m, ctx, keys)[0], PENDING, "and when it was preempted")
is_(come(m, ctx, keys), [HIT] * 30, "it comes")
m.on_request_finished(ctx)

# the first blocks are in RAM, the middle on disk, and the end nowhere
fill(m, "again", one)
head = fake.prompt("one", 10)
is_(once(m, *head, come), [HIT] * 10, "the first ten are in RAM")
ctx, keys = fake.prompt("one", 40)
is_(lookup(m, ctx, keys), [HIT] * 10 + [PENDING] * 20 + [MISS], "HIT, pending, and nowhere")
is_(come(m, ctx, keys), [HIT] * 30 + [MISS], "then what there is")
m.finder.asker.settle(60)
is_(len(m.finder.ahead), 10, "and the rest is claimed by who computes it")
m.on_request_finished(ctx)
is_(held(m), (0, 0), "nothing is held")

# ---- kv_load_tiers ----

fill(m, "tiers", one)
new = store(m, "new", 4)


is_(once(m, *wants("one", 30, (CPU,)))[0], MISS, "who takes RAM alone waits for no tier")
is_(once(m, *wants("new", 4, (CPU,))), [HIT] * 4, "and finds what is in RAM")
is_(once(m, *wants("new", 4, (STORAGE, fake.Locality.REMOTE)))[0], MISS, "who takes a store alone finds nothing here")
is_(once(m, *wants("one", 30, (STORAGE,)), come), [HIT] * 30, "who takes tiers below RAM gets what is on disk")
real, its = m.finder.below.tiers_of, m.finder.keys(new)
of = m._request(wants("new", 4, (STORAGE,))[0])
m.finder.below.tiers_of = lambda raw: [{below.RAM, below.DISK}] * 3 + [{below.RAM}]
is_(m.finder._may_have(its, of), 3, "and of RAM what is on disk as well, and no more")
m.finder.below.tiers_of = real
is_(once(m, *wants("one", 30)), [MISS], "who takes nothing gets nothing")
m.on_schedule_end(None)

# ---- who goes meanwhile ----

steward.stop()
fill_asked = m.finder.below.counts["asked"]
ctx, keys = fake.prompt("other 0", 16)
is_(lookup(m, ctx, keys)[0], PENDING, "a steward that is stopped is asked")
question = m._request(ctx).below[keys[0]][0]
m.on_request_finished(ctx)
is_((question.over, held(m)), (True, (0, 0)), "a request that goes holds nothing")
ctx, keys = fake.prompt("other 1", 16)
lookup(m, ctx, keys)
m.on_schedule_end(None)
m.reset_cache()
is_(lookup(m, ctx, keys), [MISS], "a reset ends the question: what is below is of before")
m.on_request_finished(ctx)
steward.go()
m.shutdown()

# ---- a tier that hangs ----

m = manager(gpc_below_ms=300)
m.finder.below.look()
fill(m, "late")
fill(m, "later")
below.PAUSE = 3600
asked = m.finder.below.counts["asked"]
steward.stop()
ctx, keys = fake.prompt("late 0", 16)
since = time.monotonic()
is_(lookup(m, ctx, keys), [PENDING] * 16, "its prompt is on disk")
got = come(m, ctx, keys)
is_(got, [MISS], "its time is over, and it computes")
ok(time.monotonic() - since >= 0.3, "after gpc_below_ms")
is_(count(m, "late"), (1,), "which is counted")
while below.DISK not in m.finder.below.late:
    time.sleep(0.001)
is_(once(m, *fake.prompt("late 1", 16))[0], MISS, "another request waits for nobody")
is_(m.finder.below.counts["asked"] - asked, 1, "and asks nobody")
m.finder.asker.settle(60)
ok(m.finder.ahead, "the first one has claimed what it computes")
while m.finder.below.c.tier(0).state != gpc.TIER_STOPPED:
    time.sleep(0.01)
m.finder.below.looked = None
m.finder.below.look()
brought = fake.ns(state=gpc.CLAIM_PENDING, peer=next(iter(m.finder.below.stewards)))
ok(m.finder.is_brought(brought), "what the steward has pending is brought")
ok(not m.finder.is_brought(fake.ns(state=gpc.CLAIM_PENDING, peer=m.finder.peer)), "and of others, computed")
peek, m.finder.peek = m.finder.peek, lambda raw: [brought] * (len(raw) // 16)
waits = fake.prompt("pending with the steward", 4)
is_(lookup(m, *waits), [MISS], "nobody waits for a claim of the steward")
m.on_schedule_end(None)
out = fake.offer(m, waits[1], waits[0])
is_(out.keys_to_store, waits[1], "and what is computed meanwhile is stored")
m.complete_store(set(out.keys_to_store), waits[0], success=False)
m.on_request_finished(waits[0])
m.finder.peek = peek
out = fake.offer(m, keys, ctx)
is_(out.keys_to_store, keys, "and stores it")
m.complete_store(set(keys), ctx)
m.on_request_finished(ctx)
m.on_schedule_end(None)
m.finder.below.late[below.DISK][:2] = [0, 0.01]
below.PAUSE = 0.01
is_(once(m, *fake.prompt("late 1", 16))[0], MISS, "a late tier is tried now and then, and nobody waits for that")
steward.go()
while below.DISK in m.finder.below.late:
    m.on_schedule_end(None)
    once(m, *fake.prompt("late 1", 16))
    time.sleep(0.01)
asked = m.finder.below.counts["asked"]
while once(m, *fake.prompt("late 2", 16), come) != [HIT] * 16:       # on a busy machine some come behind the deadline
    m.on_schedule_end(None)
    time.sleep(0.01)
ok(m.finder.below.counts["asked"] > asked, "when it answers it is asked again")

# ---- its steward dies ----

steward.kill()
is_(once(m, *fake.prompt("late 3", 16), come)[0], MISS, "a steward that died brings nothing")
m.finder.below.look()
is_(m.finder.below.mask, 0, "and is seen to have gone")
is_(held(m), (0, 0), "nothing is held")
m.shutdown()

# ---- a store that two machines share ----

far = tempfile.TemporaryDirectory()
spec = f"{tiers.FOLDER}:dir={far.name}"
os.chmod(tiers.FOLDER, 0o755)
a, b = manager(gpc_name=name + "-d"), manager(gpc_name=name + "-m")
of_a, of_b = tiers.Steward(name + "-d", remote=spec, remote_blocks=2048), tiers.Steward(name + "-m", remote=spec, remote_blocks=2048)
a.finder.below.look()
b.finder.below.look()
is_(b.finder.below.kinds, {below.STORE}, "a store is seen")
shared = store(a, "shared", 20)
fill(a, "out")
fill(a, "and out")
ctx, keys = fake.prompt("shared", 20)
is_(lookup(b, ctx, keys), [RETRY] * 20, "another machine does not know whether the store has it")
is_(come(b, ctx, keys), [HIT] * 20, "asks, and loads it")
is_(b.get_load_source(keys[0], ctx).name, "EXTERNAL_UNSPECIFIED", "as vLLM calls it")
is_(count(b, "hits_ram", "hits_disk", "hits_store"), (0, 0, 20), "a hit in the store")
is_(come(b, *fake.prompt("nobody", 20)), [MISS], "what it does not have is a miss when it has answered")
b.finder.asker.settle(60)
for x in (a, b):
    x.shutdown()
of_a.end()
of_b.end()

# ---- a disk beside the store ----

gpc.unlink(name + "-d")
a = manager(gpc_name=name + "-d")
of_a = tiers.Steward(name + "-d", disk=os.path.join(far.name, "disk"), disk_blocks=1024, remote=spec, remote_blocks=2048)
a.finder.below.look()
is_(a.finder.below.kinds, {below.DISK, below.STORE}, "a disk and a store are seen")
store(a, "both", 20)
fill(a, "b")
fill(a, "bb")
ctx, keys = fake.prompt("both", 20)
is_(come(a, ctx, keys), [HIT] * 20, "what both have comes")
is_(count(a, "hits_ram", "hits_disk", "hits_store"), (0, 20, 0), "from the disk")
raw = a.finder.keys(keys)
a.c.tiers_sync(60)
is_(a.finder.below.may_come(raw, {below.DISK}), [below.DISK] * 20, "who wants it from the disk gets it")
is_(a.finder.below.may_come(raw, {below.STORE}), [below.STORE] * 20, "and who wants it from the store")
a.finder.asker.settle(60)
a.shutdown()
of_a.end()

# ---- groups of windows: each key by itself ----

gpc.unlink(name + "-d")
gpc.unlink(name + "-m")
KINDS = {0: True, 1: False}
a, b = (manager(KINDS, {1: 3}, gpc_name=name + x) for x in ("-d", "-m"))
of_a, of_b = tiers.Steward(name + "-d", remote=spec, remote_blocks=2048), tiers.Steward(name + "-m", remote=spec, remote_blocks=2048)
a.finder.below.look()
b.finder.below.look()
store(a, "windows", 12, (0, 1))
fill(a, "w")
fill(a, "ww")


def backwards(m, ctx, keys):
    return [m.lookup(k, ctx) for k in reversed(keys)]


ctx, keys = fake.prompt("windows", 12, groups=(0, 1))
is_(come(a, ctx, keys[1], backwards), [HIT] * 12, "what the index knows below is asked for, key by key")
ctx, keys = fake.prompt("windows", 12, groups=(0, 1))
is_(come(b, ctx, keys[0]), [HIT] * 12, "on the other machine full attention comes first")
is_(come(b, ctx, keys[1], backwards)[:3], [HIT] * 3, "and of the window as much as it needs")
is_(come(b, ctx, keys[1], backwards)[3:], [MISS] * 9, "and no more")
for x in (a, b):
    x.shutdown()
of_a.end()
of_b.end()
done()
