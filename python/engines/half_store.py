# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm with a worker that can be caught in the middle of a store.

While the file GPC_T_HALF.armed is there, the store of a chunk stops when some of its pages are copied, says so by the
file GPC_T_HALF.stopped, and goes on when GPC_T_HALF.go is there, of which GPC_T_HALF.went tells.  A test that has seen
.stopped kills whom it likes.
"""

import ctypes
import os
import time
from array import array

from gpc import _gpc
from gpc.vllm import GPCOffloadingSpec
from gpc.vllm.worker import HostMover

FILE = os.environ["GPC_T_HALF"]
AFTER = 2                        # copies, before the one that stops in its middle
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t


def _copy_rows(to, to_pitch, source, pitch, width, height):
    for i in range(height):
        ctypes.memmove(to + i * to_pitch, source + i * pitch, width)


class HalfMover(HostMover):
    """Its copies are calls of Python, by the table that a GPU's are called by (struct pages_calls of pages.h)."""

    def __init__(self, slots):
        self.slots = slots       # says whether an address is in a slot: then the copy is a store
        self.stores = 0
        self.functions = (
            ctypes.CFUNCTYPE(ctypes.c_int, POINTER, SIZE, POINTER, SIZE, SIZE, SIZE, ctypes.c_int, POINTER)(self._copy),
            ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER)(lambda event, stream: 0),
            ctypes.CFUNCTYPE(ctypes.c_int, POINTER)(lambda event: 0),
            ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, ctypes.c_uint)(lambda stream, event, flags: 0))
        self.calls = array("Q", [ctypes.cast(f, POINTER).value for f in self.functions] +
                           [0] * (_gpc._SHARE_CALLS - len(self.functions)))

    def begin(self, fence):
        return self.calls

    def _copy(self, to, to_pitch, source, pitch, width, height, kind, stream):
        if self.slots(to) and os.path.exists(FILE + ".armed"):
            self.stores += 1
            if self.stores > AFTER:
                _copy_rows(to, to_pitch, source, pitch, width, height // 2)
                self._stop()
        _copy_rows(to, to_pitch, source, pitch, width, height)
        return 0

    def _stop(self):
        open(FILE + ".stopped", "w").close()
        while not os.path.exists(FILE + ".go"):
            time.sleep(0.01)
        open(FILE + ".went", "w").close()


class HalfStoreSpec(GPCOffloadingSpec):
    def get_worker(self, kv_caches):
        worker = super().get_worker(kv_caches)

        def in_a_slot(address):
            return any(b.part.address <= address < b.part.address + b.part.nbytes for b in list(worker.beside.values()))
        worker.mover = HalfMover(in_a_slot)
        return worker
