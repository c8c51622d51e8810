#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""agentic.py [OPTIONS] TRACE - whole vLLM engines of one GPU replay sessions of agents, with and without tiers below them.

TRACE has a row of JSON for each turn, as `aiperf synthesize agentic-code` writes them and gpc-replay reads them: session_id,
input_length, output_length, and hash_ids, the blocks that are new in this turn.  A turn's prompt is all that its session has asked
and been answered, and these.  --synthetic N makes such rows of N sessions in place of a file.

The trace, the options and the seed fix the requests before anything is measured, and the result has their digest: the first
sessions of the trace and their first turns, with --tokens for each id, sent in an order of the seed, so many sessions at a time,
each with its next turn as soon as it has its answer.  RAM is a share of the bytes of all different blocks, the same for each system.

Each system is started once.  In a round each of them replays the sessions with turns dealt to its engines one after the other, and
with sessions that stay with one engine, each time with other tokens, so that nothing is found of before.  The engines of all systems
are there together, and the systems replay in turn, since a machine is slow for a while: --apart starts one system after the other,
where a GPU has too little memory.  --append adds rounds to the results of runs before; they must be of the same plan.  Ratios are
of one round.

OUT/agentic.json has all requests and all rounds, OUT/agentic.svg is their picture.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time

from live import GIB, Clock, Daemon, Ended, Fleet, Options, Results, arguments, end_others, median, share_of, system, systems

KINDS = ("none", "off", "lmcache", "gpc", "gpc-16")
ROUTINGS = ("dealt", "sticky")
FIGURES = {                      # of a replay: what it is called, and what is better
    "tokens_per_s": ("prompt and answer tokens/s", 1),
    "ttft_p50": ("TTFT p50, s", -1),
    "ttft_p95": ("TTFT p95, s", -1),
    "ttft_p99": ("TTFT p99, s", -1),
    "hit_share": ("share of prompt tokens found", 1),
}


def synthetic(sessions, seed):
    """Rows as AIPerf's: a prefix of all sessions, one of each group, and turns."""
    r, rows, new = random.Random(seed), [], 10000
    for s in range(sessions):
        for turn in range(r.randint(2, 5)):
            n = r.randint(2, 8)
            ids = ([*range(12), *range(1000 + 8 * (s % 3), 1008 + 8 * (s % 3))] if not turn else []) + [*range(new, new + n)]
            new += n
            rows.append({"session_id": f"s{s}", "input_length": 512 * len(ids) - r.randrange(500), "output_length": r.randint(100, 900),
                         "hash_ids": ids, **({"timestamp": 0.0} if not turn else {"delay": 1000.0})})
    return rows


def read(path, block):
    with open(path) as f:
        for number, line in enumerate(f, 1):
            x = json.loads(line)
            if "session_id" not in x:
                raise SystemExit(f"{path}, line {number}: it has no session_id; rows of turns are wanted")
            if len(x["hash_ids"]) != -(-x["input_length"] // block):
                raise SystemExit(f"{path}, line {number}: {len(x['hash_ids'])} ids, and input_length {x['input_length']} makes "
                                 f"{-(-x['input_length'] // block)} blocks of {block} tokens")
            yield x


class Plan:
    """The requests of a replay."""

    def __init__(self, rows, a):
        self.sessions, self.a, chosen = [], a, {}
        for x in rows:
            turns = chosen.get(x["session_id"])
            if turns is None:
                if len(chosen) == a.sessions:
                    continue
                turns = chosen[x["session_id"]] = []
            if len(turns) < a.turns and not (turns and turns[-1] is None):
                turns.append(self._turn(x, turns))
        self.sessions = [[t for t in turns if t] for turns in chosen.values()]
        self.sessions = [s for s in self.sessions if s]
        random.Random(a.seed).shuffle(self.sessions)
        self.digest = hashlib.sha256(json.dumps([self.sessions, a.tokens, a.share, a.kv_gib, a.concurrency, a.engines, a.answer]).encode()).hexdigest()

    def _turn(self, x, before):
        """Tokens as in the trace, each block of it cut to --tokens.  None: the prompt is too long, and the session ends."""
        ids, tokens = x["hash_ids"], self.a.tokens
        last = x["input_length"] - (len(ids) - 1) * self.a.trace_block
        parts = [[i, tokens] for i in ids[:-1]] + [[ids[-1], max(1, last * tokens // self.a.trace_block)]] if ids else []
        answer = max(1, min(self.a.answer, x["output_length"] * tokens // self.a.trace_block))
        restart = bool(x.get("is_restart")) or not before
        n = sum(p[1] for p in parts) + (0 if restart else before[-1]["prompt"] + before[-1]["answer"])
        if n + answer > self.a.max_prompt:
            return None
        return {"parts": parts, "answer": answer, "restart": restart, "prompt": n}

    def distinct_tokens(self):
        """Of all prompts and answers; the same content behind another prefix counts again."""
        seen, own = {}, 0
        for s in self.sessions:
            at = ""
            for t in s:
                at = "" if t["restart"] else at
                for i, n in t["parts"]:
                    at = hashlib.sha256(f"{at} {i} {n}".encode()).hexdigest()[:24]
                    seen[at] = n
                at = hashlib.sha256(f"{at} {len(seen)} answer".encode()).hexdigest()[:24]
                own += t["answer"]
        return sum(seen.values()) + own

    def said(self):
        turns = [t for s in self.sessions for t in s]
        return {"digest": self.digest, "sessions": len(self.sessions), "turns": len(turns), "prompt_tokens": sum(t["prompt"] for t in turns),
                "longest": max(t["prompt"] for t in turns), "distinct_tokens": self.distinct_tokens()}


async def replay(plan, engines, routing, salt):
    """All sessions.  salt: one replay's tokens are no other's."""
    a, gate, rows, failed, turn_of = plan.a, asyncio.Semaphore(plan.a.concurrency), [], [], [0]

    async def session(number, turns):
        async with gate:
            said = []
            for k, t in enumerate(turns):
                e = engines[(number if routing == "sticky" else turn_of[0]) % len(engines)]
                turn_of[0] += 1
                said = [] if t["restart"] else said
                said = said + [[f"{salt} {i}", n] for i, n in t["parts"]]
                try:
                    got = await e.generate(said, t["answer"])
                except (Ended, asyncio.TimeoutError) as x:
                    failed.append(f"{e.name}: {x}"[:200])
                    return
                said = said + [["=", *got["ids"]]]
                rows.append({"session": number, "turn": k, "engine": e.name, "ttft": got["ttft"], "total": got["total"], "tokens": got["tokens"],
                             "cached": got["cached"], "answer": len(got["ids"])})
    since = time.monotonic()
    await asyncio.gather(*(session(i, s) for i, s in enumerate(plan.sessions)))
    seconds = time.monotonic() - since
    t, tokens = [x["ttft"] for x in rows], sum(x["tokens"] for x in rows)
    return {"seconds": seconds, "requests": len(rows), "failed": failed, "tokens_per_s": (tokens + sum(x["answer"] for x in rows)) / seconds,
            "ttft_mean": statistics.mean(t), "ttft_p50": median(t), "ttft_p95": share_of(t, 0.95), "ttft_p99": share_of(t, 0.99),
            "hit_share": sum(x["cached"] for x in rows) / tokens, "rows": rows}


class Systems:
    """Systems whose engines are there."""

    def __init__(self, plan, options, clock, ram):
        self.plan, self.options, self.clock, self.ram, self.fleets, self.engines = plan, options, clock, ram, {}, {}

    async def begin(self, kind, out):
        fleet, n = self.fleets.setdefault(kind, Fleet(self.options, self.clock)), self.plan.a.engines
        async with self.told(kind, out):
            engines = await fleet.add(system(kind, self.options, self.ram, engines=n), [f"{kind}-{i}" for i in range(n)])
            for e in engines:
                await e.warm(min(self.plan.a.batch, self.plan.a.max_prompt))
            self.engines[kind] = engines

    @contextlib.asynccontextmanager
    async def told(self, kind, out):
        """A system that fails is told, and takes no more part."""
        try:
            yield
        except Exception as x:
            out["error"] = f"{type(x).__name__}: {x}"[:2000]
            self.clock.say(f"{kind}: {out['error']}")
            self.engines.pop(kind, None)
            for e in self.fleets[kind].engines.values():
                print(f"--- {e.log}\n{e.tail()}", flush=True)

    async def replay(self, kind, routing, number, out):
        async with self.told(kind, out):
            engines = self.engines[kind]
            for e in engines:
                await e.reset()
            x = out[routing] = await replay(self.plan, engines, routing, f"{number} {routing}")
            x["metrics"] = {e.name: (await e.ask("metrics"))["metrics"] for e in engines}      # since the engine's start
            self.clock.say(f"{kind:8} {routing:7} {x['requests']} requests in {x['seconds']:.1f} s, {x['tokens_per_s']:.0f} tokens/s, TTFT p50 "
                           f"{x['ttft_p50']:.3f} p95 {x['ttft_p95']:.3f} p99 {x['ttft_p99']:.3f} s, hits {x['hit_share']:.3f}, failed {len(x['failed'])}")

    async def end(self):
        for fleet in self.fleets.values():
            await fleet.end()


async def some_rounds(res, plan, options, clock):
    """All systems at a time, or with --apart one after the other."""
    a, first = plan.a, len(res["rounds"])
    ram = a.share * plan.distinct_tokens() * options.kv_bytes / GIB
    kinds = [*a.systems]
    kinds = kinds[first % len(kinds):] + kinds[:first % len(kinds)]
    for group in [[k] for k in kinds] if a.apart else [kinds]:
        s = Systems(plan, options, clock, ram)
        begun = {k: {} for k in group}
        try:
            await asyncio.gather(*(s.begin(k, begun[k]) for k in group))
            for number in range(first, first + a.rounds):
                if number == len(res["rounds"]):
                    res["rounds"].append({"ram_gib": ram, "systems": {}})
                now = res["rounds"][number]["systems"]
                now.update({k: dict(begun[k]) for k in group})
                for routing in ROUTINGS[::1 if number % 2 == 0 else -1]:
                    for k in group[number % len(group):] + group[:number % len(group)]:
                        if clock.left() < 30:
                            clock.say(f"{k}, {routing}: no time is left")
                        elif k in s.engines:
                            await s.replay(k, routing, number, now[k])
                        res.save()
        finally:
            await s.end()
    while res["rounds"] and not any(r in x for x in res["rounds"][-1]["systems"].values() for r in (*ROUTINGS, "error")):
        res["rounds"].pop()              # it had no time


# ---- what comes of it ----

def ratios(res):
    """(system, routing, figure) -> gpc's by that system's, of each round that has both."""
    out = {}
    for r in res["rounds"]:
        for kind, x in r["systems"].items():
            for routing in ROUTINGS:
                ours = r["systems"].get("gpc", {}).get(routing)
                if kind != "gpc" and ours and routing in x:
                    for f in FIGURES:
                        if x[routing][f]:
                            out.setdefault((kind, routing, f), []).append(ours[f] / x[routing][f])
    return out


def values(res, kind, routing, figure):
    return [r["systems"][kind][routing][figure] for r in res["rounds"] if routing in r["systems"].get(kind, {})]


def page(res, kinds):
    lines = [f"{len(res['rounds'])} rounds; {json.dumps(res['plan'])}", "", "| system | routing | " + " | ".join(n for n, _ in FIGURES.values()) +
             " | failed |", "|---" * (3 + len(FIGURES)) + "|"]
    for kind in kinds:
        for routing in ROUTINGS:
            v = {f: values(res, kind, routing, f) for f in FIGURES}
            if v["hit_share"]:
                bad = sum(len(x) for x in values(res, kind, routing, "failed"))
                lines.append(f"| {kind} | {routing} | " + " | ".join(f"{median(x):.3f} ({min(x):.3f} to {max(x):.3f})" for x in v.values()) + f" | {bad} |")
    lines += ["", "gpc by the other one, of one round: median, least and most", "", "| system | routing | " + " | ".join(n for n, _ in FIGURES.values()) +
              " |", "|---" * (2 + len(FIGURES)) + "|"]
    of = ratios(res)
    for kind in kinds:
        for routing in ROUTINGS:
            cells = [of.get((kind, routing, f)) for f in FIGURES]
            if any(cells):
                lines.append(f"| {kind} | {routing} | " + " | ".join(f"{median(c):.3f} ({min(c):.3f} to {max(c):.3f})" if c else "-" for c in cells) + " |")
    return "\n".join(lines) + "\n"


COLOURS = {"none": "#9a9a9a", "off": "#d08a3c", "lmcache": "#5b8fd0", "gpc": "#3c9a5f"}
WIDE, HIGH, LEFT = 300, 210, 46


def panel(res, kinds, figure, title, x0, y0):
    """Bars: medians of the rounds; lines: the least and the most."""
    out, top = [], max([v for k in kinds for r in ROUTINGS for v in values(res, k, r, figure)] or [1]) or 1
    out.append(f'<text x="{x0 + LEFT}" y="{y0 - 8}" font-weight="bold">{title}</text>')
    for share in (0, 0.5, 1):
        y = y0 + HIGH * (1 - share)
        out.append(f'<line x1="{x0 + LEFT}" y1="{y}" x2="{x0 + WIDE}" y2="{y}" stroke="#ddd"/>'
                   f'<text x="{x0 + LEFT - 4}" y="{y + 4}" text-anchor="end">{top * share:.3g}</text>')
    group = (WIDE - LEFT) / len(ROUTINGS)
    bar = group / (len(kinds) + 1)
    for g, routing in enumerate(ROUTINGS):
        for i, kind in enumerate(kinds):
            v = values(res, kind, routing, figure)
            if not v:
                continue
            x, h = x0 + LEFT + g * group + (i + 0.5) * bar, HIGH * median(v) / top
            out.append(f'<rect x="{x:.1f}" y="{y0 + HIGH - h:.1f}" width="{bar * 0.9:.1f}" height="{h:.1f}" fill="{COLOURS.get(kind, "#888")}"/>')
            low, high = (y0 + HIGH * (1 - w / top) for w in (min(v), max(v)))
            out.append(f'<line x1="{x + bar * 0.45:.1f}" y1="{low:.1f}" x2="{x + bar * 0.45:.1f}" y2="{high:.1f}" stroke="black"/>')
        out.append(f'<text x="{x0 + LEFT + (g + 0.5) * group:.1f}" y="{y0 + HIGH + 15}" text-anchor="middle">{routing}</text>')
    return out


def picture(res, kinds):
    shown = list(FIGURES.items())
    out = []
    for i, (figure, (title, better)) in enumerate(shown):
        out += panel(res, kinds, figure, title + (" (more is better)" if better > 0 else " (less is better)"), 10 + i % 3 * (WIDE + 20),
                     50 + i // 3 * (HIGH + 60))
    x, y = 10 + len(shown) % 3 * (WIDE + 20) + LEFT, 60 + len(shown) // 3 * (HIGH + 60)
    for i, kind in enumerate(kinds):
        out.append(f'<rect x="{x}" y="{y + 22 * i}" width="14" height="14" fill="{COLOURS.get(kind, "#888")}"/><text x="{x + 20}" y="{y + 22 * i + 12}">{kind}</text>')
    rounds, p = len(res["rounds"]), res["plan"]
    out.append(f'<text x="{x}" y="{y + 22 * len(kinds) + 20}">{rounds} rounds, {p["sessions"]} sessions, {p["turns"]} turns</text>')
    wide, high = 3 * (WIDE + 20) + 10, 2 * (HIGH + 60) + 30
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" font-family="sans-serif" font-size="11">'
            f'<rect width="{wide}" height="{high}" fill="white"/>' + "\n".join(out) + "</svg>\n")


def show(res, a):
    kinds = [k for k in KINDS if k in a.systems or any(k in r["systems"] for r in res["rounds"])]
    with open(os.path.join(a.out, "agentic.svg"), "w") as f:
        f.write(picture(res, kinds))
    text = page(res, kinds)
    with open(os.path.join(a.out, "agentic.md"), "w") as f:
        f.write(text)
    print(text, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("trace", nargs="?", metavar="TRACE")
    arguments(p)
    p.set_defaults(shape="3b", kv_gib=6, graphs=True)
    p.add_argument("--synthetic", type=int, default=0, help="so many sessions in place of TRACE")
    p.add_argument("--append", action="store_true", help="add a round to OUT/agentic.json")
    p.add_argument("--dry", action="store_true", help="say what would be replayed, and end")
    p.add_argument("--engines", dest="engines", type=int, default=2)
    p.add_argument("--systems", type=systems(*KINDS), default="none,off,lmcache,gpc")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--apart", action="store_true", help="start one system after the other")
    p.add_argument("--sessions", type=int, default=32, help="the first ones of the trace")
    p.add_argument("--turns", type=int, default=6, help="of a session, the first ones")
    p.add_argument("--trace-block", type=int, default=512, help="tokens of an id, as the trace has them")
    p.add_argument("--tokens", type=int, default=128, help="tokens of an id, as they are replayed")
    p.add_argument("--answer", type=int, default=64, help="tokens of an answer, at most")
    p.add_argument("--max-prompt", type=int, default=32768, help="a session ends before its prompt is longer")
    p.add_argument("--concurrency", type=int, default=16, help="sessions under way")
    p.add_argument("--share", type=float, default=0.5, help="RAM, as a share of all different blocks")
    p.add_argument("--seed", type=int, default=11)
    a = p.parse_args()
    if bool(a.trace) == bool(a.synthetic):
        p.error("TRACE: a file is wanted, or --synthetic N")
    rows = synthetic(a.synthetic, a.seed) if a.synthetic else read(a.trace, a.trace_block)
    plan, clock = Plan(rows, a), Clock(a.deadline)
    if not plan.sessions:
        p.error(f"TRACE: no session has a first turn of at most --max-prompt {a.max_prompt} tokens")
    clock.say(json.dumps(plan.said()))
    os.makedirs(a.out, exist_ok=True)
    path = os.path.join(a.out, "agentic.json")
    res = Results(path, plan=plan.said(), arguments=vars(a), rounds=[])
    if a.append and os.path.exists(path):
        with open(path) as f:
            old = json.load(f)
        if old["plan"]["digest"] != plan.digest:
            raise SystemExit(f"{path}: --append: its plan is {old['plan']['digest'][:16]}, and this one {plan.digest[:16]}")
        res["rounds"] = old["rounds"]
    options = Options(a, tempfile.mkdtemp(prefix="agentic-"))
    clock.say(f"RAM: {a.share * plan.distinct_tokens() * options.kv_bytes / GIB:.2f} GiB; KV cache of each engine: {a.kv_gib:g} GiB; all blocks: "
              f"{plan.distinct_tokens() * options.kv_bytes / GIB:.2f} GiB")
    if a.dry:
        return 0

    def over(*_):
        end_others()
        os._exit(3)
    signal.signal(signal.SIGTERM, over)
    try:
        asyncio.run(some_rounds(res, plan, options, clock))
    finally:
        end_others()
        Daemon.made.clear()
        res.save()
        show(res, a)
    return int(any("error" in x or any(x[r]["failed"] for r in ROUTINGS if r in x)
                   for now in res["rounds"][-a.rounds:] for x in now["systems"].values()))


if __name__ == "__main__":
    sys.exit(main())
