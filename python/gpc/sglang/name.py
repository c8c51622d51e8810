# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/sglang-storage.t
"""Which engines may share a cache, and which ranks share a page."""

import hashlib
import json

IMAGE_VERSION = 3                # grows when the bytes in a slot, or their name, change
_REPLICATED = "all ranks have the same bytes"


def fingerprint(config, weights, pages, told):
    """32 bytes, of a HiCacheStorageConfig, the host pool of the KV pages and the engine's arguments.  tp_lcm_size is
    left out: pages are stored whole, by engines of one tp_size."""
    meaning = {
        "image": IMAGE_VERSION, "engine": "sglang", "weights": weights, "told": told, "mla": bool(config.is_mla_model),
        "tp": 1 if config.is_mla_model else config.tp_size, "pp": config.pp_size, "cp": config.attn_cp_size,
        "dcp": getattr(config, "dcp_size", 1), **pages.meaning(),
    }
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).digest()


def cache_name(conf, layout):
    return conf.name or "sglang-" + layout[:8].hex()


class Names:
    """Turns a page's hash into the digest that it is stored under."""

    def __init__(self, config):
        every = [config.pp_rank, config.attn_cp_rank, getattr(config, "dcp_rank", 0)]
        self.own = every + [config.tp_rank, config.tp_size]
        self.replicated = every + [_REPLICATED]
        self.mla = config.is_mla_model
        self.salt = b""                  # of the namespace
        self.meanings = {}               # pool -> the meaning of its bytes; the fingerprint has that of the KV pages

    def digests(self, keys, pool="kv"):
        """With MLA all tensor-parallel ranks hold the same pages, but for the states of Mamba layers."""
        pool = str(pool)
        ranks = self.replicated if self.mla and pool != "mamba" else self.own
        words = json.dumps([pool, ranks, self.meanings.get(pool), self.salt.hex()], sort_keys=True)
        start = hashlib.sha256(words.encode() + b"\n")
        out = []
        for key in keys:
            h = start.copy()
            h.update(key.encode())
            out.append(h.digest())
        return out
