# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/module.t
"""gpc: one prefix cache index per machine, shared by name.

    import gpc
    with gpc.attach("demo") as c:
        ...

Keys are bytes, 16 for each: one bytes object of all, a list of them, or any C-contiguous buffer.  Blocks are ints: a
list, or a buffer of int32.  A call that has an `out` returns a list without it, and a count with it.  Times are
seconds; None is no limit, 0 does not wait.  A call that fails raises gpc.Error.  The headers and the manual pages of
the C calls have the details, under the same names.
"""

import atexit as _atexit

from . import _gpc
from ._gpc import *  # noqa: F401,F403
from ._types import Claim as Claim, Entry as Entry, Event as Event, Histogram as Histogram, Info as Info
from ._types import Mirror as Mirror
from ._types import Move as Move, Pool as Pool, PoolMemory as PoolMemory, Run as Run, Stats as Stats
from ._types import Sum as Sum
from ._types import Tier as Tier, TiersFile as TiersFile, Transfer as Transfer

__version__ = ".".join(str(part) for part in _gpc.version())

# Threads of the library may call a Python log, so they end before the interpreter does.
_atexit.register(_gpc._close_all)
