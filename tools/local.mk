# SPDX-License-Identifier: Apache-2.0
# The programs use the public header and the shared library alone, as any program may.

# What all of them have, and what those have that show values.
tool_sources = \
	%reldir%/common/cli.c \
	%reldir%/common/cli.h \
	%reldir%/common/shown.c \
	%reldir%/common/shown.h
show_sources = $(tool_sources) \
	%reldir%/common/output.c \
	%reldir%/common/output.h

# ---- gpcd: the writer of one cache ----

sbin_PROGRAMS += %reldir%/gpcd
%canon_reldir%_gpcd_SOURCES = $(tool_sources) \
	%reldir%/daemon/ahead.c \
	%reldir%/daemon/config.c \
	%reldir%/daemon/daemon.h \
	%reldir%/daemon/endpoint.c \
	%reldir%/daemon/keep.c \
	%reldir%/daemon/key.c \
	%reldir%/common/dress.c \
	%reldir%/common/dress.h \
	%reldir%/common/metrics.c \
	%reldir%/common/metrics.h \
	%reldir%/common/metrics_text.c \
	%reldir%/daemon/main.c \
	%reldir%/daemon/manager.c \
	%reldir%/daemon/name.c \
	%reldir%/daemon/options.c \
	%reldir%/daemon/options_check.c \
	%reldir%/daemon/patience.c \
	%reldir%/daemon/process.c \
	%reldir%/daemon/reload.c \
	%reldir%/daemon/say.c \
	%reldir%/daemon/slow.c \
	%reldir%/daemon/serve.c \
	%reldir%/daemon/tiers.c \
	%reldir%/daemon/tiers_options.c \
	%reldir%/daemon/state.c
%canon_reldir%_gpcd_LDADD = lib/libgpc.la $(EVENTS_LIBS) $(METRICS_LIBS) $(INIH_LIBS)
%canon_reldir%_gpcd_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS) $(METRICS_CFLAGS) $(INIH_CFLAGS)

# KV events want libzmq and msgpack-c.
events_sources = \
	%reldir%/daemon/events/accept.c \
	%reldir%/daemon/events/batch.c \
	%reldir%/daemon/events/events.h \
	%reldir%/daemon/events/publish.c \
	%reldir%/daemon/events/replay.c \
	%reldir%/daemon/events/socket.c \
	%reldir%/daemon/events/told.c \
	%reldir%/daemon/events/told.h \
	%reldir%/daemon/events/waiting.c \
	%reldir%/daemon/events/wire.c \
	%reldir%/daemon/events/wire.h \
	%reldir%/daemon/events/words.c \
	%reldir%/daemon/events/words.h
if HAVE_EVENTS
%canon_reldir%_gpcd_SOURCES += $(events_sources)
else
%canon_reldir%_gpcd_SOURCES += %reldir%/daemon/no_events.c
endif
EXTRA_DIST += $(events_sources) %reldir%/daemon/no_events.c

# Scrapes want libmicrohttpd.
if HAVE_METRICS
%canon_reldir%_gpcd_SOURCES += %reldir%/daemon/health.c %reldir%/daemon/http.c %reldir%/daemon/own.c
else
%canon_reldir%_gpcd_SOURCES += %reldir%/daemon/no_http.c
endif
EXTRA_DIST += %reldir%/daemon/health.c %reldir%/daemon/http.c %reldir%/daemon/own.c %reldir%/daemon/no_http.c

# ---- what Prometheus and Grafana read ----

dist_pkgdata_DATA = %reldir%/dashboard/gpc.json %reldir%/dashboard/gpc.rules.yml

# ---- the end of a cache, whatever version has made it ----

dist_pkgdata_SCRIPTS = %reldir%/daemon/gpc-drain

# ---- gpc-inspect: looks at caches from outside ----

bin_PROGRAMS += %reldir%/gpc-inspect
%canon_reldir%_gpc_inspect_SOURCES = $(show_sources) \
	%reldir%/inspect/admin.c \
	%reldir%/inspect/behind.c \
	%reldir%/inspect/change.c \
	%reldir%/inspect/check.c \
	%reldir%/inspect/command.c \
	%reldir%/inspect/hot.c \
	%reldir%/inspect/hot.h \
	%reldir%/inspect/slow.c \
	%reldir%/inspect/hot_table.c \
	%reldir%/inspect/inspect.h \
	%reldir%/inspect/list.c \
	%reldir%/inspect/ls.c \
	%reldir%/common/dress.c \
	%reldir%/common/dress.h \
	%reldir%/common/metrics.c \
	%reldir%/common/metrics.h \
	%reldir%/common/metrics_text.c \
	%reldir%/inspect/main.c \
	%reldir%/inspect/metrics.c \
	%reldir%/inspect/mirrors.c \
	%reldir%/inspect/peers.c \
	%reldir%/inspect/ping.c \
	%reldir%/inspect/rates.c \
	%reldir%/inspect/release.c \
	%reldir%/inspect/remains.c \
	%reldir%/inspect/sample.c \
	%reldir%/inspect/sample.h \
	%reldir%/inspect/sample_take.c \
	%reldir%/inspect/set.c \
	%reldir%/inspect/stat.c \
	%reldir%/inspect/state.c \
	%reldir%/inspect/tiers.c \
	%reldir%/inspect/waits.c \
	%reldir%/inspect/watch.c \
	%reldir%/inspect/top/alerts.c \
	%reldir%/inspect/top/layout.c \
	%reldir%/inspect/top/lines.c \
	%reldir%/inspect/top/tiers.c \
	%reldir%/inspect/top/parts.c \
	%reldir%/inspect/top/top.c \
	%reldir%/inspect/top/top.h
%canon_reldir%_gpc_inspect_LDADD = lib/libgpc.la $(JANSSON_LIBS) $(CURSES_LIBS) -lm
%canon_reldir%_gpc_inspect_CPPFLAGS = $(AM_CPPFLAGS) $(CURSES_CFLAGS)
if HAVE_CURSES
%canon_reldir%_gpc_inspect_SOURCES += %reldir%/inspect/top/screen.c
else
%canon_reldir%_gpc_inspect_SOURCES += %reldir%/inspect/top/no_screen.c
endif
EXTRA_DIST += %reldir%/inspect/top/screen.c %reldir%/inspect/top/no_screen.c

# ---- gpc-replay: a recorded trace, by many workers ----

bin_PROGRAMS += %reldir%/gpc-replay
%canon_reldir%_gpc_replay_SOURCES = $(show_sources) \
	%reldir%/replay/after.c \
	%reldir%/replay/cache.c \
	%reldir%/replay/child.c \
	%reldir%/replay/crew.c \
	%reldir%/replay/curve.c \
	%reldir%/replay/curve.h \
	%reldir%/replay/deal.c \
	%reldir%/replay/fetch.c \
	%reldir%/replay/image.c \
	%reldir%/replay/image.h \
	%reldir%/replay/kill.c \
	%reldir%/replay/known.c \
	%reldir%/replay/legal.c \
	%reldir%/replay/main.c \
	%reldir%/replay/moves.c \
	%reldir%/replay/options.c \
	%reldir%/replay/disk.c \
	%reldir%/replay/own.c \
	%reldir%/replay/payload.h \
	%reldir%/replay/payload_own.c \
	%reldir%/replay/payload_pool.c \
	%reldir%/replay/plot.c \
	%reldir%/replay/pools.c \
	%reldir%/replay/replay.h \
	%reldir%/replay/report.c \
	%reldir%/replay/request.c \
	%reldir%/replay/row.c \
	%reldir%/replay/session.c \
	%reldir%/replay/svg.c \
	%reldir%/replay/trace.c \
	%reldir%/replay/trace.h \
	%reldir%/replay/turns.c \
	%reldir%/replay/worker.c \
	%reldir%/replay/worker.h
%canon_reldir%_gpc_replay_LDADD = $(replay_kernels) lib/libgpc.la $(JANSSON_LIBS) -lm

# Its own use of a GPU: kernels that write and verify blocks, and the runtime for them.
replay_cuda_sources = %reldir%/replay/image_cuda.c
EXTRA_DIST += %reldir%/replay/image_kernels.cu
MOSTLYCLEANFILES = %reldir%/replay/image_kernels.o %reldir%/replay/image_kernels.lo \
	%reldir%/replay/image_kernels.d %reldir%/replay/.libs/image_kernels.o
if HAVE_CUDA
replay_kernels = %reldir%/replay/image_kernels.lo
%canon_reldir%_gpc_replay_SOURCES += $(replay_cuda_sources)
%canon_reldir%_gpc_replay_LDADD += $(CUDA_LIBS)
$(replay_kernels): $(top_srcdir)/%reldir%/replay/image.h
else
EXTRA_DIST += $(replay_cuda_sources)
endif

# ---- gpc-bench: what a cache costs ----

bin_PROGRAMS += %reldir%/gpc-bench
%canon_reldir%_gpc_bench_SOURCES = $(show_sources) \
	%reldir%/bench/bench.h \
	%reldir%/bench/beside.c \
	%reldir%/bench/beside.h \
	%reldir%/bench/beside_insert.c \
	%reldir%/bench/beside_lookup.c \
	%reldir%/bench/beside_python.c \
	%reldir%/bench/beside_start.c \
	%reldir%/bench/cache.c \
	%reldir%/bench/caller.c \
	%reldir%/bench/crew.c \
	%reldir%/bench/device.c \
	%reldir%/bench/evict.c \
	%reldir%/bench/floor.c \
	%reldir%/bench/hash.c \
	%reldir%/bench/idle.c \
	%reldir%/bench/insert.c \
	%reldir%/bench/limit.c \
	%reldir%/bench/lookup.c \
	%reldir%/bench/main.c \
	%reldir%/bench/match.c \
	%reldir%/bench/plot.c \
	%reldir%/bench/ref.c \
	%reldir%/bench/report.c \
	%reldir%/bench/ring.c \
	%reldir%/bench/rounds.c \
	%reldir%/bench/scale.c \
	%reldir%/bench/show.c \
	%reldir%/bench/writer.c
%canon_reldir%_gpc_bench_LDADD = %reldir%/libbench-peers.la lib/libgpc.la $(JANSSON_LIBS)

# ---- what gpc-bench compares with ----

# Each peer is one object, there when configure found what it needs.  C++ is linked as C, with
# its runtime in $(CXX_PEER_LIBS): so that a build without C++ is the same build.
noinst_LTLIBRARIES += %reldir%/libbench-peers.la
%canon_reldir%_libbench_peers_la_SOURCES = \
	%reldir%/bench/peer/memcached.c \
	%reldir%/bench/peer/peer.h \
	%reldir%/bench/peer/peers.c \
	%reldir%/bench/peer/python.c \
	%reldir%/bench/peer/redis.c \
	%reldir%/bench/peer/server.c \
	%reldir%/bench/peer/server.h \
	%reldir%/bench/peer/start.c
%canon_reldir%_libbench_peers_la_LIBADD = $(JANSSON_LIBS)

# a program of its own, as a string
nodist_%canon_reldir%_libbench_peers_la_SOURCES = %reldir%/bench-dict.c
EXTRA_DIST += %reldir%/bench/peer/dict.py
CLEANFILES += %reldir%/bench-dict.c
%reldir%/bench-dict.c: %reldir%/bench/peer/dict.py
	$(AM_V_GEN)$(MKDIR_P) %reldir% && { \
		echo 'extern const char bench_dict[];' && \
		echo 'const char bench_dict[] =' && \
		$(SED) -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' \
			$(srcdir)/%reldir%/bench/peer/dict.py && \
		echo ';'; \
	} >$@.tmp && mv $@.tmp $@

if HAVE_CK
%canon_reldir%_libbench_peers_la_SOURCES += %reldir%/bench/peer/ck.c
%canon_reldir%_libbench_peers_la_LIBADD += $(CK_LIBS)
endif
if HAVE_LFHT
%canon_reldir%_libbench_peers_la_SOURCES += %reldir%/bench/peer/lfht.c
%canon_reldir%_libbench_peers_la_LIBADD += $(LFHT_LIBS)
endif
if HAVE_LMDB
%canon_reldir%_libbench_peers_la_SOURCES += %reldir%/bench/peer/lmdb.c
%canon_reldir%_libbench_peers_la_LIBADD += $(LMDB_LIBS)
endif
if HAVE_CXX_PEERS
noinst_LTLIBRARIES += %reldir%/libbench-cxx.la
%canon_reldir%_libbench_cxx_la_SOURCES = %reldir%/bench/peer/unordered.cc
%canon_reldir%_libbench_cxx_la_CXXFLAGS = -std=gnu++17 -fvisibility=hidden
%canon_reldir%_libbench_peers_la_LIBADD += %reldir%/libbench-cxx.la $(CXX_PEER_LIBS)
endif

# ---- systemd units ----

units = %reldir%/gpcd@.service %reldir%/gpcd-standby@.service %reldir%/gpcd-keep@.service
EXTRA_DIST += %reldir%/daemon/gpcd@.service.in %reldir%/daemon/gpcd-standby@.service.in \
	%reldir%/daemon/gpcd-keep@.service.in
if HAVE_UNITDIR
nodist_systemdsystemunit_DATA = $(units)
CLEANFILES += $(units)
endif

make_unit = $(AM_V_GEN)$(MKDIR_P) %reldir% && \
	$(SED) -e 's|@sbindir[@]|$(sbindir)|g' $(srcdir)/tools/daemon/$(@F).in >$@.tmp && \
	mv $@.tmp $@
%reldir%/gpcd@.service: %reldir%/daemon/gpcd@.service.in
	$(make_unit)
%reldir%/gpcd-standby@.service: %reldir%/daemon/gpcd-standby@.service.in
	$(make_unit)
%reldir%/gpcd-keep@.service: %reldir%/daemon/gpcd-keep@.service.in
	$(make_unit)

# ---- completions of shells, from what --help says ----

EXTRA_DIST += %reldir%/completions/generate
if CAN_RUN
bashdir = $(datadir)/bash-completion/completions
nodist_bash_DATA = %reldir%/completions/bash/gpcd %reldir%/completions/bash/gpc-inspect \
	%reldir%/completions/bash/gpc-replay %reldir%/completions/bash/gpc-bench
zshdir = $(datadir)/zsh/site-functions
nodist_zsh_DATA = %reldir%/completions/zsh/_gpcd %reldir%/completions/zsh/_gpc-inspect \
	%reldir%/completions/zsh/_gpc-replay %reldir%/completions/zsh/_gpc-bench
fishdir = $(datadir)/fish/vendor_completions.d
nodist_fish_DATA = %reldir%/completions/fish/gpcd.fish %reldir%/completions/fish/gpc-inspect.fish \
	%reldir%/completions/fish/gpc-replay.fish %reldir%/completions/fish/gpc-bench.fish
$(nodist_bash_DATA) $(nodist_zsh_DATA) $(nodist_fish_DATA): %reldir%/completions/stamp
%reldir%/completions/stamp: %reldir%/completions/generate %reldir%/gpcd$(EXEEXT) \
		%reldir%/gpc-inspect$(EXEEXT) %reldir%/gpc-replay$(EXEEXT) %reldir%/gpc-bench$(EXEEXT)
	$(AM_V_GEN)cd %reldir% && $(MKDIR_P) completions/bash completions/zsh completions/fish && \
	for tool in gpcd gpc-inspect gpc-replay gpc-bench; do \
		./$$tool --help >completions/help && \
		for shell in bash:bash/$$tool zsh:zsh/_$$tool fish:fish/$$tool.fish; do \
			$(SHELL) $(abs_top_srcdir)/%reldir%/completions/generate $${shell%%:*} $$tool \
				<completions/help >completions/$${shell#*:} || exit 1; \
		done || exit 1; \
	done && rm -f completions/help && touch completions/stamp
CLEANFILES += $(nodist_bash_DATA) $(nodist_zsh_DATA) $(nodist_fish_DATA) %reldir%/completions/stamp
endif

# ---- make demo [TRACE=file] ----

EXTRA_DIST += %reldir%/demo.sh

demo: all
	@PATH="$(abs_top_builddir)/%reldir%:$$PATH" \
	TRACE="$${TRACE:-$(abs_top_srcdir)/t/data/small.jsonl}" \
	$(SHELL) $(srcdir)/%reldir%/demo.sh
.PHONY: demo
