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
    is made by another one for longer     has gone on                     the same, and it is opened again
    than gpc_attach_ms
    is there after all                    has gone on                     the next step or request has it; requests
                                                                          under way are set apart

A manager knows since the engine's start which weights the engine has.  Coming knows it in its place, and hands it over: the
namespace, which a reset changes, and the adapters, whose files are looked at when a request has one first."""

import logging
import threading
import time
import types

import gpc

from ..engines.cache import close_cache
from . import meet
from .adapters import WAIT

log = logging.getLogger("vllm.gpc")

SMALL = 4 << 30                  # bytes that take about a second
EARLY = 0.2                      # seconds from the moment when the making has begun
AGAIN = 60                       # seconds from one error to the next
PAUSE = 10                       # seconds before a cache is opened again


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

    def _open(self):
        while True:
            try:
                return self.call(self._making)
            except (gpc.Again, gpc.TimedOut) as e:       # another process makes it
                if not self.late or self.unwanted:
                    raise
                log.warning("gpc: this engine has no cache yet, and goes on waiting: %s", e)
            time.sleep(PAUSE)

    def _run(self):
        cache = error = None
        try:
            cache = self._open()
        except Exception as e:
            error = e
        with self.lock:
            late, unwanted = self.late, self.unwanted
            self.cache, self.error, self.ended = None if unwanted else cache, error, True
            self.lock.notify_all()
        if unwanted and cache is not None:
            close_cache(cache)
        elif late and error is not None:
            tell(error)

    def wait(self, early):
        """The cache.  early: the most seconds from the moment when memory is to be made, or None.  None: it is being
        made."""
        with self.lock:
            self.lock.wait_for(lambda: self.ended or self.makes)
            self.late = not self.lock.wait_for(lambda: self.ended, timeout=early)
        if self.error is not None and not self.late:
            raise self.error
        return None if self.late else self.cache

    def give_up(self):
        """Nobody will take it."""
        with self.lock:
            self.unwanted, cache, self.cache = True, self.cache, None
        if cache is not None:
            close_cache(cache)


class Coming:
    """The manager of an engine whose cache is being made: all of it that vLLM and GPCConnector call."""

    def __init__(self, opening, make, api, stats, engine, conf, namespace, adapters, clock=time.monotonic):
        """make(cache): the manager that follows.  stats: figures of an engine without a cache, told once."""
        self.opening, self.make, self.api, self.engine, self.clock = opening, make, api, engine, clock
        self.namespace, self.adapters = namespace, adapters
        self.unknown = {}        # requests whose adapter is looked at -> until when they wait for that
        self.stats, self.next_word = stats, clock() + AGAIN
        self.hints = types.SimpleNamespace(take=lambda number: None)
        self.meeting = meet.leave_word(conf.dir, engine) if engine is not None else None

    def come(self):
        """The manager that takes over from now on; None: there is none yet."""
        o = self.opening
        if o.ended and o.error is None:
            cache, o.cache = o.cache, None
            try:
                manager = self.make(cache)       # its word takes the place of ours
                manager.late = True
                return manager
            except Exception as e:
                o.error = e
                tell(e)
            close_cache(cache)
        elif o.ended and self.clock() >= self.next_word:
            self.next_word = self.clock() + AGAIN
            tell(o.error)
        return None

    def _end_meeting(self):
        if self.meeting:
            meet.remove(self.meeting)
            self.meeting = None

    def see(self, number, lora):
        """A request with an adapter: vLLM reads its files later than we do."""
        def looked(state, digest):
            self.unknown.pop(number, None)
            self.adapters.salt(self.namespace.salt, lora, state, digest)
        if self.adapters.look(lora, looked):
            self.unknown[number] = self.clock() + WAIT
        else:
            self.adapters.salt(self.namespace.salt, lora, None, None)    # not known from now on

    # ---- what vLLM calls ----

    def lookup(self, key, req_context):
        self.adapters.asker.take()
        waits = self.clock() < self.unknown.get(req_context.req_id, 0)
        return self.api.LookupResult.RETRY if waits else self.api.LookupResult.MISS

    def prepare_load(self, keys, req_context):
        raise KeyError("nothing is loaded: no lookup has said HIT")

    def prepare_store(self, keys, req_context):
        return self.api.PrepareStoreOutput([], None, [])

    def on_new_request(self, req_context):
        return self.api.RequestOffloadingContext()

    def on_request_finished(self, req_context):
        self.unknown.pop(req_context.req_id, None)

    def on_schedule_end(self, context):
        self.adapters.asker.take()

    def has_pending_work(self):
        return self.adapters.asker.under_way > 0

    def reset_cache(self):
        log.info("gpc: reset: this engine's namespace is %s from now on; others keep theirs", self.namespace.reset())

    def get_stats(self):
        stats, self.stats = self.stats, None
        return stats

    def config_info(self):
        return []

    def shutdown(self):
        self._end_meeting()
        self.adapters.asker.stop(1.0, 1.0)
        self.opening.give_up()

    # ---- what GPCConnector calls ----

    def set_apart(self, req_context): ...

    def count_hits(self, keys, req_context):
        return None

    def take_hints(self, req_context, groups): ...
    def ask_again(self, req_context): ...
    def count_own(self, req_context, tokens): ...
    def count_asked(self, req_context): ...
    def claim_wanted(self, req_context): ...

    def take_later(self):
        return {}
