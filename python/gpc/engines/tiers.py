# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/tiers.t
"""The tiers below RAM that an engine is configured with.  The process that makes the cache makes room for them.  Of the
processes that are configured with them, one keeps them.  tools/daemon/tiers.c has the table; gpcd follows it, too.

    this process              nobody keeps them        another keeps the same    another keeps other ones
    at its start              opens them, or ends      waits                     ends, and names them and
                              with the reason                                    their steward
    later, the writer         opens them               waits                     logs that once
    later, not the writer     opens them when nobody   waits                     logs that once
                              has for GRACE

A process that keeps them and loses the writer's seat closes them, so that the next writer has them.  No process opens
tiers of a cache without a writer.
"""

import atexit
import errno
import logging
import os
import threading
import time

import gpc

from .config import ConfigError
from .secret import make_key, read_key, refuse_lost

FRONT, HEADER, PAGE = 131072, 128, 4096          # bytes of the file; of each block; blocks begin at multiples of
_MOST = 1 << 24                                  # blocks of a pool
LOOK = 0.2                                       # seconds from one look to the next
GRACE = 1.0                                      # seconds that the writer has before others
_OF_DISK = ("bytes", "blocks", "exclusive", "resize", "buffered", "strict", "ahead", "min_uses", "max_age", "write_rate")
_FLAGS = {"exclusive": gpc.TIERS_EXCLUSIVE, "resize": gpc.TIERS_RESIZE, "buffered": gpc.TIERS_BUFFERED,
          "strict": gpc.TIERS_STRICT}


def has_tiers(conf):
    return bool(getattr(conf, "disk", "") or getattr(conf, "remote", ""))


def check(conf):
    """Refuses keys that exclude each other."""
    if not conf.disk:
        for word in _OF_DISK:
            if getattr(conf, "disk_" + word) and not (word == "ahead" and conf.remote):
                raise ConfigError(f"gpc_disk_{word}: gpc_disk is missing: which file?")
    if not conf.remote:
        for word in ("tag", "blocks", "min_uses", "deadline"):
            if getattr(conf, "remote_" + word):
                raise ConfigError(f"gpc_remote_{word}: gpc_remote is missing: which store?")
    if conf.disk_bytes and conf.disk_blocks:
        raise ConfigError(f"gpc_disk_bytes: {conf.disk_bytes}, and gpc_disk_blocks is {conf.disk_blocks}: give one of them")
    if has_tiers(conf) and conf.max_peers < 3:
        raise ConfigError(f"gpc_max_peers: {conf.max_peers}, at least 3 are wanted: with gpc_disk or gpc_remote a process takes "
                          "two seats")
    if conf.disk:
        conf.disk = os.path.abspath(conf.disk)


# ---- room, before the cache is made ----

class Room:
    """blocks: of all tiers."""

    def __init__(self, name, conf, slots, slot_bytes):
        self.key_file = getattr(conf, "key_file", "")
        self.known, self.blocks = read_key(self.key_file) if self.key_file else None, 0
        if getattr(conf, "disk", ""):
            self.blocks += self._of_disk(conf, slot_bytes)
        if getattr(conf, "remote", ""):
            self._try_store(name, conf)
            self.blocks += conf.remote_blocks or min(max(4 * slots, 65536), _MOST)

    def secret(self):
        """The secret that the cache is made with, or None.  All else was checked.  A missing key file is made now; the
        steward makes one with the secret of a disk."""
        if self.key_file and self.known is None:
            self.known = make_key(self.key_file)
        return self.known

    def _file(self, conf):
        try:
            return gpc.tiers_file(conf.disk)
        except gpc.NotFound:
            return None
        except gpc.Error as e:
            if e.errno == errno.EBADMSG and not conf.disk_strict:
                return None              # the file is set aside when it is opened
            raise ConfigError(f"gpc_disk: {e.strerror}") from None

    @staticmethod
    def _try_store(name, conf):
        """Its plugin, and the options of that.  The store itself is asked when the tiers are opened."""
        try:
            gpc.tiers_open(name, dir=conf.dir or None, timeout=0, flags=gpc.TIERS_CHECK, **_of_store(conf))
        except gpc.Again:                # another process makes the cache
            pass
        except gpc.Error as e:
            if not e.strerror.startswith("there is no cache"):
                raise ConfigError(_explain(e, name, conf).strerror) from None

    def _of_disk(self, conf, slot_bytes):
        each, file = -(-slot_bytes // PAGE) * PAGE + HEADER, self._file(conf)
        if conf.disk_bytes and conf.disk_bytes < FRONT + each:
            raise ConfigError(f"gpc_disk_bytes: {conf.disk_bytes}, at least {FRONT + each} are wanted: one block takes {each}, "
                              f"and what the file says of itself {FRONT}")
        blocks = conf.disk_blocks or (conf.disk_bytes and (conf.disk_bytes - FRONT) // each)
        if blocks > _MOST:
            raise ConfigError(f"gpc_disk_bytes: {conf.disk_bytes} are {blocks} blocks of {slot_bytes} bytes, and a file has at "
                              f"most {_MOST}: at most {FRONT + _MOST * each} are wanted")
        if not file:
            if not blocks:
                raise ConfigError(f"gpc_disk: there is no file {conf.disk}: gpc_disk_bytes or gpc_disk_blocks must say how "
                                  "large it is to be")
            folder = os.path.dirname(conf.disk)
            if not os.path.isdir(folder):
                raise ConfigError(f"gpc_disk: {conf.disk} cannot be made: there is no folder {folder}")
            return blocks
        if file.block_bytes != slot_bytes:
            raise ConfigError(f"gpc_disk: {conf.disk} has blocks of {file.block_bytes} bytes, and these have {slot_bytes}: name "
                              "another file, or remove this one")
        if self.key_file and self.known is None and not file.has_secret:
            self.known = read_key(self.key_file)         # another process makes the key file before the disk
            if self.known is None:
                raise refuse_lost(self.key_file, conf.disk)
        if file.has_secret and self.known is not None and self.known != file.secret:
            raise ConfigError(f"gpc_key_file: the keys in {conf.disk} were hashed with another secret than that of "
                              f"{conf.key_file}, and it has that secret: remove {conf.disk}, or name a key file that is not there, "
                              "which is made with it")
        if file.has_secret:
            self.known = file.secret
        return blocks or file.blocks


def max_blocks(conf, needed):
    """For a cache that this process makes: pools of RAM and tiers together, or the number that gpc_max_blocks leaves
    room for."""
    asked = getattr(conf, "max_blocks", 0)
    if asked and asked < needed:
        raise ConfigError(f"gpc_max_blocks: {asked}, at least {needed} are wanted: the blocks of RAM and of all tiers")
    return asked or needed


# ---- opening ----

def _look(disk):
    """The entries of the file's head; None: there are none that count here."""
    try:
        return gpc.tiers_file(disk)
    except gpc.Error:
        return None


def _of_store(conf):
    return {"remote": conf.remote, "remote_tag": conf.remote_tag or None, "remote_blocks": conf.remote_blocks,
            "remote_uses": conf.remote_min_uses, "remote_ms": conf.remote_deadline}


def _options(conf, hear, secret):
    opt = {"dir": conf.dir or None, "timeout": 0, "log": hear}
    if secret:
        opt["secret"] = secret
    if conf.disk:
        opt |= {"disk": conf.disk, "disk_blocks": conf.disk_blocks, "disk_bytes": conf.disk_bytes,
                "flags": sum(flag for word, flag in _FLAGS.items() if getattr(conf, "disk_" + word)),
                "min_uses": conf.disk_min_uses, "max_age_s": conf.disk_max_age, "write_rate": conf.disk_write_rate}
    if conf.remote:
        opt |= _of_store(conf)
    return opt | {"ahead": conf.disk_ahead}


def _explain(e, name, conf):
    text = e.strerror
    key = "gpc_disk" if conf.disk and "remote" not in text and "plugin" not in text else "gpc_remote"
    if e.errno == errno.EUSERS:
        key = "gpc_max_peers"
        text += ". The process that keeps tiers takes a second seat"
    elif e.errno == errno.ENOSPC and "max_blocks" in text:
        text += (f". The engine that made {name} was not told of tiers so large: end all of its engines, run "
                 f"'gpc-inspect rm {name}' and start again")
    elif e.errno == errno.EPROTO and "secret" in text:
        text += (f". An engine that makes the cache anew takes the secret of the file: end all engines, run "
                 f"'gpc-inspect rm {name}' and start again")
    elif "to be resized" in text:
        text += " (gpc_disk_resize)"
    return gpc.Error(e.errno, f"{key}: {text}")


def _same(conf, tier):
    ours = {gpc.DISK: conf.disk, gpc.REMOTE: conf.remote}.get(tier.kind, "")
    if not ours:
        return False
    if ours.encode()[:511] == tier.what.encode()[:511]:
        return True
    try:
        return tier.kind == gpc.DISK and os.path.samefile(ours, tier.what)
    except OSError:
        return False


class Steward:
    """The tiers of one process, which keeps them, or waits until it may."""

    def __init__(self, cache, name, conf, hear, log):
        self.c, self.name, self.conf, self.hear, self.log = cache, name, conf, hear, log
        self.tiers, self.seat, self.told, self.idle_since, self.thread = None, False, "", None, None
        self.ending = threading.Event()
        if conf.remote and not conf.key_file:
            log.warning("gpc: gpc_remote without gpc_key_file: the secret of this cache goes with it, so neither the next cache of "
                        "this machine nor another machine finds what it stores; give each of them gpc_key_file, with a copy of one file")
        self._open()
        self.thread = threading.Thread(target=self._follow, name="gpc-tiers", daemon=True)
        self.thread.start()
        atexit.register(self.close)      # called before the module closes the cache, whose writer they need

    # ---- tiers and stewards that are there ----

    def _others(self):
        """(process that keeps tiers of this cache, the first of them that differs from ours, or nothing); None: no
        process does."""
        pid, kinds, i = 0, set(), 0
        while True:
            try:
                tier = self.c.tier(i)
            except gpc.NotFound:
                break
            if tier.steward < 0:
                return None
            try:
                pid = self.c.stats(tier.steward).pid
            except gpc.Error:
                return None
            if not _same(self.conf, tier) or not self._as_large(tier):
                return pid, tier.what
            kinds.add(tier.kind)
            i += 1
        if not kinds:
            return None
        return pid, "" if len(kinds) == bool(self.conf.disk) + bool(self.conf.remote) else "one tier less"

    def _as_large(self, tier):
        """A file of another size would be refused when it is taken over."""
        asked = self.conf.disk_blocks
        try:
            return (tier.kind != gpc.DISK or not asked or self.conf.disk_resize or
                    self.c.pool_get(tier.pool).blocks == asked)
        except gpc.Error:
            return True

    def _process(self, pid):
        """Names a process by the label of its own seat, since the seat of its tiers has only the label "tiers"."""
        for i in range(gpc.MAX_PEERS):
            try:
                st = self.c.stats(i)
            except gpc.Error:
                continue
            if st.pid == pid and st.label != "tiers":
                return f"process {pid} ({st.label})"
        return f"process {pid}"

    # ---- keeping ----

    def _open(self):
        """gpc.Error or ConfigError: they cannot be kept.  Otherwise this process keeps them, or another one does, or
        there is no writer."""
        others = self._others()
        if others is None:
            try:
                secret, missing = self._secret()
                self.tiers = gpc.tiers_open(self.name, **_options(self.conf, self.hear, secret))
                if missing:
                    self._make_key(secret)
            except gpc.NotConnected:
                return
            except gpc.Error as e:
                others = self._others() if e.errno == errno.EBUSY else None
                if others is None and not (e.errno == errno.EBUSY and "already (peer" in e.strerror):
                    raise _explain(e, self.name, self.conf) from None
        if self.tiers:
            self.told, self.seat = "", self._has_seat()
            self.log.info("gpc: this process keeps the tiers of %s: %s", self.name,
                          " and ".join(t for t in (self.conf.disk, self.conf.remote) if t))
        elif others and others[1]:
            raise ConfigError(f"gpc_disk, gpc_remote: {self._process(others[0])} keeps other tiers of {self.name}, with {others[1]}: "
                              "give the same ones, or end that process")
        elif others:
            self._tell(logging.INFO, f"{self._process(others[0])} keeps the tiers of {self.name}: this one, process {os.getpid()}, takes "
                       "them over when that one ends, unless another is first")

    def _secret(self):
        """(secret of the key file, or None; whether there is no such file, and the secret is the disk's).  The cache is
        there, so a new secret would differ from that of the cache."""
        path = self.conf.key_file
        known = read_key(path) if path else None
        if not path or known:
            return known, False
        file = _look(self.conf.disk) if self.conf.disk else None
        if file and file.has_secret:
            return file.secret, True
        known = read_key(path)           # another process makes it before the cache and the disk
        if known:
            return known, False
        if file:
            raise refuse_lost(path, self.conf.disk)
        raise ConfigError(f"gpc_key_file: there is no file {path}, and it is made with a new cache, or with the secret of a disk: give the "
                          f"one that {self.name} was made with, or leave the key out")

    def _make_key(self, secret):
        try:
            make_key(self.conf.key_file, self.conf.disk, secret)
        except ConfigError as e:
            if self.thread is None:  # at the start it is an error of the configuration; later the tiers go on without
                self._close()
                raise
            self._tell(logging.ERROR, str(e))
            return
        self.log.info("gpc: %s is made, with the secret of %s", self.conf.key_file, self.conf.disk)

    def _tell(self, level, text):
        """Logs a text once, until there is another text."""
        if text != self.told:
            self.log.log(level, "gpc: %s", text)
        self.told = text

    def _has_seat(self):
        info = self.c.info()
        return info.writer_peer == info.peer

    def _step(self):
        info = self.c.info()
        seat = info.writer_peer == info.peer
        if self.tiers:
            if self.seat and not seat and info.writer_pid:
                self.log.warning("gpc: the writer of %s is %s now, so this one, process %d, keeps its tiers no more", self.name,
                                 self._process(info.writer_pid), os.getpid())
                self._close()
            self.seat = self.seat or seat
            return
        now, others = time.monotonic(), self._others()
        if others or not info.writer_pid or self.idle_since is None:
            self.idle_since = now
        if info.writer_pid and not others and (seat or now - self.idle_since >= GRACE):
            self._open()
            self.idle_since = now
        elif others and others[1]:
            self._tell(logging.ERROR, f"{self._process(others[0])} keeps other tiers of {self.name}, with {others[1]}")

    def _follow(self):
        while not self.ending.wait(LOOK):
            try:
                self._step()
            except (gpc.Error, ConfigError) as e:
                if self.c.closed:
                    break
                self._tell(logging.ERROR, f"the tiers of {self.name} are not kept: {e}")
            except ValueError:           # the handle is closed
                break
        self._close()

    def _close(self):
        tiers, self.tiers, self.seat = self.tiers, None, False
        if tiers:
            gpc.tiers_close(tiers)

    def close(self):
        atexit.unregister(self.close)
        self.ending.set()
        self.thread.join()
