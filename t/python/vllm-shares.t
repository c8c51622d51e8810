#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: the worker: jobs by chance, of the same slots, in shares of which some fail: bytes, order, what is told.
# Tests: python/gpc/vllm/worker.py python/gpc/vllm/chunks.py python/gpc/vllm/cuda.py python/src/pages.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_shares
