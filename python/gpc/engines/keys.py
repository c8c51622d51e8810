# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/tiers.t
"""The keys that configure the tiers below RAM of a cache: those of gpcd, with gpc_ in front and _ for each hyphen."""

from .config import Key

_BLOCKS = 1 << 24                # of a pool

TIERS = {
    "gpc_disk": Key(str, "", 0, 4095),
    "gpc_disk_bytes": Key(int, 0, 1, 1 << 60),
    "gpc_disk_blocks": Key(int, 0, 1, _BLOCKS),
    "gpc_disk_exclusive": Key(bool, False),
    "gpc_disk_resize": Key(bool, False),
    "gpc_disk_buffered": Key(bool, False),
    "gpc_disk_strict": Key(bool, False),
    "gpc_disk_ahead": Key(int, 0, 1, 4096),
    "gpc_disk_min_uses": Key(int, 0, 1, 255),
    "gpc_disk_max_age": Key(int, 0, 0, (1 << 32) - 1),
    "gpc_disk_write_rate": Key(int, 0, 0, 1 << 50),
    "gpc_key_file": Key(str, "", 0, 4095),
    "gpc_remote": Key(str, "", 0, 4095),
    "gpc_remote_tag": Key(str, "", 0, 32),
    "gpc_remote_blocks": Key(int, 0, 1, _BLOCKS),
    "gpc_remote_min_uses": Key(int, 0, 1, 255),
    "gpc_remote_deadline": Key(int, 0, 1, 600000),
}

# Of each engine's configuration.
CACHE = {
    **TIERS,
    "gpc_config": Key(str, "", 0, 4095),
    "gpc_max_blocks": Key(int, 0, 1, 1 << 28),
}
