# SPDX-License-Identifier: Apache-2.0
"""Hints of an orchestrator, in vLLM's envelope: what is asked for comes to RAM before anybody looks it up, what is demoted leaves
RAM when a tier has it, and of each action is told what became of it."""

import tempfile
import time

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.engines.below as below  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import below_tiers as tiers  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingSpec  # noqa: E402
from gpc.vllm.hints import MOST_ACTIONS, actions_of  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = 60
below.LOOK = 0
RAM = 64
EXTRA = {"gpc_name": name, "gpc_weights": "w", "gpc_bytes": (64 + RAM) * 4096, "gpc_free_target": -1, "gpc_stock": 0,
         "gpc_max_peers": 8, "gpc_below_ms": 60000}
_made.add(name)
tiers.make_room()
folder = tempfile.TemporaryDirectory()
m = GPCOffloadingSpec(fake.config(EXTRA)).get_manager()
kinds = [fake.ns(group_idx=0, sliding_window_size_in_chunks=None)]
half = fake.ns(manager=m, config=fake.ns(kv_group_configs=kinds, blocks_per_chunk=1), _req_status={})
link = GPCConnector(None, "scheduler", fake.ns(half=half, kv_cache_groups=kinds))
m.later = None


def envelope(*actions):
    return fake.ns(protocol_version="0.1", message_id="m", actions=[
        fake.ns(action_id=f"a{i}", action_type=kind, action_version="1.0", payload=payload)
        for i, (kind, payload) in enumerate(actions)])


def arrives(text, n, *actions, params=None):
    """A request, up to its end; (context, keys, what is told)."""
    ctx, keys = fake.prompt(text, n)
    ctx.req_id = f"{text} {n} {time.monotonic()}"
    ctx.kv_hints, ctx.kv_transfer_params = envelope(*actions) if actions else None, params
    group = fake.ns(offload_keys=[], next_stored_chunk_idx=0)
    half._req_status[ctx.req_id] = fake.ns(req_context=ctx, req=None, group_states=[group],
                                           update_offload_keys=lambda: group.offload_keys.extend(keys))
    link.on_new_request(fake.ns(request_id=ctx.req_id))
    return ctx, keys


def ends(ctx):
    delay, params = link.request_finished(fake.ns(request_id=ctx.req_id), [])
    m.on_request_finished(ctx)
    m.on_schedule_end(None)
    del half._req_status[ctx.req_id]
    return [(a["action_type"], a["outcome"]) for a in (params or {}).get("kv_hints", [])]


def store(text, n):
    ctx, keys = fake.prompt(text, n)
    out = fake.offer(m, keys, ctx)
    m.complete_store(set(out.keys_to_store), ctx)
    m.publisher.collect(60)
    m.on_request_finished(ctx)
    m.on_schedule_end(None)
    m.c.ticket_wait()
    return keys


def sync():
    m.c.tiers_sync(60)


def there(keys):
    return sum(b >= 0 for b in m.c.lookup(m.finder.keys(keys), spaces=1, flags=gpc.QUIET))


def push(text, gone):
    """These keys out of RAM, onto the disk."""
    i = 0
    while i < 4 or there(gone):
        store(f"{text} {i}", 16)
        sync()
        i += 1


def until(what):
    while not what():
        time.sleep(0.005)
    return True


# ---- envelopes ----

ctx = fake.ns(req_id="r", kv_hints=envelope(("kv.Prefetch", {}), ("demote", None)), kv_transfer_params=None)
is_([a[1:] for a in actions_of(ctx)], [("prefetch", {}), ("demote", {})], "vLLM's envelope")
params = {"kv_hint": {"actions": [{"action_id": 7, "action_type": "pin", "payload": {"x": 1}}]}}
is_(actions_of(fake.ns(kv_hints=None, kv_transfer_params=params)), [("7", "pin", {"x": 1})], "one of kv_transfer_params")
for odd in (None, {}, [], {"kv_hints": 5}, {"kv_hints": {"actions": 5}}, {"kv_hints": {"actions": [5, None]}}, "text"):
    ok(all(k == "" for _, k, _ in actions_of(fake.ns(kv_hints=None, kv_transfer_params=odd))), f"{odd!r} has none that is known")
many = {"kv_hints": {"actions": [{"action_type": "x"}] * 1000}}
is_(len(actions_of(fake.ns(kv_hints=None, kv_transfer_params=many))), MOST_ACTIONS, "a request has so many at most")

# ---- without tiers ----

ctx, _ = arrives("plain", 4)
is_(ends(ctx), [], "a request without hints is told nothing")
ctx, _ = arrives("none", 4, ("prefetch", {}), ("demote", {}), ("share", {}), ("retain", {}), ("pin", {}), ("fly", {}))
is_(ends(ctx), [("prefetch", "rejected"), ("demote", "rejected"), ("share", "accepted"), ("retain", "not_carried_out"),
                ("pin", "not_carried_out"), ("fly", "unknown")], "without tiers, each action has its outcome")
stats = m.get_stats().counters
is_([stats.get("vllm:kv_offload_gpc_hints_" + n, 0) for n in ("accepted", "clipped", "rejected", "not_carried_out", "unknown")],
    [1, 0, 2, 2, 1], "which is counted")

# ---- prefetch ----

steward = tiers.Steward(name, disk=folder.name + "/disk", disk_blocks=2048)
m.finder.below.look()
one = store("one", 20)
push("other", one)
ctx, keys = arrives("one", 20, ("prefetch", {}))
ok(until(lambda: there(one) == 20), "a hint brings it, before its request is looked up")
is_(ends(ctx), [("prefetch", "accepted")], "which is told")
push("more", one)
ctx, keys = arrives("one", 24, ("prefetch", {}))
is_(ends(ctx), [("prefetch", "clipped")], "one that no tier has all of is clipped")
until(lambda: there(one) == 20)
ctx, keys = arrives("nowhere", 4, ("prefetch", {}))
is_(ends(ctx), [("prefetch", "rejected")], "and of which none has any, rejected")
push("yet more", one)
ctx, _ = arrives("other 0", 2, ("prefetch", {"block_hashes": [k[:-4].hex() for k in one[:6]]}))
ok(until(lambda: there(one) >= 6), "chunks that a hint names come")
is_(ends(ctx), [("prefetch", "accepted")], "whosever they are")
ctx, _ = arrives("one", 20, ("prefetch", {"token_range": [0, 8 * 16]}))
ok(until(lambda: there(one) >= 8), "and a range of tokens")
is_(ends(ctx), [("prefetch", "accepted")], "of the prompt")
for payload in ({"block_hashes": ["no number"]}, {"block_hashes": 5}, {"token_range": [1]}, {"token_range": "ab"}, {"session": "s"},
                {"block_hashes": [7]}):
    ctx, _ = arrives("one", 4, ("prefetch", payload))
    is_(ends(ctx), [("prefetch", "rejected")], f"{payload}: nobody knows what that is")

# ---- demote ----

two = store("two", 10)
for i in range(3):
    store(f"between {i}", 15)
    sync()
ok(until(lambda: all(s & {below.DISK} for s in m.finder.below.tiers_of(m.finder.keys(two)))), "a prompt has copies on disk")
is_(there(two), 10, "and is in RAM")
ctx, _ = arrives("two", 10, ("demote", {}))
is_(ends(ctx), [("demote", "accepted")], "a demote of it is accepted")
ok(until(lambda: there(two) == 0), "when its request has ended, it leaves RAM")
until(lambda: m.hints.leaving.left == 10)
is_(m.hints.leaving.left, 10, "all of it")
ctx, keys = fake.prompt("two", 10)
got = m.lookup(keys[0], ctx)
is_(got.name, "HIT_PENDING", "and is found below")
m.on_schedule_end(None)
m.on_request_finished(ctx)
steward.end()
steward = tiers.Steward(name, disk=folder.name + "/disk", ahead=1)
m.finder.below.look()
sync()
new = store("new", 4)
sync()
before = sum(below.DISK in s for s in m.finder.below.tiers_of(m.finder.keys(new)))
ok(before < 4, f"the disk has {before} chunks of a prompt, as RAM does not need their room")
ctx, _ = arrives("new", 4, ("demote", {}))
is_(ends(ctx), [("demote", "clipped")], "a demote of it is clipped")
ok(until(lambda: there(new) == 0), "it is written, though RAM has room, and leaves")
is_([s & {below.DISK} for s in m.finder.below.tiers_of(m.finder.keys(new))], [{below.DISK}] * 4, "to where it was written")
ok(m.hints.leaving.asked >= 4 - before, "which was asked for")
steward.end()
m.shutdown()
done()
