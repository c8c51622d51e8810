#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The worker in Python that doc/engine.md and python/README.md show, and the commands below it, as they are
# written there: the second run finds all blocks.
# Tests: doc/engine.md python/README.md

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/python.sh"

# the first fenced block of that kind in which a line is like REGEX, in a cache of this test's name
fenced()	# FILE KIND REGEX
{
	awk -v kind="$2" -v regex="$3" '
	$0 == "```" kind { on = 1; text = ""; next }
	/^```/ { if (on && found) { printf "%s", text; exit } on = found = 0 }
	on { text = text $0 "\n"; found = found || $0 ~ regex }' "$srcdir/$1" |
		sed "s/\"demo\"/\"$cache\"/; s/\([ -]\)demo\( \|\$\)/\1$cache\2/"
}

sed "s/\"demo\"/\"$cache\"/; /SPDX/d" "$srcdir/doc/cmd/worker.py" >"$tmp/worker.py"
fenced python/README.md python '^    prompt = ' >"$tmp/other.py"
cmp -s "$tmp/worker.py" "$tmp/other.py" && test -s "$tmp/worker.py"
ok $? "both pages show the same worker"

mkdir "$tmp/bin"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$PYTHON" >"$tmp/bin/python3"
chmod +x "$tmp/bin/python3"
PATH=$tmp/bin:$PATH
fenced python/README.md sh '^gpcd ' >"$tmp/commands"
cd "$tmp" || exit 99
run sh -e commands
exits 0 "the commands of python/README.md"
is "$(grep cached out | tr '\n' ' ')" "0 of 63 blocks were cached 63 of 63 blocks were cached " "the second run finds all"
test ! -e "/dev/shm/gpc.$cache.0" && ! ls /dev/shm/gpc."$cache".* >/dev/null 2>&1
ok $? "the cache is gone"

# every method that the page lists is one, and every one is listed
run "$PYTHON" -c '
import re, sys, gpc
page = open(sys.argv[1]).read()
table = page[page.index("## Calls"):page.index("Differences from C")]
listed = {name for name in re.findall(r"`([a-z_]+)", table)} - {"help", "with", "serve"}
there = {n for t in (gpc.Cache, gpc.Device) for n in dir(t) if not n.startswith("_")} | {"attach", "create", "unlink"}
print(sorted(listed ^ there - {"closed"}))' "$srcdir/python/README.md"
is "$(cat out)" "[]" "the table of calls is complete"
done_testing
