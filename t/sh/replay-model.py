#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""replay-model.py COMMAND ... - what gpc-replay computes of a trace, computed by other means.

  rows TRACE [TOKENS [CONCURRENCY]]   the trace as rows of whole prompts, in the order of the requests
  hits TRACE WORKERS HOW CHANGE BLOCKS...   hits of the caches, each of BLOCKS / WORKERS blocks
  sessions N SEED                     a trace of N sessions of turns

HOW: one, none, session, hash.  CHANGE: none, dies, added, removed.  Caches are dictionaries in the order of use,
which lose their first; nothing here knows of distances.
"""
import json
import random
import sys
from collections import OrderedDict
from heapq import heappop, heappush

MASK = (1 << 64) - 1


def read(path):
    with open(path) as f:
        return [json.loads(line) for line in f if line.strip()]


def times(session, begin):
    """When each of its turns is sent, and when it has ended: microseconds."""
    at, sent = begin, []
    for row in session:
        at = max(at, round(row.get("timestamp", 0) * 1000)) + round(row.get("delay", 0) * 1000)
        sent.append(at)
        at += row["input_length"] * 1000000 // 20000 + row.get("output_length", 0) * 1000000 // 60
    return sent, at


def turns(rows, tokens, concurrency):
    sessions = OrderedDict()
    for number, row in enumerate(rows):
        sessions.setdefault(row["session_id"], []).append((number, row))
    starts = [s[0][1].get("timestamp", 0) for s in sessions.values()]
    if concurrency is None and len(set(starts)) == 1:
        concurrency = 64
    ends, requests, fresh = [], [], 0
    for _, name in sorted((start, n) for n, start in enumerate(starts)):
        session = list(sessions.values())[name]
        begin = heappop(ends) if concurrency and len(ends) == concurrency else 0
        sent, end = times([row for _, row in session], begin)
        heappush(ends, end)
        prompt, answer = (), 0
        for (number, row), at in zip(session, sent):
            if row.get("is_restart"):
                prompt, answer = (), 0
            for _ in range(answer):
                fresh += 1
                prompt += (("answer", fresh),)
            prompt += tuple(row["hash_ids"])
            answer = row.get("output_length", 0) // tokens
            requests.append((at, number, row["session_id"], prompt))
    seen, ret = {}, []
    for _, _, session, prompt in sorted(requests, key=lambda r: r[:2]):
        ids, before = [], -1
        for block in prompt:            # an id stands for all that is before it, too
            before = seen.setdefault((before, block), len(seen))
            ids.append(before)
        ret.append({"session": session, "hash_ids": ids})
    return ret


def requests(path, tokens=512, concurrency=None):
    rows = read(path)
    return turns(rows, tokens, concurrency) if "session_id" in rows[0] else rows


# ---- who gets what ----

def mixed(x):
    x = ((x ^ (x >> 33)) * 0xFF51AFD7ED558CCD) & MASK
    x = ((x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53) & MASK
    return x ^ (x >> 33)


def fnv(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def deal(rows, workers, how, change):
    names = [str(r["session"]) for r in rows]
    last = {name: i for i, name in enumerate(names)}
    there, pins, under_way, ever = list(range(workers)), {}, {}, {}
    to = []
    for i, name in enumerate(names):
        if i == len(rows) // 2 and change == "added":
            there.append(workers)
        if i == len(rows) // 2 and change == "removed":
            there.remove(0)
            pins = {s: w for s, w in pins.items() if w}
        if how == "none":
            worker = i % workers
        elif how == "hash":
            worker = max(there, key=lambda w: mixed(fnv(name) ^ mixed(w + 1)))
        else:
            if name not in pins:
                pins[name] = min(there, key=lambda w: (len(under_way.get(w, ())), ever.get(w, 0), w))
                under_way.setdefault(pins[name], set()).add(name)
                ever[pins[name]] = ever.get(pins[name], 0) + 1
            worker = pins[name]
            if last[name] == i:
                under_way[worker].discard(name)
        to.append(worker)
    return to


def lru(cache, ids, blocks):
    hits = 0
    while hits < len(ids) and ids[hits] in cache:
        hits += 1
    for i in reversed(ids):
        cache[i] = None
        cache.move_to_end(i)
    while len(cache) > blocks:
        cache.popitem(last=False)
    return hits


def hits(rows, workers, how, change, blocks):
    caches, total = {}, 0
    to = [0] * len(rows) if how == "one" else deal(rows, workers, how, change)
    for i, (row, worker) in enumerate(zip(rows, to)):
        if i == len(rows) // 2 and change == "dies":
            caches.pop(0, None)
        total += lru(caches.setdefault(worker, OrderedDict()), row["hash_ids"],
                     blocks if how == "one" else blocks // workers)
    return total


# ---- a trace ----

def sessions(n, seed):
    rng, fresh = random.Random(seed), 1000
    for s in range(n):
        for t in range(rng.randint(1, 9)):
            new = rng.randint(0, 6)
            ids = list(range(fresh, fresh + new))
            fresh += new
            row = {"session_id": "s%d" % (s ^ 5), "input_length": 0, "output_length": rng.randint(0, 3000)}
            if t == 0:
                row["timestamp"] = 0.0
                ids = [0, 1, 2, 100 + rng.randint(0, 3)] + ids
            else:
                row["delay"] = round(rng.random() * 30000, 1)
            if t and rng.random() < 0.1:
                row["is_restart"] = True
            row["hash_ids"] = ids
            row["input_length"] = max(0, 512 * len(ids) - rng.randint(0, 511))
            print(json.dumps(row))


def main(command, *a):
    if command == "rows":
        for row in requests(a[0], *(int(x) for x in a[1:])):
            print(json.dumps(row))
    elif command == "hits":
        rows = requests(a[0])
        print(*(hits(rows, int(a[1]), a[2], a[3], int(b)) for b in a[4:]))
    else:
        sessions(int(a[0]), int(a[1]))


main(*sys.argv[1:])
