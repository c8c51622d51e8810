dnl SPDX-License-Identifier: Apache-2.0

# GPC_CC_FLAGS(VARIABLE, FLAGS)
# -----------------------------
# Append to VARIABLE those of FLAGS that the compiler takes.
AC_DEFUN([GPC_CC_FLAGS], [
for gpc_flag in m4_normalize([$2]); do
	# gcc takes any -Wno-...: ask for the opposite
	AS_CASE([$gpc_flag],
		[-Wno-*], [gpc_probe=-W${gpc_flag@%:@-Wno-}],
		[gpc_probe=$gpc_flag])
	AS_VAR_PUSHDEF([gpc_var], [gpc_cv_cc_$gpc_flag])
	AC_CACHE_CHECK([whether $CC takes $gpc_flag], [gpc_var], [
		gpc_saved=$CFLAGS
		CFLAGS="$CFLAGS -Werror $gpc_probe"
		AC_COMPILE_IFELSE([AC_LANG_SOURCE([[int gpc_probe;]])],
			[AS_VAR_SET([gpc_var], [yes])], [AS_VAR_SET([gpc_var], [no])])
		CFLAGS=$gpc_saved
	])
	AS_VAR_IF([gpc_var], [yes], [$1="[$]$1 $gpc_flag"])
	AS_VAR_POPDEF([gpc_var])
done
])

# GPC_LD_FLAGS(VARIABLE, FLAGS)
# -----------------------------
# Append to VARIABLE those of FLAGS that the linker takes for a shared library.
AC_DEFUN([GPC_LD_FLAGS], [
for gpc_flag in m4_normalize([$2]); do
	AS_VAR_PUSHDEF([gpc_var], [gpc_cv_ld_$gpc_flag])
	AC_CACHE_CHECK([whether the linker takes $gpc_flag], [gpc_var], [
		gpc_saved=$LDFLAGS
		gpc_saved_cflags=$CFLAGS
		CFLAGS="$CFLAGS -fPIC"
		LDFLAGS="$LDFLAGS -shared $gpc_flag"
		AC_LINK_IFELSE([AC_LANG_SOURCE([[int gpc_probe;]])],
			[AS_VAR_SET([gpc_var], [yes])], [AS_VAR_SET([gpc_var], [no])])
		LDFLAGS=$gpc_saved
		CFLAGS=$gpc_saved_cflags
	])
	AS_VAR_IF([gpc_var], [yes], [$1="[$]$1 $gpc_flag"])
	AS_VAR_POPDEF([gpc_var])
done
])

# GPC_TEST_LINKER
# ---------------
# Programs of tests are many, and each has the library in it: $TEST_LDFLAGS takes the quicker one of
# the linkers, where it is there and leads calls elsewhere as tests ask it to.
AC_DEFUN([GPC_TEST_LINKER], [
AC_CACHE_CHECK([whether gold links tests], [gpc_cv_test_gold], [
	gpc_saved=$LDFLAGS
	LDFLAGS="$LDFLAGS $TEST_LDFLAGS -fuse-ld=gold -fno-use-linker-plugin -Wl,--wrap=gpc_probe"
	AC_LINK_IFELSE([AC_LANG_SOURCE([[
int gpc_probe(void);
int __wrap_gpc_probe(void);
int __wrap_gpc_probe(void) { return 0; }
extern const char __executable_start[], etext[];
int main(void) { return gpc_probe() + (__executable_start > etext); }
]])], [gpc_cv_test_gold=yes], [gpc_cv_test_gold=no])
	LDFLAGS=$gpc_saved
])
AS_VAR_IF([gpc_cv_test_gold], [yes],
	[TEST_LDFLAGS="$TEST_LDFLAGS -fuse-ld=gold -fno-use-linker-plugin"])
])

# GPC_SANITIZE(FLAGS)
# -------------------
# Build everything with FLAGS; an error when the compiler cannot.
AC_DEFUN([GPC_SANITIZE], [
AC_MSG_CHECKING([whether programs link with $1])
gpc_saved=$CFLAGS
CFLAGS="$CFLAGS $1"
AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
	[AC_MSG_RESULT([yes])],
	[AC_MSG_RESULT([no])
	 AC_MSG_ERROR([$CC cannot link with $1; is its runtime installed?])])
CFLAGS=$gpc_saved
GPC_CFLAGS="$GPC_CFLAGS $1 -fno-omit-frame-pointer"
GPC_LDFLAGS="$GPC_LDFLAGS $1"
])

# GPC_FUZZ
# --------
# $FUZZ_CFLAGS: what the fuzzers and their copy of the library are compiled with.  The sanitizers,
# where programs link with them and the build has none that excludes them.
AC_DEFUN([GPC_FUZZ], [
FUZZ_CFLAGS=
AC_CACHE_CHECK([whether fuzzers link with sanitizers], [gpc_cv_fuzz_sanitize], [
	gpc_saved=$CFLAGS
	CFLAGS="$CFLAGS -fsanitize=address,undefined -fno-sanitize-recover=all"
	AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
		[gpc_cv_fuzz_sanitize=yes], [gpc_cv_fuzz_sanitize=no])
	CFLAGS=$gpc_saved
])
AS_IF([test "x$gpc_cv_fuzz_sanitize" = xyes && test "x$enable_tsan" = xno],
	[FUZZ_CFLAGS="-U_FORTIFY_SOURCE -fsanitize=address,undefined -fno-sanitize-recover=all"
	 FUZZ_CFLAGS="$FUZZ_CFLAGS -fno-omit-frame-pointer"
	 dnl calls of the address sanitizer's checks are a third less to compile than the checks themselves
	 GPC_CC_FLAGS([FUZZ_CFLAGS], [--param=asan-instrumentation-with-call-threshold=0])])
AC_SUBST([FUZZ_CFLAGS])
AC_CHECK_PROGS([CLANG], [clang])
])

# GPC_CUDA
# --------
# Find nvcc as --with-cuda says, and a runtime to link with: $NVCC, $NVCC_ARCHES, $CUDA_CPPFLAGS,
# $CUDA_LIBS, HAVE_CUDA for automake and the sources.  The runtime is linked statically, so the
# library needs none of CUDA's to be installed where it runs.
AC_DEFUN([GPC_CUDA], [
AS_CASE([$with_cuda],
	[no], [],
	[auto|yes], [AC_PATH_PROG([NVCC], [nvcc], [],
			[$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
	[AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin$PATH_SEPARATOR$with_cuda])])
gpc_cuda_why=
AS_IF([test -n "$NVCC"], [_GPC_CUDA_TRY],
	[test "x$with_cuda" = xno], [gpc_cuda_why="--without-cuda"],
	[gpc_cuda_why="there is no nvcc"])
AS_IF([test -z "$gpc_cuda_why"],
	[AC_DEFINE([HAVE_CUDA], [1], [Define to 1 to keep mirrors in the memory of GPUs.])
	 gpc_cuda_note="$NVCC: $with_cuda_arch"],
	[test "x$with_cuda" = xauto || test "x$with_cuda" = xno],
	[gpc_cuda_note="no ($gpc_cuda_why)"],
	[AC_MSG_ERROR([--with-cuda=$with_cuda was given, but $gpc_cuda_why])])
AM_CONDITIONAL([HAVE_CUDA], [test -z "$gpc_cuda_why"])
AC_SUBST([NVCC])
AC_SUBST([NVCC_ARCHES])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_LIBS])
])

# Can nvcc compile for these architectures, and does a program link with its runtime?
AC_DEFUN([_GPC_CUDA_TRY], [
NVCC_ARCHES= gpc_last=
for gpc_arch in $with_cuda_arch; do
	NVCC_ARCHES="$NVCC_ARCHES -gencode arch=compute_$gpc_arch,code=sm_$gpc_arch"
	gpc_last=$gpc_arch
done
# the newest as PTX, too: the driver compiles it for what comes later
NVCC_ARCHES="$NVCC_ARCHES -gencode arch=compute_$gpc_last,code=compute_$gpc_last"
gpc_nvcc_real=`readlink -f "$NVCC" 2>/dev/null || echo "$NVCC"`
gpc_cuda_root=`dirname "\`dirname "$gpc_nvcc_real"\`"`
CUDA_CPPFLAGS=
AS_IF([test -f "$gpc_cuda_root/include/cuda_runtime_api.h"],
	[CUDA_CPPFLAGS="-isystem $gpc_cuda_root/include"])
CUDA_LIBS="-lcudart_static -ldl -lrt -lpthread"
AS_IF([test -d "$gpc_cuda_root/lib64"], [CUDA_LIBS="-L$gpc_cuda_root/lib64 $CUDA_LIBS"])
AC_MSG_CHECKING([whether $NVCC compiles for $with_cuda_arch])
cat >conftest.cu <<_ACEOF
__global__ void k(int *p)
{
	asm volatile("{ .reg .b128 t; ld.relaxed.gpu.global.b128 t, @<:@%0@:>@; }" :: "l"(p));
	*p = 1;
}
_ACEOF
AS_IF([$NVCC -O1 -std=c++17 $NVCC_ARCHES -c -o conftest.o conftest.cu >&AS_MESSAGE_LOG_FD 2>&1],
	[AC_MSG_RESULT([yes])],
	[AC_MSG_RESULT([no])
	 gpc_cuda_why="$NVCC does not compile for $with_cuda_arch, see config.log"])
rm -f conftest.cu conftest.o
AC_MSG_CHECKING([for the CUDA runtime, to link statically])
gpc_saved=$CPPFLAGS gpc_saved_libs=$LIBS
CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS" LIBS="$CUDA_LIBS $LIBS"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>
#if CUDART_VERSION < 12000
#error too old
#endif]], [[int n; return cudaGetDeviceCount(&n);]])],
	[AC_MSG_RESULT([yes])],
	[AC_MSG_RESULT([no])
	 gpc_cuda_why="there is no CUDA runtime 12 or later to link with"])
CPPFLAGS=$gpc_saved LIBS=$gpc_saved_libs
])

# GPC_PYTHON
# ----------
# A Python that the module can be built for: $PYTHON, $PYTHON_CPPFLAGS, HAVE_PYTHON for automake.  The
# first one in PATH may be without headers while the system's has them, so both are asked.
AC_DEFUN([GPC_PYTHON], [
AS_CASE([$with_python],
	[auto|yes], [gpc_pythons="python3 /usr/bin/python3"],
	[no], [gpc_pythons=],
	[gpc_pythons=$with_python])
PYTHON= PYTHON_CPPFLAGS= gpc_python_why="there is no python3"
AS_IF([test "x$with_python" = xno], [gpc_python_why="--without-python"],
	[test "x$enable_shared" = xno], [gpc_python_why="--disable-shared" gpc_pythons=])
AC_MSG_CHECKING([for Python 3.11 or later with its headers])
for gpc_python in $gpc_pythons; do
	test -z "$PYTHON" || continue
	command -v "$gpc_python" >/dev/null 2>&1 || continue
	gpc_python_say=`"$gpc_python" -c "
import os, sys, sysconfig
include = sysconfig.get_path('include')
if sys.version_info < (3, 11) or sys.implementation.name != 'cpython':
    print('no', sys.executable, 'is no CPython 3.11 or later')
elif sysconfig.get_config_var('Py_GIL_DISABLED'):
    print('no', sys.executable, 'has no GIL: build with pip')
elif not os.path.exists(include + '/Python.h'):
    print('no', sys.executable, 'has no Python.h (Debian and Ubuntu: python3-dev)')
else:
    print('yes', os.path.realpath(sys.executable), include)
" 2>/dev/null`
	AS_CASE([$gpc_python_say],
		[yes*], [set dummy $gpc_python_say
			 PYTHON=$[]3 PYTHON_CPPFLAGS="-isystem $[]4"],
		[no*], [gpc_python_why=${gpc_python_say@%:@no }])
done
AS_IF([test -n "$PYTHON"],
	[AC_MSG_RESULT([$PYTHON])
	 gpc_python_note=$PYTHON],
	[AC_MSG_RESULT([no])
	 gpc_python_note="no ($gpc_python_why)"
	 AS_CASE([$with_python], [auto|no], [],
		[AC_MSG_ERROR([--with-python=$with_python was given, but $gpc_python_why])])])
AM_CONDITIONAL([HAVE_PYTHON], [test -n "$PYTHON"])
AC_SUBST([PYTHON])
AC_SUBST([PYTHON_CPPFLAGS])
])

# GPC_PEER(NAME, VARIABLE, MODULES, LIBS, INCLUDES, BODY)
# -------------------------------------------------------
# A library that gpc-bench compares with: --with-NAME, HAVE_VARIABLE for automake and the sources,
# $VARIABLE_LIBS.  Nothing but the bench uses it, and nothing is missing without it.  LIBS are
# tried where pkg-config does not know MODULES.
AC_DEFUN([GPC_PEER], [
AC_ARG_WITH([$1],
	[AS_HELP_STRING([--without-$1], [no figures of $1 in gpc-bench])],
	[], [with_$1=auto])
AS_VAR_PUSHDEF([gpc_var], [gpc_cv_peer_$1])
PKG_CHECK_EXISTS([$3], [$2_LIBS=`$PKG_CONFIG --libs "$3"`], [$2_LIBS="$4"])
AS_IF([test "x$with_$1" = xno], [AS_VAR_SET([gpc_var], [no])])
AC_CACHE_CHECK([for $1, to compare with], [gpc_var], [
	gpc_saved=$CPPFLAGS gpc_saved_libs=$LIBS
	CPPFLAGS="$CPPFLAGS $URCU_CFLAGS" LIBS="$$2_LIBS $LIBS"
	AC_LINK_IFELSE([AC_LANG_PROGRAM([$5], [$6])],
		[AS_VAR_SET([gpc_var], [yes])], [AS_VAR_SET([gpc_var], [no])])
	CPPFLAGS=$gpc_saved LIBS=$gpc_saved_libs
])
AS_VAR_IF([gpc_var], [yes],
	[AC_DEFINE([HAVE_$2], [1], [Define to 1 to compare with $1.])
	 gpc_peers="${gpc_peers:+$gpc_peers }$1"],
	[$2_LIBS=
	 AS_IF([test "x$with_$1" = xyes],
		[AC_MSG_ERROR([--with-$1 was given, but it does not link: see config.log])])])
AS_VAR_COPY([gpc_peer_there], [gpc_var])
AM_CONDITIONAL([HAVE_$2], [test "x$gpc_peer_there" = xyes])
AC_SUBST([$2_LIBS])
AS_VAR_POPDEF([gpc_var])
])

# GPC_PEER_CXX
# ------------
# C++ for the maps of C++ that gpc-bench compares with: HAVE_CXX_PEERS, $CXX_PEER_LIBS, what a
# program linked as C needs beside them, and HAVE_BOOST_FLAT_MAP.  No C++ compiler is no error.
AC_DEFUN([GPC_PEER_CXX], [
AC_ARG_WITH([cxx],
	[AS_HELP_STRING([--without-cxx], [no figures of maps of C++ in gpc-bench])],
	[], [with_cxx=auto])
AC_ARG_WITH([boost],
	[AS_HELP_STRING([--without-boost], [no figures of boost's flat map in gpc-bench])],
	[], [with_boost=auto])
CXX_PEER_LIBS=
AS_IF([test "x$with_cxx" = xno], [gpc_cv_peer_cxx=no])
AC_CACHE_CHECK([for C++, to compare with], [gpc_cv_peer_cxx], [
	gpc_cv_peer_cxx=no
	AC_LANG_PUSH([C++])
	gpc_saved_flags=$CXXFLAGS
	CXXFLAGS="$CXXFLAGS -std=gnu++17"
	AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#include <exception>
#include <unordered_map>
extern "C" int gpc_probe(void)
{
	try {
		return (int)std::unordered_map<int, int>(9).size();
	} catch (const std::exception &) {
		return 1;
	}
}]])], [mv conftest.$ac_objext gpc_probe.$ac_objext], [rm -f gpc_probe.$ac_objext])
	CXXFLAGS=$gpc_saved_flags
	AC_LANG_POP([C++])
	gpc_saved_libs=$LIBS
	for gpc_lib in -lstdc++ -lc++; do
		test -f gpc_probe.$ac_objext && test "x$gpc_cv_peer_cxx" = xno || continue
		LIBS="gpc_probe.$ac_objext $gpc_lib $gpc_saved_libs"
		AC_LINK_IFELSE([AC_LANG_PROGRAM([[int gpc_probe(void);]],
			[[return gpc_probe();]])], [gpc_cv_peer_cxx=$gpc_lib])
	done
	LIBS=$gpc_saved_libs
	rm -f gpc_probe.$ac_objext
])
AS_IF([test "x$with_cxx:$gpc_cv_peer_cxx" = xyes:no],
	[AC_MSG_ERROR([--with-cxx was given, but C++ does not link: see config.log])])
AS_IF([test "x$gpc_cv_peer_cxx" != xno],
	[AC_DEFINE([HAVE_CXX_PEERS], [1], [Define to 1 to compare with maps of C++.])
	 gpc_peers="${gpc_peers:+$gpc_peers }unordered_map"
	 CXX_PEER_LIBS=$gpc_cv_peer_cxx
	 AS_IF([test "x$with_boost" = xno], [gpc_cv_peer_boost=no])
	 AC_CACHE_CHECK([for boost's flat map, to compare with], [gpc_cv_peer_boost], [
		AC_LANG_PUSH([C++])
		gpc_saved_flags=$CXXFLAGS
		CXXFLAGS="$CXXFLAGS -std=gnu++17"
		AC_COMPILE_IFELSE([AC_LANG_PROGRAM(
			[[#include <boost/unordered/unordered_flat_map.hpp>]],
			[[boost::unordered_flat_map<int, int> map; return (int)map.size();]])],
			[gpc_cv_peer_boost=yes], [gpc_cv_peer_boost=no])
		CXXFLAGS=$gpc_saved_flags
		AC_LANG_POP([C++])])
	 AS_IF([test "x$gpc_cv_peer_boost" = xyes],
		[AC_DEFINE([HAVE_BOOST_FLAT_MAP], [1],
			[Define to 1 to compare with boost's flat map.])
		 gpc_peers="${gpc_peers:+$gpc_peers }flat_map"])])
AS_IF([test "x$with_boost" = xyes && test "x$gpc_cv_peer_boost" != xyes],
	[AC_MSG_ERROR([--with-boost was given, but there is no flat map (boost 1.81 or later)])])
AM_CONDITIONAL([HAVE_CXX_PEERS], [test "x$gpc_cv_peer_cxx" != xno])
AC_SUBST([CXX_PEER_LIBS])
])

# GPC_SYSTEMD_UNITDIR
# -------------------
# Where the unit goes.  A unit outside the prefix would make "make install" of a user fail,
# and systemd reads /usr/local/lib/systemd/system as well as its own directory.
AC_DEFUN([GPC_SYSTEMD_UNITDIR], [
AS_CASE([$with_systemdsystemunitdir],
	[no], [systemdsystemunitdir=],
	[auto|yes], [
		AS_IF([test "x$prefix" = x/usr],
			[PKG_CHECK_VAR([SYSTEMD_UNITDIR], [systemd], [systemdsystemunitdir],
				[systemdsystemunitdir=$SYSTEMD_UNITDIR],
				[systemdsystemunitdir='${prefix}/lib/systemd/system'])],
			[systemdsystemunitdir='${prefix}/lib/systemd/system'])],
	[systemdsystemunitdir=$with_systemdsystemunitdir])
AC_SUBST([systemdsystemunitdir])
AM_CONDITIONAL([HAVE_UNITDIR], [test -n "$systemdsystemunitdir"])
])

# GPC_METRICS
# -----------
# gpcd --metrics.  Sets METRICS_CFLAGS, METRICS_LIBS, gpc_metrics_note and the conditional HAVE_METRICS.
AC_DEFUN([GPC_METRICS], [
gpc_metrics=no
AS_IF([test "x$with_metrics" != xno],
	[PKG_CHECK_MODULES([METRICS], [libmicrohttpd >= 0.9.71], [gpc_metrics=yes], [gpc_metrics=no])])
AS_IF([test "x$gpc_metrics" = xyes],
	[gpc_metrics_note="yes, libmicrohttpd"
	 AC_DEFINE([HAVE_METRICS], [1], [gpcd answers scrapes, by libmicrohttpd])],
	[gpc_metrics_note="no"
	 METRICS_CFLAGS= METRICS_LIBS=
	 AS_IF([test "x$with_metrics" = xyes],
		[AC_MSG_ERROR([--with-metrics: libmicrohttpd is missing (Debian and Ubuntu: libmicrohttpd-dev)])])])
AM_CONDITIONAL([HAVE_METRICS], [test "x$gpc_metrics" = xyes])
])

# GPC_HIREDIS
# -----------
# $HIREDIS_CFLAGS and $HIREDIS_LIBS: what the plugin for Redis and Valkey is built with.  TLS came with 1.0, as
# a library of its own.
AC_DEFUN([GPC_HIREDIS], [
gpc_hiredis=no
gpc_hiredis_ssl=no
gpc_hiredis_note='no (--without-hiredis)'
AS_IF([test "x$with_hiredis" != xno], [
	PKG_CHECK_MODULES([HIREDIS], [hiredis >= 0.14],
		[gpc_hiredis=yes],
		[gpc_hiredis_note='no (hiredis 0.14 or later is missing: libhiredis-dev)'])
	AS_IF([test "x$with_hiredis" = xyes && test "$gpc_hiredis" = no],
		[AC_MSG_ERROR([the plugin for Redis: $gpc_hiredis_note])])])
AS_IF([test "$gpc_hiredis" = yes], [
	PKG_CHECK_MODULES([HIREDIS_SSL], [hiredis_ssl >= 1.0], [gpc_hiredis_ssl=yes], [gpc_hiredis_ssl=no])
	AS_IF([test "$gpc_hiredis_ssl" = yes],
		[HIREDIS_CFLAGS="$HIREDIS_CFLAGS $HIREDIS_SSL_CFLAGS"
		 HIREDIS_LIBS="$HIREDIS_SSL_LIBS $HIREDIS_LIBS"
		 AC_DEFINE([HAVE_HIREDIS_SSL], [1], [The plugin for Redis has TLS, by hiredis_ssl])])
	# some releases say -I.../hiredis only; our headers name the folder
	HIREDIS_CFLAGS="$HIREDIS_CFLAGS -I$($PKG_CONFIG --variable=includedir hiredis)"
	gpc_hiredis_note="hiredis $($PKG_CONFIG --modversion hiredis), TLS: $gpc_hiredis_ssl"
	# names are looked up by threads of the C library's own; before glibc 2.34 in a library of their own
	gpc_saved_libs=$LIBS
	AC_SEARCH_LIBS([getaddrinfo_a], [anl],
		[AS_CASE([$ac_cv_search_getaddrinfo_a], [-l*],
			[HIREDIS_LIBS="$HIREDIS_LIBS $ac_cv_search_getaddrinfo_a"])],
		[AC_MSG_ERROR([the plugin for Redis needs getaddrinfo_a, of glibc; or configure --without-hiredis])])
	LIBS=$gpc_saved_libs])
AM_CONDITIONAL([HAVE_HIREDIS], [test "$gpc_hiredis" = yes])
AM_CONDITIONAL([HAVE_HIREDIS_SSL], [test "$gpc_hiredis_ssl" = yes])
])

# GPC_MOONCAKE
# ------------
# $MOONCAKE_CFLAGS and $MOONCAKE_LIBS: what the plugin for Mooncake Store is built with: its C interface, in
# --with-mooncake=DIR, or where the compiler looks.
AC_DEFUN([GPC_MOONCAKE], [
gpc_mooncake=no
gpc_mooncake_note='no (--without-mooncake)'
MOONCAKE_CFLAGS= MOONCAKE_LIBS=-lmooncake_store
AS_CASE([$with_mooncake], [no|yes|auto], [],
	[MOONCAKE_CFLAGS="-isystem $with_mooncake/include"
	 MOONCAKE_LIBS="-L$with_mooncake/lib -Wl,-rpath,$with_mooncake/lib -lmooncake_store"])
AS_IF([test "x$with_mooncake" != xno], [
	gpc_saved=$CPPFLAGS gpc_saved_libs=$LIBS
	CPPFLAGS="$CPPFLAGS $MOONCAKE_CFLAGS" LIBS="$MOONCAKE_LIBS $LIBS"
	AC_MSG_CHECKING([for the C interface of Mooncake Store])
	AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <store_c.h>]], [[
		return mooncake_store_batch_get_into(0, 0, 0, 0, 0, 0);]])],
		[gpc_mooncake=yes gpc_mooncake_note=yes],
		[gpc_mooncake_note='no (store_c.h or libmooncake_store.so is missing)'])
	AC_MSG_RESULT([$gpc_mooncake])
	CPPFLAGS=$gpc_saved LIBS=$gpc_saved_libs
	AS_IF([test "x$with_mooncake" != xauto && test "$gpc_mooncake" = no],
		[AC_MSG_ERROR([the plugin for Mooncake Store: $gpc_mooncake_note])])])
AM_CONDITIONAL([HAVE_MOONCAKE], [test "$gpc_mooncake" = yes])
AC_SUBST([MOONCAKE_CFLAGS])
AC_SUBST([MOONCAKE_LIBS])
])

# GPC_CURSES
# ----------
# $CURSES_CFLAGS and $CURSES_LIBS: what gpc-inspect top shows its screen with.
AC_DEFUN([GPC_CURSES], [
gpc_curses=no
gpc_curses_note='no (--without-ncurses)'
AS_IF([test "x$with_ncurses" != xno], [
	PKG_CHECK_MODULES([CURSES], [ncursesw >= 6],
		[gpc_curses=yes
		 gpc_curses_note="ncursesw $($PKG_CONFIG --modversion ncursesw)"],
		[gpc_curses_note='no (ncursesw 6 or later is missing: libncurses-dev)'])
	AS_IF([test "x$with_ncurses" = xyes && test "$gpc_curses" = no],
		[AC_MSG_ERROR([gpc-inspect top: $gpc_curses_note])])])
AM_CONDITIONAL([HAVE_CURSES], [test "x$gpc_curses" = xyes])
])

# GPC_EVENTS
# ----------
# $EVENTS_CFLAGS and $EVENTS_LIBS: what gpcd publishes KV events with.  msgpack-c has been msgpack to
# pkg-config before its release 5, and some systems have only one of the names.
AC_DEFUN([GPC_EVENTS], [
gpc_events=no
gpc_events_note='no (--without-events)'
AS_IF([test "x$with_events" != xno], [
	gpc_events_note=
	PKG_CHECK_MODULES([ZMQ], [libzmq >= 4.2], [],
		[gpc_events_note='no (libzmq 4.2 or later is missing: libzmq3-dev)'])
	PKG_CHECK_MODULES([MSGPACK], [msgpack-c >= 2], [],
		[PKG_CHECK_MODULES([MSGPACK], [msgpack >= 2], [],
			[gpc_events_note='no (msgpack-c is missing: libmsgpack-c-dev or libmsgpack-dev)'])])
	AS_IF([test "x$with_events" = xyes && test -n "$gpc_events_note"],
		[AC_MSG_ERROR([KV events: $gpc_events_note])])
	AS_IF([test -z "$gpc_events_note"], [
		gpc_events_note="libzmq $($PKG_CONFIG --modversion libzmq), msgpack-c"
		EVENTS_CFLAGS="$ZMQ_CFLAGS $MSGPACK_CFLAGS"
		EVENTS_LIBS="$ZMQ_LIBS $MSGPACK_LIBS"
		AC_DEFINE([HAVE_EVENTS], [1], [gpcd publishes KV events])
		gpc_events=yes])])
AC_SUBST([EVENTS_CFLAGS])
AC_SUBST([EVENTS_LIBS])
AM_CONDITIONAL([HAVE_EVENTS], [test "x$gpc_events" = xyes])
])
