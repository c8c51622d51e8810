# SPDX-License-Identifier: Apache-2.0
"""One asynchronous vLLM engine as a process: live_engine.py OPTIONS FD

OPTIONS are JSON of AsyncEngineArgs.  Commands come as lines of JSON on the standard input, each with a number of its own, and
may be under way together; answers go as lines of JSON to FD.  live.py is the other end.  Times are of CLOCK_MONOTONIC, which
all processes share.
"""

import asyncio
import json
import os
import random
import statistics
import sys
import time
import traceback
import zlib


class Extension:
    """More calls of vLLM's workers: worker_extension_cls."""

    def random_weights(self, seed):
        """In place, and the same in each engine: dummy ones are so small that no block of the KV cache matters."""
        import torch
        model = self.model_runner.get_model() if hasattr(self.model_runner, "get_model") else self.model_runner.model
        with torch.no_grad():
            for name, w in model.named_parameters():
                g = torch.Generator(device=w.device).manual_seed(seed * 65536 + zlib.crc32(name.encode()) % 65536)
                if "norm" in name or w.dim() < 2:
                    w.fill_(1)
                else:
                    scale = 1.0 if "embed" in name else w.shape[-1] ** -0.5 * (1.5 if "qkv" in name or "lm_head" in name else 1)
                    w.copy_(torch.randn(w.shape, generator=g, device=w.device, dtype=w.dtype) * scale)
        return True

    def registering(self):
        """Is gpc.vllm registering slots with the GPU?  And the bytes that are."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
        worker = has_kv_transfer_group() and getattr(get_kv_transfer_group(), "connector_worker", None)
        mover = worker and getattr(worker.worker, "mover", None)
        return list(mover.registering()) if mover else [False, 0]

    def bus(self, nbytes, times):
        """GB/s of one copy from registered memory to the device, and back: medians."""
        import torch
        device = next(iter(self.model_runner.model.parameters())).device
        gpu = device.type == "cuda"
        host, there = torch.empty(nbytes, dtype=torch.uint8, pin_memory=gpu), torch.empty(nbytes, dtype=torch.uint8, device=device)

        def took(to, source):
            if gpu:
                torch.cuda.synchronize(device)
            since = time.perf_counter()
            to.copy_(source, non_blocking=True)
            if gpu:
                torch.cuda.synchronize(device)
            return time.perf_counter() - since
        took(there, host)
        out = [nbytes / statistics.median(took(*way) for _ in range(times)) / 1e9 for way in ((there, host), (host, there))]
        del host, there
        if gpu:
            torch.cuda.empty_cache()
        return out


def tokens_of(parts, vocabulary):
    """Parts: [seed, n] is n tokens of that seed; ["=", t, ...] is these."""
    out = []
    for p in parts:
        if p[0] == "=":
            out += p[1:]
        else:
            r = random.Random(p[0])
            out += [r.randrange(3, vocabulary) for _ in range(p[1])]
    return out


class Served:
    def __init__(self, llm, vocabulary, say):
        self.llm, self.vocabulary, self.say = llm, vocabulary, say

    async def generate(self, c):
        from vllm import SamplingParams
        how = SamplingParams(temperature=0, max_tokens=c["n"], logprobs=c.get("logprobs"), ignore_eos=True, detokenize=False)
        tokens = tokens_of(c["prompt"], self.vocabulary)
        began, first, last = time.monotonic(), None, None
        async for last in self.llm.generate({"prompt_token_ids": tokens}, how, request_id=f"{os.getpid()}-{c['id']}"):
            if first is None and last.outputs[0].token_ids:
                first = time.monotonic()
        got = last.outputs[0]
        return {"began": began, "first": first, "end": time.monotonic(), "tokens": len(tokens), "cached": last.num_cached_tokens or 0,
                "ids": list(got.token_ids),
                "logprobs": [sorted((t, p.logprob) for t, p in d.items()) for d in got.logprobs] if c.get("logprobs") else None}

    async def reset(self, c):
        """Of the engine's own prefix cache."""
        return {"reset": await self.llm.reset_prefix_cache()}

    async def sleep(self, c):
        await self.llm.sleep(level=c.get("level", 1))
        return {}

    async def wake(self, c):
        await self.llm.wake_up()
        return {}

    async def workers(self, c):
        return {"answers": await self.llm.collective_rpc(c["call"], args=tuple(c.get("args", ())))}

    async def metrics(self, c):
        """Of prefix caches and connectors, summed over labels."""
        from prometheus_client import REGISTRY
        out = {}
        for m in REGISTRY.collect():
            for s in m.samples:
                if any(w in s.name for w in ("prefix_cache", "kv_offload", "preempt")) and not s.name.endswith(("_bucket", "_created")):
                    out[s.name] = out.get(s.name, 0) + s.value
        return {"metrics": out}

    async def answer(self, c):
        try:
            self.say(id=c["id"], **await getattr(self, c["do"])(c))
        except BaseException as e:
            self.say(id=c["id"], error=f"{type(e).__name__}: {e}"[:2000])


async def main():
    options, fd = json.loads(sys.argv[1]), int(sys.argv[2])
    answers = os.fdopen(fd, "w", buffering=1)
    os.set_inheritable(fd, False)        # the engine's end is the end of the answers

    def say(**what):
        answers.write(json.dumps(what) + "\n")

    seed, vocabulary = options.pop("random_weights", None), options.pop("vocabulary")
    since = time.monotonic()
    try:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
        imported = time.monotonic()      # nothing of a connector yet
        llm = AsyncLLM.from_engine_args(AsyncEngineArgs(worker_extension_cls="live_engine.Extension", **options))
        if seed is not None:
            await llm.collective_rpc("random_weights", args=(seed,))
    except BaseException as e:
        say(id=0, error=f"{type(e).__name__}: {e}"[:2000], trace=traceback.format_exc()[-3000:])
        raise
    say(id=0, seconds=round(time.monotonic() - since, 1), imported=imported)
    served = Served(llm, vocabulary, say)
    reader = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    under = set()
    while line := await reader.readline():
        task = asyncio.create_task(served.answer(json.loads(line)))
        under.add(task)
        task.add_done_callback(under.discard)
    llm.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
