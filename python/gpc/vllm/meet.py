# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-coming.t t/python/vllm-failures.t
"""How the workers of an engine find their manager before its first job.

vLLM makes the workers first, and only the scheduler's manager knows the cache: its name comes from a fingerprint, which
a worker of a later pipeline stage cannot compute.  So the manager leaves a file beside the cache's files,

    gpc-vllm-ENGINE-PID.where       ENGINE: a hash of vLLM's engine_id, which its workers have, too

and removes it in its first step, when all workers have attached, or with its end or that of its process.  A manager
that was killed before that has left a file that names a life that is over.  A worker that tries to attach sees that,
and removes the file.  The process that has left a file holds its lock (flock), and the next one that leaves one removes
those without a lock.

If the cache is being made (coming.py), the file has COMES in place of a manager, and a worker attaches with its first
job, which names the manager.  vLLM 0.33 asks its workers again when an engine wakes, perhaps before that job.  So this
file stays until the cache is there, and the file of the manager that follows stays until its end."""

import atexit
import fcntl
import glob
import hashlib
import json
import os

import gpc

from ..engines.config import ConfigError
from .cache import Where

COMES = "comes"
_held = {}               # path -> the descriptor that has the lock


def _prefix(folder, engine):
    return os.path.join(folder or "/dev/shm", f"gpc-vllm-{hashlib.sha256(str(engine).encode()).hexdigest()[:16]}-")


def leave(where, engine):
    """The path of the file."""
    return _leave(where._replace(layout=where.layout.hex()), where.dir, engine)


def leave_word(folder, engine):
    """The same where the cache is being made."""
    return _leave(COMES, folder, engine)


def _leave(what, folder, engine):
    path = f"{_prefix(folder, engine)}{os.getpid()}.where"
    try:
        _sweep(folder)
        fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w", closefd=False) as f:
            fcntl.flock(fd, fcntl.LOCK_EX)
            json.dump(what, f)
        os.rename(path + ".tmp", path)
        _let_go(path)
        _held[path] = fd
        atexit.register(_end, path, os.getpid())
        return path
    except OSError as e:
        raise ConfigError(f"gpc_dir: the workers of this engine get no word of its cache: {path}: {e.strerror}") from None


def _end(path, pid):
    if os.getpid() == pid:       # and not a child of a fork
        remove(path)


def remove(path):
    try:
        os.unlink(path)
    except OSError:
        pass
    _let_go(path)


def _let_go(path):
    if (fd := _held.pop(path, None)) is not None:
        os.close(fd)


def _sweep(folder):
    """Removes what processes that have gone have left."""
    for path in glob.glob(os.path.join(folder or "/dev/shm", "gpc-vllm-*.where")):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:          # another user's, or it has gone
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                os.unlink(path)
        except OSError:          # its process lives
            pass
        os.close(fd)


def _read(path):
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as f:
            found = json.load(f)
        if found == COMES:
            return COMES
        found = Where(*found)
        return found._replace(layout=bytes.fromhex(found.layout))
    except (OSError, ValueError, TypeError):
        return None


def attach(folder, engine, call):
    """Calls call(where) for the manager of that engine.  COMES: its cache is being made.  None: no file leads to one."""
    comes = None
    for path in sorted(glob.glob(_prefix(folder, engine) + "*.where"), key=_age, reverse=True):
        found = _read(path)
        try:
            if found == COMES:
                comes = COMES
            elif found:
                return call(found)
        except gpc.Stale:        # that manager has gone
            remove(path)
    return comes


def _age(path):
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
