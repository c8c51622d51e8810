# SPDX-License-Identifier: Apache-2.0
"""Walks, events, statistics, sections, devices: what the cache says of itself."""

import array
import ast
import inspect
import os
import re

import gpc
import tap
from tap import create, done, is_, name, ok, raises

c = create(vram_blocks=600, keep_digests=1, devices="host", tick_us=1)
now = c.events(gpc.FROM_NOW)
is_((list(c.walk()), list(c.events()), list(now)), ([], [], []), "an empty cache has no entries and no events")
n = 300
digests = [i.to_bytes(8, "little") for i in range(n)]
keys = c.key_import(digests)
b = c.reserve(0, n)
c.publish(bytes(16) + keys[:-16], keys, b, tag=5, group=3, digests=digests)

entries = list(c.walk())
is_(len(entries), n, "a walk of more than one batch")
is_([e.block for e in entries], b, "parents come first")
e = entries[1]
is_((e.key, e.parent, e.tag, e.refs, e.group, e.digest), (keys[16:32], keys[:16], 5, 1, 3, digests[1]), "an entry")
is_([x.depth - entries[0].depth for x in entries], list(range(n)), "with its depth")
is_(e._fields[:3], ("key", "parent", "block"), "is a named tuple")
events = list(now)
is_([(x.what, x.block, x.tag, x.digest) for x in events], [(gpc.STORED, b[i], 5, digests[i]) for i in range(n)],
    "an event for each, from now on")
is_(list(now), [], "then none")
c.drop(b[-1:])
is_([(x.what, x.key) for x in now], [(gpc.REMOVED, keys[-16:])], "and the iterator goes on")
some, cursor = c.event_read(0, 10)
is_(([x.seq for x in some], cursor == now.cursor), ([x.seq for x in events[:10]], False), "event_read, from the oldest")
raises(TypeError, "", lambda: next(c.walk().__class__()), "a Walk is made by a call")
w = c.walk()
next(w)
c.info()
s = c.stats()
is_((s.live, s.published, s.pid), (n - 1, n, 0), "stats of all")
is_(c.stats(c.info().peer).published, n, "and of one peer")
i = c.info()
is_((i.block_tokens, i.pools, i.mirrors, i.devices, i.tick_us), (16, 1, 1, "host", 1), "info")
is_(c.mirror(0).device, "host", "a mirror")
raises(gpc.NotFound, "", lambda: c.mirror(1), "there is one")
c.mirror_sync()
is_(c.mirror_lag(), 0, "it shows all")

h = c.histogram(gpc.ROUND_TRIP)
is_((h.first_ns, len(h.cell), h.count, h.sum > 0), (1000, 31, sum(h.cell), True), "round trips, from a microsecond on")
is_((h.count > 0, c.histogram(gpc.ROUND_TRIP, i.peer).count), (True, h.count), "all of them are this peer's")
h = c.histogram(what=gpc.COPY_VRAM_RAM)
is_((type(h.cell), h.count, h.sum, h.blocks, h.bytes), (tuple, 0, 0.0, 0, 0), "and no copies")
raises(gpc.Invalid, "", lambda: c.histogram(0), "what there is no histogram of")
raises(gpc.Invalid, "", lambda: c.histogram(gpc.TAKEOVER, i.peer), "a peer has no takeovers")

# ---- sections ----

section = c.section_enter()
raises(gpc.Error, "", lambda: c.reserve(0, 1), "in a section: no waiting")
cookie = c.grace_start()
is_(c.grace_done(cookie), False, "a grace period lasts as long as the section")
c.section_leave(section)
is_(c.grace_done(cookie), True, "and ends with it")
raises(gpc.Invalid, "", lambda: c.section_leave(section), "a section ends once")

# ---- a device ----

raises(gpc.Error, "", lambda: c.lookup(keys, flags=gpc.DEVICE), "DEVICE without an open one")
d = c.dev_open("host")
is_(c.lookup(keys, flags=gpc.DEVICE)[:-1], b[:-1], "a lookup on the device")
out, lens = array.array("i", [9] * n), array.array("I", [9] * 2)
section = d.enter()
d.lookup(keys, out)
d.match(keys, array.array("I", [0, 100, n]), 2, lens, out)
d.leave(section)
raises(BufferError, "", lambda: out.append(1), "its arrays are kept ...")
d.wait(timeout=300)
out.append(1)
ok(True, "... until wait")
is_((list(lens), list(out[:100])), ([100, n - 101], b[:100]), "its answers")
raises(ValueError, "", lambda: d.lookup(keys, lens), "room for the answers is checked")
raises(ValueError, "start[1]", lambda: d.match(keys, array.array("I", [0, n + 1]), 1, lens, out),
       "what a match on the host begins with is checked")
raises(gpc.Error, "", lambda: c.dev_open("cuda:99"), "no such device")
d.close()
d = c.dev_open("host")

# ---- read-only, and damage ----

r = gpc.attach(name, readonly=True)
is_(r.lookup(keys)[:-1], b[:-1], "a read-only handle looks up")
is_(len(list(r.walk())), n - 1, "and walks")
r.close()
reported = []
is_((c.check(reported.append), reported), (0, []), "check finds nothing")
c.release(b)
is_(c.pool_clear(0), 0, "pool_clear")
is_([x.what for x in now if x.what == gpc.CLEARED], [gpc.CLEARED], "is an event")


# ---- the headers ----

def real_names(o):
    return {x for x in vars(o) if not x.startswith("_")}


header = ""
for name in "gpc.h", "gpc_bytes.h", "gpc_device.h", "gpc_look.h", "gpc_serve.h", "gpc_tiers.h":
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "lib", name)) as f:
        header += re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
bodies = re.findall(r"^enum[^{;]*\{(.*?)\}", header, re.M | re.S)
named = {x for body in bodies for x in re.findall(r"\bGPC_(\w+)\s*[=,\n}]", body + "\n")}
is_(named - real_names(gpc._gpc), set(), "each enumerator of the headers has its name here")


def fields_of(struct):
    body = re.search(r"^struct %s \{(.*?)^\};" % struct, header, re.M | re.S).group(1)
    return {x for line in body.split(";") for x in re.findall(r"(\w+)(?:\[\w*\])?\s*(?:,|$)", line.strip())}


is_(fields_of("gpc_tier") ^ set(gpc.Tier._fields), {"size", "ncounters", "reserved", "counter", "counters"},
    "a tier has the fields of gpc_look.h")

# ---- the stub ----

def stub_names(nodes):
    return {x.name if hasattr(x, "name") else x.target.id for x in nodes
            if isinstance(x, (ast.FunctionDef, ast.ClassDef)) or isinstance(x, ast.AnnAssign)} - \
        {"Buffer", "Keys", "Digests", "Ints", "Time", "Stream", "Moves", "Runs"}


with open(os.path.join(os.path.dirname(gpc.__file__), "_gpc.pyi")) as f:
    stub = ast.parse(f.read())
is_(stub_names(stub.body) ^ real_names(gpc._gpc), set(), "the stub has the names of the module")
for node in stub.body:
    if isinstance(node, ast.ClassDef) and node.name in ("Cache", "Device", "Part", "Walk"):
        want = real_names(getattr(gpc, node.name))
        is_({x for x in stub_names(node.body) if not x.startswith("_")} ^ want, set(), f"and those of {node.name}")


def arguments(node):
    """Names of the arguments in a stub, and in a docstring."""
    return [x.arg for x in node.args.args + node.args.kwonlyargs if x.arg != "self"]


wrong = []
for node in (x for x in stub.body if isinstance(x, ast.ClassDef) and x.name == "Cache" for x in x.body):
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
        for each in arguments(node):
            try:
                getattr(c, node.name)(**{each: c, "no_such_argument": c})
            except TypeError as e:
                if str(e).endswith(f"no argument {each}"):
                    wrong.append((node.name, each))
            except (ValueError, OSError):
                pass
is_(wrong, [], "each argument of the stub is one of the call")

# ---- signatures, and what help says ----

TWICE = {"timeout": "timeout: seconds", "spaces": "spaces: a set"}
unlike, silent = [], []


def look_at(where, node):
    call = getattr(where, node.name)
    try:
        have = inspect.signature(call)
    except ValueError as e:
        unlike.append((node.name, str(e)))
        return
    names, kinds, defaults = [], [], []
    for p in have.parameters.values():
        if p.name != "self":
            names.append(p.name)
            kinds.append(p.kind == p.KEYWORD_ONLY)
            defaults.append(p.default)
    places = [x for x in node.args.args if x.arg != "self"]
    values = [None] * (len(places) - len(node.args.defaults)) + node.args.defaults + node.args.kw_defaults
    want = [inspect.Parameter.empty if v is None else ast.literal_eval(v) for v in values]
    if names != arguments(node) or kinds != [False] * len(places) + [True] * len(node.args.kwonlyargs) or \
            [x for x, y in zip(defaults, want) if y is not ... and x != y]:
        unlike.append((node.name, str(have)))
    text = call.__doc__ or ""
    if len(text) < 8 or any(t not in text for n, t in TWICE.items() if n in names):
        silent.append(node.name)


seen, walked = set(), 0
for owner, nodes in [(gpc, stub.body)] + [(getattr(gpc, x.name), x.body) for x in stub.body
                                          if isinstance(x, ast.ClassDef) and x.name in ("Cache", "Device", "Part")]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and (owner, node.name) not in seen and not node.decorator_list[1:] and \
                not (node.decorator_list and getattr(node.decorator_list[0], "id", "") == "property") and \
                node.name not in ("__exit__", "__buffer__") and not (node.decorator_list and None in node.args.kw_defaults):
            seen.add((owner, node.name))        # of overloads the first one: it has no out
            look_at(owner, node)
            walked += 1
is_(unlike, [], f"inspect.signature works on {walked} calls, as the stub has them")
is_(silent, [], "and help tells of each, with the units of its times and spaces")
is_([x for t in (gpc.Cache, gpc.Device) for x in dir(t) if callable(getattr(t, x)) and not x.startswith("_")
     and (t, x) not in seen], [], "none is left out")

# ---- repr ----

for o, what in ((c, f"<gpc.Cache '{tap.name}': {c.info().max_blocks} blocks of 16 tokens, peer {c.info().peer}, open>"),
                (d, f"<gpc.Device 'host' of cache '{tap.name}', open>"),
                (c.events(), f"<gpc.Walk of events, cache '{tap.name}' open: cursor 0>")):
    is_(repr(o), what, f"repr: {what}")
r = gpc.attach(tap.name, readonly=True)
is_("read-only, open" in repr(r), True, "repr of a read-only handle")
r.close()
is_("read-only, closed" in repr(r), True, "and when it is closed")

c.close()
raises(ValueError, "closed", lambda: d.enter(), "a device goes with its cache")
raises(ValueError, "closed", lambda: list(w) and list(w) and list(c.walk()), "and a walk")
done()
