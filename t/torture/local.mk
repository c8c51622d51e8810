# SPDX-License-Identifier: Apache-2.0
# Programs that kill, for as long as one likes: README.md says what each one proves.  Without
# options they are tests, short ones.

torture_programs = \
	%reldir%/copy.t \
	%reldir%/drops.t \
	%reldir%/grace.t \
	%reldir%/kill.t \
	%reldir%/prefix.t \
	%reldir%/step.t \
	%reldir%/successor.t \
	%reldir%/threads.t \
	%reldir%/transfer.t

torture_support = \
	%reldir%/README.md \
	%reldir%/acts.h \
	%reldir%/commands.h \
	%reldir%/compare.h \
	%reldir%/course.h \
	%reldir%/engine.h \
	%reldir%/fleet.h \
	%reldir%/hands.h \
	%reldir%/images.h \
	%reldir%/judge.h \
	%reldir%/ledger.h \
	%reldir%/players.h \
	%reldir%/points.h \
	%reldir%/ranks.h \
	%reldir%/recorder.h \
	%reldir%/rest.h \
	%reldir%/round.h \
	%reldir%/small.h \
	%reldir%/scene.h \
	%reldir%/states.h \
	%reldir%/survivor.h \
	%reldir%/team.h \
	%reldir%/torture.h \
	%reldir%/tracee.h \
	%reldir%/traffic.h \
	%reldir%/vram.h \
	%reldir%/worker.h \
	%reldir%/works.h \
	%reldir%/world.h

check_PROGRAMS += $(torture_programs)
EXTRA_DIST += $(torture_support) $(mutants_support)
# the writer's mapping is replaced by one that counts stores
%canon_reldir%_successor_t_LDFLAGS = -Wl,--wrap=segment_map_writer
# stores of a wreck are counted; the table's layout follows from the seed
%canon_reldir%_step_t_LDFLAGS = -Wl,--wrap=segment_map_writer,--wrap=getrandom
# one process plays all, in a world without chance
%canon_reldir%_prefix_t_LDFLAGS = -Wl,--wrap=segment_map_writer,--wrap=segment_unmap_writer \
	-Wl,--wrap=clock_ns,--wrap=clock_coarse_ns,--wrap=nanosleep \
	-Wl,--wrap=futex_wait,--wrap=futex_wake_all,--wrap=getrandom \
	-Wl,--wrap=identity_self,--wrap=identity_gone,--wrap=identity_look,--wrap=driver_find
# unpublishing and grace periods are seen from within the writer
%canon_reldir%_grace_t_LDFLAGS = -Wl,--wrap=lru_forget,--wrap=mirror_flushed,--wrap=epoch_over

# What makes the changes of a mutant: mutants/README.md.
mutants_support = \
	%reldir%/mutants/README.md \
	%reldir%/mutants/run \
	%reldir%/mutants/table
check_PROGRAMS += %reldir%/mutants/apply
%canon_reldir%_mutants_apply_SOURCES = %reldir%/mutants/apply.c
%canon_reldir%_mutants_apply_LDADD =

# Every part for that many seconds, one after the other.
SECONDS = 300
torture: all-am $(torture_programs)
	@for program in $(torture_programs); do \
		echo "$$program --seconds $(SECONDS)"; \
		./$$program --seconds $(SECONDS) || exit; \
	done
	@$(MAKE) --no-print-directory fuzz mutants
.PHONY: torture

# Mutants: the library with one mistake each; "make mutants MUTANT='NAME...'" takes some.
mutants: config.h
	@case '$(MUTANT)' in \
	'') needs='all-am $(check_PROGRAMS) $(check_LTLIBRARIES)' ;; \
	--list*) exec $(SHELL) $(top_srcdir)/%reldir%/mutants/run $(MUTANT) ;; \
	*) \
		tests=`$(SHELL) $(top_srcdir)/%reldir%/mutants/run --tests $(MUTANT)` || exit; \
		needs="lib/libgpc-internal.la %reldir%/mutants/apply `$(SHELL) $(srcdir)/t/sh/needs '$(srcdir)' \
			'$(t_all)' $$tests`" || exit ;; \
	esac; \
	$(MAKE) $(AM_MAKEFLAGS) `echo $$needs` && \
	CC='$(CC)' COMPILE='$(COMPILE)' LIBS='$(LIBS)' top_srcdir='$(abs_top_srcdir)' \
		LINKER='$(CCLD) $(AM_CFLAGS) $(CFLAGS) $(AM_LDFLAGS) $(LDFLAGS) $(TEST_LDFLAGS)' \
		TOOL_LINKER='$(LINK)' REPLAY_OBJECTS='$(tools_gpc_replay_OBJECTS)' \
		REPLAY_LIBS='$(tools_gpc_replay_LDADD) $(LIBS)' \
		DAEMON_OBJECTS='$(tools_gpcd_OBJECTS)' DAEMON_LIBS='$(tools_gpcd_LDADD) $(LIBS)' \
		INSPECT_OBJECTS='$(tools_gpc_inspect_OBJECTS)' INSPECT_LIBS='$(tools_gpc_inspect_LDADD) $(LIBS)' \
		$(SHELL) $(top_srcdir)/%reldir%/mutants/run $(MUTANT)
.PHONY: mutants
