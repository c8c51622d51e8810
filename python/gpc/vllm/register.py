# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-register.t
"""Registers the slots of a rank with its GPU: in pieces, in a thread, in one process of the machine at a time.

A copy between a GPU and memory that is not registered goes through memory of the driver.  It is slower, and the call that
copies is synchronous; steps beside it were slower, too (t/bench/NOTES.md).  Copies do not wait for a registration:

    piece       a copy that touches it          who ends the state
    NEW         through the driver's memory     the thread, which begins when the worker has attached, or a job, which
                                                registers pieces of its own before it copies
    UNDER_WAY   straight, if the driver has     whoever has made it so
                registered the piece when the
                copy begins; else as NEW
    DONE        straight                        close(), after the last copy
    OTHERS      straight                        close(); whoever registered it unregisters it
    REFUSED     through the driver's memory     close(); one warning tells it, and later pieces are not tried
    ENDED       there is none                   -

A piece has whole slots, and no copy reaches from one piece into another (pages.c).  The driver refuses a copy if one
part of its memory is registered and another is not, or if the two are registered separately.

While the driver registers a piece, it holds a lock; kernel launches of this process wait for it.  If the next
registration follows at once, it takes this lock before the launch does, so the launch waits for all pieces in a row.
So pieces are small.  While the engine launches a step, or has just done so, the thread rests after each piece: REST times
as long as the piece took, and MOST_REST at most.  At other times it only lets others have a turn.

The driver registers a piece in a third of the time in which it copies as many bytes through its own memory.  So a job
whose slots are at least one part in DENSE of the new pieces that it touches registers these first.  A new cache hands out
slots in order, so the thread goes on behind the last store: the next one finds its pieces registered.

Processes take turns by a second lock, of the cache's folder.  It ends with the process that holds it.  If a process is
stopped while it holds this lock, the others wait for PATIENCE at most, and then register without the lock.  A job does not
wait for its turn."""

import errno
import fcntl
import logging
import os
import threading
import time
from collections import Counter

log = logging.getLogger("vllm.gpc")

PIECE = 64 << 20                 # bytes that are registered at a time: some milliseconds
REST, MOST_REST = 15, 0.25       # beside steps: times as long as the piece took; seconds
BUSY = 0.02                      # seconds after the launches of a step, in which the next one may begin
DENSE = 2
PATIENCE = 10                    # seconds
POLL = 0.001
SHORT = 2 * POLL                 # seconds: a process that waits for its turn has looked by then, and a launch has gone
_PAGE = 4096

NEW, UNDER_WAY, DONE, OTHERS, REFUSED, ENDED = "new", "under way", "done", "others'", "refused", "ended"


class Refused(RuntimeError):
    """The driver does not register this."""


class Turns:
    """One process of the machine at a time registers: a lock of a folder that all of them see."""

    def __init__(self, folder):
        self.alone = False       # the process whose turn it is has it for too long
        try:
            self.fd = os.open(folder or "/dev/shm", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self.fd = -1

    def take(self, stop):
        """False: the lock is not ours, and we go on all the same."""
        until = time.monotonic() + (0 if self.alone else PATIENCE)
        while self.fd >= 0 and not stop.is_set():
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.alone = False
                return True
            except OSError as e:
                if e.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                    return False         # a file system without such locks
            if time.monotonic() >= until:
                self.alone = True
                return False
            stop.wait(POLL)
        return False

    def give(self):
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Steps:
    """Told by the engine's thread when it begins to launch a step, and when it has done so."""

    def __init__(self):
        self.launching, self.last = False, float("-inf")

    def tell(self, launching):
        self.launching, self.last = launching, time.monotonic()

    def are_near(self):
        return self.launching or time.monotonic() < self.last + BUSY


class Registration:
    """Memory of `slots` slots from `base` on, `stride` bytes each."""

    def __init__(self, driver, base, slots, stride, folder, steps):
        """driver: start(), called in the thread that registers; register(address, nbytes): None, or True where another
        has registered it, or Refused; unregister(address).  steps: the engine's."""
        self.driver, self.base, self.nbytes, self.stride, self.steps = driver, base, slots * stride, stride, steps
        self.each = max(1, PIECE // stride)      # slots of a piece
        if base % _PAGE or stride % _PAGE:       # else a page would lie in two pieces
            self.each = max(1, slots)
        step = self.each * stride
        self.pieces = [(base + at, min(step, self.nbytes - at)) for at in range(0, self.nbytes, step)]
        self.states, self.next, self.lock, self.warned = [NEW] * len(self.pieces), 0, threading.Lock(), False
        self.turns, self.stop = Turns(folder), threading.Event()
        self.thread = threading.Thread(target=self._run, name="gpc-register", daemon=True)
        self.thread.start()

    def _run(self):
        since = time.monotonic()
        try:
            self.driver.start()
            while not self.stop.is_set():
                if not self._one():
                    break
            if not {NEW, REFUSED} & {*self.states}:
                log.info("gpc: %d MiB of slots are registered with the GPU, %.1f s after the first one was begun",
                         self.nbytes >> 20, time.monotonic() - since)
        except Refused as e:
            self._warn(e)

    def _warn(self, e):
        with self.lock:
            warned, self.warned = self.warned, True
        if warned:
            return
        log.warning("gpc: %d of %d MiB of slots are registered with the GPU, and no more of them: %s; copies of the others "
                    "are slower, and otherwise the same", self.registered() >> 20, self.nbytes >> 20, e)

    def _take(self, i):
        """Is the piece this caller's to register?"""
        with self.lock:
            return self._take_locked(i)

    def _take_locked(self, i):
        mine = self.states[i] == NEW and REFUSED not in self.states
        if mine:
            self.states[i] = UNDER_WAY
        return mine

    def _take_next(self):
        """The first new piece from `next` on and round, for this caller; None: there is none, or no more are tried."""
        with self.lock:
            n, at = len(self.states), self.next
            i = next((i % n for i in range(at, at + n) if self._take_locked(i % n)), None)
            self.next = self.next if i is None else i + 1
            return i

    def _register(self, i):
        try:
            self.states[i] = OTHERS if self.driver.register(*self.pieces[i]) else DONE
        except Refused:
            self.states[i] = REFUSED
            raise

    def _one(self):
        """The next piece, and a rest.  False: none is left."""
        ours, since = self.turns.take(self.stop), time.monotonic()
        try:
            i = None if self.stop.is_set() else self._take_next()
            if i is None:
                return False
            self._register(i)
        finally:
            if ours:
                self.turns.give()
        self.stop.wait(self.rest(time.monotonic() - since))
        return True

    def hasten(self, slots, of_job, store):
        """Copies of these slots, a share of the job's, begin in a thread of the driver's device."""
        if NEW not in self.states:
            return
        if store:
            with self.lock:
                self.next = (slots[-1] // self.each + 1) % len(self.states)
        new = Counter(i for i in (s // self.each for s in of_job) if self.states[i] == NEW)
        if sum(self.pieces[i][1] for i in new) > DENSE * new.total() * self.stride:
            return
        try:
            for i in filter(self._take, sorted({s // self.each for s in slots})):
                self._register(i)
                if store:                # which may take longer, so launches go between two pieces
                    self.stop.wait(SHORT)
        except Refused as e:
            self._warn(e)

    def rest(self, took):
        """Seconds."""
        return max(SHORT, min(REST * took, MOST_REST) if self.steps.are_near() else 0)

    def registered(self):
        """Bytes."""
        return sum(n for (_, n), s in zip(self.pieces, self.states) if s in (DONE, OTHERS))

    def running(self):
        return self.thread.is_alive()

    def close(self):
        """Called when no copy is under way.  It waits for the piece that is being registered."""
        self.stop.set()
        self.thread.join()
        self.turns.close()
        for i, (address, _) in enumerate(self.pieces):
            if self.states[i] == DONE:
                self.driver.unregister(address)
            self.states[i] = ENDED
