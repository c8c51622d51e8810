#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: threads that share a handle while one closes it, and forks.
# Tests: python/src/handle.c python/src/share.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test threads
