# SPDX-License-Identifier: Apache-2.0
# Pages, written by hand.  A page of two functions has one name as a link page (.so).

dist_man_MANS += \
	%reldir%/gpc-bench.1 \
	%reldir%/gpc-inspect.1 \
	%reldir%/gpc-replay.1 \
	%reldir%/gpc_acquire.3 \
	%reldir%/gpc_attach.3 \
	%reldir%/gpc_check.3 \
	%reldir%/gpc_alias.3 \
	%reldir%/gpc_alias_resolve.3 \
	%reldir%/gpc_claim.3 \
	%reldir%/gpc_claim_drop.3 \
	%reldir%/gpc_prefetch.3 \
	%reldir%/gpc_tier_get.3 \
	%reldir%/gpc_tiers_close.3 \
	%reldir%/gpc_tiers_file_get.3 \
	%reldir%/gpc_tiers_open.3 \
	%reldir%/gpc_tiers_sync.3 \
	%reldir%/gpc_claim_wait.3 \
	%reldir%/gpc_claim_walk.3 \
	%reldir%/gpc_slow_walk.3 \
	%reldir%/gpc_close.3 \
	%reldir%/gpc_commit.3 \
	%reldir%/gpc_copy.3 \
	%reldir%/gpc_crc32c.3 \
	%reldir%/gpc_seal.3 \
	%reldir%/gpc_sealed.3 \
	%reldir%/gpc_pool_seed.3 \
	%reldir%/gpc_sums_ask.3 \
	%reldir%/gpc_sums_close.3 \
	%reldir%/gpc_sums_get.3 \
	%reldir%/gpc_sums_open.3 \
	%reldir%/gpc_sums_seed.3 \
	%reldir%/gpc_create.3 \
	%reldir%/gpc_demote.3 \
	%reldir%/gpc_dev_close.3 \
	%reldir%/gpc_dev_enter.3 \
	%reldir%/gpc_dev_leave.3 \
	%reldir%/gpc_dev_lookup.3 \
	%reldir%/gpc_dev_match.3 \
	%reldir%/gpc_dev_open.3 \
	%reldir%/gpc_dev_wait.3 \
	%reldir%/gpc_drop.3 \
	%reldir%/gpc_dropped.3 \
	%reldir%/gpc_drops.3 \
	%reldir%/gpc_event_read.3 \
	%reldir%/gpc_evict.3 \
	%reldir%/gpc_fetch.3 \
	%reldir%/gpc_grace_done.3 \
	%reldir%/gpc_grace_start.3 \
	%reldir%/gpc_histogram_get.3 \
	%reldir%/gpc_hits_add.3 \
	%reldir%/gpc_info_get.3 \
	%reldir%/gpc_key_hash.3 \
	%reldir%/gpc_key_import.3 \
	%reldir%/gpc_key_root.3 \
	%reldir%/gpc_last_error.3 \
	%reldir%/gpc_lookup.3 \
	%reldir%/gpc_match.3 \
	%reldir%/gpc_match_groups.3 \
	%reldir%/gpc_mirror_get.3 \
	%reldir%/gpc_mirror_sync.3 \
	%reldir%/gpc_order.3 \
	%reldir%/gpc_pool_available.3 \
	%reldir%/gpc_pool_clear.3 \
	%reldir%/gpc_pool_get.3 \
	%reldir%/gpc_pool_lend.3 \
	%reldir%/gpc_pool_make.3 \
	%reldir%/gpc_pool_map.3 \
	%reldir%/gpc_pool_memory_get.3 \
	%reldir%/gpc_pool_pin.3 \
	%reldir%/gpc_pool_unmap.3 \
	%reldir%/gpc_promote.3 \
	%reldir%/gpc_publish.3 \
	%reldir%/gpc_reclaim.3 \
	%reldir%/gpc_ref.3 \
	%reldir%/gpc_rekey.3 \
	%reldir%/gpc_release.3 \
	%reldir%/gpc_release_after.3 \
	%reldir%/gpc_reserve.3 \
	%reldir%/gpc_returned.3 \
	%reldir%/gpc_root_get.3 \
	%reldir%/gpc_root_keep.3 \
	%reldir%/gpc_section_enter.3 \
	%reldir%/gpc_section_leave.3 \
	%reldir%/gpc_setting_get.3 \
	%reldir%/gpc_setting_set.3 \
	%reldir%/gpc_spill.3 \
	%reldir%/gpc_spill_ahead.3 \
	%reldir%/gpc_stats_get.3 \
	%reldir%/gpc_strerror.3 \
	%reldir%/gpc_ticket_last.3 \
	%reldir%/gpc_ticket_wait.3 \
	%reldir%/gpc_tokens_get.3 \
	%reldir%/gpc_transfer_fd.3 \
	%reldir%/gpc_transfer_get.3 \
	%reldir%/gpc_transfer_mark.3 \
	%reldir%/gpc_transfer_results.3 \
	%reldir%/gpc_transfer_wait.3 \
	%reldir%/gpc_unlink.3 \
	%reldir%/gpc_version.3 \
	%reldir%/gpc_wait_stop.3 \
	%reldir%/gpc_walk.3 \
	%reldir%/gpc_writer_drop.3 \
	%reldir%/gpc_writer_serve.3 \
	%reldir%/gpc_writer_take.3 \
	%reldir%/gpc_writer_wake.3 \
	%reldir%/gpc_disk.5 \
	%reldir%/gpc_segment.5 \
	%reldir%/gpc-containers.7 \
	%reldir%/gpc-cluster.7 \
	%reldir%/gpc-words.7 \
	%reldir%/gpc-events.7 \
	%reldir%/gpc_remote.7 \
	%reldir%/gpc-metrics.7 \
	%reldir%/gpc-upgrade.7 \
	%reldir%/gpc.7 \
	%reldir%/gpc_engine.7 \
	%reldir%/gpcd.8

# Link pages have nothing to check: mandoc would say that ln(1) is better.
lint-man:
	@if test -z '$(MANDOC)'; then \
		echo 'lint-man: mandoc is missing, nothing was checked'; \
	else \
		cd $(srcdir) && $(MANDOC) -T lint -W warning \
			`grep -L '^\.so ' $(dist_man_MANS)`; \
	fi
.PHONY: lint-man
