#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file that nobody builds proves nothing: every test, source and page stands in the local.mk
# beside it.

srcdir=${top_srcdir:-$(dirname "$0")/..}
cd "$srcdir" || exit 99

n=0
registered()	# WHAT MAKEFILE NAMES...
{
	what=$1 makefile=$2
	shift 2
	missing=
	for name; do
		grep -q "/$name\( \|\$\)" "$makefile" || missing="$missing $name"
	done
	n=$((n + 1))
	if test -n "$missing" || test $# = 0; then
		echo "not ok $n - $what"
		echo "# not in $makefile:$missing"
	else
		echo "ok $n - $what"
	fi
}

# FOLDER PATTERN...: the names
names()
{
	dir=$1
	shift
	(cd "$dir" && ls $*)
}

registered "every program of t/" t/local.mk $(names t '[0-9]*.c' | sed 's/c$/t/')
registered "every script of t/" t/local.mk $(names t '[0-9]*.t' | while read -r t; do
	test -e "t/${t%.t}.c" || echo "$t"
done)
registered "every header of t/" t/local.mk $(names t '*.h')
registered "every program of t/torture/" t/torture/local.mk \
	$(names t/torture '*.c' | sed 's/c$/t/')
registered "every other file of t/torture/" t/torture/local.mk $(names t/torture '*.h' '*.md')
registered "every source of lib/" lib/local.mk $(names lib '*.c' '*.h')
registered "every source of tools/" tools/local.mk $(names tools '*.c' '*.h')
registered "every file of kernels/" kernels/local.mk $(names kernels '*.h')
echo "1..$n"
