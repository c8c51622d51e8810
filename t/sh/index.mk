# SPDX-License-Identifier: Apache-2.0
# Read behind the Makefile of a build by "make index": tests of t/index/, from the objects of "make
# check", linked with an index and who looks at it alone (lib/libgpc-index.la).
#
# INDEX_TESTS="t/index/NAME...": these.

INDEX_TESTS ?= $(filter t/index/%,$(basename $(t_programs)))

index_flags = $($(subst /,_,$(subst -,_,$1))_t_LDFLAGS)
index_programs = $(addsuffix .alone,$(INDEX_TESTS))

$(index_programs): %.alone: %.$(OBJEXT) lib/libgpc-index.la
	$(AM_V_CCLD)$(LIBTOOL) $(AM_V_lt) --tag=CC --mode=link $(CCLD) $(AM_CFLAGS) $(CFLAGS) \
		$(or $(call index_flags,$*),$(AM_LDFLAGS)) $(LDFLAGS) -o $@ $< lib/libgpc-index.la $(LIBS)

index-alone: $(index_programs)
	@$(t_environment) sh $(srcdir)/t/sh/index $(index_programs)
.PHONY: index-alone
