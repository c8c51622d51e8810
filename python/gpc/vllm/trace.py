# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/vllm-trace.t
"""Where the time of a load goes.  With GPC_TRACE=FILE in its environment, an engine appends two lines of JSON to the
file for each load: the scheduler's and the worker's, of one engine and one job.  The moments of each, in order, in
nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share:

    scheduler                                           worker
    arrived    the request is there                     taken      a step gives the job to the worker
    step       a step looks it up                       begun      its thread takes it from the queue
    found      what it is to load is known              first      the first copy is given to the device
    allocated  it has blocks of the engine              given      the last one is
    sent       the step is built                        copied     the last copy has ended
    complete   the scheduler hears of the end           summed     the sums have been made
    scheduled  a step computes the rest of the prompt   ended      all of it has been compared
                                                        told       a step of the worker hears of it

Without GPC_TRACE no object of this file is made, and a load costs the test of one attribute."""

import json
import os
import threading
import time

SCHEDULER = ("arrived", "step", "found", "allocated", "sent", "complete", "scheduled")
WORKER = ("taken", "begun", "first", "given", "copied", "summed", "ended", "told")


def now():
    return time.monotonic_ns()


class File:
    """One line is one write, so that lines of several processes do not mix."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.lock = threading.Lock()

    def line(self, **what):
        with self.lock:
            os.write(self.fd, (json.dumps(what) + "\n").encode())


def opened():
    """None: no trace was asked for."""
    path = os.environ.get("GPC_TRACE")
    return File(path) if path else None


class Scheduler:
    """Moments of requests.  A request that loads nothing has no line."""

    def __init__(self, file, engine):
        self.file, self.engine = file, str(engine)
        # request -> its moments; requests whose load is complete
        self.moments, self.jobs, self.tokens, self.done = {}, {}, {}, set()

    def mark(self, request, moment):
        self.moments.setdefault(request, {})[moment] = now()

    def found(self, request, since, tokens):
        """A question that has begun at `since`.  None: it is asked again, in a later step."""
        self.moments.setdefault(request, {}).setdefault("step", since)
        if tokens is not None:
            self.mark(request, "found")

    def allocated(self, request, tokens):
        self.tokens[request] = tokens
        self.mark(request, "allocated")

    def built(self, meta, output):
        """A step: the loads that begin, and the requests whose tokens it computes."""
        for job, entry in getattr(meta, "load_jobs", {}).items():
            self.jobs[entry.req_id] = job
            self.mark(entry.req_id, "sent")
        for request in self.done.intersection(getattr(output, "num_scheduled_tokens", ())):
            self.mark(request, "scheduled")
            self.file.line(side="scheduler", engine=self.engine, job=self.jobs[request], request=request,
                           tokens=self.tokens.get(request, 0),
                           **{s: self.moments[request][s] for s in SCHEDULER if s in self.moments[request]})
            self.forget(request)

    def complete(self, output):
        for request in self.jobs.keys() & set(getattr(output, "finished_recving", None) or ()):
            self.mark(request, "complete")
            self.done.add(request)

    def forget(self, request):
        for of in (self.moments, self.jobs, self.tokens):
            of.pop(request, None)
        self.done.discard(request)


class Worker:
    """Moments of one worker's load jobs.  If a job has several shares, they are the first copy and the last end."""

    def __init__(self, file, engine, part):
        self.file, self.engine, self.part, self.lock = file, str(engine), part, threading.Lock()

    def share(self, job, stamps):
        """stamps: first, given, copied and summed, of pages.h.  Threads of one job come side by side."""
        with self.lock:
            for moment, at in zip(WORKER[2:6], stamps):
                was = job.moments.get(moment, at)
                job.moments[moment] = min(was, at) if moment == "first" else max(was, at)

    def told(self, jobs, runs):
        """Loads that have ended.  runs: the number of pieces in which a block of each group is copied."""
        for job in jobs:
            job.moments["told"] = now()
            self.file.line(side="worker", engine=self.engine, part=self.part, job=job.number,
                           chunks=len(job.slots.block_ids), blocks=len(job.blocks.block_ids), bytes=job.moved, runs=runs,
                           failed=len(job.bad), **{s: job.moments[s] for s in WORKER if s in job.moments})
