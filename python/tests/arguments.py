# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments of every call are refused with a TypeError, ValueError or gpc.Error.  A crash ends the
test; so does an array that is written beyond its end."""

import array
import itertools

import gpc
from tap import create, done, is_, ok, raises

c = create(vram_blocks=50, ram_blocks=50, devices="host", keep_tokens=1, keep_digests=1)
key = c.key_import([b"x"])
numbers = array.array("i", [1, 2, 3, 4])


class Sly:
    """An int whose conversion shrinks the list that it stands in."""
    def __init__(self):
        self.list = None

    def __index__(self):
        self.list.clear()
        return 3


class Cai:
    def __init__(self, data, shape=(4,), typestr="<i4"):
        self.__cuda_array_interface__ = {"data": data, "shape": shape, "typestr": typestr, "version": 3}


sly = Sly()
sly.list = [1, sly, 2, 3]
odd = memoryview(bytearray(64))[::2]

# ---- each kind of array ----

raises(ValueError, "16 bytes", lambda: c.lookup(b"x" * 17), "keys: not a multiple of 16")
raises(ValueError, "keys[1]: 15 bytes, 16", lambda: c.lookup([key, key[1:]]), "keys: an item of 15 bytes")
raises(TypeError, "keys[0]: bytes", lambda: c.lookup([1]), "keys: a list of ints")
raises(TypeError, "keys", lambda: c.lookup("x" * 16), "keys: a str")
raises(TypeError, "this is not contiguous (numpy.ascontiguousarray() makes", lambda: c.lookup(odd), "keys: not contiguous")
raises(TypeError, "keys is missing", lambda: c.lookup(), "keys: missing")
raises(TypeError, "there is no argument nix", lambda: c.lookup(key, nix=1), "an unknown name")
raises(TypeError, "keys is given twice", lambda: c.lookup(key, keys=key), "an argument twice")
raises(TypeError, "by place", lambda: c.lookup(key, 1), "too many by place")
raises(ValueError, "blocks[0]: 2147483648", lambda: c.release([2**31]), "blocks: 2^31")
raises(ValueError, "blocks[1]", lambda: c.release([-1, -2**70]), "blocks: -2^70")
raises(TypeError, "blocks[0]: an int", lambda: c.release([1.5]), "blocks: a float")
raises(TypeError, "'d' of 8 bytes", lambda: c.release(array.array("d", [1])), "blocks: doubles")
raises(ValueError, "blocks[1]: 2147483648 is out of range, it may be -2147483648 to 2147483647",
       lambda: c.release(array.array("q", [-1, 2**31])), "blocks: int64 that does not fit")
is_(c.release(array.array("q", [-1, -1])), None, "blocks: int64")
raises(TypeError, "blocks", lambda: c.release(b"abcd"), "blocks: bytes")
raises(TypeError, "blocks", lambda: c.release(None), "blocks: None")
raises(IndexError, "", lambda: c.release(sly.list), "blocks: a list that shrinks while it is read")
raises(ValueError, "room for 4 items, 5", lambda: c.lookup(key * 5, out=numbers), "out: too short")
raises(TypeError, "this is read-only: b'abcd'", lambda: c.lookup(key, out=b"abcd"), "out: read-only")
raises(TypeError, "out", lambda: c.lookup(key, out=array.array("q", [1])), "out: int64")
raises(TypeError, "out", lambda: c.lookup(key, out=array.array("f", [1])), "out: floats")
raises(TypeError, "out", lambda: c.lookup(key, out=[0]), "out: a list")
raises(TypeError, "this is not contiguous (", lambda: c.lookup(key, out=memoryview(array.array("i", range(8)))[::2]),
       "out: not contiguous")
raises(ValueError, "", lambda: c.lookup(key, spaces=-1), "spaces: -1")
raises(ValueError, "flags: 4294967296", lambda: c.lookup(key, flags=2**32), "flags: 2^32")
raises(TypeError, "flags", lambda: c.lookup(key, flags="QUIET"), "flags: a str")
is_(list(numbers), [1, 2, 3, 4], "nothing was written")

# ---- tokens of 32 and 64 bits ----

tokens = [0, 1, 2**31, 2**32 - 1] + [7] * 28
want = c.key_hash(None, tokens)
is_(len(want), 32, "tokens: a list, two blocks")
for code in "ILQq":
    if array.array(code).itemsize in (4, 8):
        is_(c.key_hash(None, array.array(code, tokens)), want, f"tokens: items of '{code}', {array.array(code).itemsize} bytes")
small = [t & 0x7fffffff for t in tokens]
is_(c.key_hash(None, array.array("i", small)), c.key_hash(None, small), "tokens: int32")
is_(c.key_hash_many(None, [array.array("q", tokens), array.array("I", tokens)]), [want] * 2, "key_hash_many takes both")
is_(c.key_hash_group(1, 16, None, array.array("q", tokens)), c.key_hash_group(1, 16, None, tokens), "key_hash_group")
is_(c.match(key * 4, array.array("q", [0, 2, 4])), [[], []], "start: int64")
for at in (0, 17, 31):          # among those that are converted together, and behind them
    for code, bad in (("q", -1), ("q", 2**32), ("q", -2**63), ("Q", 2**64 - 1), ("i", -1), ("i", -100)):
        wrong = array.array(code, [1] * 32)
        wrong[at] = bad
        raises(ValueError, f"tokens[{at}]: {bad} is out of range, it may be 0 to 4294967295",
               lambda: c.key_hash(None, wrong), f"tokens: {bad} of '{code}' at {at}")
raw = bytearray(64 + 1)
raw[1:] = array.array("I", small[:16]).tobytes()
shifted = memoryview(raw)[1:].cast("I")
is_(c.key_hash(None, shifted), c.key_hash(None, small[:16]), "tokens at an odd address")
raw = bytearray(128 + 1)
raises(ValueError, "address is odd", lambda: c.key_hash(None, memoryview(raw)[1:].cast("q")), "int64 at an odd address")
raises(TypeError, "'d' of 8 bytes", lambda: c.key_hash(None, array.array("d", [1.0] * 16)), "tokens: doubles")
raises(TypeError, "'b' of 1 bytes", lambda: c.key_hash(None, array.array("b", [1] * 16)), "tokens: bytes")
held = array.array("I", small)
c.key_hash(None, held)
held.append(1)
ok(True, "a buffer of tokens is let go with the call")

# ---- relations between arrays ----

raises(ValueError, "start[1] is 3", lambda: c.match(key * 2, [0, 3]), "match: start beyond the keys")
raises(ValueError, "start[2]", lambda: c.match(key * 4, [0, 3, 2]), "match: start descends")
raises(ValueError, "start is empty", lambda: c.match(key, []), "match: start is empty")
raises(TypeError, "tuples", lambda: c.match_groups([(key, 8)]), "match_groups: a tuple of two")
raises(TypeError, "", lambda: c.match_groups([5]), "match_groups: a list of ints")
raises(ValueError, "keys", lambda: c.match_groups([(key, 0, 0), (b"x", 0, 0)]), "match_groups: bad keys")
raises(ValueError, "last", lambda: c.match_groups([(key, 0, -1)]), "match_groups: last is -1")
raises(ValueError, "at most 64", lambda: c.match_groups([(key, 0, 0)] * 65), "match_groups: 65 groups")
raises(gpc.Invalid, "block_tokens", lambda: c.match_groups([(key, 65537, 0)]), "match_groups: block_tokens")
raises(gpc.Invalid, "block_tokens", lambda: c.key_hash_group(1, 65537, None, [1]), "key_hash_group: block_tokens")
raises(ValueError, "lens", lambda: c.match(key * 8, list(range(7)), lens=numbers), "match: lens too short")
raises(ValueError, "out", lambda: c.match(key * 8, [0, 8], out=numbers), "match: out too short")
raises(ValueError, "keys has 1 items and blocks 2", lambda: c.ref(key, [1, 2]), "ref: unequal")
raises(ValueError, "", lambda: c.publish(key, key * 2, [1, 2]), "publish: parents too short")
raises(ValueError, "", lambda: c.publish(None, key, [1, 2]), "publish: keys too short")
raises(ValueError, "tokens has 3", lambda: c.publish(None, key, [1], tokens=[1, 2, 3]), "publish: tokens")
raises(ValueError, "digests", lambda: c.publish(None, key, [1], digests=[]), "publish: digests")
raises(gpc.Error, "", lambda: c.publish(None, key, [1], digests=[b"x" * 33]), "publish: a digest of 33 bytes")
raises(ValueError, "resident", lambda: c.publish(None, key * 5, [1] * 5,
                                                 resident=numbers), "publish: resident too short")
raises(ValueError, "resident", lambda: c.publish(None, key, [1], timeout=0, resident=True), "publish: True, timeout 0")
raises(ValueError, "parent: 2 keys", lambda: c.key_hash(key * 2, [1]), "key_hash: two parents")
raises(ValueError, "parent: 2 keys", lambda: c.key_hash_many(key * 2, [[1]]), "key_hash_many: two parents of one")
raises(TypeError, "tokens", lambda: c.key_hash_many(None, [[1], "x"]), "key_hash_many: a str")
raises(TypeError, "", lambda: c.key_hash_many(None, 7), "key_hash_many: no list")
raises(gpc.Invalid, "flags", lambda: c.key_hash_many(None, [[1]], flags=gpc.REF), "key_hash_many: a flag")
raises(ValueError, "out", lambda: c.key_hash(None, list(range(32)), out=bytearray(31)),
       "key_hash: out too short")
raises(TypeError, "size", lambda: c.key_import(b"abc"), "key_import: a buffer without size")
raises(ValueError, "", lambda: c.key_import(b"abc", size=2), "key_import: size does not divide")
raises(ValueError, "size: 0", lambda: c.key_import(b"abc", size=0), "key_import: size 0")
raises(ValueError, "digests[1]", lambda: c.key_import([b"ab", b"abc"]), "key_import: digests of two sizes")
raises(ValueError, "alias", lambda: c.alias(key * 2, key), "alias: unequal")
raises(gpc.Invalid, "alias[0] and to[0]", lambda: c.alias(key, key), "alias: the same key")
raises(gpc.Invalid, "to[0] is zero", lambda: c.alias(key, bytes(16)), "alias: of no key")
raises(ValueError, "out", lambda: c.alias_resolve(key, out=bytearray(15)), "alias_resolve: out too short")
raises(ValueError, "tag", lambda: c.key_root([(65536, b"")]), "key_root: a tag of 65536")
raises(TypeError, "", lambda: c.key_root([(1, b"x", 3)]), "key_root: a triple")
raises(gpc.NotFound, "no words", lambda: c.root_get(c.key_root([(77, b"x")])), "root_get: a root that is not kept")
raises(ValueError, "root: 2 keys", lambda: c.root_get(key * 2), "root_get: two roots")
raises(gpc.Invalid, "488", lambda: c.root_keep([(1, bytes(481))]), "root_keep: too many bytes")
raises(TypeError, "", lambda: c.root_keep([(1, b"x", 3)]), "root_keep: a triple")
raises(ValueError, "fields: 65", lambda: c.key_root([(1, b"x")] * 65), "key_root: 65 fields")
raises(ValueError, "keys", lambda: c.claim(key, [1, 2]), "claim: unequal")
for t in (-1, float("nan"), 1e300):
    raises(ValueError, "timeout", lambda: c.reserve(0, 1, timeout=t), f"timeout {t}")
raises(TypeError, "timeout", lambda: c.reserve(0, 1, timeout="1"), "timeout: a str")
raises(TypeError, "a Move", lambda: c.commit([(1, 2)]), "commit: a short tuple")
raises(TypeError, "no field", lambda: c.commit([{"nix": 1}]), "commit: an unknown field")
raises(TypeError, "moves", lambda: c.commit([5]), "commit: an int")
raises(ValueError, "key: 3 bytes", lambda: c.commit([gpc.Move(0, 1, b"abc")]), "commit: a short key")
raises(ValueError, "", lambda: gpc.BLOCK(128, 0), "BLOCK: pool 128")
raises(ValueError, "", lambda: gpc.SPACE(32), "SPACE: 32")
raises(ValueError, "", lambda: gpc.POOL(-1), "POOL: -1")
raises(TypeError, "", lambda: gpc.Cache(), "a Cache is made by attach")
raises(TypeError, "there is no argument", lambda: gpc.attach("x", if_absent=True), "attach: an argument of create")
raises(TypeError, "there is no argument", lambda: gpc.create("x", nix=1), "create: an unknown one")
raises(ValueError, "layout", lambda: gpc.attach("x", layout=b"x" * 33), "attach: a long layout")
raises(TypeError, "log", lambda: gpc.attach("x", log=5), "attach: log")
raises(TypeError, "name", lambda: gpc.attach(5), "attach: a number")
raises(ValueError, "", lambda: gpc.attach("a\0b"), "attach: a zero byte")
raises(TypeError, "stream", lambda: c.copy([], stream="x"), "a stream that is none")

# ---- every call with every wrong thing ----

d = c.dev_open("host")
junk = [None, True, -1, 0, 1, 2**31, 2**32, 2**63, 2**64, -2**63, 1.5, float("inf"), "x", b"", b"x", b"x" * 16,
        b"y" * 48, bytearray(8), bytearray(64), [], [1], [-1, 2], [2**31], [b"x" * 16], [None], (), (1, 2), {},
        {"part": 1}, [{}], array.array("i", [0] * 4), array.array("d", [1.0]), odd, memoryview(b"z" * 16), object(),
        print, gpc.Move(0, 1), [gpc.Move(0, 1)], [gpc.Move(-1, -1)], [gpc.Run(bytes=1)], Sly, Cai((0, False)),
        Cai(None), Cai((2**70, False)), Cai((1, False), shape=(2**62, 2**62))]
# what waits by itself, or gives the handle up; nothing here has a limit of time
never = {"close", "writer_serve", "writer_take", "writer_drop", "check", "transfer_fd"}
fine = (TypeError, ValueError, IndexError, BufferError, MemoryError, AttributeError, OSError, OverflowError)


def names(o):
    return [n for n in dir(o) if not n.startswith("_") and callable(getattr(o, n)) and n not in never]


def try_all(o):
    made = 0
    for n in names(o):
        f = getattr(o, n)
        words = [w for w in ("timeout", "flags", "out", "stream") if w + "=" in (f.__doc__ or "")]
        for count in range(0, 4):
            # all of one argument; of more, pairs that differ by a stride
            for i, first in enumerate(junk):
                args = [junk[(i + 7 * k * (count + 1)) % len(junk)] for k in range(count)]
                options = {w: junk[(i * 5 + 3) % len(junk)] for w in words[1:] if i % 3 == 0}
                if "timeout" in words:
                    options["timeout"] = 0
                try:
                    f(*args, **options)
                except fine:
                    pass
                except SystemError as e:
                    print(f"# {n}{tuple(args)} {options}: {e}")
                    return -1
                made += 1
                if not count:
                    break
    return made


ok(try_all(d) > 300, "a device, with all kinds of junk")
ok(try_all(c) > 3000, "a cache, with all kinds of junk")
for f, word in itertools.product((gpc.create, gpc.attach), ("timeout", "stock", "dir", "label", "layout", "serve",
                                                          "log", "block_tokens", "ram_runs", "free_target", "devices",
                                                          "gid", "device", "fingerprint", "nodes")):
    for each in junk:
        try:
            f("a/b", **{word: each})
        except fine:
            pass
ok(True, "create and attach, with all kinds of junk")
for call in (c.pool_add, c.pool_make):
    for word in ("kind", "blocks", "uuid", "backing", "demote_to", "runs", "device", "huge_dir", "parts", "progress",
                 "block_bytes", "threads"):
        for each in junk:
            try:
                call(**{"kind": 9, "blocks": 1, "timeout": 0, word: each})
            except fine:
                pass
ok(True, "pool_add and pool_make, too")
is_(c.check(), 0, "all invariants hold")
d.close()
raises(ValueError, "closed", lambda: d.enter(), "a closed device")
c.close()
done()
