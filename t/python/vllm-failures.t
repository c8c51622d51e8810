#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: what cannot succeed ends, and says so.
# Tests: python/gpc/vllm/drops.py python/gpc/vllm/meet.py python/gpc/vllm/writer.py python/gpc/vllm/chunks.py
#   python/gpc/vllm/connector.py python/gpc/vllm/manager.py python/gpc/vllm/worker.py python/gpc/vllm/cache.py

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_failures
