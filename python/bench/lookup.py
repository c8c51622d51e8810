#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lookup.py - what a scheduler's prefix cache costs by gpc, beside one in plain Python.

The plain pool has what an engine's own needs: a dict from digest to block, a reference count for each block, and a
list of the free ones, least recent first, linked both ways.  Its work is that of the same steps:

    lookup   the longest prefix of 100 digests, referenced; and its release
    store    100 new blocks are taken, the least recent ones evicted, and published

Prints the median of microseconds a step.  PYTHONPATH=build/python python3 python/bench/lookup.py [ROUNDS [vllm]]
With vllm, the other pool is vLLM's own, which has to be installed.
"""

import os
import statistics
import sys
import time

import gpc

BLOCKS, STEP = 4096, 100
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 300


class Block:
    __slots__ = ("number", "digest", "refs", "before", "after")

    def __init__(self, number):
        self.number, self.digest, self.refs, self.before, self.after = number, None, 0, None, None


class Plain:
    """A block pool in Python."""

    def __init__(self, n):
        self.cached = {}
        self.head, self.tail = Block(-1), Block(-1)
        self.head.after, self.tail.before = self.tail, self.head
        self.blocks = [Block(i) for i in range(n)]
        for b in self.blocks:
            self.append(b)

    def append(self, b):
        last = self.tail.before
        last.after, b.before, b.after, self.tail.before = b, last, self.tail, b

    def remove(self, b):
        b.before.after, b.after.before = b.after, b.before
        b.before = b.after = None

    def prefix(self, digests):
        hit = []
        for d in digests:
            b = self.cached.get(d)
            if b is None:
                break
            hit.append(b)
        for b in hit:
            if b.refs == 0:
                self.remove(b)
            b.refs += 1
        return hit

    def release(self, blocks):
        for b in reversed(blocks):
            b.refs -= 1
            if b.refs == 0:
                self.append(b)

    def reserve(self, n):
        got = []
        for _ in range(n):
            b = self.head.after
            self.remove(b)
            if b.digest is not None:
                del self.cached[b.digest]
                b.digest = None
            b.refs = 1
            got.append(b)
        return got

    def settle(self):
        pass

    def publish(self, digests, blocks):
        for d, b in zip(digests, blocks):
            b.digest = d
            self.cached[d] = b


class Request:
    def __init__(self, digests):
        self.block_hashes = digests


class Vllm:
    """vLLM's block pool, with the calls that its manager makes for a request."""

    def __init__(self, n):
        from vllm.v1.core.block_pool import BlockPool
        self.pool = BlockPool(n, True, 16)
        self.reserve, self.settle = self.pool.get_new_blocks, lambda: None

    def prefix(self, digests):
        hit = []
        for d in digests:
            b = self.pool.get_cached_block(d, [0])
            if b is None:
                break
            hit.append(b[0])
        self.pool.touch(hit)
        return hit

    def release(self, blocks):
        self.pool.free_blocks(reversed(blocks))

    def publish(self, digests, blocks):
        self.pool.cache_full_blocks(Request(digests), blocks, 0, len(blocks), 16, 0)


class Gpc:
    """The same steps by gpc.  A publish is submitted, and not waited for; the writer has a thread of its own."""

    def __init__(self, c, timeout):
        self.c, self.timeout = c, timeout
        self.prefix, self.release, self.settle = c.prefix, c.release, c.ticket_wait

    def reserve(self, n):
        return self.c.reserve(0, n)

    def publish(self, digests, blocks):
        keys = self.c.key_import(digests)
        self.c.publish(bytes(16) + keys[:-16], keys, blocks, timeout=self.timeout)


def chain(seed):
    return [seed.to_bytes(8, "little") + i.to_bytes(24, "little") for i in range(STEP)]


def measure(pool):
    fill = BLOCKS // STEP - 4      # the stock and what is kept free have their share
    chains = [chain(i) for i in range(fill)]
    for digests in chains:
        blocks = pool.reserve(STEP)
        pool.publish(digests, blocks)
        pool.release(blocks)
    pool.settle()
    lookups, stores = [], []
    for i in range(ROUNDS):
        digests = chains[i % fill]
        t0 = time.perf_counter_ns()
        hit = pool.prefix(digests)
        t1 = time.perf_counter_ns()
        pool.release(hit)
        t2 = time.perf_counter_ns()
        assert len(hit) == STEP
        lookups.append((t1 - t0, t2 - t1))
    for i in range(ROUNDS):
        digests = chain(1000 + i)
        t0 = time.perf_counter_ns()
        blocks = pool.reserve(STEP)
        pool.publish(digests, blocks)
        pool.release(blocks)
        stores.append(time.perf_counter_ns() - t0)
    return [statistics.median(x) / 1000 for x in (*zip(*lookups), stores)]


def measure_gpc(timeout):
    name = f"bench-{os.getpid()}"
    try:
        with gpc.create(name, vram_blocks=BLOCKS, serve=True, stock=2 * STEP) as c:
            return measure(Gpc(c, timeout))
    finally:
        gpc.unlink(name)


def main():
    other = Vllm if "vllm" in sys.argv[2:] else Plain
    plain, ours, waits = measure(other(BLOCKS)), measure_gpc(0), measure_gpc(None)[2]
    print(f"microseconds, {STEP} blocks of {BLOCKS}, median of {ROUNDS}")
    print(f"{'':<18}{other.__name__.lower():>10}{'gpc':>10}{'ratio':>8}")
    for what, p, g in zip(("lookup and hold", "release", "store and evict"), plain, ours):
        print(f"{what:<18}{p:>10.1f}{g:>10.1f}{g / p:>8.2f}")
    print(f"{'... and wait':<18}{'':>10}{waits:>10.1f}{waits / plain[2]:>8.2f}")


main()
