#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs of doc/cmd, which README.md and doc/ show: no compiler warns about them; the options of the service, which gpcd
# accepts.  Without room or without a writer the worker says so and goes on.  What they print: t/pages/commands.t.
# Tests: README.md doc/engine.md doc/cmd/ tools/daemon/gpcd@.service.in

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

library=$builddir/lib/.libs
test -e "$library/libgpc.so" || skip_all "no shared library in $builddir"
! grep -q '__[atu]b*san_' "$library/libgpc.so" || skip_all "a sanitizer wants its own programs"

# ---- its C ----

for file in worker match bytes lent serve; do
	sed "s/\"demo\"/\"$cache\"/" "$srcdir/doc/cmd/$file.c" >"$tmp/$file.c"
done
for compiler in gcc clang; do
	for file in worker match bytes lent serve; do
		conversion=-Wconversion
		test $file != serve || conversion=        # it is short
		if ! command -v $compiler >/dev/null; then
			skip 1 "there is no $compiler"
			continue
		fi
		run $compiler -std=c11 -Wall -Wextra $conversion -Werror -I"$srcdir/lib" -c \
			-o "$tmp/$file.o" "$tmp/$file.c"
		exits 0 "$file.c: $compiler warns about nothing"
	done
done

# ---- the worker ----

LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
cd "$tmp" || exit 99
run ${CC:-cc} -I"$srcdir/lib" worker.c -L"$library" -lgpc -o worker
exits 0 "the worker is compiled"
run "$tmp/worker"
is "$status $(grep -c "$cache" "$tmp/err")" '1 1' "without a cache it says so"

# ---- the options of the service ----

serves()	# PID
{
	gpc-inspect --json stat "$cache" >"$tmp/out" && test "$(value writer_pid)" = "$1"
}

sed "s/\([ -]\)demo\( \|\$\)/\1$cache\2/; /SPDX/d" "$srcdir/doc/cmd/service.env" >"$tmp/default"
is "$(grep -cv '^#' "$tmp/default")" 1 "doc/operate.md has a file of options"
unit=$srcdir/tools/daemon/gpcd@.service.in
is "$(sed -n "s/%i\$/$cache/; s/^EnvironmentFile=-//p" "$unit")" \
	"$(sed -n 's/^# //p' "$tmp/default")" "which the unit reads"
grep -q '^ExecStart=.*/gpcd %i --foreground \$GPCD_OPTIONS$' "$unit"
ok $? "and passes to gpcd in the foreground"
. "$tmp/default"
# no group but our own is there on every machine
set -- $(echo "$GPCD_OPTIONS" | sed "s/--group [^ ]*/--group $(id -gn)/")
is "$(printf '%s\n' "$@" | grep -Ec -e '^--(block-size|vram-blocks|group)$')" 3 \
	"it has sizes and a group"
start service gpcd "$cache" --foreground "$@"
until_ok serves "$pid"
ok $? "gpcd serves with these options" "$tmp/service.err"
kill "$pid"
finish "$pid"
is "$status" 0 "and ends well"
run gpc-inspect rm "$cache"
exits 0 "the cache goes"

# ---- no room, and no writer ----

serve_demo()
{
	run gpcd "$cache" --block-size 16 --vram-blocks "$1" --daemonize --pidfile "$tmp/gpcd.pid"
	exits 0 "a daemon for $1 blocks"
}

fails()	# REGEX NAME: it says so once, and is done all the same
{
	run "$tmp/worker"
	is "$status $(cat "$tmp/out")" '0 0 of 63 blocks were cached' "$2: it goes on"
	is "$(grep -c . "$tmp/err")" 1 "$2: one line"
	says "$1" "$2: why"
}

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
