# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/tiers.t
"""The file of the secret that keys are hashed with: gpc_key_file.  As tools/daemon/key.c has it: it is made beside its name
and gets the name when all of it is on the disk; two that make it at a time have one."""

import os
import re
import stat
import tempfile

from .config import ConfigError

_DIGITS = 32


def _read(path):
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as f:
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            raise ConfigError(f"gpc_key_file: {path} is no regular file")
        if st.st_uid != os.geteuid():
            raise ConfigError(f"gpc_key_file: {path} belongs to user {st.st_uid}: it must be this user's, with mode 0600")
        if st.st_mode & 0o77:
            raise ConfigError(f"gpc_key_file: others could read {path}: chmod 600 it")
        text = f.read(_DIGITS + 2)
    if not re.fullmatch(b"[0-9a-fA-F]{%d}\n?" % _DIGITS, text):
        raise ConfigError(f"gpc_key_file: {path} has not the {_DIGITS} hex digits of a key; move it away, and a new one is made, "
                          "or copy the one of the other machines here")
    return bytes.fromhex(text.strip().decode())


def _make(path):
    folder = os.path.dirname(path)
    fd, new = tempfile.mkstemp(prefix=os.path.basename(path) + ".", dir=folder)
    try:
        with open(fd, "wb") as f:
            f.write(os.urandom(_DIGITS // 2).hex().encode() + b"\n")
            f.flush()
            os.fsync(f.fileno())
        try:
            os.link(new, path)
        except FileExistsError:
            pass
    finally:
        os.unlink(new)
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return                           # who may write there need not read it
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def take_key(path):
    """16 bytes of the file, which is made where there is none."""
    path = os.path.abspath(path)
    try:
        try:
            return _read(path)
        except FileNotFoundError:
            _make(path)
            return _read(path)
    except OSError as e:
        raise ConfigError(f"gpc_key_file: {path}: {e.strerror}") from None
