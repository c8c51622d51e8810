# SPDX-License-Identifier: Apache-2.0
# Tests: t/893-lmcache-adapter.t
"""Which object comes before which one in its prompt, so that prompts are evicted from their ends.

A store does not tell it: its keys are of several prompts, or of a part of one.  The lookup before it does: it has all
keys of one prompt, those of each rank and object group in order.  Of those that it does not find the one before is
remembered.  The keys of one call are used in the order of their places in their rows, so that of all rows the ends
are least recent: a hit needs all ranks.

    a chunk of LMCache that is stored               is behind
    prompt: the engine has looked the prompt up     the one before it in that lookup
    generated (lmcache.mp.save_decode_cache), or    the one that was stored last in its row, if no lookup of the row came
      of a lookup that failed, or was too long ago    in between, for _GUESSED at most in a chain; else nothing

Of the second kind nobody tells a prompt: a task of LMCache has what several requests have written since the last one.
In the order of stores each one of a prompt is behind those before it, whatever comes between, so a chain of several
prompts goes from their ends, too.  But the last one keeps all of a chain: hence its bound, and a lookup, which begins
another request, ends it.
"""

import collections
import threading

_MOST = 1 << 16                  # objects that may be stored later
_GUESSED = 64                    # objects of a chain that no lookup has named


class Chains:
    """Any thread may call it."""

    def __init__(self, most=_MOST):
        self.lock, self.most = threading.Lock(), most
        self.before = collections.OrderedDict()  # object -> the one before it, None for a first one
        self.last = {}           # row -> (object that was stored last, its bytes, how many of its chain are guessed)

    @staticmethod
    def in_step(keys):
        """Places of the first keys of all rows, then of the second ones, and so on."""
        rows, at = collections.Counter(), []
        for key in keys:
            row = _row(key)
            at.append(rows[row])
            rows[row] += 1
        return sorted(range(len(keys)), key=at.__getitem__)

    def of_lookup(self, keys, digests, found):
        last = {}                        # of each rank and group
        with self.lock:
            for key, digest, there in zip(keys, digests, found):
                row = _row(key)
                self.last.pop(row, None)
                if there is None and last.get(row) != digest:
                    self._note(digest, last.get(row))
                last[row] = digest

    def _note(self, digest, before):
        self.before[digest] = before
        self.before.move_to_end(digest)
        while len(self.before) > self.most:
            self.before.popitem(last=False)

    def _guess(self, key, digest, size):
        row = _row(key)
        before, its, n = self.last.get(row, (None, size, 0))
        known = digest in self.before
        if not known:
            behind = before if before != digest and its == size and n < _GUESSED else None
            self._note(digest, behind)
            n = n + 1 if behind else 0
        self.last[row] = digest, size, 0 if known else n

    def of_store(self, keys, digests, sizes):
        """(places in an order that has each one after the one before it, for each of these the one before or None)."""
        with self.lock:
            for key, digest, size in zip(keys, digests, sizes):
                self._guess(key, digest, size)
            before = {d: self.before.get(d) for d in digests}
        depth = {}
        for d in digests:
            path = []
            while d in before and d not in depth and len(path) <= len(before):       # not for ever around a ring
                path.append(d)
                d = before[d]
            for at, p in enumerate(reversed(path), depth.get(d, -1) + 1):
                depth.setdefault(p, at)
        order = sorted(range(len(digests)), key=lambda i: depth[digests[i]])
        return order, [before[digests[i]] for i in order]


def _row(key):
    """Of a rank and an object group, in one lookup."""
    return key.model_name, key.kv_rank, key.object_group_id, key.cache_salt
