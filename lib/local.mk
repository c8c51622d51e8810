# SPDX-License-Identifier: Apache-2.0
# libgpc.so, and the same objects as a convenience library so that tests reach internals.

lib_gpc_sources = \
	%reldir%/attach.c \
	%reldir%/serve.c \
	%reldir%/serve.h \
	%reldir%/base/base.h \
	%reldir%/base/clock.c \
	%reldir%/base/crc.c \
	%reldir%/base/crc.h \
	%reldir%/base/err.c \
	%reldir%/base/err.h \
	%reldir%/base/fd.c \
	%reldir%/base/fd.h \
	%reldir%/base/futex.c \
	%reldir%/base/futex.h \
	%reldir%/base/key.c \
	%reldir%/base/key.h \
	%reldir%/base/lanes.c \
	%reldir%/base/lanes.h \
	%reldir%/base/lanes_run.h \
	%reldir%/base/log.c \
	%reldir%/base/log.h \
	%reldir%/base/many.c \
	%reldir%/base/order.h \
	%reldir%/base/parallel.c \
	%reldir%/base/parallel.h \
	%reldir%/base/sip.h \
	%reldir%/base/text.c \
	%reldir%/base/text.h \
	%reldir%/device/bytes.c \
	%reldir%/device/bytes.h \
	%reldir%/device/descriptor.c \
	%reldir%/device/descriptor.h \
	%reldir%/device/device.c \
	%reldir%/device/device.h \
	%reldir%/device/host.c \
	%reldir%/device/host.h \
	%reldir%/device/host_bytes.c \
	%reldir%/device/host_sum.c \
	%reldir%/device/host_bytes.h \
	%reldir%/device/host_event.c \
	%reldir%/device/host_import.c \
	%reldir%/device/host_kernel.c \
	%reldir%/device/host_kernel.h \
	%reldir%/device/host_mirror.c \
	%reldir%/device/host_piece.c \
	%reldir%/device/host_piece.h \
	%reldir%/device/host_stream.c \
	%reldir%/device/host_stream.h \
	%reldir%/disk/disk.h \
	%reldir%/disk/format.h \
	%reldir%/disk/io.c \
	%reldir%/disk/make.c \
	%reldir%/disk/open.c \
	%reldir%/disk/queue.c \
	%reldir%/disk/scan.c \
	%reldir%/disk/slot.c \
	%reldir%/disk/state.h \
	%reldir%/disk/super.c \
	%reldir%/inspect/check.c \
	%reldir%/inspect/check.h \
	%reldir%/inspect/check_alias.c \
	%reldir%/inspect/check_claim.c \
	%reldir%/inspect/check_control.c \
	%reldir%/inspect/check_hold.c \
	%reldir%/inspect/check_memory.c \
	%reldir%/inspect/check_record.c \
	%reldir%/inspect/check_root.c \
	%reldir%/inspect/check_table.c \
	%reldir%/inspect/check_transfer.c \
	%reldir%/inspect/claims.c \
	%reldir%/inspect/events.c \
	%reldir%/inspect/inspect.c \
	%reldir%/inspect/inspect.h \
	%reldir%/inspect/meter.c \
	%reldir%/inspect/note.c \
	%reldir%/inspect/root.c \
	%reldir%/inspect/stats.c \
	%reldir%/inspect/tiers.c \
	%reldir%/inspect/transfers.c \
	%reldir%/inspect/walk.c \
	%reldir%/memory/huge.c \
	%reldir%/memory/lend.c \
	%reldir%/memory/make.c \
	%reldir%/memory/make.h \
	%reldir%/memory/make_want.c \
	%reldir%/memory/map.c \
	%reldir%/memory/map_call.c \
	%reldir%/memory/map.h \
	%reldir%/memory/maps.c \
	%reldir%/memory/maps.h \
	%reldir%/memory/pin.c \
	%reldir%/memory/sums.c \
	%reldir%/memory/thread.c \
	%reldir%/payload/ask.c \
	%reldir%/payload/ask.h \
	%reldir%/payload/bring.c \
	%reldir%/payload/bring.h \
	%reldir%/payload/bring_copy.c \
	%reldir%/memory/who.c \
	%reldir%/payload/claim.c \
	%reldir%/payload/claim_here.c \
	%reldir%/payload/claim_wait.c \
	%reldir%/payload/claim_here.h \
	%reldir%/payload/copy.c \
	%reldir%/payload/enqueue.c \
	%reldir%/payload/fetch.c \
	%reldir%/payload/host.c \
	%reldir%/payload/mark.c \
	%reldir%/payload/order.c \
	%reldir%/payload/own_sums.c \
	%reldir%/payload/pair.c \
	%reldir%/payload/plan.c \
	%reldir%/payload/plan.h \
	%reldir%/payload/plan_run.c \
	%reldir%/payload/sum.c \
	%reldir%/payload/sum.h \
	%reldir%/payload/results.c \
	%reldir%/payload/spill.c \
	%reldir%/payload/tear.c \
	%reldir%/payload/transfer.c \
	%reldir%/payload/transfer.h \
	%reldir%/payload/transfers.h \
	%reldir%/payload/wait.c \
	%reldir%/peer/companion.c \
	%reldir%/peer/companion.h \
	%reldir%/peer/epoch.c \
	%reldir%/peer/epoch.h \
	%reldir%/peer/fork.c \
	%reldir%/peer/handle.c \
	%reldir%/peer/handle.h \
	%reldir%/peer/hold.c \
	%reldir%/peer/hold.h \
	%reldir%/peer/refs.c \
	%reldir%/peer/refs.h \
	%reldir%/peer/refuse.c \
	%reldir%/peer/refuse.h \
	%reldir%/peer/ring.c \
	%reldir%/peer/ring.h \
	%reldir%/peer/rouse.c \
	%reldir%/peer/rouse.h \
	%reldir%/peer/seat.c \
	%reldir%/peer/seat.h \
	%reldir%/peer/wait_word.h \
	%reldir%/peer/section.c \
	%reldir%/reader/alias.c \
	%reldir%/reader/call.c \
	%reldir%/reader/call.h \
	%reldir%/reader/dev.c \
	%reldir%/reader/dev.h \
	%reldir%/reader/groups.c \
	%reldir%/reader/hits.c \
	%reldir%/reader/hits.h \
	%reldir%/reader/keys.c \
	%reldir%/reader/lookup.c \
	%reldir%/reader/match.c \
	%reldir%/reader/offload.c \
	%reldir%/reader/prefix.c \
	%reldir%/reader/prefix.h \
	%reldir%/reader/probe.c \
	%reldir%/reader/probe_table.h \
	%reldir%/reader/ref.c \
	%reldir%/reader/take.c \
	%reldir%/reader/take.h \
	%reldir%/reader/view.c \
	%reldir%/reader/view.h \
	%reldir%/remote/batch.c \
	%reldir%/remote/batch.h \
	%reldir%/remote/image.c \
	%reldir%/remote/image.h \
	%reldir%/remote/options.c \
	%reldir%/remote/plugin.c \
	%reldir%/remote/reach.c \
	%reldir%/remote/remote.c \
	%reldir%/remote/remote.h \
	%reldir%/remote/store.h \
	%reldir%/request/alias.c \
	%reldir%/request/durable.c \
	%reldir%/request/evict.c \
	%reldir%/request/move.c \
	%reldir%/request/note.c \
	%reldir%/request/note.h \
	%reldir%/request/pool.c \
	%reldir%/request/publish.c \
	%reldir%/request/reclaim.c \
	%reldir%/request/rekey.c \
	%reldir%/request/release.c \
	%reldir%/request/request.h \
	%reldir%/request/reserve.c \
	%reldir%/request/returned.c \
	%reldir%/request/root.c \
	%reldir%/request/sync.c \
	%reldir%/segment/alias.c \
	%reldir%/segment/alias.h \
	%reldir%/segment/blocks.h \
	%reldir%/segment/create.c \
	%reldir%/segment/files.h \
	%reldir%/segment/geometry.c \
	%reldir%/segment/geometry.h \
	%reldir%/segment/lockfile.c \
	%reldir%/segment/lockfile.h \
	%reldir%/segment/memory.c \
	%reldir%/segment/memory.h \
	%reldir%/segment/memory_draft.c \
	%reldir%/segment/memory_file.h \
	%reldir%/segment/memory_layout.c \
	%reldir%/segment/memory_make.c \
	%reldir%/segment/memory_pages.c \
	%reldir%/segment/memory_remove.c \
	%reldir%/segment/note.c \
	%reldir%/segment/meter.h \
	%reldir%/segment/note.h \
	%reldir%/segment/pages.c \
	%reldir%/segment/once.c \
	%reldir%/segment/once.h \
	%reldir%/segment/peek.c \
	%reldir%/segment/peek.h \
	%reldir%/segment/remove.c \
	%reldir%/segment/root.c \
	%reldir%/segment/root.h \
	%reldir%/segment/seed.c \
	%reldir%/segment/segment.c \
	%reldir%/segment/segment.h \
	%reldir%/segment/shm.h \
	%reldir%/segment/shm_alias.h \
	%reldir%/segment/shm_memory.h \
	%reldir%/segment/shm_meter.h \
	%reldir%/segment/shm_root.h \
	%reldir%/segment/shm_tiers.h \
	%reldir%/segment/snapshot.c \
	%reldir%/segment/space.c \
	%reldir%/segment/validate.c \
	%reldir%/stage/desk.c \
	%reldir%/stage/disk.c \
	%reldir%/stage/down.c \
	%reldir%/stage/feed.c \
	%reldir%/stage/images.c \
	%reldir%/stage/learn.c \
	%reldir%/stage/open.c \
	%reldir%/stage/remote.c \
	%reldir%/stage/restore.c \
	%reldir%/stage/slots.c \
	%reldir%/stage/stage.h \
	%reldir%/stage/tier.h \
	%reldir%/stage/up.c \
	%reldir%/takeover/live.c \
	%reldir%/takeover/open.c \
	%reldir%/takeover/open.h \
	%reldir%/takeover/others.c \
	%reldir%/takeover/say.c \
	%reldir%/takeover/table.c \
	%reldir%/takeover/takeover.c \
	%reldir%/takeover/takeover.h \
	%reldir%/takeover/tree.c \
	%reldir%/writer/alias.c \
	%reldir%/writer/alias.h \
	%reldir%/writer/command.c \
	%reldir%/writer/command.h \
	%reldir%/writer/commit.c \
	%reldir%/writer/events.c \
	%reldir%/writer/events.h \
	%reldir%/writer/grace.c \
	%reldir%/writer/grace.h \
	%reldir%/writer/grant.c \
	%reldir%/writer/grant.h \
	%reldir%/writer/grant_again.c \
	%reldir%/writer/grant_named.c \
	%reldir%/writer/grant_place.c \
	%reldir%/writer/grant_quota.c \
	%reldir%/writer/grant_source.c \
	%reldir%/writer/idle.c \
	%reldir%/writer/idle.h \
	%reldir%/writer/leave.c \
	%reldir%/writer/leave.h \
	%reldir%/writer/loop.c \
	%reldir%/writer/loop.h \
	%reldir%/writer/lru.c \
	%reldir%/writer/lru.h \
	%reldir%/writer/memory.c \
	%reldir%/writer/memory.h \
	%reldir%/writer/meter.c \
	%reldir%/writer/meter.h \
	%reldir%/writer/mirror.c \
	%reldir%/writer/mirror.h \
	%reldir%/writer/move.c \
	%reldir%/writer/move.h \
	%reldir%/writer/pending.c \
	%reldir%/writer/pending.h \
	%reldir%/writer/pool_memory.c \
	%reldir%/writer/pool_memory.h \
	%reldir%/writer/pools.c \
	%reldir%/writer/pools.h \
	%reldir%/writer/queue.c \
	%reldir%/writer/queue.h \
	%reldir%/writer/reap.c \
	%reldir%/writer/reap.h \
	%reldir%/writer/recall.c \
	%reldir%/writer/recall.h \
	%reldir%/writer/record.c \
	%reldir%/writer/record.h \
	%reldir%/writer/retire.c \
	%reldir%/writer/retire.h \
	%reldir%/writer/root.c \
	%reldir%/writer/root.h \
	%reldir%/writer/state.h \
	%reldir%/writer/sweep.c \
	%reldir%/writer/sweep.h \
	%reldir%/writer/table.c \
	%reldir%/writer/table.h \
	%reldir%/writer/transfer.c \
	%reldir%/writer/transfer.h \
	%reldir%/writer/transfer_decide.c \
	%reldir%/writer/transfer_end.c \
	%reldir%/writer/transfers.h \
	%reldir%/writer/tree.c \
	%reldir%/writer/tree.h

cuda_sources = \
	%reldir%/device/cuda.c \
	%reldir%/device/cuda.h \
	%reldir%/device/cuda_bytes.c \
	%reldir%/device/cuda_copier.c \
	%reldir%/device/cuda_copy.c \
	%reldir%/device/cuda_sum.c \
	%reldir%/device/cuda_event.c \
	%reldir%/device/cuda_flush.c \
	%reldir%/device/cuda_memory.c \
	%reldir%/device/cuda_mirror.c \
	%reldir%/device/cuda_mirror.h \
	%reldir%/device/cuda_name.c \
	%reldir%/device/cuda_peer.c \
	%reldir%/device/cuda_pin.c \
	%reldir%/device/cuda_probe.c \
	%reldir%/device/cuda_query.c \
	%reldir%/device/cuda_thread.c

if HAVE_CUDA
lib_gpc_sources += $(cuda_sources)
AM_CPPFLAGS += $(CUDA_CPPFLAGS)
else
EXTRA_DIST += $(cuda_sources)
endif

include_HEADERS = %reldir%/gpc.h %reldir%/gpc_remote.h

# where plugins of the remote tier are
AM_CPPFLAGS += -DPLUGIN_DIR='"$(pkglibdir)"'

noinst_LTLIBRARIES += %reldir%/libgpc-internal.la
%canon_reldir%_libgpc_internal_la_SOURCES = $(lib_gpc_sources)
%canon_reldir%_libgpc_internal_la_LIBADD = $(kernel_objects) $(URCU_LIBS) $(NUMA_LIBS) $(CUDA_LIBS)
%canon_reldir%_libgpc_internal_la_DEPENDENCIES = $(kernel_objects)

lib_LTLIBRARIES += %reldir%/libgpc.la
%canon_reldir%_libgpc_la_SOURCES =
%canon_reldir%_libgpc_la_LIBADD = %reldir%/libgpc-internal.la
%canon_reldir%_libgpc_la_LDFLAGS = $(AM_LDFLAGS) $(GPC_LIB_LDFLAGS) \
	-version-info $(GPC_LT_VERSION) -no-undefined \
	-Wl,--version-script=$(top_srcdir)/%reldir%/libgpc.sym
EXTRA_%canon_reldir%_libgpc_la_DEPENDENCIES = $(top_srcdir)/%reldir%/libgpc.sym

EXTRA_DIST += %reldir%/libgpc.sym

pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = %reldir%/libgpc.pc
