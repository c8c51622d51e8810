# SPDX-License-Identifier: Apache-2.0
"""Moves by hand, and fetch, spill and claims by gpc, on the host device: the bytes arrive."""

import array
import errno
import os
import select
import threading

import gpc
from tap import create, done, is_, name, ok, raises

BYTES = 4096
c = create(max_blocks=300, ram_blocks=20, block_bytes=BYTES)
v = c.pool_make(kind=gpc.VRAM, blocks=8, device="host", block_bytes=BYTES, demote_to=0, spill_ahead=6)
ram, vram = memoryview(c.pool_map(0)[0]), memoryview(c.pool_map(v)[0])


def at(block):
    where = ram if gpc.POOL(block) == 0 else vram
    return where[gpc.SLOT(block) * BYTES:(gpc.SLOT(block) + 1) * BYTES]


def fill(seed, n):
    """n published blocks of one chain, released."""
    keys = c.key_import([bytes([seed, i]) for i in range(n)])
    blocks = c.reserve(v, n)
    for i, b in enumerate(blocks):
        at(b)[:] = bytes([seed + i]) * BYTES
    is_(c.publish(bytes(16) + keys[:-16], keys, blocks), n, f"{n} blocks are published")
    c.release(blocks)
    return keys


def good(seed, blocks):
    return all(bytes(at(b)) == bytes([seed + i]) * BYTES for i, b in enumerate(blocks))


# ---- by hand ----

keys = fill(1, 4)
moves = c.demote(v, 0, None, 2)
is_((len(moves), {gpc.POOL(m.from_) for m in moves}, {gpc.POOL(m.to) for m in moves}), (2, {v}, {0}), "two demotes begin")
c.transfer_wait(c.copy(moves))
is_(c.commit(moves), [0, 0], "copied and committed")
blocks = c.acquire(keys)
is_(([gpc.POOL(b) for b in blocks], good(1, blocks)), ([v, v, 0, 0], True), "the leaves are in RAM, with their bytes")
moves = c.promote(blocks[2:], v)
c.transfer_wait(c.copy(moves))
is_(c.commit(moves, out=array.array("i", [9, 9])), 2, "and promoted, by out")
c.release(c.lookup(keys))
moves = c.demote(v, 0, None, 1)
is_(c.commit([tuple(moves[0])], flags=gpc.CANCEL), [0], "a move as a tuple, given up")
raises(gpc.Denied, "", lambda: c.copy([gpc.Move(gpc.BLOCK(v, 0), gpc.BLOCK(0, 0))]), "copy: not held")

# ---- spill and fetch ----

n, t = c.spill(v, -1, None, 4)
c.transfer_wait(t, timeout=300)
is_((n, c.transfer_results(t)), (4, [0] * 4), "four are spilled")
is_({gpc.POOL(b) for b in c.lookup(keys)}, {0}, "all are in RAM")
results = array.array("i", [9] * 5)
blocks, t = c.fetch(v, keys + bytes(range(16)), results=results)
fd = c.transfer_fd(t)
select.select([fd], [], [])
os.close(fd)
c.transfer_wait(t)
is_(([gpc.POOL(b) for b in blocks], good(1, blocks), list(results)), ([v] * 4, True, [0] * 4 + [-errno.ENOENT]),
    "fetched: the prefix, its bytes, and why it ends")
c.release_after(blocks, None)
c.transfer_wait()
is_(c.fetch(v, keys), (blocks, 0), "what is there is only referenced: transfer 0")
c.release(blocks)
raises(gpc.NotFound, "", lambda: c.fetch(v, bytes(range(16)), min=1), "fewer than min are not wanted")
n, t = c.spill_ahead(v)
c.transfer_wait(t)
is_(n >= 2, True, "spill_ahead: until six are free")
out = array.array("i", [0] * 4)
n, t = c.fetch(v, keys, out=out, flags=gpc.VERIFY_FIRST, stages=0)
c.transfer_wait(t)
is_((n, good(1, out)), (4, True), "VERIFY_FIRST, by out")
c.release(out)
n, t = c.spill(v, 0, None, 4)
c.transfer_wait(t)
blocks, t = c.fetch(v, keys, stages=2)
c.order(t, 0, None)
c.order(t, 1, None)
c.transfer_wait(t)
is_(good(1, blocks), True, "by stages")
c.release(blocks)

# ranks make the copies themselves
c.transfer_wait(c.spill(v, 0, None, 4)[1])
me = c.info().peer
blocks, t, moves = c.fetch(v, keys, ranks=[me])
is_((len(blocks), len(moves)), (4, 4), "with ranks: what is to be copied")
is_([(x.peer, x.ranks) for x in c.transfers()], [(me, 1)], "the transfer is under way")
for m in moves:
    at(m.to)[:] = at(m.from_)
c.transfer_mark(me, t, None)
c.transfer_wait(t)
is_(good(1, blocks), True, "marked, and done")
c.release(blocks)
is_(list(c.transfers()), [], "none is under way")

# a wrong byte in RAM
c.transfer_wait(c.spill(v, 0, None, 4)[1])
b = c.lookup(keys)[3]
at(b)[7] ^= 1
blocks, t = c.fetch(v, keys)
e = raises(gpc.Error, "", lambda: c.transfer_wait(t), "a checksum is wrong")
is_(e.errno, errno.EBADMSG, "EBADMSG")
c.release(blocks)
is_(c.stats().bad, 1, "and counted")

# ---- claims ----

other = gpc.attach(name)
ids = c.key_import([b"claim1", b"claim2"])
mine, theirs = c.reserve(v, 2), other.reserve(v, 2)
is_([x.state for x in c.claim(ids, mine)], [gpc.CLAIM_MINE] * 2, "both are mine")
pending = other.claim(ids, theirs)
is_([(x.state, x.block, x.pid) for x in pending], [(gpc.CLAIM_PENDING, b, os.getpid()) for b in mine], "to another pending")
is_(len(list(c.claims())), 2, "a walk shows them")
other.release(theirs)
raises(gpc.TimedOut, "", lambda: other.claim_wait(pending, timeout=0.01), "nothing ends in that time")
ended = []
t = threading.Thread(target=lambda: ended.append(other.claim_wait(pending)))
t.start()
c.publish(None, ids[:16], mine[:1])
t.join()
is_(ended, [0], "claim_wait: the publish ends the first")
is_(c.claim_drop(mine), 1, "claim_drop ends the other")
c.release(mine)
is_(list(c.claims()), [], "none is open")
is_(c.check(), 0, "all invariants hold")
ram.release()
vram.release()
other.close()
c.close()
done()
