#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: a step of the scheduler waits for nobody.
# Tests: python/gpc/vllm/asker.py python/gpc/vllm/finder.py python/gpc/vllm/manager.py lib/index/request/stock.c
#   lib/index/request/reserve.c lib/index/claim/claim.c lib/index/claim/claim_here.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_step
