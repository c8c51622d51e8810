# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-failures.t
"""Has the cache a writer?  Without one nothing is stored, and no other sign shows it: an engine whose gpc_serve is
false computes as before."""

import logging
import time

log = logging.getLogger("vllm.gpc")

LOOK = 0.5                       # seconds from one look to the next
GRACE = 1                        # seconds that a new writer may take
AGAIN = 60                       # seconds from one warning to the next


class Writer:
    def __init__(self, cache, name, conf, clock=time.monotonic):
        self.c, self.name, self.conf, self.clock = cache, name, conf, clock
        self.there, self.next_look = 1, clock()
        self.next_word = None    # while there is none: when to warn next
        self.told = False

    def look(self):
        """1 or 0, for the gauge.  Each step asks."""
        now = self.clock()
        if now < self.next_look:
            return self.there
        self.next_look, self.there = now + LOOK, int(self.c.info().writer_pid != 0)
        if self.there:
            if self.told:
                log.warning("gpc: the cache %s has a writer again", self.name)
            self.next_word, self.told = None, False
        elif self.next_word is None:
            self.next_word = now + GRACE
        elif now >= self.next_word:
            log.warning("gpc: the cache %s has no writer: nothing is stored until %s", self.name,
                        "one of its engines takes the seat" if self.conf.serve else
                        f"'gpcd {self.name}' runs, or an engine whose gpc_serve is true")
            self.next_word, self.told = now + AGAIN, True
        return self.there
