#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The wheel of make wheel: the same bytes twice; a tag that its objects keep; and, installed where nothing else of gpc is, a
# daemon, a tool, stores and two processes that share a block.  Where this user may, the build and the libraries that the wheel
# has brought along are hidden meanwhile.
# Tests: python/wheel.py python/gpc/programs.py lib/tiers/remote/plugin.c
# Needs: tools/gpc-replay

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
PYTHONPATH=
command -v dpkg-query >/dev/null || skip_all "licences of libraries are those of Debian's packages, and there is no dpkg-query"

# ---- made, twice ----

unset MAKEFLAGS MFLAGS MAKELEVEL
SOURCE_DATE_EPOCH=1700000000
export SOURCE_DATE_EPOCH
made()	# FOLDER
{
	run make --no-print-directory -C "$builddir" wheel WHEEL_DIR="$tmp/$1" WHEEL_STAGE="$tmp/$1.stage"
}
made one
if grep -q 'is of no package of Debian' "$tmp/out" "$tmp/err"; then
	skip_all "$(sed -n 's/^wheel.py: //p' "$tmp/out" "$tmp/err")"
fi
exits 0 "make wheel"
wheel=$(echo "$tmp"/one/gpc-*.whl)
test -s "$wheel" || bail "$(cat "$tmp/out" "$tmp/err")"
version=$(sed -n 's/^PACKAGE_VERSION = //p' "$builddir/Makefile")
like "$(basename "$wheel")" "^gpc-$version-cp311-abi3-manylinux_2_[0-9]+_$(uname -m)[.]whl\$" "its name has version and tags"
umask 077
made two
umask 022
cmp "$wheel" "$tmp/two/$(basename "$wheel")" >"$tmp/out" 2>&1
ok $? "another one of the same tree has the same bytes, whatever the umask" "$tmp/out"

# ---- installed ----

venv=$tmp/venv
mkdir "$tmp/away"
unpack="import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])"
"$PYTHON" -m venv --without-pip "$venv" 2>"$tmp/err" || bail "$PYTHON -m venv: $(cat "$tmp/err"); its package is python3-venv"
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
installed="unpacked: there is no pip of this Python"
if "$PYTHON" -m pip --version 2>/dev/null | grep -q '^pip \(2[3-9]\|[3-9]\)'; then
	run "$PYTHON" -m pip --python "$venv/bin/python" --disable-pip-version-check --no-cache-dir install -q --no-index \
		--no-deps --no-compile "$wheel"
	installed="pip installs it"
else
	run "$PYTHON" -c "$unpack" "$wheel" "$site"
	chmod +x "$site"/gpc/bin/*
	for tool in gpcd gpc-inspect; do
		printf '#!/bin/sh\nexec "%s" -c "from gpc.programs import %s; %s()" "$@"\n' "$venv/bin/python" \
			$(echo $tool $tool | tr - _) >"$venv/bin/$tool"
		chmod +x "$venv/bin/$tool"
	done
fi
exits 0 "$installed"
rm -rf "$tmp"/one.stage "$tmp"/two.stage "$tmp/two"

# ---- its objects ----

lib=$site/gpc/lib
for object in "$site"/gpc/_gpc.abi3.so "$site"/gpc/bin/* "$lib"/gpc/*.so "$lib"/libgpc.so.*; do
	env -i ldd "$object" | sed "s|^|$(basename "$object"): |"
done >"$tmp/out" 2>&1
! grep -F -e "$builddir" -e 'not found' "$tmp/out" >"$tmp/err"
ok $? "nothing of what they load is of the build, and nothing is missing" "$tmp/err"
ls "$lib" | grep '^lib' >"$tmp/names"
grep -v '^libgpc[.]so' "$tmp/names" >"$tmp/names.libs"
awk '{ print $2, $4 }' "$tmp/out" | grep -Ff "$tmp/names" | grep -v -e " $lib/" -e " $site/gpc/bin/[.][.]/lib/" >"$tmp/err"
! test -s "$tmp/err"
ok $? "whatever the wheel has, they load from there" "$tmp/err"
awk '{ print $2 }' "$tmp/out" | grep -v -e '^lib\(c\|m\|dl\|rt\|pthread\|resolv\|stdc++\|gcc_s\)[.]so' -e '^linux-vdso' -e '/ld-linux' |
	sort -u | grep -vFf "$tmp/names" >"$tmp/err"
! test -s "$tmp/err"
ok $? "the rest is what each system of the tag has" "$tmp/err"
least=$(echo "$wheel" | sed 's/.*manylinux_2_\([0-9]*\)_.*/\1/')
find "$site/gpc" -name '*.so*' -o -path '*/bin/*' | xargs readelf -VW |
	sed -n 's/.*Name: GLIBC_2[.]\([0-9]*\) .*/\1/p' | sort -n | tail -n 1 >"$tmp/out"
test "$(cat "$tmp/out")" -le "$least"
ok $? "no symbol is newer than the C library of the tag" "$tmp/out"
info=$site/gpc-$version.dist-info
sed -n 's/^\(lib[^:]*\): package .*/\1/p' "$info/licenses/BUNDLED" | cmp - "$tmp/names.libs" >"$tmp/out" 2>&1
ok $? "each library that it brings has a row in BUNDLED" "$tmp/out"
for package in $(sed -n 's/^lib[^:]*: package \([^:,]*\).*/\1/p' "$info/licenses/BUNDLED"); do
	test -s "$info/licenses/$package.copyright" || echo "$package"
done >"$tmp/out"
! test -s "$tmp/out" && test -s "$info/licenses/LICENSE"
ok $? "and a licence" "$tmp/out"

# ---- used ----

cat >"$tmp/hidden" <<'END'
build=$1 names=$2
shift 2
mount -t tmpfs none "$build" || exit 99
for name in $(cat "$names"); do
	at=$(/sbin/ldconfig -p | sed -n "s|.*$name (.*=> ||p" | head -n 1)
	test -z "$at" || mount --bind /dev/null "$at" || exit 99
done
cd / && exec "$@"
END
unshare -m true 2>/dev/null && hide="unshare -m sh $tmp/hidden $builddir $tmp/names.libs" || hide=
inside()	# CMD...
{
	cd "$tmp/away" && exec env -i GPC_T_CREW="$tmp" LC_ALL=C PATH="$venv/bin:/usr/bin:/bin" $hide "$@"
}
alone()	# CMD...
{
	(inside "$@") >"$tmp/out" 2>"$tmp/err" &
	wait $!
	status=$?
}

alone python -c 'import gpc, gpc.programs, os, sys; print(gpc.version() if hasattr(gpc, "version") else "", os.path.dirname(gpc.__file__))'
is "$status $(grep -cF "$site/gpc" "$tmp/out")" "0 1" "import gpc${hide:+, with the build and the libraries that it brings hidden}"
mkdir "$tmp/store"
(inside gpcd d --dir "$shm" --block-size 16 --max-blocks 1000 --remote-blocks 100 --ram-blocks 32 --block-bytes 4k --key-file "$tmp/key" \
	--remote "folder:dir=$tmp/store" --foreground --pidfile "$tmp/d.pid") >"$tmp/d.out" 2>"$tmp/d.err" &
until_ok grep -q serving "$tmp/d.err" || bail "$(cat "$tmp/d.err")"
is "$(cat "/proc/$(cat "$tmp/d.pid")/comm")" gpcd "gpcd serves, as a process of that name"
alone gpc-inspect --dir "$shm" stat d
exits 0 "gpc-inspect looks"
prints '^state: +served$' "and says so"
prints '^REMOTE .* up ' "and has found the plugin of its store beside the library"
cat >"$tmp/block.py" <<'END'
import sys
import gpc

do, folder = sys.argv[1:]
with gpc.attach("d", dir=folder) as c:
    root = c.key_root([(1, b"model")])
    keys = c.key_hash(root, list(range(16)))
    (part,), run = c.pool_map(0), c.pool_runs(0)[0]
    if do == "put":
        (block,) = c.reserve(0, 1, timeout=5)
    else:
        (block,) = c.acquire(keys)
    at = run.offset + (block & 0xffffff) * run.slot_stride
    with memoryview(part) as view:
        if do == "put":
            view[at:at + 8] = b"computed"
            c.publish(root, keys, [block])
        else:
            print(bytes(view[at:at + 8]).decode())
    c.release([block])
END
alone python "$tmp/block.py" put "$shm"
exits 0 "one process stores a block"
alone python "$tmp/block.py" get "$shm"
is "$status $(cat "$tmp/out")" "0 computed" "another one finds it, with its bytes"
if test -e "$lib/gpc/gpc_remote_redis.so"; then
	alone gpcd e --dir "$shm" --block-size 16 --max-blocks 1000 --remote-blocks 100 --ram-blocks 32 --block-bytes 4k --key-file "$tmp/key" \
		--remote redis:server=nowhere,colour=red
	says 'colour' "the plugin for Redis is loaded too: it refuses its option"
else
	skip 1 "this build has no plugin for Redis"
fi
alone python -c 'import os, subprocess, sys
r, w = os.pipe()
os.close(r)
print(subprocess.run(sys.argv[1:], stdout=w).returncode)' gpc-inspect --dir "$shm" stat d
is "$(cat "$tmp/out" "$tmp/err")" "-13" "a tool without a reader ends by SIGPIPE, which Python had ignored"
kill "$(cat "$tmp/d.pid")"
wait

done_testing
