# SPDX-License-Identifier: Apache-2.0
"""Keys, lookups, publishes: what comes out is what went in, by lists and by buffers."""

import array
import errno

import gpc
from tap import create, done, is_, ok

c = create(vram_blocks=100, ram_blocks=20, keep_tokens=1, keep_digests=1)
root = c.key_root([(1, b"llama"), (2, b"adapter")])
is_(len(root), 16, "a root key has 16 bytes")
is_(c.key_root([(1, b"llama"), (2, b"adapter")]), root, "the same fields make the same root")
ok(c.key_root([(2, b"adapter"), (1, b"llama")]) != root, "another order makes another one")

is_(c.root_keep([(1, b"llama"), (2, b"adapter")], timeout=300), root, "root_keep makes the same root")
is_(c.root_get(root), [(1, b"llama"), (2, b"adapter")], "and root_get has its fields")
is_(c.root_get(c.root_keep([(3, b""), (9, bytes(400))])), [(3, b""), (9, bytes(400))], "fields of any length")

tokens = list(range(100))
keys = c.key_hash(root, tokens)
is_(len(keys), 6 * 16, "100 tokens have 6 full blocks")
is_(len(c.key_hash(root, tokens, flags=gpc.TAIL)), 7 * 16, "and a partial one with TAIL")
is_(c.key_hash(root, array.array("I", tokens)), keys, "tokens by a buffer")
is_(c.key_hash(keys[:16], tokens[16:]), keys[16:], "chained on from a key")
ok(c.key_hash(root, tokens, extras=[(20, b"image")])[16:] != keys[16:], "an extra changes what follows ...")
is_(c.key_hash(root, tokens, extras=[(20, b"image")])[:16], keys[:16], "... and not what is before it")
out = bytearray(200)
is_((c.key_hash(root, tokens, out=out), bytes(out[:96])), (6, keys), "keys into a buffer")
prompts = [tokens[:n] for n in (96, 20, 0, 47, 96, 64, 17, 80, 33)]
is_(c.key_hash_many(root, prompts), [c.key_hash(root, p) for p in prompts], "many prompts, by one root")
is_(c.key_hash_many(None, prompts, flags=gpc.TAIL), [c.key_hash(None, p, flags=gpc.TAIL) for p in prompts],
    "with tails, without a parent")
parents = [keys[16 * (i % 6):16 * (i % 6) + 16] for i in range(len(prompts))]
is_(c.key_hash_many(parents, prompts), [c.key_hash(k, p) for k, p in zip(parents, prompts)], "each with its own")
is_(c.key_hash_many(root, []), [], "no prompt")

each = [keys[i:i + 16] for i in range(0, 96, 16)]
parents = root + keys[:-16]
is_(c.lookup(keys), [-1] * 6, "nothing is cached")
blocks = c.reserve(0, 6)
is_(len(set(blocks)), 6, "six blocks are reserved")
is_({gpc.POOL(b) for b in blocks}, {0}, "of pool 0")
is_([gpc.BLOCK(0, gpc.SLOT(b)) for b in blocks], blocks, "POOL, SLOT and BLOCK agree")
digests = [bytes([i] * 32) for i in range(6)]
is_(c.publish(parents, keys, blocks, tokens=tokens[:96], digests=digests, tag=7), 6, "six are live")

is_(c.lookup(keys), blocks, "they are found: keys in one bytes object")
is_(c.lookup(each), blocks, "a list of keys")
is_(c.lookup(tuple(each)), blocks, "a tuple")
is_(c.lookup(bytearray(keys)), blocks, "a bytearray")
is_(c.lookup(memoryview(b"x" + keys)[1:]), blocks, "a view that is not aligned")
is_(c.lookup(array.array("Q", keys)), blocks, "an array of uint64")
is_(c.lookup(b""), [], "no keys")
found = array.array("i", [9] * 8)
is_((c.lookup(keys + bytes(range(1, 17)), out=found), list(found)), (6, blocks + [-1, 9]),
    "by out: hits are counted, the rest of the buffer is as it was")

is_(c.match(keys + keys[:32], [0, 6, 8]), [blocks, blocks[:2]], "match: two sequences")
lens, hits = array.array("I", [0] * 2), array.array("i", [9] * 8)
is_((c.match(keys + keys[:32], array.array("I", [0, 6, 8]), lens=lens, out=hits), list(lens), list(hits)),
    (8, [6, 2], blocks + blocks[:2]), "match by buffers")

is_(c.acquire(keys + bytes(range(1, 17))), blocks, "acquire: the longest prefix")
is_(c.acquire(keys, out=found), 6, "by out")
is_(c.stats().refs, 3 * 6, "three holds on each, with that of the publisher")
c.release(blocks)
c.release(array.array("i", blocks + [-1]))
is_(c.ref(keys, blocks), 6, "hints become references")
c.release(blocks)

dup = c.reserve(0, 6)
is_(c.publish(parents, keys, dup, resident=True), blocks, "published again: the first blocks stay")
is_(c.stats().refs, 2 * 6, "and are referenced for the caller")
c.release(blocks)
c.release(dup)
dup = c.reserve(0, 6)
is_(c.publish(parents, keys, dup), 0, "without resident nothing is live in the new blocks")
is_(c.stats().refs, 6, "and nothing is referenced")
c.release(dup)

got = array.array("i", [0] * 6)
more = c.key_hash(keys[-16:], list(range(96)))
b = c.reserve(0, 6, out=got)
ticket = c.publish(keys[-16:] + more[:-16], more, got, timeout=0, resident=found)
ok(ticket > 0, "a publish without a wait returns its ticket")
c.ticket_wait(ticket)
is_(list(found[:6]), list(got), "its answers are there after ticket_wait")
ok(c.ticket_last() >= ticket, "ticket_last")
c.release(got)

ids = c.key_import(digests)
is_(c.key_import(b"".join(digests), size=32), ids, "digests as a list and as a buffer make the same keys")
ok(c.key_import(digests, group=1) != ids, "a group makes others")
b = c.reserve(0, 6)
c.publish(bytes(16) + ids[:-16], ids, b)
c.release(b)
is_(c.prefix(digests + [bytes([99]) * 32]), b, "prefix: import and acquire")
is_(c.prefix(digests, out=found), 6, "by out")
c.release(b)
c.release(b)
is_(c.prefix([]), [], "of nothing")

second = c.key_import(digests, group=7)
is_(c.alias_resolve(second), second, "keys that are no aliases stay")
is_(c.alias(second[:32], ids[:32]), None, "two aliases")
mixed = second[:32] + ids[32:]
is_(c.alias_resolve(mixed), ids, "alias_resolve: aliases are replaced, the others stay")
is_((c.alias_resolve(mixed, out=(room := bytearray(96))), bytes(room)), (2, ids), "by out, how many")
room = bytearray(mixed)
is_((c.alias_resolve(room, out=room), bytes(room)), (2, ids), "in place")
is_((c.alias_resolve([]), c.alias([], [])), (b"", None), "of nothing")
is_((c.stats().aliases, c.info().max_aliases > 2), (2, True), "they are counted")

full, state = c.key_hash_group(1, 8, root, tokens), c.key_hash_group(2, 0, root, array.array("I", tokens))
is_((len(full), len(state)), (12 * 16, 6 * 16), "keys of two groups: blocks of 8 tokens, and of the cache's 16")
is_(c.key_hash_group(1, 8, full[:16], tokens[8:]), full[16:], "chained on")
out = bytearray(200)
is_((c.key_hash_group(2, 16, root, tokens, flags=gpc.TAIL, out=out), bytes(out[:96])), (7, state), "by out")
b = c.reserve(0, 12)
c.publish(None, full[:9 * 16] + state[:32] + state[48:64], b)
c.release(b)
is_(c.match_groups([(full, 8, 0), (state, 0, 1)]), (64, [b[:8] + [-1] * 4, [-1] * 3 + [b[11]] + [-1] * 2]),
    "match_groups: all of one, the last state of the other")
is_(c.match_groups([(full, 8, 0), (state, 0, 1)], multiple=32, flags=gpc.QUIET)[0], 64, "in chunks of 32")
is_(c.match_groups([(full, 8, 0), (state, 0, 1)], multiple=3)[0], 0, "in none of 48")
refs = c.stats().refs
n, held = c.match_groups(((full, 8, 40), (list(state[i:i + 16] for i in range(0, 96, 16)), 16, 17)), flags=gpc.REF)
is_((n, c.stats().refs - refs), (32, 6), "with references")
is_(held, [b[:4] + [-1] * 8, b[9:11] + [-1] * 4], "on what is needed")
for g in held:
    c.release(g)
is_(c.stats().refs, refs, "given back")
is_(c.match_groups([]), (0, []), "of no groups")

is_(c.tokens(keys[:16], blocks[0]), tokens[:16], "the tokens of a block")
is_(c.tokens(keys[16:32], blocks[1], out=array.array("i", [0] * 16)), 16, "by out, how many they are")
since = c.drops()
is_(c.drop(blocks[5:]) >= 1, True, "dropped blocks ...")
is_(c.lookup(keys)[5], -1, "... are not found")
is_(c.dropped(since, keys), 1, "dropped: one of the keys")
is_(c.dropped(c.drops(), keys), 0, "and none since then")
ok(c.drops() > since, "drops() is greater behind a drop")
b = c.reserve(0, 1)
is_(c.publish(keys[64:80], keys[80:96], b, resident=True, since=since), [-errno.ESTALE], "since: computed before the drop")
is_(c.publish(keys[64:80], keys[80:96], b, resident=True, since=c.drops()), b, "and behind it")
is_(c.drop(b, flags=gpc.EVERYWHERE), 1, "EVERYWHERE")
try:
    c.drop(b, flags=gpc.ONLY | gpc.EVERYWHERE)
    ok(False, "ONLY and EVERYWHERE are refused")
except gpc.Error as e:
    is_(e.errno, errno.EINVAL, "ONLY and EVERYWHERE are refused")
c.release(b)
c.release(blocks)
is_(len(c.evict(0, 2)), 2, "two are evicted")
taken = c.evict(0, 1, flags=gpc.TAKE)
c.release(taken)
is_(c.reserve(0, 200, flags=gpc.PARTIAL, out=array.array("i", [0] * 200)), 100, "PARTIAL: as many as there are")
is_(c.check(), 0, "all invariants hold")
c.close()
c.close()
ok(c.closed, "closed, twice")
done()
