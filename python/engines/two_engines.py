# SPDX-License-Identifier: Apache-2.0
"""two_engines.py FOLDER [PART...] - real vLLM engines on CPUs that share one RAM tier.  TAP on the standard output.

Each answer is compared with those of an engine without gpc: the tokens are those that it computes without any cache,
and the logprobs are, bit by bit, those that it has when the same blocks are in its own prefix cache.  How many tokens
are computed at once changes the last bits of a sum, also of what is cached, so its prefix cache is filled by the prompt
that filled gpc's, or by one of that length whose first tokens are the same.
FOLDER gets the model and the engines' logs.  Parts, all by default:
    pair        one computes, the other loads; one asks while the other computes; a slot whose bytes have changed
    core        kill -9 of EngineCore, which is the writer, in the middle of a store, while its worker lives
    restart     an engine that starts on the cache that is there, and kill -9 of all of it in the middle of a store
    chunks      chunks of 8 blocks
    tp          two tensor-parallel ranks, in a cache of the engine, and in one of gpcd
    weights     weights that change in a running engine, and a version of them
    tiers       RAM for a third of the prompts, a file and Redis behind it: kills of an engine and of gpcd, and the cache
                removed, as a restart of the machine does it, with the file and without
core and restart go on with the engines of pair.
"""

import os
import shutil
import subprocess
import sys
import time
import traceback

import gpc
import make_model
from fleet import Cache, Engine, Processes, end_all, same, wait
from gpc.engines.below import LOOK

import tap
from tap import is_, name, ok

PARTS = ("pair", "core", "restart", "chunks", "tp", "weights", "tiers")
BLOCK = 32                       # tokens
LONG, BRANCH, BOTH = [[1, 2005]], [[1, 1000], [2, 333]], [[3, 3000]]
HALF, AGAIN = [[4, 2000]], [[5, 2000]]
PROMPTS = (LONG, BRANCH, BOTH, HALF, AGAIN)
CHUNK = 4 * 2 * 2 * 64 * 2 * BLOCK          # bytes: layers, K and V, heads, their size, of two bytes
FEW = 120                        # chunks that RAM has in tiers; the prompts have 320
BAD = 50                         # the chunk of LONG whose bytes are changed


def cached(n, chunk=1):
    """Tokens of a prompt that can be loaded: whole chunks."""
    return n // (BLOCK * chunk) * BLOCK * chunk


class Test:
    def __init__(self, folder):
        self.folder, self.model = folder, os.path.join(folder, "model")
        self.reference = {}

    # ---- engines ----

    def engine(self, called, cores=(0,), suffix="", half=False, extra=None, **options):
        extra = {"gpc_bytes": 256 << 20, "gpc_name": name + suffix, "gpc_stock": 0, "gpc_pending_ms": 60000,
                 **(extra or {})}
        extra = {k: v for k, v in extra.items() if v is not None}
        env = {}
        if half:                 # with a worker of its own
            extra |= {"spec_name": "HalfStoreSpec", "spec_module_path": "half_store"}
            options["distributed_executor_backend"] = "mp"
            env["GPC_T_HALF"] = self.path(called)
        return Engine(called, self.folder, self.model, cores, extra, env, **options)

    def without_gpc(self):
        e = Engine("reference", self.folder, self.model).ready()
        for prompt in PROMPTS:
            self.forget(e)
            self.remember(e, prompt)     # computed
            self.remember(e, prompt)     # from its own prefix cache
        for prompt, hit in ((LONG, BAD * BLOCK), (LONG, cached(2005, 8)), (BRANCH, cached(1000)),
                            (BRANCH, cached(1000, 8))):
            self.forget(e)
            e.generate([1, hit], [9, 2005 - hit])        # as long as LONG, and with that much of it
            self.remember(e, prompt)
            if hit == BAD * BLOCK:
                self.mended = e.generate(*prompt)        # the rest was computed behind that hit, not in one go
        e.quit()

    def remember(self, e, prompt):
        got = e.generate(*prompt)
        self.reference[str(prompt), got["cached"]] = got

    def right(self, e, prompt, what, hit=None):
        got = e.generate(*prompt)
        self.judge(got, prompt, what, hit)
        if hit is not None:
            is_(got["cached"], hit, f"{what}: {hit} tokens of it are from the cache")
        return got

    def judge(self, got, prompt, what, hit=None):
        hit = got["cached"] if hit is None else hit
        is_(got["ids"], self.reference[str(prompt), 0]["ids"], f"{what}: the tokens of no cache")
        ok(same(got, self.reference[str(prompt), hit]), f"{what}: the logprobs of an own prefix hit of {hit} tokens")

    def forget(self, e):
        """Its own prefix cache, when nothing uses that any more."""
        wait(lambda: e.ask("reset")["reset"], "an engine empties its own cache")

    def path(self, called):
        """Where half_store.py of that engine looks for its files."""
        return os.path.join(self.folder, f"{name}-{called}")

    def sound(self, cache, what):
        """Nothing is held any more, and all that is there is good."""
        wait(lambda: not cache.reserved(), what + ": no slot is reserved")
        is_([e.block for e in cache.bad()], [], what + ": all live slots have the bytes of their keys")
        is_(cache.c.check(), 0, what + ": no invariant is broken")

    def sound_ram(self, cache, what):
        """The same, of RAM: the process that keeps the tiers has slots of these reserved."""
        wait(lambda: cache.available() == FEW, what + ": all slots of RAM are free or could be")
        is_([e.block for e in cache.bad()], [], what + ": all live slots of RAM have the bytes of their keys")
        is_(cache.c.check(), 0, what + ": no invariant is broken")
        cache.c.tiers_sync(timeout=60)

    # ---- parts ----

    def pair(self):
        a, b = self.engine("a", (0,), half=True), self.engine("b", (1,), half=True)
        a.ready(), b.ready()
        self.cache = Cache(name)
        self.right(a, LONG, "the first engine", 0)
        self.right(b, LONG, "the second engine", cached(2005))
        ok(b.metric("external_prefix_cache_hits") >= cached(2005), "vLLM counts them as external hits")
        self.forget(b)
        self.right(b, LONG, "again after a reset of its own cache", cached(2005))
        self.forget(b)
        self.right(b, BRANCH, "a prompt with half of that prefix", cached(1000))
        self.corrupt(b)
        self.forget(b)
        a.send("generate", prompt=BOTH, n=8)
        wait(self.cache.reserved, "one has claimed what it computes")       # no step waits for that
        b.send("generate", prompt=BOTH, n=8)
        got = [e.answer() for e in (a, b)]
        for g in got:
            self.judge(g, BOTH, "one asks while the other one computes")
        is_(sorted(g["cached"] for g in got), [0, cached(3000)], "one of them computes")
        self.sound(self.cache, "after that")
        # from here on a is the one that made the cache, and is its writer
        self.a, self.b = (a, b) if self.cache.c.info().writer_pid in a.pids() else (b, a)

    def corrupt(self, e):
        (bad,) = [x for x in self.cache.live() if x.depth == BAD]       # only the first prompt is that long
        self.cache.corrupt(bad)
        is_([x.block for x in self.cache.bad()], [bad.block], "the test's own eyes: one slot is bad")
        self.forget(e)
        got = e.generate(*LONG)
        self.judge(got, LONG, "a slot whose bytes have changed", BAD * BLOCK)
        ok(e.said("its bytes are not those of key"), "the engine says so")
        wait(lambda: not self.cache.bad(), "a bad slot goes")
        self.forget(e)
        got = e.generate(*LONG)
        is_(got["cached"], cached(2005), "all that was computed instead is stored again")
        # the bad slot was computed anew, behind a hit, and what follows it is as it was: no run of its own has both
        is_(got["ids"], self.mended["ids"], "with the tokens of an own prefix hit of it")

    def stop_half(self, e, prompt):
        open(self.path(e.name) + ".armed", "w").close()
        e.send("generate", prompt=prompt, n=8)
        wait(lambda: os.path.exists(self.path(e.name) + ".stopped"), "a store stops in its middle")

    def core(self):
        a, b, cache = self.a, self.b, self.cache
        all_slots = cache.available()
        self.stop_half(a, HALF)
        held, core = cache.reserved(), a.pids_of("EngineCore")
        ok(held > 0, f"a store has {held} slots reserved")
        is_([cache.c.info().writer_pid], core, "EngineCore is the writer")
        os.kill(core[0], 9)
        wait(lambda: core[0] not in a.pids(), "EngineCore ends")
        self.right(b, HALF, "EngineCore was killed, and another engine computes")
        is_(cache.c.info().writer_pid in b.pids(), True, "which is the writer now")
        ok(a.pids_of("Worker"), "the worker lives, in the middle of its store")
        is_(cache.available(), all_slots - held, "and nobody can have the slots that it may write")
        open(self.path(a.name) + ".go", "w").close()
        wait(lambda: os.path.exists(self.path(a.name) + ".went") or not a.pids_of("Worker"), "the worker goes on")
        a.kill()
        self.sound(cache, "when the worker has gone")
        wait(lambda: cache.available() == all_slots, "its slots come back")
        self.forget(b)
        self.right(b, HALF, "what the other engine stored", cached(2000))

    def restart(self):
        core, b, cache = 1 if self.b.name == "a" else 0, self.b, self.cache
        if self.a.process.poll() is None:
            self.a.quit()
        a = self.engine("again", (core,), half=True).ready()
        self.right(a, BOTH, "an engine that starts on a cache of others", cached(3000))
        self.stop_half(a, AGAIN)
        ok(cache.reserved() > 0, "it has slots reserved")
        a.kill()
        self.right(b, AGAIN, "all of it was killed, and another engine computes")
        self.sound(cache, "then")
        self.forget(b)
        self.right(b, AGAIN, "what the other engine stored", cached(2000))

    def end_pair(self):
        self.cache.close()
        self.a.quit()
        self.b.quit()

    def chunks(self):
        e = self.engine("chunks", suffix="-c", extra={"blocks_per_chunk": 8}).ready()
        self.right(e, LONG, "chunks of 8 blocks", 0)
        self.forget(e)
        self.right(e, LONG, "chunks of 8 blocks, loaded", cached(2005, 8))
        self.forget(e)
        self.right(e, BRANCH, "a branch inside of a chunk", cached(1000, 8))
        self.finish(e, "-c")

    def tp(self):
        """Two ranks add in another order than one, so their own answers are the reference."""
        e, others = self.engine("tp", (0, 1), "-t", tensor_parallel_size=2).ready(), self.reference
        self.reference = {}
        for prompt, hit in ((LONG, cached(2005)), (HALF, cached(2000))):
            self.reference[str(prompt), 0] = e.generate(*prompt)
            self.reference[str(prompt), hit] = e.generate(*prompt)      # its own prefix hit
            self.forget(e)
            self.right(e, prompt, "two ranks", hit)
        conf, inspect = self.path("tp.conf"), os.path.join(os.environ["GPC_T_BUILD"], "tools", "gpc-inspect")
        with open(conf, "w") as f:
            f.write(subprocess.run([inspect, "command", "--config", name + "-t"], capture_output=True, text=True, check=True).stdout)
        self.finish(e, "-t", parts=2)
        daemon = Gpcd(self.folder, conf)
        wait(lambda: daemon.said("serving as process"), "gpcd makes the cache of two ranks")
        e = self.engine("tp-gpcd", (0, 1), "-t", tensor_parallel_size=2).ready()
        self.right(e, LONG, "two ranks in the cache of gpcd", 0)
        self.forget(e)
        self.right(e, LONG, "two ranks in the cache of gpcd", cached(2005))
        self.reference = others
        self.finish(e, "-t", parts=2)
        daemon.quit()

    def weights(self):
        version = self.path("version")
        if os.path.exists(version):
            os.unlink(version)
        a, b = (self.engine(n, (i,), "-w", extra={"gpc_version_file": version}) for i, n in enumerate(("first", "second")))
        a.ready(), b.ready()
        old = self.right(a, LONG, "old weights", 0)
        self.right(b, LONG, "old weights", cached(2005))
        self.forget(a)
        ok(a.ask("update")["reset"], "new weights in one engine, and a reset: vLLM is told that it is done")
        new = a.ask("generate", prompt=LONG, n=8)
        is_((new["cached"], new["ids"] == old["ids"]), (0, False), "it finds nothing of before, and answers otherwise")
        is_(new["ids"], a.ask("generate", prompt=LONG, n=8, salt="x")["ids"], "as with a salt that nobody has")
        self.forget(b)
        self.right(b, LONG, "the other one goes on with the old ones", cached(2005))
        with open(version, "w") as f:
            f.write("1")
        self.forget(a), self.forget(b)
        ok(a.ask("update")["reset"] and b.ask("update")["reset"] and b.ask("update")["reset"],
           "both have the same new weights, and a version")
        want = a.ask("generate", prompt=LONG, n=8)
        got = b.ask("generate", prompt=LONG, n=8)
        is_((want["cached"], got["cached"]), (0, cached(2005)), "what one computes with it the other one loads")
        is_(got["ids"], want["ids"], "the same tokens")
        b.quit()
        self.finish(a, "-w")

    def tiers(self):
        server = Redis(self.folder, self.path("redis.sock"))
        conf, disk = self.path("tiers.conf"), self.path("disk")
        for f in (disk, self.path("key")):
            if os.path.exists(f):
                os.unlink(f)
        with open(conf, "w") as f:
            f.write(f"[gpc]\nname = {name}-d\ndisk = {disk}\ndisk-bytes = {400 * (CHUNK + 4096)}\ndisk-ahead = {FEW}\nkey-file = {self.path('key')}\n"
                    f"{server.line()}\n[engines]\nbytes = {(64 + FEW) * CHUNK}\n[vllm]\nbelow-ms = 60000\n")
        keys = {"gpc_config": conf, "gpc_bytes": None, "gpc_name": None}
        a = self.engine("keeps", (0,), half=True, extra=keys)
        b = self.engine("asks", (1,), extra={**keys, "gpc_serve": False})
        a.ready(), b.ready()
        cache = Cache(name + "-d")
        for prompt in (LONG, BRANCH, BOTH, HALF):
            self.right(a, prompt, "with little RAM", 0 if prompt != BRANCH else None)
            cache.c.tiers_sync(timeout=60)       # else a prompt evicts what nobody has written
        self.below(b, LONG, cached(2005), "what has left RAM", ("disk", "store"))
        daemon = Gpcd(self.folder, conf)
        wait(lambda: daemon.said("standing by"), "gpcd stands by")
        self.stop_half(a, AGAIN)
        a.kill()
        wait(lambda: cache.c.info().writer_pid == daemon.pid(), "gpcd serves when the engine that made the cache was killed")
        self.right(b, AGAIN, "which was in the middle of a store")
        self.below(b, BOTH, cached(3000), "gpcd keeps the tiers of that engine", ("disk", "store"))
        self.forget(b)
        b.send("generate", prompt=LONG, n=8)
        daemon.kill()
        is_(b.answer()["ids"], self.reference[str(LONG), 0]["ids"], "gpcd was killed while an engine asks: the tokens are right")
        again = Gpcd(self.folder, conf)
        wait(lambda: again.said("are found again"), "another gpcd serves, and has read the file")
        time.sleep(2 * LOOK)             # an engine that has just looked for tiers looks again then
        cache.c.tiers_sync(timeout=60)
        self.below(b, HALF, cached(2000), "that one keeps the tiers", ("disk", "store"))
        self.sound_ram(cache, "after the kills")
        for what, lost, sources in (("the machine starts again", None, ("disk", "store")), ("and without its disk", disk, ("store",))):
            if lost and not server.process:
                print(f"# skipped: {what}: there is no redis-server", flush=True)
                break
            b.quit()
            cache.close()
            again.quit()         # the engine keeps the tiers from now on
            gpc.unlink(name + "-d")
            if lost:
                os.unlink(lost)
            b = self.engine("later", (1,), extra=keys).ready()
            cache = Cache(name + "-d")
            cache.c.tiers_sync(timeout=60)
            for prompt, n in ((LONG, 2005), (BOTH, 3000)):
                self.below(b, prompt, cached(n), what, sources)
        self.sound_ram(cache, "after that")
        b.quit()
        cache.close()
        server.quit()
        gpc.unlink(name + "-d")

    def below(self, e, prompt, hit, what, sources):
        """A prompt that has left RAM, by its figures: some of its chunks come from one of these sources."""
        def count():
            return sum(e.metric(f"kv_offload_gpc_hits_{s}") for s in sources)
        self.forget(e)
        before = count()
        self.right(e, prompt, what, hit)
        ok(count() > before, f"{what}: from {' or '.join(sources)}")

    def finish(self, e, suffix, parts=1):
        e.quit()
        cache = Cache(name + suffix, parts)
        self.sound(cache, "when the engine has ended")
        cache.close()
        gpc.unlink(name + suffix)


class Redis(Processes):
    """A server of its own, where there is one."""

    def __init__(self, folder, socket):
        self.socket, self.process = socket, None
        if shutil.which("redis-server"):
            self.start("redis", folder, ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder],
                       (0,), {}, stdin=subprocess.DEVNULL)
            wait(lambda: os.path.exists(socket), "redis-server listens")

    def line(self):
        plugin = os.path.join(os.environ["GPC_T_BUILD"], "plugins", ".libs", "gpc_remote_redis.so")
        return f"remote = {plugin}:server=unix:{self.socket}" if self.process else ""

    def quit(self):
        if self.process:
            self.kill()


class Gpcd(Processes):
    def __init__(self, folder, conf):
        Gpcd.n = getattr(Gpcd, "n", 0) + 1
        gpcd = os.path.join(os.environ["GPC_T_BUILD"], "tools", "gpcd")
        self.start(f"gpcd-{Gpcd.n}", folder, [gpcd, "--config", conf], (0,), {}, stdin=subprocess.DEVNULL)

    def pid(self):
        return next((p for p, shown in self.pids().items() if "--config" in shown), 0)

    def quit(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


def run(test, wanted):
    if set(wanted) - {"tp"}:
        test.without_gpc()
    for part in wanted:
        print(f"# {part}", flush=True)
        getattr(test, part)()
        if part in ("pair", "core", "restart") and not {"core", "restart"} & set(wanted[wanted.index(part) + 1:]):
            test.end_pair()


def main():
    if len(sys.argv) < 2 or set(sys.argv[2:]) - set(PARTS):
        raise SystemExit(__doc__)
    wanted = [p for p in PARTS if p in (sys.argv[2:] or PARTS)]
    if {"core", "restart"} & set(wanted) and "pair" not in wanted:
        wanted.insert(0, "pair")
    test = Test(sys.argv[1])
    if not os.path.exists(os.path.join(test.model, "config.json")):
        make_model.make(test.model)
    try:
        run(test, wanted)
    except Exception:
        print("# " + traceback.format_exc().replace("\n", "\n# "))
        ok(False, "it got to its end")
    finally:
        for suffix in ("", "-c", "-t", "-w", "-d"):
            end_all(name + suffix)
    tap.done()


main()
