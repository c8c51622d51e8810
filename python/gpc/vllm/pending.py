# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-manager.t
"""Keys that vLLM was told to wait for.  For each, vLLM 0.33 keeps a note for a later KV event, tokens included, until
the key is removed.  A claim that ends without its key is a removal that only vLLM is told of.

    told of a key          then                                   the note
    HIT_PENDING            HIT                                    stays: the key's own removal ends it
    HIT_PENDING            MISS                                   ends
    HIT_PENDING            all that were told so have finished    ends, if the key is not live
    HIT_PENDING            a reset                                vLLM ends all of them
"""


class Pending:
    def __init__(self, on, live):
        """live: a function from keys to whether each is in the cache."""
        self.on, self.live = on, live
        self.waiting, self.gone, self.left = {}, [], []          # key -> requests that wait; keys that are told next

    def answered(self, key, answer, request):
        if not self.on:
            return
        if answer == "HIT_PENDING":
            self.waiting.setdefault(key, set()).add(request)
        elif self.waiting.pop(key, None) is not None and answer == "MISS":
            self.gone.append(key)

    def finished(self, request):
        for key in [k for k, who in self.waiting.items() if request in who]:
            self.waiting[key].discard(request)
            if not self.waiting[key]:
                del self.waiting[key]
                self.left.append(key)

    def take(self):
        """Keys whose notes end."""
        out, self.gone = self.gone, []
        if self.left:
            out += [k for k, there in zip(self.left, self.live(self.left)) if not there]
            self.left = []
        return out

    def reset(self):
        self.waiting.clear()
        self.gone, self.left = [], []
