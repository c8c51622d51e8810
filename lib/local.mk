# SPDX-License-Identifier: Apache-2.0
# libgpc.so, and the same objects as a convenience library so that tests reach internals.

lib_gpc_sources = \
	%reldir%/ask.c \
	%reldir%/attach.c \
	%reldir%/base.h \
	%reldir%/changes.c \
	%reldir%/check.c \
	%reldir%/check.h \
	%reldir%/check_control.c \
	%reldir%/check_hold.c \
	%reldir%/check_record.c \
	%reldir%/check_table.c \
	%reldir%/clock.c \
	%reldir%/command.c \
	%reldir%/dev.c \
	%reldir%/dev.h \
	%reldir%/dev_ask.c \
	%reldir%/device.c \
	%reldir%/device.h \
	%reldir%/device_host.c \
	%reldir%/epoch.c \
	%reldir%/epoch.h \
	%reldir%/err.c \
	%reldir%/err.h \
	%reldir%/fd.c \
	%reldir%/fd.h \
	%reldir%/feed.c \
	%reldir%/fill.c \
	%reldir%/fill.h \
	%reldir%/fork.c \
	%reldir%/futex.c \
	%reldir%/futex.h \
	%reldir%/geometry.c \
	%reldir%/geometry.h \
	%reldir%/grant.c \
	%reldir%/grant_place.c \
	%reldir%/grant_source.c \
	%reldir%/handle.c \
	%reldir%/handle.h \
	%reldir%/hash.c \
	%reldir%/hold.c \
	%reldir%/import.c \
	%reldir%/import.h \
	%reldir%/kernel_host.c \
	%reldir%/kernel_host.h \
	%reldir%/key.c \
	%reldir%/key.h \
	%reldir%/leave.c \
	%reldir%/lockfile.c \
	%reldir%/lockfile.h \
	%reldir%/log.c \
	%reldir%/log.h \
	%reldir%/lookup.c \
	%reldir%/lookup.h \
	%reldir%/lru.c \
	%reldir%/mirror.c \
	%reldir%/move.c \
	%reldir%/order.h \
	%reldir%/outside.c \
	%reldir%/outside.h \
	%reldir%/pool.h \
	%reldir%/pool_api.c \
	%reldir%/pools.c \
	%reldir%/publish.c \
	%reldir%/queue.c \
	%reldir%/reap.c \
	%reldir%/recall.c \
	%reldir%/refs.c \
	%reldir%/refs.h \
	%reldir%/refuse.c \
	%reldir%/refuse.h \
	%reldir%/release.c \
	%reldir%/release.h \
	%reldir%/retire.c \
	%reldir%/returned.c \
	%reldir%/ring.c \
	%reldir%/ring.h \
	%reldir%/seat.c \
	%reldir%/seat.h \
	%reldir%/sections.c \
	%reldir%/segment.c \
	%reldir%/segment.h \
	%reldir%/segment_check.c \
	%reldir%/segment_create.c \
	%reldir%/segment_file.h \
	%reldir%/segment_pages.c \
	%reldir%/segment_pools.c \
	%reldir%/segment_remove.c \
	%reldir%/segment_snapshot.c \
	%reldir%/shm.h \
	%reldir%/stats.c \
	%reldir%/stream.c \
	%reldir%/stream.h \
	%reldir%/sync.c \
	%reldir%/table.c \
	%reldir%/takeover.c \
	%reldir%/takeover.h \
	%reldir%/takeover_other.c \
	%reldir%/takeover_say.c \
	%reldir%/takeover_scan.c \
	%reldir%/takeover_table.c \
	%reldir%/takeover_tree.c \
	%reldir%/team.c \
	%reldir%/team.h \
	%reldir%/text.c \
	%reldir%/text.h \
	%reldir%/tier.c \
	%reldir%/tree.c \
	%reldir%/walk.c \
	%reldir%/writer.c \
	%reldir%/writer.h \
	%reldir%/writer_seat.c \
	%reldir%/writer_seat.h

cuda_sources = \
	%reldir%/device_cuda.c \
	%reldir%/device_cuda.h \
	%reldir%/device_cuda_ask.c \
	%reldir%/device_cuda_mirror.c \
	%reldir%/device_cuda_peer.c

if HAVE_CUDA
lib_gpc_sources += $(cuda_sources)
AM_CPPFLAGS += $(CUDA_CPPFLAGS)
else
EXTRA_DIST += $(cuda_sources)
endif

include_HEADERS = %reldir%/gpc.h

noinst_LTLIBRARIES += %reldir%/libgpc-internal.la
%canon_reldir%_libgpc_internal_la_SOURCES = $(lib_gpc_sources)
%canon_reldir%_libgpc_internal_la_LIBADD = $(kernel_objects) $(URCU_LIBS) $(CUDA_LIBS)
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
