# SPDX-License-Identifier: Apache-2.0
# Stores that several machines share, with what that needs: three redis-servers, network namespaces.

cluster_programs = %reldir%/redis.t %reldir%/tls.t %reldir%/ways.t
EXTRA_PROGRAMS += $(cluster_programs)
cluster_scripts = %reldir%/mooncake.t %reldir%/nodes.t
EXTRA_DIST += $(cluster_scripts)
t_cluster = $(cluster_programs) $(cluster_scripts)
%canon_reldir%_redis_t_SOURCES = %reldir%/redis.c
%canon_reldir%_tls_t_SOURCES = %reldir%/tls.c
%canon_reldir%_ways_t_SOURCES = %reldir%/ways.c
if HAVE_HIREDIS
%canon_reldir%_redis_t_CPPFLAGS = $(AM_CPPFLAGS) $(HIREDIS_CFLAGS) -DHAVE_HIREDIS
%canon_reldir%_redis_t_LDADD = $(LDADD) $(HIREDIS_LIBS)
%canon_reldir%_tls_t_CPPFLAGS = $(AM_CPPFLAGS) $(HIREDIS_CFLAGS) -DHAVE_HIREDIS
%canon_reldir%_tls_t_LDADD = $(LDADD) $(HIREDIS_LIBS)
%canon_reldir%_ways_t_CPPFLAGS = $(AM_CPPFLAGS) $(HIREDIS_CFLAGS) -DHAVE_HIREDIS
%canon_reldir%_ways_t_LDADD = $(LDADD) $(HIREDIS_LIBS)
endif

check-cluster: all
	$(MAKE) check TESTS='%reldir%/redis.t %reldir%/ways.t %reldir%/tls.t %reldir%/nodes.t %reldir%/mooncake.t'
.PHONY: check-cluster
