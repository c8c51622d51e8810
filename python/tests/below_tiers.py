# SPDX-License-Identifier: Apache-2.0
"""below_tiers.py - tiers below RAM for tests of the engines' plugins: a process that keeps them, and caches with room for them."""

import os
import signal
import subprocess
import sys

import gpc

ROOM = 4096                      # blocks below RAM that a cache of make_room has room for
BUILD = os.environ.get("GPC_T_BUILD") or os.environ["PYTHONPATH"].split("/python", 1)[0]
FOLDER = f"{BUILD}/plugins/.libs/gpc_remote_folder.so"


def make_room(**more):
    """Caches that plugins make from now on have room for tiers; the same keys on all of them, as on machines with one secret."""
    real = gpc.create

    def create(name, **options):
        options["max_blocks"] += ROOM
        return real(name, **{**options, "secret": b"k" * 16, **more})
    gpc.create = create


class Steward:
    """A process with the tiers of a cache."""

    def __init__(self, name, **options):
        options.setdefault("secret", b"k" * 16)
        self.p = subprocess.Popen([sys.executable, "-P", "-c", f"""
import signal, sys
import gpc
t = gpc.tiers_open({name!r}, timeout=60, **{options!r})
print("ready", flush=True)
sys.stdin.read()
gpc.tiers_close(t)
"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.p.stdout.readline()

    def stop(self):
        self.p.send_signal(signal.SIGSTOP)
        os.waitpid(self.p.pid, os.WUNTRACED)

    def go(self):
        self.p.send_signal(signal.SIGCONT)

    def end(self):
        self.p.stdin.close()
        self.p.wait()

    def kill(self):
        self.p.kill()
        self.p.wait()
