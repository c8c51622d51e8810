# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/tiers.t
"""The file of the secret that keys are hashed with: gpc_key_file.  It works as in tools/daemon/key.c: the file is made
beside its name, and gets the name when all of it is on the disk.  Two processes that make it at the same time get one
file.  key.c has the table of the files that are made, taken and refused."""

import os
import re
import stat
import tempfile

from .config import ConfigError

_DIGITS = 32


def _look_at_mode(path, st):
    """As with the files of a cache, a member of the file's group is trusted."""
    if st.st_mode & 0o37:
        raise ConfigError(f"gpc_key_file: others could read {path}, or its group write to it: chmod 600 it, or 640")
    if st.st_uid == os.geteuid():
        return
    if not st.st_mode & 0o40:
        raise ConfigError(f"gpc_key_file: {path} belongs to user {st.st_uid}, and its mode lets in nobody else: gpcd --group of that "
                          "user gives it mode 640 and a group")
    if st.st_gid not in {os.getegid(), *os.getgroups()}:
        raise ConfigError(f"gpc_key_file: {path} belongs to user {st.st_uid}, and this one is not in its group {st.st_gid}")


def _read(path):
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as f:
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            raise ConfigError(f"gpc_key_file: {path} is no regular file")
        _look_at_mode(path, st)
        text = f.read(_DIGITS + 2)
    if not re.fullmatch(b"[0-9a-fA-F]{%d}\n?" % _DIGITS, text):
        raise ConfigError(f"gpc_key_file: {path} has not the {_DIGITS} hex digits of a key; move it away, and a new one is made, "
                          "or copy the one of the other machines here")
    return bytes.fromhex(text.strip().decode())


def _make(path, secret):
    folder = os.path.dirname(path)
    fd, new = tempfile.mkstemp(prefix=os.path.basename(path) + ".", dir=folder)
    try:
        with open(fd, "wb") as f:
            f.write(secret.hex().encode() + b"\n")
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
        return                           # a user who may write there need not be able to read it
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _cannot(path, e):
    hint = ". gpcd --group gives its key file mode 640 and that group; its folder has to let this user in, too"
    return ConfigError(f"gpc_key_file: {path}: {e.strerror}{hint if isinstance(e, PermissionError) else ''}")


def read_key(path):
    """16 bytes of the file; None if there is none."""
    path = os.path.abspath(path)
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise _cannot(path, e) from None


def make_key(path, disk="", secret=None):
    """16 bytes of the file, made with a new secret, or with that of a disk: another process may be faster."""
    path = os.path.abspath(path)
    try:
        _make(path, secret or os.urandom(_DIGITS // 2))
        there = _read(path)
    except OSError as e:
        raise _cannot(path, e) from None
    if secret and there != secret:
        raise ConfigError(f"gpc_key_file: another process has made {path} meanwhile, with another secret than that of {disk}: move it "
                          f"away, or remove {disk}")
    return there


def refuse_lost(path, disk):
    """The disk has a check of its secret alone."""
    return ConfigError(f"gpc_key_file: there is no file {path}, and the keys in {disk} were hashed with a secret that a key file has: put "
                       f"back the one that it was made with, or remove {disk}")
