# SPDX-License-Identifier: Apache-2.0
"""sim.py FOLDER [CASE [SEED]] - vLLM's scheduler and both sides of gpc.vllm, over a model that knows what its KV cache
should hold.  TAP.

The scheduler, the connector, the spec and the worker are the real ones of vLLM and gpc.  The model computes no attention:
into each position of its KV cache it writes a mark of all tokens up to there, of the salt and of the layer, and in each
step it looks at every position that the scheduler believes computed.  So whatever is loaded from a place that is not its
own, half, too early or of another prompt, is seen in that step, for shapes that no engine on CPUs has as well.  Some
engines share a cache, each in a thread, and dice say who asks, who goes away, and who forgets.  Some cases have a disk or a store below a
small RAM, one that is slow, or hangs now and then: `brought` counts what came from there.

A case is a row of CASES.  One case has bytes changed behind gpc's back, without checksums: there the model has to see it.
"""

import itertools
import os
import random
import shutil
import sys
import threading
import time
import traceback
import zlib

os.environ.update(VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

import make_model  # noqa: E402
import below_tiers as tiers  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from fleet import Cache  # noqa: E402
from tap import done, name, ok  # noqa: E402
from vllm import SamplingParams  # noqa: E402
from vllm.config import (  # noqa: E402
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole  # noqa: E402
from vllm.forward_context import ForwardContext  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1 import kv_cache_interface as kinds  # noqa: E402
from vllm.v1.core.kv_cache_utils import (  # noqa: E402
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

import gpc  # noqa: E402
import gpc.engines.below as below  # noqa: E402
import gpc.vllm.spec as spec  # noqa: E402

TOKENS, WORDS = 16, 16           # of a block; of 4 bytes, of a position and layer
PAGE = TOKENS * WORDS * 4
WINDOW, LAYERS = 48, 2           # tokens; of each group
STUCK = 120                      # seconds without a step that computes

#        what differs from BASE
BASE = dict(groups="full", chunk=1, mib=4.0, blocks=120, engines=2, sequences=8, budget=256, caching=True, requests=150, seed=1,
            checksum=True, damage=False, stock=0, prompt_only=True, reset="refuse", below=None, below_ms=300, hangs=False, late=0)
CASES = {
    "full": dict(),
    "full, stock, chunks of 4": dict(chunk=4, stock=64, seed=2),
    "full, chunks of 16": dict(chunk=16, mib=8, blocks=240, seed=3),
    "window, chunks of 3, pool full": dict(groups="window full", chunk=3, mib=2.0, seed=22),
    "window alone, chunks of 3": dict(groups="window", chunk=3, mib=2.0, seed=5),
    "window, chunks of 16": dict(groups="window full", chunk=16, mib=8, blocks=240, seed=6),
    "preemption": dict(blocks=70, engines=3, sequences=16, requests=100, seed=7),
    "preemption, window": dict(groups="window full", blocks=90, sequences=16, requests=100, seed=8),
    "no prefix cache": dict(caching=False, seed=9),
    "no prefix cache, window, chunks of 3": dict(groups="window full", chunk=3, caching=False, seed=10),
    "pool full": dict(mib=1.2, seed=11),
    "states": dict(groups="state full", seed=12),
    "states, chunks of 3": dict(groups="state full", chunk=3, seed=13),
    "states, preemption": dict(groups="state full", blocks=90, sequences=16, requests=100, seed=14),
    "mla": dict(groups="mla", seed=15),
    "mla, chunks of 3, no prefix cache": dict(groups="mla", chunk=3, caching=False, seed=16),
    "mla, window": dict(groups="window mla", seed=17),
    "answers are stored": dict(prompt_only=False, reset="tag", seed=18),
    "damage": dict(damage=True, seed=19),
    "damage, window": dict(groups="window full", damage=True, seed=20),
    "damage, no checksums": dict(damage=True, checksum=False, seed=21),
    "disk": dict(mib=1.2, below="disk", seed=23),
    "disk, window, chunks of 3": dict(groups="window full", chunk=3, mib=2.0, below="disk", seed=24),
    "disk, states, preemption": dict(groups="state full", mib=1.5, blocks=90, sequences=16, requests=100, below="disk", seed=25),
    "disk, damage": dict(mib=1.2, below="disk", damage=True, seed=26),
    "disk that hangs": dict(mib=1.2, below="disk", hangs=True, below_ms=50, seed=27),
    "store that is slow": dict(mib=1.2, below="slow", below_ms=60, seed=28),
    "store that hangs": dict(mib=1.2, below="store", hangs=True, below_ms=50, seed=29),
    "cache that comes late": dict(late=100, seed=30),
    "late, window, chunks of 3": dict(groups="window full", chunk=3, mib=2.0, late=100, seed=31),
    "late, states, preemption": dict(groups="state full", blocks=90, sequences=16, requests=100, late=100, seed=32),
    "late, answers are stored": dict(prompt_only=False, reset="tag", late=100, seed=33),
    "late, preemption": dict(blocks=70, engines=3, sequences=16, requests=100, late=100, seed=34),
}
MUST_FAIL = {"damage, no checksums"}
NO_LOADS = {"states, chunks of 3"}       # vLLM keeps one state of a chunk, so none is whole


def spec_of(kind):
    heads = dict(block_size=TOKENS, num_kv_heads=1, dtype=torch.float32)
    if kind == "window":
        return kinds.SlidingWindowSpec(**heads, head_size=WORDS // 2, sliding_window=WINDOW)
    if kind == "mla":
        return kinds.MLAAttentionSpec(**heads, head_size=WORDS)
    if kind == "state":
        return kinds.MambaSpec(block_size=TOKENS, shapes=((PAGE // 4,),), dtypes=(torch.float32,), mamba_cache_mode="align")
    return kinds.FullAttentionSpec(**heads, head_size=WORDS // 2)


class Memory:
    """KV caches of an engine: groups lie over each other, as vLLM has them, and the marks in them."""

    def __init__(self, groups, blocks):
        self.groups = [(kind, [f"{kind}{g}.{i}" for i in range(LAYERS)]) for g, kind in enumerate(groups)]
        self.tensors = [torch.zeros(blocks, 1, TOKENS, WORDS, dtype=torch.float32) for _ in range(LAYERS)]
        self.words = [t.view(torch.int32).numpy()[:, 0] for t in self.tensors]
        self.caches = {layer: self.tensors[i] for _, layers in self.groups for i, layer in enumerate(layers)}
        specs = [kinds.KVCacheGroupSpec(layers, spec_of(kind)) for kind, layers in self.groups]
        self.config = kinds.KVCacheConfig(num_blocks=blocks, kv_cache_groups=specs, kv_cache_tensors=[
            kinds.KVCacheTensor(size=LAYERS * blocks * PAGE, layers=list(layers), layer_stride=blocks * PAGE, block_stride=PAGE)
            for _, layers in self.groups])

    @staticmethod
    def mark(marks, group, layer):
        return (marks ^ np.uint32(1 + group * LAYERS + layer)).view(np.int32)

    def write(self, blocks, marks, first, last):
        """Positions from first to last, of a request whose blocks of each group these are."""
        at = np.arange(first, last)
        for g, (kind, _) in enumerate(self.groups):
            table = np.asarray(blocks[g])
            for i, words in enumerate(self.words):
                if kind == "state":
                    words[table[(last - 1) // TOKENS]] = self.mark(marks[last - 1:last], g, i)
                else:
                    words[table[at // TOKENS], at % TOKENS] = self.mark(marks[first:last], g, i)[:, None]

    def wrong(self, blocks, marks, computed, states):
        """What is not as it should be, of that which is computed and of use: (group, position), or None."""
        for g, (kind, _) in enumerate(self.groups):
            if (kind == "state") != states:
                continue
            table = np.asarray(blocks[g])
            at = np.arange({"window": max(0, computed - WINDOW + 1), "state": computed - 1}.get(kind, 0), computed)
            for i, words in enumerate(self.words):
                there = words[table[at // TOKENS]].reshape(1, -1) if states else words[table[at // TOKENS], at % TOKENS]
                bad = np.nonzero((there != self.mark(marks[at], g, i)[:, None]).any(axis=1))[0]
                if len(bad):
                    return f"{kind} group {g}, layer {i}, {len(bad)} positions of {computed}, from {at[bad[0]]}"
        return None


class Prompts:
    """Of a tree: each node follows its parent by some tokens, so prompts begin alike as far as they go alike."""

    def __init__(self, dice, most):
        self.dice, self.most = dice, most

    def one(self):
        out, path = [], str(self.dice.randrange(4))
        for _ in range(self.dice.choice((1, 1, 2, 2, 3, 4))):
            node = random.Random(path)
            out += [node.randrange(3, 4000) for _ in range(node.randrange(20, 260))]
            path += f".{self.dice.randrange(3)}"
        if self.dice.random() < 0.5:
            out += [self.dice.randrange(3, 4000) for _ in range(self.dice.randrange(1, 80))]
        return out[:self.most]


class Marks:
    """Of a request: they come with its tokens."""

    def __init__(self, request):
        self.request = request
        self.last = zlib.crc32((request.cache_salt or "").encode()) & 0x7fffffff
        self.all = np.zeros(0, np.uint32)

    def up_to(self, n):
        tokens, more = self.request.all_token_ids, []
        for at in range(len(self.all), n):
            self.last = (self.last * 1000003 + 7919 * tokens[at] + 17) & 0x7fffffff
            more.append(self.last)
        if more:
            self.all = np.concatenate([self.all, np.array(more, np.uint32)])
        return self.all


class Wrong(Exception):
    """Of the KV cache."""


class Engine:
    def __init__(self, number, case, model, cache):
        self.case, self.dice = case, random.Random(1000 * case["seed"] + number)
        self.number, self.model, self.error = number, model, None
        self.counts = dict.fromkeys(("done", "aborted", "resets", "steps", "loaded", "failed"), 0)
        self.positions = 0
        self.memory = Memory(case["groups"].split(), case["blocks"])
        self.config = self.vllm_config(cache)
        tokens, of_hash = resolve_kv_cache_block_sizes(self.memory.config, self.config)
        self.scheduler = Scheduler(vllm_config=self.config, kv_cache_config=self.memory.config, log_stats=True,
                                   structured_output_manager=StructuredOutputManager(self.config), block_size=tokens,
                                   hash_block_size=of_hash)
        self.worker = KVConnectorFactory.create_connector(self.config, KVConnectorRole.WORKER, self.memory.config)
        with set_current_vllm_config(self.config):
            self.worker.register_kv_caches(self.memory.caches)
        self.worker.get_handshake_metadata()
        self.hasher = get_request_block_hasher(of_hash, sha256)
        self.context = ForwardContext(no_compile_layers={}, attn_metadata={}, slot_mapping={})
        self.prompts = Prompts(self.dice, (case["blocks"] - 4) * TOKENS // 2)
        self.marks, self.names = {}, itertools.count()
        self.asked, self.moved_at = 0, time.monotonic()

    def vllm_config(self, cache):
        case = self.case
        extra = {"spec_name": "GPCOffloadingSpec", "spec_module_path": "gpc.vllm", "gpc_bytes": int(case["mib"] * (1 << 20)),
                 "gpc_name": cache, "gpc_weights": "w", "gpc_pending_ms": 300, "gpc_stock": case["stock"],
                 "gpc_below_ms": case["below_ms"], "gpc_checksum": case["checksum"], "blocks_per_chunk": case["chunk"], "gpc_reset": case["reset"],
                 "offload_prompt_only": case["prompt_only"]}
        c = VllmConfig(
            model_config=ModelConfig(model=self.model, dtype="float32", seed=0, skip_tokenizer_init=True),
            scheduler_config=SchedulerConfig(max_num_seqs=case["sequences"], max_num_batched_tokens=case["budget"],
                                             max_model_len=4096, enable_chunked_prefill=True, is_encoder_decoder=False,
                                             disable_hybrid_kv_cache_manager=False),
            cache_config=CacheConfig(block_size=TOKENS, enable_prefix_caching=case["caching"]),
            kv_transfer_config=KVTransferConfig(
                kv_connector="GPCConnector", kv_connector_module_path="gpc.vllm", kv_role="kv_both",
                kv_load_failure_policy="recompute", kv_connector_extra_config=extra),
            device_config=DeviceConfig("cpu"))
        c.scheduler_config.async_scheduling = False
        c.cache_config.kv_cache_layout, c.cache_config.num_gpu_blocks = "LBNHC", case["blocks"]
        c.cache_config.mamba_cache_mode = "align" if "state" in case["groups"] else "none"
        return c

    # ---- what clients do ----

    def ask(self):
        how = SamplingParams(max_tokens=self.dice.choice((1, 2, 5, 20, 60)), ignore_eos=True)
        how.update_from_generation_config({}, 2)
        request = Request(request_id=f"{self.number}-{next(self.names)}", prompt_token_ids=self.prompts.one(),
                          sampling_params=how, pooling_params=None, block_hasher=self.hasher,
                          cache_salt=self.dice.choice((None, None, None, "salt")))
        self.marks[request.request_id] = Marks(request)
        self.scheduler.add_request(request)
        self.asked += 1

    def go_away(self):
        number = self.dice.choice(list(self.marks))
        self.scheduler.finish_requests(number, RequestStatus.FINISHED_ABORTED)
        del self.marks[number]
        self.counts["aborted"] += 1

    def forget(self):
        """Its own prefix cache; and where no load is under way, gpc begins a namespace, now and then."""
        self.scheduler.reset_prefix_cache(reset_running_requests=False, reset_connector=False)
        loading = any(r.status.name == "WAITING_FOR_REMOTE_KVS" for r in self.scheduler.requests.values())
        if not loading and not self.scheduler.running and self.dice.random() < 0.2:
            self.scheduler.reset_prefix_cache(reset_connector=True)
        self.counts["resets"] += 1

    def throw(self):
        n = self.dice.random()
        if self.asked < self.case["requests"] and len(self.marks) < 12 and n < 0.5:
            self.ask()
        elif self.marks and n > 0.985:
            self.go_away()
        elif n > 0.98:
            self.forget()

    # ---- a step ----

    def scheduled(self, out):
        """(request, positions that are computed, those that this step computes)."""
        some = [(r.req_id, r.num_computed_tokens) for r in out.scheduled_new_reqs]
        cached = out.scheduled_cached_reqs
        for number, computed in some + list(zip(cached.req_ids, cached.num_computed_tokens)):
            if number in self.scheduler.requests:
                yield self.scheduler.requests[number], computed, out.num_scheduled_tokens[number]

    def look(self, out, states):
        for request, computed, n in self.scheduled(out):
            if computed:
                marks = self.marks[request.request_id].up_to(computed)
                blocks = self.scheduler.kv_cache_manager.get_block_ids(request.request_id)
                wrong = self.memory.wrong(blocks, marks, computed, states)
                if wrong:
                    raise Wrong(f"engine {self.number}, step {self.counts['steps']}, request {request.request_id}, prompt of "
                                f"{request.num_prompt_tokens}: {wrong}")
                self.positions += computed

    def forward(self, out):
        """States are read before, and keys and values of all of the batch are written before anybody reads them."""
        self.look(out, True)
        for request, computed, n in self.scheduled(out):
            last = min(computed + n, request.num_tokens)
            blocks = self.scheduler.kv_cache_manager.get_block_ids(request.request_id)
            self.memory.write(blocks, self.marks[request.request_id].up_to(last), computed, last)
        self.look(out, False)

    def transfers(self, out):
        """As vLLM's model runner goes about the connector."""
        w, meta = self.worker, out.kv_connector_metadata
        w.handle_preemptions(meta)
        w.bind_connector_metadata(meta)
        first = getattr(out, "has_sync_kv_loads", False)
        if first:
            w.start_load_kv(self.context)
        self.forward(out)
        if not first:
            w.start_load_kv(self.context)
        w.wait_for_save()
        got = w.get_transfer_results(out.finished_req_ids)
        bad = w.get_block_ids_with_load_errors()
        told = w.build_connector_worker_meta()
        w.clear_connector_metadata()
        self.counts["failed"] += len(bad) + len(got.failed_recving or ())
        self.counts["loaded"] += len(got.finished_recving or ())
        return KVConnectorOutput(finished_sending=got.finished_sending, finished_recving=got.finished_recving,
                                 failed_recving=got.failed_recving, invalid_block_ids=bad, kv_connector_worker_meta=told)

    def step(self):
        out = self.scheduler.schedule()
        self.counts["steps"] += 1
        connector = self.transfers(out)
        ids, sampled = [], []
        for request, computed, n in self.scheduled(out):
            ids.append(request.request_id)
            sampled.append([self.dice.randrange(3, 4000)] if computed + n >= request.num_tokens else [])
        told = ModelRunnerOutput(req_ids=ids, req_id_to_index={r: i for i, r in enumerate(ids)}, sampled_token_ids=sampled,
                                 logprobs=None, prompt_logprobs_dict={}, pooler_output=None, kv_connector_output=connector)
        for outputs in self.scheduler.update_from_output(out, told).values():
            for o in outputs.outputs:
                if o.finish_reason is not None and self.marks.pop(o.request_id, None):
                    self.counts["done"] += 1
        if out.total_num_scheduled_tokens:
            self.moved_at = time.monotonic()
        else:
            time.sleep(0.001)
            if time.monotonic() > self.moved_at + STUCK:
                raise Wrong(f"engine {self.number}: nothing is computed for {STUCK} s: " + str(
                    {r: q.status.name for r, q in list(self.scheduler.requests.items())[:8]}))

    def run(self, others):
        try:
            while (self.asked < self.case["requests"] or self.scheduler.has_requests()) and not any(e.error for e in others):
                self.throw()
                self.step()
        except Wrong as e:
            self.error = str(e)
        except Exception:
            self.error = traceback.format_exc()

    def close(self):
        for connector in (self.worker, self.scheduler.connector):
            connector.shutdown()


def damage(cache, dice):
    live = cache.live()
    for entry in dice.sample(live, min(2, len(live))):
        cache.corrupt(entry)


def steward_of(case, called, folder):
    """The process with the tiers below RAM of a case, or None."""
    if not case["below"]:
        return None
    if case["below"] == "disk":
        return tiers.Steward(called, disk=os.path.join(folder, f"{called}.disk"), disk_blocks=2048, ahead=64)
    os.makedirs(os.path.join(folder, called), exist_ok=True)
    slow = ",slow=1" if case["below"] == "slow" else ""
    return tiers.Steward(called, remote=f"{tiers.FOLDER}:dir={os.path.join(folder, called)}{slow}", remote_blocks=2048, ahead=64)


def clear_below(case, called, folder):
    path = os.path.join(folder, called)
    if case["below"] == "disk":
        os.unlink(path + ".disk")
    elif case["below"]:
        shutil.rmtree(path)


def sound(cache, damaged):
    """What is left when the engines have ended, and the next writer has looked after them."""
    writer = gpc.attach(cache.name, serve=True, label="after them")
    try:
        return _left(cache, damaged)
    finally:
        writer.close()


def _left(cache, damaged):
    until = time.monotonic() + 60
    while cache.reserved() and time.monotonic() < until:
        time.sleep(0.05)
    s = cache.c.stats()
    return [] if not (s.reserved or s.refs or cache.c.check() or not damaged and cache.bad()) else [
        f"{s.reserved} slots are reserved, {s.refs} references, {len(cache.bad())} bad slots at the end"]


def held_back(gate):
    """spec.open_cache, whose memory is made when the gate is open."""
    open_cache = spec.open_cache

    def late(*args):
        def making():
            args[-1]()
            gate.wait()
        return open_cache(*args[:-1], making)
    return late


def run(what, case, folder):
    called, since, gate, was = f"{name}-sim", time.monotonic(), threading.Event(), (spec.open_cache, spec.SMALL, spec.EARLY)
    if case["late"]:
        spec.open_cache, spec.SMALL, spec.EARLY = held_back(gate), 0, 0.01
    engines = [Engine(i, case, os.path.join(folder, "model"), called) for i in range(case["engines"])]
    spec.open_cache, spec.SMALL, spec.EARLY = was
    threads = [threading.Thread(target=e.run, args=(engines,)) for e in engines]
    if case["late"]:
        for t in threads:
            t.start()
        while any(e.counts["steps"] < case["late"] for e in engines) and all(t.is_alive() for t in threads):
            time.sleep(0.01)
        gate.set()
        while any(e.scheduler.connector.comes for e in engines) and any(t.is_alive() for t in threads):
            time.sleep(0.01)
    cache = Cache(called, checksum=case["checksum"])
    steward = steward_of(case, called, folder)
    if not case["late"]:
        for t in threads:
            t.start()
    dice = random.Random(case["seed"])
    while any(t.is_alive() for t in threads):
        time.sleep(0.1)
        if case["damage"]:
            damage(cache, dice)
        if case["hangs"] and dice.random() < 0.1:
            steward.stop()
            time.sleep(dice.random())
            steward.go()
    errors = [e.error for e in engines if e.error]
    for e in engines:
        e.close()
    brought = cache.c.tier(0).brought if steward else 0
    if steward:
        steward.end()
        clear_below(case, called, folder)
        if not brought:
            errors.append("the tiers have brought nothing")
    errors += sound(cache, case["damage"] or bool(errors))
    evicted = cache.c.stats().evicted
    cache.close()
    gpc.unlink(called)
    total = {k: sum(e.counts[k] for e in engines) for k in engines[0].counts}
    print(f"# {what}, seed {case['seed']}: " + ", ".join(f"{n} {k}" for k, n in total.items()) +
          f", {evicted} evicted, {brought} brought, {sum(e.positions for e in engines)} positions seen, {time.monotonic() - since:.0f} s", flush=True)
    for e in errors:
        print("# " + e.replace("\n", "\n# "), flush=True)
    if what in MUST_FAIL:
        ok(errors, f"{what}: the model sees it")
    else:
        ok(not errors and bool(total["loaded"]) is (what not in NO_LOADS), what)


def main():
    if len(sys.argv) < 2 or len(sys.argv) > 2 and sys.argv[2] not in CASES:
        raise SystemExit(__doc__ + "".join(f"\n    {c}" for c in CASES))
    folder = sys.argv[1]
    if not os.path.exists(os.path.join(folder, "model", "config.json")):
        make_model.make(os.path.join(folder, "model"))
    init_none_hash(sha256)
    tiers.make_room()
    below.PAUSE = 0.1            # else one that hangs is asked twice in a case
    seed = {"seed": int(sys.argv[3])} if len(sys.argv) > 3 else {}
    for what in sys.argv[2:3] or CASES:
        run(what, {**BASE, **CASES[what], **seed}, folder)
    done()


main()
