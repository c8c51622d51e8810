# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-coming.t
"""An engine answers before the memory of its cache is made.

The memory of a large cache takes seconds to minutes, and an engine without a cache computes all the same.  So a thread
opens the cache.  The engine's start waits for it as long as that is short:

    the cache                             the engine's start              until it is there
    is there                              goes on with it                 -
    cannot be opened, or made             ends with the error             -
    has at most SMALL bytes               waits                           -
    is larger, and this engine or         waits EARLY, for an error,      Coming is its manager: requests find and
    another one makes it                  and then goes on                store nothing
    cannot be made after all              has gone on                     the same; an error in the log, once in AGAIN
    is there after all                    has gone on                     the next step or request has it, and requests
                                                                          under way are stored from their beginning
                                                                          on, but for windows

Resets that Coming has heard of are told to the manager that follows it, since the weights are others from then on."""

import logging
import threading
import time
import types

from ..engines.cache import close_cache
from . import meet

log = logging.getLogger("vllm.gpc")

SMALL = 4 << 30                  # bytes that take about a second
EARLY = 1.0                      # seconds from the moment when the making has begun
AGAIN = 60                       # seconds from one error to the next


def tell(error):
    log.error("gpc: this engine goes on without a cache: %s", error)


class Opening:
    """A thread that opens a cache."""

    def __init__(self, call):
        """call(making): returns the cache.  It calls making() when memory is to be made from then on, or another
        process makes it."""
        self.call, self.lock, self.cache, self.error = call, threading.Condition(), None, None
        self.makes, self.ended = False, False
        self.late, self.unwanted = False, False          # nobody waits any more for an error; for the cache
        threading.Thread(target=self._run, name="gpc-opening", daemon=True).start()

    def _making(self):
        with self.lock:
            self.makes = True
            self.lock.notify_all()

    def _run(self):
        cache = error = None
        try:
            cache = self.call(self._making)
        except Exception as e:
            error = e
        with self.lock:
            self.cache, self.error, self.ended, late, unwanted = cache, error, True, self.late, self.unwanted
            self.lock.notify_all()
        if unwanted and cache is not None:
            close_cache(cache)
        elif late and error is not None:
            tell(error)

    def wait(self, early):
        """Until the cache is there.  early: so many seconds at most, from the moment when memory is to be made, or None.
        None: it is being made."""
        with self.lock:
            self.lock.wait_for(lambda: self.ended or self.makes)
            self.lock.wait_for(lambda: self.ended, timeout=early)
            self.late = True
        return self.take()

    def take(self):
        """The cache; None: it is being made.  Raises the error, if there is none and will be none."""
        if not self.ended:
            return None
        if self.error is not None:
            raise self.error
        return self.cache

    def give_up(self):
        """Nobody will take it."""
        with self.lock:
            self.unwanted, ended = True, self.ended
        if ended and self.cache is not None:
            close_cache(self.cache)


class Coming:
    """The manager of an engine whose cache is being made: all of it that vLLM and GPCConnector call."""

    def __init__(self, opening, make, api, stats, engine, conf, clock=time.monotonic):
        """make(cache): the manager that follows.  stats(): figures of an engine without a cache."""
        self.opening, self.make, self.api, self.engine, self.clock = opening, make, api, engine, clock
        self.get_stats, self.resets, self.apart, self.next_word = stats, False, [], clock() + AGAIN
        self.hints = types.SimpleNamespace(take=lambda number: None)
        self.meeting = meet.leave_word(conf.dir, engine) if engine is not None else None

    def come(self):
        """The manager that takes over from now on; None: there is none yet."""
        try:
            cache = self.opening.take()
        except Exception as e:
            if self.clock() >= self.next_word:
                self.next_word = self.clock() + AGAIN
                tell(e)
            return None
        if cache is None:
            return None
        self._end_meeting()
        manager = self.make(cache)
        manager.late = True
        for ctx in self.apart:
            manager.set_apart(ctx)
        if self.resets:
            manager.reset_cache()
        return manager

    def _end_meeting(self):
        if self.meeting:
            meet.remove(self.meeting)
            self.meeting = None

    # ---- what vLLM calls ----

    def lookup(self, key, req_context):
        return self.api.LookupResult.MISS

    def prepare_load(self, keys, req_context):
        raise KeyError("nothing is loaded: no lookup has said HIT")

    def prepare_store(self, keys, req_context):
        return self.api.PrepareStoreOutput([], None, [])

    def on_new_request(self, req_context):
        return self.api.RequestOffloadingContext()

    def reset_cache(self):
        self.resets = True

    def config_info(self):
        return []

    def shutdown(self):
        self._end_meeting()
        self.opening.give_up()

    # ---- what GPCConnector calls ----

    def set_apart(self, req_context):
        self.apart.append(req_context)

    def count_hits(self, keys, req_context):
        return None

    def take_hints(self, req_context, groups): ...
    def ask_again(self, req_context): ...
    def count_own(self, req_context, tokens): ...
    def count_asked(self, req_context): ...

    def take_later(self):
        return {}
