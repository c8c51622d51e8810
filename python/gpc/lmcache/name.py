# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t
"""Which engines may share a cache, and the digest that an object is stored under."""

import hashlib
import json
import logging

from ..engines.config import ConfigError
from ..engines.weights import weights_of

IMAGE_VERSION = 3                # grows when the bytes in a slot, or their name, change
NAME = 16                        # bytes

log = logging.getLogger("lmcache.gpc")


def fingerprint(conf):
    """32 bytes.  One cache has the objects of all models; each digest tells them apart."""
    meaning = {"image": IMAGE_VERSION, "engine": "lmcache", "slot_bytes": conf.slot_bytes, "weights": conf.weights}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).digest()


def cache_name(conf, layout):
    return conf.name or "lmcache-" + layout[:8].hex()


class Names:
    def __init__(self, conf):
        self.given, self.weights = conf.weights, {}

    def _weights(self, model):
        """None: the weights cannot be told, so no object of this model is stored or found."""
        if model not in self.weights:
            try:
                self.weights[model] = weights_of(model, self.given)
            except ConfigError as e:
                log.error("gpc: nothing of this model is stored: %s", e)
                self.weights[model] = None
        return self.weights[model]

    def name(self, key):
        """The digest of an ObjectKey, of any layout; None: its model's weights cannot be told."""
        weights = self._weights(key.model_name)
        if weights is None:
            return None
        h = hashlib.sha256(json.dumps([weights, key.model_name, key.kv_rank, key.object_group_id,
                                       key.cache_salt]).encode() + b"\n")
        h.update(key.chunk_hash)
        return h.digest()[:NAME]


def digest(name, layout):
    """The layout is at its end, so that the layouts in a cache can be told from its digests: `delete` is not told
    them."""
    return name + layout
