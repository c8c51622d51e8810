# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-register.t
"""Registers the slots of a rank with its GPU: in pieces, in a thread, in one process of the machine at a time.

A copy between a GPU and memory that is not registered goes through memory of the driver.  It is slower, and the call
that copies is synchronous.  Copies do not wait for a registration:

    piece       a copy that touches it          who ends the state
    NEW         through the driver's memory     the thread, which begins when the worker has attached
    UNDER_WAY   straight, if the driver has     the thread
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
Even with rests, a piece delays a step by several times its own time.  So pieces are small.  While the engine is in a
step, or has been a moment ago, the thread rests after each piece: REST times as long as the piece took, and MOST_REST
at most.
An engine that has nothing to do, as after its start, launches nothing, and the thread only lets others have a turn.

Processes take turns by a second lock, of the cache's folder.  It ends with the process that holds it.  If a process is
stopped while it holds this lock, the others wait for PATIENCE at most, and then register without the lock."""

import errno
import fcntl
import logging
import os
import threading
import time

log = logging.getLogger("vllm.gpc")

PIECE = 64 << 20                 # bytes that are registered at a time: some milliseconds
REST, MOST_REST = 60, 0.25       # beside steps: times as long as the piece took; seconds
BUSY = 0.2                       # seconds after the begin or the end of a step, in which another one may begin or go on
PATIENCE = 10                    # seconds
POLL = 0.001
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
    """Told by the engine's thread at the begin and at the end of each step."""

    def __init__(self):
        self.last = float("-inf")

    def tell(self):
        self.last = time.monotonic()

    def are_near(self):
        return time.monotonic() < self.last + BUSY


class Registration:
    """Memory of `slots` slots from `base` on, `stride` bytes each."""

    def __init__(self, driver, base, slots, stride, folder, steps):
        """driver: start(), called in the thread that registers; register(address, nbytes): None, or True where another
        has registered it, or Refused; unregister(address).  steps: when the engine began or ended its last step."""
        self.driver, self.base, self.nbytes, self.steps = driver, base, slots * stride, steps
        self.each = max(1, PIECE // stride)      # slots of a piece
        if base % _PAGE or stride % _PAGE:       # else a page would lie in two pieces
            self.each = max(1, slots)
        step = self.each * stride
        self.pieces = [(base + at, min(step, self.nbytes - at)) for at in range(0, self.nbytes, step)]
        self.states = [NEW] * len(self.pieces)
        self.turns, self.stop = Turns(folder), threading.Event()
        self.thread = threading.Thread(target=self._run, name="gpc-register", daemon=True)
        self.thread.start()

    def _run(self):
        since = time.monotonic()
        try:
            self.driver.start()
            for i in range(len(self.pieces)):
                if self.stop.is_set():
                    return
                self._one(i)
            log.info("gpc: %d MiB of slots are registered with the GPU, %.1f s after the first one was begun",
                     self.nbytes >> 20, time.monotonic() - since)
        except Refused as e:
            log.warning("gpc: %d of %d MiB of slots are registered with the GPU, and no more of them: %s; copies of the others "
                        "are slower, and otherwise the same", self.registered() >> 20, self.nbytes >> 20, e)

    def _one(self, i):
        ours, since = self.turns.take(self.stop), time.monotonic()
        try:
            if self.stop.is_set():
                return
            self.states[i] = UNDER_WAY
            try:
                self.states[i] = OTHERS if self.driver.register(*self.pieces[i]) else DONE
            except Refused:
                self.states[i] = REFUSED
                raise
        finally:
            if ours:
                self.turns.give()
        self.stop.wait(self.rest(time.monotonic() - since))

    def rest(self, took):
        """Seconds, at least as many as processes that wait for their turn need to look."""
        return max(2 * POLL, min(REST * took, MOST_REST) if self.steps.are_near() else 0)

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
