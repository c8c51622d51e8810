# SPDX-License-Identifier: Apache-2.0
# Tests: t/890-vllm-worker.t
"""The attachment of a worker beside its manager."""

from typing import NamedTuple

import gpc

from ..engines.cache import POOL as POOL


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


def attach_beside(where, label, timeout):
    """A companion: what the manager holds is given to nobody while this handle is open or its process lives.
    gpc.Stale: the manager has gone, and its slots may be others' already."""
    return gpc.attach(where.name, dir=where.dir or None, label=label, layout=where.layout, leader=where.peer,
                      life=where.life, timeout=timeout)
