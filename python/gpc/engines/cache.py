# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-seen.t t/python/vllm-gpcd.t t/python/vllm-register.t t/python/tiers.t
#   t/python/vllm-manager.t
"""The cache that some engines share; the first engine makes it."""

import errno
import logging

import gpc

from . import words as kept
from .config import ConfigError
from .tiers import Steward, Room, has_tiers, max_blocks
from .wants import Wants

POOL = 0                         # ram_blocks of create
_PAGE = 4096
_TRANSIT = 64                    # slots that create adds to a pool of RAM
_OFFERED, _MOST_OFFERS = 64000, 1 << 22        # chunks whose offers are counted, and offers; 43 bytes each
_OF_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EROFS)
_LEVELS = {4: logging.WARNING, 5: logging.INFO}         # of syslog.h
_STOCK_SHARE = 64                # a stock holds at most one slot of so many, since a stock's slots hold no keys


def _pass_on(log):
    """The library's log: no other process reports on a cache that is served here."""
    def hear(level, text):
        log.log(logging.ERROR if level < 4 else _LEVELS.get(level, logging.DEBUG), "gpc: %s", text)
    return hear


def _stride(slot_bytes):
    """Images begin at addresses from which a disk and a GPU can read fast."""
    return -(-slot_bytes // _PAGE) * _PAGE


def _runs(slot_bytes, sums, slots):
    """Each part of the image lies by itself, slot after slot, so the memory that one rank copies and registers is in
    one piece."""
    part = slot_bytes // sums
    return [gpc.Run(bytes=part, offset=i * slots * _stride(part), slot_stride=_stride(part)) for i in range(sums)]


def _slots(conf, stride):
    return conf.bytes // stride - _TRANSIT


def _create(name, conf, layout, slot_bytes, block_tokens, label, hear, sums, making):
    stride = sums * _stride(slot_bytes // sums)
    slots = _slots(conf, stride)
    if slots < 1:
        raise ConfigError(f"{conf.bytes_key}: {conf.bytes}, at least {(_TRANSIT + 1) * stride} are "
                          f"wanted: {_TRANSIT + 1} slots of {stride} bytes")
    room = Room(name, conf, slots, slot_bytes)
    most = max_blocks(conf, slots + _TRANSIT + room.blocks)
    offers = max(getattr(conf, "store_threshold", 0) - 1, 0)         # each takes an alias
    making()
    return gpc.create(name, dir=conf.dir or None, label=label, layout=layout, serve=conf.serve, log=hear,
                      stock=min(conf.stock, (slots + _TRANSIT) // _STOCK_SHARE),
                      timeout=conf.attach_ms / 1000, block_tokens=block_tokens, max_peers=conf.max_peers,
                      ram_blocks=slots, ram_flags=gpc.POOL_UNCHAINED, sums=sums,
                      ram_runs=_runs(slot_bytes, sums, slots + _TRANSIT),
                      max_blocks=most, secret=room.secret(),
                      max_aliases=min(max(_OFFERED, 2 * slots) * offers, _MOST_OFFERS), free_target=conf.free_target, keep_digests=1,
                      keep_tokens=int(getattr(conf, "keep_tokens", False)))


def _attach(name, conf, layout, label, timeout, hear):
    stock = conf.stock
    while True:
        c = gpc.attach(name, dir=conf.dir or None, label=label, layout=layout, serve=conf.serve, stock=stock,
                       timeout=timeout, log=hear)
        try:
            most = c.pool_get(POOL).blocks // _STOCK_SHARE
        except gpc.NotFound:
            return c             # the code that looks at its pool refuses it
        if stock <= most:
            return c
        c.close()                # its size is that of the engine that made it
        stock = most


def _attach_or_create(name, conf, layout, slot_bytes, block_tokens, label, hear, words, sums, making):
    """Returns also whether this process has made it."""
    try:
        return _attach(name, conf, layout, label, 0, hear), False
    # there is none, or another process is making it: create waits for that
    except (gpc.NotFound, gpc.Again, gpc.TimedOut):
        pass
    try:
        c = _create(name, conf, layout, slot_bytes, block_tokens, label, hear, sums, making)
    except gpc.Exists:
        return _attach(name, conf, layout, label, conf.attach_ms / 1000, hear), False
    if words:
        kept.keep(name, conf.dir, words)
    return c, True


_NO_FINGERPRINT = "no fingerprint"


def _what_differs(name, conf, words):
    """Compares by the words of the two fingerprints, if the cache has kept its own.  gpc.Error: it has no fingerprint
    for us, since another version of gpc made it."""
    with gpc.attach(name, dir=conf.dir or None, timeout=0) as c:
        if not any(c.info().layout):
            return _NO_FINGERPRINT
        theirs = words and kept.read(name, conf.dir, c.info().layout)
    return theirs and kept.tell(words, theirs)


def _explain(e, name, conf, layout, words, wants):
    """The same error in the words of the configuration."""
    if e.errno == errno.ENOSPC:
        return gpc.NoSpace(e.errno, f"{conf.bytes_key}: {conf.bytes}: {e.strerror}. Ask for less, or make room: a tmpfs "
                           "is resized with mount -o remount,size=..., a container gets --shm-size")
    if e.errno == errno.EPROTO:
        try:
            why = _what_differs(name, conf, words)
        except gpc.Error as other:
            return gpc.Error(other.errno, f"gpc_name: {other.strerror}")
        if why is _NO_FINGERPRINT:
            return gpc.Error(e.errno, f"gpc_name: {name} has no fingerprint, as gpcd makes a cache without --layout. For this engine "
                             f"[gpcd] of gpcd's file needs {wants.lines()}; end gpcd, run 'gpc-inspect rm {name}', and start it again. Or "
                             "give this engine another gpc_name, or none")
        why = why or (
            "weights, configuration of the model, dtype or layout of the KV cache, sizes of blocks and chunks, or "
            f"parallel sizes: its fingerprint is not ours, {layout[:8].hex()}")
        return gpc.Error(e.errno, f"gpc_name: {name} was made by an engine that differs: {why}. Give this engine another "
                         f"gpc_name, or none; if that cache is not needed, gpc-inspect rm {name}")
    if e.errno == errno.EUSERS:
        return gpc.Error(e.errno, f"gpc_max_peers: {e.strerror}. Each process of an engine that uses the cache takes one; end other "
                         f"engines, or end all, gpc-inspect rm {name}, and let the next one make it with more")
    if e.errno in _OF_FOLDER:
        return type(e)(e.errno, f"gpc_dir: {conf.dir or '/dev/shm'}: {e.strerror}. A folder is wanted that this process may "
                       "write to, in memory")
    return e


def slot_stride(c):
    """The bytes of a slot."""
    return sum(r.slot_stride for r in c.pool_runs(POOL))


def slots_of(c):
    """Bytes of all slots, transit included.  pool_memory gives them too, but reads all of /proc/self/smaps."""
    p = c.pool_get(POOL)
    return p.blocks + p.transit


def image_bytes(c):
    return sum(r.count * r.bytes for r in c.pool_runs(POOL))


def bytes_of(c):
    """Of all slots."""
    return slots_of(c) * slot_stride(c)


def _compare_size(c, name, conf, log):
    have, stride = bytes_of(c), slot_stride(c)
    log.info("gpc: the cache %s has %d MiB", name, have >> 20)
    if abs(have - conf.bytes) >= stride:
        log.warning("gpc: %s: %d MiB are asked for, and the cache %s was made with %d MiB. To change that, end all of its "
                    "engines, run 'gpc-inspect rm %s' and start again", conf.bytes_key, conf.bytes >> 20, name,
                    have >> 20, name)


def open_cache(name, conf, layout, slot_bytes, block_tokens, label, log, words=None, sums=1, making=lambda: None):
    """Attaches to the cache, or makes it.  Engines that start at once get one cache, whose size is that of the first
    one.  words: those of the fingerprint (words.py), which name the differences.  sums: the number of parts of an
    image; each part has a sum.  making(): called before memory is made, or another process is waited for that makes it."""
    hear = _pass_on(log)
    wants = Wants(layout, slot_bytes, block_tokens, sums, _slots(conf, sums * _stride(slot_bytes // sums)),
                  getattr(conf, "keep_tokens", False))
    try:
        c, made = _attach_or_create(name, conf, layout, slot_bytes, block_tokens, label, hear, words, sums, making)
    except gpc.Error as e:
        raise _explain(e, name, conf, layout, words, wants) from None
    lacking = not made and wants.lacking(c)
    if lacking:
        c.close()
        raise ConfigError(f"gpc_name: {wants.refusal(name, lacking)}")
    _compare_size(c, name, conf, log)
    if has_tiers(conf):
        try:
            _stewards[id(c)] = Steward(c, name, conf, hear, log)
        except (gpc.Error, ConfigError):
            alone = made and c.info().peers <= 1
            c.close()
            if alone:            # no process was told of it, and the next one makes it anew
                gpc.unlink(name, dir=conf.dir or None)
            raise
    return c


_stewards = {}                    # id of a cache -> that of its tiers


def close_cache(c):
    """The cache that open_cache has returned, and the tiers that this process keeps of it, as long as it serves."""
    steward = _stewards.pop(id(c), None)
    if steward:
        steward.close()
    c.close()
