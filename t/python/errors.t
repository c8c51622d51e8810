#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: exceptions, timeouts, writers that are not there.
# Tests: python/src/error.c python/src/writer.c python/src/fill.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test errors
