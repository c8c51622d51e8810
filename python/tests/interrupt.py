# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every call that waits, and nothing is lost by it: the table of wait.c, call by call, beside a writer that
is stopped, a name that nobody makes, and threads that stay inside.

A thread interrupts the main one when that has slept three times in its call. It counts on: a call that has slept sixty
times more is one that does not hear, and gets what it waits for.
"""

import array
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import gpc
from tap import _made, create, done, is_, name, ok, raises

BYTES = 4096
MOST = 60                       # sleeps, of 0.1 s each at most
handling = []                   # a handler of a test is at work

WRITER = """
import gpc, sys
c = gpc.create(sys.argv[1], max_blocks=300, ram_blocks=20, block_bytes=4096, free_target=-1, max_aliases=16, keep_tokens=1)
c.writer_take()
v = c.pool_make(kind=gpc.VRAM, blocks=24, device="host", block_bytes=4096, demote_to=0, spill_ahead=20)
print(v, flush=True)
while True:
    c.writer_serve()
"""
STEWARD = """
import gpc, sys, threading
c = gpc.create(sys.argv[1], max_blocks=256, ram_blocks=8, block_bytes=4096, serve=True)
t = gpc.tiers_open(sys.argv[1], disk=sys.argv[2], disk_blocks=32, ahead=8, timeout=60)
print(0, flush=True)
threading.Event().wait()
"""


def process(script, *args):
    p = subprocess.Popen([sys.executable, "-c", script, *args], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    return p, int(p.stdout.readline())


def stopped(p):
    p.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, p.pid, os.WSTOPPED | os.WNOWAIT)


def state(p):
    with open(f"/proc/{p.pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0]


def goes_on(p):
    p.send_signal(signal.SIGCONT)


def switches():
    with open(f"/proc/self/task/{threading.main_thread().native_id}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt"))


def interrupted(call, what, rescue, sleeps=3, sig=signal.SIGINT):
    """call() waits for something that does not come, until Ctrl-C; rescue() lets it come."""
    begun, ended, late = threading.Event(), threading.Event(), []

    def rouse():
        begun.wait()
        first = switches()
        while switches() < first + sleeps and not ended.wait(0.005):
            pass
        os.kill(os.getpid(), sig)
        at = switches()
        while not ended.wait(0.02):
            if handling:        # those are sleeps of the handler
                at = switches()
            if switches() > at + MOST and not late:
                late.append(switches() - at)
                rescue()

    t = threading.Thread(target=rouse)
    t.start()
    used = time.thread_time()
    try:
        begun.set()
        got = call()
    except BaseException as e:
        got = e
    ended.set()
    used = time.thread_time() - used
    while t.is_alive():         # a call that did not wait at all is told by got
        try:
            t.join()
        except KeyboardInterrupt:
            pass
    if not ok(isinstance(got, KeyboardInterrupt) and not late and used < 1, f"{what} is interrupted"):
        print(f"# got {got!r}, slept {late} times more, used {used:.2f} s", flush=True)
    return got


# a shell has what runs in its background ignore SIGINT
signal.signal(signal.SIGINT, signal.default_int_handler)
writer, v = process(WRITER, name)
_made.add(name)
c, other = gpc.attach(name), gpc.attach(name)
me = c.info().peer


def rescue():
    goes_on(writer)


def keys_of(text, n):
    return c.key_import([f"{text} {i}".encode() for i in range(n)])


def publish(text, n, pool=v):
    keys, blocks = keys_of(text, n), c.reserve(pool, n)
    is_(c.publish(bytes(16) + keys[:-16], keys, blocks), n, f"{n} blocks of {text}")
    return keys, blocks


# ---- beside a writer that is stopped ----

up, up_blocks = publish("up", 4)                # live, held
c.release(up_blocks[2:])
far, far_blocks = publish("far", 2, 0)
c.release(far_blocks)
far_too, b = publish("far too", 1, 0)
c.release(b)
more, more_blocks = publish("more", 2)
c.release(more_blocks)
moving, moving_blocks = publish("moving", 1)
moves = c.demote(v, 0, moving_blocks)
c.release(moving_blocks)
mine = c.reserve(v, 6)
fresh = keys_of("fresh", 8)
theirs = other.reserve(v, 1)
claimed = c.reserve(v, 1)
c.claim(fresh[112:], claimed)
pending = other.claim(fresh[112:], theirs)
other.release(theirs)
other.ticket_wait()
owned = c.pool_add(kind=gpc.RAM, blocks=4, flags=gpc.POOL_OWNED | gpc.POOL_CALLER, space=9)
buffer = array.array("i", [0])
spare = gpc.attach(name)
up_in_ram, low_blocks = publish("low", 2, 0)     # held, in RAM: to be promoted

calls = [
    ("reserve", lambda: c.reserve(v, 1)),
    ("evict", lambda: c.evict(v, 1, flags=gpc.TAKE)),
    ("publish", lambda: c.publish(None, fresh[:16], mine[:1])),
    ("publish with a buffer", lambda: c.publish(None, fresh[16:32], mine[1:2], resident=buffer)),
    ("drop", lambda: c.drop(up_blocks[3:])),
    ("rekey", lambda: c.rekey(None, fresh[48:64], up_blocks[2:3])),
    ("reclaim", lambda: c.reclaim(more_blocks[1:])),
    ("alias", lambda: c.alias(fresh[64:80], fresh[80:96])),
    ("root_keep", lambda: c.root_keep([(7, b"a root")])),
    ("claim", lambda: c.claim(fresh[96:112], mine[2:3])),
    ("claim_drop", lambda: c.claim_drop(mine[2:3])),
    ("demote", lambda: c.demote(v, 0, None, 1)),
    ("promote", lambda: c.promote(low_blocks, v)),
    ("commit", lambda: c.commit(moves)),
    ("fetch", lambda: c.fetch(v, far)),
    ("fetch of ranks", lambda: c.fetch(v, far_too, ranks=[me])),
    ("spill", lambda: c.spill(v, 0, None, 1)),
    ("spill_ahead", lambda: c.spill_ahead(v)),
    ("pool_add", lambda: c.pool_add(kind=gpc.RAM, blocks=2, space=10)),
    ("pool_make", lambda: c.pool_make(kind=gpc.RAM, blocks=2, transit=1, block_bytes=BYTES, space=11)),
    ("pool_clear", lambda: c.pool_clear(-1, tag=99)),
    ("returned", lambda: c.returned(owned, 4)),
    ("ticket_wait", lambda: c.ticket_wait()),
    ("mirror_sync", lambda: c.mirror_sync()),
    ("claim_wait", lambda: other.claim_wait(pending)),
    ("writer_take", lambda: spare.writer_take(flags=gpc.STANDBY)),
]
stopped(writer)
for what, call in calls:
    interrupted(call, what, rescue)
    if state(writer) != "T":
        stopped(writer)
raises(BufferError, "", lambda: buffer.append(1), "the buffer of an interrupted publish is kept: it cannot be resized")


# a wait for a thread that waits: the lock of pools
def add():
    try:
        c.pool_add(kind=gpc.RAM, blocks=2, space=12)
    except gpc.Error:
        pass


adder = threading.Thread(target=add)
adder.start()
interrupted(lambda: c.pool_add(kind=gpc.RAM, blocks=2, space=13), "pool_add beside a thread that waits", rescue)

# close waits for the call of another thread, and is open again
heard = []
inside = threading.Event()


def wait_inside():
    inside.set()
    try:
        spare.reserve(v, 1)
    except BaseException as e:
        heard.append(e)


sitter = threading.Thread(target=wait_inside)
sitter.start()
inside.wait()
while not spare.closed and spare.ticket_last() == 0:
    time.sleep(0.001)
interrupted(spare.close, "close beside a thread that waits", rescue)
is_(spare.closed, False, "and the handle is open")

# a handler that raises nothing: the wait goes on to its own limit
rang = []
signal.signal(signal.SIGUSR1, lambda *_: rang.append(1))
for what, call in (("reserve", lambda: c.reserve(v, 1, timeout=0.7)),
                   ("ticket_wait", lambda: c.ticket_wait(timeout=0.7)),
                   ("claim_wait", lambda: other.claim_wait(pending, timeout=0.7))):
    del rang[:]
    t = threading.Timer(0.1, lambda: [os.kill(os.getpid(), signal.SIGUSR1), time.sleep(0.1),
                                      os.kill(os.getpid(), signal.SIGUSR1)])
    t.start()
    began = time.monotonic()
    raises(gpc.TimedOut, "", call, f"{what}: a handler that returns does not end it")
    took = time.monotonic() - began
    t.join()
    ok(0.69 < took and rang, f"which ran, and the wait had all of its time: {took:.2f} s")

# nor may a handler wait in the middle of a wait
signal.signal(signal.SIGUSR1, lambda *_: c.reserve(v, 1, timeout=60))
t = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
t.start()
e = raises(gpc.Error, "handler", lambda: c.pool_add(kind=gpc.RAM, blocks=2, space=14, timeout=60),
           "a handler that would wait itself is refused")
t.join()

# ---- and what is left ----

goes_on(writer)
adder.join()
sitter.join()
is_([type(e) for e in heard], [], "the call of the other thread was answered")
spare.close()
c.ticket_wait()
other.ticket_wait()
is_(buffer[0], mine[1], "the buffer has its answer, when it has been waited for")
buffer.append(1)
is_(c.lookup(fresh[:32]), mine[:2], "what was submitted was carried out")
for t in c.transfers():
    c.transfer_mark(me, t.id if hasattr(t, "id") else t.transfer, None)
c.transfer_wait()
for b in mine + claimed + up_blocks + low_blocks + more_blocks:
    try:
        c.release([b])
    except gpc.Denied:
        pass
c.ticket_wait()
c.returned(owned, 4, timeout=0)
s, info = c.stats(me), c.info()
is_((s.refs, s.reserved - c.pool_get(owned).reserved), (0, 0), "no hold is left of all that")
is_(list(c.claims()), [], "no claim is open")
is_(list(c.transfers()), [], "no transfer is under way")
lines = []
is_((c.check(lines.append), lines), (0, []), "all invariants hold")
is_(len(c.reserve(0, 1)), 1, "and the writer serves")

# ---- an exception that comes with the answer ----

def answered(call, what, seen):
    """The handler lets the writer go on, and raises when the answer is there."""
    def rang(*_):
        handling.append(True)
        goes_on(writer)
        for _ in range(20000):          # what does not come is told by the test behind it
            if seen():
                break
            time.sleep(0.001)
        time.sleep(0.05)
        handling.clear()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, rang)
    stopped(writer)
    interrupted(call, f"{what}, whose answer comes with the signal,", rescue)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    goes_on(writer)
    c.ticket_wait()


def mine_now():
    s = c.stats(me)
    return s.refs, s.reserved - c.pool_get(owned).reserved


def reserved():
    return mine_now()[1] > before[1]


_, low = publish("low too", 1, 0)
keys, blocks = publish("late", 6)
for call, what, seen in (
        (lambda: c.reserve(v, 2), "reserve", reserved),
        (lambda: c.reclaim(blocks[5:]), "reclaim", lambda: c.lookup(keys[80:]) == [-1]),
        (lambda: c.demote(v, 0, None, 1), "demote", reserved),
        (lambda: c.promote(low, v), "promote", reserved),
        (lambda: c.claim(keys_of("claimed late", 2), hand), "claim", lambda: list(c.claims()))):
    c.release(blocks)
    hand = c.reserve(v, 2)
    before = mine_now()
    answered(call, what, seen)
    is_((mine_now(), list(c.claims())), (before, []), "and gives back what it got")
    c.release(hand)
    c.ticket_wait()
    blocks = c.acquire(keys)
c.release(blocks + low)
c.ticket_wait()
before = mine_now()
answered(lambda: c.evict(v, 1, flags=gpc.TAKE), "evict", reserved)
is_(mine_now(), before, "and gives back what it got")


def live():
    return c.pool_get(owned).live


# blocks of an allocator of its own: what one call had, the next returned() tells
for what, call in (("evict", lambda: c.evict(owned, 1)), ("returned", lambda: c.returned(owned, 4))):
    b = [gpc.BLOCK(owned, 0)]
    is_((c.publish(None, c.key_import([what.encode()]), b), c.release(b)), (1, None), "a block of an allocator of the caller")
    c.ticket_wait()
    t = threading.Thread(target=lambda: other.pool_clear(owned))
    begins = []

    def seen():
        if what == "returned" and not begins:
            begins.append(t.start())
        return not live()

    answered(call, what, seen)
    if begins:
        t.join()
    is_(c.returned(owned, 4, timeout=60), b, "the next returned() has it")

# ---- transfers, names, being the writer ----

keys, blocks = publish("ranks", 2, 0)
c.release(blocks)
blocks, t, moves = c.fetch(v, keys, ranks=[me])
interrupted(c.transfer_wait, "transfer_wait", lambda: c.transfer_mark(me, t, None))
is_(len(list(c.transfers())), 1, "the transfer is under way still")
c.transfer_mark(me, t, None)
c.transfer_wait()
c.release(blocks)


def nothing():
    os._exit(9)                 # nobody makes that name


interrupted(lambda: gpc.attach(name + "-none", timeout=None), "attach to a name that is not there", nothing)
interrupted(lambda: gpc.tiers_open(name + "-none", disk="/nowhere/disk", disk_blocks=8, timeout=None), "tiers_open", nothing)
w = create("-w", vram_blocks=8, serve=False)
w.writer_take()
interrupted(w.writer_serve, "writer_serve without work", w.writer_wake)
is_(w.reserve(0, 1, timeout=0) != [], True, "and is the writer still")
t = threading.Thread(target=w.writer_serve)
t.start()
time.sleep(0.2)
interrupted(w.writer_drop, "writer_drop beside a thread that serves", w.writer_wake)
del rang[:]
signal.signal(signal.SIGUSR1, lambda *_: rang.append(1))
w.writer_wake()
t.join()
t = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
t.start()
began = time.monotonic()
w.writer_serve(0.5)
ok(time.monotonic() - began > 0.49 and rang, "a handler that returns does not end writer_serve")
t.join()
w.close()

# pages of RAM
def when_made():
    while not any(f.startswith(f"gpc.{name}-big.p") for f in os.listdir("/dev/shm")):
        if over.is_set():
            return
    os.kill(os.getpid(), signal.SIGINT)


over = threading.Event()
t = threading.Thread(target=when_made)
t.start()
try:
    create("-big", ram_blocks=1 << 16, block_bytes=BYTES, max_blocks=1 << 17, threads=1)
    got = None
except KeyboardInterrupt as e:
    got = e
over.set()
while t.is_alive():
    try:
        t.join()
    except KeyboardInterrupt:
        pass
ok(isinstance(got, KeyboardInterrupt), "create ends while it makes 256 MiB")
is_([f for f in os.listdir("/dev/shm") if f.startswith(f"gpc.{name}-big.")], [], "and leaves nothing")

# ---- tiers below RAM, whose steward is stopped ----

disk = os.path.join(tempfile.mkdtemp(), "disk")
steward, _ = process(STEWARD, name + "-k", disk)
_made.add(name + "-k")
k = gpc.attach(name + "-k")
for first in range(0, 16, 4):       # the first four go to the disk
    keys = k.key_import([b"%02d" % i for i in range(first, first + 4)])
    blocks = k.reserve(0, 4)
    k.publish(bytes(16) + keys[:-16], keys, blocks)
    k.release(blocks)
    k.tiers_sync()
below = k.key_import([b"%02d" % i for i in range(4)])
blocks = k.acquire(keys)
stopped(steward)
interrupted(lambda: k.prefetch(0, below), "prefetch", lambda: goes_on(steward))
interrupted(k.tiers_sync, "tiers_sync", lambda: goes_on(steward))
goes_on(steward)
k.release(blocks)
k.ticket_wait()
is_((k.stats(k.info().peer).refs, k.check()), (0, 0), "and all is as it was")
k.close()
for p in (steward, writer):
    p.kill()
    p.wait()
    p.stdout.close()
c.close()
other.close()
done()
