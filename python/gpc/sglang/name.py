# SPDX-License-Identifier: Apache-2.0
# Tests: t/892-sglang-storage.t
"""Who may share a cache, and which ranks share a page."""

import hashlib
import json

IMAGE_VERSION = 1                # grows when what lies in a slot changes
_REPLICATED = "all ranks have the same bytes"


def fingerprint(config, weights, host_pool, page_bytes):
    """32 bytes, of a HiCacheStorageConfig and the host pool of the KV pages.  tp_lcm_size is left out: pages are stored
    whole, by engines of one tp_size."""
    meaning = {
        "image": IMAGE_VERSION, "engine": "sglang", "weights": weights, "page_bytes": page_bytes,
        "dtype": str(getattr(host_pool, "dtype", "")), "layout": str(getattr(host_pool, "layout", "")),
        "page_size": getattr(host_pool, "page_size", 1), "mla": bool(config.is_mla_model),
        "tp": 1 if config.is_mla_model else config.tp_size, "pp": config.pp_size, "cp": config.attn_cp_size,
        "dcp": getattr(config, "dcp_size", 1),
    }
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).digest()


def cache_name(conf, layout):
    return conf.name or "sglang-" + layout[:8].hex()


class Names:
    """From a page's hash to the digest that it is stored under."""

    def __init__(self, config):
        every = [config.pp_rank, config.attn_cp_rank, getattr(config, "dcp_rank", 0)]
        self.own = every + [config.tp_rank, config.tp_size]
        self.replicated = every + [_REPLICATED]
        self.mla = config.is_mla_model

    def digests(self, keys, pool="kv"):
        """With MLA all tensor-parallel ranks hold the same pages, but for the states of Mamba layers."""
        pool = str(pool)
        ranks = self.replicated if self.mla and pool != "mamba" else self.own
        start = hashlib.sha256(json.dumps([pool, ranks]).encode() + b"\n")
        out = []
        for key in keys:
            h = start.copy()
            h.update(key.encode())
            out.append(h.digest())
        return out
