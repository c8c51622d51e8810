# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm with a cache that gpcd has made: what an engine refuses there names the lines that gpcd's file needs, and a cache
of these lines takes what an engine of two ranks stores, for another engine.  Stores of SGLang and LMCache, too."""

import logging
import os
import re
import subprocess
import tempfile
import time

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.vllm.worker  # noqa: E402
from gpc.engines.bytes import address_of  # noqa: E402
from gpc.engines.cache import close_cache, open_cache  # noqa: E402
from gpc.engines.config import ConfigError  # noqa: E402
from gpc.engines.store import Store  # noqa: E402
from gpc.lmcache.config import Config as LMCache  # noqa: E402
from gpc.sglang.config import Config as SGLang  # noqa: E402
from gpc.vllm import GPCOffloadingSpec  # noqa: E402
from tap import _made, done, is_, name, ok, raises  # noqa: E402

gpc.vllm.worker.SEAT = 60
PAGES, PER_CHUNK, CHUNKS = (64, 192), 4, 3       # an image is no multiple of a page of memory
tmp = tempfile.mkdtemp()
_made.add(name)


def config(world, rank=0):
    extra = {"gpc_name": name, "gpc_weights": "w", "gpc_bytes": (64 + 20) * world * 4096, "gpc_stock": 0, "gpc_free_target": -1}
    return fake.config(extra, rank=rank, world=world, blocks_per_chunk=PER_CHUNK, block_bytes=sum(PAGES))


class Gpcd:
    """It makes the cache, of the lines of [gpcd]."""

    def __init__(self, lines, shared=()):
        path = os.path.join(tmp, "conf")
        with open(path, "w") as f:
            f.write("\n".join(["[gpc]", f"name = {name}", *shared, "[gpcd]", *lines, ""]))
        self.p = subprocess.Popen(["gpcd", "--config", path], stderr=subprocess.PIPE, text=True)
        self.said = ""
        while "serving as process" not in self.said:
            line = self.p.stderr.readline()
            if not line:
                break
            self.said += line
        ok("serving as process" in self.said, "gpcd makes the cache: " + ", ".join(lines)) or print(f"# {self.said}", flush=True)

    def end(self):
        self.p.terminate()
        self.p.communicate()
        gpc.unlink(name)


class Engine:
    """Its scheduler's half, and a worker for each rank with a KV cache."""

    def __init__(self, world):
        self.m = GPCOffloadingSpec(config(world)).get_manager()
        self.m.set_chained({0: True})
        self.kv = [[fake.Tensor(32, page) for page in PAGES] for _ in range(world)]
        self.workers = [GPCOffloadingSpec(config(world, r)).get_worker(fake.caches(kv)) for r, kv in enumerate(self.kv)]

    def move(self, store, slots):
        for w in self.workers:
            if store:
                w.submit_store(1, fake.blocks(list(range(PER_CHUNK * CHUNKS))), slots)
            else:
                w.submit_load(1, slots, fake.blocks(list(range(PER_CHUNK * CHUNKS))))
            w.wait({1})
            ok(all(r.success for r in w.get_finished()), "moved")

    def bytes(self):
        return [[t.get(b) for b in range(PER_CHUNK * CHUNKS) for t in kv] for kv in self.kv]

    def store(self, text):
        for r, kv in enumerate(self.kv):
            for i, t in enumerate(kv):
                for b in range(t.blocks):
                    t.put(b, f"{text} {r} {i} {b} ".encode())
        ctx, keys = fake.prompt(text, CHUNKS, tokens=16 * PER_CHUNK)
        self.move(True, fake.offer(self.m, keys, ctx).store_spec)
        self.m.complete_store(set(keys), ctx)
        self.m.publisher.collect(60)
        self.m.c.ticket_wait()

    def load(self, text):
        """Is it there?  Then to the KV caches."""
        ctx, keys = fake.prompt(text, CHUNKS, tokens=16 * PER_CHUNK)
        if {self.m.lookup(k, ctx) for k in keys} != {fake.LookupResult.HIT}:
            return False
        self.move(False, self.m.prepare_load(keys, ctx))
        self.m.complete_load(set(keys), ctx)
        return True

    def end(self):
        for w in self.workers:
            w.shutdown()
        self.m.shutdown()


def refused(world):
    """The lines that the refusal names."""
    try:
        GPCOffloadingSpec(config(world)).get_manager().shutdown()
    except (gpc.Error, ConfigError) as e:
        return str(e), re.findall("'([a-z-]+ = [^']+)'", str(e))
    return "", []


def inspect(*args):
    return subprocess.run(["gpc-inspect", *args], capture_output=True, text=True, check=True).stdout


# ---- what is refused, and the lines that it names ----

lines = {}
d = Gpcd(["block-size = 16", "ram-blocks = 5", "block-bytes = 4k"])
for world in (1, 2):
    text, lines[world] = refused(world)
    ok(f"gpc_name: {name} has no fingerprint" in text, "without a fingerprint")
    is_([x.split(" = ")[0] for x in lines[world]], ["block-size", "ram-blocks", "block-bytes"] + ["sums"] * (world > 1) +
        ["layout", "unchained", "keep-digests"], "all lines for an engine of as many ranks")
d.end()
both = lines[2]
ok("sums = 2" in both and "block-bytes = 2048" in both and "ram-blocks = 20" in both and "block-size = 64" in both, "with its numbers")

for key, why in {"sums": "its blocks have 1 checksum, and 2 are wanted, one for each worker",
                 "unchained": "its pool of RAM is chained", "keep-digests": "it keeps no digests"}.items():
    d = Gpcd([x for x in both if not x.startswith(key)])
    text, named = refused(2)
    ok(f"gpc_name: {name} is not as this engine needs it: {why}. Where gpcd makes the cache, [gpcd] of its file needs" in text,
       f"without {key}: why") or print(f"# {text}", flush=True)
    is_(named, [x for x in both if x.startswith(key)], "and the one line")
    d.end()
d = Gpcd([x.replace("2048", "4096") if x.startswith("block-bytes") else "sums = 4" if x.startswith("sums") else x for x in both])
text, named = refused(2)
ok("its blocks have 4096 bytes, and 2048 are wanted, its blocks have 4 checksums, and 2 are wanted" in text, "two of them")
is_(named, ["block-bytes = 2048", "sums = 2"], "and their lines")
ok("--block-bytes 2048 --sums 2)" in text and f"gpc-inspect rm {name}" in text, "the same as options, and the way there")
is_(gpc.attach(name).info().peers, 2, "who refuses has left")
d.end()
d = Gpcd([x for x in both if re.match("block-size|layout", x)])
text, named = refused(2)
ok("its pool 0 is none of RAM with memory" in text, "a cache without pools")
is_(named, ["ram-blocks = 20", "block-bytes = 2048", "sums = 2", "unchained = yes"], "and the lines of its pool")
d.end()

# ---- with these lines ----

for world in (1, 2):
    d = Gpcd(lines[world])
    a, b = Engine(world), Engine(world)
    is_(a.m.c.info().writer_pid, d.p.pid, "gpcd is the writer")
    a.store("one")
    want = a.bytes()
    is_(b.load("one"), True, f"{world} ranks: another engine finds what one has stored")
    is_(b.bytes() == want, True, "each rank has its bytes")
    ok(world == 1 or want[0] != want[1], "which differ from those of the other")
    is_(b.m.c.check(), 0, "all invariants hold")
    if world == 2:
        runs = a.m.c.pool_runs(0)
        is_([(r.bytes, r.offset, r.slot_stride) for r in runs], [(1024, 0, 4096), (1024, 84 * 4096, 4096)],
            "the part of each rank lies together")
    told = inspect("command", "--config", name)
    a.end()
    b.end()
    d.end()
    d = Gpcd([x for x in told.split("[gpcd]\n")[1].splitlines() if x])
    c = Engine(world)
    c.store("two")
    is_(c.load("two"), True, "made again as gpc-inspect command says, it takes them, too")
    c.end()
    d.end()

# an engine makes it, and gpcd makes it again
a = Engine(2)
told = inspect("command", "--config", name)
a.end()
gpc.unlink(name)
ok("\nsums = 2\n" in told, "gpc-inspect command: that of an engine of two ranks has two checksums")
d = Gpcd([x for x in told.split("[gpcd]\n")[1].splitlines() if x])
a = Engine(2)
a.store("three")
is_(a.load("three"), True, "gpcd makes it so")
a.end()
d.end()

# gpcd keeps them on disk: an image goes down with the sums of its parts, and comes back to a cache that is made again
disk = [f"disk = {tmp}/disk", "disk-blocks = 100", "disk-ahead = 20"]
d = Gpcd(lines[2], disk)
a = Engine(2)
a.store("four")
want = a.bytes()
a.m.c.tiers_sync(timeout=60)
a.end()
d.end()
d = Gpcd(lines[2], disk)
a = Engine(2)
a.store("five")                  # from now on its workers have told how they put a part together
raw = bytes(a.m.finder.keys(fake.prompt("four", CHUNKS, tokens=16 * PER_CHUNK)[1]))
for i in range(0, len(raw), 16):
    a.m.c.prefetch(0, raw[i:i + 16], timeout=60)
is_(a.load("four"), True, "a disk of gpcd has what two ranks have stored")
is_(a.bytes() == want, True, "each rank has its bytes")
a.end()
d.end()

# ---- Store, of SGLang and LMCache: each rank has objects of its own, so a block has one part ----

log = logging.getLogger("engine")
for kind, slot in ((SGLang, 5000), (LMCache, 8192)):
    conf = kind({"gpc_bytes": 200 * 8192, **({"gpc_slot_bytes": slot} if kind is LMCache else {})})
    layout = bytes([7] * 32)
    d = Gpcd(["block-size = 1", "ram-blocks = 30", f"block-bytes = {slot}", "layout = " + layout.hex()])
    e = raises(ConfigError, "is not as this engine needs it", lambda: open_cache(name, conf, layout, slot, 1, "store", log),
               f"{kind.__module__}: lines that are missing")
    is_(re.findall("'([a-z-]+ = [^']+)'", str(e)), ["unchained = yes", "keep-digests = yes"], "are named")
    d.end()
    d = Gpcd(["block-size = 1", "ram-blocks = 30", f"block-bytes = {slot}", "layout = " + layout.hex(), "unchained = yes",
              "keep-digests = yes"])
    ranks = [Store(open_cache(name, conf, layout, slot, 1, f"rank {r}", log), conf) for r in range(2)]
    objects = [bytearray(os.urandom(12000)) for _ in range(2)]
    for r, s in enumerate(ranks):
        _, parts = address_of(objects[r])
        is_(s.put([bytes([r]) * 32], [parts]), [True], "stored")
        s.publisher.collect(60)
        s.c.ticket_wait()
    for r, s in enumerate(ranks):
        target, parts = address_of(bytearray(12000))
        is_(s.get([bytes([1 - r]) * 32], [parts]), [True], "another rank finds it")
        is_(bytes(target) == bytes(objects[1 - r]), True, "with its bytes")
    for s in ranks:
        close_cache(s.c)
    d.end()
done()
