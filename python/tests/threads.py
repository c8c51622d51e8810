# SPDX-License-Identifier: Apache-2.0
"""Eight threads use a handle while one closes it; a forked child gets errors; the end of the interpreter closes
what is open."""

import array
import gc
import os
import signal
import subprocess
import sys
import threading

import gpc
from tap import _made, create, done, is_, name, ok

c = create(vram_blocks=400)
keys = c.key_import([bytes([i, 1]) for i in range(20)])
b = c.reserve(0, 20)
c.publish(bytes(16) + keys[:-16], keys, b)
c.release(b)


def hammer(handle, seed, started, bad):
    mine = handle.key_import([bytes([i, seed]) for i in range(20)])
    out = array.array("i", [0] * 20)
    rounds = 0
    while True:
        try:
            if handle.lookup(keys) != b or handle.acquire(keys, out=out) != 20:
                bad.append(list(out))
            handle.release(out)
            got = handle.reserve(0, 10)
            handle.publish(bytes(16) + mine[:144], mine[:160], got, resident=rounds % 2 == 0)
            handle.release(got)
            handle.stats()
        except ValueError as e:
            if "closed" not in str(e):
                bad.append(e)
            return
        except BaseException as e:
            bad.append(e)
            started.set()
            return
        rounds += 1
        if rounds == 20:
            started.set()


bad, threads = [], []
shared = gpc.attach(name)
waiter = gpc.attach(name)
for i in range(8):
    started = threading.Event()
    t = threading.Thread(target=hammer, args=(shared, 2 + i, started, bad))
    t.start()
    threads.append((t, started))
for t, started in threads:
    started.wait()
closers = [threading.Thread(target=shared.close) for _ in range(2)]
for t in closers:
    t.start()
for t, _ in threads:
    t.join()
for t in closers:
    t.join()
is_(bad, [], "eight threads hammer one handle until it is closed")
is_(c.info().peers, 2, "it has left")
is_(c.check(), 0, "all invariants hold")

# a close ends a wait of another thread that is its own to end
w = gpc.create(name + "-w", vram_blocks=4)
w.writer_take()
served = []
t = threading.Thread(target=lambda: served.append(w.writer_serve()))
t.start()
w.close()
t.join()
ok(True, "close wakes writer_serve")
gpc.unlink(name + "-w")


# a signal ends a wait that has no limit of time
class Rang(Exception):
    pass


def ring(*args):
    raise Rang


signal.signal(signal.SIGUSR1, ring)
block, theirs = c.reserve(0, 1), waiter.reserve(0, 1)
key = c.key_import([b"a key that nobody publishes"])
c.claim(key, block)
pending = waiter.claim(key, theirs)
waiter.release(theirs)
try:
    t = threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGUSR1))
    t.start()
    waiter.claim_wait(pending)
    ok(False, "claim_wait ends by a signal's exception")
except Rang:
    ok(True, "claim_wait ends by a signal's exception")
t.join()
c.release(block)

# reserve, publish and fetch see a signal while they wait, and what they got in that moment is not lost
z = gpc.create(name + "-z", max_blocks=64, vram_blocks=4, free_target=-1)
z.writer_take()
near, far = (z.pool_make(kind=gpc.RAM, blocks=8, transit=1, block_bytes=4096, space=i) for i in (1, 2))
inside = gpc.attach(name + "-z")
caller = gpc.attach(name + "-z")
stop = threading.Event()


def serve():
    while not stop.is_set():
        z.writer_serve(0.01)


def begin():
    stop.clear()
    begin.thread = threading.Thread(target=serve)
    begin.thread.start()


def end():
    stop.set()
    begin.thread.join()


def interrupted(call, what, after=lambda: None):
    def rouse():
        os.kill(os.getpid(), signal.SIGUSR1)
        after()

    # the call has begun when the ring or a section holds it; before that, the signal is seen all the same
    t = threading.Timer(0.05, rouse)
    t.start()
    try:
        got = call()
    except Rang:
        got = Rang
    t.join()
    is_(got, Rang, what)


# no writer works: a wait without a limit ends
interrupted(lambda: caller.reserve(0, 1), "reserve ends by a signal's exception")
begin()
pub, pub_key = caller.reserve(0, 2), caller.key_import([b"first", b"later"])
end()
for resident in (None, True):
    at = 1 if resident else 0
    interrupted(lambda: caller.publish(None, pub_key[16 * at:16 * at + 16], pub[at:at + 1], resident=resident),
                f"publish ends by a signal's exception, resident={resident}")
begin()
caller.ticket_wait()
is_(caller.lookup(pub_key), pub, "and is carried out")
caller.release(pub)
end()
interrupted(lambda: caller.reserve(0, 1), "reserve again", begin)
caller.ticket_wait()
is_(caller.stats(caller.info().peer).reserved, 0, "what was granted with the signal was given back")
end()
t = threading.Timer(0.5, begin)
ids = z.key_import([b"slow 1", b"slow 2"])
begin()
two = caller.reserve(0, 2)
end()
t.start()
is_(caller.publish(None, ids, two), 2, "a publish that takes longer than a slice says how many")
t.join()
is_(caller.lookup(ids), two, "and they are live")
caller.release(two)

# a section of another keeps the victims of a fetch
low = z.reserve(far, 2)
low_keys = z.key_import([b"far 1", b"far 2"])
z.publish(None, low_keys, low)
z.release(low)
ram = z.reserve(near, 8)
ram_keys = z.key_import([os.urandom(8) for _ in ram])
z.publish(None, ram_keys, ram)
z.release(ram)
section = inside.section_enter()
interrupted(lambda: caller.fetch(near, low_keys), "fetch ends by a signal's exception")
interrupted(lambda: caller.fetch(near, low_keys), "fetch again", lambda: inside.section_leave(section))
caller.transfer_wait()
caller.ticket_wait()
s = caller.stats(caller.info().peer)
is_((s.refs, s.reserved), (0, 0), "nothing of it is held")
end()
for each in (inside, caller, z):
    each.close()
gpc.unlink(name + "-z")

# from a callback the handle cannot be closed
said = []


def close_inside(done_bytes, all_bytes):
    try:
        m.close()
    except gpc.Error as e:
        said.append(str(e))


m = create("-m", max_blocks=100)
m.pool_make(kind=gpc.RAM, blocks=4, transit=1, block_bytes=4096, progress=close_inside)
ok(said and "callback" in said[0], "close in a callback is refused")
m.close()

# ---- fork ----

d = create("-d", max_blocks=100, ram_blocks=4, block_bytes=4096)
(part,) = d.pool_map(0)
child = os.fork()
if child == 0:
    # it prints nothing; 0 = all is as it should be
    status = 1
    try:
        for call in (lambda: waiter.lookup(keys), lambda: waiter.info(), lambda: waiter.reserve(0, 1)):
            try:
                call()
                os._exit(2)
            except gpc.Error as e:
                if "parent" not in str(e):
                    os._exit(3)
        try:
            memoryview(part)
            os._exit(4)
        except ValueError:
            pass
        waiter.close()
        d.close()
        anew = gpc.attach(name)
        status = 0 if anew.lookup(keys) == b else 5
        anew.close()
    finally:
        os._exit(status)
is_(os.waitpid(child, 0)[1], 0, "a forked child gets errors from the handle, closes it, and attaches anew")
is_(waiter.lookup(keys), b, "the parent's handle is as before")
d.close()

# ---- the end of the interpreter ----

script = f"""
import gpc, threading
c = gpc.attach({name!r}, serve=True, log=lambda level, text: None)
c.reserve(0, 3)
"""
r = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
is_((r.returncode, r.stderr), (0, ""), "an interpreter ends with an open handle that serves and logs")
is_(c.info().peers, 2, "which has left its seat")


def make_cycle():
    held = []
    held.append(gpc.attach(name, log=lambda level, text, cycle=held: None))


make_cycle()
gc.collect()
is_(c.info().peers, 2, "a handle whose log refers to it is collected")


def make_serving(name, lines, *more):
    """One that has something to say while it ends."""
    held = []

    def hear(level, text):
        lines.append((text, len(held)))

    d = gpc.create(name, ram_blocks=64, block_bytes=4096, block_tokens=16, serve=True, log=hear)
    held += [hear, d, *more]
    script = f"import gpc, signal; c = gpc.attach({name!r}); c.reserve(0, 5); print(flush=True); signal.pause()"
    p = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    p.stdout.readline()
    p.kill()
    p.wait()
    p.stdout.close()
    return d.pool_map(0) if not more else None


_made.update((name + "-g", name + "-v"))
lines, ill, sys.unraisablehook = [], [], lambda about: ill.append(about.exc_value)
gc.disable()
make_serving(name + "-g", lines, None)
n = len(lines)
gc.collect()
is_(ill, [], "a cycle through its log is taken apart after the handle's end")
ok(len(lines) > n and {k for _, k in lines[n:]} == {3}, f"so that the log hears the last words: {lines[-1][0]}")
view = memoryview(make_serving(name + "-v", lines)[0])
gc.collect()
view.release()
gc.collect()
is_(ill, [], "also where views of its memory keep it")
gc.enable()
sys.unraisablehook = sys.__unraisablehook__
waiter.close()
is_(c.stats().reserved, 0, "nothing is reserved")
c.close()
done()
