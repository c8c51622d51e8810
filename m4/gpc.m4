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

# GPC_CUDA
# --------
# Find nvcc as --with-cuda says: $NVCC, and HAVE_NVCC for automake.
AC_DEFUN([GPC_CUDA], [
AS_CASE([$with_cuda],
	[no], [],
	[auto|yes], [AC_PATH_PROG([NVCC], [nvcc], [],
			[$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
	[AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin$PATH_SEPARATOR$with_cuda])])
AS_IF([test -n "$NVCC"], [gpc_nvcc_note="$NVCC (found, nothing to compile with it yet)"],
	[test "x$with_cuda" = xno], [gpc_nvcc_note="no (--without-cuda)"],
	[test "x$with_cuda" = xauto], [gpc_nvcc_note="no (not found)"],
	[AC_MSG_ERROR([--with-cuda=$with_cuda was given, and there is no nvcc])])
AM_CONDITIONAL([HAVE_NVCC], [test -n "$NVCC"])
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
