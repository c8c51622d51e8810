# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/tiers.t
"""The file that gpc_config names: keys of all engines, and of gpcd.  gpcd reads the same file by --config (gpcd(8),
CONFIGURATION FILE), and tools/daemon/config.c refuses the same files."""

import configparser
import re

from .config import COMMON, ConfigError, Text
from .keys import TIERS

ENGINES = ("vllm", "sglang", "lmcache")
SECTIONS = ("gpc", "gpcd", "engines") + ENGINES
SHARED = ("gpc_name", "gpc_dir", *TIERS)         # of [gpc], which gpcd takes as well
MOST_LINE = 198                                  # bytes: the limit of the library by which gpcd reads it
_MOST = 1 << 20
_PATHS = ("gpc_dir", "gpc_disk", "gpc_key_file", "gpc_version_file")


def _load(path):
    try:
        with open(path, "rb") as f:
            data = f.read(_MOST + 1)
    except OSError as e:
        raise ConfigError(f"gpc_config: {path}: {e.strerror}") from None
    if len(data) > _MOST:
        raise ConfigError(f"gpc_config: {path} has more than {_MOST} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        raise ConfigError(f"gpc_config: {path}: byte {e.start} begins no character of UTF-8") from None


def _scan(path, text, mine):
    """The line of each (section, key); the form of each line is checked first.  mine: sections that are read here."""
    section, lines, after_value = "", {}, False
    for n, line in enumerate(text.split("\n"), 1):
        def refuse(why, n=n):
            raise ConfigError(f"gpc_config: {path}:{n}: {why}")

        if len(line.encode()) > MOST_LINE or "\0" in line:
            refuse(f"the line has more than {MOST_LINE} bytes, or a zero byte: one below it that begins with a blank "
                   "goes on with its value")
        bare = line.strip(" \t\r\v\f")
        if not bare or bare[0] in ";#[":
            after_value = False
            if bare[:1] == "[":
                if "]" not in bare:
                    refuse("the line is neither [SECTION] nor KEY = VALUE")
                section = bare[1:bare.index("]")]
            continue
        if line[0] in " \t\r\v\f":
            if not after_value:
                refuse("the line begins with a blank, and there is no value in the line above that it could go on with")
            continue
        after_value = True
        key, *value = re.split("[=:]", re.split(r"\s;", bare)[0], maxsplit=1)
        key = key.strip()
        if not value:
            refuse("the line is neither [SECTION] nor KEY = VALUE")
        if section not in SECTIONS:
            refuse(f"{key}: {f'[{section}] is no section' if section else 'no section is above it'}; there are {', '.join(f'[{s}]' for s in SECTIONS)}")
        for other in {section, *(mine if section in mine else ())}:
            if (other, key) in lines:
                before, was = lines[other, key]
                refuse(f"{key}: it is given twice, {was!r} in line {before} and {value[0].strip()!r} here")
        lines[section, key] = n, value[0].strip()
    return {at: n for at, (n, _) in lines.items()}


def read_file(path, keys, engine):
    """The keys in the file that are this engine's, as they would stand in its configuration."""
    text = _load(path).removeprefix("\ufeff")
    mine = ("gpc", "engines", engine)
    lines = _scan(path, text, mine)
    parser = configparser.RawConfigParser(strict=False, interpolation=None, inline_comment_prefixes=(";",),
                                          default_section="\0", empty_lines_in_values=False)
    parser.optionxform = str
    try:
        parser.read_string(text)
    except configparser.Error as e:
        raise ConfigError(f"gpc_config: {path}: {e}") from None
    out = {}
    for (section, key), n in lines.items():
        if section not in mine:
            continue
        value = parser.get(section, key).replace("\n", "")
        name, where = "gpc_" + key.replace("-", "_"), f"gpc_config: {path}:{n}: {key}"
        has = {"gpc": SHARED, "engines": COMMON}.get(section) or \
            [k for k in keys if k.startswith("gpc_") and k not in SHARED and k != "gpc_config"]
        if name not in has or name not in keys or "_" in key:
            words = ", ".join(k.removeprefix("gpc_").replace("_", "-") for k in has)
            raise ConfigError(f"{where}: there is no such key, and {value!r} is its value; [{section}] has {words}")
        if name in _PATHS and not value.startswith("/"):
            raise ConfigError(f"{where}: {value!r} does not begin with /, and processes of several folders read this file")
        out[name] = Text(value, where)
    return out
