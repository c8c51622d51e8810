# SPDX-License-Identifier: Apache-2.0
"""Copies between KV caches on a GPU and slots in RAM, by the CUDA runtime that is in this process with PyTorch.

Each thread that copies has a stream of its own.  A job's fence is an event behind what the engine has given to its
stream when it gave us the job: a store waits for the kernels that fill the blocks, a load for those that still read
what was in them.
"""

import ctypes
import logging
import threading

log = logging.getLogger("vllm.gpc")

_NON_BLOCKING, _PORTABLE, _DEFAULT_KIND = 1, 1, 4
_RUNTIMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")
_pointer, _size = ctypes.c_void_p, ctypes.c_size_t


class CudaError(RuntimeError):
    """A call of the CUDA runtime failed."""


def runtime():
    for name in _RUNTIMES:
        try:
            return ctypes.CDLL(name)     # by its soname: what PyTorch has loaded is found first
        except OSError:
            continue
    raise CudaError(f"none of {', '.join(_RUNTIMES)} is in this process")


class CudaMover:
    def __init__(self, device, record, rt=None):
        """device: its ordinal.  record(): an event of the engine's stream, with cuda_event (torch.cuda.Event)."""
        self.device, self.record, self.rt = device, record, rt or runtime()
        self.mine = threading.local()
        self.lock, self.streams, self.registered = threading.Lock(), [], []

    def _call(self, name, *args):
        err = getattr(self.rt, name)(*args)
        if err:
            text = self.rt.cudaGetErrorString
            text.restype = ctypes.c_char_p
            raise CudaError(f"{name}: {(text(err) or b'').decode()} ({err})")

    def fence(self):
        return self.record()

    def open(self, address, nbytes):
        """Registered memory is copied without a stop on the way.  Otherwise the copies are slower, not wrong."""
        try:
            self._call("cudaSetDevice", self.device)
            self._call("cudaHostRegister", _pointer(address), _size(nbytes), _PORTABLE)
            self.registered.append(address)
        except CudaError as e:
            log.warning("gpc: the slots are not registered with the GPU: %s", e)

    def _stream(self):
        s = getattr(self.mine, "stream", None)
        if s is None:
            s = _pointer()
            self._call("cudaSetDevice", self.device)
            self._call("cudaStreamCreateWithFlags", ctypes.byref(s), _NON_BLOCKING)
            self.mine.stream = s
            with self.lock:
                self.streams.append(s)
        return s

    def begin(self, fence):
        self._call("cudaStreamWaitEvent", self._stream(), _pointer(fence.cuda_event), 0)

    def copy(self, to, to_pitch, source, pitch, width, height):
        self._call("cudaMemcpy2DAsync", _pointer(to), _size(to_pitch), _pointer(source), _size(pitch), _size(width),
                   _size(height), _DEFAULT_KIND, self._stream())

    def finish(self):
        self._call("cudaStreamSynchronize", self._stream())

    def abandon(self):
        """After a copy that failed: none of this thread may still be under way."""
        try:
            self.finish()
        except CudaError as e:
            log.error("gpc: %s", e)

    def release(self, address):
        if address in self.registered:
            self.registered.remove(address)
            self._call("cudaHostUnregister", _pointer(address))

    def close(self):
        for s in self.streams:
            self._call("cudaStreamDestroy", s)
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
