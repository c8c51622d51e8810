# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/sglang-storage.t
"""Pages of a host pool of SGLang, as parts: in the pool's own memory, where SGLang tells the addresses."""

import sys

from ..engines.bytes import size_of
from ..engines.config import ConfigError


def tensor_parts(tensor):
    return [(tensor.data_ptr(), tensor.numel() * tensor.element_size())]


def _indices_of_page(host_pool):
    """The indices of the first page, as SGLang gives them."""
    n = getattr(host_pool, "page_size", 1) or 1
    arange = getattr(sys.modules.get("torch"), "arange", range)
    return arange(n)


class Pages:
    """The way of the bytes of a pool's pages, by the pool's answers when it is registered:

        addresses     flat pages       then
        told          whatever         straight between its memory and the cache
        none          of some bytes    through a tensor for each page
        none          of no bytes      a logical anchor: there is nothing to bring
        none          none             refused: SGLang would take what is not brought for brought
    """

    def __init__(self, host_pool, name="kv"):
        self.pool, self.direct = host_pool, hasattr(host_pool, "get_page_buffer_meta")
        parts = self._addresses(1, _indices_of_page(host_pool))
        self.bytes = size_of(parts[0]) if parts else self._flat_bytes(name)

    def _flat_bytes(self, name):
        try:
            n = size_of(tensor_parts(self.pool.get_dummy_flat_data_page()))
            if n:
                self.pool.get_data_page(0)
            return n
        except (NotImplementedError, AttributeError, TypeError, ValueError) as e:
            raise ConfigError(f"gpc.sglang: layout {getattr(self.pool, 'layout', '')!r} of host pool {name} is not "
                              f"supported ({type(e).__name__}: {e}): start SGLang with --hicache-mem-layout page_first "
                              "or page_first_direct") from None

    def meaning(self):
        """The meaning of its bytes.  A pool of fp8 says uint8; the pool on the device has the dtype."""
        told = {n: str(getattr(self.pool, n, "")) for n in ("dtype", "layout")}
        device = getattr(self.pool, "device_pool", None)
        return {**told, "page_bytes": self.bytes, "page_size": getattr(self.pool, "page_size", 1),
                "device_dtype": str(getattr(device, "dtype", ""))}

    def _addresses(self, n, host_indices):
        """The parts of each page, in the order in which the pool gives them; None: this pool's layout has none."""
        if not self.direct or not n:
            return None
        try:
            at, sizes = self.pool.get_page_buffer_meta(host_indices) or ((), ())
        except (NotImplementedError, ValueError, AssertionError):
            self.direct = False
            return None
        if not at or len(at) % n:
            self.direct = False
            return None
        k = len(at) // n
        return [list(zip(at[i * k:(i + 1) * k], sizes[i * k:(i + 1) * k])) for i in range(n)]

    def _step(self, n, host_indices):
        """Indices of one page; 0: their number is wrong."""
        return len(host_indices) // n if n and len(host_indices) and len(host_indices) % n == 0 else 0

    def sources(self, n, host_indices):
        """(the object that keeps them alive, parts of each page), or None."""
        step = self._step(n, host_indices)
        if not step:
            return None
        parts = self._addresses(n, host_indices)
        if parts is not None:
            return None, parts
        flat = [self.pool.get_data_page(int(host_indices[i * step])).contiguous() for i in range(n)]
        return flat, [tensor_parts(t) for t in flat]

    def targets(self, n, host_indices):
        """(a function that finishes page i when its parts are filled, parts of each page), or None."""
        step = self._step(n, host_indices)
        if not step:
            return None
        parts = self._addresses(n, host_indices)
        if parts is not None:
            return None, parts
        flat = [self.pool.get_dummy_flat_data_page() for _ in range(n)]
        return (lambda i: self.pool.set_from_flat_data_page(int(host_indices[i * step]), flat[i]),
                [tensor_parts(t) for t in flat])
