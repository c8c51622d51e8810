# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-gpu.t t/python/vllm-shares.t t/python/vllm-register.t
"""Copies between KV caches on a GPU and slots in RAM, by the CUDA runtime that is in this process with PyTorch.

Each thread that copies has two streams of its own, and one for sums.  When the engine gives us a job, it has given work to
its own stream.  The job's fence is an event after that work: a store waits for the kernels that fill the blocks, a load
for those that still read the old bytes.  A thread registers slots with the GPU (register.py), and no copy waits for it.
"""

import array
import ctypes
import logging
import threading

from gpc import _gpc

from .register import Refused, Registration, Steps

log = logging.getLogger("vllm.gpc")

_NON_BLOCKING, _PORTABLE, _RELAXED = 1, 1, 2
_ALREADY = 712                   # cudaErrorHostMemoryAlreadyRegistered
_BLOCKING_WAIT, _NO_TIMING = 1, 2
_EVENTS = 8 + 2 + 2              # sums of units, and the copies and sums of both lanes (struct pages_calls) ...
_SO_FAR = 2                      # ... and the copies so far, for which only streams wait
_STREAMS = 2                     # in which the stores of a thread take turns ...
_TURN = 32 << 20                 # ... of so many bytes: the tokens of a step wait for one turn, 0.6 ms on PCIe 5
_RUNTIMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")
_pointer, _size = ctypes.c_void_p, ctypes.c_size_t


class CudaError(RuntimeError):
    """A call of the CUDA runtime failed."""


def runtime():
    for name in _RUNTIMES:
        try:
            return ctypes.CDLL(name)     # by its soname, which finds the one that PyTorch has loaded first
        except OSError:
            continue
    raise CudaError(f"none of {', '.join(_RUNTIMES)} is in this process")


def enter(call, device):
    """A thread of ours, before its other calls.  While a thread of the engine captures a graph, the runtime refuses some
    calls of other threads, and that capture fails, unless they have said that they are no part of it."""
    call("cudaSetDevice", device)
    mode = ctypes.c_int(_RELAXED)
    call("cudaThreadExchangeStreamCaptureMode", ctypes.byref(mode))


class Driver:
    """Registers memory; the thread of register.py calls it, and the one that closes."""

    def __init__(self, device, rt, text):
        self.device, self.rt, self.text = device, rt, text

    def _check(self, name, err):
        if err:
            self.rt.cudaGetLastError()   # no later call may get this error
            raise Refused(f"{name}: {self.text(err)} ({err})")

    def start(self):
        enter(lambda name, *args: self._check(name, getattr(self.rt, name)(*args)), self.device)

    def register(self, address, nbytes):
        err = self.rt.cudaHostRegister(_pointer(address), _size(nbytes), _PORTABLE)
        if err == _ALREADY:
            self.rt.cudaGetLastError()
            return True
        self._check("cudaHostRegister", err)

    def unregister(self, address):
        if err := self.rt.cudaHostUnregister(_pointer(address)):
            log.error("gpc: cudaHostUnregister: %s (%d)", self.text(err), err)


class CudaMover:
    on_device = True

    def __init__(self, device, record, rt=None):
        """device: its ordinal.  record(): records an event of the engine's stream, with cuda_event
        (torch.cuda.Event)."""
        self.device, self.record, self.rt, self.sums, self.turn = device, record, rt or runtime(), None, _TURN
        self.mine, self.steps = threading.local(), Steps()
        self.lock, self.streams, self.events, self.registrations = threading.Lock(), [], [], {}

    def _call(self, name, *args):
        err = getattr(self.rt, name)(*args)
        if err:
            raise CudaError(f"{name}: {self.text(err)} ({err})")

    def text(self, err):
        text = self.rt.cudaGetErrorString
        text.restype = ctypes.c_char_p
        return (text(err) or b"").decode()

    def fence(self):
        return self.record()

    def step(self, launching):
        self.steps.tell(launching)

    def open(self, base, slots, stride, folder):
        """Registered memory is copied without a detour.  Otherwise the copies are slower, and still right."""
        r = self.registrations[base] = Registration(Driver(self.device, self.rt, self.text), base, slots, stride, folder,
                                                    self.steps)
        return r.each

    def _address(self, name):
        return ctypes.cast(getattr(self.rt, name), _pointer).value

    def _make_event(self, wait=_BLOCKING_WAIT):
        """A thread that waits for such an event sleeps, so each record of one interrupts the host."""
        e = _pointer()
        self._call("cudaEventCreateWithFlags", ctypes.byref(e), wait | _NO_TIMING)
        with self.lock:
            self.events.append(e)
        return e.value

    def _make_stream(self):
        s = _pointer()
        self._call("cudaStreamCreateWithFlags", ctypes.byref(s), _NON_BLOCKING)
        with self.lock:
            self.streams.append(s)
        return s.value

    def _sum_stream(self):
        return self._make_stream() if self.sums else 0

    def _mine(self):
        """This thread's struct pages_calls of pages.h: functions, streams, events."""
        calls = getattr(self.mine, "calls", None)
        if calls is None:
            enter(self._call, self.device)
            self.mine.streams = [*(self._make_stream() for _ in range(_STREAMS)), self._sum_stream()]
            calls = self.mine.calls = array.array("Q", [
                *(self._address(f) for f in ("cudaMemcpy2DAsync", "cudaEventRecord", "cudaEventSynchronize",
                                             "cudaStreamWaitEvent")),
                *self.mine.streams, self.turn, 0, 0, *(self._make_event() for _ in range(_EVENTS)),
                *(self._make_event(0) for _ in range(_SO_FAR)), 0])
        return calls

    def sum_images(self, pieces, blocks):
        """From now on chunks of so many blocks are summed in place.  A block is (address, stride, bytes) of each
        tensor."""
        flat = array.array("Q", [n for p in pieces for n in p])
        self.sums = _gpc._sums_open(f"cuda:{self.device}", flat, blocks)

    def begin(self, fence):
        """The next copies of this thread wait for that fence; returns how it copies (struct pages_calls of pages.h)."""
        calls = self._mine()
        # C code follows: a call from here would let the engine's thread take the interpreter
        calls[-1] = fence.cuda_event
        return calls

    def hasten(self, base, slots, of_job, store):
        if r := self.registrations.get(base):
            self._mine()                 # this thread has the device from now on
            r.hasten(slots, of_job, store)

    def abandon(self):
        """Called after a copy that failed: when it returns, no copy of this thread is under way."""
        for s in filter(None, self.mine.streams):
            try:
                self._call("cudaStreamSynchronize", _pointer(s))
            except CudaError as e:
                log.error("gpc: %s", e)

    def release(self, base):
        if r := self.registrations.pop(base, None):
            r.close()

    def registering(self):
        """Is a thread registering?  And the number of bytes that are registered."""
        some = [*self.registrations.values()]
        return any(r.running() for r in some), sum(r.registered() for r in some)

    def close(self):
        for base in [*self.registrations]:
            self.release(base)
        self.sums = None
        for e in self.events:
            self._call("cudaEventDestroy", e)
        for s in self.streams:
            self._call("cudaStreamDestroy", s)
        self.events.clear()
        self.streams.clear()


def of_tensors(kv_caches):
    """For KV caches that are tensors of one GPU."""
    import torch
    device = kv_caches.tensors[0].tensor.device
    if device.type != "cuda" or any(t.tensor.device != device for t in kv_caches.tensors):
        raise CudaError(f"KV caches of one NVIDIA GPU or in RAM are wanted, this is {device}")

    def record():
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        return event

    return CudaMover(device.index, record)
