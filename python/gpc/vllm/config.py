# SPDX-License-Identifier: Apache-2.0
"""The keys of kv_connector_extra_config: defaults, ranges, and errors that name key, value and limit."""

from dataclasses import dataclass

import gpc


class ConfigError(ValueError):
    """A key of kv_connector_extra_config is wrong."""


@dataclass(frozen=True)
class Key:
    """One key.  least and most are limits of a number, or of the length of a text; one_of are all its values."""
    kind: type
    default: object = None
    least: int = 0
    most: int = 0
    one_of: tuple = ()
    needed: bool = False


KEYS = {
    "cpu_bytes_to_use": Key(int, least=1, most=1 << 50, needed=True),
    "gpc_name": Key(str, "", 0, gpc.MAX_NAME - 1),
    "gpc_dir": Key(str, "", 0, 255),
    "gpc_weights": Key(str, "", 0, 255),
    "gpc_pending_ms": Key(int, 2000, 0, 600000),
    "gpc_claim_chunks": Key(int, 256, 0, 65536),
    "gpc_stock": Key(int, 64, 0, 4096),
    "gpc_checksum": Key(bool, True),
    "gpc_threads": Key(int, 2, 1, 64),
    "gpc_tag": Key(int, 1, 1, 0xffffffff),
    "gpc_reset": Key(str, "refuse", one_of=("refuse", "tag")),
    "gpc_serve": Key(bool, True),
    "gpc_max_peers": Key(int, 64, 2, gpc.MAX_PEERS),
    "gpc_attach_ms": Key(int, 120000, 0, 3600000),
    "gpc_free_target": Key(int, 0, -1, 1 << 20),
}


def _check(name, key, value):
    if key.kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)           # JSON of 1e11
    if not isinstance(value, key.kind) or (key.kind is int and isinstance(value, bool)):
        raise ConfigError(f"{name}: {value!r}, a {key.kind.__name__} is wanted")
    if key.one_of and value not in key.one_of:
        raise ConfigError(f"{name}: {value!r}, one of {', '.join(key.one_of)} is wanted")
    if key.kind is int and not key.least <= value <= key.most:
        raise ConfigError(f"{name}: {value}, {key.least} to {key.most} is wanted")
    if key.kind is str and not key.one_of and len(value.encode()) > key.most:
        raise ConfigError(f"{name}: {len(value.encode())} bytes, at most {key.most} are wanted")
    return value


class Config:
    """An attribute for each key, without the prefix gpc_."""

    def __init__(self, extra):
        for name in extra:
            if name.startswith("gpc_") and name not in KEYS:
                raise ConfigError(f"{name}: there is no such key; there are {', '.join(KEYS)}")
        if extra.get("canonical_layout"):
            raise ConfigError("canonical_layout: true, only false is supported: ranks store their own pages")
        for name, key in KEYS.items():
            if name not in extra:
                if key.needed:
                    raise ConfigError(f"{name}: it is missing, {key.least} to {key.most} is wanted")
                value = key.default
            else:
                value = _check(name, key, extra[name])
            setattr(self, name.removeprefix("gpc_"), value)
