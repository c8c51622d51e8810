# SPDX-License-Identifier: Apache-2.0
"""Eight threads with one handle, and with one each; every method of every handle in a forked child; a process that is
spawned; other interpreters, and a Python without the GIL."""

import array
import errno
import functools
import inspect
import os
import re
import subprocess
import sys
import sysconfig
import threading

import gpc
from tap import create, done, is_, name, ok, raises, skip

THREADS, ROUNDS = 8, 60
c = create(max_blocks=600, vram_blocks=400, devices="host")
first = threading.Barrier(THREADS)
bad = []


def work(handle, seed):
    """Publishes, finds and forgets chains of its own, and those of all."""
    try:
        first.wait()
        for r in range(ROUNDS):
            keys = handle.key_hash(None, array.array("q", [seed, r % 7] * 32))
            ours = handle.key_hash(None, [r % 5] * 64)
            for chain in keys, ours:
                held = handle.acquire(chain)
                n = len(chain) // 16
                new = handle.reserve(0, n - len(held))
                if new:
                    handle.publish((bytes(16) + chain)[len(held) * 16:-16], chain[len(held) * 16:], new,
                                   timeout=None if r % 3 else 0)
                handle.ticket_wait()
                handle.release(held + new)
            if r % 16 == 3:
                handle.evict(0, 2)
            if r % 16 == 7:
                drop = handle.acquire(keys)
                handle.drop(drop[-1:])
                handle.release(drop)
            if r % 16 == 11:
                try:
                    list(handle.walk())
                except gpc.Stale:       # a handle has one walk at a time, and another thread has begun one
                    pass
                handle.stats()
                repr(handle)
    except BaseException as e:
        bad.append(e)


def all_of(handles):
    ts = [threading.Thread(target=work, args=(h, 100 + i)) for i, h in enumerate(handles)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()


shared = gpc.attach(name)
all_of([shared] * THREADS)
is_(bad, [], "eight threads share a handle")
del bad[:]
s = shared.stats(shared.info().peer)
is_((s.refs, s.reserved), (0, 0), "which holds nothing")
shared.close()
raises(ValueError, "closed", lambda: shared.lookup(bytes(16)), "and is closed for all of them")
own = [gpc.attach(name) for _ in range(THREADS)]
all_of(own)
is_(bad, [], "eight threads have one each")
for t in [threading.Thread(target=h.close) for h in own]:
    t.start()
    t.join()
is_([repr(h).endswith("closed>") for h in own], [True] * THREADS, "and close it")
s = c.stats()
is_((s.refs, s.reserved, c.check()), (0, 0, 0), "nothing is held, and all invariants hold")

# an iterator is for one thread at a time
w = c.walk()
inside, stay = threading.Event(), threading.Event()
two, wrong = [], []


def walk_on():
    try:
        while not stay.is_set():
            it = shared_walk[0]
            list(it)
    except ValueError as e:
        wrong.append(str(e))
    except BaseException as e:
        two.append(e)


shared_walk = [c.events()]
ts = [threading.Thread(target=walk_on) for _ in range(4)]
for t in ts:
    t.start()
for _ in range(200):
    shared_walk[0] = c.events()
    b = c.reserve(0, 1)
    c.publish(None, os.urandom(16), b)
    c.release(b)
stay.set()
for t in ts:
    t.join()
is_((two, [x for x in wrong if "one thread at a time" not in x]), ([], []), "threads in one iterator: it says so, or goes on")

# ---- fork: every method of every handle ----

VALUES = dict(keys=bytes(16), key=bytes(16), blocks=[0], block=0, pool=0, n=1, fields=[(1, b"a")], root=bytes(16), parent=None,
              tokens=[0] * 16, prompts=[[0] * 16], group=0, block_tokens=16, digests=[b"a"], alias=bytes(16), to=0,
              start=[0, 1], seed=1, sums=bytes(24), groups=[(bytes(16), 0, 0)], parents=None, since=0, source=0, moves=[], transfer=1, stage=0,
              stream=None, peer=0, claims=[], i=0, what=1, value=1, part=0, base=bytearray(4096), section=0, cookie=0,
              cursor=0, device="host", kind=gpc.RAM, nseq=1, out=array.array("i", [0]), lens=array.array("i", [0]))
OTHER = {"alias": dict(to=bytes(16)), "pool_add": dict(blocks=1), "pool_make": dict(blocks=1), "Device.match": dict(start=array.array("I", [0, 1]))}
LAZY = "walk", "claims", "transfers", "events"


def run(call, lazy, places, names):
    got = call(*places, **names)
    return list(got) if lazy else got


def methods(handle):
    kind = type(handle).__name__
    for each in sorted(vars(type(handle))):
        call = getattr(handle, each)
        if callable(call) and (not each.startswith("_") or each == "__enter__") and each != "close":
            given = {**VALUES, **OTHER.get(each, {}), **OTHER.get(f"{kind}.{each}", {})}
            need = [p for p in inspect.signature(call).parameters.values() if p.default is p.empty]
            places = [given[p.name] for p in need if p.kind != p.KEYWORD_ONLY]
            names = {p.name: given[p.name] for p in need if p.kind == p.KEYWORD_ONLY}
            yield f"{kind}.{each}", functools.partial(run, call, each in LAZY, places, names)


def verdict(call):
    try:
        got = call()
    except gpc.Error as e:
        return e.errno == errno.ECHILD and "parent" in str(e) and "attach anew" in str(e) or repr(e)
    except BaseException as e:
        return repr(e)
    return f"no exception, {got!r}"


d = c.dev_open("host")
m = create("-m", max_blocks=100, ram_blocks=4, block_bytes=4096)
(part,) = m.pool_map(0)
walk = c.walk()
held = c.acquire(c.key_hash(None, [1] * 64))
r, wr = os.pipe()
child = os.fork()
if child == 0:
    said = []
    try:
        n = 0
        for what, call in [*methods(c), *methods(d), ("Walk", lambda: next(walk))]:
            n += 1
            v = verdict(call)
            if v is not True:
                said.append(f"{what}: {v}")
        for what, call in (("memoryview", lambda: memoryview(part)), ("dlpack", part.__dlpack__)):
            try:
                call()
                said.append(what)
            except ValueError as e:
                if "parent" not in str(e):
                    said.append(f"{what}: {e}")
        if part.mapped or "of the parent process" not in repr(part) + repr(c) or "of the parent process" not in repr(d):
            said.append(f"repr {part!r} {c!r} {d!r}")
        d.close()
        c.close()
        c.close()
        if "closed" not in repr(c) + repr(d):
            said.append(f"closed {c!r} {d!r}")
        anew = gpc.attach(name)
        if anew.check():
            said.append("check")
        anew.close()
        os.write(wr, f"{n} {said}".encode())
    except BaseException as e:
        os.write(wr, f"0 {said} {e!r}".encode())
    os._exit(0)
os.close(wr)
with os.fdopen(r) as f:
    n, _, said = f.read().partition(" ")
os.waitpid(child, 0)
ok(int(n) > 85, f"{n} methods are called in a forked child")
is_(said, "[]", "each raises ECHILD with the rule, memory has no view, and close works")
is_((c.closed, c.stats(c.info().peer).refs, len(held)), (False, len(held), 4), "the parent's handle has what it had")
c.release(held)
is_(d.enter() >= 0, True, "and its device works")
d.close()

# a process that is spawned: the example of the page
with open(os.path.join(os.path.dirname(__file__), "..", "README.md")) as f:
    (example,) = [x for x in re.findall(r"^```python\n(.*?)^```", f.read(), re.M | re.S) if '"spawn"' in x]
script = os.path.join(os.environ["TMPDIR"], "spawns.py")
with open(script, "w") as f:
    f.write(example.replace('"demo"', repr(name)))
p = subprocess.run([sys.executable, script], capture_output=True, text=True)
is_((p.returncode, p.stdout, p.stderr), (0, "4\n", ""), "the example of README.md, spawned")
m.close()

# ---- interpreters ----

SUB = """
import sys
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
{before}
i = sub.create()
code = '''
try:
    import gpc._gpc
except ImportError as e:
    print(e, flush=True)
'''
sub.run_string(i, code)
sub.destroy(i)
import gpc
print(gpc.version() > (0, 0))
"""
for before in "", "import gpc":
    p = subprocess.run([sys.executable, "-c", SUB.format(before=before)], capture_output=True, text=True)
    ok(p.returncode == 0 and ("main interpreter" in p.stdout or "subinterpreters" in p.stdout) and p.stdout.endswith("True\n"),
       f"another interpreter is refused, and the main one can {before or 'import'}")
    if p.returncode:
        print("#", p.stdout, p.stderr.replace("\n", "\n# "))
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    is_(sys._is_gil_enabled(), True, "this Python has its GIL switched on")
else:
    skip("a Python without the GIL", "this one has it")
c.close()
done()
