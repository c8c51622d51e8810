#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc.vllm: the worker: bytes both ways, chunks of several blocks, two ranks, bad bytes.

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/python.sh"
python_test vllm_worker
