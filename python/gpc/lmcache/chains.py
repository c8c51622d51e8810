# SPDX-License-Identifier: Apache-2.0
# Tests: t/893-lmcache-adapter.t
"""Which object comes before which one in its prompt, so that prompts are evicted from their ends.

A store does not tell it: its keys are of several prompts, or of a part of one.  The lookup before it does: it has all
keys of one prompt, those of each rank and object group in order.  Of those that it does not find the one before is
remembered.  The keys of one call are used in the order of their places in their rows, so that of all rows the ends
are least recent: a hit needs all ranks.
"""

import collections
import threading

_MOST = 1 << 16                  # objects that may be stored later


class Chains:
    """Any thread may call it."""

    def __init__(self, most=_MOST):
        self.lock, self.before, self.most = threading.Lock(), collections.OrderedDict(), most

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
                if there is None and last.get(row, digest) != digest:
                    self.before[digest] = last[row]
                    self.before.move_to_end(digest)
                last[row] = digest
            while len(self.before) > self.most:
                self.before.popitem(last=False)

    def of_store(self, digests):
        """(places in an order that has each one after the one before it, for each of these the one before or None)."""
        with self.lock:
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
