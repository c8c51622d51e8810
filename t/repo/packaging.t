#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each file that "make install" installs is in one Debian package, and in one of the RPM spec.
# Tests: debian/ packaging/gpc.spec

builddir=$(cd "${top_builddir:-.}" && pwd) || exit 99
srcdir=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd) || exit 99
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-t-921-$$.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' 0
trap 'exit 1' 1 2 15
test -f "$builddir/Makefile" || {
	echo "1..0 # SKIP there is no build"
	exit 0
}
unset MAKEFLAGS MFLAGS MAKELEVEL

# what automake has an installation of: "FOLDER FILE", as in a package of Debian's
kinds=$(sed -n 's/^\([a-zA-Z_]*\)_\(DATA\|PROGRAMS\|HEADERS\|LTLIBRARIES\) = .*/\1 \2/p' "$builddir/Makefile" | sort -u |
	grep -v -e '^noinst ' -e '^check ' -e '^EXTRA ' -e '^am_' -e '^install_sh ' -e '^INSTALL ' -e '^lib ' | tr ' ' '_')
{
	echo 'include Makefile'
	echo '921:'
	for kind in $kinds; do
		short=${kind#nodist_}
		short=${short#dist_}
		printf '\t@for f in $(%s); do echo "$(%sdir)/$${f##*/}"; done\n' "$kind" "${short%_*}"
	done
	printf '\t@for f in $(dist_man_MANS); do echo "$(mandir)/man$${f##*.}/$${f##*/}"; done\n'
} >"$tmp/mk"
make -s -C "$builddir" -f "$tmp/mk" 921 prefix=/usr exec_prefix=/usr libdir=/usr/lib/x datarootdir=/usr/share \
	datadir=/usr/share mandir=/usr/share/man systemdsystemunitdir=/lib/systemd/system >"$tmp/all" 2>"$tmp/err"
{
	# a plugin is its .so: packages have no libtool files
	grep '^/' "$tmp/all" | sed 's/\.la$/.so/' | grep -v -e /python -e '^/lib/systemd' # units are installed where there is systemd
	printf '%s\n' /usr/lib/x/libgpc.so /usr/lib/x/libgpc.so.1 /lib/systemd/system/gpcd@.service
} | sort -u >"$tmp/files"

n=0
each_once()	# NAME FILES PATTERNS
{
	n=$((n + 1))
	while read -r file; do
		times=0
		while read -r pattern; do
			case $file in
			$pattern | $pattern/*) times=$((times + 1)) ;;
			esac
		done <"$3"
		test $times = 1 || echo "# $file: in $times packages"
	done <"$2" >"$tmp/wrong"
	test -s "$tmp/wrong" && echo "not ok $n - $1" || echo "ok $n - $1"
	cat "$tmp/wrong"
}

echo 1..3
n=1
test "$(wc -l <"$tmp/files")" -gt 100 && grep -q '/gpc[.]json$' "$tmp/files" && grep -q '/gpc-inspect$' "$tmp/files"
test $? = 0 && echo "ok 1 - there are files" || { echo "not ok 1 - there are files"; sed 's/^/# /' "$tmp/err" "$tmp/files"; }

# debian/rules moves what zsh reads
sed 's|zsh/site-functions|zsh/vendor-completions|' "$tmp/files" >"$tmp/debian-files"
cat "$srcdir"/debian/*.install | sed 's|^|/|' >"$tmp/debian"
each_once "each of them is in a Debian package" "$tmp/debian-files" "$tmp/debian"

sed -n '/^%files/,/^%changelog/p' "$srcdir/packaging/gpc.spec" | grep '^%{' | sed 's|%{_libdir}|/usr/lib/x|
	s|%{_includedir}|/usr/include|; s|%{_mandir}|/usr/share/man|; s|%{_bindir}|/usr/bin|; s|%{_sbindir}|/usr/sbin|
	s|%{_datadir}|/usr/share|; s|%{_unitdir}|/lib/systemd/system|' >"$tmp/spec"
each_once "and in one of the spec" "$tmp/files" "$tmp/spec"
