# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-namespace.t
"""The bytes of LoRA adapters are in the keys of their requests.  vLLM's hash of a block has only an adapter's name and
path, and either may have other weights tomorrow.

vLLM reads an adapter's files when a request needs them first, again in each step of a request with load_inplace, and
again after it had to forget the adapter for want of room.  So it is known as follows which bytes vLLM has:

    files are as when this adapter (by its number) was seen first, or seen last with load_inplace    those
    files have changed since, the request has load_inplace                                           the new ones
    files have changed since, or the number has another path, and it has not                         unknown

A request whose adapter is not known neither finds nor stores anything.

A thread of its own looks at the files, and the scheduler's thread never does: a folder may be far away, and its bytes
many.

    a request with an adapter      its lookups                its stores
    was not looked for yet         RETRY, and it is asked     are offered again in a later step
    is asked for                   RETRY, for WAIT at most    as above
    ... for longer than WAIT       MISS                       as above
    is known                       by its salt                are published when the files are found to be the same still
    is known, and has changed      MISS                       are given back
"""

import json
import logging
import os

from ..engines.config import ConfigError
from ..engines.namespace import salt_of
from ..engines.weights import weights_of
from .asker import Asker

log = logging.getLogger("vllm.gpc")

WAIT = 30.0                      # seconds that a lookup waits for an adapter to be known


def _state(path):
    """A state that changes with the files."""
    try:
        with os.scandir(path) as entries:
            return sorted((e.name, *_numbers(e.stat())) for e in entries if e.is_file())
    except NotADirectoryError:
        return _numbers(os.stat(path))
    except OSError:
        return None


def _numbers(s):
    return s.st_mtime_ns, s.st_size, s.st_ino


def _path(lora):
    return getattr(lora, "lora_path", None) or ""


class Adapters:
    def __init__(self, words):
        """words: all other facts that give adapters their meaning."""
        self.words = json.dumps(words, sort_keys=True).encode()
        self.asker = Asker("gpc-adapters")
        # path -> state, and a text that tells its weights, for the files as they were last.  The thread's
        self.digests = {}
        self.loaded = {}         # number -> path and state that the engine has
        self.told = set()
        self.seen = set()        # digests of all requests: for events

    def _once(self, about, text, *args):
        if about not in self.told:
            self.told.add(about)
            log.warning(text, *args)

    def _digest(self, lora, state):
        path = _path(lora)
        have = self.digests.get(path)
        if have and have[0] == state:
            return have[1]
        try:
            digest = weights_of(path).encode()
        except (ConfigError, OSError):
            digest = b""
            self._once(path, "gpc: the adapter %s is at %s, which is neither files nor a download of the hub that this "
                       "process sees: it is known by these names alone, so give other weights another name or path",
                       lora.lora_name, path)
        if _state(path) == state:    # it did not change meanwhile
            self.digests[path] = state, digest
        return digest

    def look(self, lora, then):
        """Calls then(state, digest) in a later step, with None where they cannot be told.  False: not asked, since too
        much is under way."""
        def find():
            state = _state(_path(lora))
            return state, self._digest(lora, state)
        return self.asker.ask(find, lambda found: then(*(found or (None, None))))

    def look_again(self, lora, state, then):
        """Calls then(are its files as when the request began?) in a later step."""
        if not self.asker.ask(lambda: _state(_path(lora)) == state, then):
            then(False)

    def salt(self, namespace, lora, state, digest):
        """The salt of a request's keys; None where the adapter is not known."""
        if lora is None:
            return namespace
        number, now = getattr(lora, "lora_int_id", lora.lora_name), (_path(lora), state)
        if getattr(lora, "load_inplace", False):
            self.loaded[number] = now
        if self.loaded.setdefault(number, now) != now:
            self._once((number, str(now)), "gpc: the files of the adapter %s at %s have changed, and load_inplace is "
                       "false: its requests use no cache, as the engine may have either", lora.lora_name, _path(lora))
            return None
        if digest is None:
            return None
        self.seen.add(digest)
        return self._salt(namespace, digest)

    def _salt(self, namespace, digest):
        return salt_of(b"adapter", namespace, self.words, digest)

    def salts(self, namespace):
        """The salts of all keys that requests of this engine may ask for."""
        return [namespace] + [self._salt(namespace, d) for d in sorted(self.seen)]
