#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: the manager against the contract of vLLM's interface, without vLLM.

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/python.sh"
python_test vllm_manager
