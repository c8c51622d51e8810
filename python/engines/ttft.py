# SPDX-License-Identifier: Apache-2.0
"""ttft.py FOLDER [ROUNDS] - time to the first token with and without what another engine has computed.

Two engines share a cache, a third one is without gpc.  Each has one core, and one at a time is asked, so the rows of a
round compare.  Prompts have 4000 tokens; the model has 8 layers of 1024.
"""

import os
import statistics
import sys

import make_model
from fleet import Engine, end_all, same, wait

TOKENS = 4000
ROWS = ("without gpc: computed", "gpc, nobody has it: computed and stored", "another engine, its first use: from RAM",
        "that engine again: its own prefix hit", "that engine after a reset: from RAM")


def once(e, prompt, times, wanted):
    got = e.generate(prompt, n=1)
    if (got["cached"] > 0) != wanted:
        raise SystemExit(f"{e.name}: {got['cached']} tokens were cached")
    times.append(got["seconds"])
    return got


def a_round(i, plain, a, b, times):
    prompt = [100 + i, TOKENS]
    first = once(plain, prompt, times[0], False)
    answers = [once(a, prompt, times[1], False), once(b, prompt, times[2], True), once(b, prompt, times[3], True)]
    wait(lambda: b.ask("reset")["reset"], "an engine empties its own cache")
    answers.append(once(b, prompt, times[4], True))
    if not all(same(first, x) for x in answers):
        raise SystemExit(f"the answers of round {i} differ")


def main():
    folder, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    name = os.environ.get("GPC_T_CACHE", f"ttft-{os.getpid()}") + "-s"
    model = os.path.join(folder, "model-1024")
    if not os.path.exists(os.path.join(model, "config.json")):
        make_model.make(model, 1024, 8, 3072)
    extra = {"cpu_bytes_to_use": 1 << 30, "gpc_name": name, "gpc_pending_ms": 60000}
    times = [[] for _ in ROWS]
    try:
        engines = [Engine(called, folder, model, (core,), more) for called, core, more in (
            ("ttft-plain", 0, None), ("ttft-a", 0, extra), ("ttft-b", 1, extra))]
        for e in engines:
            e.ready()
        for e in engines:                # the first request of an engine is slower
            e.generate([10 + len(e.name), 64], n=1)
        for i in range(rounds):
            a_round(i, *engines, times)
    finally:
        end_all(name)
    own = statistics.median(times[3])
    print(f"# median and range of {rounds} rounds, ms; x: times that of the own prefix hit")
    for row, t in zip(ROWS, times):
        print(f"# {row:42} {1e3 * statistics.median(t):8.1f}  {1e3 * min(t):8.1f} to {1e3 * max(t):8.1f}"
              f"  {statistics.median(t) / own:7.1f} x")


main()
