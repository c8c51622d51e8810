# SPDX-License-Identifier: Apache-2.0
# libgpc.so, and the same objects as a convenience library so that tests reach internals.

lib_index_sources = \
	%reldir%/index/base/base.h \
	%reldir%/index/base/clock.c \
	%reldir%/index/base/crc.c \
	%reldir%/index/base/crc.h \
	%reldir%/index/base/sums.c \
	%reldir%/index/base/sums.h \
	%reldir%/index/base/err.c \
	%reldir%/index/base/err.h \
	%reldir%/index/base/fd.c \
	%reldir%/index/base/fd.h \
	%reldir%/index/base/futex.c \
	%reldir%/index/base/wait.c \
	%reldir%/index/base/futex.h \
	%reldir%/index/base/key.c \
	%reldir%/index/base/key.h \
	%reldir%/index/base/lanes.c \
	%reldir%/index/base/lanes.h \
	%reldir%/index/base/lanes_run.h \
	%reldir%/index/base/log.c \
	%reldir%/index/base/log.h \
	%reldir%/index/base/many.c \
	%reldir%/index/base/order.h \
	%reldir%/index/base/parallel.c \
	%reldir%/index/base/parallel.h \
	%reldir%/index/base/sip.h \
	%reldir%/index/base/text.c \
	%reldir%/index/base/text.h \
	%reldir%/index/base/worker.c \
	%reldir%/index/base/worker.h \
	%reldir%/index/door/attach.c \
	%reldir%/index/door/serve.c \
	%reldir%/index/door/serve.h \
	%reldir%/index/peer/companion.c \
	%reldir%/index/peer/companion.h \
	%reldir%/index/peer/epoch.c \
	%reldir%/index/peer/epoch.h \
	%reldir%/index/peer/fork.c \
	%reldir%/index/peer/handle.c \
	%reldir%/index/peer/handle.h \
	%reldir%/index/peer/hold.c \
	%reldir%/index/peer/hold.h \
	%reldir%/index/peer/refs.c \
	%reldir%/index/peer/refs.h \
	%reldir%/index/peer/refuse.c \
	%reldir%/index/peer/refuse.h \
	%reldir%/index/peer/ring.c \
	%reldir%/index/peer/slow.c \
	%reldir%/index/peer/slow.h \
	%reldir%/index/peer/ring.h \
	%reldir%/index/peer/seat.c \
	%reldir%/index/peer/seat.h \
	%reldir%/index/peer/section.c \
	%reldir%/index/peer/wait_word.h \
	%reldir%/index/reader/alias.c \
	%reldir%/index/reader/call.c \
	%reldir%/index/reader/call.h \
	%reldir%/index/reader/events.c \
	%reldir%/index/reader/groups.c \
	%reldir%/index/reader/hits.c \
	%reldir%/index/reader/hits.h \
	%reldir%/index/reader/keys.c \
	%reldir%/index/reader/lookup.c \
	%reldir%/index/reader/match.c \
	%reldir%/index/reader/prefix.c \
	%reldir%/index/reader/prefix.h \
	%reldir%/index/reader/probe.c \
	%reldir%/index/reader/probe_table.h \
	%reldir%/index/reader/ref.c \
	%reldir%/index/reader/take.c \
	%reldir%/index/reader/take.h \
	%reldir%/index/request/alias.c \
	%reldir%/index/claim/claim.c \
	%reldir%/index/claim/claim_here.c \
	%reldir%/index/claim/claim_here.h \
	%reldir%/index/claim/claim_wait.c \
	%reldir%/index/request/dropped.c \
	%reldir%/index/request/setting.c \
	%reldir%/index/request/durable.c \
	%reldir%/index/request/evict.c \
	%reldir%/index/request/move.c \
	%reldir%/index/request/note.c \
	%reldir%/index/request/note.h \
	%reldir%/index/request/pool.c \
	%reldir%/index/request/publish.c \
	%reldir%/index/request/reclaim.c \
	%reldir%/index/request/rekey.c \
	%reldir%/index/request/release.c \
	%reldir%/index/request/request.h \
	%reldir%/index/request/reserve.c \
	%reldir%/index/request/returned.c \
	%reldir%/index/request/root.c \
	%reldir%/index/request/stock.c \
	%reldir%/index/request/stock.h \
	%reldir%/index/segment/beat.h \
	%reldir%/index/segment/blocks.h \
	%reldir%/index/segment/create.c \
	%reldir%/index/segment/dropped.c \
	%reldir%/index/segment/dropped.h \
	%reldir%/index/segment/descriptor.c \
	%reldir%/index/segment/descriptor.h \
	%reldir%/index/segment/settings.h \
	%reldir%/index/segment/files.h \
	%reldir%/index/segment/geometry.c \
	%reldir%/index/segment/geometry.h \
	%reldir%/index/segment/hooks.h \
	%reldir%/index/segment/lockfile.c \
	%reldir%/index/segment/lockfile.h \
	%reldir%/index/segment/memo.h \
	%reldir%/index/segment/meter.h \
	%reldir%/index/segment/note.c \
	%reldir%/index/segment/note.h \
	%reldir%/index/segment/once.c \
	%reldir%/index/segment/once.h \
	%reldir%/index/segment/pages.c \
	%reldir%/index/segment/peek.c \
	%reldir%/index/segment/peek.h \
	%reldir%/index/segment/redress.c \
	%reldir%/index/segment/remove.c \
	%reldir%/index/segment/root.c \
	%reldir%/index/segment/root.h \
	%reldir%/index/segment/seed.c \
	%reldir%/index/segment/segment.c \
	%reldir%/index/segment/segment.h \
	%reldir%/index/segment/shm.h \
	%reldir%/index/segment/shm_command.h \
	%reldir%/index/segment/shm_memo.h \
	%reldir%/index/segment/shm_memory.h \
	%reldir%/index/segment/shm_meter.h \
	%reldir%/index/segment/shm_tiers.h \
	%reldir%/index/segment/snapshot.c \
	%reldir%/index/segment/space.c \
	%reldir%/index/segment/stamps.h \
	%reldir%/index/segment/validate.c \
	%reldir%/index/table/dropped.c \
	%reldir%/index/table/dropped.h \
	%reldir%/index/table/events.c \
	%reldir%/index/table/events.h \
	%reldir%/index/table/grace.c \
	%reldir%/index/table/grace.h \
	%reldir%/index/table/holders.c \
	%reldir%/index/table/holders.h \
	%reldir%/index/table/leave.c \
	%reldir%/index/table/leave.h \
	%reldir%/index/table/lru.c \
	%reldir%/index/table/lru.h \
	%reldir%/index/table/memo.c \
	%reldir%/index/table/memo.h \
	%reldir%/index/table/alloc.c \
	%reldir%/index/table/alloc.h \
	%reldir%/index/table/meter.c \
	%reldir%/index/table/meter.h \
	%reldir%/index/table/mirror.c \
	%reldir%/index/table/mirror.h \
	%reldir%/index/table/parked.c \
	%reldir%/index/table/parked.h \
	%reldir%/index/table/pending.c \
	%reldir%/index/table/pending.h \
	%reldir%/index/table/queue.c \
	%reldir%/index/table/queue.h \
	%reldir%/index/table/record.c \
	%reldir%/index/table/record.h \
	%reldir%/index/table/state.h \
	%reldir%/index/table/table.c \
	%reldir%/index/table/table.h \
	%reldir%/index/table/tree.c \
	%reldir%/index/table/tree.h \
	%reldir%/index/table/uses.c \
	%reldir%/index/table/uses.h \
	%reldir%/index/takeover/live.c \
	%reldir%/index/takeover/open.c \
	%reldir%/index/takeover/open.h \
	%reldir%/index/takeover/others.c \
	%reldir%/index/takeover/say.c \
	%reldir%/index/takeover/table.c \
	%reldir%/index/takeover/takeover.c \
	%reldir%/index/takeover/takeover.h \
	%reldir%/index/takeover/tree.c \
	%reldir%/index/writer/claim.c \
	%reldir%/index/writer/claim.h \
	%reldir%/index/writer/command.c \
	%reldir%/index/writer/command.h \
	%reldir%/index/writer/commit.c \
	%reldir%/index/writer/commit.h \
	%reldir%/index/writer/drop.c \
	%reldir%/index/writer/drop.h \
	%reldir%/index/writer/grant.c \
	%reldir%/index/writer/grant.h \
	%reldir%/index/writer/grant_again.c \
	%reldir%/index/writer/grant_named.c \
	%reldir%/index/writer/grant_now.c \
	%reldir%/index/writer/grant_place.c \
	%reldir%/index/writer/grant_quota.c \
	%reldir%/index/writer/grant_source.c \
	%reldir%/index/writer/grants.c \
	%reldir%/index/writer/grants.h \
	%reldir%/index/writer/idle.c \
	%reldir%/index/writer/idle.h \
	%reldir%/index/writer/loop.c \
	%reldir%/index/writer/loop.h \
	%reldir%/index/writer/mirrors.c \
	%reldir%/index/writer/mirrors.h \
	%reldir%/index/writer/move.c \
	%reldir%/index/writer/move.h \
	%reldir%/index/writer/move_bind.c \
	%reldir%/index/writer/move_bind.h \
	%reldir%/index/writer/pool_memory.c \
	%reldir%/index/writer/pool_memory.h \
	%reldir%/index/writer/pools.c \
	%reldir%/index/writer/pools.h \
	%reldir%/index/writer/reap.c \
	%reldir%/index/writer/reap.h \
	%reldir%/index/writer/recall.c \
	%reldir%/index/writer/recall.h \
	%reldir%/index/writer/retire.c \
	%reldir%/index/writer/retire.h \
	%reldir%/index/writer/sweep.c \
	%reldir%/index/writer/sweep.h \
	%reldir%/index/writer/transfer.c \
	%reldir%/index/writer/transfer.h \
	%reldir%/index/writer/transfer_decide.c \
	%reldir%/index/writer/transfer_end.c \
	%reldir%/index/writer/transfers.h

lib_bytes_sources = \
	%reldir%/bytes/device/bytes.h \
	%reldir%/bytes/device/device.c \
	%reldir%/bytes/device/device.h \
	%reldir%/bytes/device/host.c \
	%reldir%/bytes/device/host.h \
	%reldir%/bytes/device/host_bytes.c \
	%reldir%/bytes/device/host_bytes.h \
	%reldir%/bytes/device/host_event.c \
	%reldir%/bytes/device/host_import.c \
	%reldir%/bytes/device/host_kernel.c \
	%reldir%/bytes/device/host_kernel.h \
	%reldir%/bytes/device/host_mirror.c \
	%reldir%/bytes/device/host_piece.c \
	%reldir%/bytes/device/host_piece.h \
	%reldir%/bytes/device/host_stream.c \
	%reldir%/bytes/device/host_stream.h \
	%reldir%/bytes/device/host_sum.c \
	%reldir%/bytes/memfile/create.c \
	%reldir%/bytes/memfile/draft.c \
	%reldir%/bytes/memfile/images.c \
	%reldir%/bytes/memfile/layout.c \
	%reldir%/bytes/memfile/make.c \
	%reldir%/bytes/memfile/memfile.h \
	%reldir%/bytes/memfile/open.c \
	%reldir%/bytes/memfile/pages.c \
	%reldir%/bytes/memfile/parts.h \
	%reldir%/bytes/memfile/remove.c \
	%reldir%/bytes/mapping/huge.c \
	%reldir%/bytes/mapping/lend.c \
	%reldir%/bytes/mapping/make.c \
	%reldir%/bytes/mapping/make.h \
	%reldir%/bytes/mapping/make_want.c \
	%reldir%/bytes/mapping/map.c \
	%reldir%/bytes/mapping/map.h \
	%reldir%/bytes/mapping/map_call.c \
	%reldir%/bytes/mapping/maps.c \
	%reldir%/bytes/mapping/maps.h \
	%reldir%/bytes/mapping/pin.c \
	%reldir%/bytes/mapping/sums.c \
	%reldir%/bytes/mapping/thread.c \
	%reldir%/bytes/mapping/who.c \
	%reldir%/bytes/mirror/dev.c \
	%reldir%/bytes/mirror/dev.h \
	%reldir%/bytes/mirror/offload.c \
	%reldir%/bytes/mirror/sync.c \
	%reldir%/bytes/mirror/view.c \
	%reldir%/bytes/mirror/view.h \
	%reldir%/bytes/payload/ask.c \
	%reldir%/bytes/payload/ask.h \
	%reldir%/bytes/payload/bring.c \
	%reldir%/bytes/payload/bring.h \
	%reldir%/bytes/payload/bring_copy.c \
	%reldir%/bytes/payload/copy.c \
	%reldir%/bytes/payload/enqueue.c \
	%reldir%/bytes/payload/fetch.c \
	%reldir%/bytes/payload/host.c \
	%reldir%/bytes/payload/mark.c \
	%reldir%/bytes/payload/order.c \
	%reldir%/bytes/payload/own_sums.c \
	%reldir%/bytes/payload/seals.c \
	%reldir%/bytes/payload/pair.c \
	%reldir%/bytes/payload/plan.c \
	%reldir%/bytes/payload/plan.h \
	%reldir%/bytes/payload/plan_run.c \
	%reldir%/bytes/payload/results.c \
	%reldir%/bytes/payload/spill.c \
	%reldir%/bytes/payload/sum.c \
	%reldir%/bytes/payload/sum.h \
	%reldir%/bytes/payload/tear.c \
	%reldir%/bytes/payload/transfer.c \
	%reldir%/bytes/payload/transfer.h \
	%reldir%/bytes/payload/transfers.h \
	%reldir%/bytes/payload/wait.c

lib_tiers_sources = \
	%reldir%/tiers/disk/aside.c \
	%reldir%/tiers/disk/disk.h \
	%reldir%/tiers/disk/format.h \
	%reldir%/tiers/disk/io.c \
	%reldir%/tiers/disk/make.c \
	%reldir%/tiers/disk/open.c \
	%reldir%/tiers/disk/queue.c \
	%reldir%/tiers/disk/scan.c \
	%reldir%/tiers/disk/slot.c \
	%reldir%/tiers/disk/state.h \
	%reldir%/tiers/disk/super.c \
	%reldir%/tiers/remote/batch.c \
	%reldir%/tiers/remote/batch.h \
	%reldir%/tiers/remote/call.c \
	%reldir%/tiers/remote/image.c \
	%reldir%/tiers/remote/image.h \
	%reldir%/tiers/remote/lane.c \
	%reldir%/tiers/remote/lane.h \
	%reldir%/tiers/remote/options.c \
	%reldir%/tiers/remote/plugin.c \
	%reldir%/tiers/remote/reach.c \
	%reldir%/tiers/remote/remote.c \
	%reldir%/tiers/remote/remote.h \
	%reldir%/tiers/remote/store.h \
	%reldir%/tiers/steward/above.c \
	%reldir%/tiers/steward/above.h \
	%reldir%/tiers/steward/store_lanes.c \
	%reldir%/tiers/steward/store_lanes.h \
	%reldir%/tiers/steward/chains.h \
	%reldir%/tiers/steward/board.c \
	%reldir%/tiers/steward/disk.c \
	%reldir%/tiers/steward/down.c \
	%reldir%/tiers/steward/drops.c \
	%reldir%/tiers/steward/feed.c \
	%reldir%/tiers/steward/gone.c \
	%reldir%/tiers/steward/gone.h \
	%reldir%/tiers/steward/images.c \
	%reldir%/tiers/steward/kin.c \
	%reldir%/tiers/steward/kin.h \
	%reldir%/tiers/steward/learn.c \
	%reldir%/tiers/steward/notes.c \
	%reldir%/tiers/steward/open.c \
	%reldir%/tiers/steward/peek.c \
	%reldir%/tiers/steward/plan.c \
	%reldir%/tiers/steward/remote.c \
	%reldir%/tiers/steward/rest.c \
	%reldir%/tiers/steward/restore.c \
	%reldir%/tiers/steward/room.c \
	%reldir%/tiers/steward/slots.c \
	%reldir%/tiers/steward/steward.h \
	%reldir%/tiers/steward/tier.h \
	%reldir%/tiers/steward/up.c \
	%reldir%/tiers/steward/uses.c \
	%reldir%/tiers/steward/wanted.c

lib_look_sources = \
	%reldir%/look/check.c \
	%reldir%/look/check.h \
	%reldir%/look/check_claim.c \
	%reldir%/look/check_control.c \
	%reldir%/look/check_dropped.c \
	%reldir%/look/check_hold.c \
	%reldir%/look/check_memo.c \
	%reldir%/look/check_memory.c \
	%reldir%/look/check_pace.c \
	%reldir%/look/check_record.c \
	%reldir%/look/check_table.c \
	%reldir%/look/check_transfer.c \
	%reldir%/look/claims.c \
	%reldir%/look/slow.c \
	%reldir%/look/fold.h \
	%reldir%/look/inspect.c \
	%reldir%/look/inspect.h \
	%reldir%/look/meter.c \
	%reldir%/look/note.c \
	%reldir%/look/root.c \
	%reldir%/look/stats.c \
	%reldir%/look/tiers.c \
	%reldir%/look/transfers.c \
	%reldir%/look/walk.c

lib_gpc_sources = %reldir%/hooks.c \
	$(lib_index_sources) $(lib_bytes_sources) $(lib_tiers_sources) $(lib_look_sources)

cuda_sources = \
	%reldir%/bytes/device/cuda.c \
	%reldir%/bytes/device/cuda.h \
	%reldir%/bytes/device/cuda_bytes.c \
	%reldir%/bytes/device/cuda_copier.c \
	%reldir%/bytes/device/cuda_copy.c \
	%reldir%/bytes/device/cuda_sum.c \
	%reldir%/bytes/device/cuda_event.c \
	%reldir%/bytes/device/cuda_flush.c \
	%reldir%/bytes/device/cuda_memory.c \
	%reldir%/bytes/device/cuda_mirror.c \
	%reldir%/bytes/device/cuda_mirror.h \
	%reldir%/bytes/device/cuda_name.c \
	%reldir%/bytes/device/cuda_peer.c \
	%reldir%/bytes/device/cuda_pin.c \
	%reldir%/bytes/device/cuda_probe.c \
	%reldir%/bytes/device/cuda_query.c \
	%reldir%/bytes/device/cuda_thread.c

if HAVE_CUDA
lib_gpc_sources += $(cuda_sources)
AM_CPPFLAGS += $(CUDA_CPPFLAGS)
else
EXTRA_DIST += $(cuda_sources)
endif

include_HEADERS = %reldir%/gpc.h %reldir%/gpc_bytes.h %reldir%/gpc_device.h %reldir%/gpc_look.h \
	%reldir%/gpc_remote.h %reldir%/gpc_serve.h %reldir%/gpc_tiers.h

# where plugins of the remote tier are
AM_CPPFLAGS += -DPLUGIN_DIR='"$(pkglibdir)"'

noinst_LTLIBRARIES += %reldir%/libgpc-internal.la
%canon_reldir%_libgpc_internal_la_SOURCES = $(lib_gpc_sources)
%canon_reldir%_libgpc_internal_la_LIBADD = $(kernel_objects) $(URCU_LIBS) $(NUMA_LIBS) $(CUDA_LIBS)
%canon_reldir%_libgpc_internal_la_DEPENDENCIES = $(kernel_objects)

lib_LTLIBRARIES += %reldir%/libgpc.la
%canon_reldir%_libgpc_la_SOURCES =
# The index by itself: "make index".
EXTRA_LTLIBRARIES += %reldir%/libgpc-index.la
%canon_reldir%_libgpc_index_la_SOURCES = $(lib_index_sources) $(lib_look_sources) t/lib/alone.c
%canon_reldir%_libgpc_index_la_LIBADD = $(URCU_LIBS) $(NUMA_LIBS)

%canon_reldir%_libgpc_la_LIBADD = %reldir%/libgpc-internal.la
%canon_reldir%_libgpc_la_LDFLAGS = $(AM_LDFLAGS) $(GPC_LIB_LDFLAGS) \
	-version-info $(GPC_LT_VERSION) -no-undefined \
	-Wl,--version-script=$(top_srcdir)/%reldir%/libgpc.sym
EXTRA_%canon_reldir%_libgpc_la_DEPENDENCIES = $(top_srcdir)/%reldir%/libgpc.sym

EXTRA_DIST += %reldir%/abi.txt %reldir%/libgpc.sym

pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = %reldir%/libgpc.pc
