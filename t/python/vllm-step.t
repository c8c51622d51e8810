#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: a step of the scheduler waits for nobody.
# Tests: python/gpc/vllm/asker.py python/gpc/vllm/finder.py python/gpc/vllm/manager.py lib/request/stock.c
#   lib/request/reserve.c lib/payload/claim.c lib/payload/claim_here.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_step
