# SPDX-License-Identifier: Apache-2.0
# The prefix path of a scheduler in Python, as engines have it: a dict from the hash of a block to
# the block, a count of references in each, and a list of free ones in the order of their release.
#
# A prompt is hashed block by block, each hash over its parent's and the tokens; the blocks are
# looked up until one is missing; those found are taken from the free list and referenced; in the
# end all are released, the tail first.  Three ways to hash:
#
#   pickle   SHA-256 over the pickled tuple of parent, tokens and what else may count: what engines
#            do when nothing is configured
#   packed   SHA-256 over the parent and the tokens as they lie in an array, packed once a prompt
#   tuple    Python's own hash of a tuple, as it was before somebody computed collisions
#
# It does less than an engine does (no events, no groups, no statistics), so an engine is slower.
# usage: dict.py BLOCKS CACHED PROMPTS; one JSON object of CPU microseconds a prompt: the
# median, and where a tenth is below and above.
# Tests: t/tools/bench-peers.t
import array
import collections
import gc
import hashlib
import json
import pickle
import platform
import random
import sys
import time

BLOCK = 16


class Block:
    __slots__ = ("number", "refs")

    def __init__(self, number):
        self.number = number
        self.refs = 0


def hash_pickle(tokens):
    sha256 = hashlib.sha256
    dumps = pickle.dumps
    parent = None
    hashes = []
    for at in range(0, len(tokens) // BLOCK * BLOCK, BLOCK):
        block = (parent, tuple(tokens[at:at + BLOCK]), None)
        parent = sha256(dumps(block, pickle.HIGHEST_PROTOCOL)).digest()
        hashes.append(parent)
    return hashes


def hash_packed(tokens):
    data = array.array("I", tokens).tobytes()
    sha256 = hashlib.sha256
    parent = b""
    hashes = []
    for at in range(0, len(data) // (4 * BLOCK) * (4 * BLOCK), 4 * BLOCK):
        parent = sha256(parent + data[at:at + 4 * BLOCK]).digest()
        hashes.append(parent)
    return hashes


def hash_tuple(tokens):
    parent = None
    hashes = []
    for at in range(0, len(tokens) // BLOCK * BLOCK, BLOCK):
        parent = hash((parent, tuple(tokens[at:at + BLOCK])))
        hashes.append(parent)
    return hashes


class Cache:
    def __init__(self):
        self.blocks = {}
        self.free = collections.OrderedDict()

    def insert(self, hashes):
        for h in hashes:
            block = self.blocks[h] = Block(len(self.blocks))
            self.free[block.number] = block

    def match(self, hashes):
        found = []
        get = self.blocks.get
        for h in hashes:
            block = get(h)
            if block is None:
                break
            found.append(block)
        return found

    def reference(self, blocks):
        free = self.free
        for block in blocks:
            if not block.refs:
                del free[block.number]
            block.refs += 1

    def release(self, blocks):
        free = self.free
        for block in reversed(blocks):
            block.refs -= 1
            if not block.refs:
                free[block.number] = block


def prompt(rng, blocks):
    return [rng.randrange(128000) for _ in range(blocks * BLOCK)]


# Every prompt is another one and cached as a whole; the last ones differ in their last block.
def measure(how, blocks, cached, prompts):
    rng = random.Random()
    cache = Cache()
    known = [prompt(rng, blocks) for _ in range(max(cached // blocks, 1))]
    for tokens in known:
        cache.insert(how(tokens))
    times = []
    for _ in range(prompts):
        tokens = list(rng.choice(known))
        cut = rng.random() < 0.5
        if cut:
            tokens[-1] += 1
        begin = time.thread_time_ns()
        found = cache.match(how(tokens))
        cache.reference(found)
        cache.release(found)
        times.append((time.thread_time_ns() - begin) / 1000)
        if len(found) != blocks - cut:
            sys.exit("%d blocks found of %d" % (len(found), blocks - cut))
    if any(b.refs for b in cache.blocks.values()) or len(cache.free) != len(cache.blocks):
        sys.exit("references are left")
    times.sort()
    return [times[len(times) // 2], times[len(times) // 10], times[len(times) * 9 // 10]]


def main():
    blocks, cached, prompts = map(int, sys.argv[1:])
    if min(blocks, prompts) < 1:
        sys.exit("no prompts to measure")
    gc.disable()
    print(json.dumps({
        "python": platform.python_implementation() + " " + platform.python_version(),
        "pickle": measure(hash_pickle, blocks, cached, prompts),
        "packed": measure(hash_packed, blocks, cached, prompts),
        "tuple": measure(hash_tuple, blocks, cached, prompts),
    }))


main()
