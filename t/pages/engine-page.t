#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The engine of gpc_engine(7): it compiles, serves its requests, and has all its blocks back.
# Tests: man/gpc_engine.7

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

library=$builddir/lib/.libs
test -e "$library/libgpc.so" || skip_all "no shared library in $builddir"
! grep -q '__[atu]b*san_' "$library/libgpc.so" || skip_all "a sanitizer wants its own programs"

# the first literal block of EXAMPLES; roff's \e \& \- undone
awk '
/^\.Sh / { on = /^\.Sh EXAMPLES$/ }
/^\.Bd / && on { block = 1; next }
/^\.Ed/ { if (block) exit; next }
block { gsub(/\\&/, ""); gsub(/\\-/, "-"); gsub(/\\e/, "\\"); print }' \
	"$srcdir/man/gpc_engine.7" >"$tmp/engine.c"
grep -q 'gpc_returned(' "$tmp/engine.c"
ok $? "gpc_engine(7) has a program"
run ${CC:-cc} -std=c11 -Wall -Wextra -Werror -I"$srcdir/lib" -o "$tmp/engine" "$tmp/engine.c" \
	-L"$library" -lgpc
exits 0 "which is built"

# the loop of an engine that leaves blocks and bytes to gpc, from the page's text
{
	echo '#include <errno.h>'
	echo '#include <stdbool.h>'
	echo '#include <gpc_bytes.h>'
	echo 'static gpc *c; static int vram; static void *stream, *copies;'
	awk '
	/^struct request {/ { on = 1 }
	/^\.Ed/ && on { exit }
	on { gsub(/\\-/, "-"); gsub(/\\e/, "\\"); print }' "$srcdir/man/gpc_engine.7"
	echo 'int all(struct request *q)'
	echo '{ step(); computed(q); finished(q); return begin(q) + is_time(q); }'
} >"$tmp/loop.c"
grep -q 'gpc_fetch(' "$tmp/loop.c"
ok $? "it has a loop that fetches"
run ${CC:-cc} -std=c11 -Wall -Wextra -Wconversion -Werror -I"$srcdir/lib" -c -o "$tmp/loop.o" "$tmp/loop.c"
exits 0 "which is compiled"
LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

# the scheduler of EXAMPLES, with a cache and two requests for one prompt
{
	awk '
	/^\.Sh / { on = /^\.Sh EXAMPLES$/ }
	/^\.Bd / && on { block = 1; text = ""; next }
	/^\.Ed/ && block { if (text ~ /int answered\(/) { printf "%s", text; exit } block = 0 }
	block { gsub(/\\-/, "-"); gsub(/\\e/, "\\"); text = text $0 "\n" }' "$srcdir/man/gpc_engine.7"
	cat <<'END'
#include <gpc_serve.h>
#include <stdio.h>
#include <unistd.h>
static int step(gpc *c, int vram, struct request *q)
{
	arrives(c, vram, q);
	while (!begin(c, vram, q, NULL))
		continue;
	while (!computed(c, q))
		continue;
	while (!answered(c, q))
		continue;
	finished(c, q);
	return (int)q->hit;
}
int main(int argc, char **argv)
{
	static const uint32_t tokens[128] = { 1, 2, 3 };
	gpc_key key[9];
	gpc_block blk[8], res[8];
	struct gpc_prompt p = { .parent = key, .tokens = tokens, .n = 128, .ret_keys = key + 1 };
	struct request q = { .key = key, .blk = blk, .res = res, .n = 8 };
	gpc *w, *c;
	int pool, first;

	alarm(120);
	if (argc < 2 || gpc_create(argv[1], NULL, NULL, GPC_SERVE, &w) || attach(argv[1], &c))
		return 1;
	pool = gpc_pool_make(c, GPC_OPTIONS(gpc_pool, .kind = GPC_VRAM, .blocks = 600, .demote_to = -1),
			     GPC_OPTIONS(gpc_memory, .device = "host", .block_bytes = 4096), -1);
	if (pool < 0 || gpc_key_root(c, NULL, 0, key) || gpc_key_hash(c, &p, 1, 0) != 8)
		return 1;
	first = step(c, pool, &q);
	printf("%d, then %d of 8 blocks are found\n", first, step(c, pool, &q));
	gpc_close(c);
	gpc_close(w);
	return gpc_unlink(argv[1], NULL) < 0;
}
END
} >"$tmp/scheduler.c"
run ${CC:-cc} -std=c11 -Wall -Wextra -Wconversion -Werror -I"$srcdir/lib" -o "$tmp/scheduler" "$tmp/scheduler.c" \
	-L"$library" -lgpc
exits 0 "it has a scheduler, which is compiled"
run "$tmp/scheduler" "$cache"
exits 0 "and ends well"
prints '^0, then 8 of 8 blocks are found$' "it finds what it has published, with timeout 0"

run "$tmp/engine" "$cache"
exits 0 "and ends well"
# 99 requests find the common half of the first
prints '^792 blocks found, 0 requests failed$' "it finds what is common to all prompts"
prints '^64 free after a clear$' "and has all its blocks back"
test ! -e "/dev/shm/gpc.$cache.idx"
ok $? "its cache is gone"

run gpcd "$cache" --block-size 16 --max-blocks 256 --daemonize --quiet --pidfile "$tmp/pid"
exits 0 "another cache has the name"
run "$tmp/engine" "$cache"
exits 1 "the engine refuses it"
says "^gpc_create: .*$cache" "and says why"
test -e "/dev/shm/gpc.$cache.idx"
ok $? "the other cache stays"
kill "$(cat "$tmp/pid")"
until_ok test ! -e "$tmp/pid"
gpc-inspect rm "$cache" >"$tmp/out" 2>"$tmp/err"
ok $? "and is removed" "$tmp/err"

done_testing
