# SPDX-License-Identifier: Apache-2.0
"""An engine of gpc.vllm whose cache is being made: its start does not wait for long, it computes meanwhile, and then has the
cache.  An error of the first second ends the start, a later one is told."""

import logging
import os
import tempfile
import threading

import vllm_fake as fake

fake.install()

import gpc  # noqa: E402
import gpc.vllm.finder  # noqa: E402
import gpc.vllm.worker  # noqa: E402
from gpc.engines import cache  # noqa: E402
from gpc.vllm import GPCConnector, GPCOffloadingManager, GPCOffloadingSpec, coming, meet, model, spec  # noqa: E402
from gpc.vllm.config import Config, ConfigError  # noqa: E402
from tap import _made, done, is_, name, ok, raises  # noqa: E402

gpc.vllm.finder.ASK = gpc.vllm.worker.SEAT = 60
HIT, MISS = fake.LookupResult.HIT, fake.LookupResult.MISS
EXTRA = {"gpc_weights": "w", "gpc_bytes": (64 + 40) * 4096, "gpc_stock": 0, "gpc_free_target": -1, "gpc_pending_ms": 60000,
         "gpc_attach_ms": 60000}
GROUP = fake.ns(group_idx=0, sliding_window_size_in_chunks=None)
numbers, logs = iter(range(10 ** 6)), []
logging.getLogger("vllm.gpc").addHandler(type("Keep", (logging.Handler,), {
    "emit": lambda self, record: logs.append((record.levelname, record.getMessage()))})())
logging.getLogger("vllm.gpc").setLevel(logging.DEBUG)
logging.getLogger("vllm.gpc").propagate = False
fake.OffloadingConnector.reset_cache = lambda self: self.connector_scheduler.manager.reset_cache()
VERSION = f"/tmp/{name}.version"
open_cache = spec.open_cache


def on_new_request(self, request):
    """vLLM's, which knows a request from then on."""
    self.connector_scheduler._req_status[request.request_id] = request.state
    self.connector_scheduler.manager.on_new_request(request.state.req_context)


fake.OffloadingConnector.on_new_request = on_new_request


class Gate:
    """The making of memory, which goes on when it is told to; with an error, if there is one."""

    def __init__(self):
        self.begun, self.go, self.error, self.cache, self.ended = threading.Event(), threading.Event(), None, None, threading.Event()

    def __call__(self, *args, **more):
        making = args[-1]

        def wait():
            making()
            self.begun.set()
            self.go.wait()
            if self.error:
                raise self.error
        self.cache = open_cache(*args[:-1], wait, **more)
        return self.cache


def of_spec(suffix, told=True, engine="", **more):
    _made.add(name + suffix)
    token = model.TOLD.set(fake.vllm_config()) if told else None
    try:
        return GPCOffloadingSpec(fake.config({**EXTRA, "gpc_name": name + suffix, **more}, engine_id=name + suffix + engine))
    finally:
        if told:
            model.TOLD.reset(token)


class Engine:
    def __init__(self, suffix, gate=None, **more):
        self.spec = of_spec(suffix, **more)
        spec.open_cache = gate or open_cache
        self.half = fake.ns(manager=self.spec.get_manager(), _req_status={},
                            config=fake.ns(kv_group_configs=[GROUP], blocks_per_chunk=1, hashes_per_chunk=1))
        spec.open_cache = open_cache
        self.link = GPCConnector(None, "scheduler", fake.ns(half=self.half, kv_cache_groups=[GROUP]))

    @property
    def m(self):
        return self.half.manager

    def arrives(self, text, chunks=3, computed=0, lora=None):
        """A request, as vLLM's scheduler has it."""
        ctx, keys = fake.prompt(text, chunks)
        ctx.req_id = f"{text} {next(numbers)}"
        request = fake.ns(request_id=ctx.req_id, num_computed_tokens=computed, lora_request=lora, cache_salt=None,
                          all_token_ids=list(range(16 * chunks)))
        group = fake.ns(offload_keys=[], next_stored_chunk_idx=0, stored=[])
        request.state = fake.ns(req=request, req_context=ctx, group_states=[group], transfer_jobs=set(), update_offload_keys=lambda: None)
        self.link.on_new_request(request)
        return ctx, keys, group

    def steps(self):
        """Steps of vLLM, until no chunk is left to be offered."""
        while True:
            self.link.build_connector_meta(None)
            self.m.on_schedule_end(None)
            if isinstance(self.m, GPCOffloadingManager):
                fake.settle(self.m)
            groups = [g for s in self.half._req_status.values() for g in s.group_states]
            if all(g.next_stored_chunk_idx == len(g.offload_keys) for g in groups):
                return

    def stores(self, ctx, group):
        """What was offered is stored, and told."""
        some, group.stored = group.stored, []
        if some:
            self.m.complete_store(set(some), ctx)
            self.m.publisher.collect(60)
            self.m.on_schedule_end(None)
            self.m.c.ticket_wait()
        return some

    def store(self, text, chunks=3):
        ctx, keys, group = self.arrives(text, chunks)
        group.offload_keys = list(keys)
        self.steps()
        self.stores(ctx, group)
        self.ends(ctx)

    def ends(self, ctx):
        del self.half._req_status[ctx.req_id]
        self.m.on_request_finished(ctx)

    def finds(self, text, chunks=3):
        ctx, keys, _ = self.arrives(text, chunks)
        got = [self.m.lookup(k, ctx) for k in keys]
        self.m.on_schedule_end(None)
        self.ends(ctx)
        return [g is HIT for g in got]


def come(e, gate):
    """The memory is there."""
    gate.go.set()
    opening = e.m.opening
    with opening.lock:
        opening.lock.wait_for(lambda: opening.ended)


coming.SMALL, coming.EARLY, spec.SMALL, spec.EARLY, coming.PAUSE = 0, 0.01, 0, 0.01, 0

# ---- a large cache ----

gate = Gate()
raises(ConfigError, "gpc_remote: there is no plugin none", lambda: Engine("-p", gate, gpc_remote="none:x=1"), "an error of the start ends it")
ok(not gate.begun.is_set(), "before memory is made")
gate = Gate()
e = Engine("-l", gate)
ok(isinstance(e.m, coming.Coming) and gate.begun.is_set(), "the start of an engine does not wait for the memory of a large cache")
ok(any("is being made: the engine starts meanwhile" in t for _, t in logs), "it says so")
ctx, keys, group = e.arrives("old", 3)
is_(([e.m.lookup(k, ctx) for k in keys], e.m.count_hits(keys, ctx)), ([MISS] * 3, None), "nothing is found")
group.offload_keys = list(keys)
e.steps()
is_((group.stored, group.next_stored_chunk_idx), ([], 3), "nor stored: vLLM takes it for done")
gauges = e.m.get_stats().gauges
is_((gauges["vllm:kv_offload_gpc_writer"], len(gauges), e.m.get_stats(), [*(e.m.take_events() or ())], e.m.config_info()),
    (0, 5, None, [], []), "its metrics say once that there is no writer")
ok(not e.m.has_pending_work(), "an idle engine need not step")
e.m.touch(keys, ctx)
e.link.request_finished(fake.ns(request_id=ctx.req_id), ())
raises(KeyError, "no lookup has said HIT", lambda: e.m.prepare_load(keys, ctx), "what was not found is not loaded")
worker = e.spec.get_worker(fake.caches([fake.Tensor(64, 1024)]))
path = meet._prefix("", name + "-l") + f"{os.getpid()}.where"
worker.attach_at_start()
is_(worker.beside, {}, "a worker that asks is told that the cache comes, also behind the first step")
os.rename(path, path + ".away")
raises(ConfigError, "does not find the cache of its scheduler", worker.attach_at_start, "and is told to end where nobody has left word")
os.rename(path + ".away", path)
come(e, gate)
ok(isinstance(e.m, coming.Coming), "between two steps it changes nothing")
is_(group.next_stored_chunk_idx, 3, "nor does it for requests")
e.steps()
ok(isinstance(e.m, GPCOffloadingManager) and not e.link.comes and e.spec.get_manager() is e.m, "the step after has the cache")
is_((e.m.groups, e.m.later, e.m.windows, e.m.once, e.m.prompts.request_of == e.link._request), ({0: True}, {}, {}, set(), True),
    "its manager has all that the connector tells one")
group.offload_keys = fake.prompt("old", 4)[1]
e.steps()
is_((e.stores(ctx, group), e.m.lookup(keys[0], ctx)), ([], MISS), "requests under way store nothing, and find nothing")
e.ends(ctx)
e.store("new")
is_(e.finds("new"), [True] * 3, "later ones do")
with gpc.attach(name + "-l") as c:
    is_(c.stats().live, 3, "by all")
other = Engine("-l", engine="other")
ok(isinstance(other.m, GPCOffloadingManager), "an engine that finds a cache attaches at its start")
is_(other.finds("new"), [True] * 3, "and finds the same")
out = fake.offer(e.m, *fake.prompt("more", 1)[::-1])
worker.submit_store(1, fake.blocks([3]), out.store_spec)
worker.wait([1])
is_((list(worker.beside), [r.success for r in worker.get_finished()]), ([e.m.where], True and [True]), "a worker attaches with its first job")
e.steps()
woken = of_spec("-l").get_worker(fake.caches([fake.Tensor(64, 1024)]))
woken.attach_at_start()
is_(list(woken.beside), [e.m.where], "or when an engine wakes, before that")
worker.shutdown()
woken.shutdown()
e.m.shutdown()
ok(not os.path.exists(path), "the word goes with the engine")
other.m.shutdown()

# ---- groups ----

gate = Gate()
e = Engine("-g", gate)
e.half.config.kv_group_configs = [GROUP, fake.ns(group_idx=1, sliding_window_size_in_chunks=2), fake.ns(group_idx=2, sliding_window_size_in_chunks=1)]
come(e, gate)
e.link._look()
is_((e.m.windows, e.m.once, e.m.groups), ({1: 3, 2: 2}, {2}, {0: True, 1: False, 2: False}), "the manager is told of all groups")
e.m.shutdown()

# ---- it comes while nothing runs ----

gate = Gate()
e = Engine("-i", gate)
come(e, gate)
other = Engine("-i", engine="other")
other.store("there", 2)
is_(e.finds("there", 2), [True] * 2, "a request of an idle engine finds in a cache that came before it")
e.m.shutdown()
other.m.shutdown()

# ---- who waits ----

def waits(suffix, told):
    spec.open_cache = gate = Gate()
    of = of_spec(suffix, told)
    t = threading.Thread(target=of.get_manager)
    t.start()
    gate.begun.wait()
    t.join(0.1)
    out = t.is_alive()
    gate.go.set()
    t.join()
    spec.open_cache = open_cache
    ok(isinstance(of.get_manager(), GPCOffloadingManager), "with its cache")
    of.get_manager().shutdown()
    return out


coming.SMALL = spec.SMALL = 1 << 20
ok(waits("-s", True), "an engine whose cache is small begins")


def others(*args):
    args[-1]()
    raise gpc.TimedOut(110, "is being made by another process")


raises(gpc.TimedOut, "is being made by another", lambda: Engine("-s2", others), "or ends, where another engine makes it for longer than the wait")
coming.SMALL = spec.SMALL = 0
ok(waits("-o", False), "so does one with a large cache, where vLLM's own connector would keep another manager")

# ---- errors ----

coming.EARLY = spec.EARLY = 60


def refuses(gate, error):
    gate.error = error
    gate.go.set()
    return gate


before = len(logs)
raises(gpc.NoSpace, "gpc_bytes: ", lambda: Engine("-e", refuses(Gate(), gpc.NoSpace(28, "too little"))), "an error of the first second ends the start")
is_([t for level, t in logs[before:] if level == "ERROR"], [f"gpc: the engine cannot use a cache: [Errno 28] gpc_bytes: {EXTRA['gpc_bytes']}: "
    "too little. Ask for less, or make room: a tmpfs is resized with mount -o remount,size=..., a container gets --shm-size"], "with a sentence")
raises(ConfigError, "gpc_bytes: 1, at least", lambda: Engine("-e", gpc_bytes=1), "a cache of too few slots does at once")
before = len(logs)
raises(ConfigError, "gpc_byte: there is no such key", lambda: Config({**EXTRA, "gpc_byte": 1}), "so does a key that is none")
is_([(level, t[:54]) for level, t in logs[before:]], [("ERROR", "gpc: the engine cannot use a cache: gpc_byte: there is")], "with a sentence, too")
is_([Config({**EXTRA, "gpc_bytes": n}).bytes for n in ("3k", "2M", "4G", "5T")], [3 << 10, 2 << 20, 4 << 30, 5 << 40], "numbers have powers of 1024")
before = len(logs)
for level in range(3, 7):
    cache._pass_on(logging.getLogger("vllm.gpc"))(level, "a line of the library")
is_([level for level, _ in logs[before:]], ["ERROR", "WARNING", "INFO", "DEBUG"], "its notices are seen, and the rest is not")
coming.EARLY = spec.EARLY = 0.01
gate = Gate()
e = Engine("-f", gate)
gate.error = gpc.NoSpace(28, "too little")
before = len(logs)
now = [1000.0]
e.m.clock, e.m.next_word = lambda: now[0], 1000.0 + coming.AGAIN
come(e, gate)
is_([level for level, t in logs[before:] if "goes on without a cache: [Errno 28] gpc_bytes" in t], ["ERROR"], "a later one is told when it comes")
is_(e.finds("none"), [False] * 3, "the engine goes on")
e.steps()
is_(len(logs) - before, 1, "and does not repeat it with each step")
now[0] += coming.AGAIN
e.steps()
e.steps()
is_([level for level, t in logs[before:] if "goes on without a cache" in t], ["ERROR"] * 2, "but each minute")
for _ in range(100):
    e.steps()
t, depth = e.m.opening.error.__traceback__, 0
while t:
    t, depth = t.tb_next, depth + 1
ok(depth < 10, "an error that is there for many steps keeps none of them")
e.m.shutdown()

# ---- a cache that another engine makes, for longer than the wait ----

gate, calls = Gate(), []


def busy(*args):
    calls.append(1)
    args[-1]()
    gate.begun.set()
    if len(calls) < 3:
        gate.go.wait()
        raise gpc.TimedOut(110, "is being made by another process") if len(calls) == 1 else gpc.Again(11, "is being made by another process")
    return open_cache(*args)


e = Engine("-b", busy)
spec.open_cache, before = busy, len(logs)
come(e, gate)
spec.open_cache = open_cache
e.steps()
is_((len(calls), isinstance(e.m, GPCOffloadingManager)), (3, True), "is opened again, until it is there")
is_([t for level, t in logs[before:] if level == "ERROR"], [], "without an error")
e.m.shutdown()

# ---- a manager that cannot be made ----

gate = Gate()
e = Engine("-m", gate)
tries = []
e.m.make = lambda cache: (tries.append(1), [][0])
before = len(logs)
come(e, gate)
is_(e.finds("none"), [False] * 3, "does not end a step")
ok(gate.cache.closed and any("goes on without a cache: list index" in t for _, t in logs[before:]), "it is told, and the cache closed")
e.steps()
is_(len(tries), 1, "and not tried again")
woken = of_spec("-m").get_worker(fake.caches([fake.Tensor(64, 1024)]))
woken.attach_at_start()
is_(woken.beside, {}, "an engine that wakes then goes on")
woken.shutdown()
e.m.shutdown()

# ---- weights that change meanwhile ----

gate = Gate()
e = Engine("-w", gate)
running, rkeys, rgroup = e.arrives("running", computed=40)
rgroup.offload_keys = list(rkeys)
e.steps()
e.link.reset_cache()
come(e, gate)
e.steps()
is_(e.stores(running, rgroup), [], "a request that runs on with blocks of before a reset is not stored")
e.store("after")
other = Engine("-w", engine="other")
is_((e.finds("after"), other.finds("after")), ([True] * 3, [False] * 3), "engines with the weights of before do not find what is stored behind the reset")
e.m.shutdown()
other.m.shutdown()


def version(text):
    with open(VERSION, "w") as f:
        f.write(text)


for what in ("", "reset"):
    version("step 1")
    gate = Gate()
    e = Engine("-v" + what, gate, gpc_version_file=VERSION)
    if what:
        version("step 2")
        e.link.reset_cache()
    version("step 3")
    come(e, gate)
    e.steps()
    e.store("seen")
    version("step 2" if what else "step 1")
    same = Engine("-v" + what, engine="same", gpc_version_file=VERSION)
    version("step 3")
    later = Engine("-v" + what, engine="later", gpc_version_file=VERSION)
    is_((same.finds("seen"), later.finds("seen")), ([True] * 3, [False] * 3),
        f"the version counts that the file had at the {what or 'start'}, not when the cache came")
    for x in (e, same, later):
        x.m.shutdown()
os.unlink(VERSION)

# ---- adapters ----

with tempfile.TemporaryDirectory() as folder:
    def save(text):
        with open(folder + "/adapter.safetensors", "w") as f:
            f.write(text)

    lora = fake.ns(lora_name="a", lora_path=folder, lora_int_id=1, load_inplace=False)
    save("one")
    gate = Gate()
    e = Engine("-a", gate)
    ctx, keys, group = e.arrives("with", lora=lora)
    is_(e.m.lookup(keys[0], ctx), fake.LookupResult.RETRY, "a request waits until its adapter's files are known: vLLM reads them later")
    ok(e.m.has_pending_work(), "and has the engine step meanwhile")
    e.m.adapters.asker.settle(60)
    is_((e.m.lookup(keys[0], ctx), e.m.has_pending_work()), (MISS, False), "no longer")
    save("two, longer")
    come(e, gate)
    e.steps()
    e.ends(ctx)
    now, keys, group = e.arrives("again", lora=lora)
    e.m.lookup(keys[0], now)
    fake.settle(e.m)
    e.m.lookup(keys[0], now)
    ok(e.m._request(now).apart, "files that have changed since are not taken for what vLLM has")
    same = fake.ns(lora_name="b", lora_path=folder, lora_int_id=2, load_inplace=False)
    now, keys, group = e.arrives("other number", lora=same)
    e.m.lookup(keys[0], now)
    fake.settle(e.m)
    e.m.lookup(keys[0], now)
    ok(not e.m._request(now).apart, "another adapter of the same files is known")
    gate = Gate()
    other = Engine("-a2", gate)
    other.m.adapters.look = lambda lora, then: False
    ctx, keys, group = other.arrives("refused", lora=lora)
    is_((other.m.lookup(keys[0], ctx), other.m.adapters.loaded), (MISS, {1: (folder, None)}), "an adapter that could not be looked at is not known later")
    come(other, gate)
    e.m.shutdown()
    other.m.shutdown()

# ---- the end ----

gate = Gate()
e = Engine("-d", gate)
e.m.shutdown()
ok(not os.path.exists(meet._prefix("", name + "-d") + f"{os.getpid()}.where"), "an engine that ends takes its word back")
come(e, gate)
for t in threading.enumerate():
    if t.name == "gpc-opening":
        t.join()
ok(gate.cache.closed, "a cache that comes then is closed")
gate = Gate()
e = Engine("-d2", gate)
come(e, gate)
e.m.shutdown()
ok(gate.cache.closed, "so is one that has come, and that nobody has taken")
gate, leave = Gate(), meet.leave_word
meet.leave_word = lambda folder, engine: {}["no word"]
raises(KeyError, "no word", lambda: Engine("-d3", gate), "a start that fails later ends")
meet.leave_word = leave
gate.go.set()
for t in threading.enumerate():
    if t.name == "gpc-opening":
        t.join()
ok(gate.cache.closed, "and keeps no cache")
done()
