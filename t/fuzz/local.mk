# SPDX-License-Identifier: Apache-2.0
# Harnesses for hostile bytes: README.md says what each one covers.  As programs they draw inputs
# by chance, and are tests; "make fuzz" builds them for libFuzzer.

fuzz_programs = \
	%reldir%/disk.t \
	%reldir%/ring.t \
	%reldir%/segment.t \
	%reldir%/tools.t \
	%reldir%/trace.t

fuzz_support = \
	%reldir%/README.md \
	%reldir%/driver.h \
	%reldir%/edit.h \
	%reldir%/fuzz.h \
	%reldir%/honest.h \
	%reldir%/image.h \
	%reldir%/libfuzzer \
	%reldir%/rubbish.h \
	%reldir%/virtual.h

check_PROGRAMS += $(fuzz_programs)
EXTRA_DIST += $(fuzz_support)

# The library once more: with the sanitizers, and in a time of its own (virtual.h).
fuzz_names = \
	-Dclock_gettime=virtual_clock_gettime \
	-Dgetrandom=virtual_getrandom \
	-Dnanosleep=virtual_nanosleep \
	-Dpread=virtual_pread \
	-Dpthread_cond_clockwait=virtual_clockwait \
	-Dsyscall=virtual_syscall
fuzz_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir)/tools
fuzz_cflags = $(AM_CFLAGS) $(FUZZ_CFLAGS)
fuzz_ldflags = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

check_LTLIBRARIES += %reldir%/libgpc-fuzz.la
%canon_reldir%_libgpc_fuzz_la_SOURCES = $(lib_gpc_sources) %reldir%/virtual.c
%canon_reldir%_libgpc_fuzz_la_CPPFLAGS = $(AM_CPPFLAGS) $(fuzz_names)
%canon_reldir%_libgpc_fuzz_la_CFLAGS = $(fuzz_cflags)
%canon_reldir%_libgpc_fuzz_la_LIBADD = $(kernel_objects) $(URCU_LIBS) $(NUMA_LIBS) $(CUDA_LIBS)
%canon_reldir%_libgpc_fuzz_la_DEPENDENCIES = $(kernel_objects)

%canon_reldir%_disk_t_CPPFLAGS = $(fuzz_cppflags)
%canon_reldir%_disk_t_CFLAGS = $(fuzz_cflags)
%canon_reldir%_disk_t_LDFLAGS = $(fuzz_ldflags)
%canon_reldir%_disk_t_LDADD = %reldir%/libgpc-fuzz.la

%canon_reldir%_ring_t_CPPFLAGS = $(fuzz_cppflags)
%canon_reldir%_ring_t_CFLAGS = $(fuzz_cflags)
%canon_reldir%_ring_t_LDFLAGS = $(fuzz_ldflags)
%canon_reldir%_ring_t_LDADD = %reldir%/libgpc-fuzz.la

%canon_reldir%_segment_t_CPPFLAGS = $(fuzz_cppflags)
%canon_reldir%_segment_t_CFLAGS = $(fuzz_cflags)
%canon_reldir%_segment_t_LDFLAGS = $(fuzz_ldflags)
%canon_reldir%_segment_t_LDADD = %reldir%/libgpc-fuzz.la

%canon_reldir%_tools_t_SOURCES = %reldir%/tools.c $(tools_gpc_inspect_SOURCES)
%canon_reldir%_tools_t_CPPFLAGS = $(fuzz_cppflags) $(CURSES_CFLAGS) -Dmain=inspect_main
%canon_reldir%_tools_t_CFLAGS = $(fuzz_cflags) -Wno-missing-prototypes
%canon_reldir%_tools_t_LDFLAGS = $(fuzz_ldflags)
%canon_reldir%_tools_t_LDADD = %reldir%/libgpc-fuzz.la $(JANSSON_LIBS) $(CURSES_LIBS) -lm

%canon_reldir%_trace_t_SOURCES = %reldir%/trace.c tools/replay/trace.c tools/replay/row.c \
	tools/replay/deal.c tools/replay/known.c tools/replay/session.c tools/replay/turns.c \
	tools/common/shown.c
%canon_reldir%_trace_t_CPPFLAGS = $(fuzz_cppflags)
%canon_reldir%_trace_t_CFLAGS = $(fuzz_cflags)
%canon_reldir%_trace_t_LDFLAGS = $(fuzz_ldflags)
%canon_reldir%_trace_t_LDADD = $(JANSSON_LIBS)

# make fuzz [SECONDS=N] [RUNS=N] [HARNESSES=...]: each harness by libFuzzer, where clang has it,
# else by its own driver.
HARNESSES = disk ring segment tools trace
fuzz: all-am $(fuzz_programs)
	@CLANG='$(CLANG)' SECONDS_EACH='$(SECONDS)' RUNS='$(RUNS)' \
	FLAGS='-I. $(fuzz_cppflags) $(CURSES_CFLAGS) -std=gnu11 -pthread' NAMES='$(fuzz_names)' \
	LIBRARIES='$(kernel_objects:.lo=.o) $(URCU_LIBS) $(NUMA_LIBS) $(JANSSON_LIBS) $(CURSES_LIBS) $(CUDA_LIBS)' \
	SOURCES='$(filter-out %.h,$(lib_gpc_sources))' \
	TOOL_SOURCES='$(filter-out %.h,$(tools_gpc_inspect_SOURCES))' \
	$(SHELL) $(srcdir)/%reldir%/libfuzzer $(srcdir) $(HARNESSES)
.PHONY: fuzz
