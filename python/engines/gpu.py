#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu.py [OPTIONS] PART... - whole vLLM engines on GPUs of this machine, with gpc.vllm and with others.

    loads      TTFT of what was computed, of an own prefix hit, of a load from RAM, and of a first use by another engine:
               against the bus of the same run; where the time of gpc's loads goes
    idle       requests that hit nothing: an engine with gpc against one without, beside two without
    mixed      conversations dealt at random to two engines
    disk       the same with little RAM and a tier of files
    recovery   the same while gpcd and an engine are killed; the engine starts again
    ranks      two tensor-parallel ranks: tokens and logprobs
    sleep      an engine sleeps, wakes and loads
    start      from an engine's start to its first token, and requests while its cache is made and its slots are registered: with
               gpc, which makes its cache or finds it, against one without that starts together with it

Results are OUT/PART.json, written as they come, and OUT/gpu.md.  A part that the deadline leaves no time is left out."""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time

from live import GIB, Clock, Daemon, Ended, Fleet, Options, Results, arguments, end_others, kill, median, share_of, system, systems

SCHEDULER = ("arrived", "step", "found", "allocated", "sent")
WORKER = ("taken", "begun", "first", "given", "copied", "summed", "ended", "told")
MOMENTS = (*SCHEDULER, *WORKER, "complete", "scheduled")     # of gpc/vllm/trace.py, in order


def ms(x, digits=1):
    return "-" if x is None else f"{1e3 * x:.{digits}f}"


def number(x, digits=3):
    return "-" if x is None else f"{x:.{digits}f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in r) + " |" for r in rows]) + "\n"


class Run:
    def __init__(self, a):
        self.a, self.clock = a, Clock(a.deadline)
        os.makedirs(a.out, exist_ok=True)
        self.folder = tempfile.mkdtemp(prefix="gpu-")
        self.options = Options(a, self.folder)
        self.page = []

    def fleet(self):
        return Fleet(self.options, self.clock)

    def results(self, part):
        return Results(os.path.join(self.a.out, part + ".json"), part=part, arguments=vars(self.a), kv_bytes_per_token=self.options.kv_bytes)

    def say(self, title, text):
        self.page.append(f"## {title}\n\n{text}\n")
        with open(os.path.join(self.a.out, "gpu.md"), "w") as f:
            f.write("\n".join(self.page))
        print(text, flush=True)


# ---- loads ----

def moments_of(path):
    """Tokens -> medians of the milliseconds from each moment to the next one, and of all."""
    loads = {}
    try:
        with open(path) as f:
            for x in map(json.loads, f):
                loads.setdefault((x["engine"], x["job"]), {}).update(x)
    except OSError:
        return {}
    by = {}
    for x in loads.values():
        if all(s in x for s in MOMENTS):
            by.setdefault(x["tokens"], []).append(x)
    out = {}
    for tokens, some in sorted(by.items()):
        out[tokens] = {b: statistics.median((x[b] - x[a]) / 1e6 for x in some) for a, b in zip(MOMENTS, MOMENTS[1:])}
        out[tokens].update(all=statistics.median((x["scheduled"] - x["arrived"]) / 1e6 for x in some), loads=len(some),
                           runs=some[0]["runs"], bytes=some[0]["bytes"],
                           copies_gbps=statistics.median(x["bytes"] / max(1, x["copied"] - x["first"]) for x in some))
    return out


async def one_prompt(run, engines, of, size, seed, answer, logprobs):
    """The times of a prompt: computed, an own hit, loaded after a reset, and loaded by another engine."""
    a, nbytes, tokens = engines[0], size * run.options.kv_bytes, [[seed, size + 1]]
    chunks = size // (run.a.block * (16 if of.name == "gpc-16" else 1))
    before = of.c.stats().published if of.name.startswith("gpc") else 0
    got = {"computed": await a.generate(tokens, answer, logprobs)}
    await a.settle(0 if of.name.startswith("gpc") else nbytes)
    if of.name.startswith("gpc"):
        got["stored"] = await of.stored(before, chunks)
    await a.settle()                     # a step hears of the last stores, and it is not one that is timed
    got["own"] = await a.generate(tokens, answer, logprobs)
    if of.name != "none":
        await a.reset()
        got["loaded"] = await a.generate(tokens, answer, logprobs)
    if of.shared and len(engines) > 1:
        got["other"] = await engines[1].generate(tokens, answer, logprobs)
    return got


WAYS = ("computed", "own", "loaded", "other")
KINDS = ("none", "gpc", "gpc-off", "gpc-16", "off", "lmcache")
FILES = ("gpc-disk", "fs-disk", "gpc-tmpfs", "fs-tmpfs")


async def loads(run):
    a, res, fleet = run.a, run.results("loads"), run.fleet()
    counts = a.systems
    of, engines = {}, {}
    try:
        async def begin(kind, n):
            of[kind] = system(kind, run.options, a.loads_ram_gib, engines=n)
            names = [f"{kind}-{x}" for x in "abcd"[:n]]
            env = {"GPC_TRACE": os.path.join(run.folder, "trace-" + kind)} if kind.startswith("gpc") else None
            engines[kind] = await fleet.add(of[kind], names, env)
            for e in engines[kind]:
                await e.warm(min(a.batch, max(a.sizes)))
        await asyncio.gather(*(begin(k, n) for k, n in counts.items()))
        kinds = list(counts)
        for i, k in enumerate(kinds):    # one hit each, unmeasured
            await one_prompt(run, engines[k], of[k], min(a.sizes), 10 + i, 1, None)
        for path in (os.path.join(run.folder, "trace-" + k) for k in kinds):
            if os.path.exists(path):
                os.truncate(path, 0)
        raw = res["raw"] = {}
        res["bus"] = []
        for i in range(a.rounds):
            if run.clock.left() < 30:
                run.clock.say("no time is left for more rounds")
                break
            (bus,) = (await engines[kinds[0]][0].ask("workers", call="bus", args=[1 << 30, 3]))["answers"][:1]
            res["bus"].append(bus)
            for size in a.sizes:
                for k in kinds[i % len(kinds):] + kinds[:i % len(kinds)]:
                    got = await one_prompt(run, engines[k], of[k], size, 1000003 * size + i, 1, None)
                    row = raw.setdefault(str(size), {}).setdefault(k, {w: [] for w in (*WAYS, "cached", "first_token_equal", "stored")})
                    for w in WAYS:
                        if w in got:
                            row[w].append(got[w]["ttft"])
                    row["cached"].append({w: got[w]["cached"] for w in WAYS if w in got})
                    row["first_token_equal"].append(len({got[w]["ids"][0] for w in WAYS if w in got}) == 1)
                    row["stored"].append(got.get("stored", True))
                res.save()
        res["equal"] = {}
        for size in a.sizes:             # sixteen tokens with logprobs, against the own hit
            for k in kinds:
                if run.clock.left() > 20:
                    got = await one_prompt(run, engines[k], of[k], size, 1000003 * size + 999, 16, 3)
                    res["equal"][f"{size} {k}"] = {w: got[w]["ids"] == got["own"]["ids"] and got[w]["logprobs"] == got["own"]["logprobs"]
                                                   for w in ("loaded", "other") if w in got}
        res["moments"] = {k: moments_of(os.path.join(run.folder, "trace-" + k)) for k in kinds if k.startswith("gpc")}
    finally:
        await fleet.end()
        show_loads(run, res)
        res.save()


def ratios(x, y):
    """Of two systems' times of the same rounds: of their medians, and the median of those of each round, which a slow round of
    both does not move."""
    both = [a / b for a, b in zip(x, y) if a and b]
    return (number(median(x) / median(y)), number(median(both))) if both else ("-", "-")


def show_loads(run, res):
    if not res.get("raw"):
        return
    bus = median([b[0] for b in res["bus"]])
    rows, marks = [], []
    for size, kinds in res["raw"].items():
        nbytes = int(size) * run.options.kv_bytes
        m = {k: {w: median(x[w]) for w in WAYS} for k, x in kinds.items()}
        for k, x in m.items():
            limit = x["own"] + 1.15 * nbytes / (bus * 1e9) if x["own"] else None
            rows.append([size, k, *(ms(x[w]) for w in WAYS), ms(limit), kinds[k]["cached"][-1].get("loaded", "-"),
                         f"{sum(kinds[k]['first_token_equal'])}/{len(kinds[k]['first_token_equal'])}"])
        for w in ("loaded", "other"):
            if (g := m.get("gpc", {}).get(w)) is None:
                continue
            limit = m["gpc"]["own"] + 1.15 * nbytes / (bus * 1e9)
            marks.append([size, f"{w}: gpc / limit", number(g / limit), "-", "<= 1"])
            for what, mine, other, wanted in (("gpc / LMCache", "gpc", "lmcache", "< 1"), ("gpc / without checksums", "gpc", "gpc-off", "<= 1.03"),
                                              ("chunks of 16 / of 1", "gpc-16", "gpc", "<= 1")):
                if m.get(mine, {}).get(w) and m.get(other, {}).get(w):
                    marks.append([size, f"{w}: {what}", *ratios(kinds[mine][w], kinds[other][w]), wanted])
    text = f"Bus: {number(bus, 1)} GB/s to the device, {number(median([b[1] for b in res['bus']]), 1)} back; medians of {len(res['bus'])}.\n\n"
    text += table(["tokens", "system", *(w + ", ms" for w in WAYS), "own + 1.15 x bus, ms", "tokens loaded", "first token equal"], rows)
    text += "\n" + table(["tokens", "ratio", "of medians", "median of rounds", "wanted"], marks)
    moments = [[k, t, x["loads"], x["runs"], *(number(x[s], 2) for s in MOMENTS[1:]), number(x["all"], 2), number(x["copies_gbps"], 1)]
              for k, by in res.get("moments", {}).items() for t, x in by.items()]
    text += "\nMilliseconds from the moment before (GPC_TRACE), and GB/s from the first copy to the last one's end:\n\n"
    text += table(["system", "tokens", "loads", "copies a block", *MOMENTS[1:], "all", "GB/s"], moments)
    text += "\nTokens and logprobs equal to an own hit: " + json.dumps(res.get("equal", {})) + "\n"
    run.say("Loads", text)


# ---- who hits nothing ----

async def unknown(run, e, seed):
    """A load of prompts that nobody has."""
    a, gate = run.a, asyncio.Semaphore(8)

    async def one(i):
        async with gate:
            return await e.generate([[seed * 1009 + i, a.idle_tokens]], 32)
    since = time.monotonic()
    got = await asyncio.gather(*(one(i) for i in range(a.idle_requests)))
    seconds = time.monotonic() - since
    return {"seconds": seconds, "ttft": statistics.mean(x["ttft"] for x in got),
            "token": statistics.mean((x["end"] - x["first"]) / (len(x["ids"]) - 1) for x in got)}


async def idle(run):
    a, res, fleet = run.a, run.results("idle"), run.fleet()
    try:
        (plain, other), (gpc,) = await asyncio.gather(
            fleet.add(system("none", run.options, 0), ["none-a", "none-b"]),
            fleet.add(system("gpc", run.options, a.loads_ram_gib), ["gpc-a"]))
        for e in (plain, other, gpc):
            await e.warm(a.idle_tokens)
            await unknown(run, e, 3)
        res["pairs"] = {"gpc": [], "none": []}
        for i in range(a.rounds):
            if run.clock.left() < 20:
                break
            for what, e in (("gpc", gpc), ("none", other)):
                order = [("of", e), ("plain", plain)][::1 if i % 2 else -1]
                res["pairs"][what].append({w: await unknown(run, x, 100 + 10 * i + (w == "of") + 5 * (what == "gpc")) for w, x in order})
            res.save()
    finally:
        await fleet.end()
        rows = []
        for f in ("seconds", "ttft", "token"):
            r = {w: [p["of"][f] / p["plain"][f] for p in res.get("pairs", {}).get(w, [])] for w in ("gpc", "none")}
            if r["gpc"] and r["none"]:
                inside = min(r["none"]) <= median(r["gpc"]) <= max(r["none"])
                rows.append([f, *(f"{median(r[w]):.4f} ({min(r[w]):.4f} to {max(r[w]):.4f})" for w in ("gpc", "none")), "inside" if inside else "OUTSIDE"])
        run.say("Requests that hit nothing", table(["of a pair", "gpc / none", "none / none", "the median of gpc, in the range of none"], rows))
        res.save()


# ---- conversations ----

async def conversations(run, engines, during=None):
    """All first turns, all second ones, and so on, in an order and dealt to engines by the seed, so many at a time."""
    a, r = run.a, random.Random(run.a.seed)
    deal = [[r.randrange(len(engines)) for _ in range(a.turns)] for _ in range(a.conversations)]
    orders = [r.sample(range(a.conversations), a.conversations) for _ in range(a.turns)]
    said, done, failed, gate = [["="] for _ in deal], [], [], asyncio.Semaphore(a.active)
    since = time.monotonic()

    async def one(c, turn):
        async with gate:
            rr = random.Random(a.seed * 1000003 + c * 101 + turn)
            ask = [rr.randrange(3, run.options.vocabulary) for _ in range(a.turn_tokens)]
            asked, e = time.monotonic(), engines[deal[c][turn]]
            for _ in range(3):
                e = e if not e.dead else next(x for x in engines if not x.dead)
                try:
                    got = await e.generate([said[c], ["=", *ask]], a.answer)
                    break
                except (Ended, asyncio.TimeoutError) as x:
                    failed.append({"engine": e.name, "why": str(x)[:200], "done": len(done)})
                    await asyncio.sleep(0.05)
            else:
                return
            said[c] += ask + got["ids"]
            done.append({"conversation": c, "turn": turn, "engine": e.name, "ttft": got["first"] - asked, "total": got["end"] - asked,
                         "tokens": got["tokens"], "cached": got["cached"], "ids": got["ids"]})
    beside = asyncio.create_task(during(done)) if during else None
    for turn, order in enumerate(orders):
        await asyncio.gather(*(one(c, turn) for c in order))
    seconds = time.monotonic() - since
    if beside:
        await asyncio.wait_for(beside, 60)
    t, tokens = [x["ttft"] for x in done], sum(x["tokens"] for x in done)
    return {"seconds": seconds, "requests": len(done), "wanted": a.conversations * a.turns, "failed": failed, "ttft_mean": statistics.mean(t),
            "ttft_p50": median(t), "ttft_p95": share_of(t, 0.95), "ttft_p99": share_of(t, 0.99),
            "tokens_per_s": (tokens + sum(len(x["ids"]) for x in done)) / seconds, "hit_share": sum(x["cached"] for x in done) / tokens, "rows": done}


def shown(name, m):
    return [name, number(m["seconds"], 1), *(ms(m[k], 0) for k in ("ttft_mean", "ttft_p50", "ttft_p95", "ttft_p99")), number(m["tokens_per_s"], 0),
            number(m["hit_share"]), f"{m['requests']}/{m['wanted']}", len(m["failed"])]


SHOWN = ["system", "seconds", "TTFT mean, ms", "p50", "p95", "p99", "tokens/s", "hit share", "requests", "failed"]


async def of_systems(run, res, title, wanted):
    """Each system started once, one after the other."""
    rows = []
    for name, make in wanted:
        if run.clock.left() < 75:
            run.clock.say(f"no time is left for {name}")
            continue
        fleet = run.fleet()
        try:
            engines = await fleet.add(make(), [f"{name}-a", f"{name}-b"])
            for e in engines:
                await e.warm(min(run.a.batch, 4096))
                await e.reset()
            m = res[name] = await conversations(run, engines)
            rows.append(shown(name, m))
            if hasattr(fleet.systems[0], "stats"):
                m["gpc"] = fleet.systems[0].stats()
            m["metrics"] = {e.name: (await e.ask("metrics"))["metrics"] for e in engines}
        except Exception as x:
            res[name + " failed"] = f"{type(x).__name__}: {x}"[:2000]
            run.clock.say(f"{name}: {res[name + ' failed']}")
            for e in fleet.engines.values():
                print(f"--- {e.log}\n{e.tail()}", flush=True)
        finally:
            await fleet.end()
            res.save()
    text = table(SHOWN, rows)
    best = [res[n]["ttft_mean"] for n in ("lmcache", "off", "fs") if n in res]
    for n in [r[0] for r in rows if r[0].startswith("gpc")]:
        if best:
            text += f"\n{n} / the best of the others, mean TTFT: {res[n]['ttft_mean'] / min(best):.3f} (at most 0.75 wanted)\n"
    run.say(title, text)


async def mixed(run):
    a = run.a
    await of_systems(run, run.results("mixed"), "Conversations on two engines", [
        (k, lambda k=k: system(k, run.options, a.ram_gib)) for k in a.mixed_systems])


def raw_rates(folder, nbytes=1 << 30):
    """GB/s of one file: written and read past the page cache, in pieces of 8 MiB, four at a time."""
    import mmap
    from concurrent.futures import ThreadPoolExecutor
    path, piece = os.path.join(folder, f"gpu-rate-{os.getpid()}"), 8 << 20
    direct = getattr(os, "O_DIRECT", 0)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | direct, 0o600)
    except OSError:                      # tmpfs
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    memory = [mmap.mmap(-1, piece) for _ in range(4)]

    def do(call):
        def some(k):
            for at in range(k * piece, nbytes, 4 * piece):
                call(fd, [memory[k]], at)
        since = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(some, range(4)))
        if call is os.pwritev:
            os.fsync(fd)
        return nbytes / (time.monotonic() - since) / 1e9
    try:
        return {"write": do(os.pwritev), "read": do(os.preadv)}
    finally:
        os.close(fd)
        os.unlink(path)


async def disk(run):
    a, res = run.a, run.results("disk")
    res["raw_rates"] = {}
    for f in (a.disk_folder, a.tmpfs_folder):
        try:
            res["raw_rates"][f] = raw_rates(f)
        except OSError as x:
            res["raw_rates"][f] = {"write": 0, "read": 0, "error": str(x)}
        run.clock.say(f"{f}: {res['raw_rates'][f]} GB/s")
    wanted = []
    for name, folder, gib in (("disk", a.disk_folder, a.disk_gib), ("tmpfs", a.tmpfs_folder, a.tmpfs_gib)):
        path = os.path.join(folder, f"gpu-{os.getpid()}-{name}")
        wanted += [(f"gpc-{name}", lambda path=path, gib=gib: system("gpc-disk", run.options, a.disk_ram_gib, disk=path + ".gpc", disk_gib=gib)),
                   (f"fs-{name}", lambda path=path: system("fs", run.options, a.disk_ram_gib, files=path + ".fs"))]
    await of_systems(run, res, f"Conversations with {a.disk_ram_gib:g} GiB of RAM and a tier of files",
                     [w for w in wanted if w[0] in a.disk_systems])
    text = "Raw rates, GB/s: " + json.dumps(res["raw_rates"]) + "\n"
    for name in ("disk", "tmpfs"):
        if f"gpc-{name}" in res:
            text += f"\ngpc-{name}, blocks: {json.dumps(res['gpc-' + name]['gpc']['disk'])}\n"
        if f"gpc-{name}" in res and f"fs-{name}" in res:
            text += f"\n{name}: mean TTFT, gpc / fs tiering: {res['gpc-' + name]['ttft_mean'] / res['fs-' + name]['ttft_mean']:.3f}\n"
    run.say("Tiers of files", text)
    res.save()


# ---- deaths ----

async def recovery(run):
    a, res, fleet = run.a, run.results("recovery"), run.fleet()
    try:
        of = system("gpc", run.options, a.ram_gib, standby=True)
        first, second = await fleet.add(of, ["gpc-a", "gpc-b"])
        for e in (first, second):
            await e.warm(min(a.batch, 4096))
        events = res["events"] = []

        async def during(done):
            total = a.conversations * a.turns
            while len(done) < 0.3 * total:
                await asyncio.sleep(0.01)
            was, at = of.c.info().writer_pid, time.monotonic()
            os.kill(was, signal.SIGKILL)
            while (now := of.c.info()).writer_pid in (0, was) and time.monotonic() < at + 20:
                await asyncio.sleep(0.001)
            events.append({"what": "gpcd", "done": len(done), "takeover_s": time.monotonic() - at, "writer": now.writer_pid})
            while len(done) < 0.6 * total:
                await asyncio.sleep(0.01)
            first.kill()
            events.append({"what": "engine", "done": len(done), "gpc": of.stats()})
        m = res["conversations"] = await conversations(run, [first, second], during)
        killed = next((e["done"] for e in events if e["what"] == "engine"), None)
        res["failed_before_engine"] = [f for f in m["failed"] if killed is None or f["done"] < killed]
        res["failed_of_others"] = [f for f in m["failed"] if f["engine"] != first.name]
        res.save()
        # the same engine again: from its first step to its first hit
        prompt = [[4242, a.hit_tokens + 1]]
        before = of.c.stats().published
        await second.generate(prompt, 1)
        await second.settle()
        await of.stored(before, a.hit_tokens // a.block)
        since = time.monotonic()
        (again,) = await fleet.add(Again(of), ["gpc-a2"])
        ready = time.monotonic()
        hit = await again.generate(prompt, 1)
        res["again"] = {"start_s": ready - since, "first_step_to_first_hit_s": hit["first"] - ready, "cached": hit["cached"],
                        "tokens": a.hit_tokens}
        res["check"] = of.check()
    finally:
        await fleet.end()
        res.save()
    text = table(SHOWN, [shown("gpc, gpcd and an engine killed", res["conversations"])])
    text += f"\n{json.dumps(res['events'])}\n\nRequests that failed before the engine was killed: {len(res['failed_before_engine'])}; of the " \
            f"engine that lived: {len(res['failed_of_others'])}.\n\nThe engine again: {json.dumps(res['again'])}\n\ngpc-inspect check: {res['check']['status']}\n"
    run.say("Recovery", text)


class Again:
    """Another engine of a system that has begun."""

    def __init__(self, of):
        self.of, self.env = of, of.env

    def config(self):
        return self.of.config()

    async def start(self):
        pass

    began = start

    def end(self):
        pass


# ---- ranks, sleep ----

async def same(run, res, a, b, plain=None):
    """Tokens and logprobs of what is loaded, against those of an own hit; and of what is computed, against `plain`."""
    of, out = a.system, []
    for size in run.a.sizes:
        prompt = [[31 * size, size + 1]]
        before = of.c.stats().published
        got = {"computed": await a.generate(prompt, 16, 3)}
        await a.settle()
        stored = await of.stored(before, size // run.a.block)
        got["own"] = await a.generate(prompt, 16, 3)
        await a.reset()
        got["loaded"] = await a.generate(prompt, 16, 3)
        if b:
            got["other"] = await b.generate(prompt, 16, 3)
        row = {"tokens": size, "stored": stored, "cached": {k: x["cached"] for k, x in got.items()}, "ttft": {k: x["ttft"] for k, x in got.items()}}
        for k in ("loaded", "other"):
            if k in got:
                row[k + "_equal"] = got[k]["ids"] == got["own"]["ids"] and got[k]["logprobs"] == got["own"]["logprobs"]
        if plain:
            x, own = await plain.generate(prompt, 16, 3), await plain.generate(prompt, 16, 3)
            row["computed_equal_plain"] = x["ids"] == got["computed"]["ids"]
            row["loaded_equal_plain_own"] = own["ids"] == got["loaded"]["ids"] and own["logprobs"] == got["loaded"]["logprobs"]
        out.append(row)
        res["rows"] = out
        res.save()
    return out


async def ranks(run):
    res, fleet = run.results("ranks"), run.fleet()
    try:
        (a, b), (plain,) = await asyncio.gather(
            fleet.add(system("gpc", run.options, run.a.loads_ram_gib), ["gpc-a", "gpc-b"], tensor_parallel_size=2),
            fleet.add(system("none", run.options, 0), ["none-a"], tensor_parallel_size=2))
        for e in (a, b, plain):
            await e.warm(2048)
        rows = await same(run, res, a, b, plain)
        res["check"] = a.system.check()
    finally:
        await fleet.end()
        res.save()
    run.say("Two ranks", "\n".join(json.dumps(r) for r in rows) + f"\n\ngpc-inspect check: {res['check']['status']}\n")


async def sleep(run):
    res, fleet = run.results("sleep"), run.fleet()
    try:
        (a,) = await fleet.add(system("gpc", run.options, run.a.loads_ram_gib), ["gpc-a"], enable_sleep_mode=True)
        await a.warm(2048)
        rows = res["rows"] = []
        for size in run.a.sizes:
            prompt, before = [[37 * size, size + 1]], a.system.c.stats().published
            await a.generate(prompt, 16, 3)
            await a.settle()
            await a.system.stored(before, size // run.a.block)
            own = await a.generate(prompt, 16, 3)
            since = time.monotonic()
            await a.ask("sleep", level=1)
            asleep = time.monotonic()
            await a.ask("wake")
            woken = time.monotonic()
            got = await a.generate(prompt, 16, 3)
            rows.append({"tokens": size, "sleep_s": asleep - since, "wake_s": woken - asleep, "cached": got["cached"], "ttft": got["ttft"],
                         "equal": got["ids"] == own["ids"] and got["logprobs"] == own["logprobs"]})
            await a.reset()
            again = await a.generate(prompt, 16, 3)
            rows[-1]["again_equal"] = again["ids"] == own["ids"] and again["logprobs"] == own["logprobs"]
            res.save()
    finally:
        await fleet.end()
        res.save()
    run.say("Sleep and wake", "\n".join(json.dumps(r) for r in rows) + "\n")


# ---- the start ----

async def begun(run, fleet, of, name, seed):
    """An engine, the seconds until vLLM is imported, to the end of its start and to its first token."""
    since = time.monotonic()
    (e,) = await fleet.add(of, [name])
    ready = time.monotonic()
    first = await e.generate([[seed, run.a.idle_tokens]], 16, 3)
    return e, {"imported_s": e.imported - since, "start_s": ready - since, "first_token_s": first["first"] - since, "first_ttft": first["ttft"]}


async def pairs(run, both, seeds, on=None):
    """TTFT of prompts that nobody has, of each engine in turn: a machine that is slow for a while is slow for both.  on(): does
    the state last that is measured?"""
    out = []
    while len(out) < run.a.start_requests:
        for e in both:                                   # both are asked, so that both are alike
            await e.registering()
        if on and out and not await on():
            break
        got = [(await e.generate([[next(seeds), run.a.idle_tokens]], 4))["ttft"] for e in both[::1 if len(out) % 2 else -1]]
        out.append(got[::1 if len(out) % 2 else -1])
    return out


async def until(run, on):
    end = time.monotonic() + run.a.start_seconds
    while await on() and time.monotonic() < end:
        await asyncio.sleep(0.05)


async def beside(run, fleet, of, name, seed, known):
    """An engine with gpc and one without, which start together.  Requests go to both in turn, at once: while the memory of the
    cache is made, while the engine with gpc registers its slots beside steps, and when all are registered.  known: a prompt
    that the cache has; None: the engine makes the cache."""
    a, seeds = run.a, itertools.count(seed)
    (e, gpc), (plain, none) = await asyncio.gather(begun(run, fleet, Again(of), name, next(seeds)),
                                                   begun(run, fleet, system("none", run.options, 0), name + "-none", next(seeds)))
    ready, there = time.monotonic(), asyncio.create_task(asyncio.sleep(0) if known else of.began())
    await asyncio.wait([there], timeout=0.2)     # a cache that is there is found at once

    async def makes():
        return not there.done()

    async def registers():
        return (await e.registering())[0]
    out = {"gpc": gpc, "none": none, "makes": await makes(), "made": [], "made_s": 0}
    if known:
        got = await e.generate(known, 16, 3)
        out["load"] = {"ttft": got["ttft"], "cached": got["cached"], "ids": got["ids"], "registering": await registers()}
    elif out["makes"]:
        out["made"] = await pairs(run, [e, plain], seeds, makes)
        await there
        out["made_s"] = time.monotonic() - ready
        await e.generate([[next(seeds), a.idle_tokens]], 4)      # its first store begins the registering
        await e.settle()
    out["registering"] = await registers()
    out["meanwhile"] = await pairs(run, [e, plain], seeds, registers)
    out["registered_beside"] = (await e.registering())[1]
    await until(run, registers)
    busy, out["registered"] = await e.registering()
    out["ended"], out["registered_s"] = not busy, time.monotonic() - ready
    out["after"] = await pairs(run, [e, plain], seeds) if out["ended"] else []
    await plain.quit()
    return e, out


async def start(run):
    a, res = run.a, run.results("start")
    raw = res["raw"] = {"makes": [], "finds": []}
    fleet = run.fleet()                  # the first engine of a machine reads all programs from its disk, and compiles
    try:
        await begun(run, fleet, system("none", run.options, 0), "first", 1)
    finally:
        await fleet.end()
    for i in range(a.start_rounds):
        if run.clock.left() < 120:
            run.clock.say("no time is left for more rounds")
            break
        fleet, of = run.fleet(), system("gpc", run.options, a.start_ram_gib, serve=True)
        fleet.systems.append(of)         # it begins, and ends, beside its engines
        try:
            e, got = await beside(run, fleet, of, "gpc-a", 10000 * (i + 1), None)
            raw["makes"].append(got)
            known, before = [[4242 + i, a.hit_tokens + 1]], of.c.stats().published
            want = await e.generate(known, 16, 3)
            await e.settle()
            stored = await of.stored(before, a.hit_tokens // a.block)
            await e.quit()
            res.save()
            _, got = await beside(run, fleet, of, "gpc-b", 10000 * (i + 1) + 5000, known)
            got["load"].update(stored=stored, equal=got["load"].pop("ids") == want["ids"])
            raw["finds"].append(got)
        finally:
            await fleet.end()
            res.save()
    show_start(run, raw)


WHEN = {"made": "while memory is made", "meanwhile": "while slots are registered", "after": "afterwards"}


def behind_imports(x, what):
    """Both engines import the same programs first, and nothing of gpc.  Two that start together differ by seconds in that, so
    the mean of both counts."""
    both = (x["gpc"]["imported_s"] + x["none"]["imported_s"]) / 2
    return (both + x["gpc"][what] - x["gpc"]["imported_s"]) / (both + x["none"][what] - x["none"]["imported_s"])


def show_start(run, raw):
    rows, marks = [], []
    for kind, some in raw.items():
        if not some:
            continue
        for j, who in enumerate(("gpc", "none")):
            ttft = {when: [t[j] for x in some for t in x[when]] for when in ("made", "meanwhile", "after")}
            rows.append([who + ", which " + kind + " its cache" if who == "gpc" else who + ", beside it", len(some),
                         *(number(median([x[who][f] for x in some]), 2) for f in ("start_s", "first_token_s")),
                         *(ms(x) for x in (median([x[who]["first_ttft"] for x in some]), median(ttft["made"]), median(ttft["meanwhile"]),
                                           median(ttft["after"]), max(ttft["meanwhile"], default=None)))])
        for f in ("start_s", "first_token_s"):
            marks.append([f"{f}, which {kind} its cache", number(median([x["gpc"][f] / x["none"][f] for x in some])), "-"])
            marks.append(["... with the mean of both until vLLM is imported", number(median([behind_imports(x, f) for x in some])), "<= 1.1"])
        marks.append([f"first_ttft, which {kind} its cache", number(median([x["gpc"]["first_ttft"] / x["none"]["first_ttft"] for x in some])), "<= 1.1"])
        for when, wanted in (("made", "-"), ("meanwhile", "<= 1.1"), ("after", "-")):
            both = [t for x in some for t in x[when]]
            if both:
                marks.append([f"TTFT {WHEN[when]}, which {kind} its cache", number(median([t[0] / t[1] for t in both])), wanted])
    told = [[k, x["makes"], number(x["made_s"], 1), x["registering"], x["registered"] >> 20, x["registered_beside"] >> 20,
             number(x["registered_s"], 1), x["ended"]]
            for k, some in raw.items() for x in some]
    text = f"RAM of {run.a.start_ram_gib:g} GiB, prompts of {run.a.idle_tokens} tokens.\n\n" + table(
        ["engine", "rounds", "start, s", "first token since the start, s", "first TTFT, ms", *WHEN.values(), "the longest"], rows)
    text += "\n" + table(["gpc / none, of one round or of one pair, median", "is", "wanted"], marks)
    text += "\n" + table(["the engine", "memory is made at its first token", "s more", "slots are registered then", "MiB registered", "of them beside requests",
                          "s since the first token", "all"], told)
    text += "\nLoads by an engine that finds its cache: " + json.dumps([x["load"] for x in raw["finds"]]) + "\n"
    run.say("The start", text)


PARTS = {f.__name__: f for f in (loads, idle, mixed, disk, recovery, ranks, sleep, start)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    arguments(p)
    p.add_argument("--sizes", type=lambda s: [int(x) for x in s.split(",")], default=[8192, 32768])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--systems", type=systems(*KINDS, numbers=True), default="gpc=2,lmcache=2,gpc-off,gpc-16", help="of loads: KIND or KIND=ENGINES, with commas")
    p.add_argument("--loads-ram-gib", type=float, default=12, help="RAM of each system in loads, idle, ranks and sleep")
    p.add_argument("--mixed-systems", type=systems(*KINDS), default="gpc,lmcache,off", help="of mixed")
    p.add_argument("--disk-systems", type=systems(*FILES), default=",".join(FILES), help="of disk")
    p.add_argument("--conversations", type=int, default=64)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--turn-tokens", type=int, default=2048)
    p.add_argument("--answer", type=int, default=32)
    p.add_argument("--active", type=int, default=16)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--idle-requests", type=int, default=24)
    p.add_argument("--idle-tokens", type=int, default=2048)
    p.add_argument("--hit-tokens", type=int, default=8192)
    p.add_argument("--start-ram-gib", type=float, default=64, help="RAM of gpc in start")
    p.add_argument("--start-rounds", type=int, default=3)
    p.add_argument("--start-requests", type=int, default=24, help="of start, while slots are registered, and again when all are")
    p.add_argument("--start-seconds", type=float, default=120, help="that start waits for that")
    p.add_argument("--disk-ram-gib", type=float, default=8)
    p.add_argument("--disk-gib", type=float, default=30)
    p.add_argument("--tmpfs-gib", type=float, default=60)
    p.add_argument("--disk-folder", default=tempfile.gettempdir())
    p.add_argument("--tmpfs-folder", default="/dev/shm")
    a = p.parse_args()
    for part in a.parts:
        if part not in PARTS:
            p.error(f"PART: {part}, one of {', '.join(PARTS)} is wanted")
    run, bad = Run(a), 0

    def over(*_):
        end_others()
        os._exit(3)
    signal.signal(signal.SIGTERM, over)
    for part in a.parts or ["loads"]:
        if run.clock.left() < 60:
            run.clock.say(f"no time is left for {part}")
            continue
        run.clock.say(part)
        try:
            asyncio.run(asyncio.wait_for(PARTS[part](run), run.clock.left()))
        except BaseException as e:
            bad = 1
            run.clock.say(f"{part} FAILED: {type(e).__name__}: {str(e)[:1500]}")
            for name in sorted(os.listdir(run.folder)):
                if name.endswith(".log"):
                    with open(os.path.join(run.folder, name), errors="replace") as f:
                        print(f"--- {name}\n" + "".join(x[:300] for x in f.readlines()[-15:]), flush=True)
            if not isinstance(e, Exception):
                break
        finally:
            end_others()
            Daemon.made.clear()
    for name in sorted(os.listdir(run.folder)):
        path = os.path.join(run.folder, name)
        if os.path.isfile(path):
            with open(path, "rb") as f, open(os.path.join(a.out, name), "ab") as to:
                to.write(f.read()[-200000:])
    return bad


if __name__ == "__main__":
    sys.exit(main())
