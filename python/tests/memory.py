# SPDX-License-Identifier: Apache-2.0
"""Memory of pools: every process sees the same bytes, as a buffer and as a DLPack tensor, and no view outlives
its mapping."""

import ctypes
import errno
import mmap
import os
import shutil
import tempfile
import time

import gpc
from tap import create, done, is_, name, ok, raises, skip

c = create(max_blocks=300, ram_blocks=20, block_bytes=4096, ram_flags=gpc.POOL_UNCHAINED, ram_space=1)
m = c.pool_memory(0)
is_((m.kind, m.block_bytes, m.parts, m.device), (gpc.RAM, 4096, 1, ""), "create makes RAM with memory")
(ram,) = c.pool_map(0)
is_((ram.pool, ram.number, ram.nbytes, ram.mapped), (0, 0, m.bytes, True), "it is mapped as one part")
view = memoryview(ram)
is_((view.nbytes, view.readonly, view.format), (m.bytes, False, "B"), "its buffer is writable bytes")
is_(repr(ram), f"<gpc.Part 0 of pool 0, cache '{name}': {m.bytes} bytes of RAM at {ram.address:#x}, mapped>", "repr of a part")
is_(ram.__dlpack_device__(), (1, 0), "on the host")
raises(AttributeError, "host", lambda: ram.__cuda_array_interface__, "which has no __cuda_array_interface__")

other = gpc.attach(name)
theirs = memoryview(other.pool_map(0)[0])
view[4096:4100] = b"abcd"
is_(bytes(theirs[4096:4100]), b"abcd", "another handle sees what is written")

# ---- views and the end of a mapping ----

raises(BufferError, "views", lambda: c.pool_unmap(0), "pool_unmap: a view exists")
raises(BufferError, "views", lambda: c.close(), "close: a view exists")
is_(c.info().pools, 1, "and the handle is as before")
view.release()
c.pool_unmap(0)
is_(ram.mapped, False, "without views it is unmapped")
ok(repr(ram).endswith("not mapped>"), "as repr says")
raises(ValueError, "not mapped", lambda: memoryview(ram), "and has no buffer any more")
raises(ValueError, "not mapped", lambda: ram.__dlpack__(), "nor a tensor")
(ram,) = c.pool_map(0)
is_(bytes(memoryview(ram)[4096:4100]), b"abcd", "mapped again: the same bytes")

# ---- DLPack ----

capsule = ram.__dlpack__()
ok("dltensor" in repr(capsule) and "versioned" not in repr(capsule), "a tensor of the first protocol")
raises(BufferError, "views", lambda: c.pool_unmap(0), "counts as a view")
del capsule
c.pool_unmap(0)
(ram,) = c.pool_map(0)
capsule = ram.__dlpack__(max_version=(1, 0))
ok("dltensor_versioned" in repr(capsule), "and of the second, to who asks for it")


class Tensor(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)), ("flags", ctypes.c_uint64),
                ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
at = get(capsule, b"dltensor_versioned")
t = Tensor.from_address(at)
is_((t.major, t.flags, t.data, t.device_type, t.ndim, t.code, t.bits, t.lanes, t.shape[0], t.strides[0]),
    (1, 0, ram.address, 1, 1, 1, 8, 1, ram.nbytes, 1), "which says where the bytes are")
is_(ctypes.string_at(t.data + 4096, 4), b"abcd", "and there they are")
# as a consumer does: take it, and delete it in the end
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
used = b"used_dltensor_versioned"
rename(capsule, used)
del capsule
raises(BufferError, "views", lambda: c.pool_unmap(0), "a consumer that has it keeps it")
t.deleter(at)
c.pool_unmap(0)
ok(True, "until it calls the deleter")
raises(BufferError, "", lambda: c.pool_map(0)[0].__dlpack__(copy=True), "a copy is refused")
raises(BufferError, "", lambda: c.pool_map(0)[0].__dlpack__(dl_device=(2, 0)), "another device is refused")
try:
    import numpy
    array = numpy.from_dlpack(c.pool_map(0)[0])
    is_(bytes(array[4096:4100]), b"abcd", "numpy.from_dlpack")
    raises(BufferError, "views", lambda: c.pool_unmap(0), "numpy's array counts as a view")
    del array
    c.pool_unmap(0)
except ImportError:
    skip("numpy.from_dlpack", "there is no numpy")

# ---- VRAM of the host device ----

runs = [gpc.Run(part=0, count=2, bytes=1024, offset=0, slot_stride=1024, run_stride=16384),
        {"part": 1, "count": 1, "bytes": 2048, "slot_stride": 2048}]
v = c.pool_make(kind=gpc.VRAM, blocks=16, space=0, device="host", runs=runs, parts=2)
is_([run[:5] for run in c.pool_runs(v)], [runs[0][:5], (1, 1, 2048, 0, 2048)], "pool_runs is what pool_make was told")
raises(gpc.Again, "", lambda: c.pool_map(v), "it cannot be mapped before it is lent")
files = []


class Cuda:
    """What an array of a GPU looks like."""

    def __init__(self, base, **items):
        address = ctypes.addressof(ctypes.c_char.from_buffer(base))
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (16, 512), "typestr": "<i4", "version": 3,
                                         "strides": None, **items}


def lent(base):
    raises(TypeError, "bytes", lambda: c.pool_lend(v, 1, Cuda(base, strides=(4096, 4))), "an array with strides")
    raises(TypeError, "bytes", lambda: c.pool_lend(v, 1, Cuda(base, shape=(-1, 4))), "a shape that is none")
    raises(TypeError, "bytes", lambda: c.pool_lend(v, 1, Cuda(base, shape=(1 << 40, 1 << 40))), "a huge one")
    return Cuda(base)


for part in range(2):
    fd = os.open(f"/dev/shm/{name}-lent{part}", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, 32768)
    files.append(mmap.mmap(fd, 32768))
    os.close(fd)
    c.pool_lend(v, part, lent(files[part]) if part else files[part])
    os.unlink(f"/dev/shm/{name}-lent{part}")
raises(gpc.Exists, "", lambda: c.pool_lend(v, 0, files[0]), "a part is lent once")
raises(ValueError, "bytes", lambda: c.pool_lend(v, 0, files[0], 40000), "no more bytes than there are")
raises(TypeError, "", lambda: c.pool_lend(v, 0, b"x" * 100), "nor read-only ones")
parts = c.pool_map(v)
files[1][0:4] = b"VRAM"
is_([bytes(memoryview(p)[:4]) for p in parts], [bytes(4), b"VRAM"], "the lent memory is what is mapped")
raises(BufferError, "", lambda: files[0].close(), "what is lent is kept")
is_((c.pool_memory(v).device, c.pool_memory(v).parts_lent), ("host", 2), "pool_memory")
p = c.pool_make(kind=gpc.VRAM, blocks=8, space=0, device="host", block_bytes=4096)
(vram,) = c.pool_map(p)
is_(vram.nbytes, 8 * 4096, "VRAM that gpc allocates")
seen = []
q = c.pool_make(kind=gpc.RAM, blocks=4, transit=1, space=2, block_bytes=4096,
                progress=lambda done, total: seen.append((done, total)))
ok(seen and seen[-1][0] == seen[-1][1], "progress is told")
raises(gpc.Error, "", lambda: c.pool_make(kind=gpc.RAM, blocks=4, space=3, block_bytes=4096,
                                          progress=lambda done, total: True), "and may end the call")
raises(ZeroDivisionError, "", lambda: c.pool_make(kind=gpc.RAM, blocks=4, space=3, block_bytes=4096,
                                                  progress=lambda done, total: 1 / 0), "an exception, too")
c.pool_clear(q, flags=gpc.REMOVE)
raises(gpc.NotFound, "", lambda: c.pool_map(q), "a pool that has gone")
c.pool_pin(0)
a = c.pool_add(kind=gpc.VRAM, blocks=4, space=4, flags=gpc.POOL_OWNED, backing=b"words", uuid=b"u" * 16, gpus=1)
got = c.pool_get(a)
is_((got.blocks, got.backing, got.uuid, got.owner), (4, b"words", b"u" * 16, c.info().peer), "pool_add and pool_get")
is_(c.pool_available(a), 4, "pool_available")
is_(c.setting_get(gpc.SET_QUOTA), 0, "no quota")
c.setting_set(gpc.SET_QUOTA, 3)
is_(c.setting_get(gpc.SET_QUOTA), 3, "one is set")
c.setting_set(gpc.SET_QUOTA, None)
is_((c.setting_get(gpc.SET_QUOTA), c.setting_get(gpc.SET_LOG_LEVEL)), (0, None), "and none again")
raises(gpc.NotFound, "", lambda: c.pool_memory(a), "it has no memory")

theirs.release()
other.close()
kept = memoryview(vram)
raises(BufferError, "1 views", lambda: c.close(), "close waits for views ...")
kept.release()
c.close()
raises(ValueError, "not mapped", lambda: memoryview(vram), "... and nothing is mapped after it")
files[0].close()
ok(True, "what was lent is free again")
# ---- a tier on disk ----

secret = bytes(range(16))
c = create("-disk", ram_blocks=8, block_bytes=4096, max_blocks=256, secret=secret)
disk = os.path.join(tempfile.mkdtemp(), "disk")
raises(ValueError, "16 are wanted", lambda: create("-no", secret=b"short"), "a secret has 16 bytes")
raises(gpc.NotFound, "", lambda: gpc.tiers_file(disk), "there is no file yet")
raises(TypeError, "no argument", lambda: gpc.tiers_open(name + "-disk", disk=disk, no=1), "no such argument")
t = gpc.tiers_open(name + "-disk", disk=disk, disk_blocks=32, ahead=8, timeout=300.0)
f = gpc.tiers_file(disk)
is_((f.blocks, f.block_bytes, f.has_secret, f.secret), (32, 4096, 1, secret), "a file says of itself")
for first in range(0, 16, 4):
    k = c.key_import([i.to_bytes(8, "little") for i in range(first, first + 4)])
    b = c.reserve(0, 4)
    c.publish(bytes(16) + k[:-16], k, b)
    c.release(b)
    c.tiers_sync(10.0)
k = c.key_import([i.to_bytes(8, "little") for i in range(4)])
held = c.acquire(k)              # one that was being written just then may have stayed
is_(len(held) < 4, True, "the first four are not all in RAM any more")
c.release(held)
is_(c.prefetch(0, k, timeout=300.0), 4, "they come back")
b = c.acquire(k)
is_(len(b), 4, "and are found")
c.release(b)
tier = c.tier(0)
is_((tier.kind, tier.state, tier.brought, tier.bad), (gpc.DISK, gpc.TIER_UP, 4 - len(held), 0),
    "which the tier has counted")
raises(gpc.NotFound, "", lambda: c.tier(1), "there is one tier")
is_(repr(t), f"<gpc.Tiers of cache '{name}-disk', open>", "repr of what keeps them")
gpc.tiers_close(t)
is_(repr(t), f"<gpc.Tiers of cache '{name}-disk', closed>", "and when it is closed")
raises(TypeError, "once", lambda: gpc.tiers_close(t), "it is closed once")
raises(gpc.Error, "", lambda: c.tiers_sync(1.0), "and nobody keeps it")
os.unlink(disk)

# ---- a store, which a folder plays ----

built = os.path.join(os.path.dirname(gpc.__file__), "..", "..", "plugins", ".libs", "gpc_remote_folder.so")
plugin = shutil.copyfile(built, os.path.join(os.path.dirname(disk), "gpc_remote_folder.so"))
os.chmod(plugin, 0o644)
os.mkdir(store := os.path.join(os.path.dirname(disk), "store"))
t = gpc.tiers_open(name + "-disk", remote=f"{plugin}:dir={store}", remote_tag="v1", remote_blocks=64, remote_ms=5000,
                   ahead=8, timeout=300.0)
tier = c.tier(0)
while tier.state == gpc.TIER_DOWN:
    time.sleep(0.01)
    tier = c.tier(0)
is_((tier.kind, tier.state), (gpc.REMOTE, gpc.TIER_UP), "a store is up when it has answered")
c.tiers_sync(10.0)
tier = c.tier(0)
is_((tier.written > 0, tier.full, tier.down), (True, 0, 0), "and has what was in RAM")
is_(all(isinstance(x, str) and isinstance(n, int) for x, n in tier.counters.items()), True, "its own counters have names")
gpc.tiers_close(t)
is_(c.tier(0).state, gpc.TIER_DOWN, "nobody keeps it")
shutil.rmtree(os.path.dirname(disk))

# ---- checksums of blocks that are filled by hand ----

c = create("-sums", ram_blocks=8, block_bytes=4096, seed=7, sums=2)
is_(c.pool_memory(0).sums, 2, "an image of two parts")
held, keys = c.reserve(0, 2), c.key_import([b"1", b"2"])
sums = [gpc.Sum(gpc.crc32c(b"x", 7), 7), gpc.Sum(0, 7, gpc.SEAL_UNSUMMED, word=1 << 40)]
c.seal(held, keys, sums)
is_(c.sealed(held, keys), sums, "sealed")
is_([s.result for s in c.sealed(held, keys, 1)], [-errno.ENODATA] * 2, "each part by itself")
out = bytearray(48)
is_((c.sealed(held, keys, out=out), c.seal(held, keys, out, 1)), (2, None), "from a buffer to a buffer")
is_(c.sealed(held, keys, part=1), sums, "the same")
is_(c.pool_seed(0, 1, 9), True, "another seed than 7")
is_(c.pool_seed(0, 1, 9), False, "and the same")
raises(gpc.Invalid, "part is 2", lambda: c.sealed(held, keys, 2), "no such part")
raises(ValueError, "sums", lambda: c.seal(held, keys, sums[:1]), "a sum is missing")
raises(ValueError, "no multiple of 24", lambda: c.seal(held, keys, bytes(47)), "half a sum")
raises(ValueError, "out", lambda: c.sealed(held, keys, out=bytearray(47)), "too little room")
c.release(held)

done()
