# SPDX-License-Identifier: Apache-2.0
"""Engines as processes, and their cache, for the tests and figures of this folder."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from glob import glob

import gpc
from gpc.vllm.cache import POOL

HERE = os.path.dirname(os.path.abspath(__file__))
CORES = sorted(os.sched_getaffinity(0))


class EngineError(Exception):
    """An engine has ended, or does not answer."""


class Processes:
    """What one command has started, in a session of its own."""

    all = []

    def start(self, name, logs, command, cores, env, **more):
        self.name, self.log = name, os.path.join(logs, name + ".log")
        bind = "|".join(str(CORES[i % len(CORES)]) for i in cores)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, **more, env={
                    **os.environ, "PYTHONPATH": HERE + ":" + os.environ.get("PYTHONPATH", ""),
                    "VLLM_CPU_OMP_THREADS_BIND": bind, "VLLM_NO_USAGE_STATS": "1",
                    "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **env})
        Processes.all.append(self)

    def said(self, text):
        with open(self.log) as f:
            return text in f.read()

    def pids(self):
        """All processes of its session, with what ps shows of each."""
        out = {}
        for stat in glob("/proc/[0-9]*/stat"):
            try:
                with open(stat) as f:
                    rest = f.read().rsplit(")", 1)[1].split()
                pid = int(stat.split("/")[2])
                if int(rest[3]) == self.process.pid and rest[0] != "Z":
                    with open(f"/proc/{pid}/cmdline") as f:
                        out[pid] = f.read().replace("\0", " ").strip()
            except OSError:
                pass
        return out

    def pids_of(self, title):
        return [p for p, shown in self.pids().items() if title in shown]

    def cpu_seconds(self):
        """Of all its processes, so far."""
        ticks = 0
        for p in self.pids():
            try:
                with open(f"/proc/{p}/stat") as f:
                    ticks += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
            except OSError:
                pass
        return ticks / os.sysconf("SC_CLK_TCK")

    def kill(self):
        """kill -9 of all its processes.  vLLM's shared memory would stay: we remove what only they had."""
        pids = self.pids()
        files = _mapped(pids)
        for p in pids:
            _kill(p)
        self.process.wait()
        wait(lambda: not self.pids(), "the processes of a killed engine end")
        for f in files:
            if os.path.exists(f):
                os.unlink(f)


class Engine(Processes):
    """One engine, on cores of its own: `cores` are numbers in CORES, one for each rank."""

    def __init__(self, name, logs, model, cores=(0,), extra=None, env=None, **options):
        if extra is not None:
            options["kv_connector_extra_config"] = extra
        env = dict(env or {})
        if "kv_cache_memory_bytes" not in options:      # this would count instead
            env["VLLM_CPU_KVCACHE_SPACE"] = "1"
        ours, theirs = os.pipe()
        self.start(name, logs, [sys.executable, os.path.join(HERE, "engine.py"), json.dumps({"model": model, **options}),
                                str(theirs)], cores, env, stdin=subprocess.PIPE, pass_fds=(theirs,), text=True, bufsize=1)
        os.close(theirs)
        self.answers = os.fdopen(ours)

    # ---- commands ----

    def send(self, do, **more):
        try:
            self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        except OSError as e:
            raise EngineError(f"{self.name} has ended; see {self.log}") from e

    def answer(self):
        line = self.answers.readline()
        if not line:
            raise EngineError(f"{self.name} has ended; see {self.log}")
        return json.loads(line)

    def ask(self, do, **more):
        self.send(do, **more)
        return self.answer()

    def ready(self):
        self.answer()
        return self

    def generate(self, *prompt, n=8):
        return self.ask("generate", prompt=prompt, n=n)

    def metric(self, name):
        return self.ask("metrics").get("vllm:" + name, 0)

    def quit(self):
        """As a service would: at the end of its input it ends by itself."""
        try:
            self.process.stdin.close()
            self.process.wait(60)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self.kill()


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _mapped(pids):
    """Files of multiprocessing's shared memory, and of vLLM's own RAM tier."""
    out = set()
    for p in pids:
        try:
            with open(f"/proc/{p}/maps") as f:
                out |= {line.split()[5] for line in f if "/dev/shm/psm_" in line or "/dev/shm/vllm_offload_" in line}
        except OSError:
            pass
    return out


def wait(condition, what, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise EngineError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.02)


class Cache:
    """What the engines share, seen by a peer that stores nothing."""

    def __init__(self, name, parts=1, checksum=True):
        self.name, self.parts, self.checksum = name, parts, checksum
        self.c = gpc.attach(name, label="test", timeout=10)
        self.part = self.c.pool_map(POOL)[0]
        self.runs = self.c.pool_runs(POOL)       # one of each part

    def at(self, block, part=0):
        run = self.runs[part]
        return self.part.address + run.offset + gpc.SLOT(block) * run.slot_stride

    def live(self):
        return [e for e in self.c.walk() if gpc.POOL(e.block) == POOL]

    def reserved(self):
        return self.c.stats().reserved

    def available(self):
        """Slots that a store could have.  What a dead engine's worker may still write is not among them."""
        return self.c.pool_available(POOL)

    def bad(self):
        """Live slots whose bytes are not those of their key."""
        out = []
        for e in self.live():
            if not all(self.good(e, p) for p in range(self.parts)):
                out.append(e)
        return out

    def good(self, entry, part):
        (has,), n, at = self.c.sealed([entry.block], entry.key, part), self.runs[part].bytes, self.at(entry.block, part)
        return not has.result and (not self.checksum or has.crc == gpc.crc32c((ctypes.c_char * n).from_address(at), has.seed))

    def corrupt(self, entry):
        """One bit in the middle."""
        at = ctypes.c_ubyte.from_address(self.at(entry.block) + self.runs[0].bytes // 2)
        at.value ^= 1

    def fill(self, entry, random):
        """Other numbers of that size in all of its bytes, under a seal that stays."""
        for part, run in enumerate(self.runs):
            n = run.bytes // 4
            (ctypes.c_float * n).from_address(self.at(entry.block, part))[:] = [random.gauss(0, 1) for _ in range(n)]

    def close(self):
        self.c.close()


def same(a, b):
    """Ids and logprobs, bit by bit."""
    return a["ids"] == b["ids"] and a["logprobs"] == b["logprobs"]


def end_all(cache=None):
    for e in Processes.all:
        e.kill()
    if cache:
        try:
            gpc.unlink(cache)
        except gpc.Error:
            pass
