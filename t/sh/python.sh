# SPDX-License-Identifier: Apache-2.0
# python.sh - runs a test of the Python module: python/tests/NAME.py, which speaks TAP itself.
#
#	. "${top_srcdir:-$(dirname "$0")/..}/t/sh/python.sh"
#	python_test NAME

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

# The Python that configure found; a test that runs alone asks the build.
PYTHON=${PYTHON:-$(sed -n 's/^PYTHON = //p' "$builddir/Makefile" 2>/dev/null)}
test -n "$PYTHON" || skip_all "this build has no Python module"
test -e "$builddir/python/gpc/_gpc.abi3.so" || skip_all "the Python module is not built"
! grep -q '__[atu]b*san_' "$libs/libgpc.so" || skip_all "a sanitizer wants its own programs"

LD_LIBRARY_PATH=$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PYTHONPATH=$builddir/python:$srcdir/python/tests
PYTHONDONTWRITEBYTECODE=1
TMPDIR=$tmp
GPC_T_CACHE=$cache
other_caches="$cache-d $cache-f $cache-m $cache-w $cache-z"
export LD_LIBRARY_PATH PYTHONPATH PYTHONDONTWRITEBYTECODE GPC_T_CACHE TMPDIR

python_test()	# NAME
{
	# by run, so that the shell's traps work; with faulthandler, which says where it crashed
	"$PYTHON" -X faulthandler "$srcdir/python/tests/$1.py" &
	wait $!
	exit
}
