# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/long-prompts.t t/python/vllm-manager.t t/python/vllm-figures.t
#   t/python/vllm-namespace.t t/python/vllm-seen.t t/python/vllm-below.t
"""The scheduler's side: vLLM's OffloadingManager over a gpc cache.

No vLLM here: `api` has LookupResult, PrepareStoreOutput, RequestOffloadingContext, OffloadingEvent, Medium and
CacheHitSource, and spec.py makes this a subclass of the abstract class.

Blocks are held as follows.  A lookup that answers HIT references the block until on_schedule_end, or until
complete_load if a load was prepared.  A claim or a store under way reserves it.  If this process dies, gpc takes these
holds back when its workers, which attach as companions, have gone.
"""

import functools
import logging

import gpc

from ..engines.below import ALL, DISK, RAM, STORE
from ..engines.cache import close_cache
from ..engines.publisher import Publisher
from . import meet
from .adapters import WAIT
from .cache import POOL, where
from .events import Events
from .finder import ASK, HIT, MISS, PENDING, RETRY, Finder, Request
from .hints import OUTCOMES, Hints
from .image import Slots
from .metrics import Figures, info_of
from .pending import Pending
from .prompts import Prompts
from .writer import Writer

log = logging.getLogger("vllm.gpc")

LOADS = 3  # loads of a key by one request, where failed ones are not reported; after that the request does not find it
SOON = 0.05                      # seconds that a store waits for the writer where it would not be offered again
OWN = "own"                      # of Request.counted


class Manager:
    def __init__(self, cache, name, conf, layout, groups, step_tokens, api, namespace, adapters, events=False, engine=None):
        """groups: number -> True where each chunk follows the one before (full attention), else False.  step_tokens:
        number -> tokens of one chunk.  namespace, adapters: of the engine since its start.  engine: its number, for
        meet.py."""
        self.c, self.conf, self.api, self.engine = cache, conf, api, engine
        self.groups, self.step_tokens = groups, step_tokens
        self.gaps = bool(cache.pool_get(POOL).flags & gpc.POOL_UNCHAINED)
        self.counts = dict.fromkeys(("lookups", "hits", "hits_ram", "hits_disk", "hits_store", "hits_own", "late", "waited",
                                     "gave_up", "stored", "duplicate", "refused", "no_room", "skipped", "failed", "seldom",
                                     *("hints_" + o for o in OUTCOMES)), 0)
        self.where, self.first = where(cache, name, conf, layout), gpc.BLOCK(POOL, 0)
        self.finder = Finder(cache, conf, groups, self.counts)
        self.hints = Hints(self.finder, self.counts)
        self.namespace, self.adapters = namespace, adapters
        self.finder.salt = self.namespace.salt
        self.publisher = Publisher(cache, conf, groups, self.counts, self.finder.keys)
        self.storing = {}        # key -> block: reserved, and a worker writes it
        self.finder.storing, self.finder.told_of_blocks = self.storing, self._has_connector
        self.finder.step_tokens = step_tokens
        self.sources = {RAM: api.CacheHitSource.HOST,
                        DISK: getattr(api.CacheHitSource, "DISK", api.CacheHitSource.HOST),
                        STORE: getattr(api.CacheHitSource, "EXTERNAL_UNSPECIFIED", api.CacheHitSource.HOST)}
        self.unfilled = set()    # blocks of these that a worker has not written
        self.loads = set()       # requests that have loads under way
        self.limbo = []          # blocks of transfers that a reset has orphaned: see reset_cache
        self.generation = 0
        self.later = None  # request's number -> keys to be offered again; None: there is no GPCConnector to offer them
        self.once = ()           # groups of states, whose blocks vLLM hands over once: they cannot be offered again
        self.collecting = False  # the asker waits for answers to publishes
        self.results = {r.name: r for r in api.LookupResult}
        self.events = Events(cache, self._told_keys) if events else None
        self.pending = Pending(events and "metadata_only" in getattr(api.OffloadingEvent, "__dataclass_fields__", ()),
                               self._live)
        self.prompts = Prompts(cache, name, conf, self.finder.asker.ask)
        self.writer, self.figures = Writer(cache, name, conf), Figures(api, self.counts, cache)
        self.meeting = meet.leave(self.where, engine) if engine is not None else None
        self.late = False        # it follows a Coming, so its workers may ask for it until their first job

    def _has_connector(self):
        return self.later is not None

    @property
    def windows(self):
        """Group -> number of its chunks that vLLM needs."""
        return self.finder.windows

    @windows.setter
    def windows(self, chunks):
        self.finder.windows = chunks

    def set_chained(self, groups):
        """Tells which groups are of full attention, before the first request.  Chains are matched and evicted as such.
        A group that is not known to be one is kept key by key, which is right for any kind."""
        self.groups.update(groups)

    # ---- requests ----

    def _request(self, ctx):
        req = ctx.get_state(Request)
        if req is None or req.generation != self.generation:
            if req is not None:
                self._end_missing(req)
            self.finder.below.look()     # no step of an idle engine has looked
            req = Request(self.generation, req is not None and req.apart, self._allowed(ctx),
                          0 if self.c.closed else self.c.drops(), self.finder.below.seconds)
            ctx.set_state(req)
        return req

    def _allowed(self, ctx):
        """Tiers that the request may load from, by its kv_load_tiers."""
        wanted, here, far = getattr(ctx, "load_tier_filter", None), self.api.Locality.LOCAL, self.api.Locality.REMOTE
        if wanted is None:
            return ALL
        kinds = self.finder.below.kinds
        places = {RAM: (self.api.Medium.CPU, here), DISK: (self.api.Medium.STORAGE, here), STORE: (self.api.Medium.STORAGE, far)}
        return frozenset(t for t, place in places.items() if (t is RAM or t in kinds) and wanted.allows(*place))

    def _asks(self, ctx):
        """The request, when vLLM knows it.  Its keys have a salt from now on, or, with an adapter, in a later step."""
        req = self._request(ctx)
        if req.salt is not None:
            return req
        self.adapters.asker.take()
        if req.salt is None and req.until is None:
            req.lora = self.prompts.adapter(ctx)
            if req.lora is None:
                req.salt = self.namespace.salt
            elif self.adapters.look(req.lora, functools.partial(self._found_adapter, req)):
                req.until = self.finder.clock() + WAIT
                if self.later is None:   # its stores are not offered again
                    self.adapters.asker.soon(SOON)
        return req

    def _found_adapter(self, req, state, digest):
        req.files, req.salt = state, self.adapters.salt(self.namespace.salt, req.lora, state, digest)
        if req.salt is None:
            req.salt, req.apart = b"", True

    def set_apart(self, ctx):
        """A request whose blocks a reset leaves as they are.  They belong to the weights of before, and its next KV to
        both."""
        self._request(ctx).apart = True

    def _told_keys(self, offload_keys):
        """For each one all gpc keys that this engine uses for it."""
        return [self.finder.keys(offload_keys, s) for s in self.adapters.salts(self.namespace.salt)]

    def _live(self, offload_keys):
        """Whether each is in the cache, under any of these."""
        found = [self.c.lookup(keys, flags=gpc.QUIET) for keys in self._told_keys(offload_keys)]
        return [max(blocks) >= 0 for blocks in zip(*found)]

    def on_new_request(self, req_context):
        self._request(req_context)
        return self.api.RequestOffloadingContext()

    def on_request_finished(self, req_context):
        req = self._request(req_context)
        self._end_missing(req)
        self.finder.unpin(req)
        self.finder.step.discard(req)
        self.finder.drop_ahead(req)
        self.pending.finished(req_context.req_id)
        if self.hints.later:
            self.hints.finished(req_context.req_id)

    def on_schedule_end(self, context):
        self.finder.end_step()
        self._collect()
        self.writer.look()
        if not self.late:
            self._end_meeting()

    def _end_meeting(self):
        """vLLM begins no step before all workers have attached."""
        if self.meeting:
            meet.remove(self.meeting)
            self.meeting = None

    # ---- hints ----

    def take_hints(self, req_context, groups):
        """The wishes of an orchestrator for the prompt.  groups: its keys in each group, in the order of the prompt."""
        self.hints.arrive(req_context, lambda payload: self._meant(payload, req_context, groups))

    def _meant(self, payload, ctx, groups):
        """gpc keys of the chunks that an action names; None: they are not known."""
        req, ends = self._asks(ctx), ctx._offload_key_positions
        if req.salt is None or req.apart:
            return None
        try:
            if "block_hashes" in payload:
                keys = [bytes.fromhex(h) + g.to_bytes(4, "big") for g in sorted(self.groups, key=self._is_hole)
                        for h in payload["block_hashes"]]
            else:
                first, end = payload.get("token_range", (0, max(ends.values(), default=0)))
                keys = [k for some in sorted(groups, key=lambda g: bool(g) and self._is_hole(int.from_bytes(g[0][-4:], "big")))
                        for k in some if first <= ends[k] - self.step_tokens.get(int.from_bytes(k[-4:], "big"), 0) and ends[k] <= end]
            return self.finder.keys(keys, req.salt) if keys else None
        except (TypeError, ValueError, AttributeError, gpc.Error):
            return None

    def _is_hole(self, group):
        """These keys stand each by itself, and come last."""
        return not self.groups.get(group, False)

    # ---- finding and loading ----

    def lookup(self, key, req_context):
        req = req_context.get_state(Request)
        if req is None or req.salt is None or req.generation != self.generation:
            req = self._asks(req_context)
            if req.salt is None:         # its adapter is not known yet
                late = req.apart or req.until is not None and self.finder.clock() >= req.until
                return self.results[MISS if late else RETRY]
        if key in req.pins:
            return self.results[HIT]
        if key in self.storing and key not in req.failed and not req.left_out:       # our own worker writes it at this moment
            answer = PENDING if self.finder.may_wait(req) else MISS
        else:
            answer = self.finder.lookup(key, req, req_context._offload_key_positions)
        self.pending.answered(key, answer, req_context.req_id)
        return self.results[answer]

    def count_hits(self, keys, req_context):
        """The number of these, in the order of the prompt, that lookups would report to vLLM up to the first miss;
        None: only lookups can tell."""
        if not keys or self.pending.on or self.lookup(keys[0], req_context) is not self.results[HIT]:
            return None
        pins = req_context.get_state(Request).pins
        for n, there in enumerate(map(pins.__contains__, keys)):
            if not there:
                return n if self.lookup(keys[n], req_context) is self.results[MISS] else None
        return len(keys)

    def is_all_of_ram(self, req_context):
        """Has no block of it come from below?"""
        return not self._request(req_context).came

    def get_load_source(self, key, req_context):
        """A key that the request has waited for counts for the tier that it came from."""
        return self.sources[self._request(req_context).came.get(key, RAM)]

    def prepare_load(self, keys, req_context):
        """The load takes over the references of the lookups.  A key that another load of the request holds has one
        more."""
        req, keys = self._asks(req_context), list(keys)
        if not req.loading and list(req.pins) == keys:           # one load of all found blocks
            req.loading, req.pins = req.pins, {}
        else:
            for k in dict.fromkeys(keys):    # complete_load names each once
                if k in req.loading:
                    req.again[k] = req.again.get(k, 0) + 1
                else:
                    req.loading[k] = req.pins.pop(k) if k in req.pins else self._find(k, req)
        self.loads.add(req)
        if req.below:                    # if it is preempted, and looked for again, it may ask again
            req.below = {}
        return self._slots(keys, [req.loading[k] for k in keys], req)

    def _find(self, key, req):
        """A key that no lookup of this step has pinned.  vLLM asks for no such key, and cannot handle one that is
        gone."""
        (block,) = self.c.lookup(self.finder.keys_of([key], req), flags=gpc.REF | gpc.TOUCH)
        if block < 0:
            raise KeyError(f"{key.hex()} is to be loaded, and not in the cache: no lookup of this step said HIT")
        return block

    def complete_load(self, keys, req_context):
        req = self._request(req_context)
        if not req.again and self.later is not None and req.loading.keys() == keys:
            done, req.loading = list(req.loading.values()), {}   # each chain root first, as prepare_load had them
        else:
            done = self._end_loads(keys, req, req_context._offload_key_positions)
        self.c.release(done)
        if not req.loading:
            self.loads.discard(req)
        self._later_complete()

    def _end_loads(self, keys, req, position):
        """Blocks that no load of the request holds any more, root first."""
        done = []
        for k in sorted(keys, key=lambda k: position.get(k, 0)):
            if k in req.again:
                req.again[k] -= 1
                if not req.again[k]:
                    del req.again[k]
            elif k in req.loading:
                done.append(req.loading.pop(k))
                if self.later is None:
                    req.loaded[k] = req.loaded.get(k, 0) + 1
                    req.failed |= {k} if req.loaded[k] == LOADS else set()
        return done

    def set_unmoved(self, slots, store, req_context):
        """A worker has not filled these slots in a store, or has not brought their bytes in a load.  From now on the
        request does not find a key whose load has failed, whatever becomes of the block: vLLM looks for it again."""
        blocks = {gpc.BLOCK(POOL, s) for s in slots}
        if store:
            self.unfilled |= blocks
            return
        req = self._request(req_context)
        failed = [k for k, b in req.loading.items() if b in blocks]
        req.failed.update(failed)
        behind = self._behind(failed, req_context._offload_key_positions)
        req.going.update(failed if self.gaps else behind)
        req.unread.update(behind)

    def _behind(self, failed, positions):
        """These keys, and those that follow them in a chain: they are computed anew, and dropped together where the
        pool takes no gaps."""
        first = {}
        for k in failed:
            first[k[-4:]] = min(first.get(k[-4:], positions.get(k, 0)), positions.get(k, 0))
        chained = {g for g in first if self.groups.get(int.from_bytes(g, "big"), False)}
        return [*failed, *(k for k, p in positions.items() if k[-4:] in chained and p >= first[k[-4:]])]

    def touch(self, keys, req_context):
        keys, req = list(keys), self._asks(req_context)
        if keys and not req.apart and req.salt is not None:
            self.c.lookup(self.finder.keys_of(keys, req), flags=gpc.TOUCH)

    def ask_again(self, req_context):
        """Its last question found it no blocks.  Now it may ask for fewer, or for none."""
        self.finder.ask_again(self._request(req_context))

    def count_asked(self, req_context):
        """vLLM has blocks for a request that asked for some."""
        req = self._request(req_context)
        self.finder.count_asked(req)
        if req.below:
            req.below = {}

    def claim_wanted(self, req_context):
        """vLLM has blocks for all of a request, which is computed from now on."""
        self.finder.claim_wanted(self._request(req_context))

    def count_own(self, req_context, tokens):
        """Tokens that the engine has in its own prefix cache, at the first question of a request; they are no lookup of
        gpc."""
        req = self._request(req_context)
        if OWN not in req.counted:
            req.counted.add(OWN)
            own = tokens // max(self.step_tokens.values(), default=1)
            self.counts["hits_own"] += own
            if own:
                self.c.hits_add(own=own)

    def _slots(self, keys, blocks, req):
        return Slots(self.where, POOL, [b - self.first for b in blocks], self.finder.keys_of(keys, req) if keys else b"")

    # ---- storing ----

    def prepare_store(self, keys, req_context):
        req = self._asks(req_context)
        keys = [k for k in keys if k not in self.storing]
        if not keys or req.apart:
            return self._store_output([], req)
        if req.salt is None:
            return self._store_later(keys, req, req_context.req_id)
        self.prompts.root(req_context, self.namespace.text)  # its words are kept before the first block is published
        self.finder.asker.take()
        live = self.c.lookup(self.finder.keys_of(keys, req), flags=gpc.TOUCH)
        if req.going:                    # their drops may not be done yet
            live = [-1 if k in req.going else b for k, b in zip(keys, live)]
        ahead, rest, finder = [], [], self.finder
        if max(live) < 0 and finder.are_ahead(keys, req):        # as a rule: its blocks came with its claim
            ahead = keys
        else:
            for k, b in zip(keys, live):
                if finder.is_ahead(k, req):
                    ahead.append(k) if b < 0 else self.c.release(finder.take_ahead([k]))
                elif b < 0 and k not in req.refused:
                    rest.append(k)
        rest, seldom = finder.seen.offer(rest, lambda some: finder.keys_of(some, req), req)
        self.counts["seldom"] += seldom
        positions = req_context._offload_key_positions
        rest = self._hanging(rest, req, positions)
        missing = self._reserve(rest, req)
        if missing and (self.later is None or self._is_once(missing)) and finder.asked.keys() & missing:
            if self.later is not None:
                req.missing.update(missing)      # if the answer brings no block, the writer is not asked again at once
            if finder.asker.soon(SOON):
                return self.prepare_store(keys, req_context)
            ahead = [k for k in ahead if finder.is_ahead(k, req)]        # answers have come that gave some back
        if missing and self.later is None:
            return None                  # the writer has been asked
        if not missing:
            req.refused.difference_update(keys)
        have = {*ahead, *(k for k in rest if finder.is_ahead(k, req))}
        now = self._storable(keys, have, missing)
        hanging = self._hanging(now, req, positions)      # room may have been made of the chunks that they follow
        if len(hanging) < len(now):
            self.c.release(finder.take_ahead([k for k in now if k not in hanging]))
            have, now = have.intersection(hanging), hanging
        self._offer_again(missing.union(have).difference(now), keys, req, req_context.req_id)
        self.storing.update(zip(now, finder.take_ahead(now)))
        req.going.difference_update(now)
        return self._store_output(now, req)

    def _hanging(self, rest, req, positions):
        """Of these, in the order of the prompt, those that do not follow a missing chunk.  A prompt that is longer than
        RAM evicts its own end to make room.  Without this, lookups would never reach the chunks after the gap, and the
        beginning would be evicted next in place of the end."""
        finder, before = self.finder, {}
        for k in rest[:1] if len(self.groups) == 1 else rest:    # the first one of each group decides
            if k[-4:] not in before and self.groups.get(int.from_bytes(k[-4:], "big"), False):
                step = self.step_tokens.get(int.from_bytes(k[-4:], "big"), 0)
                before[k[-4:]] = finder.before(k, positions.get(k, 0) - step, positions, req)
        ours = {g: p for g, p in before.items() if p and p not in self.storing and p not in finder.ahead and
                not any(p in s.keys for s in self.publisher.sent)}
        if not ours:
            return rest
        raw = finder.keys_of(list(ours.values()), req)
        if finder.below.may_learn(raw):  # a store may have keys that the index does not know of
            return rest
        gone = {g for g, x, s in zip(ours, finder.peek(raw), finder.below.sources(raw))
                if x.state == gpc.CLAIM_MINE and s is None}
        left = [k for k in rest if k[-4:] not in gone]
        self.counts["no_room"] += len(rest) - len(left)
        return left

    def _store_later(self, keys, req, number):
        """Without GPCConnector vLLM asks for all of it again in each step, and warns."""
        if self.later is None:
            return None
        self._offer_again({*keys}, keys, req, number)
        return self._store_output([], req)

    def _storable(self, keys, have, missing):
        """Of these, in the order of the prompt, those that have a block and follow no missing one in their chain:
        lookups would not reach the others, and their publish is refused."""
        if len(have) == len(keys):       # of these, so it is all of them
            return keys
        out, cut = [], set()
        for k in keys:
            if k in missing and self.groups.get(int.from_bytes(k[-4:], "big"), False):
                cut.add(k[-4:])
            elif k in have and k[-4:] not in cut:
                out.append(k)
        return out

    def _offer_again(self, left, keys, req, number):
        req.missing.difference_update(keys)
        req.missing.update(left)
        if left:
            self.later[number] = left

    def _end_missing(self, req):
        """Forgets chunks that are not offered any more."""
        self.counts["no_room"] += len(req.missing)
        req.missing.clear()

    def _is_once(self, keys):
        return bool(self.once) and any(int.from_bytes(k[-4:], "big") in self.once for k in keys)

    def take_later(self):
        later, self.later = self.later, {}
        return later

    def _store_output(self, keys, req):
        return self.api.PrepareStoreOutput(keys, self._slots(keys, [self.storing[k] for k in keys], req), [])

    def _reserve(self, keys, req):
        """Blocks for keys that no other process computes, which are ahead then.  For keys that have none yet see
        Shortage."""
        if not keys:
            return set()
        raw, finder = self.finder.keys_of(keys, req), self.finder
        if not req.gave_up:              # else the key would be left to a peer that may be stopped
            free = [i for i, x in enumerate(finder.peek(raw)) if x.state == gpc.CLAIM_MINE or finder.is_brought(x) or
                    x.state == gpc.CLAIM_LIVE and keys[i] in req.going]
            if len(free) < len(keys):
                self.counts["skipped"] += len(keys) - len(free)
                req.refused.update({*keys}.difference(keys[i] for i in free))
                keys, raw = [keys[i] for i in free], b"".join(raw[16 * i:16 * i + 16] for i in free)
        n = finder.take_stock(keys, req)
        missing = {*keys[n:]}
        if missing and finder.asked.keys().isdisjoint(missing):
            short = not req.missing.isdisjoint(missing)
            most = len(keys) - n if not short else min(len(keys) - n, finder.shortage.room(len(finder.asked)))
            asked = most and finder.ask(keys[n:n + most], raw[16 * n:16 * (n + most)], req, True)
            if not asked and self.later is None:
                self.counts["no_room"] += len(missing)
                return set()
        return missing

    def complete_store(self, keys, req_context, success=True):
        """keys come as a set: puts them in the order of the prompt again, so that parents are first."""
        position = req_context._offload_key_positions
        keys = sorted((k for k in keys if k in self.storing), key=lambda k: position.get(k, 0))
        blocks = {k: self.storing[k] for k in keys}
        self._later_complete()
        if not success or not self.unfilled.isdisjoint(blocks.values()):
            lost = {k for k in keys if not success or blocks[k] in self.unfilled}
            self.unfilled.difference_update(blocks.values())
            self.counts["failed"] += len(lost)
            self.c.release([self.storing.pop(k) for k in keys if k in lost])
            keys = [k for k in keys if k not in lost]
        if not keys:
            return
        req = self._asks(req_context)
        root, since = self.prompts.root(req_context, self.namespace.text), self._since(req, position)
        for ours in dict.fromkeys([k[-4:] for k in keys]):
            some, group = [k for k in keys if k[-4:] == ours], int.from_bytes(ours, "big")
            step = self.step_tokens.get(group, 0)
            parents = self._parents(some, step, position, req)
            tokens = self.prompts.tokens(req_context, step, [position.get(k, 0) for k in some])
            self.prompts.then(root, functools.partial(self._publish, req, group, some, parents, root, tokens, since))

    def _parents(self, keys, step, positions, req):
        """The key that each of these follows, which is mostly the one before it.  The first chunk of a prompt follows none,
        also if there are keys whose place is not known."""
        out, last, end = [], None, None
        for k in keys:
            at = positions.get(k, 0)
            place = at - step
            out.append(last if 0 < place == end else self.finder.before(k, place, positions, req))
            last, end = k, at if at != end else None     # two keys that end at one place: see before
        return out

    def _publish(self, req, group, keys, parents, root, tokens, since):
        if req.lora is None:
            self._publish_now(req, group, keys, parents, root, tokens, since, True)
        else:
            self.adapters.look_again(req.lora, req.files,
                                     functools.partial(self._publish_now, req, group, keys, parents, root, tokens,
                                                       since))

    def _publish_now(self, req, group, keys, parents, root, tokens, since, same):
        """same: the request's adapter has the bytes that it began with, so all of its KV belongs to these."""
        if req.generation != self.generation:
            return                       # a reset has taken the blocks
        if not same:
            req.apart = True
            self.counts["refused"] += len(keys)
            self.c.release([self.storing.pop(k) for k in keys])
        else:
            self.publisher.publish(group, keys, [self.storing.pop(k) for k in keys], parents, root, tokens,
                                   lambda names: self.finder.keys_of(names, req), since)

    def _since(self, req, positions):
        """A load that has failed drops the part that the request has not read, and vLLM computes anew.  If no part that
        it has read was dropped, the request is as good as one that begins now."""
        now = self.c.drops()
        if req.unread and now != req.since:
            read = [k for k in positions if k not in req.unread]
            try:
                if not read or not self.c.dropped(req.since, self.finder.keys_of(read, req)):
                    req.since = now
            except gpc.Error:            # it is not known
                pass
        return req.since

    # ---- the rest ----

    def take_events(self):
        if self.events is None:
            return
        for removed, keys in self.events.take():
            yield self.api.OffloadingEvent(keys=keys, medium=self.api.Medium.CPU, removed=removed)
        if gone := self.pending.take():
            yield self.api.OffloadingEvent(keys=gone, medium=self.api.Medium.CPU, removed=True, metadata_only=True)

    def has_pending_work(self):
        self._collect()
        return (self.publisher.busy() or self.prompts.busy() or self.adapters.asker.under_way > 0 or
                bool(self.finder.asked))     # blocks that come may be claimed: see Finder.ask

    def _collect(self):
        """Looks at the answers of publishes.  A look at a ticket may wait for a writer that is stopped, so the asker
        looks."""
        self.finder.asker.take()
        self.adapters.asker.take()
        if self.publisher.sent and not self.collecting:
            ticket = self.publisher.sent[-1].ticket
            self.collecting = self.finder.asker.ask(lambda: self._wait(ticket), self._collected)

    def _wait(self, ticket):
        self.c.ticket_wait(ticket, ASK)
        return ticket

    def _collected(self, ticket):
        self.collecting = False
        if ticket is not None:
            self.publisher.collect(0, ticket)

    def reset_cache(self):
        """The weights are others from now on, or may be: a namespace begins.  No block of before is found here, and
        no engine with other weights finds later blocks.  Others use the cache, so it is not emptied.  gpc_reset=tag
        forgets the blocks with our tag, of any namespace.

        vLLM forgets its transfers with a reset.  Their holds stay until

            vLLM 0.33    tells that its workers have ended them: on_reset_flushed
            vLLM 0.32    has a later transfer that is complete: workers do all in order, so those before it have ended"""
        self.limbo += self.storing.values()
        self.limbo += [block for req in self.loads for block in req.loading.values()]
        self.storing.clear()
        self.unfilled.clear()
        for req in self.loads:
            req.apart = True     # its loads are of the time before
        self.loads.clear()
        self.pending.reset()
        self.finder.end_step()
        self.finder.drop_ahead()
        self.generation += 1
        whose = self.namespace.reset()
        self.finder.salt = self.namespace.salt
        if self.events is not None:
            self.events.reset()
        log.info("gpc: reset: this engine's namespace in the cache %s is %s from now on; others keep theirs",
                 self.where.name, whose)
        if self.conf.reset == "tag":
            self._clear_tag()

    def _clear_tag(self):
        """If it fails, only room is lost, since this engine finds none of these blocks.  It follows the publishes of
        this engine, in the writer's order."""
        def clear():
            try:
                self.c.pool_clear(POOL, tag=self.conf.tag, timeout=ASK)
            except gpc.Error as e:
                log.warning("gpc: reset: what has the tag %d is not forgotten yet: %s", self.conf.tag, e)
        self.finder.asker.ask(clear)

    def _later_complete(self):
        if not self.api.tells_flushed:
            self.on_reset_flushed()

    def on_reset_flushed(self):
        """The workers have ended all transfers that a reset has orphaned."""
        self.c.release(self.limbo)
        self.limbo.clear()

    def get_stats(self):
        return self.figures.take(len(self.storing), len(self.finder.ahead), self.writer.look())

    def config_info(self):
        return [info_of(self.c, self.where.name, self.conf)]

    def shutdown(self):
        """The first call closes.  Stores that workers still write stay reserved until these workers have gone."""
        if self.c.closed:
            return
        self._end_meeting()
        self.finder.end_step()
        self.finder.drop_ahead()
        self.finder.asker.stop(1.0)
        self.hints.stop()
        self.finder.below.stop()
        self.adapters.asker.stop(1.0, 1.0)
        self.publisher.collect(1.0)
        close_cache(self.c)
