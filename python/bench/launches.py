#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""launches.py - the time of a launch of a small kernel while another thread gives copies to the same GPU.

The copies are those of loads of gpc.vllm: 2 MiB, in rows of 64 KiB, by one stream.  Told are launches beside none, beside
fewer than a driver takes of a stream, and beside more; the latter given at once, and so many at a time that two groups are
under way.

python3 python/bench/launches.py         needs a GPU and PyTorch; PYTHONPATH=build/python
"""

import ctypes
import sys
import threading
import time

import torch
from gpc.vllm import cuda

ROW, ROWS, BLOCKS = 65536, 32, 1024
WAYS = ((0, 0), (500, 0), (900, 0), (3000, 0), (3000, 400), (3000, 100), (3000, 0), (3000, 400))


class Copies:
    def __init__(self):
        self.rt, self.stream = cuda.runtime(), torch.cuda.Stream()
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.rt.cudaMemcpy2DAsync.argtypes = [pointer, size, pointer, size, size, size, ctypes.c_int, pointer]
        self.host = torch.empty(ROW * ROWS * BLOCKS, dtype=torch.uint8, pin_memory=True)
        self.device = torch.empty(ROW * ROWS * BLOCKS, dtype=torch.uint8, device="cuda")

    def give(self, n, group):
        to, of, ends = self.device.data_ptr(), self.host.data_ptr(), []
        for i in range(n):
            b = i % BLOCKS
            if self.rt.cudaMemcpy2DAsync(to + b * ROW, BLOCKS * ROW, of + b * ROW * ROWS, ROW, ROW, ROWS, 1, self.stream.cuda_stream):
                sys.exit("launches.py: a copy failed")
            if group and i % group == group - 1:
                ends.append(torch.cuda.Event(blocking=True))
                ends[-1].record(self.stream)
                if len(ends) > 1:
                    ends[-2].synchronize()


def one(copies, small, n, group):
    torch.cuda.synchronize()
    took, thread, since = [], threading.Thread(target=copies.give, args=(n, group)), time.perf_counter()
    thread.start()
    while thread.is_alive() or time.perf_counter() - since < 0.02:
        at = time.perf_counter()
        small.add_(1)
        took.append(1e6 * (time.perf_counter() - at))
    given = 1e3 * (time.perf_counter() - since)
    torch.cuda.synchronize()
    return sorted(took), given


def main():
    copies, small = Copies(), torch.zeros(64, device="cuda")
    sys.setswitchinterval(1e-4)          # else a launch waits for the interpreter
    for _ in range(3):
        one(copies, small, 64, 0)
    for n, group in WAYS:
        took, given = one(copies, small, n, group)
        what = f"{n} copies" + (f", {group} at a time" if group else "")
        print(f"{what:28} given in {given:6.1f} ms; a launch, us: median {took[len(took) // 2]:5.1f}, mean {sum(took) / len(took):5.1f}, "
              f"0.99 {took[int(0.99 * len(took))]:5.1f}, most {took[-1]:6.1f}", flush=True)


main()
