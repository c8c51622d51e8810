#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""registering.py - what a step of an engine loses while slots are registered with its GPU, by gpc.vllm's own thread.

A step is 32 layers of kernels, launched one by one, and takes some 25 ms of the GPU.  It is repeated while the memory of a
tmpfs is registered in pieces, with rests that are a multiple of the time of a piece, and with those of an engine that launches
nothing.  Told are, in milliseconds, a GiB, a piece, and the step meanwhile and alone; and the loss of steps for each piece.

python3 python/bench/registering.py [GIB [huge]]         needs a GPU and vLLM; PYTHONPATH=build/python
"""

import ctypes
import mmap
import statistics
import sys
import tempfile
import time

import torch
from gpc.vllm import cuda, register

GIB = int(sys.argv[1]) if len(sys.argv) > 1 else 4
COLLAPSE = 25
MOST = 3                         # seconds for one way
WAYS = ((64, 9), (64, 15), (64, 60), (16, 9), (16, 60), (256, 60), (64, 0))


class Mapped:
    def __init__(self, huge):
        self.file = tempfile.TemporaryFile(dir="/dev/shm")
        self.file.truncate((GIB << 30) + (2 << 20))
        self.map = mmap.mmap(self.file.fileno(), (GIB << 30) + (2 << 20))
        first = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.address = -(-first // (2 << 20)) * (2 << 20)
        ctypes.memset(self.address, 1, GIB << 30)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if huge and libc.madvise(self.address, GIB << 30, COLLAPSE):
            print(f"# no huge pages: errno {ctypes.get_errno()}")


class Timed(cuda.Driver):
    """The library's, with the times of its calls."""

    def __init__(self, rt):
        super().__init__(0, rt, lambda err: str(err))
        self.took = []

    def register(self, address, nbytes):
        since = time.perf_counter()
        try:
            return super().register(address, nbytes)
        finally:
            self.took.append(1e3 * (time.perf_counter() - since))


weights = [torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(4)]
tokens = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)


def step():
    """Milliseconds."""
    since, x = time.perf_counter(), tokens
    for layer in range(32):
        for w in weights:
            x = x @ w
        for _ in range(6):
            x = torch.nn.functional.silu(x)
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - since)


def one(rt, memory, piece, rest):
    register.PIECE, register.REST = piece << 20, rest
    steps, driver = register.Steps(), Timed(rt)
    r = register.Registration(driver, memory.address, GIB << 30 >> 21, 2 << 20, None, steps)
    took, since = [], time.perf_counter()
    while r.running() and time.perf_counter() < since + MOST:
        steps.tell(bool(rest))
        took.append(step())
    r.close()
    alone = [step() for _ in range(20)]
    lost = (sum(took) - len(took) * statistics.median(alone)) / max(1, len(driver.took))
    done = sum(driver.took) / (len(driver.took) * piece / 1024)
    print(f"pieces of {piece:4} MiB, rest {rest:2}: {done:6.1f} a GiB, {statistics.median(driver.took):6.2f} a piece; a step "
          f"{statistics.mean(took):7.2f} (median {statistics.median(took):.2f}, most {max(took):.2f}), alone {statistics.median(alone):.2f}: "
          f"{statistics.mean(took) / statistics.median(alone):.3f}; {lost:.2f} lost for a piece; {len(driver.took)} pieces", flush=True)


def main():
    memory, rt = Mapped("huge" in sys.argv), cuda.runtime()
    for _ in range(10):
        step()
    for piece, rest in WAYS:
        one(rt, memory, piece, rest)


main()
