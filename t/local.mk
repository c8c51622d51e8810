# SPDX-License-Identifier: Apache-2.0
# Tests speak TAP.  A new one is one line here: t/ROOM/TOPIC.t in t_programs is compiled from
# t/ROOM/TOPIC.c against the library's internals, in t_scripts it is a shell script.

t_programs = \
	%reldir%/390-hostile-files.t \
	%reldir%/312-stock-evict-dies.t \
	%reldir%/366-moves-die.t \
	%reldir%/payload/stopped-keeper.t \
	%reldir%/001-key.t \
	%reldir%/002-geometry.t \
	%reldir%/003-lockfile.t \
	%reldir%/004-segment.t \
	%reldir%/005-probe.t \
	%reldir%/006-segment-names.t \
	%reldir%/007-err-log.t \
	%reldir%/008-team.t \
	%reldir%/009-segment-damage.t \
	%reldir%/010-epoch.t \
	%reldir%/011-refs.t \
	%reldir%/012-lookup.t \
	%reldir%/013-segment-snapshot.t \
	%reldir%/014-lookup-calls.t \
	%reldir%/016-runs.t \
	%reldir%/017-plan.t \
	%reldir%/018-plan-bytes.t \
	%reldir%/018-transfer.t \
	%reldir%/015-memory-file.t \
	%reldir%/019-memory-sweep.t \
	%reldir%/020-feed-walk.t \
	%reldir%/021-check.t \
	%reldir%/022-device-host.t \
	%reldir%/023-bench-peers.t \
	%reldir%/024-queue.t \
	%reldir%/025-check-live.t \
	%reldir%/026-device-sections.t \
	%reldir%/027-mirror-step.t \
	%reldir%/028-crc.t \
	%reldir%/029-plan-strides.t \
	%reldir%/030-kv-wire.t \
	%reldir%/031-kv-told.t \
	%reldir%/032-top-layout.t \
	%reldir%/033-trailers.t \
	%reldir%/034-many-keys.t \
	%reldir%/040-disk-slots.t \
	%reldir%/041-disk-files.t \
	%reldir%/disk/aside.t \
	%reldir%/042-disk-faults.t \
	%reldir%/043-disk-power.t \
	%reldir%/044-disk-kills.t \
	%reldir%/045-disk-queue.t \
	%reldir%/046-disk-clock.t \
	%reldir%/047-disk-scan.t \
	%reldir%/048-uses.t \
	%reldir%/050-remote-image.t \
	%reldir%/051-remote-plugins.t \
	%reldir%/052-remote-folder.t \
	%reldir%/053-remote-replies.t \
	%reldir%/054-remote-lost.t \
	%reldir%/055-remote-kept.t \
	%reldir%/055-remote-refuses.t \
	%reldir%/056-redis-ill.t \
	%reldir%/057-redis-nodes.t \
	%reldir%/058-redis-strays.t \
	%reldir%/059-redis-names.t \
	%reldir%/100-seed.t \
	%reldir%/101-tiers.t \
	%reldir%/101-tiers-chains.t \
	%reldir%/102-tiers-durable.t \
	%reldir%/104-tiers-both.t \
	%reldir%/104-tiers-feed.t \
	%reldir%/104-tiers-refused.t \
	%reldir%/103-remote-tier.t \
	%reldir%/103-remote-lost.t \
	%reldir%/104-tiers-straight.t \
	%reldir%/105-tiers-drops.t \
	%reldir%/105-tiers-alone.t \
	%reldir%/105-tiers-gaps.t \
	%reldir%/106-tiers-notes.t \
	%reldir%/106-tiers-rest.t \
	%reldir%/107-tiers-full.t \
	%reldir%/107-two-ways.t \
	%reldir%/108-back-late.t \
	%reldir%/reader/touch.t \
	%reldir%/request/at-once.t \
	%reldir%/request/late-answers.t \
	%reldir%/request/given-up.t \
	%reldir%/request/pool-gone.t \
	%reldir%/request/pool-lives.t \
	%reldir%/memory/once-threads.t \
	%reldir%/request/first-refusal.t \
	%reldir%/request/named-source.t \
	%reldir%/request/lent-source.t \
	%reldir%/peer/stopped-writer.t \
	%reldir%/stage/stopped-writer.t \
	%reldir%/stage/comes-back.t \
	%reldir%/stage/follow.t \
	%reldir%/stage/unchained.t \
	%reldir%/stage/kin.t \
	%reldir%/memory/pin-refused.t \
	%reldir%/writer/refs-held.t \
	%reldir%/109-held-late.t \
	%reldir%/writer/parked.t \
	%reldir%/writer/drops-die.t \
	%reldir%/writer/drops-since.t \
	%reldir%/writer/subtree.t \
	%reldir%/writer/waited-victim.t \
	%reldir%/writer/left-over.t \
	%reldir%/writer/named-quota.t \
	%reldir%/writer/promised.t \
	%reldir%/writer/clear-counts.t \
	%reldir%/payload/claim-ends.t \
	%reldir%/request/returned-refused.t \
	%reldir%/109-tiers-resize.t \
	%reldir%/110-publish.t \
	%reldir%/115-publish-no-ref.t \
	%reldir%/111-ask.t \
	%reldir%/112-keys.t \
	%reldir%/113-notes.t \
	%reldir%/116-groups.t \
	%reldir%/117-aliases.t \
	%reldir%/118-roots.t \
	%reldir%/119-staged.t \
	%reldir%/123-histograms.t \
	%reldir%/114-notes-move.t \
	%reldir%/120-reserve.t \
	%reldir%/121-wait.t \
	%reldir%/122-window.t \
	%reldir%/peer/no-writer.t \
	%reldir%/peer/name-lost.t \
	%reldir%/peer/many-threads.t \
	%reldir%/124-release.t \
	%reldir%/125-unsent.t \
	%reldir%/126-stock.t \
	%reldir%/127-check-holds.t \
	%reldir%/128-time-is-up.t \
	%reldir%/129-stock-evict.t \
	%reldir%/129-windows.t \
	%reldir%/130-tier.t \
	%reldir%/131-moves.t \
	%reldir%/132-two-tier.t \
	%reldir%/134-chains-and-moves.t \
	%reldir%/135-moves-seen.t \
	%reldir%/136-moves-refs.t \
	%reldir%/138-parents-leave.t \
	%reldir%/139-move-ends.t \
	%reldir%/140-lru.t \
	%reldir%/148-peek.t \
	%reldir%/149-reclaim.t \
	%reldir%/141-order.t \
	%reldir%/142-sources-wait.t \
	%reldir%/143-copy.t \
	%reldir%/144-maps.t \
	%reldir%/145-lent-pages.t \
	%reldir%/146-map-refused.t \
	%reldir%/147-pin.t \
	%reldir%/150-pools.t \
	%reldir%/151-clear.t \
	%reldir%/152-one-step.t \
	%reldir%/153-caller.t \
	%reldir%/154-returned.t \
	%reldir%/155-capacity.t \
	%reldir%/157-pool-make.t \
	%reldir%/158-pool-lend.t \
	%reldir%/159-adopted.t \
	%reldir%/159-memory-waits.t \
	%reldir%/156-returned-lost.t \
	%reldir%/160-sections.t \
	%reldir%/161-feed.t \
	%reldir%/162-mirror.t \
	%reldir%/163-mirror-order.t \
	%reldir%/169-claims.t \
	%reldir%/164-transfers.t \
	%reldir%/375-transfers-forged.t \
	%reldir%/376-transfer-stores.t \
	%reldir%/377-transfer-lives.t \
	%reldir%/378-transfers-closed.t \
	%reldir%/379-transfers-reaped.t \
	%reldir%/380-pools-made-again.t \
	%reldir%/381-companions.t \
	%reldir%/382-companion-stores.t \
	%reldir%/383-companion-ranks.t \
	%reldir%/384-fold-stores.t \
	%reldir%/386-window-stores.t \
	%reldir%/387-tiers-drop-dies.t \
	%reldir%/388-tiers-keeper-life.t \
	%reldir%/165-fetch.t \
	%reldir%/166-spill.t \
	%reldir%/167-order.t \
	%reldir%/168-ranks.t \
	%reldir%/170-churn.t \
	%reldir%/171-table.t \
	%reldir%/172-wake.t \
	%reldir%/173-wake-writer.t \
	%reldir%/174-transfer-turns.t \
	%reldir%/175-refused-late.t \
	%reldir%/176-pool-once.t \
	%reldir%/177-clear-idle.t \
	%reldir%/178-checksums.t \
	%reldir%/179-sums-forged.t \
	%reldir%/180-stats.t \
	%reldir%/181-counts.t \
	%reldir%/182-low-descriptors.t \
	%reldir%/183-read-only.t \
	%reldir%/184-balance.t \
	%reldir%/185-check-claims.t \
	%reldir%/inspect/check-memory.t \
	%reldir%/186-fetch-late.t \
	%reldir%/187-notes-fetched.t \
	%reldir%/188-rouse.t \
	%reldir%/189-claim-in-ram.t \
	%reldir%/190-names.t \
	%reldir%/191-errors.t \
	%reldir%/192-sentences.t \
	%reldir%/base/later-structs.t \
	%reldir%/base/worker.t \
	%reldir%/193-create-fails.t \
	%reldir%/194-refused-items.t \
	%reldir%/195-rates.t \
	%reldir%/196-ram-memory.t \
	%reldir%/197-creators.t \
	%reldir%/198-sentences-bytes.t \
	%reldir%/199-pool-late.t \
	%reldir%/200-workers.t \
	%reldir%/210-spaces.t \
	%reldir%/211-moves-race.t \
	%reldir%/212-notes-race.t \
	%reldir%/213-copies-race.t \
	%reldir%/214-groups-race.t \
	%reldir%/215-aliases-race.t \
	%reldir%/220-readers.t \
	%reldir%/230-seats.t \
	%reldir%/231-dead-seats.t \
	%reldir%/232-waiting.t \
	%reldir%/250-threads.t \
	%reldir%/300-standby.t \
	%reldir%/310-worker-dies.t \
	%reldir%/311-recall.t \
	%reldir%/320-owner-dies.t \
	%reldir%/321-returned-dies.t \
	%reldir%/322-tiers-die.t \
	%reldir%/330-forked.t \
	%reldir%/331-namespaces.t \
	%reldir%/332-fork-at-open.t \
	%reldir%/333-feed-each-store.t \
	%reldir%/334-many-spilled.t \
	%reldir%/335-alias-stores.t \
	%reldir%/336-takeover-says.t \
	%reldir%/337-memory-dies.t \
	%reldir%/338-copy-dies.t \
	%reldir%/339-lost-peers.t \
	%reldir%/347-copy-stores.t \
	%reldir%/348-threads-die.t \
	%reldir%/340-stopped.t \
	%reldir%/341-signals.t \
	%reldir%/342-clocks.t \
	%reldir%/345-copies-end.t \
	%reldir%/346-map-turns.t \
	%reldir%/350-kill-points.t \
	%reldir%/357-root-stores.t \
	%reldir%/360-takeover.t \
	%reldir%/361-second-run.t \
	%reldir%/362-left-in-table.t \
	%reldir%/363-each-store.t \
	%reldir%/364-takeover-large.t \
	%reldir%/365-takeover-memory.t \
	%reldir%/367-left-in-records.t \
	%reldir%/368-left-in-seats.t \
	%reldir%/369-takeover-damage.t \
	%reldir%/370-full.t \
	%reldir%/372-notes-die.t \
	%reldir%/373-transfers-die.t \
	%reldir%/374-transfer-peers.t \
	%reldir%/391-hostile-peer.t \
	%reldir%/392-stray-stores.t \
	%reldir%/393-liars.t \
	%reldir%/394-stray-index.t \
	%reldir%/395-forged-files.t \
	%reldir%/396-hostile-at-random.t \
	%reldir%/500-device.t \
	%reldir%/501-ask-device.t \
	%reldir%/502-device-sections.t \
	%reldir%/503-device-mirrors.t \
	%reldir%/505-device-moves.t \
	%reldir%/507-copy-device.t \
	%reldir%/508-sums-device.t \
	%reldir%/511-fetch-device.t \
	%reldir%/643-transfers-die-device.t \
	%reldir%/850-kv-events.t \
	%reldir%/851-kv-replay.t \
	%reldir%/852-kv-lives.t \
	%reldir%/853-kv-slow.t \
	%reldir%/daemon/events-memory.t \
	%reldir%/daemon/events-strangers.t \
	%reldir%/858-kv-namespaces.t \
	%reldir%/849-kv-attacks.t \
	%reldir%/remote/late-put.t \
	%reldir%/873-redis.t

t_scripts = \
	%reldir%/700-models.t \
	%reldir%/831-replay-ends.t \
	%reldir%/864-metrics-http.t \
	%reldir%/893-lmcache-adapter.t \
	%reldir%/816-stopped-writer.t \
	%reldir%/daemon/slow-scrapes.t \
	%reldir%/919-dist.t \
	%reldir%/870-demo.t \
	%reldir%/301-all-dead.t \
	%reldir%/302-other-layout.t \
	%reldir%/701-mutants.t \
	%reldir%/800-gpcd-options.t \
	%reldir%/801-gpcd-life.t \
	%reldir%/802-gpcd-limits.t \
	%reldir%/803-gpcd-full.t \
	%reldir%/daemon/exists.t \
	%reldir%/daemon/mode-and-group.t \
	%reldir%/804-defaults.t \
	%reldir%/805-gpcd-fails.t \
	%reldir%/806-foreign-text.t \
	%reldir%/807-width.t \
	%reldir%/808-gpcd-memory.t \
	%reldir%/809-gpcd-keep.t \
	%reldir%/daemon/keeper-waits.t \
	%reldir%/810-inspect.t \
	%reldir%/811-inspect-peers.t \
	%reldir%/tools/behind.t \
	%reldir%/812-inspect-damage.t \
	%reldir%/813-inspect-rm.t \
	%reldir%/814-inspect-liars.t \
	%reldir%/815-inspect-cost.t \
	%reldir%/817-descriptors.t \
	%reldir%/818-verdicts.t \
	%reldir%/819-gpcd-ahead.t \
	%reldir%/820-replay-lru.t \
	%reldir%/821-replay-result.t \
	%reldir%/822-replay-trace.t \
	%reldir%/823-inspect-change.t \
	%reldir%/824-gpcd-disk.t \
	%reldir%/daemon/disk-aside.t \
	%reldir%/825-gpcd-remote.t \
	%reldir%/830-replay-workers.t \
	%reldir%/832-interrupt.t \
	%reldir%/833-replay-pools.t \
	%reldir%/834-replay-pools-end.t \
	%reldir%/835-replay-fetch.t \
	%reldir%/836-replay-plot.t \
	%reldir%/837-replay-disk.t \
	%reldir%/840-bench.t \
	%reldir%/841-bench-ends.t \
	%reldir%/854-inspect-watch.t \
	%reldir%/855-inspect-top.t \
	%reldir%/856-gpcd-says.t \
	%reldir%/857-completions.t \
	%reldir%/859-vllm-events.t \
	%reldir%/860-reference.t \
	%reldir%/861-readme.t \
	%reldir%/862-engine-page.t \
	%reldir%/863-metrics.t \
	%reldir%/daemon/key-file.t \
	%reldir%/daemon/files.t \
	%reldir%/865-dashboard.t \
	%reldir%/866-readme-tiers.t \
	%reldir%/867-tier-pages.t \
	%reldir%/871-containers.t \
	%reldir%/872-remote-page.t \
	%reldir%/880-python.t \
	%reldir%/881-python-errors.t \
	%reldir%/882-python-arguments.t \
	%reldir%/883-python-memory.t \
	%reldir%/884-python-transfers.t \
	%reldir%/885-python-threads.t \
	%reldir%/886-python-look.t \
	%reldir%/887-python-leaks.t \
	%reldir%/888-python-readme.t \
	%reldir%/889-vllm-manager.t \
	%reldir%/890-vllm-worker.t \
	%reldir%/891-vllm-gpu.t \
	%reldir%/892-sglang-storage.t \
	%reldir%/python/vllm-failures.t \
	%reldir%/python/vllm-figures.t \
	%reldir%/python/vllm-namespace.t \
	%reldir%/python/vllm-seen.t \
	%reldir%/python/vllm-step.t \
	%reldir%/python/vllm-words.t \
	%reldir%/910-man-examples.t \
	%reldir%/911-man-lint.t \
	%reldir%/912-exports.t \
	%reldir%/913-includes.t \
	%reldir%/repo/format.t \
	%reldir%/repo/headers.t \
	%reldir%/kernels/spills.t \
	%reldir%/repo/heads.t \
	%reldir%/repo/bootstrap.t \
	%reldir%/repo/needs.t \
	%reldir%/repo/leaves-nothing.t \
	%reldir%/914-barriers.t \
	%reldir%/915-segment-page.t \
	%reldir%/916-tool-pages.t \
	%reldir%/917-registered.t \
	%reldir%/918-command-lines.t \
	%reldir%/920-pkg-config.t \
	%reldir%/921-packaging.t \
	%reldir%/921-disk-page.t

t_support = \
	%reldir%/lib/brat.h \
	%reldir%/lib/bytes.h \
	%reldir%/lib/fetch.h \
	%reldir%/lib/files.h \
	%reldir%/lib/ghosts.h \
	%reldir%/lib/hand.h \
	%reldir%/lib/images.h \
	%reldir%/lib/below.h \
	%reldir%/lib/kv.h \
	%reldir%/lib/kv_main.h \
	%reldir%/lib/late.h \
	%reldir%/lib/layouts.h \
	%reldir%/lib/plans.h \
	%reldir%/lib/lag.h \
	%reldir%/lib/looks.h \
	%reldir%/lib/ram_memory.h \
	%reldir%/lib/recency.h \
	%reldir%/lib/goes.h \
	%reldir%/lib/actor.h \
	%reldir%/lib/cache.h \
	%reldir%/lib/checked.h \
	%reldir%/lib/copied.h \
	%reldir%/lib/churn.h \
	%reldir%/lib/companions.h \
	%reldir%/lib/counts.h \
	%reldir%/lib/crew.h \
	%reldir%/data/kv_events_golden.txt \
	%reldir%/data/make-trace.sh \
	%reldir%/data/small.jsonl \
	%reldir%/data/small.svg \
	%reldir%/lib/devices.h \
	%reldir%/lib/disk_shim.h \
	%reldir%/lib/disk_whole.h \
	%reldir%/lib/disks.h \
	%reldir%/lib/dies.h \
	%reldir%/gpu/bytes.h \
	%reldir%/gpu/check \
	%reldir%/gpu/held.h \
	%reldir%/gpu/makefile \
	%reldir%/gpu/there.c \
	%reldir%/gpu/work.cu \
	%reldir%/gpu/work.h \
	%reldir%/gpu/worker.h \
	%reldir%/lib/four_pools.h \
	%reldir%/lib/host.h \
	%reldir%/lib/made.h \
	%reldir%/lib/memfile.h \
	%reldir%/lib/meet.h \
	%reldir%/lib/memory_files.h \
	%reldir%/lib/mirrors.h \
	%reldir%/lib/model.h \
	%reldir%/lib/moved.h \
	%reldir%/lib/namespaces.h \
	%reldir%/lib/neighbour.h \
	%reldir%/lib/notes.h \
	%reldir%/lib/options.h \
	%reldir%/lib/node.h \
	%reldir%/lib/redis.h \
	%reldir%/lib/remote.h \
	%reldir%/lib/resp.h \
	%reldir%/lib/owned.h \
	%reldir%/lib/patience.h \
	%reldir%/lib/returned.h \
	%reldir%/lib/serve_stops.h \
	%reldir%/lib/scratch.h \
	%reldir%/lib/sentences.h \
	%reldir%/lib/steps.h \
	%reldir%/lib/stops.h \
	%reldir%/lib/stores.h \
	%reldir%/lib/sums.h \
	%reldir%/lib/takes.h \
	%reldir%/lib/tap.h \
	%reldir%/lib/tiers.h \
	%reldir%/lib/trees.h \
	%reldir%/lib/waits.h \
	%reldir%/lib/xfers.h

# What only a GPU has is tested where there is nvcc, and on a GPU.  Some see what the library
# asks of the runtime: the linker puts their functions in between.
t_cuda_programs = \
	%reldir%/506-bytes-device.t \
	%reldir%/600-cuda-writer-fails.t \
	%reldir%/601-cuda-peer.t \
	%reldir%/602-cuda-graph.t \
	%reldir%/610-cuda-workers.t \
	%reldir%/620-cuda-standby.t \
	%reldir%/621-cuda-worker-dies.t \
	%reldir%/630-cuda-busy.t \
	%reldir%/640-cuda-bytes-dies.t \
	%reldir%/641-cuda-killed.t \
	%reldir%/642-cuda-done-word.t \
	%reldir%/memory/unregistered-cuda.t
t_work = %reldir%/gpu/work.lo
t_work_ldadd = lib/libgpc-internal.la $(t_work)
t_held_ldflags = $(AM_LDFLAGS) -Wl,--wrap=cudaMalloc,--wrap=cudaFree \
	-Wl,--wrap=cudaHostAlloc,--wrap=cudaFreeHost \
	-Wl,--wrap=cudaHostRegister,--wrap=cudaHostUnregister \
	-Wl,--wrap=cudaIpcOpenMemHandle,--wrap=cudaIpcCloseMemHandle \
	-Wl,--wrap=cudaStreamCreateWithFlags,--wrap=cudaStreamCreateWithPriority \
	-Wl,--wrap=cudaStreamDestroy \
	-Wl,--wrap=cudaEventCreateWithFlags,--wrap=cudaEventDestroy \
	-Wl,--wrap=cudaGraphInstantiateWithFlags,--wrap=cudaGraphExecDestroy \
	-Wl,--wrap=cudaMemcpyAsync
%canon_reldir%_506_bytes_device_t_LDADD = $(t_work_ldadd)
%canon_reldir%_600_cuda_writer_fails_t_LDFLAGS = $(t_held_ldflags)
%canon_reldir%_601_cuda_peer_t_LDFLAGS = $(t_held_ldflags)
%canon_reldir%_601_cuda_peer_t_LDADD = $(t_work_ldadd)
%canon_reldir%_610_cuda_workers_t_LDADD = $(t_work_ldadd)
%canon_reldir%_620_cuda_standby_t_LDADD = $(t_work_ldadd)
%canon_reldir%_621_cuda_worker_dies_t_LDADD = $(t_work_ldadd)
%canon_reldir%_640_cuda_bytes_dies_t_LDADD = $(t_work_ldadd)
%canon_reldir%_642_cuda_done_word_t_LDADD = $(t_work_ldadd)
%canon_reldir%_641_cuda_killed_t_LDADD = $(t_work_ldadd)
%canon_reldir%_630_cuda_busy_t_LDFLAGS = $(t_held_ldflags)
%canon_reldir%_memory_unregistered_cuda_t_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=cudaHostRegister
%canon_reldir%_630_cuda_busy_t_LDADD = $(t_work_ldadd)
if HAVE_CUDA
t_programs += $(t_cuda_programs)
check_PROGRAMS += %reldir%/gpu/there
$(t_work): $(top_srcdir)/%reldir%/gpu/work.h
endif

# spin checks these; t/model/run knows how, and "make models" leaves nothing out
t_models = \
	%reldir%/model/README.md \
	%reldir%/model/capacity.pml \
	%reldir%/model/claim.pml \
	%reldir%/model/companion.pml \
	%reldir%/model/drop.pml \
	%reldir%/model/grace.pml \
	%reldir%/model/holders.pml \
	%reldir%/model/litmus/section+aarch64.litmus \
	%reldir%/model/litmus/section+x86.litmus \
	%reldir%/model/litmus/refs+aarch64.litmus \
	%reldir%/model/litmus/refs+x86.litmus \
	%reldir%/model/litmus/run \
	%reldir%/model/litmus/wake+aarch64.litmus \
	%reldir%/model/litmus/wake+x86.litmus \
	%reldir%/model/mirror.pml \
	%reldir%/model/move.pml \
	%reldir%/model/refs.pml \
	%reldir%/model/relocate.pml \
	%reldir%/model/run \
	%reldir%/model/seat.pml \
	%reldir%/model/section.pml \
	%reldir%/model/stock.pml \
	%reldir%/model/stock-owned.pml \
	%reldir%/model/fence.pml \
	%reldir%/model/gaps.pml \
	%reldir%/model/given-up.pml \
	%reldir%/model/since.pml \
	%reldir%/model/transfer.pml \
	%reldir%/model/tso.h \
	%reldir%/model/wake.pml \
	%reldir%/model/window.pml

models:
	@CC='$(CC)' $(top_srcdir)/%reldir%/model/run
.PHONY: models

check_PROGRAMS += $(t_programs)
dist_check_SCRIPTS += $(t_scripts)
LDADD = lib/libgpc-internal.la
# gpcd's KV events: its own bytes, and subscribers
%canon_reldir%_030_kv_wire_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
%canon_reldir%_030_kv_wire_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_030_kv_wire_t_SOURCES = %reldir%/030-kv-wire.c
# a client of Redis, where there is one; without it they say that they are skipped
if HAVE_HIREDIS
%canon_reldir%_remote_late_put_t_CPPFLAGS = $(AM_CPPFLAGS) $(HIREDIS_CFLAGS) -DHAVE_HIREDIS
%canon_reldir%_remote_late_put_t_LDADD = $(LDADD) $(HIREDIS_LIBS)
%canon_reldir%_873_redis_t_CPPFLAGS = $(AM_CPPFLAGS) $(HIREDIS_CFLAGS) -DHAVE_HIREDIS
%canon_reldir%_873_redis_t_LDADD = $(LDADD) $(HIREDIS_LIBS)
endif
if HAVE_EVENTS
%canon_reldir%_030_kv_wire_t_SOURCES += tools/daemon/events/wire.c tools/daemon/events/words.c
endif
%canon_reldir%_032_top_layout_t_SOURCES = %reldir%/032-top-layout.c \
	tools/common/shown.c tools/inspect/sample.c tools/inspect/top/alerts.c \
	tools/inspect/top/layout.c tools/inspect/top/lines.c tools/inspect/top/tiers.c \
	tools/inspect/top/parts.c
%canon_reldir%_032_top_layout_t_LDADD =
%canon_reldir%_031_kv_told_t_SOURCES = %reldir%/031-kv-told.c
%canon_reldir%_031_kv_told_t_LDADD =
if HAVE_EVENTS
%canon_reldir%_031_kv_told_t_SOURCES += tools/daemon/events/told.c
endif
%canon_reldir%_850_kv_events_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_850_kv_events_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_851_kv_replay_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_851_kv_replay_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_852_kv_lives_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_852_kv_lives_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_853_kv_slow_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_853_kv_slow_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_daemon_events_strangers_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_daemon_events_strangers_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_daemon_events_memory_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_daemon_events_memory_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_858_kv_namespaces_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_858_kv_namespaces_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_849_kv_attacks_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_849_kv_attacks_t_LDADD = $(LDADD) $(EVENTS_LIBS)
# the tables of others; nothing of ours
%canon_reldir%_023_bench_peers_t_LDADD = tools/libbench-peers.la
# the disk fails, is short, is interrupted, or kills who uses it
%canon_reldir%_042_disk_faults_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store
%canon_reldir%_043_disk_power_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store
%canon_reldir%_044_disk_kills_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store
# transfers and syncs that stop at a gate
%canon_reldir%_045_disk_queue_t_LDFLAGS = -Wl,--wrap=io_read_image,--wrap=io_write_image
# no sync
%canon_reldir%_047_disk_scan_t_LDFLAGS = -Wl,--wrap=fdatasync
# clocks that jump, other boots
%canon_reldir%_046_disk_clock_t_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=fd_peek
# one in between looks at the files
%canon_reldir%_006_segment_names_t_LDFLAGS = -Wl,--wrap=rename
# a write or a read of the disk waits until the test lets it go on; no sync
%canon_reldir%_102_tiers_durable_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync
# no sync
%canon_reldir%_104_tiers_refused_t_LDFLAGS = -Wl,--wrap=fdatasync,--wrap=gpc_pool_make
# there is no memory for a thread; another keeper has the lock at once
%canon_reldir%_104_tiers_both_t_LDFLAGS = -Wl,--wrap=malloc,--wrap=lock_drop
# the feed stands still, or is overwritten; a publish is answered late
%canon_reldir%_104_tiers_feed_t_LDFLAGS = -Wl,--wrap=gpc_event_read,--wrap=publish_copies,--wrap=gpc_evict
# blocks are older than they are
%canon_reldir%_101_tiers_t_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=gpc_reclaim
# a plugin that does not return is lost sooner; rounds of its thread are counted
%canon_reldir%_103_remote_lost_t_LDFLAGS = -Wl,--wrap=remote_open,--wrap=afar_look,--wrap=remote_tick
# where an image is read into
%canon_reldir%_104_tiers_straight_t_LDFLAGS = -Wl,--wrap=preadv
# nothing can be removed from a store, and writes stand still
%canon_reldir%_055_remote_kept_t_LDFLAGS = -Wl,--wrap=remote_remove,--wrap=remote_put
%canon_reldir%_055_remote_refuses_t_LDFLAGS = -Wl,--wrap=remote_remove,--wrap=remote_put,--wrap=gone_add,--wrap=slots_take,--wrap=slots_live
%canon_reldir%_059_redis_names_t_LDFLAGS = -rdynamic
# what was found at the start is not published yet
%canon_reldir%_105_tiers_drops_t_LDFLAGS = -Wl,--wrap=publish_copies,--wrap=drops_missed,--wrap=drops_carry_out
# a keeper that stands still as it looks
%canon_reldir%_105_tiers_gaps_t_LDFLAGS = -Wl,--wrap=gpc_lookup,--wrap=retire_subtree,--wrap=drops_carry_out
# a disk that fails for a while
%canon_reldir%_106_tiers_rest_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store
# a place of the disk fails
%canon_reldir%_107_tiers_full_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store
# each step of a start fails
%canon_reldir%_109_tiers_resize_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store,--wrap=pthread_create,--wrap=disk_scan \
	-Wl,--wrap=queue_start,--wrap=feed_begin,--wrap=uses_new
# the writer dies at each store of a drop
%canon_reldir%_387_tiers_drop_dies_t_LDFLAGS = -Wl,--wrap=segment_map_writer
# a caller sleeps through the death of a keeper
%canon_reldir%_388_tiers_keeper_life_t_LDFLAGS = -Wl,--wrap=futex_wait,--wrap=plan_ram
# the keeper of a tier dies at each of these
%canon_reldir%_322_tiers_die_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync,--wrap=publish_copies
# the system gives fewer threads than are asked for
%canon_reldir%_008_team_t_LDFLAGS = -Wl,--wrap=pthread_create
%canon_reldir%_base_worker_t_LDFLAGS = -Wl,--wrap=pthread_create
# its maker dies at each of these, and a sweeper comes before the lock
%canon_reldir%_019_memory_sweep_t_LDFLAGS = -Wl,--wrap=fchmod,--wrap=ftruncate \
	-Wl,--wrap=posix_fallocate,--wrap=lock_try,--wrap=lock_share,--wrap=madvise \
	-Wl,--wrap=memory_store_part
# a creator dies at each of these
%canon_reldir%_197_creators_t_LDFLAGS = -Wl,--wrap=fchmod,--wrap=ftruncate \
	-Wl,--wrap=posix_fallocate,--wrap=lock_try,--wrap=lock_share,--wrap=lock_drop \
	-Wl,--wrap=rename,--wrap=segment_map_writer
%canon_reldir%_196_ram_memory_t_LDADD = $(LDADD) $(NUMA_LIBS)
# a call is withdrawn while its command runs
%canon_reldir%_107_two_ways_t_LDFLAGS = -Wl,--wrap=grant_has_quota
# the writer stops between two rounds, and a commit waits for a bucket
%canon_reldir%_request_late_answers_t_LDFLAGS = -Wl,--wrap=retire_advance,--wrap=move_commit_target
# a maker stops until others have looked for its pool
%canon_reldir%_memory_once_threads_t_LDFLAGS = -Wl,--wrap=memory_make,--wrap=once_find
# the writer stops behind a grant
%canon_reldir%_peer_stopped_writer_t_LDFLAGS = -Wl,--wrap=grant_claim
# ... and when a batch is to be published
%canon_reldir%_stage_comes_back_t_LDFLAGS = -Wl,--wrap=remote_remove
%canon_reldir%_stage_stopped_writer_t_LDFLAGS = -Wl,--wrap=publish_copies
# a keeper stands still, and has no memory
%canon_reldir%_stage_follow_t_LDFLAGS = -Wl,--wrap=publish_copies,--wrap=drops_carry_out,--wrap=numbers_add,--wrap=dropped_since
# threads of the keeper hang
%canon_reldir%_payload_stopped_keeper_t_LDFLAGS = -Wl,--wrap=slots_find
# a section ends in the middle of a pass
%canon_reldir%_108_back_late_t_LDFLAGS = -Wl,--wrap=grant_sweep
# housekeeping is left out
%canon_reldir%_writer_parked_t_LDFLAGS = -Wl,--wrap=parked_housekeep
# what is given at once is counted
%canon_reldir%_writer_left_over_t_LDFLAGS = -Wl,--wrap=grant_now
# looks at the seats are counted
%canon_reldir%_writer_waited_victim_t_LDFLAGS = -Wl,--wrap=reap_dead
# waits for answers are counted
%canon_reldir%_peer_no_writer_t_LDFLAGS = -Wl,--wrap=futex_wait
# a device of the test in place of the host's
%canon_reldir%_memory_pin_refused_t_LDFLAGS = -Wl,--wrap=driver_of
# a thread that finds no section gives others the processor
%canon_reldir%_peer_many_threads_t_LDFLAGS = -Wl,--wrap=sched_yield
# a reference is taken in the middle of an eviction
%canon_reldir%_109_held_late_t_LDFLAGS = -Wl,--wrap=meter_evicted
# a gate between finding a block and taking the reference
%canon_reldir%_136_moves_refs_t_LDFLAGS = -Wl,--wrap=refs_take
# one in between looks at what readers find
%canon_reldir%_152_one_step_t_LDFLAGS = -Wl,--wrap=retire_subtree
# a driver in between sees what the writer asks of a device
%canon_reldir%_163_mirror_order_t_LDFLAGS = -Wl,--wrap=driver_find
# no thread is joined twice
%canon_reldir%_213_copies_race_t_LDFLAGS = -Wl,--wrap=pthread_join
# who clears seats dies at any store, or waits in the middle
%canon_reldir%_186_fetch_late_t_LDFLAGS = -Wl,--wrap=ring_submit,--wrap=bring_ask
%canon_reldir%_231_dead_seats_t_LDFLAGS = -Wl,--wrap=segment_map_writer,--wrap=parallel_size \
	-Wl,--wrap=seat_count_dead
# sleeps have no limit there
%canon_reldir%_172_wake_t_LDFLAGS = -Wl,--wrap=futex_wait,--wrap=clock_ns
# another thread forks when a file was just opened, mapped or locked
%canon_reldir%_332_fork_at_open_t_LDFLAGS = -Wl,--wrap=open,--wrap=mmap,--wrap=fcntl
# what tells others of a part fails, and a pool goes as soon as its maker has it
%canon_reldir%_146_map_refused_t_LDFLAGS = -Wl,--wrap=thread_start
%canon_reldir%_159_adopted_t_LDFLAGS = -Wl,--wrap=memory_store_part,--wrap=map_adopt
# the writer's mapping is replaced by one that the test sees stores to
%canon_reldir%_382_companion_stores_t_LDFLAGS = -Wl,--wrap=segment_map_writer \
	-Wl,--wrap=companion_may,--wrap=companion_end_life
%canon_reldir%_379_transfers_reaped_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_321_returned_dies_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_333_feed_each_store_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_336_takeover_says_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_337_memory_dies_t_LDFLAGS = -Wl,--wrap=segment_map_writer,--wrap=fd_open,--wrap=fd_close \
	-Wl,--wrap=lock_try,--wrap=lock_drop,--wrap=segment_map_range,--wrap=memory_store_part \
	-Wl,--wrap=ring_call,--wrap=posix_fallocate,--wrap=memory_made,--wrap=map_adopt
# looks at processes are counted
%canon_reldir%_339_lost_peers_t_LDFLAGS = -Wl,--wrap=identity_look,--wrap=identity_gone
# a thread is slow
%canon_reldir%_345_copies_end_t_LDFLAGS = -Wl,--wrap=host_copy_op
# a pool goes while it is mapped
%canon_reldir%_346_map_turns_t_LDFLAGS = -Wl,--wrap=memory_map_images
# a peer's mappings are watched, and its threads take the signals
%canon_reldir%_347_copy_stores_t_LDFLAGS = -Wl,--wrap=segment_map_range,--wrap=munmap \
	-Wl,--wrap=madvise,--wrap=pthread_sigmask,--wrap=fd_open,--wrap=fd_close \
	-Wl,--wrap=lock_try,--wrap=segment_remove_file
%canon_reldir%_376_transfer_stores_t_LDFLAGS = -Wl,--wrap=segment_map_range,--wrap=munmap \
	-Wl,--wrap=madvise,--wrap=pthread_sigmask
%canon_reldir%_350_kill_points_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_311_recall_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_312_stock_evict_dies_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_335_alias_stores_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_357_root_stores_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_384_fold_stores_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_386_window_stores_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_writer_drops_die_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_363_each_store_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_writer_promised_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_366_moves_die_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_373_transfers_die_t_LDFLAGS = -Wl,--wrap=segment_map_writer
# as many threads as the test wants, however many processors there are
%canon_reldir%_364_takeover_large_t_LDFLAGS = -Wl,--wrap=parallel_size
%canon_reldir%_369_takeover_damage_t_LDFLAGS = -Wl,--wrap=parallel_size
# memory ends in threads, whose number is the test's
%canon_reldir%_365_takeover_memory_t_LDFLAGS = -Wl,--wrap=parallel_size,--wrap=parallel_run \
	-Wl,--wrap=calloc,--wrap=realloc,--wrap=malloc,--wrap=free
# signals undo what the kernel was asked for
%canon_reldir%_341_signals_t_LDFLAGS = -Wl,--wrap=posix_fallocate
# something happens before a command is sent
%canon_reldir%_380_pools_made_again_t_LDFLAGS = -Wl,--wrap=request_group_by
# a thread cannot be started
%canon_reldir%_167_order_t_LDFLAGS = -Wl,--wrap=pthread_create
%canon_reldir%_193_create_fails_t_LDFLAGS = -Wl,--wrap=pthread_create
# the time of day jumps
%canon_reldir%_342_clocks_t_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=gettimeofday,--wrap=time
# the file system lies about what is free
%canon_reldir%_370_full_t_LDFLAGS = -Wl,--wrap=fstatfs
EXTRA_DIST += $(t_support) $(t_models)

# ---- what the scripts that run the tools are helped by ----

t_helpers = \
	%reldir%/sh/clear \
	%reldir%/sh/cost \
	%reldir%/sh/crowd \
	%reldir%/sh/hold \
	%reldir%/sh/json \
	%reldir%/sh/lie \
	%reldir%/sh/node \
	%reldir%/sh/notify \
	%reldir%/sh/pty \
	%reldir%/sh/relayout \
	%reldir%/sh/spoil \
	%reldir%/sh/store \
	%reldir%/sh/within

# A plugin that breaks its contract, without and with a tick.
check_LTLIBRARIES += %reldir%/lib/gpc_remote_bad.la %reldir%/lib/gpc_remote_bad_tick.la
%canon_reldir%_lib_gpc_remote_bad_la_SOURCES = %reldir%/lib/gpc_remote_bad.c
%canon_reldir%_lib_gpc_remote_bad_la_LDFLAGS = $(plugin_ldflags) -rpath /nowhere
%canon_reldir%_lib_gpc_remote_bad_tick_la_SOURCES = %reldir%/lib/gpc_remote_bad.c
%canon_reldir%_lib_gpc_remote_bad_tick_la_CPPFLAGS = $(AM_CPPFLAGS) -DWITH_TICK
%canon_reldir%_lib_gpc_remote_bad_tick_la_LDFLAGS = $(plugin_ldflags) -rpath /nowhere

check_PROGRAMS += $(t_helpers)
EXTRA_DIST += \
	%reldir%/repo/heads \
	%reldir%/sh/driver \
	%reldir%/sh/lru.sh \
	%reldir%/sh/metrics.sh \
	%reldir%/sh/needs \
	%reldir%/sh/of \
	%reldir%/sh/prom.py \
	%reldir%/sh/python.sh \
	%reldir%/sh/tap.sh
%canon_reldir%_sh_clear_SOURCES = %reldir%/sh/clear.c
%canon_reldir%_sh_clear_LDADD = lib/libgpc.la
%canon_reldir%_sh_cost_SOURCES = %reldir%/sh/cost.c
%canon_reldir%_sh_cost_LDADD =
%canon_reldir%_sh_crowd_SOURCES = %reldir%/sh/crowd.c
%canon_reldir%_sh_crowd_LDADD = lib/libgpc.la
%canon_reldir%_sh_hold_SOURCES = %reldir%/sh/hold.c
%canon_reldir%_sh_hold_LDADD = lib/libgpc.la
%canon_reldir%_sh_lie_SOURCES = %reldir%/sh/lie.c
%canon_reldir%_sh_lie_LDADD = lib/libgpc.la
%canon_reldir%_sh_spoil_SOURCES = %reldir%/sh/spoil.c
%canon_reldir%_sh_store_SOURCES = %reldir%/sh/store.c
%canon_reldir%_sh_node_SOURCES = %reldir%/sh/node.c
%canon_reldir%_sh_node_LDADD = lib/libgpc.la
%canon_reldir%_sh_spoil_LDADD =
%canon_reldir%_sh_relayout_SOURCES = %reldir%/sh/relayout.c
%canon_reldir%_sh_json_SOURCES = %reldir%/sh/json.c
%canon_reldir%_sh_json_LDADD = $(JANSSON_LIBS)
%canon_reldir%_sh_notify_SOURCES = %reldir%/sh/notify.c
%canon_reldir%_sh_pty_SOURCES = %reldir%/sh/pty.c
%canon_reldir%_sh_notify_LDADD =
%canon_reldir%_sh_within_SOURCES = %reldir%/sh/within.c
%canon_reldir%_sh_within_LDADD =

include %D%/torture/local.mk
include %D%/fuzz/local.mk

# They are linked without libtool, which takes as long as the linker.
$(t_programs) $(torture_programs): LDFLAGS += $(TEST_LDFLAGS)
$(t_programs) $(torture_programs): LIBTOOL = $(SHELL) $(top_srcdir)/%reldir%/sh/link $(SHELL) $(top_builddir)/libtool
$(%canon_reldir%_fuzz_libgpc_fuzz_la_OBJECTS): LIBTOOL = $(SHELL) $(top_srcdir)/%reldir%/sh/compile $(SHELL) \
	$(top_builddir)/libtool
EXTRA_DIST += %reldir%/sh/compile %reldir%/sh/link
# The library of the fuzzers, too: the sanitizers make its compilation the longest of all.
$(t_programs:.t=.o): CFLAGS = $(TEST_CFLAGS)
$(torture_programs:.t=.o) $(%canon_reldir%_fuzz_libgpc_fuzz_la_OBJECTS): CFLAGS = $(TORTURE_CFLAGS)
# Long ones first here and in each list, so that no processor is without work at the end.
t_all = $(torture_programs) $(fuzz_programs) $(t_scripts) $(t_programs)
TESTS = $(t_all)
TEST_EXTENSIONS = .t

# "make check" builds everything before the first test runs; "make check TESTS=..." builds what these
# tests need, which t/sh/needs knows.  configure.ac takes out automake's check-am, which builds all in
# any case.  check-TESTS would build the programs of all tests: it is told that there are none.
# all-am, and not all: that is a make of its own, which must not run beside this one.
# FILE=lib/writer/index/lru.c: the tests of that source.
check-am: config.h
	@if test -n '$(FILE)'; then \
		tests=`$(SHELL) $(srcdir)/%reldir%/sh/of '$(srcdir)' $(FILE)` || exit; \
		exec $(MAKE) $(AM_MAKEFLAGS) check-am FILE= TESTS="`echo $$tests`"; \
	fi; \
	if test "x$(TESTS)" = "x$(t_all)"; then \
		needs='all-am $(check_PROGRAMS) $(check_LTLIBRARIES)'; \
	else \
		needs=`$(SHELL) $(srcdir)/%reldir%/sh/needs '$(srcdir)' \
			'$(t_all) $(t_cluster)' $(TESTS)` || exit; \
	fi; \
	{ test -z "$$needs" || $(MAKE) $(AM_MAKEFLAGS) $$needs; } && \
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS check_PROGRAMS= check_LTLIBRARIES=
t-plugins: $(pkglib_LTLIBRARIES) %reldir%/lib/gpc_remote_bad.la %reldir%/lib/gpc_remote_bad_tick.la
.PHONY: t-plugins t-python t-completions
if HAVE_PYTHON
t-python: python/gpc/stamp
else
t-python:
endif
if CAN_RUN
t-completions: tools/completions/stamp
else
t-completions:
endif
T_LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/%reldir%/sh/driver \
	$(top_srcdir)/build-aux/tap-driver.sh
# A test has its own watchdog; this one is for tests whose watchdog fails, and removes what a test
# leaves behind.  At the end nothing is left of tests that were killed together with it, either.
T_LOG_COMPILER = %reldir%/sh/within 660
$(TEST_LOGS): %reldir%/sh/within$(EXEEXT)
check-local: check-TESTS
	@%reldir%/sh/within --sweep

# ---- what takes longer than CI has time for ----

# make check-long [PART=NAME...] [SECONDS=N]: the parts are in CONTRIBUTING.md.
LONG_PARTS = models stores points waits copy drops grace kill prefix nested step instructions \
	successor transfer fuzz mutants
PART = $(LONG_PARTS)
EXTRA_DIST += %reldir%/sh/long
check-long: all
	@for part in $(PART); do \
		echo "check-long PART=$$part"; \
		CC='$(CC)' MAKE='$(MAKE)' top_srcdir='$(abs_top_srcdir)' \
			$(SHELL) $(srcdir)/%reldir%/sh/long $$part $(SECONDS) || exit; \
	done
.PHONY: check-long

# What a test may rely on.  Alone, it looks for sources and objects around itself.
t_environment = \
	top_srcdir='$(abs_top_srcdir)' \
	top_builddir='$(abs_top_builddir)' \
	CC='$(CC)' \
	CXX='$(CXX)' \
	MANDOC='$(MANDOC)' \
	PYTHON='$(PYTHON)' \
	PATH="$(abs_top_builddir)/tools:$$PATH"
AM_TESTS_ENVIRONMENT = $(t_environment); \
	export top_srcdir top_builddir CC CXX MANDOC PYTHON PATH;

# ---- KV events, read by those whom they are for: t/events/README.md ----

EXTRA_DIST += %reldir%/events/README.md %reldir%/events/consumers.py %reldir%/events/declared.py \
	%reldir%/events/modules.py %reldir%/events/node.py %reldir%/events/requirements.txt %reldir%/events/run
check-events: all
	@$(SHELL) $(srcdir)/%reldir%/events/run '$(abs_top_srcdir)' '$(abs_top_builddir)' '$(PYTHON)'
.PHONY: check-events

# ---- metrics, read by Prometheus: Debian's package, unpacked, since an init would start its services ----

check-metrics: all
	@test -x prometheus/usr/bin/promtool || { rm -rf prometheus && mkdir prometheus && cd prometheus && \
		apt-get download prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb; }
	$(MAKE) check TESTS='%reldir%/863-metrics.t %reldir%/864-metrics-http.t %reldir%/865-dashboard.t'
.PHONY: check-metrics

# ---- on a GPU ----

# A folder that holds all that the tests on a GPU need, ready to run: it may be copied to where
# there is neither compiler nor library, and "make check-gpu" in it runs them there.  Here
# the same target runs them in place.
t_gpu_programs = \
	%reldir%/338-copy-dies.t \
	%reldir%/500-device.t \
	%reldir%/501-ask-device.t \
	%reldir%/502-device-sections.t \
	%reldir%/503-device-mirrors.t \
	%reldir%/505-device-moves.t \
	%reldir%/507-copy-device.t \
	%reldir%/508-sums-device.t \
	%reldir%/511-fetch-device.t \
	%reldir%/643-transfers-die-device.t \
	%reldir%/gpu/there \
	$(t_cuda_programs)

# Those that run the tools find them, and what else they need, in the same places as here.
t_gpu_scripts = \
	%reldir%/833-replay-pools.t \
	%reldir%/834-replay-pools-end.t \
	%reldir%/835-replay-fetch.t \
	%reldir%/891-vllm-gpu.t
t_gpu_tools = \
	tools/gpcd \
	tools/gpc-inspect \
	tools/gpc-replay \
	%reldir%/sh/clear \
	%reldir%/sh/hold \
	%reldir%/sh/json \
	%reldir%/sh/spoil \
	%reldir%/sh/within

if HAVE_CUDA
# libtool has the programs themselves in .libs
gpu-tests: $(t_gpu_programs) bench-gpu-programs $(t_gpu_tools)
	rm -rf $@ && $(MKDIR_P) $@/lib $@/tools $@/%reldir%/sh $@/%reldir%/data
	cp $(t_gpu_programs) $@
	cp $(srcdir)/%reldir%/gpu/check $(srcdir)/%reldir%/gpu/makefile $@
	for t in $(t_gpu_scripts); do cp $(srcdir)/$$t $@ || exit; done
	cp $(srcdir)/%reldir%/sh/tap.sh $(srcdir)/%reldir%/sh/lru.sh $(srcdir)/%reldir%/sh/python.sh $@/%reldir%/sh
	$(MKDIR_P) $@/python && cp -r $(srcdir)/python/tests $@/python
	test ! -f python/gpc/_gpc.abi3.so || cp -rL python/gpc $@/python
	cp $(srcdir)/%reldir%/data/small.jsonl $@/%reldir%/data
	for p in $(t_gpu_tools); do \
		hidden=$$(dirname $$p)/.libs/$$(basename $$p); \
		test -f $$hidden || hidden=$$p; \
		cp $$hidden $@/$$p || exit; \
	done
	$(MKDIR_P) $@/bench && cp $(bench_gpu_programs) %reldir%/bench/bench-ram$(EXEEXT) $@/bench
	cp lib/.libs/libgpc.so.[0-9] $@/lib
	$(STRIP) -g $@/*.t $@/there $@/bench/* $@/tools/* $@/lib/* 2>/dev/null || :
	ldd $(t_gpu_programs) $@/tools/* $@/bench/* $@/%reldir%/sh/json | \
		awk '$$3 ~ /^\// && $$1 !~ /^lib(c|m|dl|rt|pthread|cuda)\.so/ && $$1 !~ /^libgpc/ { print $$3 }' | \
		sort -u | \
		while read -r so; do cp "$$so" $@/lib || exit; done
check-gpu: gpu-tests
	@sh gpu-tests/check
else
gpu-tests check-gpu:
	@echo 'this build has no CUDA: configure says why' >&2; exit 1
endif
.PHONY: gpu-tests check-gpu
clean-local: clean-python
	rm -rf gpu-tests bench-folder events-venv %reldir%/fuzz/libfuzzer.d %reldir%/gpu/.libs %reldir%/gpu/*.o %reldir%/gpu/*.lo %reldir%/gpu/*.d

# The tests of "make check" under prove; PROVEFLAGS=--timer tells which tests are slow.
prove: all-am $(check_PROGRAMS) $(check_LTLIBRARIES)
	$(t_environment) $(PROVE) --exec '' $(PROVEFLAGS) \
		$(t_programs) $(addprefix $(srcdir)/,$(t_scripts))
.PHONY: prove

include t/bench/local.mk
include t/cluster/local.mk
