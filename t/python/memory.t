#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python module: memory of pools as buffers and DLPack tensors.
# Tests: python/src/part.c python/src/dlpack.c python/src/pool.c python/src/seal.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test memory
