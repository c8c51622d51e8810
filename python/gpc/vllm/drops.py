# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-failures.t
"""Blocks that no lookup should find any more, before the writer has been told of them.

    the ring has room            the drop is on its way, also where there is no writer: the next one does it
    the ring is full             the block is kept here, with a reference of ours, and tried again
    MOST are kept already        it is left as it is: whoever loads it next drops it
"""

import logging
from collections import deque

import gpc

log = logging.getLogger("vllm.gpc")

MOST = 1024                      # blocks that are kept


class Drops:
    def __init__(self):
        self.kept = deque()      # (handle, block)

    def drop(self, c, blocks, keys):
        """They are referenced meanwhile, so they have these keys."""
        if not self._send(c, blocks):
            for block, key in list(zip(blocks, keys))[:MOST - len(self.kept)]:
                if c.ref(key, [block]):          # else the block has gone by itself
                    self.kept.append((c, block))

    def again(self):
        while self.kept and self._send(self.kept[0][0], [self.kept[0][1]]):
            c, block = self.kept.popleft()
            c.release([block])

    def _send(self, c, blocks):
        try:
            c.drop(blocks, flags=gpc.ONLY, timeout=0)
            return True
        except gpc.Error as e:
            log.debug("gpc: drop: %s", e)
            return False
