# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-namespace.t t/python/vllm-manager.t
"""Blocks that were stored and removed, by any process, and that this engine can load: those with its namespace, and
with an adapter that it has seen.  They are told as OffloadKeys."""

import gpc

_MOST = 4096                     # events for one step


class Events:
    def __init__(self, cache, keys_of):
        """keys_of(OffloadKeys): the gpc keys that this engine uses for them, a buffer for each way."""
        self.c, self.cursor, self.keys_of = cache, 0, keys_of
        self.known = {}          # gpc key -> OffloadKey
        _, self.cursor = cache.event_read(gpc.FROM_NOW, 1)
        self.first = self._walk()

    def _walk(self):
        now = self._ours([e for e in self.c.walk() if e.digest])
        gone = [k for g, k in self.known.items() if g not in now]
        new = [k for g, k in now.items() if g not in self.known]
        self.known = now
        return [x for x in ((True, gone), (False, new)) if x[1]]

    def _ours(self, entries):
        """gpc key -> OffloadKey, for the keys that this engine asks for."""
        out, by_size = {}, {}
        for e in entries:
            by_size.setdefault(len(e.digest), []).append(e)
        for some in by_size.values():
            names = [_name(e) for e in some]
            for keys in self.keys_of(names):
                out.update((e.key, n) for i, (e, n) in enumerate(zip(some, names))
                           if keys[16 * i:16 * i + 16] == e.key)
        return out

    def reset(self):
        """Begins another namespace: for this engine the old chunks are gone, and the chunks of the new one have
        come."""
        self.first += self._walk()

    def take(self):
        """Pairs of removed and keys, in order."""
        out, self.first = self.first, []
        try:
            events, self.cursor = self.c.event_read(self.cursor, _MOST)
        except gpc.Stale as e:           # too late for the feed: it looks at the blocks that are there
            self.cursor = e.cursor
            return out + self._walk()
        ours = self._ours([e for e in events if e.what == gpc.STORED and e.digest])
        for e in events:
            self._one(e, out, ours)
        return out

    def _one(self, e, out, ours):
        if e.what == gpc.STORED and e.key in ours and e.key not in self.known:
            self.known[e.key] = ours[e.key]
            _add(out, False, [self.known[e.key]])
        elif e.what == gpc.REMOVED and e.key in self.known:
            _add(out, True, [self.known.pop(e.key)])
        elif e.what == gpc.CLEARED and not e.tag:
            _add(out, True, list(self.known.values()))
            self.known.clear()


def _name(e):
    return e.digest + e.group.to_bytes(4, "big")


def _add(out, removed, keys):
    if out and out[-1][0] == removed:
        out[-1][1].extend(keys)
    elif keys:
        out.append((removed, keys))
