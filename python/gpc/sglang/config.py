# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/sglang-storage.t
"""The keys of --hicache-storage-backend-extra-config."""

import gpc

from ..engines.config import Key, read
from ..engines.keys import CACHE
from ..engines.tiers import check

KEYS = {
    "gpc_bytes": Key(int, least=1, most=1 << 50, needed=True),
    "gpc_name": Key(str, "", 0, gpc.MAX_NAME),
    "gpc_dir": Key(str, "", 0, 255),
    "gpc_weights": Key(str, "", 0, 255),
    "gpc_wait_ms": Key(int, 1000, 1, 600000),
    "gpc_below_ms": Key(int, 1000, 0, 60000),
    "gpc_stock": Key(int, 0, 0, 1024),
    "gpc_checksum": Key(bool, True),
    "gpc_tag": Key(int, 1, 1, 0xffffffff),
    "gpc_reset": Key(str, "refuse", one_of=("refuse", "tag")),
    "gpc_version_file": Key(str, "", 0, 4095),
    "gpc_serve": Key(bool, True),
    "gpc_max_peers": Key(int, 64, 2, gpc.MAX_PEERS),
    "gpc_attach_ms": Key(int, 10000, 0, 600000),
    "gpc_free_target": Key(int, 0, -1, 1 << 20),
    **CACHE,
}


class Config:
    """An attribute for each key, without the prefix gpc_."""

    def __init__(self, extra):
        read(self, KEYS, extra, "sglang")
        check(self)
        self.bytes_key = "gpc_bytes"
