# SPDX-License-Identifier: Apache-2.0
# Tests speak TAP.  A new one is one line here: t/ROOM/TOPIC.t in t_programs is compiled from
# t/ROOM/TOPIC.c against the library's internals, in t_scripts it is a shell script.

t_programs = \
	%reldir%/daemon/events-strangers.t \
	%reldir%/kv/attacks.t \
	%reldir%/bytes/hostile-files.t \
	%reldir%/index/feed-each-store.t \
	%reldir%/index/recall.t \
	%reldir%/bytes/copy-stores.t \
	%reldir%/bytes/memory-dies.t \
	%reldir%/index/each-store.t \
	%reldir%/bytes/stopped-writer.t \
	%reldir%/index/takeover-large.t \
	%reldir%/index/transfers-die.t \
	%reldir%/index/stock-evict-dies.t \
	%reldir%/index/moves-die.t \
	%reldir%/bytes/stopped-steward.t \
	%reldir%/index/key.t \
	%reldir%/index/geometry.t \
	%reldir%/index/lockfile.t \
	%reldir%/index/segment.t \
	%reldir%/index/probe.t \
	%reldir%/index/segment-names.t \
	%reldir%/index/err-log.t \
	%reldir%/index/control-groups.t \
	%reldir%/index/team.t \
	%reldir%/index/segment-damage.t \
	%reldir%/index/epoch.t \
	%reldir%/index/refs.t \
	%reldir%/index/lookup.t \
	%reldir%/index/segment-snapshot.t \
	%reldir%/index/lookup-calls.t \
	%reldir%/bytes/runs.t \
	%reldir%/bytes/plan.t \
	%reldir%/bytes/plan-bytes.t \
	%reldir%/bytes/transfer.t \
	%reldir%/bytes/memory-file.t \
	%reldir%/bytes/memory-ranges.t \
	%reldir%/bytes/memory-sweep.t \
	%reldir%/look/feed-walk.t \
	%reldir%/look/check.t \
	%reldir%/bytes/device-host.t \
	%reldir%/tools/bench-peers.t \
	%reldir%/index/queue.t \
	%reldir%/look/check-live.t \
	%reldir%/look/check-waits.t \
	%reldir%/look/check-writer.t \
	%reldir%/bytes/device-sections-host.t \
	%reldir%/bytes/mirror-step.t \
	%reldir%/index/crc.t \
	%reldir%/bytes/plan-strides.t \
	%reldir%/kv/wire.t \
	%reldir%/kv/told.t \
	%reldir%/tools/hot-table.t \
	%reldir%/tools/top-layout.t \
	%reldir%/bytes/trailers.t \
	%reldir%/index/many-keys.t \
	%reldir%/tiers/disk-slots.t \
	%reldir%/tiers/disk-files.t \
	%reldir%/tiers/aside.t \
	%reldir%/tiers/disk-faults.t \
	%reldir%/tiers/disk-power.t \
	%reldir%/tiers/disk-kills.t \
	%reldir%/tiers/disk-queue.t \
	%reldir%/tiers/disk-clock.t \
	%reldir%/tiers/disk-scan.t \
	%reldir%/tiers/uses.t \
	%reldir%/tiers/wanted.t \
	%reldir%/tiers/remote-image.t \
	%reldir%/tiers/remote-plugins.t \
	%reldir%/tiers/remote-folder.t \
	%reldir%/tiers/remote-replies.t \
	%reldir%/tiers/lane-lost.t \
	%reldir%/tiers/remote-kept.t \
	%reldir%/tiers/remote-refuses.t \
	%reldir%/tiers/redis-ill.t \
	%reldir%/tiers/redis-nodes.t \
	%reldir%/tiers/redis-strays.t \
	%reldir%/tiers/redis-names.t \
	%reldir%/index/seed.t \
	%reldir%/tiers/down-and-up.t \
	%reldir%/tiers/chains.t \
	%reldir%/tiers/durable.t \
	%reldir%/tiers/both.t \
	%reldir%/tiers/feed.t \
	%reldir%/tiers/refused.t \
	%reldir%/tiers/store.t \
	%reldir%/tiers/store-lost.t \
	%reldir%/tiers/straight.t \
	%reldir%/tiers/drops.t \
	%reldir%/tiers/drops-alone.t \
	%reldir%/tiers/alone.t \
	%reldir%/tiers/gaps.t \
	%reldir%/tiers/notes.t \
	%reldir%/tiers/rest.t \
	%reldir%/tiers/full.t \
	%reldir%/tiers/two-ways.t \
	%reldir%/tiers/back-late.t \
	%reldir%/index/touch.t \
	%reldir%/index/at-once.t \
	%reldir%/index/late-answers.t \
	%reldir%/index/given-up.t \
	%reldir%/index/pool-gone.t \
	%reldir%/bytes/pool-lives.t \
	%reldir%/bytes/once-threads.t \
	%reldir%/index/first-refusal.t \
	%reldir%/bytes/named-source.t \
	%reldir%/bytes/lent-source.t \
	%reldir%/tiers/stopped-writer.t \
	%reldir%/tiers/comes-back.t \
	%reldir%/tiers/follow.t \
	%reldir%/tiers/lost-since.t \
	%reldir%/tiers/copied-meanwhile.t \
	%reldir%/tiers/unchained.t \
	%reldir%/tiers/gone.t \
	%reldir%/tiers/kin.t \
	%reldir%/bytes/pin-refused.t \
	%reldir%/bytes/pin-meanwhile.t \
	%reldir%/bytes/short-record.t \
	%reldir%/index/refs-held.t \
	%reldir%/tiers/held-late.t \
	%reldir%/index/parked.t \
	%reldir%/index/drops-alone.t \
	%reldir%/index/drops-die.t \
	%reldir%/index/drops-since.t \
	%reldir%/index/subtree.t \
	%reldir%/index/waited-victim.t \
	%reldir%/index/left-over.t \
	%reldir%/index/named-quota.t \
	%reldir%/index/promised.t \
	%reldir%/index/clear-counts.t \
	%reldir%/index/claim-ends.t \
	%reldir%/index/returned-refused.t \
	%reldir%/tiers/resize.t \
	%reldir%/index/publish.t \
	%reldir%/index/publish-no-ref.t \
	%reldir%/index/ask.t \
	%reldir%/index/keys.t \
	%reldir%/index/notes.t \
	%reldir%/index/groups.t \
	%reldir%/index/aliases.t \
	%reldir%/index/roots.t \
	%reldir%/index/settings.t \
	%reldir%/index/primed.t \
	%reldir%/bytes/histograms.t \
	%reldir%/index/notes-move.t \
	%reldir%/index/reserve.t \
	%reldir%/index/wait.t \
	%reldir%/index/window.t \
	%reldir%/index/no-writer.t \
	%reldir%/index/name-lost.t \
	%reldir%/index/many-threads.t \
	%reldir%/index/release.t \
	%reldir%/index/unsent.t \
	%reldir%/index/stock.t \
	%reldir%/look/check-holds.t \
	%reldir%/index/time-is-up.t \
	%reldir%/index/stock-evict.t \
	%reldir%/index/windows.t \
	%reldir%/index/tier.t \
	%reldir%/index/moves.t \
	%reldir%/index/two-tier.t \
	%reldir%/index/chains-and-moves.t \
	%reldir%/index/moves-seen.t \
	%reldir%/index/moves-refs.t \
	%reldir%/index/parents-leave.t \
	%reldir%/index/move-ends.t \
	%reldir%/index/lru.t \
	%reldir%/index/let-go.t \
	%reldir%/index/peek.t \
	%reldir%/index/reclaim.t \
	%reldir%/index/order.t \
	%reldir%/index/sources-wait.t \
	%reldir%/bytes/copy.t \
	%reldir%/bytes/maps.t \
	%reldir%/bytes/lent-pages.t \
	%reldir%/bytes/map-refused.t \
	%reldir%/bytes/pin.t \
	%reldir%/index/pools.t \
	%reldir%/index/clear.t \
	%reldir%/index/one-step.t \
	%reldir%/index/caller.t \
	%reldir%/index/returned.t \
	%reldir%/index/capacity.t \
	%reldir%/bytes/pool-make.t \
	%reldir%/bytes/pool-lend.t \
	%reldir%/bytes/adopted.t \
	%reldir%/bytes/memory-waits.t \
	%reldir%/index/returned-lost.t \
	%reldir%/index/sections.t \
	%reldir%/index/feed.t \
	%reldir%/bytes/mirror.t \
	%reldir%/bytes/mirror-order.t \
	%reldir%/index/claims.t \
	%reldir%/index/transfers.t \
	%reldir%/index/transfers-forged.t \
	%reldir%/bytes/transfer-stores.t \
	%reldir%/bytes/transfer-lives.t \
	%reldir%/bytes/transfers-closed.t \
	%reldir%/index/transfers-reaped.t \
	%reldir%/bytes/pools-made-again.t \
	%reldir%/index/companions.t \
	%reldir%/index/companion-stores.t \
	%reldir%/bytes/companion-ranks.t \
	%reldir%/index/fold-stores.t \
	%reldir%/index/window-stores.t \
	%reldir%/tiers/drop-dies.t \
	%reldir%/tiers/life.t \
	%reldir%/tiers/long-chain.t \
	%reldir%/bytes/asks-nobody.t \
	%reldir%/bytes/fetch.t \
	%reldir%/bytes/spill.t \
	%reldir%/bytes/order.t \
	%reldir%/bytes/ranks.t \
	%reldir%/index/churn.t \
	%reldir%/index/table.t \
	%reldir%/index/wake.t \
	%reldir%/index/wake-writer.t \
	%reldir%/index/transfer-turns.t \
	%reldir%/index/refused-late.t \
	%reldir%/bytes/pool-once.t \
	%reldir%/index/clear-idle.t \
	%reldir%/bytes/checksums.t \
	%reldir%/bytes/seals.t \
	%reldir%/bytes/sums-forged.t \
	%reldir%/look/stats.t \
	%reldir%/look/stats-fold.t \
	%reldir%/index/counts.t \
	%reldir%/bytes/low-descriptors.t \
	%reldir%/index/read-only.t \
	%reldir%/index/balance.t \
	%reldir%/look/check-claims.t \
	%reldir%/look/hits-told.t \
	%reldir%/look/slow.t \
	%reldir%/look/check-memory.t \
	%reldir%/bytes/fetch-late.t \
	%reldir%/bytes/notes-fetched.t \
	%reldir%/index/rouse.t \
	%reldir%/bytes/claim-in-ram.t \
	%reldir%/bytes/names.t \
	%reldir%/bytes/errors.t \
	%reldir%/bytes/counts.t \
	%reldir%/bytes/sentences.t \
	%reldir%/tiers/later-structs.t \
	%reldir%/index/worker.t \
	%reldir%/bytes/create-fails.t \
	%reldir%/bytes/refused-items.t \
	%reldir%/look/rates.t \
	%reldir%/bytes/ram-memory.t \
	%reldir%/bytes/creators.t \
	%reldir%/bytes/sentences-bytes.t \
	%reldir%/bytes/pool-late.t \
	%reldir%/index/workers.t \
	%reldir%/index/spaces.t \
	%reldir%/index/moves-race.t \
	%reldir%/index/notes-race.t \
	%reldir%/bytes/copies-race.t \
	%reldir%/index/groups-race.t \
	%reldir%/index/aliases-race.t \
	%reldir%/bytes/readers.t \
	%reldir%/bytes/seats.t \
	%reldir%/bytes/dead-seats.t \
	%reldir%/index/waiting.t \
	%reldir%/bytes/threads.t \
	%reldir%/index/standby.t \
	%reldir%/bytes/worker-dies.t \
	%reldir%/index/owner-dies.t \
	%reldir%/index/returned-dies.t \
	%reldir%/tiers/die.t \
	%reldir%/bytes/forked.t \
	%reldir%/index/namespaces.t \
	%reldir%/index/fork-at-open.t \
	%reldir%/index/many-spilled.t \
	%reldir%/index/alias-stores.t \
	%reldir%/index/takeover-says.t \
	%reldir%/bytes/copy-dies.t \
	%reldir%/index/lost-peers.t \
	%reldir%/bytes/threads-die.t \
	%reldir%/index/stopped.t \
	%reldir%/bytes/signals.t \
	%reldir%/bytes/clocks.t \
	%reldir%/bytes/copies-end.t \
	%reldir%/bytes/map-turns.t \
	%reldir%/bytes/kill-points.t \
	%reldir%/index/root-stores.t \
	%reldir%/bytes/takeover.t \
	%reldir%/index/second-run.t \
	%reldir%/index/left-in-table.t \
	%reldir%/index/takeover-memory.t \
	%reldir%/index/serve-memory.t \
	%reldir%/index/left-in-records.t \
	%reldir%/index/left-in-seats.t \
	%reldir%/index/takeover-damage.t \
	%reldir%/bytes/full.t \
	%reldir%/index/notes-die.t \
	%reldir%/index/transfer-peers.t \
	%reldir%/index/hostile-peer.t \
	%reldir%/index/stray-stores.t \
	%reldir%/index/liars.t \
	%reldir%/index/stray-index.t \
	%reldir%/bytes/forged-files.t \
	%reldir%/index/hostile-at-random.t \
	%reldir%/bytes/device.t \
	%reldir%/bytes/ask-device.t \
	%reldir%/bytes/device-sections.t \
	%reldir%/bytes/device-mirrors.t \
	%reldir%/bytes/device-moves.t \
	%reldir%/bytes/copy-device.t \
	%reldir%/bytes/sums-device.t \
	%reldir%/bytes/fetch-device.t \
	%reldir%/bytes/transfers-die-device.t \
	%reldir%/kv/events.t \
	%reldir%/kv/replay.t \
	%reldir%/kv/lives.t \
	%reldir%/kv/slow.t \
	%reldir%/daemon/events-memory.t \
	%reldir%/kv/namespaces.t \
	%reldir%/tiers/late-put.t \
	%reldir%/tiers/redis.t

t_scripts = \
	%reldir%/repo/models.t \
	%reldir%/tools/replay-ends.t \
	%reldir%/daemon/metrics-http.t \
	%reldir%/daemon/health.t \
	%reldir%/python/lmcache-adapter.t \
	%reldir%/python/long-prompts.t \
	%reldir%/tools/stopped-writer.t \
	%reldir%/daemon/slow-scrapes.t \
	%reldir%/daemon/upgrade.t \
	%reldir%/repo/dist.t \
	%reldir%/repo/demo.t \
	%reldir%/daemon/alerts.t \
	%reldir%/daemon/all-dead.t \
	%reldir%/daemon/other-layout.t \
	%reldir%/repo/mutants.t \
	%reldir%/daemon/options.t \
	%reldir%/daemon/life.t \
	%reldir%/daemon/manager.t \
	%reldir%/daemon/reload.t \
	%reldir%/daemon/bounds.t \
	%reldir%/daemon/units.t \
	%reldir%/daemon/limits.t \
	%reldir%/daemon/full.t \
	%reldir%/daemon/exists.t \
	%reldir%/daemon/fits.t \
	%reldir%/daemon/mode-and-group.t \
	%reldir%/daemon/defaults.t \
	%reldir%/daemon/fails.t \
	%reldir%/tools/foreign-text.t \
	%reldir%/tools/width.t \
	%reldir%/daemon/memory.t \
	%reldir%/daemon/keep.t \
	%reldir%/daemon/keeper-waits.t \
	%reldir%/daemon/joins.t \
	%reldir%/daemon/roles.t \
	%reldir%/tools/inspect.t \
	%reldir%/tools/inspect-peers.t \
	%reldir%/tools/behind.t \
	%reldir%/tools/inspect-damage.t \
	%reldir%/tools/inspect-rm.t \
	%reldir%/tools/inspect-liars.t \
	%reldir%/tools/inspect-cost.t \
	%reldir%/daemon/descriptors.t \
	%reldir%/tools/verdicts.t \
	%reldir%/daemon/ahead.t \
	%reldir%/tools/replay-lru.t \
	%reldir%/tools/replay-result.t \
	%reldir%/tools/replay-trace.t \
	%reldir%/tools/inspect-change.t \
	%reldir%/tools/command.t \
	%reldir%/tools/hot.t \
	%reldir%/tools/ping.t \
	%reldir%/tools/set.t \
	%reldir%/tools/slow.t \
	%reldir%/tools/reserved.t \
	%reldir%/tools/release.t \
	%reldir%/daemon/disk.t \
	%reldir%/daemon/disk-aside.t \
	%reldir%/daemon/remote.t \
	%reldir%/tools/replay-workers.t \
	%reldir%/tools/interrupt.t \
	%reldir%/tools/replay-pools.t \
	%reldir%/tools/replay-pools-end.t \
	%reldir%/tools/replay-fetch.t \
	%reldir%/tools/replay-plot.t \
	%reldir%/tools/replay-disk.t \
	%reldir%/tools/replay-options.t \
	%reldir%/tools/replay-sticky.t \
	%reldir%/tools/replay-turns.t \
	%reldir%/tools/bench.t \
	%reldir%/tools/bench-ends.t \
	%reldir%/tools/inspect-watch.t \
	%reldir%/tools/inspect-top.t \
	%reldir%/daemon/says.t \
	%reldir%/tools/completions.t \
	%reldir%/kv/vllm-events.t \
	%reldir%/pages/structs.t \
	%reldir%/pages/reference.t \
	%reldir%/pages/readme.t \
	%reldir%/pages/commands.t \
	%reldir%/pages/engine-page.t \
	%reldir%/daemon/metrics.t \
	%reldir%/daemon/config.t \
	%reldir%/python/tiers.t \
	%reldir%/daemon/key-file.t \
	%reldir%/daemon/files.t \
	%reldir%/daemon/dashboard.t \
	%reldir%/pages/readme-tiers.t \
	%reldir%/pages/tier-pages.t \
	%reldir%/pages/containers.t \
	%reldir%/bytes/device-namespaces.t \
	%reldir%/pages/charges.t \
	%reldir%/pages/remote-page.t \
	%reldir%/python/module.t \
	%reldir%/python/wheel.t \
	%reldir%/python/errors.t \
	%reldir%/python/arguments.t \
	%reldir%/python/memory.t \
	%reldir%/python/transfers.t \
	%reldir%/python/threads.t \
	%reldir%/python/many.t \
	%reldir%/python/interrupt.t \
	%reldir%/python/look.t \
	%reldir%/python/leaks.t \
	%reldir%/python/readme.t \
	%reldir%/python/vllm-manager.t \
	%reldir%/python/vllm-worker.t \
	%reldir%/python/vllm-shares.t \
	%reldir%/python/vllm-register.t \
	%reldir%/python/vllm-gpcd.t \
	%reldir%/python/vllm-gpu.t \
	%reldir%/python/sglang-storage.t \
	%reldir%/python/vllm-coming.t \
	%reldir%/python/vllm-failures.t \
	%reldir%/python/store-below.t \
	%reldir%/python/vllm-below.t \
	%reldir%/python/vllm-figures.t \
	%reldir%/python/vllm-hints.t \
	%reldir%/python/vllm-loads.t \
	%reldir%/python/vllm-namespace.t \
	%reldir%/python/vllm-seen.t \
	%reldir%/python/vllm-step.t \
	%reldir%/python/vllm-trace.t \
	%reldir%/python/vllm-words.t \
	%reldir%/pages/man-examples.t \
	%reldir%/pages/man-lint.t \
	%reldir%/repo/abi.t \
	%reldir%/repo/exports.t \
	%reldir%/repo/includes.t \
	%reldir%/repo/format.t \
	%reldir%/repo/words.t \
	%reldir%/repo/headers.t \
	%reldir%/repo/index.t \
	%reldir%/kernels/spills.t \
	%reldir%/repo/heads.t \
	%reldir%/repo/bootstrap.t \
	%reldir%/repo/needs.t \
	%reldir%/repo/until-ok.t \
	%reldir%/repo/leaves-nothing.t \
	%reldir%/repo/barriers.t \
	%reldir%/pages/segment-page.t \
	%reldir%/pages/tools.t \
	%reldir%/repo/registered.t \
	%reldir%/pages/command-lines.t \
	%reldir%/repo/pkg-config.t \
	%reldir%/repo/packaging.t \
	%reldir%/pages/disk-page.t

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
	%reldir%/lib/patient.h \
	%reldir%/lib/counted.h \
	%reldir%/lib/looks.h \
	%reldir%/lib/ram_memory.h \
	%reldir%/lib/smaps.h \
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
	%reldir%/data/turns.jsonl \
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
	%reldir%/lib/thread_cpu.h \
	%reldir%/lib/tiers.h \
	%reldir%/lib/trees.h \
	%reldir%/lib/waits.h \
	%reldir%/lib/xfers.h

# What only a GPU has is tested where there is nvcc, and on a GPU.  Some see what the library
# asks of the runtime: the linker puts their functions in between.
t_cuda_programs = \
	%reldir%/bytes/bytes-device.t \
	%reldir%/bytes/cuda-writer-fails.t \
	%reldir%/bytes/cuda-peer.t \
	%reldir%/bytes/cuda-graph.t \
	%reldir%/bytes/cuda-workers.t \
	%reldir%/bytes/cuda-standby.t \
	%reldir%/bytes/cuda-worker-dies.t \
	%reldir%/bytes/cuda-busy.t \
	%reldir%/bytes/cuda-bytes-dies.t \
	%reldir%/bytes/cuda-killed.t \
	%reldir%/bytes/cuda-done-word.t \
	%reldir%/bytes/registering-cuda.t \
	%reldir%/bytes/unregistered-cuda.t
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
%canon_reldir%_bytes_bytes_device_t_LDADD = $(t_work_ldadd)
%canon_reldir%_bytes_cuda_writer_fails_t_LDFLAGS = $(t_held_ldflags)
%canon_reldir%_bytes_cuda_peer_t_LDFLAGS = $(t_held_ldflags)
%canon_reldir%_bytes_cuda_peer_t_LDADD = $(t_work_ldadd)
%canon_reldir%_bytes_cuda_workers_t_LDADD = $(t_work_ldadd)
%canon_reldir%_bytes_cuda_standby_t_LDADD = $(t_work_ldadd)
%canon_reldir%_bytes_cuda_worker_dies_t_LDADD = $(t_work_ldadd)
%canon_reldir%_bytes_cuda_bytes_dies_t_LDADD = $(t_work_ldadd)
%canon_reldir%_bytes_cuda_done_word_t_LDADD = $(t_work_ldadd)
%canon_reldir%_bytes_cuda_killed_t_LDADD = $(t_work_ldadd)
%canon_reldir%_bytes_cuda_busy_t_LDFLAGS = $(t_held_ldflags)
%canon_reldir%_bytes_unregistered_cuda_t_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=cudaHostRegister
%canon_reldir%_bytes_registering_cuda_t_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=cudaHostRegister
%canon_reldir%_bytes_cuda_busy_t_LDADD = $(t_work_ldadd)
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
	%reldir%/model/alone.pml \
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
%canon_reldir%_kv_wire_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
%canon_reldir%_kv_wire_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_kv_wire_t_SOURCES = %reldir%/kv/wire.c
# a client of Redis, where there is one; without it they say that they are skipped
if HAVE_HIREDIS
%canon_reldir%_tiers_late_put_t_CPPFLAGS = $(AM_CPPFLAGS) $(HIREDIS_CFLAGS) -DHAVE_HIREDIS
%canon_reldir%_tiers_late_put_t_LDADD = $(LDADD) $(HIREDIS_LIBS)
%canon_reldir%_tiers_redis_t_CPPFLAGS = $(AM_CPPFLAGS) $(HIREDIS_CFLAGS) -DHAVE_HIREDIS
%canon_reldir%_tiers_redis_t_LDADD = $(LDADD) $(HIREDIS_LIBS)
endif
if HAVE_EVENTS
%canon_reldir%_kv_wire_t_SOURCES += tools/daemon/events/wire.c tools/daemon/events/words.c
endif
%canon_reldir%_tools_hot_table_t_SOURCES = %reldir%/tools/hot-table.c \
	tools/inspect/hot_table.c
%canon_reldir%_tools_top_layout_t_SOURCES = %reldir%/tools/top-layout.c \
	tools/common/shown.c tools/inspect/sample.c tools/inspect/top/alerts.c \
	tools/inspect/top/layout.c tools/inspect/top/lines.c tools/inspect/top/tiers.c \
	tools/inspect/top/parts.c
%canon_reldir%_tools_top_layout_t_LDADD =
%canon_reldir%_kv_told_t_SOURCES = %reldir%/kv/told.c
%canon_reldir%_kv_told_t_LDADD =
if HAVE_EVENTS
%canon_reldir%_kv_told_t_SOURCES += tools/daemon/events/told.c
endif
%canon_reldir%_kv_events_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_kv_events_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_kv_replay_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_kv_replay_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_kv_lives_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_kv_lives_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_kv_slow_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_kv_slow_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_daemon_events_strangers_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_daemon_events_strangers_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_daemon_events_memory_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_daemon_events_memory_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_kv_namespaces_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_kv_namespaces_t_LDADD = $(LDADD) $(EVENTS_LIBS)
%canon_reldir%_kv_attacks_t_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_kv_attacks_t_LDADD = $(LDADD) $(EVENTS_LIBS)
# the tables of others; nothing of ours
%canon_reldir%_tools_bench_peers_t_LDADD = tools/libbench-peers.la
# the disk fails, is short, is interrupted, or kills who uses it
%canon_reldir%_tiers_disk_faults_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store
%canon_reldir%_tiers_disk_power_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store
%canon_reldir%_tiers_disk_kills_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store
# transfers and syncs that stop at a gate
%canon_reldir%_tiers_disk_queue_t_LDFLAGS = -Wl,--wrap=io_read_image,--wrap=io_write_image
# no sync
%canon_reldir%_tiers_disk_scan_t_LDFLAGS = -Wl,--wrap=fdatasync
# clocks that jump, other boots
%canon_reldir%_tiers_disk_clock_t_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=fd_peek
# one in between looks at the files
%canon_reldir%_index_segment_names_t_LDFLAGS = -Wl,--wrap=rename
# a write or a read of the disk waits until the test lets it go on; no sync
%canon_reldir%_tiers_durable_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync
# no sync
%canon_reldir%_tiers_refused_t_LDFLAGS = -Wl,--wrap=fdatasync,--wrap=gpc_pool_make
# there is no memory for a thread; another steward has the lock at once
%canon_reldir%_tiers_both_t_LDFLAGS = -Wl,--wrap=malloc,--wrap=lock_drop
# the feed stands still, or is overwritten; a publish is answered late
%canon_reldir%_tiers_feed_t_LDFLAGS = -Wl,--wrap=gpc_event_read,--wrap=publish_copies,--wrap=gpc_evict
# blocks are older than they are
%canon_reldir%_tiers_down_and_up_t_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=gpc_reclaim
# a plugin that does not return is lost sooner; rounds of its thread are counted
%canon_reldir%_tiers_store_lost_t_LDFLAGS = -Wl,--wrap=remote_open,--wrap=store_lanes_look,--wrap=remote_tick
# where an image is read into
%canon_reldir%_look_stats_fold_t_LDFLAGS = -Wl,--wrap=segment_peer_alive
%canon_reldir%_tiers_straight_t_LDFLAGS = -Wl,--wrap=preadv
# nothing can be removed from a store, and writes stand still
%canon_reldir%_tiers_remote_kept_t_LDFLAGS = -Wl,--wrap=remote_remove,--wrap=remote_put
%canon_reldir%_tiers_remote_refuses_t_LDFLAGS = -Wl,--wrap=remote_remove,--wrap=remote_put,--wrap=gone_add,--wrap=slots_take,--wrap=slots_live
%canon_reldir%_tiers_redis_names_t_LDFLAGS = -rdynamic
# what was found at the start is not published yet
%canon_reldir%_tiers_drops_t_LDFLAGS = -Wl,--wrap=publish_copies,--wrap=drops_missed,--wrap=drops_carry_out
# a steward that stands still as it looks
%canon_reldir%_tiers_gaps_t_LDFLAGS = -Wl,--wrap=gpc_lookup,--wrap=retire_subtree,--wrap=drops_carry_out
# a disk that fails for a while
%canon_reldir%_tiers_rest_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store
# a place of the disk fails
%canon_reldir%_tiers_full_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store
# each step of a start fails
%canon_reldir%_tiers_resize_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync \
	-Wl,--wrap=posix_fallocate,--wrap=ftruncate,--wrap=io_store,--wrap=pthread_create,--wrap=disk_scan \
	-Wl,--wrap=queue_start,--wrap=feed_begin,--wrap=uses_new
# the writer dies at each store of a drop
%canon_reldir%_tiers_drop_dies_t_LDFLAGS = -Wl,--wrap=segment_map_writer
# a caller sleeps through the death of a steward
%canon_reldir%_tiers_life_t_LDFLAGS = -Wl,--wrap=futex_wait,--wrap=plan_ram
# the steward of a tier dies at each of these
%canon_reldir%_tiers_die_t_LDFLAGS = -Wl,--wrap=preadv,--wrap=pwritev,--wrap=fdatasync,--wrap=publish_copies
# files of the kernel are those of the test
%canon_reldir%_index_control_groups_t_LDFLAGS = -Wl,--wrap=fd_peek
# the system gives fewer threads than are asked for
%canon_reldir%_index_team_t_LDFLAGS = -Wl,--wrap=pthread_create
%canon_reldir%_index_worker_t_LDFLAGS = -Wl,--wrap=pthread_create
# its maker dies at each of these, and a sweeper comes before the lock
%canon_reldir%_bytes_memory_ranges_t_LDFLAGS = -Wl,--wrap=fchmod
%canon_reldir%_bytes_memory_sweep_t_LDFLAGS = -Wl,--wrap=fchmod,--wrap=ftruncate \
	-Wl,--wrap=posix_fallocate,--wrap=lock_try,--wrap=lock_share,--wrap=madvise \
	-Wl,--wrap=memory_store_part
# a creator dies at each of these
%canon_reldir%_bytes_creators_t_LDFLAGS = -Wl,--wrap=fchmod,--wrap=ftruncate \
	-Wl,--wrap=posix_fallocate,--wrap=lock_try,--wrap=lock_share,--wrap=lock_drop \
	-Wl,--wrap=rename,--wrap=segment_map_writer
%canon_reldir%_bytes_ram_memory_t_LDADD = $(LDADD) $(NUMA_LIBS)
%canon_reldir%_bytes_ram_memory_t_LDFLAGS = \
	-Wl,--wrap=madvise,--wrap=parallel_processors,--wrap=parallel_run,--wrap=segment_processors
# a call is withdrawn while its command runs
%canon_reldir%_tiers_two_ways_t_LDFLAGS = -Wl,--wrap=grant_has_quota
# the writer stops between two rounds, and a commit waits for a bucket
%canon_reldir%_index_late_answers_t_LDFLAGS = -Wl,--wrap=retire_advance,--wrap=move_commit_target
# a maker stops until others have looked for its pool
%canon_reldir%_bytes_once_threads_t_LDFLAGS = -Wl,--wrap=memory_make,--wrap=once_find
# the writer stops behind a grant
%canon_reldir%_bytes_stopped_writer_t_LDFLAGS = -Wl,--wrap=grant_mark
# ... and when a batch is to be published
%canon_reldir%_tiers_comes_back_t_LDFLAGS = -Wl,--wrap=remote_remove
%canon_reldir%_tiers_stopped_writer_t_LDFLAGS = -Wl,--wrap=publish_copies
# a steward stands still, and has no memory
%canon_reldir%_tiers_follow_t_LDFLAGS = -Wl,--wrap=publish_copies,--wrap=drops_carry_out,--wrap=numbers_add,--wrap=dropped_since
%canon_reldir%_tiers_lost_since_t_LDFLAGS = -Wl,--wrap=gpc_drop
%canon_reldir%_tiers_copied_meanwhile_t_LDFLAGS = -Wl,--wrap=drops_carry_out
# threads of the steward hang
%canon_reldir%_bytes_stopped_steward_t_LDFLAGS = -Wl,--wrap=slots_find
# a section ends in the middle of a pass
%canon_reldir%_tiers_back_late_t_LDFLAGS = -Wl,--wrap=grant_sweep
# housekeeping is left out
%canon_reldir%_index_parked_t_LDFLAGS = -Wl,--wrap=parked_housekeep
# what is given at once is counted
%canon_reldir%_index_left_over_t_LDFLAGS = -Wl,--wrap=grant_now
# looks at the seats are counted
%canon_reldir%_index_waited_victim_t_LDFLAGS = -Wl,--wrap=reap_dead
# waits for answers are counted
%canon_reldir%_index_no_writer_t_LDFLAGS = -Wl,--wrap=futex_wait
# a device of the test in place of the host's
%canon_reldir%_bytes_pin_refused_t_LDFLAGS = -Wl,--wrap=driver_of
# and a lock that somebody waits for
%canon_reldir%_bytes_pin_meanwhile_t_LDFLAGS = -Wl,--wrap=driver_of,--wrap=pthread_mutex_lock
# huge pages are counted
%canon_reldir%_bytes_short_record_t_LDFLAGS = -Wl,--wrap=huge_bytes
# a thread that finds no section gives others the processor
%canon_reldir%_index_many_threads_t_LDFLAGS = -Wl,--wrap=sched_yield
# a reference is taken in the middle of an eviction
%canon_reldir%_tiers_held_late_t_LDFLAGS = -Wl,--wrap=meter_evicted
# a gate between finding a block and taking the reference
%canon_reldir%_index_moves_refs_t_LDFLAGS = -Wl,--wrap=refs_take
# one in between looks at what readers find
%canon_reldir%_index_one_step_t_LDFLAGS = -Wl,--wrap=retire_subtree
# a driver in between sees what the writer asks of a device
%canon_reldir%_bytes_mirror_order_t_LDFLAGS = -Wl,--wrap=driver_find
# no thread is joined twice
%canon_reldir%_bytes_copies_race_t_LDFLAGS = -Wl,--wrap=pthread_join
# who clears seats dies at any store, or waits in the middle
%canon_reldir%_bytes_fetch_late_t_LDFLAGS = -Wl,--wrap=ring_submit,--wrap=bring_ask
%canon_reldir%_bytes_dead_seats_t_LDFLAGS = -Wl,--wrap=segment_map_writer,--wrap=parallel_size \
	-Wl,--wrap=seat_count_dead
# sleeps have no limit there
%canon_reldir%_look_check_waits_t_LDFLAGS = -Wl,--wrap=segment_refresh,--wrap=clock_ns
%canon_reldir%_look_check_writer_t_LDFLAGS = -Wl,--wrap=move_switch,--wrap=segment_refresh
%canon_reldir%_index_wake_t_LDFLAGS = -Wl,--wrap=futex_wait,--wrap=clock_ns
# another thread forks when a file was just opened, mapped or locked
%canon_reldir%_index_fork_at_open_t_LDFLAGS = -Wl,--wrap=open,--wrap=mmap,--wrap=fcntl
# what tells others of a part fails, and a pool goes as soon as its maker has it
%canon_reldir%_bytes_map_refused_t_LDFLAGS = -Wl,--wrap=thread_start
%canon_reldir%_bytes_adopted_t_LDFLAGS = -Wl,--wrap=memory_store_part,--wrap=map_adopt
# the writer's mapping is replaced by one that the test sees stores to
%canon_reldir%_index_companion_stores_t_LDFLAGS = -Wl,--wrap=segment_map_writer \
	-Wl,--wrap=companion_may,--wrap=companion_end_life
%canon_reldir%_index_transfers_reaped_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_returned_dies_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_feed_each_store_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_takeover_says_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_bytes_memory_dies_t_LDFLAGS = -Wl,--wrap=segment_map_writer,--wrap=fd_open,--wrap=fd_close \
	-Wl,--wrap=lock_try,--wrap=lock_drop,--wrap=segment_map_ranges,--wrap=memory_store_part \
	-Wl,--wrap=ring_call,--wrap=posix_fallocate,--wrap=memory_made,--wrap=map_adopt
# looks at processes are counted
%canon_reldir%_index_lost_peers_t_LDFLAGS = -Wl,--wrap=identity_look,--wrap=identity_gone
# a thread is slow
%canon_reldir%_bytes_copies_end_t_LDFLAGS = -Wl,--wrap=host_copy_op
# a pool goes while it is mapped
%canon_reldir%_bytes_map_turns_t_LDFLAGS = -Wl,--wrap=memory_map_images
# a peer's mappings are watched, and its threads take the signals
%canon_reldir%_bytes_copy_stores_t_LDFLAGS = -Wl,--wrap=segment_map_ranges,--wrap=munmap \
	-Wl,--wrap=madvise,--wrap=pthread_sigmask,--wrap=fd_open,--wrap=fd_close \
	-Wl,--wrap=lock_try,--wrap=segment_remove_file
%canon_reldir%_bytes_transfer_stores_t_LDFLAGS = -Wl,--wrap=segment_map_ranges,--wrap=munmap \
	-Wl,--wrap=madvise,--wrap=pthread_sigmask
%canon_reldir%_bytes_kill_points_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_recall_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_stock_evict_dies_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_alias_stores_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_root_stores_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_fold_stores_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_window_stores_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_drops_die_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_each_store_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_promised_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_moves_die_t_LDFLAGS = -Wl,--wrap=segment_map_writer
%canon_reldir%_index_transfers_die_t_LDFLAGS = -Wl,--wrap=segment_map_writer
# as many threads as the test wants, however many processors there are
%canon_reldir%_index_takeover_large_t_LDFLAGS = -Wl,--wrap=parallel_size
%canon_reldir%_index_takeover_damage_t_LDFLAGS = -Wl,--wrap=parallel_size
# memory ends in threads, whose number is the test's
%canon_reldir%_index_takeover_memory_t_LDFLAGS = -Wl,--wrap=parallel_size,--wrap=parallel_run \
	-Wl,--wrap=calloc,--wrap=realloc,--wrap=malloc,--wrap=free,--wrap=mmap,--wrap=munmap
%canon_reldir%_index_serve_memory_t_LDFLAGS = -Wl,--wrap=calloc,--wrap=realloc,--wrap=malloc,--wrap=free
# signals undo what the kernel was asked for, and it does not know how to make pages
%canon_reldir%_bytes_signals_t_LDFLAGS = -Wl,--wrap=posix_fallocate,--wrap=madvise
# something happens before a command is sent
%canon_reldir%_bytes_pools_made_again_t_LDFLAGS = -Wl,--wrap=request_group_by
# a thread cannot be started
%canon_reldir%_bytes_order_t_LDFLAGS = -Wl,--wrap=pthread_create
%canon_reldir%_bytes_create_fails_t_LDFLAGS = -Wl,--wrap=pthread_create
# the time of day jumps
%canon_reldir%_bytes_clocks_t_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=gettimeofday,--wrap=time
# other file systems
%canon_reldir%_index_segment_damage_t_LDFLAGS = -Wl,--wrap=fstatfs
# the file system lies about what is free
%canon_reldir%_bytes_full_t_LDFLAGS = -Wl,--wrap=segment_free_space
EXTRA_DIST += $(t_support) $(t_models)

# ---- what the scripts that run the tools are helped by ----

t_helpers = \
	%reldir%/sh/clear \
	%reldir%/sh/cost \
	%reldir%/sh/crowd \
	%reldir%/sh/fill \
	%reldir%/sh/hold \
	%reldir%/sh/ill \
	%reldir%/sh/json \
	%reldir%/sh/lie \
	%reldir%/sh/node \
	%reldir%/sh/notify \
	%reldir%/sh/pair \
	%reldir%/sh/pty \
	%reldir%/sh/relayout \
	%reldir%/sh/spoil \
	%reldir%/sh/store \
	%reldir%/sh/uses \
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
	%reldir%/repo/abi \
	%reldir%/repo/heads \
	%reldir%/sh/driver \
	%reldir%/sh/index \
	%reldir%/sh/index.mk \
	%reldir%/sh/lru.sh \
	%reldir%/sh/replay-model.py \
	%reldir%/sh/metrics.sh \
	%reldir%/sh/needs \
	%reldir%/sh/of \
	%reldir%/sh/prom.py \
	%reldir%/sh/examples.sh \
	%reldir%/sh/python.sh \
	%reldir%/sh/tap.sh
%canon_reldir%_sh_clear_SOURCES = %reldir%/sh/clear.c
%canon_reldir%_sh_clear_LDADD = lib/libgpc.la
%canon_reldir%_sh_cost_SOURCES = %reldir%/sh/cost.c
%canon_reldir%_sh_cost_LDADD =
%canon_reldir%_sh_crowd_SOURCES = %reldir%/sh/crowd.c
%canon_reldir%_sh_crowd_LDADD = lib/libgpc.la
%canon_reldir%_sh_fill_SOURCES = %reldir%/sh/fill.c
%canon_reldir%_sh_fill_LDADD = lib/libgpc.la
%canon_reldir%_sh_hold_SOURCES = %reldir%/sh/hold.c
%canon_reldir%_sh_hold_LDADD = lib/libgpc.la
%canon_reldir%_sh_ill_SOURCES = %reldir%/sh/ill.c
%canon_reldir%_sh_pair_SOURCES = %reldir%/sh/pair.c
%canon_reldir%_sh_uses_SOURCES = %reldir%/sh/uses.c
%canon_reldir%_sh_uses_LDADD = lib/libgpc.la
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
$(torture_programs:.t=.o): CFLAGS = $(TORTURE_CFLAGS)
$(%canon_reldir%_fuzz_libgpc_fuzz_la_OBJECTS) $(%canon_reldir%_fuzz_disk_t_OBJECTS) \
$(%canon_reldir%_fuzz_ring_t_OBJECTS) $(%canon_reldir%_fuzz_segment_t_OBJECTS) \
$(%canon_reldir%_fuzz_tools_t_OBJECTS) $(%canon_reldir%_fuzz_trace_t_OBJECTS): CFLAGS = $(FUZZ_OPTIMIZE)
# Long ones first here and in each list, so that no processor is without work at the end.
t_all = $(torture_programs) $(fuzz_programs) $(t_scripts) $(t_programs)
TESTS = $(t_all)
TEST_EXTENSIONS = .t

# "make check" builds everything before the first test runs; "make check TESTS=..." builds what these
# tests need, which t/sh/needs knows.  configure.ac takes out automake's check-am, which builds all in
# any case.  check-TESTS would build the programs of all tests: it is told that there are none.
# all-am, and not all: that is a make of its own, which must not run beside this one.
# FILE=lib/index/table/lru.c: the tests of that source.
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

# make check-long [PART=NAME...] [SECONDS=N]: the parts are in t/README.md.
LONG_PARTS = models stores points waits copy drops grace kill prefix nested step instructions \
	successor transfer fuzz mutants
PART = $(LONG_PARTS)
EXTRA_DIST += %reldir%/sh/long
# Tests of t/index/ with an index and who looks at it, without the halls between.
index: lib/libgpc-index.la
	@$(MAKE) --no-print-directory -f Makefile -f $(srcdir)/%reldir%/sh/index.mk index-alone
.PHONY: index

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

prometheus_here = test -x prometheus/usr/bin/promtool || { rm -rf prometheus && mkdir prometheus && cd prometheus && \
	apt-get download prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb; }
check-metrics: all
	@$(prometheus_here)
	$(MAKE) check TESTS='%reldir%/daemon/metrics.t %reldir%/daemon/metrics-http.t %reldir%/daemon/dashboard.t \
		%reldir%/daemon/alerts.t'
.PHONY: check-metrics

# each alert in a real Prometheus; without one it says so, and ends with 77
EXTRA_DIST += %reldir%/sh/alerts.py
check-alerts: all %reldir%/sh/hold %reldir%/sh/ill %reldir%/sh/node
	@command -v prometheus >/dev/null || { $(prometheus_here); } || :
	@timeout -k 5 1800 $(PYTHON) $(srcdir)/%reldir%/sh/alerts.py '$(abs_top_srcdir)' '$(abs_top_builddir)'
.PHONY: check-alerts

# ---- on a GPU ----

# A folder that holds all that the tests on a GPU need, ready to run: it may be copied to where
# there is neither compiler nor library, and "make check-gpu" in it runs them there.  Here
# the same target runs them in place.
t_gpu_programs = \
	%reldir%/bytes/copy-dies.t \
	%reldir%/bytes/device.t \
	%reldir%/bytes/ask-device.t \
	%reldir%/bytes/device-sections.t \
	%reldir%/bytes/device-mirrors.t \
	%reldir%/bytes/device-moves.t \
	%reldir%/bytes/copy-device.t \
	%reldir%/bytes/sums-device.t \
	%reldir%/bytes/fetch-device.t \
	%reldir%/bytes/transfers-die-device.t \
	%reldir%/gpu/there \
	$(t_cuda_programs)

# Those that run the tools find them, and what else they need, in the same places as here.
t_gpu_scripts = \
	%reldir%/tools/replay-pools.t \
	%reldir%/tools/replay-pools-end.t \
	%reldir%/tools/replay-fetch.t \
	%reldir%/bytes/device-namespaces.t \
	%reldir%/python/vllm-gpu.t
t_gpu_tools = \
	tools/gpcd \
	tools/gpc-inspect \
	tools/gpc-replay \
	%reldir%/sh/clear \
	%reldir%/sh/hold \
	%reldir%/sh/json \
	%reldir%/sh/pair \
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
	$(MKDIR_P) $@/bench && cp $(bench_gpu_programs) %reldir%/bench/bench-ram$(EXEEXT) \
		%reldir%/bench/bench-fill$(EXEEXT) $@/bench
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
