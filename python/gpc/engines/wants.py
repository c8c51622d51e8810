# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-gpcd.t
"""The needs of an engine in a cache that it has not made, in the words of gpcd's options (gpcd(8)).

    who made the cache                    the engine
    another engine of its fingerprint     takes it: cache.py makes all of them alike
    gpcd, with the lines of this engine   takes it: gpcd lays the blocks out as cache.py does
    gpcd, and a line is other or missing  refuses it, and names these lines
    gpcd without --layout                 refuses it, and names all lines
"""

import gpc

POOL = 0


class Wants:
    """blocks: of RAM.  sums: parts of a block, each with a checksum."""

    def __init__(self, layout, slot_bytes, block_tokens, sums, blocks, tokens=False):
        self.slot_bytes, self.sums = slot_bytes, sums
        self.all = {"block-size": block_tokens, "ram-blocks": max(blocks, 1), "block-bytes": slot_bytes,
                    **({"sums": sums} if sums > 1 else {}), "layout": layout.hex(), "unchained": "yes", "keep-digests": "yes",
                    **({"keep-tokens": "yes"} if tokens else {})}

    def lines(self, keys=None):
        """Of [gpcd] in the file."""
        told = {"sums": self.sums, **self.all}
        return ", ".join(f"'{k} = {told[k]}'" for k in keys or self.all)

    def lacking(self, c):
        """Key -> what is other there."""
        try:
            pool = c.pool_get(POOL)
            have = c.pool_memory(POOL) if pool.kind == gpc.RAM else None
        except gpc.NotFound:
            have = None
        if have is None:
            return dict.fromkeys([k for k in self.all if k in ("ram-blocks", "block-bytes", "sums", "unchained")],
                                 f"its pool {POOL} is none of RAM with memory")
        out = {}
        if have.block_bytes != self.slot_bytes:
            out["block-bytes"] = f"its blocks have {have.block_bytes} bytes, and {self.slot_bytes} are wanted"
        if have.sums != self.sums:
            out["sums"] = f"its blocks have {_count(have.sums, 'checksum')}, and {self.sums} " \
                f"{'is' if self.sums == 1 else 'are'} wanted, one for each worker"
        if not pool.flags & gpc.POOL_UNCHAINED:
            out["unchained"] = "its pool of RAM is chained"
        if not c.info().keep_digests:
            out["keep-digests"] = "it keeps no digests"
        return out

    def refusal(self, name, lacking):
        """A sentence."""
        why = ", ".join(dict.fromkeys(lacking.values()))
        return (f"{name} is not as this engine needs it: {why}. Where gpcd makes the cache, [gpcd] of its file needs "
                f"{self.lines(lacking)} (or the options --{' --'.join(f'{k} {self._value(k)}'.strip() for k in lacking)}); end "
                f"its engines and gpcd, run 'gpc-inspect rm {name}', remove the file of its disk if there is one, and start gpcd again. Or give this engine another gpc_name")

    def _value(self, key):
        value = {"sums": self.sums, **self.all}[key]
        return "" if value == "yes" else value


def _count(n, what):
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
