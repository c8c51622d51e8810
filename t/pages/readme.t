#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What README.md shows, taken from there: the workers, which no compiler warns about; the
# commands below each, which find its blocks the second time, also in RAM; and the options of the service,
# which gpcd accepts.  Without room or without a writer the worker says so and goes on.
# Tests: README.md tools/daemon/gpcd@.service.in

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

library=$builddir/lib/.libs
test -e "$library/libgpc.so" || skip_all "no shared library in $builddir"
! grep -q '__[atu]b*san_' "$library/libgpc.so" || skip_all "a sanitizer wants its own programs"

# the fenced block of that kind in which a line is like REGEX, in a cache of this test's name
fenced()	# KIND REGEX
{
	awk -v kind="$1" -v regex="$2" '
	$0 == "```" kind { on = 1; text = ""; next }
	/^```/ { if (on && found) { printf "%s", text; exit } on = found = 0 }
	on { text = text $0 "\n"; found = found || $0 ~ regex }' "$srcdir/README.md" |
		sed "s/\"demo\"/\"$cache\"/; s/\([ -]\)demo\( \|\$\)/\1$cache\2/"
}

# ---- its C ----

fenced c '^int main' >"$tmp/worker.c"
grep -q "\"$cache\"" "$tmp/worker.c"
ok $? "README.md has a worker"
fenced c '^int match_there' >"$tmp/match.c"
test -s "$tmp/match.c"
ok $? "and a function for a GPU"
fenced c 'gpc_fetch[(]' >"$tmp/bytes.c"
grep -q "\"$cache\"" "$tmp/bytes.c"
ok $? "and a worker that fetches"
for compiler in gcc clang; do
	for file in worker match bytes; do
		if ! command -v $compiler >/dev/null; then
			skip 1 "there is no $compiler"
			continue
		fi
		run $compiler -std=c11 -Wall -Wextra -Wconversion -Werror -I"$srcdir/lib" -c \
			-o "$tmp/$file.o" "$tmp/$file.c"
		exits 0 "$file.c: $compiler warns about nothing"
	done
done

# ---- the commands, as they are written there ----

# what is not installed: the compiler of this build, and what pkg-config would say
mkdir "$tmp/bin"
cat >"$tmp/bin/cc" <<-END
	#!/bin/sh
	PATH="$PATH" exec ${CC:-cc} "\$@"
END
cat >"$tmp/bin/pkg-config" <<-END
	#!/bin/sh
	test "\$*" = '--cflags --libs libgpc' && echo -I"$srcdir/lib" -L"$library" -lgpc
END
chmod +x "$tmp/bin/cc" "$tmp/bin/pkg-config"
LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
cd "$tmp" || exit 99

fenced sh '^gpcd demo .*--vram-blocks [0-9]+ --daemonize' >"$tmp/commands"
is "$(grep -c . "$tmp/commands")" 6 "README.md has commands that run it"
run env PATH="$tmp/bin:$PATH" sh -e "$tmp/commands"
exits 0 "all of them succeed"
is "$(sed -n '1,2p' "$tmp/out")" "0 of 63 blocks were cached
63 of 63 blocks were cached" "the first worker finds none, the second one all"
prints "^cache: +$cache\$" "stat shows the cache"
is "$(ls /dev/shm | grep -F "gpc.$cache.")" '' "and nothing is left"
test -x "$tmp/worker" || bail "there is no worker"

run "$tmp/worker"
is "$status $(grep -c "$cache" "$tmp/err")" '1 1' "without a cache it says so"

fenced sh '^gpcd demo --keep' >"$tmp/commands"
is "$(grep -c . "$tmp/commands")" 7 "README.md has commands for the one that fetches"
run env PATH="$tmp/bin:$PATH" sh -e "$tmp/commands"
exits 0 "all of them succeed"
is "$(sed -n '1p' "$tmp/out")" '0 of 63 blocks were cached, 0 of them in RAM' "the first one finds none"
# how many the keeper has spilled within a second is the machine's affair
prints '^63 of 63 blocks were cached, [1-9][0-9]* of them in RAM$' "the second one all of them"
is "$(ls /dev/shm | grep -F "gpc.$cache.")" '' "and nothing is left"

# ---- the options of the service ----

serves()	# PID
{
	gpc-inspect --json stat "$cache" >"$tmp/out" && test "$(value writer_pid)" = "$1"
}

fenced sh '^GPCD_OPTIONS=' >"$tmp/default"
is "$(grep -cv '^#' "$tmp/default")" 1 "README.md has a file of options"
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
