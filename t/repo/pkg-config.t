#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program that uses the shared library needs libgpc.pc and nothing of what the library itself
# was built with.
# Tests: lib/libgpc.pc.in

builddir=${top_builddir:-.}
pkg_config=${PKG_CONFIG:-pkg-config}
command -v "$pkg_config" >/dev/null 2>&1 && test -f "$builddir/lib/libgpc.pc" || {
	echo "1..0 # SKIP there is no pkg-config, or no build"
	exit 0
}
unset PKG_CONFIG_PATH
PKG_CONFIG_LIBDIR=$builddir/lib         # where no other package is
export PKG_CONFIG_LIBDIR

n=0
has()	# NAME WORD OPTION...
{
	name=$1
	word=$2
	shift 2
	n=$((n + 1))
	got=$("$pkg_config" "$@" libgpc 2>&1) && case " $got " in
	*" $word "*) true ;;
	*) false ;;
	esac && echo "ok $n - $name" || {
		echo "not ok $n - $name"
		printf '%s\n' "$got" | sed 's/^/# /'
	}
}

echo 1..4
has "compiling" "-I$("$pkg_config" --variable=includedir libgpc)" --cflags
has "linking" -lgpc --libs
has "both" -lgpc --cflags --libs
has "linking statically names what the library needs" -lurcu-bp --static --libs
