#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The examples of doc/ in Python, as t/pages/commands.t runs the others: a worker whose blocks come back from a file, in a
# cache that was made anew as well, from a folder that plays a store, and from a Redis where there is one.
# Tests: doc/tiers.md doc/cmd/ t/sh/examples.sh

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"
. "$srcdir/t/sh/examples.sh"

# the plugins are of --remote folder: and --remote redis:
for name in python disk folder redis; do
	if test $name = redis && ! { test -e "$examples/plugins/gpc_remote_redis.so" &&
			command -v redis-server && command -v redis-cli; } >/dev/null; then
		skip 4 "no redis-server, or no plugin for it"
		continue
	fi
	example $name.sh
	test $name != disk || is "$(stat -c %a "$examples/demo.key")" 600 "the secret stays, for this user alone"
	is "$(ls "$examples" | grep 'disk$\|store$\|sock$')" '' "$name.sh leaves no file"
done

# a run fills a tier, and the next ones find what is there: in the texts themselves, whoever wrote them
fills='0 of 64 blocks came up, 0 of them have their bytes'
finds='64 of 64 blocks came up, 64 of them have their bytes'
for name in disk folder redis; do
	grep 'came up' "$srcdir/doc/cmd/$name.out" >"$tmp/out"
	is "$(head -n 1 "$tmp/out")" "$fills" "$name.out: the first run finds nothing"
	is "$(tail -n +2 "$tmp/out" | sort -u)" "$finds" "$name.out: the others find all"
done
done_testing
