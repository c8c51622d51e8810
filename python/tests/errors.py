# SPDX-License-Identifier: Apache-2.0
"""Exceptions carry errno and a sentence; what has timed out is told, and nothing is lost."""

import array
import errno

import gpc
from tap import create, done, is_, name, ok, raises

e = raises(gpc.NotFound, "there is no cache", lambda: gpc.attach(name + "-none"), "attach: no such name")
is_((e.errno, isinstance(e, gpc.Error), isinstance(e, OSError), isinstance(e, LookupError)),
    (errno.ENOENT, True, True, True), "the exception is gpc.Error, OSError and LookupError, with errno")
is_(e.strerror in str(e) and len(e.strerror) > 10, True, "strerror is the sentence")
raises(gpc.Error, "", lambda: gpc.attach("a/b"), "attach: a bad name")

raises(gpc.Error, "", lambda: gpc.attach("\udcff"), "attach: a name that is no UTF-8")

# nobody is the writer here
c = create(serve=False, vram_blocks=10, free_target=-1)
raises(gpc.NotConnected, "", lambda: c.reserve(0, 1), "reserve: no writer")
raises(gpc.Exists, "", lambda: gpc.create(name, vram_blocks=10), "create: the name is taken")
raises(FileExistsError, "", lambda: gpc.create(name), "which is a FileExistsError")
raises(gpc.Error, "", lambda: gpc.create(name, if_absent=True, vram_blocks=11), "if_absent: other geometry")
other = gpc.create(name, if_absent=True, vram_blocks=10)
is_(other.info().peers, 2, "if_absent attaches")

c.writer_take()
raises(gpc.Again, "", lambda: other.writer_take(), "writer_take: it is taken")
raises(gpc.TimedOut, "", lambda: other.writer_take(flags=gpc.STANDBY, timeout=0.01), "standby: time is up")
raises(TimeoutError, "", lambda: other.reserve(0, 1, timeout=0.05), "the writer does not serve: TimeoutError")
raises(gpc.Again, "", lambda: other.reserve(0, 1, timeout=0), "timeout 0: Again")
while c.writer_serve(0):
    pass
c.writer_wake()
is_(c.writer_serve(), 0, "writer_wake ends the wait of writer_serve")

# the writer's own calls serve; the other one's publishes wait for it
b = None
import threading
t = threading.Thread(target=lambda: globals().update(b=other.reserve(0, 4)))
t.start()
while t.is_alive():
    c.writer_serve(0.01)
t.join()
is_(len(b), 4, "a reserve of another thread is answered, which waits without the GIL")
ids = other.key_import([bytes([i]) * 8 for i in range(1, 5)])
res = array.array("i", [77] * 4)
e = raises(gpc.TimedOut, "", lambda: other.publish(None, ids, b, timeout=0.01, resident=res),
           "a publish that nobody answers: TimedOut")
ok(e.ticket > 0, "its ticket is an attribute")
raises(BufferError, "", lambda: res.append(1), "the buffer of its answers is kept: it cannot be resized")
raises(gpc.TimedOut, "", lambda: other.ticket_wait(e.ticket, timeout=0.01), "ticket_wait: TimedOut")
raises(BufferError, "", lambda: res.append(1), "and it is kept still")
e2 = raises(gpc.TimedOut, "", lambda: other.drop(b[3:], timeout=0.01), "drop: TimedOut")
ok(e2.ticket > e.ticket, "with a ticket")
while c.writer_serve(0):
    pass
other.ticket_wait()
is_(list(res), b, "when it is answered, the buffer has it")
res.append(1)
ok(True, "and may be resized again")
raises(gpc.Denied, "", lambda: c.release(b[:1]), "release: not your block")
is_(other.lookup(ids), b[:3] + [-1], "what was dropped is not found")
p = other.publish(None, ids[:16], b[:1], resident=res, timeout=0)
other.close()
is_(c.stats().reserved, 0, "close gives everything back, and what was kept")
res.append(1)
ok(True, "its buffer, too")

raises(gpc.NoSpace, "", lambda: c.reserve(0, 11), "reserve: more than there are")
raises(gpc.NotFound, "", lambda: c.pool_get(5), "pool_get: no such pool")
raises(gpc.NotFound, "", lambda: c.stats(20), "stats: an empty seat")
raises(gpc.Invalid, "", lambda: c.reserve(0, 1, flags=1 << 30), "flags that the call does not take")
raises(ValueError, "", lambda: c.reserve(0, 1, flags=gpc.QUIET), "are a ValueError")

r = gpc.attach(name, readonly=True)
raises(gpc.Denied, "", lambda: r.reserve(0, 1), "a read-only handle")
raises(PermissionError, "", lambda: r.release([0]), "which is a PermissionError")
is_(r.info().peer, -1, "has no seat")
r.close()
raises(ValueError, "closed", lambda: r.info(), "a closed handle")
c.writer_drop()
with gpc.attach(name, timeout=1.5, label="with", quota=2, serve=True) as d:
    raises(gpc.Error, "", lambda: d.reserve(0, 3), "a quota")
    is_(d.stats(d.info().peer).label, "with", "a label")
ok(d.closed, "a with statement closes")

lines = []
d = gpc.attach(name, serve=True, log=lambda level, text: lines.append((level, text)))
d.reserve(0, 1)
d.close()
ok(lines and all(isinstance(level, int) and isinstance(text, str) for level, text in lines), "a log")
e = gpc.attach(name, serve=True)
root = e.key_root([])
is_(e.publish(root, e.key_import([b"not mine"]), [5]), 0, "publish of a block that is not ours")
is_(gpc.last_error(), "blocks[0] is 0x5 (pool 0, slot 5): it is free: gpc_reserve comes first", "last_error() says why")
e.close()
is_(gpc.strerror(-errno.ENOENT), gpc.strerror(errno.ENOENT), "strerror takes either sign")
is_(gpc.version(), (0, 2), "version")
is_(gpc.crc32c(b"56789", gpc.crc32c(memoryview(b"1234"))), 0xe3069283, "CRC32C of what comes in pieces")
is_(gpc.crc32c(b"", crc=7), 7, "of nothing more")
raises(TypeError, "", lambda: gpc.crc32c("text"), "of text")
raises(ValueError, "crc", lambda: gpc.crc32c(b"", 1 << 32), "a crc of 33 bits")
raises(BufferError, "", lambda: gpc.crc32c(memoryview(b"abcd")[::2]), "of bytes with gaps")
is_((gpc.VERIFY_FIRST, gpc.QUIET, gpc.NONE, gpc.TICKET_ALL), (1 << 14, 1 << 3, -1, 2**64 - 1), "constants")

# calls with flags that change what is held
with gpc.create(name + "-idle", serve=True, max_blocks=200, vram_blocks=4, free_target=-1) as d:
    ids = [d.key_import([x * 8]) for x in (b"a", b"b")]
    b = d.reserve(0, 2)
    is_(d.publish(None, ids, b, flags=gpc.NO_REF), 2, "NO_REF: they are live")
    is_(d.stats(d.info().peer).refs, 0, "and nothing is referenced")
    is_(sorted(d.evict(0, 2, flags=gpc.PEEK)), sorted(b), "PEEK names what would go")
    is_(d.acquire(ids), b, "and all of it is there")
    raises(gpc.Busy, "", lambda: d.pool_clear(0, flags=gpc.IF_IDLE), "IF_IDLE: they are held")
    d.release(b)
    is_(d.pool_clear(0, flags=gpc.IF_IDLE), 0, "and now they are not")
    b = d.reserve(0, 2)
    is_(d.publish(None, ids, b), 2, "published anew")
    is_(d.reclaim(b, keys=[ids[0], ids[0]], timeout=300), [0, -errno.ESTALE], "reclaim: the one with that key")
    is_(d.rekey(None, d.key_import([b"c" * 8]), b[1:], was=ids[1:]), 1, "rekey: it has another key")
    is_(d.reclaim(b[1:]), [0], "and whatever key it has")
    d.release(b)
    first = d.pool_add(kind=gpc.RAM, blocks=3, flags=gpc.POOL_ONCE | gpc.POOL_UNCHAINED, space=1)
    is_(d.pool_add(kind=gpc.RAM, blocks=3, flags=gpc.POOL_ONCE | gpc.POOL_UNCHAINED, space=1), first, "POOL_ONCE")
gpc.unlink(name + "-idle")
c.close()
done()
