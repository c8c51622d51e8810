# SPDX-License-Identifier: Apache-2.0
"""Engines with tiers below RAM.  `tiers.py engine NAME JSON` is one of them: it carries out what stands in its input."""

import json
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

import gpc
import below_tiers
import gpc.engines.tiers as tiers
from gpc.engines.bytes import address_of
from gpc.engines.cache import POOL, close_cache, open_cache
from gpc.engines.config import ConfigError
from gpc.engines.secret import read_key
from gpc.engines.store import Store
from gpc.lmcache.config import Config as LMCache
from gpc.sglang.config import Config as SGLang
from gpc.vllm.config import Config as VLLM

SLOT, RAM, MANY, DISK = 65536, 40, 200, 400
BYTES = (64 + RAM) * SLOT


# ---- an engine ----

def digests(n):
    return [i.to_bytes(4, "little") * 8 for i in range(n)]


def put(store, n):
    done = 0
    for i, d in enumerate(digests(n)):
        _, parts = address_of(bytearray([i % 251]) * 60000)
        while not store.put([d], [parts])[0]:
            time.sleep(0.01)
        done += 1
        if i % 8 == 7:
            store.c.tiers_sync(timeout=60)       # what is next to go has a copy below
    return done


def found(store, n):
    """How many come to RAM one by one, with their bytes."""
    good = 0
    for i, d in enumerate(digests(n)):
        keys = store.c.key_import(d + bytes(4), size=36)
        try:
            store.c.prefetch(POOL, keys, timeout=30)
        except gpc.Error:
            pass
        target, parts = address_of(bytearray(60000))
        good += store.get([d], [parts])[0] and bytes(target) == bytes([i % 251]) * 60000
    return good


def steward(c):
    """The process that keeps the first tier, or 0."""
    try:
        t = c.tier(0)
        return c.stats(t.steward).pid if t.steward >= 0 else 0
    except gpc.Error:
        return 0


def engine(name, extra):
    log = logging.getLogger("engine")
    log.addHandler(logging.StreamHandler(sys.stderr))
    log.setLevel(logging.INFO)
    try:
        conf = SGLang(extra)
        c = open_cache(name, conf, bytes(32), SLOT, 16, "test engine", log)
    except (gpc.Error, ConfigError) as e:
        print(json.dumps(f"{type(e).__name__}: {e}"), flush=True)
        return
    store = Store(c, conf)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, *n = line.split()
        if what == "close":
            break
        if what == "exit":
            return
        got = {"put": put, "found": found}[what](store, int(n[0])) if n else \
            {"steward": lambda: steward(c), "writer": lambda: c.info().writer_pid, "sync": lambda: c.tiers_sync(timeout=60)}[what]()
        print(json.dumps(got), flush=True)
    store.close()


if sys.argv[1:2] == ["engine"]:
    engine(sys.argv[2], json.loads(sys.argv[3]))
    sys.exit()

import vllm_fake  # noqa: E402
from tap import _made, done, is_, name, ok, raises, skip  # noqa: E402

DEADLINE = 600                   # of one answer; the watchdog of the test comes before it
tmp = tempfile.mkdtemp()


class Process:
    def __init__(self, args):
        self.log = tempfile.NamedTemporaryFile("r", dir=tmp)
        self.p = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(self.log.name, "a"),
                                  text=True)
        self.pid = self.p.pid

    def said(self):
        with open(self.log.name) as f:
            return f.read()

    def until_says(self, text):
        until(lambda: text in self.said() or self.p.poll() is not None)
        return text in self.said()

    def end(self, sig=signal.SIGTERM):
        self.p.send_signal(sig)
        return self.p.wait()


class Engine(Process):
    def __init__(self, suffix="", **extra):
        _made.add(name + suffix)
        super().__init__([sys.executable, os.path.abspath(__file__), "engine", name + suffix,
                          json.dumps({"gpc_bytes": BYTES, **extra})])
        self.first = self.answer()

    def answer(self):
        select.select([self.p.stdout], [], [], DEADLINE)
        line = self.p.stdout.readline()
        return json.loads(line) if line else f"ended: {self.said()}"

    def ask(self, what):
        self.p.stdin.write(what + "\n")
        self.p.stdin.flush()
        return self.answer()

    def close(self, how="close"):
        self.p.stdin.write(how + "\n")
        self.p.stdin.flush()
        return self.p.wait()


def until(call):
    while not call():
        time.sleep(0.02)


def gpcd(suffix, *options):
    return Process(["gpcd", name + suffix, *options])


def refused(text, what, suffix="", **extra):
    e = Engine(suffix, **extra)
    if not ok(text in str(e.first) and e.first != "ready", what):
        print(f"# got {e.first!r}, want {text!r}", flush=True)
    e.p.kill()
    e.p.wait()


def tiers_open_here():
    return any("gpc-tiers" in open(f"/proc/self/task/{t}/comm").read() for t in os.listdir("/proc/self/task"))


def exists(suffix):
    return os.path.exists(f"/dev/shm/gpc.{name}{suffix}.idx")


# ---- keys, and the file ----

def file(text):
    path = os.path.join(tmp, "m.conf")
    with open(path, "w") as f:
        f.write(text)
    return path


def both(text, error, kinds=(VLLM, SGLang, LMCache)):
    path = file(text)
    for kind in kinds:
        raises(ConfigError, f"gpc_config: {path}:{error}", lambda: kind({"gpc_config": path}),
               f"{kind.__module__}: {error}")


GOOD = f"""# one file for all
[gpc]
name = llama
disk = {tmp}/file     ; beside
disk-bytes = 200M
disk-exclusive = yes
remote = redis:server=10.0.0.1
\t,db=3
remote-min-uses: 2

[gpcd]
block-size = 16
[engines]
bytes = 4G
serve = off
[vllm]
pending-ms = 5
[sglang]
wait-ms = 6
[lmcache]
slot-bytes = 64k
"""
path = file(GOOD)
v, s, m = VLLM({"gpc_config": path}), SGLang({"gpc_config": path, "prefetch_threshold": 5}), LMCache({"gpc_config": path})
for conf in (v, s, m):
    is_((conf.name, conf.disk, conf.disk_bytes, conf.disk_exclusive, conf.remote, conf.remote_min_uses, conf.bytes, conf.serve),
        ("llama", f"{tmp}/file", 200 << 20, True, "redis:server=10.0.0.1,db=3", 2, 4 << 30, False), type(conf).__module__)
is_((v.pending_ms, s.wait_ms, m.slot_bytes), (5, 6, 65536), "what each has for itself")
conf = VLLM({"gpc_config": path, "gpc_bytes": "1G", "gpc_disk_blocks": 7, "gpc_disk": "/x", "gpc_serve": True})
is_((conf.bytes, conf.disk_blocks, conf.disk_bytes, conf.disk, conf.serve), (1 << 30, 7, 0, "/x", True),
    "the engine's own configuration beats the file, with what it excludes")
raises(ConfigError, "gpc_config: /none: No such file", lambda: SGLang({"gpc_config": "/none"}), "no file")
both("[gpc]\ndiks = /x\n", "2: diks: there is no such key, and '/x' is its value; [gpc] has name, dir, disk")
both("[gpc]\n\nbytes = 5\n", "3: bytes: there is no such key")
both("[engines]\nblock-size = 5\n", "2: block-size: there is no such key")
both("[engines]\nfree_target = 5\n", "2: free_target: there is no such key")
both("[gpc]\ndisk-ahead = 5000\n", "2: disk-ahead: 5000, 1 to 4096 is wanted")
both("[gpc]\ndisk-bytes = 20 GB\n", "2: disk-bytes: '20 GB', a number, as in 536870912 or \"512M\", is wanted")
both("[gpc]\ndisk-exclusive = maybe\n", "2: disk-exclusive: 'maybe', true or false is wanted")
both("[gpc]\ndisk = m.disk\n", "2: disk: 'm.disk' does not begin with /")
both("[gpc]\ndisk = /x\ndisk = /y\n", "3: disk: it is given twice, '/x' in line 2 and '/y' here")
both("[engines]\nbytes = 1G\n[vllm]\nbytes = 2G\n", "4: bytes: it is given twice, '1G' in line 2 and '2G' here", (VLLM,))
both("[cache]\ndisk = /x\n", "2: disk: [cache] is no section; there are [gpc], [gpcd], [engines]")
both("disk = /x\n", "1: disk: no section is above it; there are [gpc], [gpcd], [engines]")
both("[gpc]\ndisk\n", "2: the line is neither [SECTION] nor KEY = VALUE")
both("[gpc]\n# disk =\n  /x\n", "3: the line begins with a blank, and there is no value in the line above")
both(f"[gpc]\ndisk = /{'0' * 200}\n", "2: the line has more than 198 bytes")
raises(ConfigError, "gpc_disk_bytes: gpc_disk is missing: which file?", lambda: SGLang({"gpc_bytes": 5, "gpc_disk_bytes": "1M"}),
       "a size without a file")
raises(ConfigError, "gpc_remote_tag: gpc_remote is missing", lambda: SGLang({"gpc_bytes": 5, "gpc_remote_tag": "7"}),
       "a tag without a store")
raises(ConfigError, "gpc_disk_bytes: 5, and gpc_disk_blocks is 6", lambda: LMCache(
    {"gpc_bytes": 5, "gpc_disk": "/x", "gpc_disk_bytes": 5, "gpc_disk_blocks": 6}), "two sizes")
raises(ConfigError, "gpc_max_peers: 2, at least 3", lambda: SGLang({"gpc_bytes": 5, "gpc_disk": "/x", "gpc_max_peers": 2}),
       "too few seats")


raises(TypeError, "log: a function of level and text is wanted", lambda: gpc.tiers_open("x", disk="/x", log=5), "a log that is none")

# ---- refused at the start ----

disk = {"gpc_disk": f"{tmp}/a.disk", "gpc_disk_blocks": DISK}
refused("gpc_disk_bytes: 100000, at least 196736 are wanted: one block takes 65664", "less than a block", gpc_disk=f"{tmp}/b.disk",
        gpc_disk_bytes=100000)
refused("must say how large", "no size", gpc_disk=f"{tmp}/b.disk")
refused("there is no folder /none", "no folder", gpc_disk="/none/b.disk", gpc_disk_blocks=5)
refused("gpc_max_blocks: 200, at least 504 are wanted", "no room", gpc_max_blocks=200, **disk)
refused("gpc_remote: there is no plugin none", "a store that is none", gpc_remote="none:x=1")
refused("gpc_remote: ", "an option that it lacks", gpc_remote=f"{below_tiers.FOLDER}:no-such-option=1")
is_(exists(""), False, "and no cache is left")

# ---- engines: the writer dies, and who takes the seat over has the tiers ----

a = Engine(**disk)
is_(a.first, "ready", "an engine makes a cache with a tier")
is_(a.ask("steward"), a.pid, "which it keeps")
is_(a.ask(f"put {MANY}"), MANY, "objects are stored, five times what RAM has")
b = Engine(**disk)
ok(b.until_says(f"process {a.pid} (test engine) keeps the tiers of {name}: this one, process {b.pid}, takes them over when that one ends"),
   "the second engine is told who keeps them, and who takes over")
is_(b.ask(f"found {MANY}"), MANY, "and finds all of them")
refused(f"process {a.pid} (test engine) keeps other tiers of {name}, with {tmp}/a.disk", "one with another file ends at once",
        gpc_disk=f"{tmp}/c.disk", gpc_disk_blocks=DISK)
refused(f"process {a.pid} (test engine) keeps other tiers", "one with another size, too", gpc_disk=f"{tmp}/a.disk", gpc_disk_blocks=DISK + 1)
refused("is locked by another process that keeps a cache in it", "and another cache with that file", "-d", **disk)
is_(exists("-d"), False, "whose cache goes again")
quiet = Engine()
is_(quiet.ask("steward"), a.pid, "an engine without tiers is as ever")
quiet.close()
a.end(signal.SIGKILL)
until(lambda: b.ask("steward") == b.pid)
is_(b.ask("writer"), b.pid, "the steward is killed: who has the seat now keeps them")
is_((b.ask("sync"), b.ask(f"found {MANY}")), (None, MANY), "and all hits come back")

# ---- gpcd joins ----

d = gpcd("", "--config", file(f"[gpc]\ndisk = {tmp}/a.disk\ndisk-blocks = {DISK}\n"))
ok(d.until_says(f"joined: process {b.pid} (test engine) is the writer"), "gpcd joins engines without being told to stand by")
ok(d.until_says(f"process {b.pid} (test engine) keeps the tiers: this one, process {d.pid}, takes them over when that one ends"),
   "and says who keeps the tiers, and who takes over")
other = gpcd("", "--disk", f"{tmp}/c.disk", "--disk-blocks", "9")
is_(other.p.wait(), 1, "with another file it ends at once")
ok(f"process {b.pid} (test engine) keeps other tiers of it, with {tmp}/a.disk: give the same ones" in other.said(), "and says why")
c = Engine(gpc_serve=False)
b.end(signal.SIGKILL)
ok(d.until_says("tier disk: "), "the engine is killed: gpcd opens them")
until(lambda: c.ask("steward") == d.pid and c.ask("writer") == d.pid)
is_((c.ask("sync"), c.ask(f"found {MANY}")), (None, MANY), "with all hits")
e = Engine(**disk)
ok(e.until_says(f"process {d.pid} (gpcd standby) keeps the tiers"), "an engine joins gpcd")
d.end(signal.SIGKILL)
until(lambda: e.ask("steward") == e.pid)
is_((e.ask("writer"), e.ask("sync"), e.ask(f"found {MANY}")), (e.pid, None, MANY), "gpcd is killed: the engine has seat, tiers and hits")
is_((c.close(), e.close()), (0, 0), "engines end")

# ---- all of them have gone: the file has what it had ----

gpc.unlink(name)
f = Engine(gpc_disk=f"{tmp}/a.disk")
is_(f.first, "ready", "a cache that is made again, with the size and the secret of its file")
is_((f.ask("sync"), f.ask(f"found {MANY}")), (None, MANY), "finds all that is there")
is_(f.close("exit"), 0, "and ends, without a close")
is_("Traceback" in f.said(), False, "with nothing to say")
refused(f"has {DISK} slots, asked for are {DISK - 1}: ask for it to be resized, or for as many as it has (gpc_disk_resize)",
        "a file of another size: the key is named", gpc_disk=f"{tmp}/a.disk", gpc_disk_blocks=DISK - 1)
f = Engine(gpc_max_peers=3, gpc_disk=f"{tmp}/a.disk", gpc_serve=False)
is_(f.first, "ready", "the cache is served by nobody, and nobody keeps its tiers")
until(lambda: gpc.attach(name, readonly=True).info().peers_alive >= 1)
is_(f.ask("steward"), 0, "which is no error")
with gpc.attach(name, serve=True):
    until(lambda: f.ask("steward") == f.pid)
    ok(True, "with a writer they are kept, beside it")
f.close()
gpc.unlink(name)

# ---- the writer has no tiers, and another process is given them ----

_made.add(name + "-w")
small = Engine("-w")
d = gpcd("-w", "--disk", f"{tmp}/w.disk", "--disk-blocks", str(DISK))
is_(d.p.wait(), 1, "a cache without room: gpcd says so at once")
ok("400 blocks are too many" in d.said() and "or with gpc_max_blocks" in d.said(), "with the remedy")
refused("The engine that made " + name + "-w was not told of tiers so large", "so does an engine", "-w", gpc_disk=f"{tmp}/w.disk",
        gpc_disk_blocks=DISK)
small.close()
gpc.unlink(name + "-w")
w = Engine("-w", gpc_max_blocks=2000)
d = gpcd("-w", "--disk", f"{tmp}/w.disk", "--disk-blocks", str(DISK))
ok(d.until_says("tier disk: "), "with room gpcd opens them, at any time")
is_((w.ask("writer"), w.ask("steward")), (w.pid, d.pid), "beside the engine, which serves on")
is_((w.ask(f"put {MANY}"), w.ask(f"found {MANY}")), (MANY, MANY), "and has what is below")
x = Engine("-w", gpc_disk=f"{tmp}/w.disk", gpc_disk_blocks=DISK)
ok(x.until_says(f"process {d.pid} (gpcd standby) keeps the tiers"), "another engine waits for them")
d.end()
until(lambda: w.ask("steward") == x.pid)
is_(w.ask("writer"), w.pid, "gpcd ends: that one has them, beside the writer")
is_((w.ask("sync"), w.ask(f"found {MANY}")), (None, MANY), "with all hits")
is_((x.close(), w.close()), (0, 0), "engines end")
gpc.unlink(name + "-w")

# ---- a seat that is lost ----


class Fake:
    """A cache whose writer changes."""
    closed = False

    def __init__(self):
        self.writer, self.kept = 0, None

    def info(self):
        return SimpleNamespace(peer=0, writer_peer=self.writer, writer_pid=1 + self.writer)

    def tier(self, i):
        if i or self.kept is None:
            raise gpc.NotFound(2, "fewer tiers")
        return SimpleNamespace(kind=gpc.DISK, steward=self.kept, what="/x", pool=1)

    def stats(self, peer):
        return SimpleNamespace(pid=100 + peer)

    def pool_get(self, pool):
        return SimpleNamespace(blocks=5)


fake, opened, closed = Fake(), [], []
real = gpc.tiers_open, gpc.tiers_close
gpc.tiers_open, gpc.tiers_close = (lambda name, **o: opened.append(o) or "tiers"), closed.append
tiers.LOOK = 1e9
k = tiers.Steward(fake, "m", SGLang({"gpc_bytes": 5, "gpc_disk": "/x", "gpc_disk_blocks": 5}), None, logging.getLogger("fake"))
k.log.disabled = True
is_((len(opened), k.tiers), (1, "tiers"), "the writer opens them")
fake.writer = 1
k._step()
is_((closed, k.tiers), (["tiers"], None), "it has lost the seat: it closes them")
k._step()
is_(len(opened), 1, "the next writer has time for them")
fake.kept = 1
tiers.GRACE = 0
k._step()
is_(len(opened), 1, "which keeps them")
fake.kept = None
k._step()
is_((len(opened), k.tiers), (2, "tiers"), "or does not: then they are opened again, without the seat")
fake.writer = 2
k._step()
is_(k.tiers, "tiers", "without the seat there is none to lose")
fake.writer = 0
k._step()
fake.writer = 1
k._step()
is_(k.tiers, None, "but for one that came later")
tiers.GRACE = 1e9
k._step()
is_(k.tiers, None, "others wait for a while")
fake.writer = 0
k._step()
is_(k.tiers, "tiers", "and the writer does not")
k.ending.set()
gpc.tiers_open, gpc.tiers_close = real

# ---- key files that are missing: the table of tools/daemon/key.c ----

_made.add(name + "-k")
key, own, kept = f"{tmp}/k.key", f"{tmp}/own.disk", f"{tmp}/kept.disk"


def has(path):
    with open(path) as f:
        return bytes.fromhex(f.read().strip())


for path, more in ((own, {}), (kept, {"gpc_key_file": f"{tmp}/kept.key"})):
    e = Engine("-k", gpc_disk=path, gpc_disk_blocks=DISK, **more)
    is_((e.first, e.ask(f"put {MANY}")), ("ready", MANY), f"a disk, {'its secret in a key file' if more else 'with its secret'}")
    e.close()
    gpc.unlink(name + "-k")
refused(f"there is no file {key}, and the keys in {kept} were hashed with a secret that a key file has", "no key file, and the disk has a check alone",
        "-k", gpc_disk=kept, gpc_key_file=key)
refused(f"the keys in {own} were hashed with another secret than that of {tmp}/kept.key, and it has that secret", "another secret than that of the disk",
        "-k", gpc_disk=own, gpc_key_file=f"{tmp}/kept.key")
is_((exists("-k"), os.path.exists(key)), (False, False), "neither makes a cache or a key file")
e = Engine("-k", gpc_disk=own, gpc_key_file=key)
is_((e.first, has(key), os.stat(key).st_mode & 0o777), ("ready", gpc.tiers_file(own).secret, 0o600), "no key file, and the disk has a secret: that one")
ok(e.until_says(f"{key} is made, with the secret of {own}"), "which is said")
is_((e.ask("sync"), e.ask(f"found {MANY}")), (None, MANY), "and what is there is found")
os.unlink(key)
e.close()
e = Engine("-k", gpc_disk=own, gpc_key_file=key)
is_((e.first, has(key)), ("ready", gpc.tiers_file(own).secret), "the cache is there, and of that secret")
e.close()
os.unlink(key)
gpc.unlink(name + "-k")
e = Engine("-k", gpc_max_blocks=2000)
refused(f"there is no file {key}, and it is made with a new cache, or with the secret of a disk", "no key file, and a cache is there", "-k",
        gpc_disk=f"{tmp}/new.disk", gpc_disk_blocks=5, gpc_key_file=key)
refused("secret", "the cache has another secret than the disk", "-k", gpc_disk=own, gpc_key_file=key)
is_(os.path.exists(key), False, "neither makes a key file")
e.close()
gpc.unlink(name + "-k")

# the file of another user, whose group may attach to its cache

key_of = tempfile.mkdtemp()
for path in (key_of, tmp, os.path.dirname(tmp)):
    if os.stat(path).st_uid == os.geteuid() and not os.stat(path).st_mode & 1:
        os.chmod(path, 0o711)
key = f"{key_of}/key"
with open(key, "w") as f:
    f.write("0f" * 16 + "\n")


def read_as(uid, gid):
    """The sentence of read_key there."""
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            text = read_key(key).hex()
        except BaseException as e:
            text = str(e)
        os.write(w, text.encode())
        os._exit(0)
    os.close(w)
    os.waitpid(pid, 0)
    return os.read(r, 1000).decode()


os.chmod(key, 0o640)
is_(read_key(key).hex(), "0f" * 16, "gpcd has opened the key file to the group of its cache: its owner takes it")
for bad in (0o660, 0o644):
    os.chmod(key, bad)
    raises(ConfigError, f"gpc_key_file: others could read {key}, or its group write to it", lambda: read_key(key), f"mode {bad:o}")
if os.geteuid() == 0:
    os.chmod(key, 0o640)
    os.chown(key, 0, 65534)
    is_(read_as(65533, 65534), "0f" * 16, "and so does another user of that group")
    ok("Permission denied. gpcd --group gives its key file mode 640" in read_as(65533, 65533), "but nobody else")
    os.chown(key, 65534, 65534)
    raises(ConfigError, "belongs to user 65534, and this one is not in its group 65534", lambda: read_key(key), "the file of a stranger")
    os.chmod(key, 0o600)
    raises(ConfigError, "belongs to user 65534, and its mode lets in nobody else", lambda: read_key(key), "or one that is closed")
else:
    for what in ("group", "others", "stranger", "closed"):
        skip(what, "this user cannot become another one")
shutil.rmtree(key_of)

# ---- in this process: nothing is configured, and the end ----

_made.add(name + "-m")
c = open_cache(name + "-m", SGLang({"gpc_bytes": BYTES}), bytes(32), SLOT, 16, "test", logging.getLogger("quiet"))
is_(c.info().max_blocks, 64 + RAM, "without tiers there is room for RAM, and no more")
close_cache(c)
gpc.unlink(name + "-m")
heard = []
log = SimpleNamespace(info=lambda *a: None, warning=lambda *a: None, log=lambda level, *a: heard.append(a))
conf = SGLang({"gpc_bytes": BYTES, "gpc_disk": f"{tmp}/m.disk", "gpc_disk_blocks": 5, "gpc_key_file": f"{tmp}/key"})
c = open_cache(name + "-m", conf, bytes(32), SLOT, 16, "test", log)
is_(c.info().max_blocks, 64 + RAM + 5, "with one there is room for it")
is_((os.stat(f"{tmp}/key").st_mode & 0o777, gpc.tiers_file(f"{tmp}/m.disk").has_secret), (0o600, 0),
    "a key file is made, and the secret is nowhere else")
close_cache(c)
ok(c.closed, "close_cache closes the tiers, and the cache")
gpc.unlink(name + "-m")

# ---- vLLM's spec ----

vllm_fake.install()
from gpc.vllm import GPCOffloadingSpec  # noqa: E402

m = GPCOffloadingSpec(vllm_fake.config(block_bytes=64, blocks_per_chunk=1, extra={
    "gpc_weights": "w", "gpc_bytes": (64 + 40) * 4096, "gpc_stock": 0, "gpc_name": name + "-m", "gpc_disk": f"{tmp}/v.disk",
    "gpc_disk_bytes": "1M"})).get_manager()
is_(steward(m.c), os.getpid(), "the manager of vLLM keeps tiers")
m.shutdown()
ok(not tiers_open_here(), "and has closed them when it is shut down")
done()
