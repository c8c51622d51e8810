#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: eight threads, forks of every handle, spawned processes, other interpreters.
# Tests: python/src/handle.c python/src/walk.c python/src/part.c python/src/device.c python/src/module.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test many
