# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-manager.t
"""The keys of kv_connector_extra_config: defaults, ranges, and errors that name key, value and limit."""

import logging

import gpc

from ..engines.config import ConfigError, Key, read
from ..engines.keys import CACHE
from ..engines.tiers import check

log = logging.getLogger("vllm.gpc")

KEYS = {
    "gpc_bytes": Key(int, None, 1, 1 << 50),
    "cpu_bytes_to_use": Key(int, None, 1, 1 << 50),
    "store_threshold": Key(int, 0, 0, 16),
    "gpc_name": Key(str, "", 0, gpc.MAX_NAME),
    "gpc_dir": Key(str, "", 0, 255),
    "gpc_weights": Key(str, "", 0, 255),
    "gpc_pending_ms": Key(int, 2000, 0, 600000),
    "gpc_below_ms": Key(int, 1000, 0, 60000),
    "gpc_claim_chunks": Key(int, 256, 0, 65536),
    "gpc_stock": Key(int, 256, 0, 1024),
    "gpc_checksum": Key(bool, True),
    "gpc_threads": Key(int, 2, 1, 64),
    "gpc_tag": Key(int, 1, 1, 0xffffffff),
    "gpc_reset": Key(str, "refuse", one_of=("refuse", "tag")),
    "gpc_version_file": Key(str, "", 0, 4095),
    "gpc_keep_tokens": Key(bool, False),
    "gpc_serve": Key(bool, True),
    "gpc_max_peers": Key(int, 64, 2, gpc.MAX_PEERS),
    "gpc_attach_ms": Key(int, 120000, 0, 3600000),
    "gpc_free_target": Key(int, 0, -1, 1 << 20),
    **CACHE,
}


def tell(error):
    """vLLM shows it above other tracebacks."""
    log.error("gpc: the engine cannot use a cache: %s", error)


class Config:
    """An attribute for each key, without the prefix gpc_."""

    def __init__(self, extra):
        try:
            self._read(extra)
        except ConfigError as e:
            tell(e)
            raise

    def _read(self, extra):
        read(self, KEYS, extra, "vllm")
        check(self)
        self.bytes_key = "gpc_bytes" if self.bytes or not self.cpu_bytes_to_use else "cpu_bytes_to_use"
        self.bytes = self.bytes or self.cpu_bytes_to_use
        if not self.bytes:
            raise ConfigError("gpc_bytes: it is missing, 1 to 1125899906842624 is wanted: RAM for all engines of the cache "
                              "together, in bytes")
        if extra.get("canonical_layout"):
            raise ConfigError("canonical_layout: true, only false is supported: ranks store their own pages")
