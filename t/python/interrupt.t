#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: Ctrl-C ends every call that waits, and nothing is lost by it.
# Tests: python/src/wait.c python/src/writer.c python/src/move.c python/src/claim.c python/src/pool.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test interrupt
