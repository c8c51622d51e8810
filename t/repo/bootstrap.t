#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The arguments that bootstrap hands to make: targets one by one, and variables with each of them.  In a copy that
# builds nothing.
# Tests: bootstrap doc/install.md
. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

tree="$tmp/a tree"
bin=$tmp/bin
mkdir -p "$tree/build" "$tree/m4" "$tree/lib" "$bin"
cp "$srcdir/bootstrap" "$tree"
touch "$tree/configure.ac" "$tree/Makefile.am" "$tree/m4/gpc.m4" "$tree/lib/local.mk"
touch "$tree/configure" "$tree/Makefile.in" "$tree/build/config.status"
echo "$tree " >"$tree/build/.bootstrap"

program()	# NAME TEXT
{
	printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
	chmod +x "$bin/$1"
}

# one line for each call, each argument in brackets
program make "for i; do printf '[%s]' \"\$i\"; done >>'$tmp/calls'; echo >>'$tmp/calls'"
program pkg-config 'exit 0'
program cc 'exit 0'
program apt-get 'exit 1'
PATH=$bin:$PATH
PKG_CONFIG=pkg-config
CC=cc
export PATH PKG_CONFIG CC
unset TRACE GPC_CONFIGURE_ARGS

calls()	# ARGUMENTS: $tmp/got has what came to make, without the arguments of every call
{
	: >"$tmp/calls"
	"$tree/bootstrap" "$@" >"$tmp/out" 2>&1 || echo "status $?" >>"$tmp/calls"
	sed 's/^\[--no-print-directory\]\[-C\]\[build\]\[-j\]\[[0-9]*\]/make /' "$tmp/calls" >"$tmp/got"
}

are()	# NAME LINE...
{
	name=$1
	shift
	printf '%s\n' "$@" >"$tmp/want"
	diff "$tmp/want" "$tmp/got" >"$tmp/differs"
	ok $? "$name" "$tmp/differs"
}

calls
are "no argument: all is built" "make "

calls install gpu-tests
are "targets are made one after the other" "make " "make [install]" "make [gpu-tests]"

calls install prefix=/opt/gpc
are "a variable is no target, and goes with each" "make [prefix=/opt/gpc]" "make [install][prefix=/opt/gpc]"

cd "$tmp" || exit 99
here=$PWD
given="[DESTDIR=$here/root][prefix=$here/the 'first' one][V=1][X=\$HOME *]"
calls DESTDIR=root "prefix=the 'first' one" V=1 install "X=\$HOME *"
are "folders are the caller's, and values stay whole" "make $given" "make [install]$given"

calls demo TRACE=x.jsonl
are "a trace is in the environment" "make " "make [demo]"

calls =x install
are "a value without a name is refused, and nothing made" "status 1"

grep -q 'bootstrap install DESTDIR=/tmp/root' "$srcdir/doc/install.md"
ok $? "doc/install.md says so"

done_testing
