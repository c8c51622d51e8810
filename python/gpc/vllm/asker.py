# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-step.t
"""Questions to the writer of the cache, asked by a thread of their own, so the scheduler's thread waits for no answer.
It takes the answers in a later step.

    asked        in the queue, or the thread waits for the writer
    answered     in `answers`; blocks that it brings are held by this process
    taken        the scheduler's thread has called its function

Every question that is asked is answered, with None where it failed."""

import logging
import queue
import threading
import time
from collections import deque

import gpc

log = logging.getLogger("vllm.gpc")

MOST = 1024                      # questions under way; more are refused, as when the writer is stopped


class Asker:
    def __init__(self, name="gpc-asker"):
        self.name = name
        self.queue, self.answers = queue.SimpleQueue(), deque()
        self.under_way, self.thread = 0, None
        self.prompt = True       # the last answer that was waited for has come

    def ask(self, call, taken=None):
        """The thread calls call(); then the thread that takes the answer calls taken(answer).  False: there are too
        many already."""
        if self.under_way >= MOST:
            return False
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self.thread.start()
        self.under_way += 1
        self.queue.put((call, taken))
        return True

    def _run(self):
        while (asked := self.queue.get()) is not None:
            call, taken = asked
            try:
                answer = call()
            except gpc.Error as e:       # no room, no writer, a busy one
                log.debug("gpc: %s", e)
                answer = None
            except Exception:
                log.exception("gpc: %s", self.name)
                answer = None
            self.answers.append((taken, answer))

    def take(self):
        while self.answers:
            taken, answer = self.answers.popleft()
            self.under_way -= 1
            self.prompt |= not self.under_way
            if taken:
                taken(answer)

    def soon(self, timeout):
        """Have all answers come within this time?  After late answers the next call does not wait until they have
        come."""
        if self.prompt or not self.under_way:
            self.settle(timeout)
            self.prompt = not self.under_way
        else:
            self.take()
        return not self.under_way

    def settle(self, timeout):
        """Waits for the answers, at the end and in tests."""
        end = time.monotonic() + timeout
        self.take()
        while self.under_way and time.monotonic() < end:
            time.sleep(0.001)
            self.take()

    def stop(self, timeout, join=None):
        """join: seconds to wait for a call that is under way; None: as long as it takes."""
        self.settle(timeout)
        if self.thread is not None:
            self.queue.put(None)
            self.thread.join(join)
            self.thread = None
            self.take()
