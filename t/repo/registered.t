#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file that nobody builds proves nothing: every test, source and page stands in the local.mk
# beside it.
# Tests: t/local.mk lib/local.mk tools/local.mk python/local.mk plugins/local.mk kernels/local.mk
#   t/gpu/check

srcdir=${top_srcdir:-$(dirname "$0")/../..}
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

# FOLDER: the sources in it and below it
sources()
{
	(cd "$1" && find . -name '*.c' -o -name '*.h' | sed 's|^\./||' | sort)
}

registered "every header of t/" t/local.mk $(names t 'lib/*.h')
registered "every script that tests share" t/local.mk $(names t 'sh/*.sh' sh/driver sh/needs repo/abi repo/heads)

# A room has the tests of a folder of lib/, or of a part of the project; those with a local.mk of
# their own come below, and these have what tests are helped by.
for room in t/*/; do
	room=${room#t/}
	room=${room%/}
	case $room in
	data | events | gpu | lib | model | sh) continue ;;
	esac
	test ! -e "t/$room/local.mk" || continue
	test -n "$(ls "t/$room")" || continue # git leaves no empty folder, a file system may
	registered "every test of t/$room/" t/local.mk $(names t "$room/*.[ct]" | sed 's/c$/t/' | sort -u)
done
registered "every source of plugins/" plugins/local.mk $(sources plugins)
registered "every program of t/cluster/" t/cluster/local.mk $(names t/cluster '*.c' | sed 's/c$/t/')
registered "every script of t/cluster/" t/cluster/local.mk $(names t/cluster '*.t')
registered "every program of t/torture/" t/torture/local.mk \
	$(names t/torture '*.c' | sed 's/c$/t/')
registered "every other file of t/torture/" t/torture/local.mk $(names t/torture '*.h' '*.md')
registered "every file of t/torture/mutants/" t/torture/local.mk \
	$(names t/torture 'mutants/*.c' 'mutants/*.md' mutants/run mutants/table)
registered "every harness of t/fuzz/" t/fuzz/local.mk \
	$(names t/fuzz '*.c' | grep -v virtual | sed 's/c$/t/')
registered "every other file of t/fuzz/" t/fuzz/local.mk $(names t/fuzz '*.h' 'virtual.c' '*.md' \
	libfuzzer)
registered "every source of lib/" lib/local.mk $(sources lib)
registered "every source of tools/" tools/local.mk $(sources tools)
registered "every source of python/" python/local.mk $(sources python) $(names python '*.py' '*.md' \
	'gpc/*.py' 'gpc/*.pyi' 'gpc/*/*.py' 'gpc/*/*.md' 'tests/*.py' 'bench/*.py' 'engines/*.*')
registered "every file of kernels/" kernels/local.mk $(names kernels '*.h')

# t/gpu/check asks whether there is a GPU before anything is run.
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-917-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
cp t/gpu/check "$tmp"
printf '#!/bin/sh\necho "no GPU here: none"\nexit 77\n' >"$tmp/there"
printf '#!/bin/sh\necho ran\n' >"$tmp/600-some.t"
chmod +x "$tmp/there" "$tmp/600-some.t"
n=$((n + 1))
said=$(sh "$tmp/check" 2>&1)
if test "$?:$said" = "77:no GPU here: none"; then
	echo "ok $n - t/gpu/check without a GPU"
else
	echo "not ok $n - t/gpu/check without a GPU: $said"
fi
echo "1..$n"
