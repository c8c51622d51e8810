# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t t/python/sglang-storage.t
"""Keys of an engine's configuration: defaults, ranges, and errors that name key, value and limit."""

import re
from dataclasses import dataclass


class ConfigError(ValueError):
    """A key of the configuration is wrong."""


@dataclass(frozen=True)
class Key:
    """One key.  least and most are limits of a number, or of the length of a text; one_of has all its values."""
    kind: type
    default: object = None
    least: int = 0
    most: int = 0
    one_of: tuple = ()
    needed: bool = False


class Text(str):
    """A value in a file.  at: its place there, and its key."""

    def __new__(cls, value, at):
        self = super().__new__(cls, value)
        self.at = at
        return self


# Keys that each engine has: [engines] of a file has those of them that gpcd lacks.
COMMON = ("gpc_bytes", "gpc_weights", "gpc_stock", "gpc_checksum", "gpc_tag", "gpc_serve", "gpc_max_peers", "gpc_attach_ms",
          "gpc_free_target", "gpc_max_blocks")
_RIVALS = (("gpc_disk_bytes", "gpc_disk_blocks"),)

_KINDS = {int: "a number, as in 536870912 or \"512M\",", str: "a text", bool: "true or false"}
_TRUTH = {"no": False, "yes": True, "false": False, "true": True, "off": False, "on": True, "0": False, "1": True}
_SHIFT = {"": 0, "k": 10, "K": 10, "M": 20, "G": 30, "T": 40}


def _number(text):
    """A number as gpcd reads it: with k, M, G or T for powers of 1024.  None: it is no number."""
    m = re.fullmatch("([0-9]+)([kKMGT]?)", text)
    return m and int(m[1]) << _SHIFT[m[2]]


def _check(name, key, value):
    shown = repr(str(value)) if isinstance(value, Text) else repr(value)
    if key.kind is int and isinstance(value, str) and _number(value) is not None:
        value, name = _number(value), getattr(value, "at", name)
    elif key.kind is bool and isinstance(value, Text) and value in _TRUTH:
        value = _TRUTH[value]
    name = getattr(value, "at", name)
    if key.kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)           # JSON of 1e11
    if not isinstance(value, key.kind) or (key.kind is int and isinstance(value, bool)):
        raise ConfigError(f"{name}: {shown}, {_KINDS[key.kind]} is wanted")
    if key.one_of and value not in key.one_of:
        raise ConfigError(f"{name}: {shown}, one of {', '.join(key.one_of)} is wanted")
    if key.kind is int and not key.least <= value <= key.most:
        raise ConfigError(f"{name}: {value}, {key.least} to {key.most} is wanted")
    if key.kind is str and not key.one_of and len(value.encode()) > key.most:
        raise ConfigError(f"{name}: {len(value.encode())} bytes, at most {key.most} are wanted")
    return str(value) if key.kind is str else value


def _with_file(keys, extra, engine):
    """Keys of the engine's own configuration beat those of the file, together with the keys that they exclude."""
    path = _check("gpc_config", keys["gpc_config"], extra["gpc_config"])
    if not path:
        return extra
    from .file import read_file
    told = read_file(path, keys, engine)
    for pair in _RIVALS:
        if any(k in extra for k in pair):
            for k in pair:
                told.pop(k, None)
    return {**told, **extra}


def read(into, keys, extra, engine=""):
    """Sets an attribute of `into` for each key, without the prefix gpc_.  Other keys have no such prefix."""
    for name in extra:
        if name.startswith("gpc_") and name not in keys:
            raise ConfigError(f"{name}: there is no such key; there are {', '.join(keys)}")
    if "gpc_config" in extra and "gpc_config" in keys:
        extra = _with_file(keys, extra, engine)
    given = {name: _check(name, key, extra[name]) for name, key in keys.items() if name in extra}
    for name, key in keys.items():
        if key.needed and name not in given:
            raise ConfigError(f"{name}: it is missing, {key.least} to {key.most} is wanted")
        setattr(into, name.removeprefix("gpc_"), given.get(name, key.default))
