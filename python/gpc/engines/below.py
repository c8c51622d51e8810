# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-below.t t/python/store-below.t t/python/vllm-hints.t
"""Tiers below RAM, as an engine sees them: which keys they have, and keys that an engine asks them for.

The index knows which keys a disk has, and which ones this machine has put into a store or found there.  Other machines
may fill a store, and then only a question tells more.  A question (gpc_prefetch) holds nothing: its results are in the
index.  Threads ask it, THREADS at a time, so a scheduler's step waits for no tier.

    a question                              of its keys is told          its end
    none is asked: nothing is below         MISS, at once
    waits for a thread, or for the tiers    pending                      its answer, or its deadline
    some keys came                          HIT for these, pending       as above
                                            for the others
    all came                                HIT                          answered
    the tiers have no more of it            HIT, then MISS               answered
    its deadline has passed                 HIT, then MISS               the tiers leave it then, too; its thread ends it
    the steward of the tiers has ended      HIT, then MISS               answered; the next look finds no tier
    its request has ended                   nobody asks                  it is not begun, or ends as ever
    the cache is closed                     nobody asks                  by its deadline, before the handle goes

A tier that brought nothing by the deadline of a question is late, and no request waits for it.  Now and then one
question of one key goes to it, for no request.  An answer to that question ends the lateness.

    a tier           a question of its keys
    prompt           is asked
    late             is not, but for one key, PAUSE after the last one, twice as long each time, at most MOST_PAUSE
    down, stopped    is not: the library says so (gpc_tier_get)
"""

import logging
import queue
import threading
import time

import gpc

log = logging.getLogger("gpc")

RAM, DISK, STORE = "ram", "disk", "store"
ALL = frozenset((RAM, DISK, STORE))
THREADS = 3                      # of the four questions that a handle has under way
LOOK = 0.5                       # seconds between looks at which tiers there are
PAUSE, MOST_PAUSE = 1.0, 30.0    # seconds until a late tier is tried again
_FULL = 0.002                    # seconds until a question is tried again where four are under way
_END = 0.01  # seconds before a deadline that count as after it, since the steward has the same deadline
_KINDS = {gpc.DISK: DISK, gpc.REMOTE: STORE}


class Question:
    """A question about the keys of one prompt, in its order.  sources: where the index has each key; None: only a store
    can tell."""
    __slots__ = ("raw", "sources", "since", "until", "over", "done", "got", "ended", "holes", "probe")

    def __init__(self, raw, sources, since, until, holes=False, probe=None):
        self.raw, self.sources, self.since, self.until = raw, sources, since, until
        self.over = False        # no request wants it any more
        self.done = False        # it has its answer; its first `got` keys are in RAM, or were
        self.got, self.ended, self.holes, self.probe = 0, None, holes, probe

    def is_open(self, now):
        return not self.done and now < self.until


class Below:
    def __init__(self, cache, pool, ms, clock=time.monotonic):
        """pool: the pool that blocks are brought to.  ms: the deadline of a question; 0: no question is asked."""
        self.c, self.pool, self.seconds, self.clock = cache, pool, ms / 1000, clock
        self.space = cache.pool_get(pool).space
        self.mask, self.stores, self.of_pool, self.space_of, self.stewards, self.kinds = 0, 0, {}, {}, frozenset(), frozenset()
        self.late = {}           # kind -> [when it is tried next, pause, question that tries it]
        self.counts = {"asked": 0, "late": 0}
        self.queue, self.threads, self.lock = queue.SimpleQueue(), [], threading.Lock()
        self.looked = None
        self.look()

    # ---- the tiers that there are ----

    def look(self):
        """Looks now and then: a tier may come and go while an engine runs."""
        now = self.clock()
        if not self.seconds or self.looked is not None and now - self.looked < LOOK:
            return
        self.looked = now
        mask, of_pool, space_of, stewards, i = 0, {}, {}, set(), 0
        while (t := self._tier(i)) is not None:
            i += 1
            if t.steward >= 0:      # stopped, it has its claims still
                stewards.add(t.steward)
            if t.kind in _KINDS and t.steward >= 0 and t.pool >= 0 and t.state == gpc.TIER_UP:
                space_of[t.pool] = self.c.pool_get(t.pool).space
                mask |= 1 << space_of[t.pool]
                of_pool[t.pool] = _KINDS[t.kind]
        if mask:
            mask |= 1 << self.space
            of_pool[self.pool] = RAM
        self.space_of, self.of_pool, self.stewards, self.kinds = space_of, of_pool, frozenset(stewards), frozenset(of_pool.values()) - {RAM}
        self.stores = sum(1 << space_of[p] for p in space_of if of_pool[p] is STORE)
        self.mask = mask         # stored last: a thread that sees it sees the others

    def _tier(self, i):
        try:
            return self.c.tier(i)
        except gpc.Error:        # past the last
            return None

    def sources(self, raw, ram=True):
        """Where the index has each key; None: nowhere.  ram: False to pass over keys in RAM.  A disk comes before a
        store, as it does for the steward, whatever their spaces are."""
        mask = self.mask if ram else self.mask & ~(1 << self.space)
        out = self._found(raw, mask & ~self.stores)
        if None in out and mask & self.stores:
            out = [s or t for s, t in zip(out, self._found(raw, mask & self.stores))]
        return out

    def _found(self, raw, mask):
        of = self.of_pool
        if not mask:
            return [None] * (len(raw) // 16)
        return [of.get(gpc.POOL(b)) if b >= 0 else None for b in self.c.lookup(raw, spaces=mask, flags=gpc.QUIET)]

    def where(self, raw):
        """The same for a request that waits: None also where requests do not wait for that tier."""
        return [None if s is None or s is not RAM and not self._is_prompt(s, raw[16 * i:]) else s
                for i, s in enumerate(self.sources(raw))]

    def may_learn(self, raw):
        """May a store have keys that the index does not know of?"""
        return STORE in self.kinds and self._is_prompt(STORE, raw)

    def pools(self):
        """The pools of the tiers."""
        return [p for p in self.of_pool if p != self.pool]

    def tiers_of(self, raw):
        """For each key the set of all its places."""
        ram = self.c.lookup(raw, spaces=1 << self.space, flags=gpc.QUIET)
        out = [{RAM} if b >= 0 else set() for b in ram]
        for pool, kind in self.of_pool.items():
            if pool != self.pool:
                for i, b in enumerate(self.c.lookup(raw, spaces=1 << self.space_of[pool], flags=gpc.QUIET)):
                    if b >= 0:
                        out[i].add(kind)
        return out

    def may_come(self, raw, allowed=ALL):
        """How far a prompt that is not in RAM may come from below: the sources of its first keys."""
        if not self.mask:
            return []
        unsure = STORE in self.kinds and STORE in allowed and self._is_prompt(STORE, raw)
        ram = RAM in allowed
        if not unsure and self.sources(raw[:16], ram) == [None]:
            return []
        out = self.sources(raw, ram)
        if STORE in allowed and DISK not in allowed and DISK in out:
            out = [t if s is DISK and t else s for s, t in zip(out, self._found(raw, self.stores))]
        for i, s in enumerate(out):
            if s is None and not unsure or s in (DISK, STORE) and (s not in allowed or not self._is_prompt(s, raw[16 * i:])):
                return out[:i]
        return out

    # ---- late tiers ----

    def _is_prompt(self, kind, raw):
        """If it is late, it may be tried, with the first of these keys."""
        late = self.late.get(kind)
        if late is None:
            return True
        now = self.clock()
        if now >= late[0] and (late[2] is None or late[2].done):
            late[0], late[1] = now + late[1], min(2 * late[1], MOST_PAUSE)
            late[2] = self._begin(Question(bytes(raw[:16]), [kind], now, now + max(self.seconds, 0.001), probe=kind))
        return False

    def _judge(self, q, at, now):
        """Notes the answer of a question.  at: the key that it stopped at.  A tier has answered if it has brought keys,
        or has said in time that it lacks that key."""
        here = set(q.sources[:at])
        stopped = (q.sources[at] or STORE) if at < len(q.sources) else None
        with self.lock:
            if stopped in (DISK, STORE) and now >= q.until - _END and stopped not in here and not (stopped == STORE and None in here):
                self.counts["late"] += 1
                if stopped not in self.late:
                    self.late[stopped] = [now + PAUSE, PAUSE, None]
                    log.warning("gpc: the tier below RAM (%s) has brought nothing in %d ms: nobody waits for it until it answers",
                                stopped, round(1000 * (q.until - q.since)))
                return
            if now < q.until - _END and stopped:
                here.add(stopped)
            for kind in here & self.late.keys():
                del self.late[kind]
                log.warning("gpc: the tier below RAM (%s) answers again", kind)

    # ---- asking ----

    def ask(self, raw, sources, until, holes=False):
        """Asks for the keys that these sources belong to.  holes: each key by itself, so keys after one that is nowhere
        are asked for as well.  A thread asks."""
        self.counts["asked"] += 1
        return self._begin(Question(bytes(raw[:16 * len(sources)]), sources, self.clock(), until, holes))

    def _begin(self, q):
        if len(self.threads) < THREADS:
            t = threading.Thread(target=self._run, name="gpc-below", daemon=True)
            self.threads.append(t)
            t.start()
        self.queue.put(q)
        return q

    def wait(self, raw, sources, until, holes=False):
        """The same in this thread, which may wait.  Returns how many of the first keys came."""
        self.counts["asked"] += 1
        q = Question(bytes(raw[:16 * len(sources)]), sources, self.clock(), until, holes)
        self._answer(q)
        return q.got

    def hint(self, raw):
        """These keys will be wanted: they are asked for without a deadline, at once, and not waited for.  Returns how
        many of the first ones are in RAM now; None: not asked."""
        try:
            return self.c.prefetch(self.pool, raw, timeout=0)
        except gpc.Error as e:           # four questions are under way, or no process keeps the tiers
            log.debug("gpc: prefetch: %s", e)
            return None

    def _run(self):
        while (q := self.queue.get()) is not None:
            self._answer(q)

    def _answer(self, q):
        at = 0
        try:
            if not q.over and self.clock() < q.until:
                at = self._ask(q)
                self._judge(q, at, self.clock())
        except Exception:
            log.exception("gpc: below")
        q.got, q.ended = at, self.clock()
        q.done = True

    def _ask(self, q):
        at, n, got = 0, len(q.sources), 0
        while at < n and (left := q.until - self.clock()) > 0:
            try:
                got = self.c.prefetch(self.pool, q.raw[16 * at:], timeout=max(left, 0.001))
            except gpc.Again:
                time.sleep(min(_FULL, left))
                continue
            except gpc.Error as e:       # its steward has ended
                log.debug("gpc: prefetch: %s", e)
                self.looked = None
                break
            at += got
            if at >= n or not q.holes:
                break
            if self.clock() < q.until:
                at += 1
        return at

    def stop(self):
        """The handle may be closed after that."""
        while True:
            try:
                q = self.queue.get_nowait()
            except queue.Empty:
                break
            if q is not None:
                q.over = q.done = True
        for _ in self.threads:
            self.queue.put(None)
        for t in self.threads:
            t.join()
        self.threads.clear()
