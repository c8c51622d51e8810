# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-manager.t
"""Turns a finished store into a live key without a wait: publishes are submitted, and later steps look at their
answers."""

import array
import time

import gpc

_STALE = 1.0                     # seconds after which no engine steps on just for an answer


class _Sent:
    __slots__ = ("keys", "blocks", "resident", "ticket", "since", "done")

    def __init__(self, keys, blocks, resident, ticket):
        self.keys, self.blocks, self.resident, self.ticket = keys, blocks, resident, ticket
        self.since, self.done = time.monotonic(), False


class Publisher:
    def __init__(self, cache, conf, groups, counts, import_keys):
        self.c, self.conf, self.groups, self.counts, self.import_keys = cache, conf, groups, counts, import_keys
        self.sent = []

    def publish(self, group, keys, blocks, parents, root=None, tokens=None, import_keys=None, since=0):
        """Publishes.  keys: in the order of the prompt, each with the key before it, or with None for no parent; then
        its parent is root, if there is one.  tokens: those of all blocks, which the cache keeps.  The result has the
        answers, in resident, when it is done.  None: the publish was not submitted, and the blocks are released.
        import_keys: a function that makes gpc keys of these, if it is not the publisher's own.  since: the count of
        drops() before the search for the blocks that these were computed from."""
        import_keys = import_keys or self.import_keys
        raw = bytes(import_keys(keys))
        chain = self._chain(keys, raw, parents, root, import_keys) if self.groups.get(group, False) else None
        resident = array.array("i", [-1] * len(blocks))
        digests = [k[:-4] for k in keys]
        notes = {"digests": digests} if len(digests[0]) <= 32 else {}
        if tokens is not None:
            notes["tokens"] = tokens
        try:
            ticket = self.c.publish(chain, raw, blocks, tag=self.conf.tag, group=group,
                                    flags=gpc.NO_REF, timeout=0, resident=resident, since=since, **notes)
        except gpc.Error as e:           # the ring is full, or there is no writer: not cached
            ticket = getattr(e, "ticket", 0)
            if not ticket:
                self.c.release(blocks)
                self.counts["refused"] += len(blocks)
                return None
        self.sent.append(_Sent(keys, blocks, resident, ticket))
        return self.sent[-1]

    def _chain(self, keys, raw, parents, root, import_keys):
        """The gpc keys of the parents; raw: those of keys, each of which mostly follows the one before it."""
        if parents[1:] == keys[:-1]:
            first = bytes(import_keys(parents[:1])) if parents[0] else root or bytes(16)
            return first + raw[:-16]
        known = [p for p in parents if p]
        parts = memoryview(import_keys(known) if known else b"")
        at = iter(range(0, len(parts), 16))
        return b"".join(parts[(i := next(at)):i + 16] if p else root or bytes(16) for p in parents)

    def collect(self, timeout=0, last=None):
        """Looks at answers, in order.  A block that was refused, or whose key is already live elsewhere, is still
        reserved.  last: the ticket of the last answer that is known to have come."""
        while self.sent and (last is None or self.sent[0].ticket <= last):
            s = self.sent[0]
            try:
                self.c.ticket_wait(s.ticket, timeout)
            except (gpc.Again, gpc.TimedOut, gpc.NotConnected):
                return
            self.sent.pop(0).done = True
            back = [b for b, r in zip(s.blocks, s.resident) if r != b]
            self.counts["stored"] += len(s.blocks) - len(back)
            self.counts["duplicate"] += sum(r >= 0 for b, r in zip(s.blocks, s.resident) if r != b)
            self.counts["refused"] += sum(r < 0 for r in s.resident)
            self.c.release(back)

    def busy(self):
        return bool(self.sent) and time.monotonic() - self.sent[0].since < _STALE
