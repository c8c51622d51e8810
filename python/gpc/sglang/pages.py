# SPDX-License-Identifier: Apache-2.0
# Tests: t/892-sglang-storage.t
"""Pages of a host pool of SGLang, as parts: where it tells their addresses, its memory itself."""

from ..engines.bytes import size_of


def tensor_parts(tensor):
    return [(tensor.data_ptr(), tensor.numel() * tensor.element_size())]


def page_bytes(host_pool):
    """Bytes of one page; 0: the pool has none of its own (a logical anchor)."""
    try:
        return size_of(tensor_parts(host_pool.get_dummy_flat_data_page()))
    except (NotImplementedError, AttributeError, TypeError):
        return 0


class Pages:
    def __init__(self, host_pool):
        self.pool, self.bytes = host_pool, page_bytes(host_pool)     # asked once: it allocates a page
        self.direct = hasattr(host_pool, "get_page_buffer_meta")

    def _addresses(self, n, host_indices):
        """For each page its parts, in the order that the pool tells them; None: this pool's layout has none."""
        if not self.direct or not n:
            return None
        try:
            at, sizes = self.pool.get_page_buffer_meta(host_indices) or ((), ())
        except (NotImplementedError, ValueError):
            self.direct = False
            return None
        if not at or len(at) % n:
            self.direct = False
            return None
        k = len(at) // n
        return [list(zip(at[i * k:(i + 1) * k], sizes[i * k:(i + 1) * k])) for i in range(n)]

    def _step(self, n, host_indices):
        """Indices of one page, or 0: their number is wrong."""
        return len(host_indices) // n if n and len(host_indices) and len(host_indices) % n == 0 else 0

    def sources(self, n, host_indices):
        """(what keeps them, parts of each page), or None."""
        step = self._step(n, host_indices)
        if not step:
            return None
        parts = self._addresses(n, host_indices)
        if parts is not None:
            return None, parts
        flat = [self.pool.get_data_page(int(host_indices[i * step])).contiguous() for i in range(n)]
        return flat, [tensor_parts(t) for t in flat]

    def targets(self, n, host_indices):
        """(what finishes page i when its parts are filled, parts of each page), or None."""
        step = self._step(n, host_indices)
        if not step:
            return None
        parts = self._addresses(n, host_indices)
        if parts is not None:
            return None, parts
        flat = [self.pool.get_dummy_flat_data_page() for _ in range(n)]
        return (lambda i: self.pool.set_from_flat_data_page(int(host_indices[i * step]), flat[i]),
                [tensor_parts(t) for t in flat])
