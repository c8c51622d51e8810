# SPDX-License-Identifier: Apache-2.0
"""The cache of a manager, made by the first one, and the attachment of a worker beside it."""

from typing import NamedTuple

import gpc

from .config import ConfigError

POOL = 0                         # ram_blocks of create
_TRANSIT = 64                    # slots that create adds to a pool of RAM


class Where(NamedTuple):
    """How a worker attaches as a companion of its manager."""
    name: str
    dir: str
    peer: int
    life: int
    layout: bytes


def _create(name, conf, layout, image, block_tokens, label):
    slots = conf.cpu_bytes_to_use // image.bytes - _TRANSIT
    if slots < 1:
        raise ConfigError(f"cpu_bytes_to_use: {conf.cpu_bytes_to_use}, at least {(_TRANSIT + 1) * image.bytes} are "
                          f"wanted: {_TRANSIT + 1} slots of {image.bytes} bytes")
    return gpc.create(name, dir=conf.dir or None, label=label, layout=layout, serve=conf.serve, stock=conf.stock,
                      timeout=conf.attach_ms / 1000, block_tokens=block_tokens, max_peers=conf.max_peers,
                      ram_blocks=slots, ram_flags=gpc.POOL_UNCHAINED, block_bytes=image.bytes, no_checksums=1,
                      max_blocks=slots + _TRANSIT, free_target=conf.free_target, keep_digests=1)


def _attach(name, conf, layout, label, timeout):
    return gpc.attach(name, dir=conf.dir or None, label=label, layout=layout, serve=conf.serve, stock=conf.stock,
                      timeout=timeout)


def open_cache(name, conf, layout, image, block_tokens, label):
    """Attach, or make it.  Engines that start at once get one cache; its size is that of the first one."""
    try:
        c = _attach(name, conf, layout, label, 0)
    except (gpc.NotFound, gpc.Again, gpc.TimedOut):     # there is none, or somebody makes it: create waits for that
        try:
            c = _create(name, conf, layout, image, block_tokens, label)
        except gpc.Exists:
            c = _attach(name, conf, layout, label, conf.attach_ms / 1000)
    have = c.pool_memory(POOL)
    if have.block_bytes != image.bytes:
        c.close()
        raise ConfigError(f"gpc_name: {name!r}, its slots have {have.block_bytes} bytes, and {image.bytes} are wanted: "
                          "another cache has that name")
    return c


def where(c, name, conf, layout):
    info = c.info()
    return Where(name, conf.dir, info.peer, info.life, layout)


def attach_beside(where, label, timeout):
    """A companion: what the manager holds is given to nobody while this handle is open or its process lives.
    gpc.Stale: the manager has gone, and its slots may be others' already."""
    return gpc.attach(where.name, dir=where.dir or None, label=label, layout=where.layout, leader=where.peer,
                      life=where.life, timeout=timeout)
