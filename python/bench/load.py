#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""load.py - what checksums cost the worker of gpc.vllm: stores and loads with them and without, in turns, KV caches in RAM.

A job has 64 blocks of 32 layers with pages of 32 KiB, as chunks of one block and of four; two threads copy.  Told are medians
of GB/s, and of milliseconds what sealing and asking alone take.

PYTHONPATH=build/python:python/tests python3 python/bench/load.py [ROUNDS]
"""

import os
import statistics
import sys
import time

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
from gpc.vllm import GPCOffloadingSpec  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
LAYERS, PAGE, BLOCKS = 32, 32768, 64
NAME = os.environ.get("GPC_T_CACHE", f"load-{os.getpid()}")


class Load:
    def __init__(self, per_chunk):
        extra = {"gpc_name": f"{NAME}-{per_chunk}", "gpc_weights": "w", "gpc_threads": 2, "gpc_stock": 0, "gpc_free_target": -1,
                 "gpc_bytes": (64 + BLOCKS // per_chunk) * LAYERS * PAGE * per_chunk}
        spec = GPCOffloadingSpec(fake.config(extra, blocks_per_chunk=per_chunk, block_bytes=LAYERS * PAGE))
        self.m, kv = spec.get_manager(), [fake.Tensor(BLOCKS, PAGE) for _ in range(LAYERS)]
        for i, t in enumerate(kv):
            t.bytes[:] = os.urandom(PAGE) * BLOCKS
        self.worker, self.job = spec.get_worker(fake.caches(kv)), 0
        ctx, keys = fake.prompt("bench", BLOCKS // per_chunk, tokens=16 * per_chunk)
        self.slots, self.blocks = fake.offer(self.m, keys, ctx).store_spec, fake.blocks(list(range(BLOCKS)))

    def run(self, store, checksum):
        self.worker.image.checksum = checksum
        self.job += 1
        since = time.perf_counter()
        if store:
            self.worker.submit_store(self.job, self.blocks, self.slots)
        else:
            self.worker.submit_load(self.job, self.slots, self.blocks)
        self.worker.wait({self.job})
        took = time.perf_counter() - since
        (r,) = self.worker.get_finished()
        if not r.success or r.transfer_size != LAYERS * PAGE * BLOCKS:
            sys.exit("load.py: a job has failed")
        return took

    def seals(self):
        """Of a job, by one thread."""
        (b,), n = self.worker.beside.values(), len(self.slots.block_ids)
        blocks, sums = b.blocks_of(self.slots.block_ids), bytearray(24 * n)
        since = time.perf_counter()
        b.c.sealed(blocks, self.slots.keys, out=sums)
        b.c.seal(blocks, self.slots.keys, sums)
        return time.perf_counter() - since

    def close(self):
        self.worker.shutdown()
        self.m.shutdown()
        gpc.unlink(self.m.where.name)


def main():
    total = LAYERS * PAGE * BLOCKS / 1e9
    for per_chunk in (1, 4):
        load = Load(per_chunk)
        took = {(store, on): [] for store in (True, False) for on in (True, False)}
        for i in range(ROUNDS + 1):
            for on in (True, False):
                for store in (True, False):
                    seconds = load.run(store, on)
                    if i:
                        took[store, on].append(seconds)
        seals = statistics.median(load.seals() for _ in range(ROUNDS))
        for store in (True, False):
            on, off = (total / statistics.median(took[store, c]) for c in (True, False))
            print(f"chunks of {per_chunk}, {'store' if store else 'load'}: {on:.2f} GB/s with checksums, {off:.2f} without, {on / off:.2f}")
        print(f"chunks of {per_chunk}: {len(load.slots.block_ids)} seals asked for and made in {1e3 * seals:.3f} ms")
        load.close()


main()
