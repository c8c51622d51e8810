# SPDX-License-Identifier: Apache-2.0
# "make bench" times what needs no GPU, in less than five minutes, and writes RESULTS.md.

EXTRA_PROGRAMS = %reldir%/bench-recovery
%canon_reldir%_bench_recovery_LDADD = lib/libgpc.la
%canon_reldir%_bench_recovery_SOURCES = %reldir%/bench-recovery.c %reldir%/times.h
# What planning a copy costs; run by hand.
EXTRA_PROGRAMS += %reldir%/bench-plan
%canon_reldir%_bench_plan_SOURCES = %reldir%/bench-plan.c
%canon_reldir%_bench_plan_LDADD = lib/libgpc-internal.la
# Copies from RAM to RAM, which no GPU takes part in.
EXTRA_PROGRAMS += %reldir%/bench-ram
%canon_reldir%_bench_ram_SOURCES = %reldir%/bench-ram.c %reldir%/bench-rows.c %reldir%/bench-rows.h
%canon_reldir%_bench_ram_LDADD = lib/libgpc-internal.la
# The memory of a pool, beside a bare program with as many threads; run by hand.
EXTRA_PROGRAMS += %reldir%/bench-fill
%canon_reldir%_bench_fill_SOURCES = %reldir%/bench-fill.c %reldir%/bench-rows.c %reldir%/bench-rows.h
%canon_reldir%_bench_fill_LDADD = lib/libgpc-internal.la
CLEANFILES += %reldir%/bench-fill$(EXEEXT)
# A disk file beside fio, and a scan of many headers; run by hand.
EXTRA_PROGRAMS += %reldir%/bench-disk
%canon_reldir%_bench_disk_SOURCES = %reldir%/bench-disk.c
%canon_reldir%_bench_disk_LDADD = lib/libgpc-internal.la
CLEANFILES += %reldir%/bench-disk$(EXEEXT)
# A cache with a tier on disk: its start, and what others notice of it; run by hand.
EXTRA_PROGRAMS += %reldir%/bench-tiers
%canon_reldir%_bench_tiers_SOURCES = %reldir%/bench-tiers.c %reldir%/times.h
%canon_reldir%_bench_tiers_LDADD = lib/libgpc.la
CLEANFILES += %reldir%/bench-tiers$(EXEEXT)
# Drops beside a full tier; run by hand.
EXTRA_PROGRAMS += %reldir%/bench-drops
%canon_reldir%_bench_drops_SOURCES = %reldir%/bench-drops.c
%canon_reldir%_bench_drops_LDADD = lib/libgpc-internal.la
CLEANFILES += %reldir%/bench-drops$(EXEEXT)
# A store in a Redis beside a plain loop; run by hand, with the path of the plugin.
if HAVE_HIREDIS
EXTRA_PROGRAMS += %reldir%/bench-remote
%canon_reldir%_bench_remote_SOURCES = %reldir%/bench-remote.c
%canon_reldir%_bench_remote_CPPFLAGS = $(AM_CPPFLAGS) $(HIREDIS_CFLAGS)
%canon_reldir%_bench_remote_LDADD = lib/libgpc-internal.la $(HIREDIS_LIBS)
CLEANFILES += %reldir%/bench-remote$(EXEEXT)
endif
EXTRA_DIST += %reldir%/bench-remote.c
# What KV events cost gpcd; run by hand.
EXTRA_PROGRAMS += %reldir%/bench-events
%canon_reldir%_bench_events_SOURCES = %reldir%/bench-events.c
%canon_reldir%_bench_events_CPPFLAGS = $(AM_CPPFLAGS) $(EVENTS_CFLAGS)
%canon_reldir%_bench_events_LDADD = lib/libgpc-internal.la $(EVENTS_LIBS)
CLEANFILES += %reldir%/bench-events$(EXEEXT)
CLEANFILES += %reldir%/bench-recovery$(EXEEXT) %reldir%/bench-plan$(EXEEXT) \
	%reldir%/bench-ram$(EXEEXT)

bench: %reldir%/bench-recovery$(EXEEXT) tools/gpc-bench$(EXEEXT)
	@BENCHFLAGS='$(BENCHFLAGS)' RECOVERYFLAGS='$(RECOVERYFLAGS)' \
		$(SHELL) $(srcdir)/%reldir%/results.sh '$(abs_top_srcdir)' '$(abs_top_builddir)'
.PHONY: bench

# The same for another machine, which needs a shell there and nothing else.
bench-folder: %reldir%/bench-recovery$(EXEEXT) tools/gpc-bench$(EXEEXT)
	rm -rf $@ && $(MKDIR_P) $@/lib $@/tools $@/%reldir%
	for p in tools/gpc-bench %reldir%/bench-recovery; do \
		hidden=$$(dirname $$p)/.libs/$$(basename $$p); \
		test -f $$hidden || hidden=$$p; \
		cp $$hidden $@/$$p || exit; \
	done
	cp lib/.libs/libgpc.so.[0-9] $@/lib
	$(STRIP) -g $@/tools/* $@/%reldir%/* $@/lib/* 2>/dev/null || :
	LD_LIBRARY_PATH=$$PWD/$@/lib ldd $@/tools/* $@/%reldir%/bench-recovery | \
		awk '$$3 ~ /^\// && $$1 !~ /^lib(c|m|dl|rt|pthread|cuda)\.so/ && $$1 !~ /^libgpc/ { print $$3 }' | \
		sort -u | \
		while read -r so; do cp "$$so" $@/lib || exit; done
	cp $(srcdir)/%reldir%/results.sh $@
	hash=$$(git -C $(srcdir) rev-parse --short HEAD 2>/dev/null) && echo "commit $$hash" >$@/commit || :
	printf '%s\n' '#!/bin/sh' 'cd "$$(dirname "$$0")" || exit' \
		'LD_LIBRARY_PATH=$$PWD/lib$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}' \
		'export LD_LIBRARY_PATH' 'exec sh ./results.sh "$$PWD" "$$PWD"' >$@/run
.PHONY: bench-folder

# What runs on a GPU and is timed: "make bench-gpu-programs" compiles it, on a machine that has
# nvcc and needs no GPU; "make bench-gpu" runs it too.  Nothing of it is part of all or check.

bench_gpu_sources = \
	%reldir%/bench-copy.c \
	%reldir%/bench-copy.h \
	%reldir%/bench-copy-lookups.c \
	%reldir%/bench-copy-pin.c \
	%reldir%/bench-copy-pools.c \
	%reldir%/bench-copy-step.c \
	%reldir%/bench-copy-table.c \
	%reldir%/bench-fetch.c \
	%reldir%/bench-fetch.h \
	%reldir%/bench-fetch-claims.c \
	%reldir%/bench-fetch-eight.c \
	%reldir%/bench-fetch-lookups.c \
	%reldir%/bench-fetch-pools.c \
	%reldir%/bench-fetch-rates.c \
	%reldir%/bench-gpu.cu \
	%reldir%/bench-sync.c \
	%reldir%/busy.cu \
	%reldir%/busy.h \
	%reldir%/checks.cuh \
	%reldir%/gpu.cuh \
	%reldir%/kernels-check.cu \
	%reldir%/queries.cuh \
	%reldir%/rows.cuh

EXTRA_DIST += $(bench_gpu_sources) %reldir%/NOTES.md %reldir%/RESULTS-GPU.md \
	%reldir%/RESULTS.md %reldir%/RESULTS-16.md %reldir%/results.sh

if HAVE_CUDA
EXTRA_PROGRAMS += %reldir%/bench-sync
%canon_reldir%_bench_sync_SOURCES = %reldir%/bench-sync.c %reldir%/busy.h
%canon_reldir%_bench_sync_LDADD = %reldir%/busy.lo lib/libgpc-internal.la
%canon_reldir%_bench_sync_DEPENDENCIES = %reldir%/busy.lo lib/libgpc-internal.la
%reldir%/busy.lo: %reldir%/busy.h

EXTRA_PROGRAMS += %reldir%/bench-copy
%canon_reldir%_bench_copy_SOURCES = %reldir%/bench-copy.c %reldir%/bench-copy.h \
	%reldir%/bench-copy-lookups.c %reldir%/bench-copy-pin.c %reldir%/bench-copy-pools.c \
	%reldir%/bench-copy-step.c %reldir%/bench-copy-table.c %reldir%/bench-rows.c \
	%reldir%/bench-rows.h %reldir%/busy.h
%canon_reldir%_bench_copy_LDADD = %reldir%/busy.lo lib/libgpc-internal.la
%canon_reldir%_bench_copy_DEPENDENCIES = %reldir%/busy.lo lib/libgpc-internal.la

EXTRA_PROGRAMS += %reldir%/bench-fetch
%canon_reldir%_bench_fetch_SOURCES = %reldir%/bench-fetch.c %reldir%/bench-fetch.h \
	%reldir%/bench-fetch-claims.c %reldir%/bench-fetch-eight.c %reldir%/bench-fetch-lookups.c \
	%reldir%/bench-fetch-pools.c %reldir%/bench-fetch-rates.c %reldir%/bench-rows.c \
	%reldir%/bench-rows.h
%canon_reldir%_bench_fetch_LDADD = lib/libgpc-internal.la

bench_gpu_nvcc_programs = %reldir%/bench-gpu %reldir%/kernels-check
bench_gpu_programs = $(bench_gpu_nvcc_programs) %reldir%/bench-sync$(EXEEXT) \
	%reldir%/bench-copy$(EXEEXT) %reldir%/bench-fetch$(EXEEXT)

# C++ with kernels: nvcc links it, with the library's own kernel objects.
$(bench_gpu_nvcc_programs): %reldir%/gpu.cuh $(kernel_objects)
	$(AM_V_NVCC)$(MKDIR_P) $(@D) && \
	$(NVCC) $(NVCCFLAGS) -std=c++17 $(NVCC_ARCHES) -I$(top_srcdir) -I$(top_srcdir)/kernels \
		-o $@ $(srcdir)/$@.cu $(kernel_objects:.lo=.o)
%reldir%/bench-gpu: %reldir%/bench-gpu.cu %reldir%/queries.cuh %reldir%/rows.cuh
%reldir%/kernels-check: %reldir%/kernels-check.cu %reldir%/checks.cuh

CLEANFILES += $(bench_gpu_programs) %reldir%/busy.d %reldir%/busy.lo %reldir%/busy.o

bench-gpu-programs: $(bench_gpu_programs) %reldir%/bench-ram$(EXEEXT) %reldir%/bench-fill$(EXEEXT)
bench-gpu: bench-gpu-programs
	%reldir%/kernels-check
	%reldir%/bench-gpu $(BENCHFLAGS)
	%reldir%/bench-sync $(BENCHFLAGS)
	%reldir%/bench-copy $(BENCHFLAGS)
	%reldir%/bench-copy --pin $(BENCHFLAGS)
	%reldir%/bench-fetch $(BENCHFLAGS)
	%reldir%/bench-ram $(BENCHFLAGS)
else
bench-gpu-programs bench-gpu:
	@echo "this build has no CUDA: see ./configure --help" >&2; exit 1
endif
.PHONY: bench-gpu-programs bench-gpu
