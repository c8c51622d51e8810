# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t
"""The keys of adapter_params."""

import gpc

from ..engines.config import ConfigError, Key, read
from ..engines.keys import CACHE
from ..engines.tiers import check

KEYS = {
    "gpc_bytes": Key(int, least=1, most=1 << 50, needed=True),
    "gpc_slot_bytes": Key(int, 1 << 22, 4096, 1 << 40),
    "gpc_name": Key(str, "", 0, gpc.MAX_NAME),
    "gpc_dir": Key(str, "", 0, 255),
    "gpc_weights": Key(str, "", 0, 255),
    "gpc_wait_ms": Key(int, 1000, 1, 600000),
    "gpc_lock_s": Key(int, 600, 0, 1 << 20),
    "gpc_below_ms": Key(int, 1000, 0, 60000),
    "gpc_stock": Key(int, 0, 0, 1024),
    "gpc_checksum": Key(bool, True),
    "gpc_threads": Key(int, 2, 1, 64),
    "gpc_tag": Key(int, 1, 1, 0xffffffff),
    "gpc_serve": Key(bool, True),
    "gpc_max_peers": Key(int, 64, 2, gpc.MAX_PEERS),
    "gpc_attach_ms": Key(int, 10000, 0, 600000),
    "gpc_free_target": Key(int, 0, -1, 1 << 20),
    **CACHE,
}


class Config:
    """An attribute for each key, without the prefix gpc_."""

    def __init__(self, params):
        for name in params:
            if name not in KEYS:
                raise ConfigError(f"{name}: there is no such key; there are {', '.join(KEYS)}")
        read(self, KEYS, params, "lmcache")
        check(self)
        if self.slot_bytes % 4096:
            raise ConfigError(f"gpc_slot_bytes: {self.slot_bytes}, a multiple of 4096 is wanted")
        self.bytes_key = "gpc_bytes"
