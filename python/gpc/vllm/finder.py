# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-figures.t t/889-vllm-manager.t
"""What a lookup answers: keys that are pinned, keys that somebody else computes, keys to compute here.

Rules that keep engines from starving each other: a request that waits holds no claim and no reserved block of its
own, and waits once, until its deadline.  A claim is held by the request that computes its key, until the store
takes it over or the request ends.
"""

import array
import time

import gpc

from .cache import POOL

HIT, MISS, PENDING = "HIT", "MISS", "HIT_PENDING"
ASK = 0.05                       # seconds that the scheduler may wait for the writer


class Request:
    """Of one request, kept in its context."""
    __slots__ = ("pins", "loading", "memo", "waiting", "waits_for", "deadline", "gave_up", "generation", "salt", "lora",
                 "files", "apart", "failed", "counted")

    def __init__(self, generation, apart=False):
        self.pins = {}           # key -> block, referenced by a lookup of this step
        self.loading = {}        # key -> [block, jobs], referenced by loads under way
        self.memo = {}           # key -> answer in this step: the scheduler asks again and again
        self.waiting = None      # the claim of another peer that this request sleeps for ...
        self.waits_for = ()      # ... and the keys that are pending with it
        self.deadline = None     # of all waits of this request
        self.gave_up = False
        self.generation = generation
        self.salt = None         # of its keys, from its first question on
        self.lora, self.files = None, None       # its adapter, and the state of the adapter's files
        self.counted = set()     # groups of full attention, and keys of others, that were looked up: see _count
        self.failed = set()      # keys whose load has failed: none for this request from then on
        self.apart = apart       # nobody knows of which weights its KV is: it finds and stores nothing


class Finder:
    def __init__(self, cache, conf, groups, counts, clock=time.monotonic):
        self.c, self.conf, self.counts, self.clock = cache, conf, counts, clock
        self.chained = groups    # the manager's, which may learn more
        self.peer = cache.info().peer
        self.salt = b""          # of the namespace
        self.ahead = {}          # key -> [request, block]: claimed, not yet stored
        self.most_ahead = cache.pool_get(POOL).blocks // 4
        self.step = set()        # requests with pins or memos of this step
        self.in_vain = False     # this step has waited ASK for the writer, without an answer

    def keys(self, offload_keys, salt=None):
        """An OffloadKey is a block hash and a group; both go into the gpc key, behind the salt of a request, or of
        the namespace."""
        if salt is None:
            salt = self.salt
        return self.c.key_import(b"".join([salt + k for k in offload_keys]), size=len(salt) + len(offload_keys[0]))

    def ask(self, call, *args, **more):
        """A call that the writer has to answer.  It may be busy, or a new one about to take over; a step that has
        waited in vain asks no more, so that one with many requests waits no longer than one with one."""
        if self.in_vain:
            raise gpc.TimedOut("the writer has not answered in this step")
        try:
            return call(*args, timeout=ASK, **more)
        except (gpc.TimedOut, gpc.NotConnected):
            self.in_vain = True
            raise

    def lookup(self, key, req, positions):
        if req.apart or key in req.failed:
            return MISS
        if key in req.pins or key in req.loading:
            return HIT
        if key not in req.memo:
            self.step.add(req)
            if self.chained.get(_group(key), False):
                self._prefix(key, req, positions)
            else:
                self._single(key, req)
        return HIT if key in req.pins else req.memo[key]

    def _single(self, key, req):
        """Window and state groups have holes, so each key is by itself, and nobody waits for one."""
        new = key not in req.counted
        (block,) = self.c.lookup(self.keys([key], req.salt), flags=gpc.REF | (0 if new else gpc.TOUCH))
        if block < 0:
            req.memo[key] = MISS
        else:
            req.pins[key] = block
        if new:
            req.counted.add(key)
            self._count(1, block >= 0)

    def _count(self, looked, hits):
        """A request is one question, however often the scheduler asks before it has room for it, and after a load that
        failed: so hits are those of vLLM.  The library counts the same ones."""
        self.counts["lookups"] += looked
        self.counts["hits"] += hits
        self.counts["hits_ram"] += hits

    def _prefix(self, key, req, positions):
        """One call for the rest of the prompt.  What is found is referenced before anybody hears of it."""
        at, group = positions.get(key), _group(key)
        rest = [key] if at is None else sorted(
            (k for k, p in positions.items() if p >= at and _group(k) == group and k not in req.pins and
             k not in req.memo and k not in req.loading), key=positions.__getitem__)
        if req.failed:           # nothing behind one is of use
            rest = rest[:next((i for i, k in enumerate(rest) if k in req.failed), len(rest))]
        keys = self.keys(rest, req.salt)
        blocks = self.c.acquire(keys, flags=gpc.QUIET if req.waiting else gpc.TOUCH)
        req.pins.update(zip(rest, blocks))
        missed = rest[len(blocks):]
        if not missed or not self._wait_or_claim(missed, keys[16 * len(blocks):], req):
            req.memo.update((k, MISS) for k in missed if k not in req.pins)
            self._count_prefix(group, rest, keys, req)

    def _count_prefix(self, group, rest, keys, req):
        """When the answer is no wait."""
        if group in req.counted or not rest:
            return
        req.counted.add(group)
        found = array.array("I", [0])
        self.c.match(keys, array.array("I", [0, len(rest)]), lens=found, out=array.array("i", bytes(4 * len(rest))))
        self._count(len(rest), found[0])

    # ---- claims ----

    def _wait_or_claim(self, missed, keys, req):
        """True: the memo has the answers.  The first key decides: pending elsewhere, or ours to compute."""
        if not self.conf.claim_chunks or req.gave_up:
            return False
        if req.waiting and missed[0] in req.waits_for:
            if self._still_pending(req):
                self._remember(missed, req)
                return True
            if req.gave_up:
                return False
        req.waiting, req.waits_for = None, ()
        if missed[0] in self.ahead:      # another request of this engine computes it: vLLM knows that
            return False
        n = min(len(missed), self.conf.claim_chunks, self.most_ahead - len(self.ahead))
        return n > 0 and self._claim(missed[:n], keys[:16 * n], missed, req)

    def may_wait(self, req):
        """Has this request time left, of all its waits together?"""
        if req.gave_up or not self.conf.pending_ms:
            return False
        if req.deadline is None:
            req.deadline = self.clock() + self.conf.pending_ms / 1000
            self.counts["waited"] += 1
        if self.clock() < req.deadline:
            return True
        req.gave_up, req.waiting = True, None
        self.counts["gave_up"] += 1
        return False

    def _still_pending(self, req):
        if self.may_wait(req):
            try:
                self.c.claim_wait([req.waiting], 0)
            except gpc.Again:
                return True
            except gpc.Error:
                pass
        return False

    def _remember(self, missed, req):
        req.memo.update((k, PENDING if k in req.waits_for else MISS) for k in missed)

    def _claim(self, mine, keys, missed, req):
        blocks = []
        try:
            blocks = self.ask(self.c.reserve, POOL, len(mine), flags=gpc.PARTIAL)
            claims = self.ask(self.c.claim, keys[:16 * len(blocks)], blocks) if blocks else []
        except gpc.Error:                # no room, no writer, a busy one: compute, claim nothing
            claims = []
        first = claims[0] if claims else None
        keep = 0
        if first and first.state == gpc.CLAIM_MINE:
            while keep < len(claims) and claims[keep].state == gpc.CLAIM_MINE:
                self.ahead[mine[keep]] = [req, blocks[keep]]
                keep += 1
        self.c.release(blocks[keep:])
        if first and first.state == gpc.CLAIM_PENDING and first.peer != self.peer and self.may_wait(req):
            req.waiting = first
            req.waits_for = {k for k, c in zip(mine, claims) if c.state == gpc.CLAIM_PENDING}
            self._remember(missed, req)
            return True
        if first and first.state == gpc.CLAIM_LIVE:      # published since we looked
            req.pins.update(zip(mine, self.c.acquire(keys, flags=gpc.TOUCH)))
        return False

    # ---- ends ----

    def take_ahead(self, key, req):
        """The block that is claimed for this key, salt included."""
        if key not in self.ahead or self.ahead[key][0].salt != req.salt:
            return None
        return self.ahead.pop(key)[1]

    def drop_ahead(self, req=None):
        """The claims of a request that has ended, or all."""
        gone = [k for k, (r, _) in self.ahead.items() if req is None or r is req]
        self.c.release([self.ahead.pop(k)[1] for k in gone])

    def unpin(self, req):
        if req.pins:
            self.c.release(list(req.pins.values()))
            req.pins.clear()
        req.memo.clear()

    def end_step(self):
        for req in self.step:
            self.unpin(req)
        self.step.clear()
        self.in_vain = False


def _group(key):
    return int.from_bytes(key[-4:], "big")
