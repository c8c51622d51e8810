#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm with tiers below RAM: what is there comes, and a tier that hangs costs a request gpc_below_ms at most.
# Needs: t-plugins
# Tests: python/gpc/engines/below.py python/gpc/vllm/finder.py python/gpc/vllm/manager.py lib/bytes/payload/ask.c
#   lib/tiers/steward/up.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
python_test vllm_below
