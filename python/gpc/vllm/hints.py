# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-hints.t
"""Hints of an orchestrator about the KV cache of a prompt: vLLM's kv_hints (0.32 and later), and the same envelope as kv_hints
or kv_hint of a request's kv_transfer_params.

    action      is carried out as                                              told
    prefetch    its chunks are asked for below RAM, at once, by gpc_prefetch   accepted; clipped: no tier has all of them;
                                                                               rejected: no tier has any, or it is late
    demote      when its request has ended: chunks without a copy below are    accepted: all have a copy; clipped: not all yet;
                written there at once, and each leaves RAM as soon as it       rejected: there is no tier
                has one, LEAVE seconds long
    share       nothing: all engines of the cache have it                      accepted
    retain, pin not carried out                                                not carried out
    others      ignored                                                        unknown

An action is about the prompt of its request, or the chunks that its payload names: block_hashes, a list of hexadecimal hashes of
vLLM's blocks, of which those that end a chunk count; or token_range, [first, end) of the prompt.  A target of another
kind, as a session, is rejected: nobody here knows it.  The outcomes are counted, logged, and told with the request's
kv_transfer_params as kv_hints."""

import logging
import threading
import time
from collections import deque

import gpc

from ..engines.below import DISK, RAM, STORE

log = logging.getLogger("vllm.gpc")

ACCEPTED, CLIPPED, REJECTED, NOT_DONE, UNKNOWN = "accepted", "clipped", "rejected", "not_carried_out", "unknown"
OUTCOMES = (ACCEPTED, CLIPPED, REJECTED, NOT_DONE, UNKNOWN)
LEAVE = 60.0                     # seconds that a chunk may take to have a copy below
MOST = 1 << 16                   # chunks that are to leave RAM
MOST_ACTIONS = 64                # of one request
_EACH = 0.2                      # seconds between looks at which have a copy
_CALL = 1.0                      # seconds for the writer
_ASK = 1.0                       # seconds until the steward is asked again, with a new list
_SOME = 1024                     # chunks of a question
_TARGETS = ("session", "session_id", "target", "targets")


def _get(what, name):
    return what.get(name) if isinstance(what, dict) else getattr(what, name, None)


def actions_of(ctx):
    """[(number, kind, payload)] of a request's context; empty for any text that is no envelope."""
    params, out = getattr(ctx, "kv_transfer_params", None) or {}, []
    for envelope in (getattr(ctx, "kv_hints", None), *(params.get(n) for n in ("kv_hints", "kv_hint")
                                                       if isinstance(params, dict))):
        actions = _get(envelope, "actions") if envelope is not None else None
        for a in actions if isinstance(actions, (list, tuple)) else ():
            kind = str(_get(a, "action_type") or "").lower().removeprefix("kv.")
            payload = _get(a, "payload")
            out.append((str(_get(a, "action_id")), kind, payload if isinstance(payload, dict) else {}))
    return out[:MOST_ACTIONS]


class Leaving:
    """Chunks that are written below, and leave RAM when they have a copy there.  A thread of its own asks for the
    copies, and reclaims the chunks, last ones first."""

    def __init__(self, cache, below):
        self.c, self.below = cache, below
        # (until, keys of a prompt, last one first, when to ask next)
        self.waiting, self.lock = deque(), threading.Lock()
        self.n, self.left, self.asked, self.thread, self.stopped = 0, 0, 0, None, threading.Event()

    def add(self, keys):
        """False: there are too many."""
        with self.lock:
            if self.n + len(keys) > MOST or self.stopped.is_set():
                return False
            self.n += len(keys)
            self.waiting.append((time.monotonic() + LEAVE, keys, 0.0))
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="gpc-leaving", daemon=True)
                self.thread.start()
        return True

    def _run(self):
        while not self.stopped.wait(_EACH):
            for _ in range(len(self.waiting)):
                until, keys, again = self.waiting.popleft()
                try:
                    rest, bare = self._leave(keys)
                    if bare and time.monotonic() >= again:
                        again = time.monotonic() + _ASK
                        self._write(bare)
                except gpc.Error as e:
                    log.debug("gpc: demote: %s", e)
                    rest = keys
                except Exception:
                    log.exception("gpc: demote")
                    rest = []
                rest = rest if time.monotonic() < until else []
                with self.lock:
                    self.n -= len(keys) - len(rest)
                if rest:
                    self.waiting.append((until, rest, again))

    def _leave(self, keys):
        """Returns the chunks that stay for now, and those of them that are in RAM alone.  A chunk stays if it has no
        copy yet, is not published yet or is held, or if a chunk that stays follows it."""
        raw = b"".join(keys)
        blocks = self.c.lookup(raw, spaces=1 << self.below.space, flags=gpc.QUIET)
        there = [bool(s & {DISK, STORE}) for s in self.below.tiers_of(raw)]
        go = [(k, b) for k, b, t in zip(keys, blocks, there) if b >= 0 and t]
        if go:
            results = self.c.reclaim([b for _, b in go], keys=b"".join(k for k, _ in go), timeout=_CALL)
            gone = [(k, b) for (k, b), r in zip(go, results) if r == 0]
            self.c.release([b for _, b in gone])
            self.left += len(gone)
            done = {k for k, _ in gone}
        else:
            done = set()
        return ([k for k, b, t in zip(keys, blocks, there) if k not in done and (b >= 0 or not t)],
                [k for k, b, t in zip(keys, blocks, there) if b >= 0 and not t])

    def _write(self, keys):
        """Asks for them; they are looked at again later."""
        some = keys[-_SOME:][::-1]       # from the root on
        try:
            self.c.prefetch(self.below.pool, b"".join(some), flags=gpc.BELOW, timeout=0)
            self.asked += len(some)
        except (gpc.Again, gpc.NotConnected) as e:
            log.debug("gpc: demote: %s", e)

    def stop(self):
        self.stopped.set()
        if self.thread is not None:
            self.thread.join()


class Hints:
    def __init__(self, finder, counts):
        self.finder, self.counts = finder, counts
        self.leaving = Leaving(finder.c, finder.below)
        self.of = {}             # request's number -> [[number of the action, kind, outcome]]
        self.later = {}          # request's number -> [keys that leave when it has ended]

    def arrive(self, ctx, raw_of):
        """raw_of(payload): gpc keys of the chunks that an action names, in the order of the prompt; None: they are not
        known."""
        actions = actions_of(ctx)
        if not actions:
            return
        self.of[ctx.req_id] = told = []
        for number, kind, payload in actions:
            outcome = self._do(ctx.req_id, kind, payload, raw_of)
            self.counts["hints_" + outcome] += 1
            told.append({"action_id": number, "action_type": kind, "outcome": outcome})
            log.debug("gpc: request %s: hint %s, %s: %s", ctx.req_id, number, kind, outcome)

    def _do(self, request, kind, payload, raw_of):
        if kind == "share":
            return ACCEPTED
        if kind in ("retain", "pin"):
            return NOT_DONE
        if kind not in ("prefetch", "demote"):
            return UNKNOWN
        raw = None if any(t in payload for t in _TARGETS) else raw_of(payload)
        if not raw or not self.finder.below.mask:
            return REJECTED
        return self._prefetch(raw) if kind == "prefetch" else self._demote(request, raw)

    def _prefetch(self, raw):
        below, n = self.finder.below, len(raw) // 16
        may = below.may_come(raw)
        if all(s is RAM for s in may):
            return ACCEPTED if len(may) == n else REJECTED
        got = below.hint(raw[:16 * len(may)])
        if got is None:
            return REJECTED
        return ACCEPTED if len(may) == n and n - got <= 1024 else CLIPPED

    def _demote(self, request, raw):
        keys = [raw[i:i + 16] for i in range(0, len(raw), 16)]
        self.later.setdefault(request, []).append(keys[::-1])
        copies = self.finder.below.tiers_of(raw)
        return ACCEPTED if all(s & {DISK, STORE} for s in copies) else CLIPPED

    def finished(self, request):
        """The request's last store may not be published yet, so chunks without a copy are looked at again."""
        for keys in self.later.pop(request, ()):
            if not self.leaving.add(keys):
                log.debug("gpc: request %s: %d chunks are to leave RAM already", request, self.leaving.n)

    def take(self, request):
        """The outcomes for the request, if it asked."""
        return self.of.pop(request, None)

    def stop(self):
        self.leaving.stop()
