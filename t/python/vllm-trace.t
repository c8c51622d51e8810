#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: GPC_TRACE, the moments of a load.
# Tests: python/gpc/vllm/trace.py python/gpc/vllm/connector.py python/gpc/vllm/worker.py python/src/pages.c python/src/share.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_trace
