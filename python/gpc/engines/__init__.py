# SPDX-License-Identifier: Apache-2.0
# Tests: t/893-lmcache-adapter.t
"""What gpc.vllm, gpc.sglang and gpc.lmcache share.  It imports no engine."""
