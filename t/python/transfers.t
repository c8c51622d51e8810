#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: moves, fetch, spill and claims, on the host device.
# Tests: python/src/transfer.c python/src/move.c python/src/claim.c python/src/tiers.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test transfers
