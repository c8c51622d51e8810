# SPDX-License-Identifier: Apache-2.0
"""LMCache's multiprocess server as a process, for the table of ttft.py.  It runs where install.sh has put LMCache:
GPC_ENGINES_LMCACHE names that folder."""

import os
import re
import signal
import socket
import subprocess
import sys

from fleet import HERE, wait

FOLDER = os.environ.get("GPC_ENGINES_LMCACHE", "")
CHUNK = int(os.environ.get("GPC_ENGINES_LMCACHE_CHUNK", 256))         # 256 is its default
MODE = os.environ.get("GPC_ENGINES_LMCACHE_MODE", "shm")


def modes(name):
    """How bytes come to an engine without a GPU: in a shared memory, which is the fastest way and has to be asked for,
    or pickled through a socket."""
    return {"shm": ("--shm-name", name, "--no-l1-use-lazy"), "pickle": ()}[MODE]


def installed():
    return os.path.isdir(os.path.join(FOLDER, "lmcache"))


def environment():
    """Of the server, and of engines that use it: what the virtual environment has comes first."""
    return {"PYTHONPATH": ":".join((HERE, os.environ.get("PYTHONPATH", ""), FOLDER)), "LMCACHE_TRACK_USAGE": "false"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, logs, name, gigabytes):
        self.port, self.log = free_port(), os.path.join(logs, "lmcache-server.log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lmcache.v1.multiprocess.server", "--host", "127.0.0.1",
                 "--port", str(self.port), "--l1-size-gb", str(gigabytes), "--eviction-policy", "LRU",
                 "--disable-observability", "--chunk-size", str(CHUNK),
                 "--supported-transfer-mode", "engine_driven", *modes(name)],
                stdout=log, stderr=log, start_new_session=True, env={**os.environ, **environment()})
        wait(self.listens, "LMCache's server listens; see " + self.log)

    def listens(self):
        if self.process.poll() is not None:
            raise SystemExit(f"LMCache's server has ended; see {self.log}")
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def extra(self):
        """The kv_connector_extra_config of an engine."""
        return {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": self.port}

    def stored(self):
        """Tokens, so far, as its log says."""
        with open(self.log) as f:
            return sum(map(int, re.findall(r"Stored (\d+) tokens", f.read())))

    def quit(self):
        self.process.send_signal(signal.SIGTERM)         # it removes its shared memory
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
