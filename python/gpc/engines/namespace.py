# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-namespace.t t/python/sglang-storage.t
"""A namespace names the state of the model's weights that this engine's KV belongs to.  It goes into every key as a
salt, so engines of one cache find only blocks of their own namespace.

    when                              with gpc_version_file         without
    start                             its content's                 that of the weights' files: no salt
    start, file missing or empty      that of the weights' files
    start, KV that nobody shares      its content's                 a random one
    reset                             its content's, as it is now   a random one
    reset, file missing or empty      a random one

A restarted engine has the weights of the files again.  Where several processes of an engine make keys, they need the
same random ones: `random` gives them.
"""

import hashlib
import os

SALT = 16                        # bytes
_MOST = 1 << 20                  # bytes of a version


def salt_of(*parts):
    h = hashlib.sha256()
    for p in parts:
        h.update(len(p).to_bytes(4, "little") + p)
    return h.digest()[:SALT]


def _version(path, log):
    """The file's content, less white space at its ends; b"": there is none."""
    if not path:
        return b""
    try:
        with open(path, "rb") as f:
            content = f.read(_MOST + 1)
    except OSError as e:
        log.warning("gpc: gpc_version_file: %s", e)
        return b""
    if len(content) > _MOST:
        log.warning("gpc: gpc_version_file: %s has more than %d bytes", path, _MOST)
        return b""
    if not content.strip():
        log.warning("gpc: gpc_version_file: %s is empty", path)
    return content.strip()


class Namespace:
    def __init__(self, path, log, unshared="", random=lambda: os.urandom(SALT)):
        """unshared: the reason why no other engine has this engine's KV, or nothing."""
        self.path, self.log, self.random = path, log, random
        version = _version(path, log)
        self.salt = salt_of(b"version", version) if version else b""
        if unshared and not version:
            self.salt = random()
            log.warning("gpc: this engine shares nothing, and finds nothing of an earlier one: %s. A gpc_version_file "
                        "says of which engines the KV is the same", unshared)

    def reset(self):
        """KV that is stored from now on belongs to other weights.  Returns their description in words."""
        version, was = _version(self.path, self.log), self.salt
        self.salt = salt_of(b"version", version) if version else self.random()
        if not version:
            return "one of its own"
        return f"that of {self.path}" + ", which has not changed: the weights must not have, either" * (self.salt == was)

    @property
    def text(self):
        """The name for routers, which tell keys apart by words."""
        return self.salt.hex()
