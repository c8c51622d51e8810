# SPDX-License-Identifier: Apache-2.0
# Tests speak TAP.  A new one is one line here: t/NNN-topic.t in t_programs is compiled from
# t/NNN-topic.c against the library's internals, in t_scripts it is a shell script.

t_programs = \
	%reldir%/001-key.t \
	%reldir%/002-geometry.t \
	%reldir%/003-lockfile.t \
	%reldir%/004-segment.t \
	%reldir%/005-probe.t \
	%reldir%/006-segment-names.t \
	%reldir%/007-err-log.t \
	%reldir%/010-epoch.t \
	%reldir%/011-refs.t \
	%reldir%/012-lookup.t \
	%reldir%/020-feed-walk.t \
	%reldir%/021-check.t \
	%reldir%/022-device-host.t \
	%reldir%/100-seed.t \
	%reldir%/110-publish.t \
	%reldir%/111-ask.t \
	%reldir%/112-keys.t \
	%reldir%/120-reserve.t \
	%reldir%/121-wait.t \
	%reldir%/130-tier.t \
	%reldir%/131-moves.t \
	%reldir%/132-two-tier.t \
	%reldir%/133-limbo.t \
	%reldir%/134-chains-and-moves.t \
	%reldir%/140-lru.t \
	%reldir%/150-pools.t \
	%reldir%/151-clear.t \
	%reldir%/160-sections.t \
	%reldir%/161-feed.t \
	%reldir%/162-mirror.t \
	%reldir%/170-churn.t \
	%reldir%/171-table.t \
	%reldir%/190-names.t \
	%reldir%/191-errors.t \
	%reldir%/200-workers.t \
	%reldir%/210-spaces.t \
	%reldir%/220-readers.t \
	%reldir%/230-seats.t \
	%reldir%/250-threads.t \
	%reldir%/300-standby.t \
	%reldir%/310-worker-dies.t \
	%reldir%/320-keeper-dies.t \
	%reldir%/330-forked.t \
	%reldir%/340-stopped.t \
	%reldir%/350-kill-points.t \
	%reldir%/360-takeover.t \
	%reldir%/361-second-run.t \
	%reldir%/390-hostile-files.t \
	%reldir%/391-hostile-peer.t \
	%reldir%/392-stray-stores.t \
	%reldir%/500-device.t \
	%reldir%/501-ask-device.t

t_scripts = \
	%reldir%/800-gpcd-options.t \
	%reldir%/801-gpcd-life.t \
	%reldir%/802-gpcd-limits.t \
	%reldir%/810-inspect.t \
	%reldir%/811-inspect-peers.t \
	%reldir%/812-inspect-damage.t \
	%reldir%/813-inspect-rm.t \
	%reldir%/820-replay-lru.t \
	%reldir%/821-replay-result.t \
	%reldir%/822-replay-trace.t \
	%reldir%/830-replay-workers.t \
	%reldir%/831-replay-ends.t \
	%reldir%/860-reference.t \
	%reldir%/870-demo.t \
	%reldir%/910-man-examples.t \
	%reldir%/911-man-lint.t \
	%reldir%/912-exports.t \
	%reldir%/913-includes.t \
	%reldir%/914-barriers.t \
	%reldir%/915-segment-page.t \
	%reldir%/916-tool-pages.t \
	%reldir%/917-registered.t

t_support = \
	%reldir%/cache.h \
	%reldir%/churn.h \
	%reldir%/crew.h \
	%reldir%/data/make-trace.sh \
	%reldir%/data/small.jsonl \
	%reldir%/devices.h \
	%reldir%/fake.h \
	%reldir%/made.h \
	%reldir%/model.h \
	%reldir%/neighbour.h \
	%reldir%/scratch.h \
	%reldir%/stops.h \
	%reldir%/tap.h \
	%reldir%/tiers.h

check_PROGRAMS += $(t_programs)
dist_check_SCRIPTS += $(t_scripts)
LDADD = lib/libgpc-internal.la
# the writer's mapping is replaced by one that the test sees stores to
%canon_reldir%_350_kill_points_t_LDFLAGS = -Wl,--wrap=segment_map_writer
EXTRA_DIST += $(t_support)

# ---- what the scripts that run the tools are helped by ----

t_helpers = \
	%reldir%/sh/hold \
	%reldir%/sh/json \
	%reldir%/sh/notify

check_PROGRAMS += $(t_helpers)
EXTRA_DIST += %reldir%/sh/driver %reldir%/sh/tap.sh
%canon_reldir%_sh_hold_SOURCES = %reldir%/sh/hold.c
%canon_reldir%_sh_hold_LDADD = lib/libgpc.la
%canon_reldir%_sh_json_SOURCES = %reldir%/sh/json.c
%canon_reldir%_sh_json_LDADD = $(JANSSON_LIBS)
%canon_reldir%_sh_notify_SOURCES = %reldir%/sh/notify.c
%canon_reldir%_sh_notify_LDADD =

include %D%/torture/local.mk

TESTS = $(t_programs) $(torture_programs) $(t_scripts)
TEST_EXTENSIONS = .t
T_LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/%reldir%/sh/driver \
	$(top_srcdir)/build-aux/tap-driver.sh
# A test has its own watchdog; this one is for tests whose watchdog fails.
if HAVE_TIMEOUT
T_LOG_COMPILER = $(TIMEOUT) -k 5 300
endif

# What a test may rely on.  Alone, it looks for sources and objects around itself.
t_environment = \
	top_srcdir='$(abs_top_srcdir)' \
	top_builddir='$(abs_top_builddir)' \
	CC='$(CC)' \
	MANDOC='$(MANDOC)' \
	PATH="$(abs_top_builddir)/tools:$$PATH"
AM_TESTS_ENVIRONMENT = $(t_environment); \
	export top_srcdir top_builddir CC MANDOC PATH;

# The same under prove; PROVEFLAGS=--timer tells which tests are slow.
prove: all $(check_PROGRAMS)
	$(t_environment) $(PROVE) --exec '' $(PROVEFLAGS) \
		$(t_programs) $(addprefix $(srcdir)/,$(t_scripts))
.PHONY: prove
