#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc_remote(7) is enough to write a plugin: the one that it shows is compiled by its command, loaded, and works.
# Tests: man/gpc_remote.7 lib/gpc_remote.h

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

CC=${CC:-cc}
! grep -q '__[atu]b*san_' "$libs/libgpc.so" || skip_all "a sanitizer wants its own programs"
chmod 755 "$tmp"
store=$helpers/store

awk '/^\.Sh EXAMPLES/ { on = 1 } on && /^\.Bd -literal$/ { code = 1; next } /^\.Ed/ { code = 0 } code' \
	"$srcdir/man/gpc_remote.7" | sed 's/\\e/\\/g; s/\\-/-/g; s/\\&//g' >"$tmp/mine.c"
grep -q gpc_remote_plugin "$tmp/mine.c"
ok $? "the page has a plugin"
command=$(sed -n 's/^cc -shared -fPIC -o gpc_remote_mine.so mine.c$/yes/p' "$srcdir/man/gpc_remote.7")
is "$command" yes "and a command that compiles it"
(cd "$tmp" && $CC -Wall -Wextra -Werror -I"$srcdir/lib" -shared -fPIC -o gpc_remote_mine.so mine.c) >"$tmp/log" 2>&1
ok $? "which does, without a warning" "$tmp/log"
chmod 644 "$tmp/gpc_remote_mine.so"
run "$store" "$tmp/gpc_remote_mine.so" put 1 200
exits 0 "it is loaded"
prints '^200$' "and stores 200 images"
run "$store" "$tmp/gpc_remote_mine.so" put 1 300
prints '^256$' "as many as it has room for"
run "$store" "$tmp/gpc_remote_mine.so" both 1 100
prints '^100$' "and gives them back, byte by byte"
run "$store" "$tmp/gpc_remote_mine.so:colour=red" put 1 1
exits 1 "an option that it does not have is refused"
grep -q 'mine has no option colour; it takes none' "$tmp/err"
ok $? "by name" "$tmp/err"

# a table of another version, and one that lacks a function
sed 's/GPC_REMOTE_ABI,/GPC_REMOTE_ABI + 1,/' "$tmp/mine.c" >"$tmp/other.c"
(cd "$tmp" && $CC -I"$srcdir/lib" -shared -fPIC -o other.so other.c && chmod 644 other.so)
run "$store" "$tmp/other.so" put 1 1
exits 1 "a plugin for another version is refused"
grep -q 'was made for version 2 of gpc_remote.h, and this is version 1' "$tmp/err"
ok $? "which is said" "$tmp/err"
sed 's/GPC_REMOTE_ABI,/GPC_REMOTE_ABI - 1,/' "$tmp/mine.c" >"$tmp/older.c"
(cd "$tmp" && $CC -I"$srcdir/lib" -shared -fPIC -o older.so older.c && chmod 644 older.so)
run "$store" "$tmp/older.so" put 1 1
exits 1 "one for an older version is refused, too"
grep -q 'was made for version 0 of gpc_remote.h, and this is version 1' "$tmp/err"
ok $? "which is said" "$tmp/err"
# of the same version: a table that has grown at its end, one that ends behind what is needed, one that ends before that
{
	sed 's/= sizeof(struct gpc_remote_plugin)/= sizeof(struct gpc_remote_plugin) + 72/
		s/^const struct gpc_remote_plugin gpc_remote_plugin = {/static const struct gpc_remote_plugin mine = {/' "$tmp/mine.c"
	echo 'struct longer { struct gpc_remote_plugin p; void *more[9]; };'
	echo 'GPC_REMOTE_EXPORT struct longer grown __asm__("gpc_remote_plugin");'
	echo 'struct longer grown; __attribute__((constructor)) static void fill(void)'
	echo '{ memcpy(&grown.p, &mine, sizeof(mine)); memset(grown.more, 1, sizeof(grown.more)); }'
} >"$tmp/longer.c"
(cd "$tmp" && $CC -I"$srcdir/lib" -shared -fPIC -o longer.so longer.c && chmod 644 longer.so) 2>"$tmp/log"
run "$store" "$tmp/longer.so" both 1 10
prints '^10$' "one whose table has grown at its end works"
sed 's/\.size = sizeof(struct gpc_remote_plugin)/.size = offsetof(struct gpc_remote_plugin, tick)/' "$tmp/mine.c" >"$tmp/short.c"
(cd "$tmp" && $CC -I"$srcdir/lib" -shared -fPIC -o short.so short.c && chmod 644 short.so)
run "$store" "$tmp/short.so" both 1 10
prints '^10$' "and one that ends with remove"
sed 's/\.size = sizeof(struct gpc_remote_plugin)/.size = offsetof(struct gpc_remote_plugin, remove)/' "$tmp/mine.c" >"$tmp/shorter.c"
(cd "$tmp" && $CC -I"$srcdir/lib" -shared -fPIC -o shorter.so shorter.c && chmod 644 shorter.so)
run "$store" "$tmp/shorter.so" put 1 1
exits 1 "one that ends before it is refused"
grep -q 'has [0-9]* bytes, and at least [0-9]* are needed' "$tmp/err"
ok $? "which is said" "$tmp/err"
sed '/\.get = my_get,/d' "$tmp/mine.c" >"$tmp/lame.c"
(cd "$tmp" && $CC -I"$srcdir/lib" -shared -fPIC -o lame.so lame.c && chmod 644 lame.so) 2>/dev/null
run "$store" "$tmp/lame.so" put 1 1
exits 1 "one without get is refused"
grep -q 'lacks a name, or one of open, close, exists, get, put and remove' "$tmp/err"
ok $? "which is said" "$tmp/err"
echo 'int x;' >"$tmp/none.c"
(cd "$tmp" && $CC -shared -fPIC -o none.so none.c && chmod 644 none.so)
run "$store" "$tmp/none.so" put 1 1
exits 1 "a library that is no plugin is refused"
grep -q 'is no plugin: it has no symbol gpc_remote_plugin' "$tmp/err"
ok $? "which is said" "$tmp/err"

# what has been stored lies where gpc_remote(7) says
mkdir "$tmp/folder"
cp "$builddir/plugins/.libs/gpc_remote_folder.so" "$tmp/" && chmod 644 "$tmp/gpc_remote_folder.so"
run "$store" "$tmp/gpc_remote_folder.so:dir=$tmp/folder" put 7 1 4096
prints '^1$' "one image in a folder"
name=$(ls "$tmp/folder")
like "$name" '^gpc1:0:[0-9a-f]{16}:[0-9a-f]{32}$' "its key"
is "$(wc -c <"$tmp/folder/$name" | tr -d ' ')" 4224 "a header of 128 bytes, and the image"
is "$(head -c 8 "$tmp/folder/$name")" "gpcimg 1" "the header's first bytes"
is "$(od -An -tu8 -j80 -N8 "$tmp/folder/$name" | tr -d ' ')" 4096 "bytes of the image at 80"
is "$(od -An -tu4 -j76 -N4 "$tmp/folder/$name" | tr -d ' ')" 5 "the tag at 76"
done_testing
