# SPDX-License-Identifier: Apache-2.0
"""ttft.py FOLDER [ROUNDS] - time to the first token with and without what another engine has computed.

Two engines share a cache of gpc, two others vLLM's fs tier on a tmpfs (fs_spec.py), two LMCache's server where it is
installed (lmcache_server.py), and one has no tier.  Each has one core, the server what they leave, and one at a time is
asked, in every round all of them, so the rows compare.  Before the second engine of a pair
is asked, all that the first one has computed is stored.  Prompts have 4000 tokens; the model has 8 layers of 1024 and,
as Llama 3 8B, 4 heads of queries for each head of keys: 33 MB for a prompt.

GPC_ENGINES_TTFT names what gpc is compared with: "plain fs lmcache" unless it says less.  Where memory is short, LMCache's
server is left out, then the fs tier, then the engine without a tier, and if the two of gpc do not fit, all of it: that is
said, and is no failure.  GPC_ENGINES_MEMORY says how many GB there are, where that is not what /proc/meminfo has.
"""

import itertools
import os
import statistics
import sys
import tempfile

import lmcache_server as lmcache
import make_model
from fleet import Cache, Engine, end_all, same, wait

TOKENS, BLOCK = 4000, 32
CHUNKS = TOKENS // BLOCK
PLAIN, STORES, FIRST, OWN, RESET, FS_STORES, FS_FIRST, LM_STORES, LM_FIRST = ROWS = (
    "no tier: computed", "gpc, nobody has it: computed and stored", "gpc, what another engine computed: first use",
    "gpc, that engine again: its own prefix hit", "gpc, after a reset of its own cache",
    "fs tier, nobody has it: computed and stored", "fs tier, what another engine computed: first use",
    "LMCache's server, nobody has it: computed and stored", "LMCache's server, what another engine computed: first use")
COMPUTE = {PLAIN: "plain", STORES: "gpc-a", FS_STORES: "fs-a", LM_STORES: "lmcache-a"}
HITS = (FIRST, OWN, RESET, FS_FIRST, LM_FIRST)
TIERS = os.environ.get("GPC_ENGINES_TTFT", "plain fs lmcache").split()
BYTES = 1 << 29          # of each KV cache and each tier: 15 prompts
EACH = 3                 # GB of memory that an engine takes
SPARE = 2                # GB for the rest
ENGINES = {"lmcache": 2, "fs": 2, "plain": 1}     # of each, in the order in which they are left out
MARKS = ((FIRST, OWN, 1.3), (FIRST, FS_FIRST, 0.6), (FIRST, LM_FIRST, 0.15), (STORES, PLAIN, 1.03))


class Table:
    def __init__(self, engines, cache, folder, server):
        self.engines = engines
        self.cache, self.folder, self.server = cache, folder, server
        self.times, self.cpu, self.load = {row: [] for row in ROWS}, {row: [] for row in ROWS}, []

    def once(self, row, e, prompt):
        since = e.cpu_seconds()
        got = e.generate(prompt, n=1)
        self.cpu[row].append(e.cpu_seconds() - since)
        least = TOKENS - TOKENS % lmcache.CHUNK if row == LM_FIRST else TOKENS - BLOCK
        if got["cached"] < least if row in HITS else got["cached"] > 0:
            raise SystemExit(f"{row}: {got['cached']} tokens were cached")
        self.times[row].append(got["seconds"])
        return got

    def files(self):
        return sum(not f.endswith(".tmp") for _, _, files in os.walk(self.folder) for f in files)

    def computed(self, i, prompt):
        """Those that compute take turns in every place, and nobody stores while another one computes."""
        asked = [(row, self.engines[e]) for row, e in COMPUTE.items() if e in self.engines]
        orders = list(itertools.permutations(asked))
        return [self.stored(row, e, prompt) for row, e in orders[i * len(orders) // 6 % len(orders)]]

    def stored(self, row, e, prompt):
        count, more, where = {
            PLAIN: (lambda: 0, 0, ""),
            STORES: (lambda: self.cache.c.stats().live, CHUNKS, "gpc's cache"),
            FS_STORES: (self.files, CHUNKS, "the fs tier"),
            LM_STORES: (lambda: self.server.stored(), TOKENS - TOKENS % lmcache.CHUNK, "LMCache's server")}[row]
        before = count()
        answer = self.once(row, e, prompt)
        wait(lambda: count() >= before + more, "all of it is in " + where)
        return answer

    def a_round(self, i):
        prompt = [100 + i, TOKENS]
        self.load.append(os.getloadavg()[0])
        answers = self.computed(i, prompt)
        e = self.engines["gpc-b"]
        hits = [self.once(FIRST, e, prompt), self.once(OWN, e, prompt)]
        wait(lambda: e.ask("reset")["reset"], "an engine empties its own cache")
        hits.append(self.once(RESET, e, prompt))
        if "fs-b" in self.engines:
            hits.append(self.once(FS_FIRST, self.engines["fs-b"], prompt))
        # LMCache has whole chunks only: more is computed, so the last bits of its logprobs are others.
        if "lmcache-b" in self.engines:
            answers.append(self.once(LM_FIRST, self.engines["lmcache-b"], prompt))
        if not all(same(hits[0], x) for x in hits) or {x["ids"][0] for x in answers} != {hits[0]["ids"][0]}:
            raise SystemExit(f"the answers of round {i} differ")

    def show(self):
        times = {row: t for row, t in self.times.items() if t}
        print(f"# median and range of {len(times[FIRST])} rounds, ms")
        for row, t in times.items():
            print(f"# {row:53} {1e3 * statistics.median(t):8.1f}  {1e3 * min(t):8.1f} to {1e3 * max(t):8.1f}")
        if self.server:
            print(f"# LMCache's server: chunks of {lmcache.CHUNK} tokens, {lmcache.MODE}")
        else:
            print("# LMCache's server: " + ("not installed" if "lmcache" in TIERS else "not there") + ", not compared")
        for row, other, most in MARKS:
            if row in times and other in times:
                print(f"# {row} / {other}: {ratio(times, row, other)} (at most {most} wanted)")
        if PLAIN in times:
            print(f"# the same of CPU time: {ratio(self.cpu, STORES, PLAIN)}")
        print("# load, as a round began (1 is ours): " + " ".join(f"{x:.1f}" for x in self.load))


def ratio(of, row, other):
    """Of each round, since a machine has faster and slower minutes."""
    r = [x / y for x, y in zip(of[row], of[other])]
    return f"{statistics.median(r):.3f}, {min(r):.3f} to {max(r):.3f}"


def engines_of(name, folder, model, files, server):
    gpc = {"gpc_bytes": BYTES, "gpc_name": name, "gpc_pending_ms": 60000}
    fs = {"cpu_bytes_to_use": BYTES, "spec_name": "FsSpec", "spec_module_path": "fs_spec",
          "secondary_tiers": [{"type": "fs", "root_dir": files, "n_read_threads": 2, "n_write_threads": 2}]}
    wanted = [("gpc-a", 0, gpc, {}), ("gpc-b", 1, gpc, {})]
    if "plain" in TIERS:
        wanted += [("plain", 0, None, {})]
    if "fs" in TIERS:
        wanted += [("fs-a", 0, fs, {}), ("fs-b", 1, fs, {})]
    if server:
        wanted += [(e, core, server.extra(), lmcache.environment()) for e, core in (("lmcache-a", 0), ("lmcache-b", 1))]
    out = {e: Engine("ttft-" + e, folder, model, (core,), *more, kv_cache_memory_bytes=BYTES)
           for e, core, *more in wanted}
    for e in out.values():
        e.ready()
    for i, e in enumerate(out.values()):        # the first request of an engine is slower
        e.generate([10 + i, TOKENS], n=1)
    return out


def available():
    """GB of memory.  With less than engines take the kernel would end them, or others."""
    with open("/proc/meminfo") as f:
        return int(dict(line.split(":") for line in f)["MemAvailable"].split()[0]) / 1e6


def fit(there):
    """Leave out what does not fit.  False: nor do two engines of gpc."""
    def needed():
        return EACH * (2 + sum(ENGINES[t] for t in TIERS)) + SPARE
    for t in ENGINES:
        if t in TIERS and there < needed():
            print(f"# skipped: {t}: {needed()} GB of memory are needed, {there:.1f} are available", flush=True)
            TIERS.remove(t)
    if there < needed():
        print(f"# skipped: ttft: {needed()} GB of memory are needed for two engines, {there:.1f} are available", flush=True)
    return there >= needed()


def main():
    folder, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 6
    if not fit(float(os.environ.get("GPC_ENGINES_MEMORY") or available())):
        return
    name = os.environ.get("GPC_T_CACHE", f"ttft-{os.getpid()}") + "-s"
    model = os.path.join(folder, "model-1024-4")
    if not os.path.exists(os.path.join(model, "config.json")):
        make_model.make(model, 1024, 8, 3072, 4)
    server = None
    with tempfile.TemporaryDirectory(prefix=name, dir="/dev/shm") as files:
        try:
            if "lmcache" in TIERS and lmcache.installed():
                server = lmcache.Server(folder, name, BYTES / (1 << 30))
            table = Table(engines_of(name, folder, model, files, server), Cache(name), files, server)
            for i in range(rounds):
                table.a_round(i)
        finally:
            end_all(name)
            if server:
                server.quit()
    table.show()


main()
