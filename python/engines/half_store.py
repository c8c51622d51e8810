# SPDX-License-Identifier: Apache-2.0
"""gpc.vllm with a worker that can be caught in the middle of a store.

While the file GPC_T_HALF.armed is there, the store of a chunk stops when some of its pages are copied, says so by the
file GPC_T_HALF.stopped, and goes on when GPC_T_HALF.go is there, of which GPC_T_HALF.went tells.  A test that has seen
.stopped kills whom it likes.
"""

import os
import time

from gpc.vllm import GPCOffloadingSpec
from gpc.vllm.worker import HostMover

FILE = os.environ["GPC_T_HALF"]
AFTER = 2                        # chunks, before the one that stops in its middle


class HalfMover(HostMover):
    def __init__(self, slots):
        self.slots = slots       # says whether an address is in a slot: then the copy is a store
        self.stores = 0

    def copy(self, to, to_pitch, source, pitch, width, height):
        if self.slots(to) and os.path.exists(FILE + ".armed"):
            self.stores += 1
            if self.stores > AFTER:
                super().copy(to, to_pitch, source, pitch, width, height // 2)
                self._stop()
        super().copy(to, to_pitch, source, pitch, width, height)

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
