#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm on a GPU: layered tensors of PyTorch, beside a matrix product, and an engine that is killed while it copies.
# Tests: python/gpc/vllm/cuda.py python/gpc/vllm/worker.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_gpu
