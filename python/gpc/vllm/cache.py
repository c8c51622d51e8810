# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-failures.t t/python/vllm-worker.t
"""The attachment of a worker beside its manager."""

import errno
from typing import NamedTuple

import gpc

from ..engines.cache import POOL as POOL
from ..engines.config import ConfigError


class Where(NamedTuple):
    """How a worker attaches as a companion of its manager."""
    name: str
    dir: str
    peer: int
    life: int
    layout: bytes


def where(c, name, conf, layout):
    info = c.info()
    return Where(name, conf.dir, info.peer, info.life, layout)


def explain_attach(e, folder, label):
    """The reason why a worker cannot do its work, in the words of the configuration.  e: None where no manager was
    found."""
    if e is not None and e.errno == errno.EUSERS:
        return gpc.Error(e.errno, f"gpc_max_peers: {label} finds no seat: {e.strerror}. An engine takes one for its scheduler "
                         "and one for each worker; end other engines, or end all, gpc-inspect rm the cache, and let the next "
                         "one make it with more")
    return ConfigError(f"gpc_dir: {label} does not find the cache of its scheduler in {folder or '/dev/shm'}"
                       f"{': ' + str(e) if e else ''}. All processes of an engine have to see the same folder, on one "
                       "machine")


def attach_beside(where, label, timeout):
    """Attaches as a companion: while this handle is open, or its process lives, no other process gets the manager's
    blocks.  gpc.Stale: the manager has gone, and other processes may have its slots already."""
    return gpc.attach(where.name, dir=where.dir or None, label=label, layout=where.layout, leader=where.peer,
                      life=where.life, timeout=timeout)
