# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-seen.t
"""vLLM's store_threshold: a chunk is stored when it is offered for so many a time, by any engine of the cache.

The offers are counted in the cache's table of aliases.  All engines share it, it is bounded, and it forgets its oldest
pairs.  A chunk that was offered n times has n aliases, made of its key and a number.  So its count is the number of
these that are there from the first on.  A request offers a chunk once, however often vLLM asks.  The asker's thread
writes the alias of an offer; an offer by another request at that moment is not counted."""

import logging

log = logging.getLogger("vllm.gpc")

_MARK = b"offered "


class Seen:
    def __init__(self, cache, conf, asker, wait):
        self.c, self.asker, self.wait = cache, asker, wait
        self.levels = max(conf.store_threshold - 1, 0)   # offers that must have been made before
        if self.levels and not cache.info().max_aliases:
            log.warning("gpc: store_threshold: %d, and the cache was made without room to count offers: all chunks are "
                        "stored", conf.store_threshold)
            self.levels = 0

    def _aliases(self, raw):
        """For each key the aliases of all its offers, in order."""
        names = [raw[i:i + 16] + _MARK + bytes((n,)) for i in range(0, len(raw), 16) for n in range(self.levels)]
        return bytes(self.c.key_import(b"".join(names), size=16 + len(_MARK) + 1))

    def _counts(self, raw, aliases):
        to, step, out = bytes(self.c.alias_resolve(aliases)), 16 * self.levels, []
        for i in range(0, len(raw), 16):
            at, n = i // 16 * step, 0
            while n < self.levels and to[at + 16 * n:at + 16 * n + 16] == raw[i:i + 16]:
                n += 1
            out.append(n)
        return out

    def ready(self, raw):
        """The number of the first keys that are stored when they are offered next."""
        n = len(raw) // 16
        if not self.levels:
            return n
        counts = self._counts(raw, self._aliases(raw))
        return next((i for i, count in enumerate(counts) if count < self.levels), n)

    def offer(self, keys, raw_of, req):
        """Those that should be stored.  raw_of(keys): their gpc keys.  Returns also how many were offered too
        seldom."""
        if not self.levels:
            return keys, 0
        new = [k for k in keys if k not in req.offered]
        if new:
            raw = raw_of(new)
            aliases = self._aliases(raw)
            counts = self._counts(raw, aliases)
            told = [(i, n) for i, n in enumerate(counts) if n < self.levels]
            names = b"".join(aliases[16 * (i * self.levels + n):][:16] for i, n in told)
            to = b"".join(raw[16 * i:16 * i + 16] for i, _ in told)
            if told:
                self.asker.ask(lambda: self.c.alias(names, to, timeout=self.wait))
            req.offered.update((k, n >= self.levels) for k, n in zip(new, counts))
        return [k for k in keys if req.offered[k]], sum(not req.offered[k] for k in new)
