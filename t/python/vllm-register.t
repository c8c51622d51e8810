#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: slots are registered with the GPU in pieces, by a thread, one process at a time; no copy waits for it.
# Tests: python/gpc/vllm/register.py python/gpc/vllm/cuda.py python/gpc/vllm/worker.py python/gpc/engines/cache.py
#   python/src/pages.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_register
