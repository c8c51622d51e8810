# SPDX-License-Identifier: Apache-2.0
import gpc

with gpc.attach("demo") as c:
    prompt = [1, 2, 3] + [0] * 1021             # tokens: 64 blocks of 16
    root = c.key_root([(1, b"llama")])          # the model
    keys = c.key_hash(root, prompt[:-1])        # the last token is always computed
    hit = c.acquire(keys)                       # blocks, which stay until they are released
    new = c.reserve(0, len(keys) // 16 - len(hit), timeout=1)
    # ... the prefill writes the blocks in new; then each key with the one before it:
    c.publish((root + keys)[len(hit) * 16:-16], keys[len(hit) * 16:], new)
    print(f"{len(hit)} of {len(hit + new)} blocks were cached")
    c.release(hit + new)
