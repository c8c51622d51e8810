# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t t/python/sglang-storage.t
"""Keys of an engine's configuration: defaults, ranges, and errors that name key, value and limit."""

from dataclasses import dataclass


class ConfigError(ValueError):
    """A key of the configuration is wrong."""


@dataclass(frozen=True)
class Key:
    """One key.  least and most are limits of a number, or of the length of a text; one_of are all its values."""
    kind: type
    default: object = None
    least: int = 0
    most: int = 0
    one_of: tuple = ()
    needed: bool = False


_KINDS = {int: "a number, as in 536870912", str: "a text", bool: "true or false"}


def _check(name, key, value):
    if key.kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)           # JSON of 1e11
    if not isinstance(value, key.kind) or (key.kind is int and isinstance(value, bool)):
        raise ConfigError(f"{name}: {value!r}, {_KINDS[key.kind]} is wanted")
    if key.one_of and value not in key.one_of:
        raise ConfigError(f"{name}: {value!r}, one of {', '.join(key.one_of)} is wanted")
    if key.kind is int and not key.least <= value <= key.most:
        raise ConfigError(f"{name}: {value}, {key.least} to {key.most} is wanted")
    if key.kind is str and not key.one_of and len(value.encode()) > key.most:
        raise ConfigError(f"{name}: {len(value.encode())} bytes, at most {key.most} are wanted")
    return value


def read(into, keys, extra):
    """An attribute of `into` for each key, without the prefix gpc_.  Keys of others have no such prefix."""
    for name in extra:
        if name.startswith("gpc_") and name not in keys:
            raise ConfigError(f"{name}: there is no such key; there are {', '.join(keys)}")
    for name, key in keys.items():
        if name not in extra:
            if key.needed:
                raise ConfigError(f"{name}: it is missing, {key.least} to {key.most} is wanted")
            value = key.default
        else:
            value = _check(name, key, extra[name])
        setattr(into, name.removeprefix("gpc_"), value)
