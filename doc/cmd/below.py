# SPDX-License-Identifier: Apache-2.0
import gpc

SIZE = 65536                                        # bytes of a block

with gpc.attach("demo") as c, memoryview(c.pool_map(0)[0]) as ram:      # pool 0, block after block
    root = c.key_root([(1, b"llama")])
    keys = c.key_hash(root, list(range(1024)))      # a prompt of 64 blocks
    c.tiers_sync(timeout=10)                        # only so that we can count: the file has been read
    c.prefetch(0, keys, timeout=10)                 # what is below RAM comes up
    hit = c.acquire(keys)                           # the first blocks of the prompt, as far as they are in RAM
    good = sum(ram[b * SIZE:(b + 1) * SIZE] == bytes([i]) * SIZE for i, b in enumerate(hit))
    print(f"{len(hit)} of 64 blocks came up, {good} of them have their bytes")
    new = c.reserve(0, 64 - len(hit), timeout=1)
    for i, b in enumerate(new, len(hit)):           # the prefill
        ram[b * SIZE:(b + 1) * SIZE] = bytes([i]) * SIZE
    c.publish((root + keys)[len(hit) * 16:-16], keys[len(hit) * 16:], new)
    c.release(hit + new)
    c.tiers_sync(timeout=10)                        # gpcd has written what is next to go
    print(f"{len(c.evict(0, 64))} blocks were evicted from RAM")
