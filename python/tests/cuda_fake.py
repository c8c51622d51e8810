# SPDX-License-Identifier: Apache-2.0
"""The calls of the CUDA runtime that gpc.vllm makes, by one that copies here, in RAM."""

import ctypes
import threading

P, N = ctypes.c_void_p, ctypes.c_size_t


class Runtime:
    """Its calls from pages.c are of C, those from cuda.py of Python.  It refuses what CUDA refuses: a copy that begins in
    one registration, or in none, and ends in another."""

    def __init__(self, fails=""):
        self.ranges, self.crossed = {}, 0        # address -> bytes that are registered; copies that were refused
        self.lock = threading.Lock()
        self.calls, self.fails, self.events, self.streams, self.sleeps = [], fails, 100, 76, set()
        self.relaxed, self.strict = set(), set() # threads that end no capture of another one; calls of threads that do
        self.cudaMemcpy2DAsync = ctypes.CFUNCTYPE(ctypes.c_int, P, N, P, N, N, N, ctypes.c_int, P)(self._copy)
        self.cudaStreamWaitEvent = ctypes.CFUNCTYPE(ctypes.c_int, P, P, ctypes.c_uint)(
            lambda *a: self._say("cudaStreamWaitEvent", *a))
        self.cudaEventRecord = ctypes.CFUNCTYPE(ctypes.c_int, P, P)(lambda *a: self._say("cudaEventRecord", *a))
        self.cudaEventSynchronize = ctypes.CFUNCTYPE(ctypes.c_int, P)(lambda *a: self._say("cudaEventSynchronize", *a))

    def cudaThreadExchangeStreamCaptureMode(self, mode):
        if mode._obj.value == 2:
            self.relaxed.add(threading.get_ident())
        return 0

    def _say(self, called, *args):
        if threading.get_ident() not in self.relaxed:
            self.strict.add(called)
        self.calls.append((called, *args))
        return 2 if called == self.fails else 0

    def cudaHostRegister(self, address, nbytes, flags):
        if err := self._say("cudaHostRegister", address.value, nbytes.value, flags):
            return err
        with self.lock:
            if any(a < address.value + nbytes.value and address.value < a + n for a, n in self.ranges.items()):
                return 712
            self.ranges[address.value] = nbytes.value
        return 0

    def cudaHostUnregister(self, address):
        with self.lock:
            return self._say("cudaHostUnregister", address.value) or (0 if self.ranges.pop(address.value, 0) else 713)

    def _range_of(self, address):
        return next((a for a, n in self.ranges.items() if a <= address < a + n), None)

    def _copy(self, to, to_pitch, source, pitch, width, height, kind, stream):
        with self.lock:
            for at, step in ((to, to_pitch), (source, pitch)):
                if self._range_of(at) != self._range_of(at + (height - 1) * step + width - 1):
                    self.crossed += 1
                    return 1
            for i in range(height):
                ctypes.memmove(to + i * to_pitch, source + i * pitch, width)
        return self._say("cudaMemcpy2DAsync", to, to_pitch, source, pitch, width, height, kind, stream)

    def __getattr__(self, called):
        def call(*args):
            if called == "cudaStreamCreateWithFlags":
                self.streams += 1
                args[0]._obj.value = self.streams
            elif called == "cudaEventCreateWithFlags":
                self.events += 1
                args[0]._obj.value = self.events
                self.sleeps |= {self.events} if args[1] & 1 else set()
            else:
                return self._say(called, *(a.value if hasattr(a, "value") else a for a in args))
            return 0
        return Text() if called == "cudaGetErrorString" else call

    def names(self):
        return [c[0][4:] for c in self.calls]


class Text:
    def __call__(self, err):
        return b"a failure"
