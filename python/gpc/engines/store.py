# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/store-below.t t/python/long-prompts.t t/python/lmcache-adapter.t
#   t/python/vllm-figures.t t/python/sglang-storage.t
"""Objects under digests, in a cache, for the storage backends of engines.  Any thread may call it.

A digest has 32 bytes.  An object has one piece or more (bytes.py).  Each piece has a key of its own, made of the digest
and the number of the piece.  An object is there when all its pieces are.

The place of an object decides the answer (below.py has the states of a question):

    an object                        exists                     get, and pin with a deadline
    in RAM                           True                       at once
    below RAM, as the index has it   True                       waits for it, until the deadline of the call
    nowhere in the index, no store   False                      no wait
    the same, and a store            waits for its answer       waits for its answer
    of a tier that is late           False                      no wait
    bytes of another key             False, dropped             not loaded, dropped

A call has gpc_below_ms for all of its objects together.  Threads of the engine that load and look ahead make such
calls, and its scheduler never does.
"""

import logging
import threading
from collections import OrderedDict

import gpc

from .below import RAM, STORE, Below
from .bytes import Slots, copy, size_of
from .cache import POOL, close_cache
from .publisher import Publisher

log = logging.getLogger("gpc")

_MOST = 4096                     # blocks of one publish
_PART = 8                        # a call holds one of so many parts of the pool, for the objects that it has brought
_MS = 1000                       # default of gpc_below_ms
_LOOKED = 65536                  # objects that were looked for in vain
FLAT, CHAINED = 0, 1             # the publisher's groups


class Store:
    def __init__(self, cache, conf):
        """conf: its tag, its checksum, and three times.  wait_ms: how long a store may wait for room and for the
        writer.  below_ms: how long a load may wait for tiers below RAM."""
        self.c, self.conf = cache, conf
        self.slots = Slots(cache, POOL, conf.checksum)
        self.below = Below(cache, POOL, getattr(conf, "below_ms", _MS))
        self.part = max(cache.pool_get(POOL).blocks // _PART, 1)
        self.counts = dict.fromkeys(("lookups", "hits", "hits_ram", "hits_disk", "hits_store", "loaded", "bad", "stored",
                                     "duplicate", "refused", "no_room"), 0)
        self.publisher = Publisher(cache, conf, {FLAT: False, CHAINED: True}, self.counts, self._keys)
        self.publishing = threading.Lock()       # the publisher's list
        self.looking = threading.Lock()  # guards the fields below
        self.looked = OrderedDict()      # digest -> drops() of before the first question that did not find it

    def _keys(self, names):
        return self.c.key_import(b"".join(names), size=36)

    # ---- finding ----

    def keys_of(self, digest, size):
        """The keys in the cache of an object of that many bytes."""
        return _cut(self._keys([_name(digest, i) for i in range(self.slots.pieces(size))]))

    def touch(self, digests):
        """Makes them as recent as a lookup does."""
        self.release(self.pin(digests, False))

    def pin(self, digests, counts=True, until=None):
        """For each one its blocks, all referenced, or None.  counts: it is a question that statistics count; else only
        a use, as a store makes.  until: the end of the wait for blocks below RAM."""
        if not counts:
            return self._pin(digests, gpc.REF | gpc.TOUCH)
        pinned, question = self.ask(digests)
        if until is not None and None in pinned:
            self.bring(digests, pinned, until)
        self.answered(digests, pinned, question)
        return pinned

    def ask(self, digests):
        """(for each one its blocks, or None; the argument of answered()): a question, whose answer may come later."""
        since = self.c.drops()
        self.below.look()
        later = bool(self.below.mask)    # the library counts the question when it has its answer
        return self._pin(digests, gpc.REF | gpc.TOUCH if later else gpc.REF), (since, later)

    def answered(self, digests, pinned, question):
        since, later = question
        there = sum(p is not None for p in pinned)
        self.counts["lookups"] += len(digests)
        self.counts["hits"] += there
        self.counts["hits_ram"] += there
        if later and digests:
            self.c.lookup(self._keys([_name(d, 0) for d in digests]))
        self._remember([d for d, p in zip(digests, pinned) if p is None], since)

    def _pin(self, digests, flags, until=None):
        keys = self._keys([_name(d, 0) for d in digests]) if digests else b""
        first = self.c.lookup(keys, flags=flags) if digests else []
        return [self._rest(d, keys[16 * i:16 * i + 16], b, flags, until) if b >= 0 else None
                for i, (d, b) in enumerate(zip(digests, first))]

    def _from_below(self, source, hits):
        """Counts hits as those of this tier; answered() had counted them as those of RAM."""
        self.counts["hits_" + source] += hits
        self.counts["hits_ram"] -= hits
        self.c.hits_add(**{source: hits})

    def _remember(self, missed, since):
        """An engine that asks for a prompt computes the missing part from the part that is there.  The store of that
        part passes on the count of drops() before the question."""
        with self.looking:
            for d in missed:
                self.looked.setdefault(d, since)
            while len(self.looked) > _LOOKED:
                self.looked.popitem(False)

    def _since(self, digests):
        """drops() before the first question for any of these; 0: there was none."""
        with self.looking:
            return min(filter(None, [self.looked.pop(d, 0) for d in digests]), default=0)

    # ---- below RAM ----

    def deadline(self):
        """The end of the time that a call waits, if it begins now."""
        return self.below.clock() + self.below.seconds

    def may_bring(self, digests, pinned):
        """Is there any use in waiting for the missing ones?"""
        self.below.look()
        missing = [_name(d, 0) for d, p in zip(digests, pinned) if p is None]
        if not self.below.mask or not missing:
            return False
        raw = self._keys(missing)
        return any(self.below.where(raw)) or self.below.may_learn(raw)

    def bring(self, digests, pinned, until):
        """Brings the missing ones to RAM, and pins them."""
        if not self.may_bring(digests, pinned):
            return
        missing = [i for i, p in enumerate(pinned) if p is None]
        raw = [bytes(k) for k in _cut(self._keys([_name(digests[i], 0) for i in missing]))]
        where = self.below.where(b"".join(raw))
        known = [(k, s) for k, s in zip(raw, where) if s]
        if known:
            self.below.wait(b"".join(k for k, _ in known), [s for _, s in known], until, True)
        unknown = [k for k, s in zip(raw, where) if not s]
        if unknown and self.below.may_learn(unknown[0]):
            self.below.wait(b"".join(unknown), [None] * len(unknown), until)
        for i, s, p in zip(missing, where, self._pin([digests[i] for i in missing], gpc.REF | gpc.TOUCH, until)):
            pinned[i] = p
            if p is not None and s is not RAM:
                self._from_below(s or STORE, 1)

    def _exist(self, digests, found):
        """For objects that RAM does not have: found[i] becomes True where a tier has it."""
        self.below.look()
        missing = [i for i, there in enumerate(found) if not there]
        if not self.below.mask or not missing:
            return
        raw = [bytes(k) for k in _cut(self._keys([_name(digests[i], 0) for i in missing]))]
        where = self.below.where(b"".join(raw))
        if None in where and self.below.may_learn(raw[where.index(None)]):
            where = self._learn(raw, where)
        for i, k, s in zip(missing, raw, where):
            found[i] = s is not None and (s is not RAM or self._is_in_pieces(digests[i], k))
            if found[i]:                 # the load that follows brings and counts it
                self.counts["hits"] += 1
                self.counts["hits_" + s] += 1

    def _learn(self, raw, where):
        """Asks a store for the keys that the index does not know, up to the first one that the store does not have
        either."""
        until, unknown = self.deadline(), [i for i, s in enumerate(where) if s is None]
        for at in range(0, len(unknown), self.part):
            part = unknown[at:at + self.part]
            n = self.below.wait(b"".join(raw[i] for i in part), [None] * len(part), until)
            for i in part[:n]:
                where[i] = STORE
            if n < len(part):
                break
        return where

    def _is_in_pieces(self, digest, key):
        """Its first piece is in RAM, and other pieces were not: are these below?"""
        (block,) = self.c.lookup(key, flags=gpc.REF | gpc.TOUCH)
        if block < 0:
            return True                  # it has gone meanwhile
        try:
            n = self.slots.pieces(max(self.slots.total(gpc.SLOT(block), key), 0))
        finally:
            self.c.release([block])
        return n > 1 and None not in self.below.where(self._keys([_name(digest, i) for i in range(1, n)]))

    def _ask_ahead(self, digests):
        """Asks for them, so that they come while those before them are copied."""
        if not self.below.mask or not digests:
            return
        raw = self._keys([_name(d, 0) for d in digests])
        soon = [k for k, s in zip(_cut(raw), self.below.where(raw)) if s not in (None, RAM)]
        if soon:
            self.below.hint(b"".join(soon))

    # ---- objects of several pieces ----

    def _rest(self, digest, key, block, flags, until=None):
        total = self.slots.total(gpc.SLOT(block), key)
        if total < 0:
            self._bad(digest, [block])
            self.c.release([block])
            return None
        n = self.slots.pieces(total)
        if n == 1:
            return [block]
        keys = self._keys([_name(digest, i) for i in range(1, n)])
        more = self.c.lookup(keys, flags=flags)
        if min(more) < 0 and until is not None:
            where = self.below.where(keys)
            if None not in where or self.below.may_learn(keys):
                self.c.release([b for b in more if b >= 0])
                self.below.wait(keys, where, until)
                more = self.c.lookup(keys, flags=gpc.REF | gpc.TOUCH)
        if min(more) >= 0:
            return [block] + more
        self.c.release([block] + [b for b in more if b >= 0])
        return None

    def release(self, pinned):
        blocks = [b for p in pinned if p for b in p]
        if blocks:
            self.c.release(blocks)

    def exists(self, digests):
        pinned = self.pin(digests)
        self.release(pinned)
        found = [p is not None for p in pinned]
        if False in found:
            self._exist(digests, found)
        return found

    # ---- loading ----

    def get(self, digests, targets):
        """Copies each object to the parts of its target; True where that was done.  A target is untouched otherwise.
        Objects in RAM are copied and let go before others come from below, so that these have room."""
        until, done, spoiled = self.deadline(), [], []
        try:
            for at in range(0, len(digests), self.part):
                some, to = digests[at:at + self.part], targets[at:at + self.part]
                pinned = self.pin(some, True, until)
                self._ask_ahead(digests[at + self.part:at + 2 * self.part])
                try:
                    done += [p is not None and self._load(d, p, t, spoiled) for d, p, t in zip(some, pinned, to)]
                finally:
                    self.release([None if any(p is blocks for _, blocks, _ in spoiled) else p for p in pinned])
        finally:  # after its last part: where the pool takes no gaps, objects that follow go as well
            for digest, blocks, bad in spoiled:
                self._bad(digest, bad)
                self.release([blocks])
        return done

    def size(self, digest, blocks):
        """The bytes of a pinned object."""
        return self.slots.total(gpc.SLOT(blocks[0]), self._keys([_name(digest, 0)]))

    def _load(self, digest, blocks, target, spoiled):
        keys = self._keys([_name(digest, i) for i in range(len(blocks))])
        total = self.slots.total(gpc.SLOT(blocks[0]), keys[:16])
        bad = [b for i, b in enumerate(blocks)
               if not self.slots.good(gpc.SLOT(b), keys[16 * i:16 * i + 16], total)]
        if bad:
            spoiled.append((digest, blocks, bad))
            return False
        if total != size_of(target):
            log.error("gpc: %s has %d bytes, %d are wanted", digest.hex(), total, size_of(target))
            return False
        copy(target, [self.slots.piece(gpc.SLOT(b), total, i) for i, b in enumerate(blocks)])
        self.counts["loaded"] += 1
        return True

    def _bad(self, digest, blocks):
        """Drops these, so that no lookup finds them.  Objects that follow them in a chain stay, since their own bytes
        are good.  We reference them, so they have the key that we asked for."""
        self.counts["bad"] += len(blocks)
        log.error("gpc: %s: blocks %s do not have its bytes; they are dropped", digest.hex(), blocks)
        try:
            self.c.drop(blocks, flags=gpc.ONLY, timeout=0)
        except gpc.Error as e:
            log.error("gpc: drop: %s", e)

    # ---- storing ----

    def put(self, digests, objects, parents=None, fresh=None):
        """True for each object that is there afterwards.  Where there is too little room, the first ones are.  parents:
        for each one the digest before it in its prompt, or None; that object has as many pieces.  Prompts are evicted
        from their ends.  If the parent is one of digests, it comes first there.  fresh: a set that gets the digests
        that were not there."""
        pinned = self.pin(digests, False)        # held, so that room for the rest is not taken from these
        try:
            done = [p is not None for p in pinned]
            todo = list({d: i for i, d in reversed(list(enumerate(digests))) if not done[i]}.values())[::-1]
            if parents:
                before, todo = self._hanging(digests, done, todo, parents)
                pinned += before
            self._put(digests, objects, done, todo, parents)
            if fresh is not None:
                fresh.update(d for i, (d, p) in enumerate(zip(digests, pinned)) if done[i] and p is None)
            there = {digests[i] for i, good in enumerate(done) if good}
            return [d in there for d in digests]
        finally:
            self.release(pinned)

    def _hanging(self, digests, done, todo, parents):
        """(blocks that the call also has to hold, objects of todo that follow no missing object).  A prompt that is
        longer than RAM evicts its own end to make room.  Without this, a lookup would never reach the objects after the
        gap.  An object that is below as well may go."""
        there, ours = {d for d, g in zip(digests, done) if g}, {digests[i] for i in todo}
        before = list({parents[i] for i in todo if parents[i]} - there - ours)
        pinned = self.pin(before, False) if before else []
        self.below.look()
        raw = self._keys([_name(d, 0) for d in before])
        copies = self.below.sources(raw, False) if before else []
        gone = set() if before and self.below.may_learn(raw) else {
            d for d, p, s in zip(before, pinned, copies) if p is None and s is None}
        held = [p for p, s in zip(pinned, copies) if s is None]
        self.release([p for p, s in zip(pinned, copies) if s is not None])
        left = []
        for i in todo:
            if parents[i] in gone:
                gone.add(digests[i])
            else:
                left.append(i)
        self.counts["no_room"] += len(todo) - len(left)
        return held, left

    def _put(self, digests, objects, done, todo, parents):
        while todo:
            now, blocks, more = self._reserve(todo, objects)
            if now:
                good = self._store([digests[i] for i in now], [objects[i] for i in now], blocks,
                                   [parents[i] for i in now] if parents else None)
                for i, g in zip(now, good):
                    done[i] = g
            todo = todo[len(now):]
            if not more:
                break
        self.counts["no_room"] += len(todo)

    def _reserve(self, todo, objects):
        """As many of the first ones as there is room for in a call, their blocks, and whether to go on.  After too
        little room it does not go on, since more room would be taken from the objects that it has just stored."""
        counts, now = [self.slots.pieces(size_of(objects[i])) for i in todo], 0
        while now < len(todo) and sum(counts[:now + 1]) <= _MOST:
            now += 1
        if not now:                      # larger than one publish allows
            return [], [], False
        try:
            blocks = self.c.reserve(POOL, sum(counts[:now]), flags=gpc.PARTIAL, timeout=self.conf.wait_ms / 1000)
        except gpc.Error as e:
            log.debug("gpc: reserve: %s", e)
            return [], [], False
        asked = now
        while now and sum(counts[:now]) > len(blocks):
            now -= 1
        used, out = 0, []
        for n in counts[:now]:
            out.append(blocks[used:used + n])
            used += n
        self.c.release(blocks[used:])
        return todo[:now], out, now == asked

    def _store(self, digests, objects, blocks, parents):
        names = [_name(d, i) for d, b in zip(digests, blocks) for i in range(len(b))]
        keys = self._keys(names)
        at = 0
        try:
            for obj, mine in zip(objects, blocks):
                self._write(obj, mine, keys[16 * at:16 * (at + len(mine))])
                at += len(mine)
        except BaseException:
            self.c.release([b for mine in blocks for b in mine])
            raise
        return self._publish(names, blocks, parents, self._since(digests))

    def _write(self, obj, blocks, keys):
        total = size_of(obj)
        copy([self.slots.piece(gpc.SLOT(b), total, i) for i, b in enumerate(blocks)], obj)
        self.slots.seal([gpc.SLOT(b) for b in blocks], keys, total)

    def _publish(self, names, blocks, parents, since):
        """An answer that comes later than wait_ms counts as a failure here; a later call takes it."""
        before = _before(names, [len(mine) for mine in blocks], parents) if parents else None
        flat = [b for mine in blocks for b in mine]
        with self.publishing:
            sent = self.publisher.publish(CHAINED if parents else FLAT, names, flat, before, since=since)
            self.publisher.collect(self.conf.wait_ms / 1000)
        if not sent or not sent.done:
            return [False] * len(blocks)
        at, good = 0, []
        for mine in blocks:
            good.append(min(sent.resident[at:at + len(mine)]) >= 0)
            at += len(mine)
        return good

    # ---- the rest ----

    def drop(self, digests):
        """Forgets them, whichever process stored them.  Returns the bytes of each one that was there, else None."""
        pinned = self.pin(digests, False)
        try:
            sizes = [p and self.size(d, p) for d, p in zip(digests, pinned)]
            blocks = [b for p in pinned if p for b in p] + self._copies([d for d, p in zip(digests, pinned) if not p])
            if blocks:
                self.c.drop(blocks, timeout=self.conf.wait_ms / 1000)
            return sizes
        finally:
            self.release(pinned)

    def _copies(self, digests):
        """Blocks below RAM of the first pieces of those that are not in RAM.  They may go meanwhile; then a drop of
        them has no effect."""
        self.below.look()
        if not self.below.mask or not digests:
            return []
        found = self.c.lookup(self._keys([_name(d, 0) for d in digests]), spaces=self.below.mask, flags=gpc.QUIET)
        return [b for b in found if b >= 0]

    def clear(self):
        """All objects with our tag, whichever process stored them."""
        self.below.look()
        for pool in [POOL] + self.below.pools():
            self.c.pool_clear(pool, tag=self.conf.tag, timeout=self.conf.wait_ms / 1000)

    def close(self):
        if not self.c.closed:
            self.below.stop()
            with self.publishing:
                self.publisher.collect(self.conf.wait_ms / 1000)
            close_cache(self.c)


def _cut(keys):
    return [keys[at:at + 16] for at in range(0, len(keys), 16)]


def _name(digest, piece):
    return digest + piece.to_bytes(4, "big")


def _before(names, counts, parents):
    """For each piece the name before it.  That is the name of the object's piece before; for the first piece it is that
    of the parent's last piece, or None."""
    out = []
    for n, parent in zip(counts, parents):
        out += [parent and _name(parent, n - 1)] + names[len(out):len(out) + n - 1]
    return out
