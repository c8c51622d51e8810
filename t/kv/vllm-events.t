#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm with gpc_keep_tokens: what gpcd --events publishes of it, without vLLM.
# Tests: python/gpc/vllm/prompts.py python/gpc/vllm/name.py tools/daemon/events/

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
grep -q '^#define HAVE_EVENTS 1' "$builddir/config.h" || skip_all "gpcd is built without libzmq and msgpack-c"
python_test vllm_events
