# SPDX-License-Identifier: Apache-2.0
# Plugins of the remote tier, which gpcd loads by name: $(pkglibdir)/gpc_remote_NAME.so.

plugin_ldflags = $(AM_LDFLAGS) $(GPC_LIB_LDFLAGS) -module -avoid-version -shared \
	-export-symbols-regex '^gpc_remote_plugin$$'

pkglib_LTLIBRARIES += %reldir%/gpc_remote_folder.la
%canon_reldir%_gpc_remote_folder_la_SOURCES = %reldir%/folder.c
%canon_reldir%_gpc_remote_folder_la_LDFLAGS = $(plugin_ldflags)

redis_plugin_sources = \
	%reldir%/redis/batch.c \
	%reldir%/redis/conn.c \
	%reldir%/redis/fence.c \
	%reldir%/redis/names.c \
	%reldir%/redis/node.c \
	%reldir%/redis/options.c \
	%reldir%/redis/redis.c \
	%reldir%/redis/redis.h \
	%reldir%/redis/reply.c \
	%reldir%/redis/tick.c
EXTRA_DIST += $(redis_plugin_sources)
if HAVE_HIREDIS
pkglib_LTLIBRARIES += %reldir%/gpc_remote_redis.la
%canon_reldir%_gpc_remote_redis_la_SOURCES = $(redis_plugin_sources)
%canon_reldir%_gpc_remote_redis_la_CPPFLAGS = $(AM_CPPFLAGS) $(HIREDIS_CFLAGS)
%canon_reldir%_gpc_remote_redis_la_LDFLAGS = $(plugin_ldflags)
%canon_reldir%_gpc_remote_redis_la_LIBADD = $(HIREDIS_LIBS)
endif

EXTRA_DIST += %reldir%/mooncake.c
if HAVE_MOONCAKE
pkglib_LTLIBRARIES += %reldir%/gpc_remote_mooncake.la
%canon_reldir%_gpc_remote_mooncake_la_SOURCES = %reldir%/mooncake.c
%canon_reldir%_gpc_remote_mooncake_la_CPPFLAGS = $(AM_CPPFLAGS) $(MOONCAKE_CFLAGS)
%canon_reldir%_gpc_remote_mooncake_la_LDFLAGS = $(plugin_ldflags)
%canon_reldir%_gpc_remote_mooncake_la_LIBADD = $(MOONCAKE_LIBS)
endif
