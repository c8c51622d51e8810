#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: the worker: bytes both ways, chunks of several blocks, two ranks, bad bytes.
# Tests: python/gpc/vllm/worker.py python/gpc/vllm/chunks.py python/gpc/vllm/image.py
#   python/gpc/vllm/cache.py python/gpc/vllm/connector.py python/gpc/vllm/private.py python/src/pages.c python/src/share.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_worker
