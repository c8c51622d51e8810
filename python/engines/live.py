# SPDX-License-Identifier: Apache-2.0
"""Asynchronous engines (live_engine.py), the caches below them, and results, for gpu.py and agentic.py.

A system is what an engine has below its own prefix cache:

    none        nothing                         off         vLLM's OffloadingConnector, RAM of each engine
    gpc         gpc.vllm, one cache for all     fs          vLLM's tiering: RAM of each engine, files of all
    gpc-off     without checksums               lmcache     LMCache's multiprocess server
    gpc-16      chunks of 16 blocks
    gpc-disk    with a file below RAM
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 1 << 30
GRAPHS = (1, 2, 4, 8, 16, 24, 32, 48, 64)               # requests of a step
SHAPES = {                       # hidden, layers, heads, heads of keys, inner, bytes of the vocabulary
    "8b": (4096, 32, 32, 8, 14336, 128256),
    "3b": (3072, 28, 24, 8, 8192, 128256),
    "1b": (2048, 16, 32, 8, 8192, 128256),
    "kv8b": (2048, 32, 16, 8, 5632, 32000),      # the KV cache of 8b, under 2 B of weights
    "tiny": (128, 2, 2, 2, 256, 4096),
}


class Ended(RuntimeError):
    """An engine has ended, or its deadline is over."""


def median(x):
    return statistics.median(x) if x else None


def share_of(x, q):
    """The q-th of 0 to 1."""
    x = sorted(x)
    return x[min(len(x) - 1, int(q * len(x)))] if x else None


class Results(dict):
    """A file that is whole at any time."""

    def __init__(self, path, **first):
        super().__init__(first)
        self.path = path

    def save(self):
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        with open(self.path + ".new", "w") as f:
            json.dump(self, f, indent=1)
        os.replace(self.path + ".new", self.path)


class Clock:
    """The deadline of a run, and of a part of it."""

    def __init__(self, seconds):
        self.began, self.end = time.monotonic(), time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def say(self, *what):
        print(f"[{time.monotonic() - self.began:6.1f}]", *what, flush=True)


# ---- processes ----

def members(session):
    """Processes of a session that we have made, by /proc."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                rest = f.read().rsplit(")", 1)[1].split()
            if int(rest[3]) == session and rest[0] != "Z":
                out.append(int(pid))
        except OSError:
            pass
    return out


def kill(session, number=signal.SIGKILL):
    out = members(session)
    for pid in out:
        try:
            os.kill(pid, number)
        except OSError:
            pass
    return out


def end_others():
    """When this process ends: processes of ours that have not ended, and then caches and files of systems that have not."""
    for p in Daemon.made:
        kill(p.pid)
    for fleet in [*Fleet.begun]:
        fleet.clear()


class Daemon:
    made = []

    def __init__(self, log, *command, env=None):
        with open(log, "a") as f:
            self.p = subprocess.Popen(command, stdout=f, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                      start_new_session=True, env={**os.environ, **(env or {})})
        self.log, self.pid = log, self.p.pid
        self.made.append(self.p)

    def end(self, number=signal.SIGTERM):
        if self.p.poll() is None:
            self.p.send_signal(number)
            try:
                self.p.wait(10)
            except subprocess.TimeoutExpired:
                kill(self.pid)
                self.p.wait()


# ---- engines ----

class Options:
    """The options that all engines of a run have."""

    def __init__(self, a, folder):
        self.folder, self.vocabulary, self.block, self.gpc = folder, None, a.block, json.loads(a.gpc)
        self.model = a.model or write_model(os.path.join(folder, "model-" + a.shape), a.shape)
        with open(os.path.join(self.model, "config.json")) as f:
            m = json.load(f)
        self.vocabulary = m["vocab_size"]
        heads = m.get("num_key_value_heads", m["num_attention_heads"])
        self.kv_bytes = 2 * m["num_hidden_layers"] * heads * m.get("head_dim", m["hidden_size"] // m["num_attention_heads"]) * 2
        graphs = dict(mode=0, cudagraph_mode="FULL_DECODE_ONLY", cudagraph_capture_sizes=[n for n in GRAPHS if n <= a.seqs])
        self.engine = dict(model=self.model, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=not a.graphs,
                           **({"compilation_config": graphs} if a.graphs else {}),
                           max_model_len=a.max_len, max_num_seqs=a.seqs, block_size=a.block, seed=0, enable_prefix_caching=True,
                           kv_cache_memory_bytes=int(a.kv_gib * GIB), max_num_batched_tokens=a.batch, vocabulary=self.vocabulary,
                           random_weights=20, gpu_memory_utilization=a.utilization, **json.loads(a.engine))


def write_model(folder, shape):
    hidden, layers, heads, keys, inner, vocabulary = SHAPES[shape]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=hidden, intermediate_size=inner,
                       num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=keys, head_dim=128 if hidden > 256 else 64,
                       vocab_size=vocabulary, max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=500000.0,
                       hidden_act="silu", attention_bias=False, mlp_bias=False, tie_word_embeddings=False, bos_token_id=1,
                       eos_token_id=2, torch_dtype="bfloat16"), f, indent=1)
    return folder


class Engine:
    def __init__(self, name, options, system, clock, env=None, **more):
        self.name, self.options, self.system, self.clock, self.env, self.more = name, options, system, clock, env or {}, more
        self.log = os.path.join(options.folder, name + ".log")
        self.waiting, self.count, self.dead, self.p = {}, 0, False, None

    async def start(self):
        o = {**self.options.engine, **self.more}
        config = self.system.config()
        if config:
            o["kv_transfer_config"] = config
        ours, theirs = os.pipe()
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), HERE]))
        env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", **self.system.env, **self.env}
        if "PYTHONPATH" in self.system.env:
            env["PYTHONPATH"] = path + os.pathsep + self.system.env["PYTHONPATH"]
        with open(self.log, "a") as log:
            self.p = await asyncio.create_subprocess_exec(
                sys.executable, "-u", os.path.join(HERE, "live_engine.py"), json.dumps(o), str(theirs), stdin=asyncio.subprocess.PIPE,
                stdout=log, stderr=log, pass_fds=(theirs,), start_new_session=True, env=env)
        Daemon.made.append(self.p)
        os.close(theirs)
        reader = asyncio.StreamReader(limit=1 << 26)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb"))
        ready = self.waiting[0] = asyncio.get_running_loop().create_future()
        self.reading = asyncio.create_task(self._read(reader))
        told = await asyncio.wait_for(ready, max(1, self.clock.left()))
        self.imported = told["imported"]
        self.clock.say(f"{self.name}: started in {told['seconds']} s")
        return self

    async def _read(self, reader):
        while line := await reader.readline():
            told = json.loads(line)
            f = self.waiting.pop(told["id"], None)
            if f and not f.done() and "error" in told:
                f.set_exception(Ended(f"{self.name}: {told['error']}\n{told.get('trace', '')}"))
            elif f and not f.done():
                f.set_result(told)
        self.dead = True
        for f in self.waiting.values():
            if not f.done():
                f.set_exception(Ended(f"{self.name} has ended"))
        self.waiting.clear()

    async def ask(self, do, **more):
        if self.dead:
            raise Ended(f"{self.name} has ended")
        self.count += 1
        f = self.waiting[self.count] = asyncio.get_running_loop().create_future()
        try:
            self.p.stdin.write((json.dumps(dict(do=do, id=self.count, **more)) + "\n").encode())
        except (OSError, RuntimeError) as e:
            raise Ended(f"{self.name} has ended: {e}") from None
        return await asyncio.wait_for(f, max(1, self.clock.left()))

    async def generate(self, prompt, n=1, logprobs=None):
        """With ttft and total, in seconds, since it was asked."""
        asked = time.monotonic()
        got = await self.ask("generate", prompt=prompt, n=n, logprobs=logprobs)
        got["ttft"], got["total"], got["asked"] = got["first"] - asked, got["end"] - asked, asked
        return got

    async def registering(self):
        """Is any rank at it?  And bytes that are registered, of all ranks."""
        got = (await self.ask("workers", call="registering"))["answers"]
        return any(x[0] for x in got), sum(x[1] for x in got)

    async def warm(self, longest):
        """The first requests of an engine are slower, and so are those while its slots are registered, which `start` measures."""
        for i, n in enumerate((600, longest, 50)):
            await self.generate([[77 + i, n]], 4)
        while (await self.registering())[0] and self.clock.left() > 30:
            await asyncio.sleep(0.1)

    async def reset(self):
        """While blocks are in use by transfers vLLM refuses."""
        end = time.monotonic() + 30
        while not (await self.ask("reset"))["reset"]:
            if time.monotonic() > end:
                raise Ended(f"{self.name} does not empty its prefix cache")
            await asyncio.sleep(0.01)

    async def settle(self, nbytes=0):
        """A step or two, in which a connector stores what was computed, and the time that its bytes take."""
        await self.generate([[time.monotonic_ns() % (1 << 40), 40]], 4)
        await asyncio.sleep(0.2 + nbytes / 8e9)

    def kill(self):
        return kill(self.p.pid)

    async def quit(self):
        if self.p is None:
            return
        try:
            self.p.stdin.close()
            await asyncio.wait_for(self.p.wait(), 20)
        except Exception:
            pass
        self.kill()
        await self.p.wait()

    def tail(self, lines=30):
        try:
            with open(self.log, errors="replace") as f:
                return "".join(line[:300] for line in f.readlines()[-lines:])
        except OSError as e:
            return str(e)


# ---- systems ----

class System:
    env, shared = {}, False              # shared: what one engine has stored, another one finds

    def __init__(self, name, options, **more):
        self.name, self.options, self.more = name, options, more

    def config(self):
        return None

    async def start(self):
        """Before its engines."""

    async def began(self):
        """When its first engine has started."""

    def end(self):
        pass


class Offloading(System):
    def config(self):
        return dict(kv_connector="OffloadingConnector", kv_role="kv_both",
                    kv_connector_extra_config=dict(cpu_bytes_to_use=int(self.more["ram"] * GIB)))


class Files(System):
    """vLLM's RAM tier of each engine, and files below it that all engines share."""
    shared = True

    def config(self):
        return dict(kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=dict(
            cpu_bytes_to_use=int(self.more["ram"] * GIB), spec_name="TieringOffloadingSpec",
            secondary_tiers=[{"type": "fs", "root_dir": self.more["files"], "n_read_threads": 8, "n_write_threads": 8}]))

    def end(self):
        shutil.rmtree(self.more["files"], ignore_errors=True)


class Gpc(System):
    """gpcd is the writer, or with serve=True an engine is."""
    shared = True

    def __init__(self, name, options, ram, serve=False, standby=False, disk=None, disk_gib=0, **extra):
        super().__init__(name, options)
        self.ram, self.serve, self.standby, self.extra, self.c, self.daemons = ram, serve, standby, extra, None, []
        self.disk, self.disk_gib = disk, disk_gib
        self.cache = f"{os.path.basename(options.folder)}-{name}"[-60:]

    def config(self):
        extra = dict(spec_name="GPCOffloadingSpec", spec_module_path="gpc.vllm", gpc_bytes=int(self.ram * GIB), gpc_name=self.cache,
                     gpc_weights="random weights 20", gpc_serve=self.serve,
                     **self.options.gpc, **self.extra)
        if self.disk:
            extra.update(gpc_disk=self.disk, gpc_disk_bytes=int(self.disk_gib * GIB))
        return dict(kv_connector="GPCConnector", kv_connector_module_path="gpc.vllm", kv_role="kv_both", kv_load_failure_policy="recompute",
                    kv_connector_extra_config=extra)

    def _log(self):
        return os.path.join(self.options.folder, f"{self.name}-gpcd.log")

    async def began(self):
        """An engine makes the cache, and may have started before that is there."""
        import gpc
        end = time.monotonic() + 300
        while self.c is None:
            if time.monotonic() > end:
                raise Ended(f"there is no cache {self.cache}")
            with contextlib.suppress(gpc.NotFound, gpc.Again, gpc.TimedOut):
                self.c = await asyncio.to_thread(gpc.attach, self.cache, label="gpu.py", timeout=1)
            await asyncio.sleep(0.01)
        if not self.serve:
            self.daemons.append(Daemon(self._log(), "gpcd", self.cache))
        end = time.monotonic() + 10
        while not self.c.info().writer_pid and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if self.standby:
            self.daemons.append(Daemon(self._log(), "gpcd", self.cache, "--standby"))

    def stats(self):
        s = self.c.stats()
        had = {k: getattr(s, k) for k in ("lookups", "hit_ram", "miss", "published", "duplicate", "evicted", "live", "reserved", "refs")}
        if self.disk:
            t = self.c.tier(0)
            had["disk"] = {k: getattr(t, k) for k in ("asks", "hits", "misses", "brought", "written", "overrun", "late", "no_ram", "overtaken", "evicted")}
        return had

    async def stored(self, before, chunks, seconds=30):
        """Until so many more chunks are live."""
        end = time.monotonic() + seconds
        while self.c.stats().published < before + chunks and time.monotonic() < end:
            await asyncio.sleep(0.005)
        return self.c.stats().published >= before + chunks

    def check(self):
        r = subprocess.run(["gpc-inspect", "check", self.cache], capture_output=True, text=True)
        return {"status": r.returncode, "said": (r.stdout + r.stderr)[-1000:]}

    def end(self):
        if self.c is not None and not self.c.closed:
            self.c.close()
        for d in self.daemons:
            d.end()
        subprocess.run(["gpc-inspect", "rm", "--force", self.cache], capture_output=True)
        if self.disk and os.path.exists(self.disk):
            os.unlink(self.disk)


class LMCache(System):
    """The server, as its documentation starts it; GPC_ENGINES_LMCACHE names its folder where it is not installed."""
    shared = True

    def __init__(self, name, options, ram, chunk=256, arguments=()):
        super().__init__(name, options)
        self.ram, self.chunk, self.arguments, self.daemon = ram, chunk, arguments, None
        path = os.environ.get("GPC_ENGINES_LMCACHE", "")
        self.env = {"LMCACHE_TRACK_USAGE": "false", "PYTHONHASHSEED": "0", **({"PYTHONPATH": path} if path else {})}
        if os.path.exists(os.path.join(path or HERE, "shim.so")):
            self.env["LD_PRELOAD"] = os.path.join(path, "shim.so")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]

    async def start(self):
        env = dict(self.env)
        if "PYTHONPATH" in env:
            env["PYTHONPATH"] = os.environ.get("PYTHONPATH", "") + os.pathsep + env["PYTHONPATH"]
        self.daemon = Daemon(os.path.join(self.options.folder, self.name + "-server.log"), sys.executable, "-m",
                             "lmcache.v1.multiprocess.server", "--host", "127.0.0.1", "--port", str(self.port), "--l1-size-gb", str(self.ram),
                             "--eviction-policy", "LRU", "--disable-observability", "--chunk-size", str(self.chunk), *self.arguments, env=env)
        end = time.monotonic() + 90
        while True:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self.daemon.p.poll() is not None or time.monotonic() > end:
                with open(self.daemon.log, errors="replace") as f:
                    raise Ended("LMCache's server does not listen:\n" + f.read()[-2000:])
            await asyncio.sleep(0.1)

    def config(self):
        return dict(kv_connector="LMCacheMPConnector", kv_role="kv_both", kv_connector_extra_config={
            "lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": self.port})

    def end(self):
        if self.daemon:
            self.daemon.end()


def system(kind, options, ram, **more):
    """ram: GiB; an engine's share of it where each engine has its own."""
    gpc = {"gpc": {}, "gpc-off": {"gpc_checksum": False}, "gpc-16": {"blocks_per_chunk": 16}, "gpc-disk": {"serve": True}}
    if kind in gpc:
        return Gpc(kind, options, ram, **{**gpc[kind], **{k: v for k, v in more.items() if k not in ("engines", "files")}})
    if kind == "none":
        return System(kind, options)
    if kind == "off":
        return Offloading(kind, options, ram=ram / more.get("engines", 2))
    if kind == "fs":
        return Files(kind, options, ram=ram / more.get("engines", 2), files=more["files"])
    if kind == "lmcache":
        return LMCache(kind, options, ram)
    raise ValueError(f"{kind}: none, gpc, gpc-off, gpc-16, gpc-disk, off, fs or lmcache is wanted")


class Fleet:
    """Systems and their engines, started together and ended together."""
    begun = []

    def __init__(self, options, clock):
        self.options, self.clock, self.engines, self.systems = options, clock, {}, []

    async def add(self, of, names, env=None, **more):
        if self not in Fleet.begun:
            Fleet.begun.append(self)
        self.systems.append(of)
        await of.start()
        made = [Engine(n, self.options, of, self.clock, env, **more) for n in names]
        for e in made:
            self.engines[e.name] = e

        async def first():
            await made[0].start()
            await of.began()
        await asyncio.gather(first(), *(e.start() for e in made[1:]))
        return made

    async def end(self):
        await asyncio.gather(*(e.quit() for e in self.engines.values()), return_exceptions=True)
        self.clear()

    def clear(self):
        """When its engines have ended."""
        if self in Fleet.begun:
            Fleet.begun.remove(self)
        for s in self.systems:
            s.end()
        said = ""
        for e in self.engines.values():
            if os.path.exists(e.log):
                with open(e.log, errors="replace") as f:
                    said += f.read()
        for x in os.listdir("/dev/shm"):     # vLLM's RAM tier of an engine that was killed; our logs name ours
            if x.startswith("vllm_offload_") and x in said:
                os.unlink("/dev/shm/" + x)
        self.engines, self.systems = {}, []


def systems(*kinds, numbers=False):
    """A type of argparse: kinds with commas between them, with numbers each may be KIND=ENGINES.  Returns kind -> engines."""
    def parse(text):
        out = {}
        for word in text.split(","):
            kind, _, n = word.partition("=")
            if kind not in kinds:
                raise argparse.ArgumentTypeError(f"{kind}: {', '.join(kinds)} are known")
            if n and not (numbers and n.isdecimal() and 1 <= int(n) <= 4):
                raise argparse.ArgumentTypeError(f"{word}: {kind}{' or KIND=ENGINES, 1 to 4,' if numbers else ''} is wanted")
            out[kind] = int(n or 1)
        return out
    return parse


def arguments(parser):
    """Those of both programs."""
    parser.add_argument("--out", default="gpu-results", help="folder of results and logs")
    parser.add_argument("--model", help="folder of a config.json, in place of --shape")
    parser.add_argument("--shape", choices=SHAPES, default="kv8b", help="of a Llama of random weights")
    parser.add_argument("--block", type=int, default=16, help="tokens of a block")
    parser.add_argument("--kv-gib", type=float, default=6, help="KV cache of each engine")
    parser.add_argument("--ram-gib", type=float, default=40, help="RAM of all engines together, the same for each system")
    parser.add_argument("--max-len", type=int, default=36864)
    parser.add_argument("--seqs", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--utilization", type=float, default=0.1, help="gpu_memory_utilization, which kv-gib overrides")
    parser.add_argument("--graphs", action=argparse.BooleanOptionalAction, default=False, help="CUDA graphs for steps that only decode; else eager")
    parser.add_argument("--engine", default="{}", help="JSON of more AsyncEngineArgs")
    parser.add_argument("--gpc", default="{}", help="JSON of more keys of gpc.vllm")
    parser.add_argument("--deadline", type=float, default=540, help="seconds of the run")
