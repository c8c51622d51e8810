# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t
"""Dtypes and shapes of objects.  An engine of float16 cannot use bytes of bfloat16, nor can one of fp8_e5m2 use bytes
of fp8_e4m3.  ObjectKey does not tell them apart.

    who asks                                        layout
    a lookup                                        that of the key's object group, group_layout_descs
    a store or a load, metadata of what it was      that of the metadata
      looked up as, or of a group that was not
      looked up yet
    ... of flat bytes (LMCache's serde), where      that one: lookups know no other
      lookups named one layout of the group
    ... of flat bytes, where they named several     that of the flat bytes, which nobody looks up: a miss
    anybody, of whom LMCache tells none             NONE
"""

import hashlib
import json
import threading

LAYOUT = 16                      # bytes
NONE = bytes(LAYOUT)
_MOST = 64                       # layouts of one group that are remembered


def layout_of(shapes, dtypes):
    words = json.dumps([[[int(n) for n in shape] for shape in shapes], [str(d) for d in dtypes]])
    return hashlib.sha256(words.encode()).digest()[:LAYOUT]


def _told(obj):
    """(shapes, dtypes) of a MemoryObj, or None."""
    meta = getattr(obj, "metadata", None)
    shapes, dtypes = getattr(meta, "shapes", None), getattr(meta, "dtypes", None)
    if not shapes or not dtypes:
        shapes, dtypes = [getattr(meta, "shape", None)], [getattr(meta, "dtype", None)]
    return None if shapes[0] is None or dtypes[0] is None else (shapes, dtypes)


def _flat(shapes, dtypes):
    return len(shapes) == len(shapes[0]) == len(dtypes) == 1 and str(dtypes[0]).endswith("uint8")


class Layouts:
    """Any thread may call it."""

    def __init__(self):
        self.lock, self.groups = threading.Lock(), {}    # (model, group) -> layouts that lookups named

    def of_lookup(self, key, descs):
        desc = (descs or {}).get(key.object_group_id)
        if desc is None:
            return NONE
        layout = layout_of(desc.shapes, desc.dtypes)
        with self.lock:
            named = self.groups.setdefault((key.model_name, key.object_group_id), set())
            if len(named) < _MOST:
                named.add(layout)
        return layout

    def of_object(self, key, obj):
        told = _told(obj)
        if told is None:
            return NONE
        layout = layout_of(*told)
        with self.lock:
            named = self.groups.get((key.model_name, key.object_group_id), set())
            return next(iter(named)) if _flat(*told) and layout not in named and len(named) == 1 else layout
