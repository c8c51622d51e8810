# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-words.t
"""The words of a fingerprint: a file beside the cache's files, gpc.NAME.words, with the JSON whose SHA-256 is the
fingerprint.  An earlier cache of that name may have left such a file.  Its sum then differs, so it is not used.

The process that makes the cache writes the file at once; gpc_unlink removes it with the cache."""

import hashlib
import json
import os

_MOST = 1 << 20                  # bytes of the file that are looked at
_TOLD = 3                        # differences that a message names


def bytes_of(words):
    """Equal words give equal bytes."""
    return json.dumps(words, sort_keys=True, separators=(",", ":")).encode()


def fingerprint(words):
    return hashlib.sha256(bytes_of(words)).digest()


def _path(name, folder):
    return os.path.join(folder or "/dev/shm", f"gpc.{name}.words")


def keep(name, folder, words):
    """A cache without its words is as good as one with them; only a message has less to say."""
    path = _path(name, folder)
    try:
        fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as f:
            f.write(bytes_of(words))
        os.rename(path + ".tmp", path)
    except OSError:
        pass


def read(name, folder, layout):
    """The words of the cache that has this fingerprint, or None."""
    try:
        with open(os.open(_path(name, folder), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as f:
            data = f.read(_MOST)
        return json.loads(data) if hashlib.sha256(data).digest() == layout else None
    except (OSError, ValueError):
        return None


def differences(ours, theirs, at=""):
    """(field, ours, theirs) of all differences; None: there is none."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        out = []
        for k in sorted({*ours, *theirs}):
            out += differences(ours.get(k), theirs.get(k), f"{at}.{k}" if at else k)
        return out
    return [] if ours == theirs else [(at, ours, theirs)]


def _text(value):
    text = "none" if value is None else json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 80 else text[:77] + "..."


def tell(ours, theirs):
    """"rope_parameters.factor is 4.0 here and 1.0 there", or nothing."""
    found = differences(ours, theirs)
    told = [f"{at} is {_text(a)} here and {_text(b)} there" for at, a, b in found[:_TOLD]]
    return ", ".join(told + [f"and {len(found) - _TOLD} more"] * (len(found) > _TOLD))
