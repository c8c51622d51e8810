# SPDX-License-Identifier: Apache-2.0
"""The cache of some engines, made by the first one."""

import gpc

from .config import ConfigError

POOL = 0                         # ram_blocks of create
_TRANSIT = 64                    # slots that create adds to a pool of RAM
_STOCK_SHARE = 64                # a stock has at most one in so many slots: nothing is found in them


def _create(name, conf, layout, slot_bytes, block_tokens, label):
    slots = conf.bytes // slot_bytes - _TRANSIT
    if slots < 1:
        raise ConfigError(f"{conf.bytes_key}: {conf.bytes}, at least {(_TRANSIT + 1) * slot_bytes} are "
                          f"wanted: {_TRANSIT + 1} slots of {slot_bytes} bytes")
    return gpc.create(name, dir=conf.dir or None, label=label, layout=layout, serve=conf.serve,
                      stock=min(conf.stock, (slots + _TRANSIT) // _STOCK_SHARE),
                      timeout=conf.attach_ms / 1000, block_tokens=block_tokens, max_peers=conf.max_peers,
                      ram_blocks=slots, ram_flags=gpc.POOL_UNCHAINED, block_bytes=slot_bytes, no_checksums=1,
                      max_blocks=slots + _TRANSIT, free_target=conf.free_target, keep_digests=1)


def _attach(name, conf, layout, label, timeout):
    stock = conf.stock
    while True:
        c = gpc.attach(name, dir=conf.dir or None, label=label, layout=layout, serve=conf.serve, stock=stock,
                       timeout=timeout)
        most = c.pool_get(POOL).blocks // _STOCK_SHARE
        if stock <= most:
            return c
        c.close()                # its size is that of the engine that made it
        stock = most


def open_cache(name, conf, layout, slot_bytes, block_tokens, label):
    """Attach, or make it.  Engines that start at once get one cache; its size is that of the first one."""
    try:
        c = _attach(name, conf, layout, label, 0)
    except (gpc.NotFound, gpc.Again, gpc.TimedOut):     # there is none, or somebody makes it: create waits for that
        try:
            c = _create(name, conf, layout, slot_bytes, block_tokens, label)
        except gpc.Exists:
            c = _attach(name, conf, layout, label, conf.attach_ms / 1000)
    have = c.pool_memory(POOL)
    if have.block_bytes != slot_bytes:
        c.close()
        raise ConfigError(f"gpc_name: {name!r}, its slots have {have.block_bytes} bytes, and {slot_bytes} are wanted: "
                          "another cache has that name")
    return c
