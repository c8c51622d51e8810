# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t
"""What gpc.vllm, gpc.sglang and gpc.lmcache share.  It imports no engine."""
