# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t
"""The order of objects in their prompts, so that prompts are evicted from their ends.

A store does not tell the order: its keys belong to several prompts, or to a part of one.  The lookup before it does: it
has all keys of one prompt, those of each rank and object group in order.  For each key that it does not find, the key
before it is remembered.  The keys of one call are used in the order of their places in their rows, so that of all rows
the ends are least recent: a hit needs all ranks.

    a chunk of LMCache that is stored               is
    prompt: the engine has looked the prompt up     behind the one before it in that lookup
    generated (lmcache.mp.save_decode_cache), or    behind nothing; what was stored in its row since the last lookup of the
      of a lookup that failed, or was too long ago    row is used once more, so that the end is least recent

For the second kind the prompt is not known.  A task of LMCache has objects that several requests have written since the
last task, so neighbours in its row need not follow each other.  So no object may keep another one, or go with it.  But
in the order of stores each object of a prompt comes after those before it, whatever is in between.  A lookup begins
another request.
"""

import collections
import threading

_MOST = 1 << 16                  # objects that may be stored later
_RUN = 64                        # objects that are used once more


class Chains:
    """Any thread may call it."""

    def __init__(self, most=_MOST):
        self.lock, self.most = threading.Lock(), most
        self.before = collections.OrderedDict()  # object -> the one before it; None for a first one
        self.runs = {}           # row -> objects stored since its last lookup, which had not named them

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
                self.runs.pop(row, None)
                if there is None and last.get(row) != digest:
                    self._note(digest, last.get(row))
                last[row] = digest

    def _note(self, digest, before):
        self.before[digest] = before
        self.before.move_to_end(digest)
        while len(self.before) > self.most:
            self.before.popitem(last=False)

    def of_store(self, keys, digests):
        """(places in an order that has each one after the one before it; for each of these the one before or None;
        objects to use after the store, in this order)."""
        with self.lock:
            before, runs = {d: self.before.get(d) for d in digests}, {}
            for key, digest in zip(keys, digests):
                if digest not in self.before:
                    runs[_row(key)] = run = self.runs.setdefault(_row(key), collections.deque(maxlen=_RUN))
                    if digest not in run:
                        run.append(digest)
            used = [d for run in runs.values() for d in run]
        depth = {}
        for d in digests:
            path = []
            while d in before and d not in depth and len(path) <= len(before):       # a ring must not go on for ever
                path.append(d)
                d = before[d]
            for at, p in enumerate(reversed(path), depth.get(d, -1) + 1):
                depth.setdefault(p, at)
        order = sorted(range(len(digests)), key=lambda i: depth[digests[i]])
        return order, [before[digests[i]] for i in order], used


def _row(key):
    """The keys of a rank and an object group, in one lookup."""
    return key.model_name, key.kv_rank, key.object_group_id, key.cache_salt
