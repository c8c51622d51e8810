# SPDX-License-Identifier: Apache-2.0
# Tests: t/kv/vllm-events.t
"""Facts of a chunk that routers want beside its hash (gpc-events(7)): its tokens, adapter and salt.  GPCConnector,
which has vLLM's requests, tells them, if gpc_keep_tokens is set.

The words of a root are its adapter and salt.  They must be there when the first block below the root is told:

    a root                              publishes below it
    the cache has its words             are sent at once
    it has not, or has forgotten them   wait: the cache is asked to keep them
    the answer has come                 are sent, in order; without words, where it was no
"""

import array
import logging

import gpc

log = logging.getLogger("vllm.gpc")
_ADAPTER, _SALT = 2, 3           # tags of fields of a root


class Prompts:
    def __init__(self, cache, name, conf, ask):
        self.c, self.ask = cache, ask
        self.waiting = {}        # root whose words are being kept -> calls that wait for that: see then
        self.request_of = None   # a request's number -> vLLM's Request, or None
        info = cache.info()
        self.block_tokens = info.block_tokens if conf.keep_tokens and info.keep_tokens else 0
        if conf.keep_tokens and not info.keep_tokens:
            log.warning("gpc: gpc_keep_tokens: true, and the cache %s was made without: no tokens are kept. To change "
                        "that, end all of its engines, run 'gpc-inspect rm %s' and start again", name, name)

    def _request(self, ctx):
        return self.request_of(ctx.req_id) if self.block_tokens and self.request_of else None

    def adapter(self, ctx):
        """vLLM's LoRARequest, or None."""
        return getattr(self.request_of(ctx.req_id), "lora_request", None) if self.request_of else None

    def tokens(self, ctx, step, ends):
        """The tokens of the chunks of `step` tokens that end there.  None where these are no whole blocks of the cache,
        or not all of them are known: a prompt of embeddings has none."""
        request = self._request(ctx)
        if request is None or step != self.block_tokens or getattr(request, "prompt_embeds", None) is not None:
            return None
        all_, out = request.all_token_ids, array.array("I")
        for end in ends:
            if end <= 0 or end % step or end > len(all_):
                return None
            try:
                out.extend(all_[end - step:end])
            except (OverflowError, TypeError):       # these are no numbers of tokens
                return None
        return out

    def root(self, ctx, namespace=""):
        """The root key of adapter and salt; None: it has neither.  The namespace follows the salt, so that no consumer
        takes the blocks for those of other weights."""
        request = self._request(ctx)
        if request is None:
            return None
        lora, salt, fields = getattr(request, "lora_request", None), getattr(request, "cache_salt", None), []
        if lora is not None:
            fields.append((_ADAPTER, lora.lora_name.encode()))
        salt = (salt or "") + ("@" + namespace if namespace else "")
        if salt:
            fields.append((_SALT, salt.encode()))
        if not fields:
            return None
        root = bytes(self.c.key_root(fields))
        if root not in self.waiting and not self._has(root):
            self.waiting[root] = []
            if not self.ask(lambda: self.c.root_keep(fields, timeout=1.0), lambda kept: self._answered(root)):
                self._answered(root)
        return root

    def _has(self, root):
        try:
            return bool(self.c.root_get(root))
        except gpc.Error:
            return False

    def _answered(self, root):
        for call in self.waiting.pop(root):
            call()

    def then(self, root, call):
        """Calls call() when blocks below the root may be told."""
        waiting = self.waiting.get(root)
        if waiting is None:
            call()
        else:
            waiting.append(call)

    def busy(self):
        return any(self.waiting.values())
