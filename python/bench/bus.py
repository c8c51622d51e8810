#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bus.py - how near copies of blocks come to the bus of a GPU: GB/s to the device, medians.

Blocks of 2 MiB go from host memory to a KV cache of 32 layers, as loads of gpc.vllm do: rows of 64 KiB, whose distances in the
KV cache are those of layers.  Told beside one copy of all bytes, for memory of the runtime and for files of a tmpfs that are
registered; by one stream and by several in turn; with events behind every eight blocks, as sums want them; many by one call;
and through a buffer of the device, to which slots that follow each other go by one copy.  With PyTorch also beside a matrix
product that fills the GPU.

python3 python/bench/bus.py [ROUNDS [PAGE LAYERS]]           needs a GPU and the CUDA runtime, by itself or with PyTorch
"""

import ctypes
import mmap
import random
import statistics
import sys
import tempfile
import time

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
PAGE, LAYERS = map(int, sys.argv[2:4]) if len(sys.argv) > 3 else (65536, 32)
BLOCK = LAYERS * PAGE
BLOCKS, BEHIND, RING = min(2048, (1 << 30) // BLOCK), 8, 4
TOTAL = BLOCK * BLOCKS
ANY_KIND, NON_BLOCKING, PORTABLE = 4, 1, 1
PLAIN, SLEEPING = 2, 3           # events without times; whoever waits for the latter sleeps
HUGE = getattr(mmap, "MADV_HUGEPAGE", 14)


try:
    import torch                 # brings a runtime
except ImportError:
    torch = None


def runtime():
    for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    sys.exit("bus.py: no CUDA runtime is found")


rt = runtime()
pointer, size = ctypes.c_void_p, ctypes.c_size_t
rt.cudaMemcpyAsync.argtypes = [pointer, pointer, size, ctypes.c_int, pointer]
rt.cudaMemcpy2DAsync.argtypes = [pointer, size, pointer, size, size, size, ctypes.c_int, pointer]
rt.cudaGetErrorString.restype = ctypes.c_char_p


def call(name, *args):
    err = getattr(rt, name)(*args)
    if err:
        sys.exit(f"bus.py: {name}: {rt.cudaGetErrorString(err).decode()}")


def made(name, *args):
    p = pointer()
    call(name, ctypes.byref(p), *args)
    return p


class File:
    """A file of a tmpfs, registered with the device."""

    def __init__(self, huge):
        self.file = tempfile.TemporaryFile(dir="/dev/shm")
        self.file.truncate(TOTAL + (2 << 20))
        self.map = mmap.mmap(self.file.fileno(), TOTAL + (2 << 20))
        if huge:
            try:
                self.map.madvise(HUGE)
            except OSError:
                pass
        first = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.address = -(-first // (2 << 20)) * (2 << 20)
        ctypes.memset(self.address, 1, TOTAL)
        call("cudaHostRegister", pointer(self.address), size(TOTAL), PORTABLE)

    def end(self):
        call("cudaHostUnregister", pointer(self.address))


def one(host, device, streams, behind):
    rt.cudaMemcpyAsync(device, host, TOTAL, ANY_KIND, streams[0])


def whole(order):
    """Blocks as they are."""
    def copy(host, device, streams, behind):
        for n, (slot, block) in enumerate(order):
            rt.cudaMemcpyAsync(device + block * BLOCK, host + slot * BLOCK, BLOCK, ANY_KIND, streams[n % len(streams)])
            behind(n, streams)
    return copy


def rows(order):
    def copy(host, device, streams, behind):
        for n, (slot, block) in enumerate(order):
            rt.cudaMemcpy2DAsync(device + block * PAGE, BLOCKS * PAGE, host + slot * BLOCK, PAGE, PAGE, LAYERS, ANY_KIND,
                                 streams[n % len(streams)])
            behind(n, streams)
    return copy


def layers(host, device, streams, behind):
    """Slots in a row, to blocks in a row: a copy for each layer."""
    for layer in range(LAYERS):
        rt.cudaMemcpy2DAsync(device + layer * BLOCKS * PAGE, PAGE, host + layer * PAGE, BLOCK, PAGE, BLOCKS, ANY_KIND, streams[0])


class Operand(ctypes.Structure):
    """struct cudaMemcpy3DOperand, of a pointer."""
    _fields_ = [("type", ctypes.c_int), ("ptr", pointer), ("row_length", size), ("layer_height", size), ("where", ctypes.c_int * 2)]


class Op(ctypes.Structure):
    """struct cudaMemcpy3DBatchOp."""
    _fields_ = [("src", Operand), ("dst", Operand), ("extent", size * 3), ("order", ctypes.c_int), ("flags", ctypes.c_uint)]


def batches(n, order):
    """n pitched copies by one call; they may go in any order."""
    version, made_for = ctypes.c_int(), {}
    call("cudaRuntimeGetVersion", ctypes.byref(version))
    fails = [] if version.value >= 13000 else [ctypes.byref(size())]
    rt.cudaMemcpy3DBatchAsync.argtypes = [size, pointer, *[pointer for _ in fails], ctypes.c_ulonglong, pointer]

    def made_of(host, device):
        ops = (Op * len(order))()
        for op, (slot, block) in zip(ops, order):
            op.src = Operand(1, host + slot * BLOCK, PAGE, LAYERS)
            op.dst = Operand(1, device + block * PAGE, BLOCKS * PAGE, LAYERS)
            op.extent[:] = PAGE, LAYERS, 1
            op.order = 1
        return ops

    def copy(host, device, streams, behind):
        ops = made_for.get(host) or made_for.setdefault(host, made_of(host, device))
        for at in range(0, len(order), n):
            err = rt.cudaMemcpy3DBatchAsync(min(n, len(order) - at), ctypes.byref(ops, at * ctypes.sizeof(Op)), *fails, 0, streams[0])
            if err:
                sys.exit(f"bus.py: cudaMemcpy3DBatchAsync: {rt.cudaGetErrorString(err).decode()}")
    return copy


def through_a_buffer(n, blocks):
    """Runs of n slots, in any order, to any blocks.  The rows are copied by a second stream, behind the run."""
    buffers = made("cudaMalloc", size(RING * n * BLOCK)).value
    come, gone = ([made("cudaEventCreateWithFlags", PLAIN) for _ in range(RING)] for _ in range(2))
    runs = random.Random(3).sample(range(BLOCKS // n), BLOCKS // n)

    def copy(host, device, streams, behind):
        for i, run in enumerate(runs):
            k, at = i % RING, buffers + i % RING * n * BLOCK
            if i >= RING:
                rt.cudaStreamWaitEvent(pointer(streams[0]), gone[k], 0)
            rt.cudaMemcpyAsync(at, host + run * n * BLOCK, n * BLOCK, ANY_KIND, streams[0])
            rt.cudaEventRecord(come[k], pointer(streams[0]))
            rt.cudaStreamWaitEvent(pointer(streams[1]), come[k], 0)
            for j in range(n):
                rt.cudaMemcpy2DAsync(device + blocks[run * n + j] * PAGE, BLOCKS * PAGE, at + j * BLOCK, PAGE, PAGE, LAYERS, ANY_KIND,
                                     streams[1])
            rt.cudaEventRecord(gone[k], pointer(streams[1]))
    return copy


def follower(kind):
    """Every few blocks another stream follows the copies so far."""
    event, other = made("cudaEventCreateWithFlags", kind), made("cudaStreamCreateWithFlags", NON_BLOCKING)

    def behind(n, streams):
        if n % BEHIND == BEHIND - 1:
            rt.cudaEventRecord(event, pointer(streams[0]))
            rt.cudaStreamWaitEvent(other, event, 0)
    return behind


def rate(copy, host, device, streams, behind, beside=lambda: None):
    took = []
    for i in range(ROUNDS + 1):
        call("cudaDeviceSynchronize")
        beside()
        since = time.perf_counter()
        copy(host, device, streams, behind)
        for s in streams:
            call("cudaStreamSynchronize", pointer(s))
        took.append(time.perf_counter() - since)
    call("cudaDeviceSynchronize")
    return TOTAL / statistics.median(took[1:]) / 1e9


class Product:
    """Goes on for longer than the copies."""

    def __init__(self):
        self.a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) / 90

    def __call__(self):
        x = self.a
        for _ in range(80):
            x = x @ self.a


def prior(n):
    """A stream of priority n, which is below 0 where its kernels begin before those of others."""
    p = pointer()
    call("cudaStreamCreateWithPriority", ctypes.byref(p), NON_BLOCKING, n)
    return p.value


def main():
    device = made("cudaMalloc", size(TOTAL)).value
    streams = [made("cudaStreamCreateWithFlags", NON_BLOCKING).value for _ in range(4)]
    pairs = [(i, i) for i in range(BLOCKS)]
    apart = list(zip(random.Random(1).sample(range(BLOCKS), BLOCKS), random.Random(2).sample(range(BLOCKS), BLOCKS)))
    alone = lambda n, streams: None      # noqa: E731
    blocks = [b for _, b in apart]
    runtimes = made("cudaHostAlloc", size(TOTAL), PORTABLE)
    ctypes.memset(runtimes, 1, TOTAL)
    files = [File(False), File(True)]
    memories = (("memory of the runtime", runtimes.value), ("a file", files[0].address), ("a file, huge pages asked for", files[1].address))
    for name, host in memories:
        for what, copy, n, behind in (
                ("one copy", one, 1, alone), ("blocks, in order", whole(pairs), 1, alone), ("blocks", whole(apart), 1, alone),
                ("blocks, 2 streams", whole(apart), 2, alone), ("rows, in order", rows(pairs), 1, alone),
                ("layers, in order", layers, 1, alone), ("rows", rows(apart), 1, alone),
                ("rows, 2 streams", rows(apart), 2, alone), ("rows, 4 streams", rows(apart), 4, alone),
                ("rows, another stream follows", rows(apart), 1, follower(PLAIN)),
                ("rows, it follows events that wake", rows(apart), 1, follower(SLEEPING)),
                *((f"rows, batches of {n}", batches(n, apart), 1, alone) for n in (8, 32, 128) if hasattr(rt, "cudaMemcpy3DBatchAsync")),
                *((f"runs of {n}, through a buffer", through_a_buffer(n, blocks), 2, alone) for n in (1, 4, 8, 16))):
            print(f"{name:30} {what:36} {rate(copy, host, device, streams[:n], behind):6.2f} GB/s", flush=True)
    if torch:
        for what, copy, some in (("rows", rows(apart), streams[:1]),
                                 *((f"runs of 8, through a buffer, priority {p}", through_a_buffer(8, blocks), [streams[0], prior(p)])
                                   for p in (0, -5))):
            print(f"{'beside a matrix product':30} {what:36} {rate(copy, files[0].address, device, some, alone, Product()):6.2f} GB/s", flush=True)
    for f in files:
        f.end()


main()
