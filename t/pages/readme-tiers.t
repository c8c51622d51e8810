#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What README.md shows of the tiers below RAM, as it is written there: a worker in Python whose blocks come back from a file,
# in a cache that was made anew as well, from a folder that plays a store, and from a Redis where there is one.
# Tests: README.md

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"

# the fenced block of that kind in which a line is like REGEX, in a cache of this test's name
fenced()	# KIND REGEX
{
	awk -v kind="$1" -v regex="$2" '
	$0 == "```" kind { on = 1; text = ""; next }
	/^```/ { if (on && found) { printf "%s", text; exit } on = found = 0 }
	on { text = text $0 "\n"; found = found || $0 ~ regex }' "$srcdir/README.md" |
		sed "s/\"demo\"/\"$cache\"/; s/\([ -]\)demo\( \|\$\)/\1$cache\2/"
}

# What is installed where README.md is read: python3, the module's folder in the checkout, and the plugins by name.
mkdir "$tmp/bin" "$tmp/plugins"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$PYTHON" >"$tmp/bin/python3"
chmod 755 "$tmp/bin/python3" "$tmp/plugins"
ln -s "$builddir" "$tmp/build"
PATH=$tmp/bin:$PATH
for plugin in folder redis; do
	test ! -e "$builddir/plugins/.libs/gpc_remote_$plugin.so" ||
		install -m 644 "$builddir/plugins/.libs/gpc_remote_$plugin.so" "$tmp/plugins"
done
cd "$tmp" || exit 99

commands()	# REGEX
{
	fenced sh "$1" | sed "s|--remote \([a-z]*\):|--remote $tmp/plugins/gpc_remote_\1.so:|" >commands
	run sh -e commands
}

fenced python 'c\.prefetch' >below.py
grep -q "attach(\"$cache\")" below.py
ok $? "README.md has a worker that asks below RAM"
fills='0 of 64 blocks came up, 0 of them have their bytes 64 blocks were evicted from RAM '
finds='64 of 64 blocks came up, 64 of them have their bytes 64 blocks were evicted from RAM '

commands '^gpcd demo .*--disk demo.disk --disk-blocks'
is "$(grep -c . commands)" 10 "it has commands for a disk"
exits 0 "all of them succeed"
is "$(grep 'blocks ' out | grep '64' | grep -v : | tr '\n' ' ')" "$fills$finds$finds" \
	"what was evicted comes back, in a cache that was made anew, too"
prints '^DISK .* 64 +4.0 MiB ' "stat has what came up"
is "$(stat -c %a demo.key)" 600 "the secret stays, for this user alone"
is "$(ls /dev/shm | grep -F "gpc.$cache.") $(ls | grep disk)" ' ' "and nothing else"

commands '^gpcd demo .*--remote folder:'
is "$(grep -c . commands)" 8 "it has commands for a folder"
exits 0 "all of them succeed"
is "$(grep 'blocks ' out | tr '\n' ' ')" "$fills$finds" "another cache has it from the store"
is "$(ls /dev/shm | grep -F "gpc.$cache.") $(ls | grep store)" ' ' "nothing is left"

if test -e plugins/gpc_remote_redis.so && command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then
	commands '^gpcd demo .*--remote redis:'
	is "$(grep -c . commands)" 7 "it has commands for a Redis"
	exits 0 "all of them succeed"
	is "$(grep 'blocks ' out | tr '\n' ' ')" "$fills$finds" "what was evicted comes back from the server"
	is "$(ls /dev/shm | grep -F "gpc.$cache.") $(ls | grep key)" ' ' "nothing is left"
else
	skip 4 "no redis-server, or no plugin for it"
fi
done_testing
