#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The worker of README.md, and the commands below it one after the other: with a writer it finds its
# blocks the second time, without one it says so and goes on, and the cache can be removed at once.

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

library=$builddir/lib/.libs
test -e "$library/libgpc.so" || skip_all "no shared library in $builddir"
! grep -q '__[atu]b*san_' "$library/libgpc.so" || skip_all "a sanitizer wants its own programs"

# the first block of C, in a cache of this test's name
awk '
/^```c$/ { on = 1; next }
/^```/ { if (on) exit }
on { print }' "$srcdir/README.md" | sed "s/\"demo\"/\"$cache\"/" >"$tmp/worker.c"
grep -q "\"$cache\"" "$tmp/worker.c"
ok $? "README.md has a worker"
run ${CC:-cc} -std=c11 -I"$srcdir/lib" -o "$tmp/worker" "$tmp/worker.c" -L"$library" -lgpc
exits 0 "which is built"
LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

run "$tmp/worker"
is "$status $(grep -c "$cache" "$tmp/err")" '1 1' "without a cache it says so"

serve_demo()
{
	run gpcd "$cache" --block-size 16 --vram-blocks "$1" --daemonize --pidfile "$tmp/gpcd.pid"
	exits 0 "a daemon for $1 blocks"
}

works()	# HIT NAME: it is done, and has nothing to complain of
{
	run "$tmp/worker"
	is "$status $(cat "$tmp/out" "$tmp/err")" "0 $1 of 63 blocks were cached" "$2"
}

fails()	# REGEX NAME: it says so once, and is done all the same
{
	run "$tmp/worker"
	is "$status $(cat "$tmp/out")" '0 0 of 63 blocks were cached' "$2: it goes on"
	is "$(grep -c . "$tmp/err")" 1 "$2: one line"
	says "$1" "$2: why"
}

# ---- as it is written there ----

serve_demo 10000
works 0 "the first one finds none"
works 63 "the second one finds all"
run gpc-inspect stat "$cache"
exits 0 "stat"
kill "$(cat "$tmp/gpcd.pid")"
run gpc-inspect rm "$cache"
exits 0 "the cache goes, at once after the daemon was told to end"

# ---- no room, and no writer ----

serve_demo 62
fails 'n is 63: .* has 62 blocks in all' "no room"
inspect_here()
{
	gpc-inspect --json stat "$cache" >"$tmp/out" && value stats/refs stats/reserved
}
is "$(inspect_here | paste -sd' ' -)" '0 0' "and it holds nothing"
kill "$(cat "$tmp/gpcd.pid")"
run gpc-inspect rm "$cache"
exits 0 "it goes"
serve_demo 10000
daemon=$(cat "$tmp/gpcd.pid")
kill -9 "$daemon"
until_ok is_gone "$daemon"
fails 'no process is the writer' "no writer"
run gpc-inspect rm "$cache"
exits 0 "rm"

done_testing
