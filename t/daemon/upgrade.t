#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The day of a new version, as gpc-upgrade(7) has it: a library of the next layout serves a cache of another name beside
# the old one, gpc-drain ends the old one behind its last engine, and the disk file goes over.
# Tests: tools/daemon/gpc-drain man/gpc-upgrade.7 lib/index/segment/shm.h

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

# ---- the new version: the same sources, with another number of the layout ----

archive=$builddir/lib/.libs/libgpc-internal.a
test -e "$archive" || skip_all "libgpc was built without its archive"
mkdir "$tmp/new"
# shellcheck disable=SC2046
later=$(($(sed -n "s/^#define SHM_VERSION *\([0-9]*\)u.*/\1/p" "$srcdir/lib/index/segment/shm.h") + 1))
for source in $(cd "$srcdir/lib" && grep -rl '\<SHM_VERSION\>' --include='*.c' .); do
	object=$tmp/new/$(echo "${source#./}" | tr / _).o
	${CC:-cc} -DSHM_VERSION=${later}u -D_GNU_SOURCE -std=gnu11 -O1 -fPIC -fvisibility=hidden -I"$builddir" -I"$srcdir/lib" \
		-I"$srcdir" -c "$srcdir/lib/$source" -o "$object" >"$tmp/cc" 2>&1 || bail "$(cat "$tmp/cc")"
done
needed=$(sed -n "s/^dependency_libs='\(.*\)'/\1/p" "$builddir/lib/libgpc.la")
# shellcheck disable=SC2086
${CC:-cc} -shared -Wl,-soname,libgpc.so.1 -o "$tmp/new/libgpc.so.1" "$tmp"/new/*.o -Wl,-z,muldefs \
	-Wl,--whole-archive "$archive" -Wl,--no-whole-archive -Wl,--version-script="$srcdir/lib/libgpc.sym" $needed \
	>"$tmp/ld" 2>&1 || bail "$(cat "$tmp/ld")"

new()	# CMD...: with the new library
{
	LD_LIBRARY_PATH=$tmp/new "$@"
}

begin()	# LABEL NAME WHICH-LIBRARY OPTION...: $pid
{
	label=$1 of=$2 library=$3
	shift 3
	start "$label" env LD_LIBRARY_PATH="$library" setsid gpcd "$of" --dir "$shm" "$@"
	until_ok grep -q 'serving as process\|standing by' "$tmp/$label.err" || bail "$(cat "$tmp/$label.err")"
}

says()	# LABEL PATTERN
{
	grep -q -e "$2" "$tmp/$1.err"
}

PATH=$srcdir/tools/daemon:$PATH
drain=$srcdir/tools/daemon/gpc-drain
refuses 2 'which cache' gpc-drain
refuses 2 'no option --wait' gpc-drain --wait
refuses 2 'one argument too many' gpc-drain a b
refuses 1 "there is no cache llama" gpc-drain --dir "$shm" llama

# ---- before: an old cache with engines, a standby and a disk ----

cat >"$tmp/old.conf" <<END
[gpc]
key-file = $tmp/llama.key
disk = $tmp/llama.disk
disk-blocks = 100
[gpcd]
block-size = 16
ram-blocks = 64
block-bytes = 4k
max-peers = 16
END
begin old llama "$libs" --config "$tmp/old.conf"
old=$pid
begin standby llama "$libs" --config "$tmp/old.conf" --standby
standby=$pid
start engine env LD_LIBRARY_PATH="$libs" "$helpers/hold" "$shm" llama engine 5 0 0
until_ok grep -q holding "$tmp/engine.out" || bail "$(cat "$tmp/engine.err")"
engine=$pid

# ---- the new one beside it ----

run env LD_LIBRARY_PATH="$tmp/new" gpcd llama --dir "$shm" --config "$tmp/old.conf"
exits 1 "the new gpcd does not serve the old cache"
like "$(cat "$tmp/err")" 'made by an older gpc|made by gpc 0\.[0-9.]* \(layout [0-9]+\); this library is newer' "and says why"
sed 's/^disk.*//; s/^max-peers.*/&\nmax-blocks = 1000/' "$tmp/old.conf" >"$tmp/new.conf"
begin next llama-2 "$tmp/new" --config "$tmp/new.conf"
next=$pid
ok 0 "it serves another name with the same secret"
run env LD_LIBRARY_PATH="$libs" gpc-inspect --dir "$shm" check llama
exits 0 "the old one is sound meanwhile"
run env LD_LIBRARY_PATH="$libs" gpc-inspect --dir "$shm" stat llama-2
exits 1 "old tools do not read the new one"

# ---- the old one is drained, by the new tools ----

start drain env LD_LIBRARY_PATH="$tmp/new" sh "$drain" --dir "$shm" llama
drained=$pid
until_ok grep -q "it waits for 1 processes: $engine (hold)" "$tmp/drain.out"
ok $? "gpc-drain names the engine that it waits for" "$tmp/drain.out"
kill -0 "$old"
ok $? "the old gpcd serves it"
kill "$engine"
finish "$engine"
is "$status" 0 "the engine ends"
finish "$drained"
is "$status" 0 "and so does gpc-drain" "$tmp/drain.err"
is "$(tail -n 1 "$tmp/drain.out")" "gpc-drain: llama is removed" "behind the old cache"
finish "$old"
is "$status" 0 "the old gpcd has ended well" "$tmp/old.err"
finish "$standby"
is "$status" 0 "its standby, too" "$tmp/standby.err"
is "$(ls "$shm" | grep -c '^gpc\.llama\.')" 0 "no file is left"

# ---- the disk goes over ----

cp "$tmp/old.conf" "$tmp/new.conf"
kill -HUP "$next"
until_ok says next "tier disk: $tmp/llama.disk, 100 blocks"
ok $? "the new gpcd takes the file of the old one over at SIGHUP" "$tmp/next.err"
kill "$next"
finish "$next"
is "$status" 0 "and ends well" "$tmp/next.err"

# ---- a file of a later format ----

printf '\377' | dd of="$tmp/llama.disk" bs=1 seek=8 conv=notrunc 2>"$tmp/dd"
printf '\377' | dd of="$tmp/llama.disk" bs=1 seek=$((65536 + 8)) conv=notrunc 2>"$tmp/dd"
sum=$(sha256sum <"$tmp/llama.disk")
run gpcd third --dir "$shm" --config "$tmp/old.conf"
exits 1 "a file of a later format is refused"
like "$(cat "$tmp/err")" 'llama.disk has version 255 of the format, this reads 1 to [0-9]+:' "and its version named"
is "$(sha256sum <"$tmp/llama.disk")" "$sum" "no byte of it has changed"

done_testing
