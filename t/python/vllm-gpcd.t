#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Engines with a cache that gpcd has made: an engine of two ranks, what is refused, and the lines of gpcd's file that it names.
# Needs: tools/gpcd tools/gpc-inspect
# Tests: python/gpc/engines/wants.py python/gpc/engines/cache.py tools/daemon/serve.c tools/daemon/options.c
#   tools/inspect/command.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_gpcd
