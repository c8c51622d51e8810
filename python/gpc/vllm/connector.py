# SPDX-License-Identifier: Apache-2.0
"""vLLM's OffloadingConnector, whose worker asserts that no load fails.  This one tells vLLM the blocks of a failed
load, so that with kv_load_failure_policy=recompute it computes them again."""

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector


class GPCConnector(OffloadingConnector):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        if self.connector_scheduler is not None:
            # the spec is not told the kinds of its groups
            self.connector_scheduler.manager.set_chained(
                {g.group_idx: g.sliding_window_size_in_chunks is None
                 for g in self.connector_scheduler.config.kv_group_configs})

    def register_kv_caches(self, kv_caches):
        super().register_kv_caches(kv_caches)
        self.connector_worker.worker.reported = True     # before the first load

    def get_block_ids_with_load_errors(self):
        worker = self.connector_worker and self.connector_worker.worker
        return worker.take_load_errors() if worker else set()
