#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# until_ok leaves a script's variables alone, also where it has to wait, which is chance.
# Tests: t/sh/tap.sh

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

begun=$(date +%s)
came=
set >"$tmp/before"
is_later()	# by a second, so that until_ok has counted one
{
	test "$(date +%s)" -gt $((begun + 1))
}
until_ok is_later
came=$?
set >"$tmp/after"
ok $came "something that takes a second"
for file in before after; do
	sed -n 's/^\([a-z][a-z_]*\)=/\1 /p' "$tmp/$file" | grep -v -e '^quiet' -e '^came ' | sort >"$tmp/$file.of"
done
diff "$tmp/before.of" "$tmp/after.of" >"$tmp/differ"
ok $? "no variable has changed but those of quiet_" "$tmp/differ"
done_testing
