# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm and store_threshold: a chunk is stored when it is offered often enough, by whichever engine; until then nobody
claims it, or waits for it, and the table that counts is bounded."""

import logging

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.vllm.finder  # noqa: E402
from gpc.vllm import GPCOffloadingSpec  # noqa: E402
from tap import _made, done, is_, name, ok  # noqa: E402

gpc.vllm.finder.ASK = 60
HIT, MISS, PENDING = fake.LookupResult.HIT, fake.LookupResult.MISS, fake.LookupResult.HIT_PENDING
EXTRA = {"gpc_weights": "w", "gpc_bytes": (64 + 200) * 4096, "gpc_free_target": -1, "gpc_stock": 0, "gpc_pending_ms": 60000}
engines = []


def manager(threshold, suffix="", **more):
    _made.add(name + suffix)
    m = GPCOffloadingSpec(fake.config({**EXTRA, "gpc_name": name + suffix, "store_threshold": threshold, **more})).get_manager()
    m.set_chained({0: True})
    engines.append(m)
    return m


def run(m, text, chunks=4):
    """A request: what it finds, what it claims, and how many chunks it stores."""
    ctx, keys = fake.prompt(text, chunks)
    found = 0
    while found < chunks and m.lookup(keys[found], ctx) is HIT:
        found += 1
    m.finder.asker.settle(60)
    claims = m.c.stats(m.c.info().peer).claims
    m.on_schedule_end(None)
    out = fake.offer(m, keys, ctx)
    again = fake.offer(m, keys, ctx)             # vLLM asks again: that is no other offer
    m.complete_store(set(out.keys_to_store), ctx)
    m.finder.asker.settle(60)
    m.publisher.collect(60)
    m.on_request_finished(ctx)
    m.on_schedule_end(None)
    m.finder.asker.settle(60)
    m.c.ticket_wait()
    ok(not again.keys_to_store, "nothing is stored twice")
    return found, claims, len(out.keys_to_store)


a, b = manager(2), manager(2)
is_(run(a, "one"), (0, 0, 0), "a prompt that comes first is not stored, and nobody is to wait for it")
is_(a.counts["seldom"], 4, "which is counted")
is_(run(b, "one"), (0, 4, 4), "by another engine it comes a second time: claimed, and stored")
is_(run(a, "one"), (4, 0, 0), "and is found")
is_(run(a, "one", 6), (4, 0, 0), "it goes on: what is new comes first")
is_(run(a, "one", 6), (4, 2, 2), "and then again")
is_(a.c.stats().live, 6, "six chunks are there")
c = manager(4)
is_([run(x, "four")[2] for x in (c, c, c, c)], [0, 0, 0, 4], "a threshold of four")
d = manager(1)
is_(run(d, "at once")[2], 4, "of one: at once")

# the table is bounded: offers of long ago are forgotten, and then begin anew
most = a.c.info().max_aliases
ok(most >= 64000, "offers of so many chunks are counted")
small = manager(2, "-s")
small.c.close()
gpc.unlink(name + "-s")
gpc.engines.cache._OFFERED = 64
small = manager(2, "-s", gpc_bytes=(64 + 1) * 4096 + 4096 * 30)
ok(small.c.info().max_aliases <= 128, "a small table")
run(small, "early", 8)
for i in range(60):
    run(small, f"other {i}", 8)
is_(small.c.stats().live, 0, "prompts that come once store nothing")
is_(run(small, "early", 8)[2] < 8, True, "an offer of long ago is forgotten")
is_(run(small, "early", 8)[2] > 0, True, "and one of just now is not")

# a cache without a table
_made.add(name + "-n")
none = gpc.create(name + "-n", serve=True, layout=a.where.layout, block_tokens=16, ram_blocks=40, ram_flags=gpc.POOL_UNCHAINED,
                  block_bytes=a.c.pool_memory(0).block_bytes, max_blocks=104, keep_digests=1, max_aliases=-1)
said, keep = [], logging.Handler()
keep.emit = lambda record: said.append(record.getMessage())
logging.getLogger("vllm.gpc").addHandler(keep)
m = manager(2, "-n")
is_((run(m, "one")[2], len([t for t in said if "store_threshold" in t])), (4, 1), "without one all is stored, with a warning")
for m in engines:
    if not m.c.closed:
        m.shutdown()
none.close()
done()
