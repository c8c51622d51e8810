# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t
"""Tells LMCache's listeners when objects that this server has stored come and go, whichever process evicts or deletes
them. It reads the cache's events.  An event has a digest, so a server learns no key of other servers' objects.

    object                     event                               told
    expected, pieces missing   STORED of the last missing piece    stored
    expected                   REMOVED of a piece
    stored                     REMOVED of a piece, or CLEARED      deleted; it is unknown then
    stored                     too many events missed: a walk      deleted, if a piece is missing
    expected                   the store ends without it           it is unknown then

No lock is held while a listener runs, since it may call the adapter.  One thread at a time calls listeners, so they
hear changes in the order of the events.
"""

import collections
import logging
import threading

import gpc

from .layouts import LAYOUT

log = logging.getLogger("lmcache.gpc")

_MOST = 4096                     # events of one call
PERIOD = 0.2                     # seconds between looks at the events of others


class _Object:
    __slots__ = ("name", "size", "keys", "there", "expected", "told")

    def __init__(self, name, size, keys):
        self.name, self.size, self.keys = name, size, keys
        self.there, self.expected, self.told = set(), 0, False


class Feed:
    def __init__(self, cache, tell_stored, tell_deleted):
        self.c, self.tells = cache, {True: tell_stored, False: tell_deleted}
        self.lock = threading.Lock()             # guards the fields below
        self.objects, self.pieces = {}, {}       # by digest, and by the key of each piece
        self.layouts = set()                     # layouts of all digests that were seen in the cache
        self.news, self.telling = collections.deque(), False
        _, self.cursor = cache.event_read(gpc.FROM_NOW, 1)
        self._walk()
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._follow, name="gpc-l2-feed", daemon=True)
        self.thread.start()

    # ---- the stores of this server ----

    def expect(self, digest, name, size, keys):
        """A store of this server begins; keys are those of its pieces."""
        with self.lock:
            o = self.objects.get(digest)
            if o is None:
                o = self.objects[digest] = _Object(name, size, keys)
                self.pieces.update(dict.fromkeys(keys, o))
            o.expected += 1

    def expect_no_more(self, digest):
        with self.lock:
            self.objects[digest].expected -= 1
            self._forget(digest)

    def known(self, digests):
        with self.lock:
            return {d for d in digests if d in self.objects}

    def _forget(self, digest):
        o = self.objects[digest]
        if not o.expected and not o.told:
            del self.objects[digest]
            for k in o.keys:
                self.pieces.pop(k, None)

    # ---- the events ----

    def read(self):
        """Reads all events until now.  Returns the layouts of all objects that were seen in the cache."""
        with self.lock:
            while not self._read_some():
                pass
            layouts = sorted(self.layouts)
        self._tell()
        return layouts

    def say_deleted(self, names, sizes):
        """Handles events of objects that this server did not store."""
        with self.lock:
            self.news.extend((False, n, s) for n, s in zip(names, sizes))
        self._tell()

    def _read_some(self):
        """Returns whether these were the last ones."""
        try:
            events, self.cursor = self.c.event_read(self.cursor, _MOST)
        except gpc.Stale as e:
            self.cursor = e.cursor
            live = self._walk()
            for digest, o in list(self.objects.items()):
                o.there = live.intersection(o.keys)
                self._changed(digest, o)
            return False
        for e in events:
            self._one(e)
        return len(events) < _MOST

    def _walk(self):
        live, self.layouts = set(), set()
        for e in self.c.walk():
            live.add(e.key)
            if e.digest:
                self.layouts.add(e.digest[-LAYOUT:])
        return live

    def _one(self, e):
        if e.what == gpc.STORED and e.digest:
            self.layouts.add(e.digest[-LAYOUT:])
        if e.what == gpc.CLEARED and not e.tag:
            for digest, o in list(self.objects.items()):
                o.there.clear()
                self._changed(digest, o)
        elif e.what in (gpc.STORED, gpc.REMOVED) and e.key in self.pieces:
            o = self.pieces[e.key]
            (o.there.add if e.what == gpc.STORED else o.there.discard)(e.key)
            self._changed(e.digest, o)

    def _changed(self, digest, o):
        if o.told == (len(o.there) == len(o.keys)):
            return
        o.told = not o.told
        self.news.append((o.told, o.name, o.size))
        self._forget(digest)

    # ---- the listeners ----

    def _tell(self):
        while True:
            with self.lock:
                if self.telling or not self.news:
                    return
                self.telling, came, some = True, self.news[0][0], []
                while self.news and self.news[0][0] == came:
                    some.append(self.news.popleft()[1:])
            try:
                self.tells[came]([n for n, _ in some], [s for _, s in some])
            finally:
                with self.lock:
                    self.telling = False

    def _follow(self):
        while not self.ending.wait(PERIOD):
            try:
                self.read()
            except Exception:
                log.exception("gpc: LMCache's listeners are not told of evictions any more")
                return

    def close(self):
        self.ending.set()
        self.thread.join()
