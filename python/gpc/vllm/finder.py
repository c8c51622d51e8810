# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-figures.t t/python/vllm-seen.t t/python/vllm-below.t t/python/vllm-loads.t
#   t/python/vllm-step.t t/python/vllm-manager.t
"""The answers to lookups: keys that are pinned, keys that are below RAM, keys that another process computes, keys to
compute here.

Some rules keep engines from starving each other.  A request that waits holds no claim and no reserved block of its
own.  It waits once, until its deadline.  A claim begins when vLLM has blocks for all that the request computes.  It is
held by the request that computes its key, also while it is preempted, until the store takes it over or the request ends.

A prompt is looked for in RAM, then below it, then it is claimed.  Each step of vLLM asks anew, so the lookup that says
HIT pins the blocks that have come.  Questions to the tiers (engines/below.py has their states):

    a request                     its question                     it is told, of keys that RAM lacks
    no tier has the first key     none                             as without tiers: no wait
    a tier has some               asked, until gpc_below_ms        HIT_PENDING of these, MISS after them
    only a store can tell         asked as well                    RETRY: it is not known yet whether it is there
    asks again, it is open        the same                         the same, but HIT for keys that came
    asks again, it has ended      none: no second one of a key     MISS, and it is claimed and computed
    has waited gpc_below_ms       none any more                    MISS
    the tier is late              none                             MISS
    is aborted, or finishes       its answer is ignored            nothing
    is preempted, and asks anew   a new one, in the time left      as above
    sleeps, is reset              none: another Request asks       as a request that begins

The steward of the tiers claims the blocks that it brings for others.  No request waits for these claims, since only
questions have deadlines that hold for tiers.
"""

import array
import itertools
import time
import types

import gpc

from ..engines.below import ALL, DISK, RAM, STORE, Below
from .asker import Asker
from .cache import POOL
from .seen import Seen

HIT, MISS, PENDING, RETRY = "HIT", "MISS", "HIT_PENDING", "RETRY"
ASK = 1.0                        # seconds that the asker waits for the writer; the scheduler does not wait
_NOTHING = types.MappingProxyType({})     # most requests have none of these
RUN = 64                         # keys that are imported anew rather than found one by one
PAUSE = 0.05                     # seconds from an answer with too few blocks to the next question for such a request


class Request:
    """The state of one request, kept in its context."""
    __slots__ = ("pins", "loading", "again", "run", "memo", "waiting", "waits_for", "deadline", "gave_up", "generation", "salt", "lora",
                 "files", "until", "apart", "left_out", "failed", "loaded", "counted", "over", "refused", "missing",
                 "raw", "places", "rest", "wants", "claimed", "offered", "going", "question", "since", "unread", "allowed", "below", "came",
                 "left", "waits_since", "wanted", "ends")

    def __init__(self, generation, apart=False, allowed=ALL, since=0, left=0.0):
        self.allowed = allowed   # by its kv_load_tiers
        self.below = _NOTHING    # key -> (question, answer until it ends): the tiers were asked for it
        self.came = _NOTHING     # key -> tier that it was asked for
        self.left = left         # seconds that it may still wait for tiers ...
        self.waits_since = None  # ... and the time since when it waits
        self.wanted = None       # group -> keys that are asked for one by one at the end of this step
        self.ends = None         # group of such keys -> where a lookup of this step has begun
        self.since = since       # blocks that were dropped from then on may be inputs of its KV ...
        self.unread = set()      # ... but for these, whose load has failed, and those after them
        self.pins = {}           # key -> block, referenced by a lookup of this step
        self.loading = {}        # key -> block, referenced by loads under way
        self.again = {}          # key -> loads under way beside the first one
        self.memo = {}           # key -> answer in this step: the scheduler asks again and again
        self.waiting = None      # the claim of another peer that this request waits for ...
        self.waits_for = ()      # ... and the keys that are pending with it
        self.deadline = None     # the time of all waits of this request
        self.gave_up = False
        self.generation = generation
        self.salt = None         # salt of its keys, from its first question on
        self.lora, self.files = None, None       # its adapter, and the state of the adapter's files
        self.until = None        # the adapter is asked for: when its lookups stop waiting
        self.offered = {}        # key -> whether it is stored: see Seen
        self.wants = {}          # group -> keys, and gpc keys, of its last question that it claims when it is computed
        self.claimed = set()     # keys that it has, or had, ahead
        self.raw, self.run, self.places = {}, ([], b""), {}      # see keys_of, before
        self.rest = ()           # see _rest: key, number of positions, and the answer
        self.over = False        # it has ended, and its requested blocks are given back
        self.refused = set()     # keys that a store asked for, and that another process computes
        self.missing = set()     # keys that a store asked for, and that have no block yet: see Shortage
        self.question = {}       # group -> keys of the last lookup, that are not counted yet: see count_asked
        self.counted = set()     # groups of full attention, and keys of others, that were looked up: see _count
        self.failed = set()      # keys whose load has failed: from then on this request does not find them
        self.loaded = {}         # key -> number of loads, where failed loads are not reported
        self.left_out = not allowed
        self.going = set()       # these, and those that follow them: a worker drops them, which may take effect later
        self.apart = apart       # the weights of its KV are not known: it finds and stores nothing


class Shortage:
    """A store that gets fewer blocks than it asks for asks again, as long as its request lives.

        a key of a store            then                                         next
        has a block                 the store of this step takes it
        is asked for                the answer brings a block                    it has one
        is asked for                the answer brings fewer: the cache was full  it is short
        is short                    the stock of this engine has one             it has a block
        is short                    the cache has room, PAUSE after the answer   it is asked for
        after a key of its prompt   its block is kept                            it is stored after that
          that has no block
        has none at the end of      counted as not stored
          its request

    Without GPCConnector no key is offered again, so a key that is short then is not stored."""

    def __init__(self, cache, clock):
        self.c, self.clock, self.again = cache, clock, 0.0

    def note(self):
        """An answer had fewer blocks than the question asked for."""
        self.again = self.clock() + PAUSE

    def room(self, asked):
        """The number of further keys that are worth a question to the writer, beside those that are asked for."""
        return max(self.c.pool_available(POOL) - asked, 0) if self.clock() >= self.again else 0


class Finder:
    def __init__(self, cache, conf, groups, counts, clock=time.monotonic):
        self.c, self.conf, self.counts, self.clock = cache, conf, counts, clock
        self.chained = groups    # the manager's list, which may grow
        self.peer = cache.info().peer
        self.salt = b""          # salt of the namespace
        self.ahead = {}          # key -> (request, block): claimed, not yet stored
        self.most_ahead = cache.pool_get(POOL).blocks // 4
        self.asker = Asker()
        self.below = Below(cache, POOL, conf.below_ms, lambda: self.clock())
        self.windows = {}        # group -> chunks that vLLM needs of it; GPCConnector tells
        self.seen = Seen(cache, conf, self.asker, ASK)
        self.shortage = Shortage(cache, lambda: self.clock())
        self.storing = ()        # the manager's
        self.step_tokens = {}    # the manager's, too
        self.told_of_blocks = bool       # the manager's: is count_asked called?
        self.asked = {}          # key -> request that gets ahead when the writer has answered
        self.epoch = 0           # of keys that are ahead, or asked for; drop_ahead for all ends an epoch
        self.any_block = [gpc.BLOCK(POOL, 0)]
        self.step = set()        # requests with pins or memos of this step

    def keys(self, offload_keys, salt=None):
        """An OffloadKey is a block hash and a group.  Both go into the gpc key, after the salt of a request or of the
        namespace."""
        if salt is None:
            salt = self.salt
        return self.c.key_import(salt + salt.join(offload_keys), size=len(salt) + len(offload_keys[0]))

    def keys_of(self, offload_keys, req):
        """The keys of a request, which asks for each of them several times.  The longest list of its keys is kept by
        itself, since a dictionary of a long prompt costs more than its keys."""
        raw, (run, of_run), n = req.raw, req.run, len(offload_keys)
        if n <= len(run) and offload_keys == (run if n == len(run) else run[:n]):
            return of_run[:16 * n]
        try:
            return b"".join([raw[k] for k in offload_keys])
        except KeyError:
            pass
        if req.salt is None:     # and not that of the namespace
            raise KeyError("nobody knows the adapter of this request yet: no lookup of this step said HIT")
        made = bytes(self.keys(offload_keys, req.salt))
        if n >= RUN:
            if n > len(run):
                req.run = list(offload_keys), made
            return made
        for i, k in enumerate(offload_keys):
            raw[k] = made[16 * i:16 * i + 16]
        return made

    def before(self, key, place, positions, req):
        """The key of its group whose chunk ends at that place of the prompt, or None."""
        if place <= 0:
            return None
        if len(positions) > len(req.places):     # keys are only added
            req.places.update(((k[-4:], p), k) for k, p in itertools.islice(positions.items(), len(req.places), None))
        return req.places.get((key[-4:], place))

    def lookup(self, key, req, positions):
        if req.apart or req.left_out or key in req.failed:
            return MISS
        if key in req.pins or key in req.loading:
            return HIT
        if key not in req.memo:
            self.asker.take()
            self.step.add(req)
            if self.chained.get(_group(key), False):
                self._prefix(key, req, positions)
            else:
                self._single(key, req, positions)
        return HIT if key in req.pins else req.memo[key]

    def _single(self, key, req, positions):
        """Window and state groups have holes, so each key counts by itself, and no request waits for one that is being
        computed."""
        new, raw = key not in req.counted, self.keys_of([key], req)
        (block,) = self.c.lookup(raw, flags=gpc.REF | (0 if new else gpc.TOUCH)) if self._may_have(raw, req) else (-1,)
        if self.below.mask:
            if req.ends is None:
                req.ends = {}
            req.ends.setdefault(_group(key), positions.get(key, 0))
        if block >= 0:
            req.pins[key] = block
        else:
            req.memo[key] = self._single_below(key, raw, req, positions) if self.below.mask else MISS
            new = new and req.memo[key] is MISS          # else there is no answer yet
        if new:
            req.counted.add(key)
            self._count(1, [key] if block >= 0 else [], req)

    def _count(self, looked, found, req):
        """A request is one question, however often the scheduler asks before it has room for the request, and after a
        load that failed.  So hits are counted as vLLM counts them, and the library counts the same ones."""
        self.counts["lookups"] += looked
        self.counts["hits"] += len(found)
        self.counts["hits_ram"] += len(found)
        if req.came:
            sources = [req.came.get(k) for k in found]
            disk, store = sources.count(DISK), sources.count(STORE)
            self.counts["hits_ram"] -= disk + store
            self.counts["hits_disk"] += disk
            self.counts["hits_store"] += store
            self.c.hits_add(disk=disk, store=store)

    def _may_have(self, raw, req):
        """The number of the first ones that the request may load, by its kv_load_tiers."""
        n = len(raw) // 16
        if RAM in req.allowed:
            return n
        return next((i for i, s in enumerate(self.below.tiers_of(raw)) if not s & req.allowed), n)

    def _prefix(self, key, req, positions):
        """One call for the rest of the prompt.  Found blocks are referenced before the answer is given."""
        group, rest, keys = _group(key), *self._rest(key, req, positions)
        mine = keys if RAM in req.allowed else keys[:16 * self._may_have(keys, req)]
        blocks = self.c.acquire(mine, flags=gpc.QUIET if req.waiting else gpc.TOUCH)
        req.pins.update(zip(rest, blocks))
        missed = rest[len(blocks):]
        if missed and self.below.mask and self._prefix_below(missed, keys[16 * len(blocks):], req):
            return
        if not missed or not self._wait_or_claim(missed, keys[16 * len(blocks):], req):
            req.memo.update(dict.fromkeys(missed, MISS))     # lookups ask for pins first
            self._count_prefix(group, rest, keys, req)

    def _rest(self, key, req, positions):
        """Keys of the prompt from this one on, and their gpc keys.  A request that vLLM has no blocks for asks in each
        step, mostly for the same ones."""
        whole = not (req.pins or req.memo or req.loading or req.failed)
        if whole and req.rest[:2] == (key, len(positions)):
            return req.rest[2:]
        at, pins, memo, loading = positions.get(key), req.pins, req.memo, req.loading
        rest = [key] if at is None else [k for k, p in positions.items() if p >= at]
        if len(self.chained) > 1:
            rest = [k for k in rest if k[-4:] == key[-4:]]
        if not whole:
            rest = [k for k in rest if k not in pins and k not in memo and k not in loading]
        rest.sort(key=positions.get)
        if req.failed:           # keys after one of these are of no use
            rest = rest[:next((i for i, k in enumerate(rest) if k in req.failed), len(rest))]
        keys = self.keys_of(rest, req)
        if whole:
            req.rest = key, len(positions), rest, keys
        return rest, keys

    def _count_prefix(self, group, rest, keys, req):
        """Called when the answer is no wait."""
        if group in req.counted or not rest:
            return
        req.question[group] = rest, keys
        if not self.told_of_blocks():
            self.count_asked(req)

    def count_asked(self, req):
        """Counts when the request has its blocks, as vLLM does.  Until then it may ask again and again, and find more,
        or find them in its own prefix cache."""
        for group, (rest, keys) in req.question.items():
            if group not in req.counted:
                req.counted.add(group)
                n, found = len(keys) // 16, array.array("I", [0])
                self.c.match(keys, array.array("I", [0, n]), lens=found, out=array.array("i", bytes(4 * n)))
                self._count(n, rest[:found[0]], req)
        req.question.clear()

    def ask_again(self, req):
        """What its last question wanted is of no use any more."""
        req.question.clear()
        req.wants.clear()

    # ---- below RAM ----

    def _prefix_below(self, missed, raw, req):
        """True: the memo has the answers."""
        asked = req.below.get(missed[0])
        if asked is None and (req.waiting or missed[0] in self.ahead or missed[0] in self.asked or
                              not self._ask_prefix(missed, raw, req)):
            return False
        if not self._is_pending(missed[0], req):
            return False
        req.memo.update((k, req.below[k][1] if k in req.below else MISS) for k in missed)
        return True

    def _ask_prefix(self, missed, raw, req):
        if req.left <= 0:
            return False
        sources = self.below.may_come(raw, req.allowed)
        if not sources or sources[0] is None and self._computes(raw):
            return False
        self._ask_below(missed[:len(sources)], raw, sources, req)
        return True

    def _computes(self, raw):
        """Does another engine compute the first of these?"""
        (first,) = self.peek(raw[:16])
        return first.state == gpc.CLAIM_PENDING and not self.is_brought(first)

    def is_brought(self, claim):
        """Has the steward of the tiers a claim on it?  A tier may hang, so no request waits for that claim."""
        return claim.state == gpc.CLAIM_PENDING and claim.peer in self.below.stewards

    def _ask_below(self, keys, raw, sources, req, holes=False):
        now = self.clock()
        if req.waits_since is None:
            req.waits_since = now
        q = self.below.ask(raw, sources, req.waits_since + req.left, holes)
        req.below, req.came = req.below or {}, req.came or {}
        req.came.update((k, s or STORE) for k, s in zip(keys, sources) if s is not RAM)
        req.below.update((k, (q, RETRY if s is None else PENDING)) for k, s in zip(keys, sources))

    def _is_pending(self, key, req):
        """Is its question open?  When no question is open any more, the time of the wait is counted."""
        q, now = req.below[key][0], self.clock()
        if q.is_open(now):
            return True
        if req.waits_since is not None and not any(x.is_open(now) for x, _ in req.below.values()):
            req.left -= min(q.ended if q.done else now, now) - req.waits_since
            req.waits_since = None
            if not q.done or q.ended >= q.until:
                self.counts["late"] += 1
        return False

    def _single_below(self, key, raw, req, positions):
        if key in req.below:
            return req.below[key][1] if self._is_pending(key, req) else MISS
        if req.left <= 0:
            return MISS
        sources = self.below.may_come(raw, req.allowed)
        if not sources or sources[0] is None and not self._is_near(key, req, positions):
            return MISS
        if req.wanted is None:
            req.wanted = {}
        req.wanted.setdefault(key[-4:], []).append((positions.get(key, 0), key, raw, sources[0]))
        return RETRY if sources[0] is None else PENDING

    def _is_near(self, key, req, positions):
        """Does vLLM need it, if the prompt is found up to the start of this lookup?  vLLM asks backwards from there.  A
        store is not asked for keys farther off, since it would be asked for all of them."""
        group = _group(key)
        return group in self.windows and (req.ends[group] - positions.get(key, 0) <
                                          self.windows[group] * self.step_tokens.get(group, 0))

    def _ask_wanted(self, req):
        for some in req.wanted.values():
            some.sort(key=lambda x: x[0])
            self._ask_below([k for _, k, _, _ in some], b"".join(r for _, _, r, _ in some), [s for _, _, _, s in some], req, True)
        req.wanted = None

    # ---- claims ----

    def _wait_or_claim(self, missed, keys, req):
        """True: the memo has the answers.  The first key decides: another process computes it, or this request will."""
        if not self.conf.claim_chunks or req.gave_up:
            return False
        if req.waiting and missed[0] in req.waits_for:
            if self._still_pending(req):
                self._remember(missed, req)
                return True
            if req.gave_up:
                return False
        req.waiting, req.waits_for = None, ()
        # another request of this engine computes it, and vLLM knows that; or this one has asked already
        if missed[0] in self.ahead or missed[0] in self.asked:
            return False
        n = min(len(missed), self.conf.claim_chunks, self.most_ahead - len(self.ahead) - len(self.asked))
        return n > 0 and self._claim(missed[:n], keys[:16 * n], missed, req)

    def may_wait(self, req):
        """Has this request time left, over all its waits?"""
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

    def peek(self, keys):
        """The states of keys that are known without the writer."""
        return self.c.claim(keys, self.any_block * (len(keys) // 16), flags=gpc.PEEK)

    def _claim(self, mine, keys, missed, req):
        (first,) = self.peek(keys[:16])
        if first.state == gpc.CLAIM_PENDING and not self.is_brought(first) and self.may_wait(req):
            req.waiting = first
            req.waits_for = {k for k, c in zip(mine, self.peek(keys)) if c.state == gpc.CLAIM_PENDING} | {mine[0]}
            self._remember(missed, req)
            return True
        if first.state == gpc.CLAIM_LIVE:        # published after this lookup
            req.pins.update(zip(mine, self.c.acquire(keys, flags=gpc.TOUCH)))
        elif first.state == gpc.CLAIM_MINE:
            req.wants.setdefault(_group(mine[0]), (mine, keys))  # vLLM may ask for ends of it that lie inside a chunk
            if not self.told_of_blocks():
                self.claim_wanted(req)
        return False

    def claim_wanted(self, req):
        """Called when vLLM has blocks for all that the request computes, or, if nobody tells that, at its lookup.  Until
        it has them, it may wait for seconds; then it would hold slots in vain, and other engines would wait for it."""
        wants, req.wants, req.rest = req.wants, {}, ()
        for mine, keys in wants.values() if not req.over else ():
            # no request should wait for a key that is not stored
            most = max(0, min(len(mine), self.seen.ready(keys), self.most_ahead - len(self.ahead) - len(self.asked)))
            n = self._not_ours(mine[:most])
            if n:
                self._claim_some(mine[:n], keys[:16 * n], req)

    def _not_ours(self, keys):
        """The number of the first ones that no request of this engine has claimed or stores.  It may have begun to behind
        another one's lookup."""
        some = (self.ahead, self.asked, self.storing)
        if all(of.keys().isdisjoint(keys) for of in some):
            return len(keys)
        return next(i for i, k in enumerate(keys) if any(k in of for of in some))

    def _claim_some(self, mine, keys, req):
        n = self.take_stock(mine, req)
        if n:
            self._claim_ahead(mine[:n], keys[:16 * n], req)
        if n < len(mine):
            self.ask(mine[n:], keys[16 * n:], req, False)

    def take_stock(self, keys, req):
        """The number of the first ones that get a block of the stock, at once.  A key that a request has ahead, of another
        salt maybe, keeps its block."""
        if not self.ahead.keys().isdisjoint(keys):
            keys = keys[:next(i for i, k in enumerate(keys) if k in self.ahead)]
        try:
            blocks = self.c.reserve(POOL, len(keys), flags=gpc.IN_HAND | gpc.PARTIAL, timeout=0) if keys else []
        except gpc.Error:
            return 0
        self.ahead.update(zip(keys, zip(itertools.repeat(req), sorted(blocks))))     # neighbours are copied together
        req.claimed.update(keys[:len(blocks)])
        return len(blocks)

    def _claim_ahead(self, keys, raw, req):
        """These keys have blocks.  A store does not wait for the claim.  A key that was published, or given back, is
        not claimed: a block of a request that has ended may belong to another request by then."""
        held = [self.ahead[k] for k in keys]
        blocks = [b for _, b in held]
        self.asker.ask(lambda: None if req.over else self.c.claim(raw, blocks, timeout=ASK),
                       lambda claims: self._keep(keys, held, claims or ()))

    def _keep(self, keys, held, claims):
        """Keys that another process turns out to compute are not ours to hold, nor are those that follow them."""
        at = next((i for i, x in enumerate(claims) if x.state != gpc.CLAIM_MINE), len(keys))
        gone = [k for k, h in zip(keys[at:], held[at:]) if self.ahead.get(k) is h]
        self.c.release(self.take_ahead(gone))

    def ask(self, keys, raw, req, store):
        """Asks for blocks that are reserved for these keys, and claimed, in a later step: see take.  False: not now.

            the request           the question                          its blocks and claims
            lives                 is answered, and taken by a step      are the request's, or go back
            has ended             has not begun: is none                none
            has ended             is under way, or answered             go back in a later step: has_pending_work

        Until they go back other engines wait for these keys, so an engine does not sleep before."""
        epoch = self.epoch
        if not self.asker.ask(lambda: None if req.over else self._reserve(raw, len(keys)),
                              lambda answer: self._take(keys, req, store, epoch, answer)):
            return False
        self.asked.update(dict.fromkeys(keys, req))
        return True

    def _reserve(self, raw, n):
        """Called by the asker's thread: (blocks, states); states is None where the claim had no answer."""
        blocks = sorted(self.c.reserve(POOL, n, flags=gpc.PARTIAL, timeout=ASK))     # neighbours are copied together
        try:
            return blocks, [x.state for x in self.c.claim(raw[:16 * len(blocks)], blocks, timeout=ASK)]
        except gpc.Error:
            return blocks, None

    def _take(self, keys, req, store, epoch, answer):
        """In a prompt that is to be computed, keys after a chunk that another process computes are not claimed.  A
        store takes each key that is ours, and claims are advice.  A store does not ask again for keys that it does not
        get."""
        blocks, states = answer or ((), None)
        for k in keys:
            if self.asked.get(k) is req:
                del self.asked[k]
        take = (gpc.CLAIM_MINE, gpc.CLAIM_PENDING) if store and req.gave_up else (gpc.CLAIM_MINE,)
        if states is None:
            states = [gpc.CLAIM_MINE if store else gpc.CLAIM_PENDING] * len(blocks)
        if epoch != self.epoch or req.over:
            take = ()
        back = []
        for k, b, state in zip(keys, blocks, states):
            if self.is_ahead(k, req) or k in self.storing:       # it has had a block of the stock meanwhile
                back.append(b)
                continue
            if store and take and state == gpc.CLAIM_LIVE and k in req.going:
                state = gpc.CLAIM_MINE
            if state in take and k not in self.ahead:
                self.ahead[k] = req, b
                req.claimed.add(k)
                continue
            back.append(b)
            if not store:
                take = ()
            elif take:
                req.refused.add(k)
                self.counts["skipped"] += 1
        self.c.release(back)
        if len(blocks) < len(keys) and not req.over:
            self.shortage.note()
        if store and take and not self.told_of_blocks():         # these are not offered again
            req.refused.update(keys[len(blocks):])
            self.counts["no_room"] += len(keys) - len(blocks)

    # ---- ends ----

    def is_ahead(self, key, req):
        """Has the key a block that is claimed, for this salt?"""
        return key in self.ahead and self.ahead[key][0].salt == req.salt

    def are_ahead(self, keys, req):
        """Is each of them ahead for this request?"""
        held = list(map(self.ahead.get, keys))
        return None not in held and all(by is req for by, _ in held)

    def take_ahead(self, keys):
        """The blocks of keys that are ahead, which they are no more."""
        return [self.ahead.pop(k)[1] for k in keys]

    def drop_ahead(self, req=None):
        """Gives back the claims of a request that has ended, or all claims."""
        if req is None:
            self.epoch += 1
            gone = list(self.ahead)
        else:
            req.over = True
            if req.below or req.wanted:
                self._end_below(req)
            gone = [k for k in req.claimed if k in self.ahead and self.ahead[k][0] is req]
        if gone:
            self.c.release(self.take_ahead(gone))

    def _end_below(self, req):
        """The answers are not taken any more."""
        for q, _ in req.below.values():
            q.over = True
        req.below, req.wanted = _NOTHING, None

    def unpin(self, req):
        if req.pins:
            self.c.release(list(req.pins.values()))
            req.pins.clear()
        req.memo.clear()

    def end_step(self):
        for req in self.step:
            self.unpin(req)
            req.ends = None
            if req.wanted:
                self._ask_wanted(req)
        self.step.clear()
        self.asker.take()
        self.below.look()


def _group(key):
    return int.from_bytes(key[-4:], "big")
