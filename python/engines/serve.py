# SPDX-License-Identifier: Apache-2.0
"""serve.py FOLDER - two `vllm serve` with the line of gpc.vllm's README, as an operator starts them.  TAP.

Both serve a model of random weights, in float32, so that tokens and logprobs can be compared whatever was computed
together.  The answers that are right are those of requests whose salt nobody else has: all of them is computed.  Clients
ask, go away in the middle, and come in a crowd; then the engines' metrics pages and gpc-inspect stat are compared.
"""

import http.client
import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import make_model
from engine import prompt
from fleet import HERE, Cache, EngineError, Processes, end_all, wait

import tap
from tap import is_, name, ok

TOKENS = 128                     # of a block of vLLM on CPUs, where nothing else is asked for
LONG, BRANCH = [[1, 2005]], [[1, 1000], [2, 333]]
TOPICS, CROWD, AT_ONCE = 10, 200, 12
NEAR = 2e-3                      # of logprobs: sums of another order


def line():
    """README's."""
    with open(os.path.join(HERE, "..", "gpc", "vllm", "README.md")) as f:
        (found,) = re.findall(r"^vllm serve MODEL --kv-transfer-config .*", f.read(), re.M)
    return shlex.split(found)


class Server(Processes):
    def __init__(self, called, folder, model, core, port):
        words = line()
        conf = json.loads(words[-1])
        conf["kv_connector_extra_config"] |= {"gpc_bytes": 256 << 20, "gpc_name": name, "gpc_pending_ms": 60000}
        self.port, self.since = port, time.monotonic()
        self.start(called, folder, [os.path.join(os.path.dirname(sys.executable), "vllm"), "serve", model, *words[3:-1],
                                    json.dumps(conf), "--port", str(port), "--dtype", "float32", "--max-model-len", "8192",
                                    "--max-num-seqs", "8", "--enforce-eager", "--enable-prompt-tokens-details",
                                    "--served-model-name", "m"],
                   (core,), {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_SERVER_DEV_MODE": "1"})

    def connect(self, timeout=300):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, method, path, body=None):
        c = self.connect()
        try:
            c.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            answer = c.getresponse()
            text = answer.read().decode()
            if answer.status != 200:
                raise EngineError(f"{self.name}: {path}: {answer.status} {text[:200]}")
            return text
        finally:
            c.close()

    def is_up(self):
        if self.process.poll() is not None:
            raise EngineError(f"{self.name} has ended; see {self.log}")
        try:
            return self.call("GET", "/health") is not None
        except OSError:
            return False

    def ready(self):
        wait(self.is_up, f"{self.name} answers", 600)
        print(f"# {self.name} is ready after {time.monotonic() - self.since:.0f} s", flush=True)
        return self

    def body(self, parts, n, salt, **more):
        return {"model": "m", "prompt": prompt(parts), "max_tokens": n, "temperature": 0, "logprobs": 3, "ignore_eos": True,
                "return_token_ids": True, **({"cache_salt": salt} if salt else {}), **more}

    def ask(self, parts, n=8, salt=None):
        j = json.loads(self.call("POST", "/v1/completions", self.body(parts, n, salt)))
        c, details = j["choices"][0], j["usage"].get("prompt_tokens_details") or {}
        return {"ids": c["token_ids"], "logprobs": c["logprobs"]["token_logprobs"], "cached": details.get("cached_tokens") or 0}

    def go_away(self, parts, n, events):
        """A client that reads so many events of a stream of n tokens, or all where a slow server puts several tokens into one,
    and closes its socket."""
        c = self.connect()
        try:
            c.request("POST", "/v1/completions", json.dumps(self.body(parts, n, None, stream=True)),
                      {"Content-Type": "application/json"})
            if not events:               # while it is computed
                time.sleep(0.05)
                return 0
            answer, seen = c.getresponse(), 0
            while seen < events and (text := answer.readline()):
                seen += text.startswith(b"data: {")
            return seen
        finally:
            c.close()

    def forget(self):
        wait(lambda: self.call("POST", "/reset_prefix_cache") is not None, "an engine empties its own cache")

    def metrics(self):
        """By name, summed over labels."""
        out = {}
        for text in self.call("GET", "/metrics").splitlines():
            m = re.match(r"([\w:]+)(?:\{[^}]*\})? ([-+.\deEinfa]+)$", text)
            if m:
                out[m[1]] = out.get(m[1], 0) + float(m[2])
        return out

    def quit(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            pass
        self.kill()


def near(a, b):
    return a["ids"] == b["ids"] and max(abs(x - y) for x, y in zip(a["logprobs"], b["logprobs"])) < NEAR


def chunks(n):
    return n // TOKENS * TOKENS


def stat(*keys):
    """As an operator reads it."""
    tool = os.path.join(os.environ["GPC_T_BUILD"], "tools", "gpc-inspect")
    got = json.loads(subprocess.run([tool, "stat", "--json", name], check=True, capture_output=True, text=True).stdout)
    return [got["stats"][k] for k in keys]


def hits(a, b, cache):
    """One computes, another one loads."""
    right = {str(p): a.ask(p, salt="nobody's") for p in (LONG, BRANCH)}
    is_([a.ask(LONG)["cached"], right[str(LONG)]["cached"]], [0, 0], "the first engine computes")
    settled(cache, "its chunks are stored")
    for what, hit in (("another engine", chunks(2005)), ("its own prefix cache", chunks(2005)), ("after a reset", chunks(2005))):
        if what == "after a reset":
            b.forget()
        got = b.ask(LONG)
        is_(got["cached"], hit, f"{what}: {hit} tokens are from the cache")
        ok(near(got, right[str(LONG)]), f"{what}: the answer of one that computes all")
    b.forget()
    got = b.ask(BRANCH)
    ok(got["cached"] == chunks(1000) and near(got, right[str(BRANCH)]), "a prompt with half of that prefix")
    got = a.ask(LONG, salt="s1"), b.ask(LONG, salt="s2")
    is_([g["cached"] for g in got], [0, 0], "salts do not mix")
    settled(cache, "stored with its salt")
    got = b.ask(LONG, salt="s1")
    ok(got["cached"] == chunks(2005) and near(got, right[str(LONG)]), "the same salt is found by the other engine")


def idle(e):
    m = e.metrics()
    return m["vllm:num_requests_running"] == 0 and m["vllm:num_requests_waiting"] == 0


def settled(cache, what):
    """What was asked of the writer is done: nothing is reserved, and it stays so."""
    def quiet():
        before = cache.c.stats().live
        time.sleep(0.3)
        return cache.c.stats().live == before
    wait(quiet, what)


def disconnects(a, b, cache):
    """Clients that go away: before the first token, in the middle, and one token before the end."""
    r = random.Random(5)
    asked = [((a, b)[i % 2], [[20 + i % 4, 700], [40 + i, 300]], r.choice((0, 0, 1, 3, 15))) for i in range(24)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        gone = [pool.submit(e.go_away, parts, 40, events) for e, parts, events in asked]
        stay = [pool.submit(e.ask, parts, 8) for e, parts, _ in asked[::4]]
        seen = [g.result() for g in gone]
        got = [s.result() for s in stay]
    ok(all(0 < n <= events or n == events for n, (_, _, events) in zip(seen, asked)),
       f"{len(asked)} clients went away, after so many events: " + " ".join(map(str, seen)))
    right = [a.ask(parts, 8, salt=f"away{i}") for i, (_, parts, _) in enumerate(asked[::4])]
    ok(all(near(g, w) for g, w in zip(got, right)), f"{len(got)} that stayed among them have right answers")
    for e in (a, b):
        wait(lambda: idle(e), "nothing of the others is left running")
        e.forget()
    got = [(a, b)[(i + 1) % 2].ask(parts, 8) for i, (_, parts, _) in enumerate(asked[::4])]
    ok(all(near(g, w) for g, w in zip(got, right)), "what they have left in the cache is right")
    ok(sum(g["cached"] for g in got) > 0, "and is found: " + " ".join(str(g["cached"]) for g in got))
    settled(cache, "after the clients")
    is_(held(cache), 0, "nothing that they had is referenced")
    is_([e.block for e in cache.bad()], [], "all live slots have the bytes of their keys")


def held(cache):
    """References; what engines have in hand, without a request, is reserved."""
    return cache.c.stats().refs


def load(a, b, cache):
    """A crowd whose prompts have prefixes in common: gpc-inspect stat and the engines' own counters agree."""
    r = random.Random(7)
    asked = [((a, b)[r.randrange(2)], [[60 + r.randrange(TOPICS), 256 + 128 * r.randrange(8)], [100 + i, r.randrange(20, 300)]])
             for i in range(CROWD)]
    names = "vllm:external_prefix_cache_queries_total", "vllm:external_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"
    for e in (a, b):
        e.forget()
    before, was = [e.metrics() for e in (a, b)], stat("lookups", "hit_ram", "miss")
    since = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        got = list(pool.map(lambda x: x[0].ask(x[1], 4), asked))
    seconds = time.monotonic() - since
    right = {i: a.ask(asked[i][1], 4, salt=f"crowd{i}") for i in range(0, CROWD, 10)}
    asks_more = sum(chunks(sum(n for _, n in asked[i][1])) for i in right)
    ok(all(near(got[i], w) for i, w in right.items()), f"{len(right)} answers of {CROWD}, each tenth, are right")
    settled(cache, "after the crowd")
    after, now = [e.metrics() for e in (a, b)], stat("lookups", "hit_ram", "miss")
    queries, hit, own = (sum(x[n] - y[n] for x, y in zip(after, before)) for n in names)
    looked, found, missed = (TOKENS * (x - y) for x, y in zip(now, was))
    print(f"# {CROWD} requests of {sum(sum(n for _, n in p) for _, p in asked)} tokens in {seconds:.0f} s; {own:.0f} tokens from "
          f"the engines' own prefix caches\n"
          f"# external prefix cache of vLLM:  {queries:.0f} tokens asked for, {hit:.0f} hits ({hit / queries:.1%})\n"
          f"# gpc-inspect stat, in tokens:    {looked:.0f} looked up, {found:.0f} hits ({found / looked:.1%}), {missed:.0f} "
          f"misses; {asks_more} of the lookups for the answers to compare with", flush=True)
    ok(hit > 0 and abs(found - hit) <= 0.01 * hit, "hits: gpc-inspect stat and vLLM agree within 1 %")
    whole = queries - looked     # vLLM asks for all tokens, gpc looks up whole chunks
    ok(0 <= whole <= TOKENS * (CROWD + len(right)), "queries: they differ by the ends of prompts that are no whole chunk")
    ours = sum(x["vllm:kv_offload_gpc_hits_total"] - y["vllm:kv_offload_gpc_hits_total"] for x, y in zip(after, before))
    is_(TOKENS * ours, found, "the engines' metrics of gpc say the same as gpc-inspect stat")


def metrics(a, b):
    for e in (a, b):
        m = {k[len("vllm:kv_offload_gpc_"):]: v for k, v in e.metrics().items() if k.startswith("vllm:kv_offload_gpc_")}
        print(f"# {e.name}: " + ", ".join(f"{k} {v:.0f}" for k, v in sorted(m.items()) if not k.endswith("_created")))
        ok(m.get("writer") == 1 and m.get("live", 0) > 0 and m.get("stored_total", 0) > 0,
           f"{e.name}: its metrics page shows a writer, what is live and what it has stored")


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = sys.argv[1]
    model = os.path.join(folder, "model-words")
    if not os.path.exists(os.path.join(model, "tokenizer.json")):
        make_model.make(model)
        make_model.words(model)
    port = int(os.environ.get("GPC_ENGINES_PORT", "18431"))
    try:
        a, b = (Server(f"serve-{n}", folder, model, i, port + i) for i, n in enumerate("ab"))
        a.ready(), b.ready()
        cache = Cache(name)
        hits(a, b, cache)
        disconnects(a, b, cache)
        load(a, b, cache)
        metrics(a, b)
        is_(cache.c.check(), 0, "no invariant is broken")
        a.quit(), b.quit()
        is_([e.block for e in cache.bad()], [], "when they have ended, all live slots have the bytes of their keys")
        cache.close()
    except Exception:
        print("# " + traceback.format_exc().replace("\n", "\n# "))
        ok(False, "it got to its end")
    finally:
        end_all(name)
    tap.done()


main()
