#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: loads of slots in a row go through memory of the GPU.
# Tests: python/src/pages.c python/gpc/vllm/cuda.py python/gpc/vllm/worker.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_through
