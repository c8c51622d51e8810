# SPDX-License-Identifier: Apache-2.0
# The Python module, for the Python that configure found.  The package is put together in python/gpc of
# the build, where the tests import it.  pip installs it: pyproject.toml and setup.py.

python_package = \
	%reldir%/gpc/__init__.py \
	%reldir%/gpc/_types.py \
	%reldir%/gpc/_gpc.pyi \
	%reldir%/gpc/py.typed
python_sources = \
	%reldir%/src/args.c \
	%reldir%/src/array.c \
	%reldir%/src/claim.c \
	%reldir%/src/device.c \
	%reldir%/src/dlpack.c \
	%reldir%/src/error.c \
	%reldir%/src/field.c \
	%reldir%/src/fill.c \
	%reldir%/src/find.c \
	%reldir%/src/gpcpy.h \
	%reldir%/src/handle.c \
	%reldir%/src/keys.c \
	%reldir%/src/look.c \
	%reldir%/src/module.c \
	%reldir%/src/move.c \
	%reldir%/src/open.c \
	%reldir%/src/part.c \
	%reldir%/src/part.h \
	%reldir%/src/pool.c \
	%reldir%/src/publish.c \
	%reldir%/src/transfer.c \
	%reldir%/src/walk.c \
	%reldir%/src/writer.c

EXTRA_DIST += $(python_package) \
	%reldir%/MANIFEST.in \
	%reldir%/README.md \
	%reldir%/bench/lookup.py \
	%reldir%/bundle.py \
	%reldir%/pyproject.toml \
	%reldir%/setup.py \
	%reldir%/tests/arguments.py \
	%reldir%/tests/basic.py \
	%reldir%/tests/errors.py \
	%reldir%/tests/leaks.py \
	%reldir%/tests/look.py \
	%reldir%/tests/memory.py \
	%reldir%/tests/tap.py \
	%reldir%/tests/threads.py \
	%reldir%/tests/transfers.py

if HAVE_PYTHON
# a module is linked as a shared library only if it has somewhere to go
noinst_LTLIBRARIES += %reldir%/_gpc.la
%canon_reldir%__gpc_la_SOURCES = $(python_sources)
# these come before Python.h sets what it sets, so config.h is left out
%canon_reldir%__gpc_la_CPPFLAGS = -I$(top_srcdir)/lib $(PYTHON_CPPFLAGS)
%canon_reldir%__gpc_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shrext .abi3.so \
	-rpath $(pkglibdir)
%canon_reldir%__gpc_la_LIBADD = lib/libgpc.la

%reldir%/gpc/stamp: %reldir%/_gpc.la $(python_package)
	$(AM_V_at)$(MKDIR_P) %reldir%/gpc
	$(AM_V_at)for f in $(python_package); do \
		test $(srcdir) -ef . || cp $(srcdir)/$$f %reldir%/gpc/ || exit 1; \
	done
	$(AM_V_at)cp %reldir%/.libs/_gpc.abi3.so %reldir%/gpc/
	$(AM_V_at)touch $@

all-local: %reldir%/gpc/stamp
CLEANFILES += %reldir%/gpc/stamp %reldir%/gpc/_gpc.abi3.so

else
EXTRA_DIST += $(python_sources)
endif

clean-python:
	rm -rf %reldir%/gpc/__pycache__
	test $(srcdir) -ef . || rm -f $(python_package)
.PHONY: clean-python
