#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd --mode, --group, --numa and --key-file for a cache that exists: all its files get that mode and group, if
# they are this user's; the rest is refused with both ways out.  The key file is open to whom the cache is.
# Tests: lib/index/segment/redress.c lib/index/segment/create.c lib/index/segment/validate.c lib/index/door/attach.c tools/daemon/options_check.c
#   tools/daemon/key.c

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

chmod 755 "$shm"
if test "$(id -u)" -eq 0; then
	mine=$(id -g) other=65534
else
	mine=$(id -g) other=$(id -G | tr ' ' '\n' | grep -vx "$(id -g)" | head -n 1)
	other=${other:-$mine}
fi
make='--block-size 16 --ram-blocks 20 --block-bytes 4k --max-peers 8 --device host'

# modes and groups of all its files, each one once; how many files there are
dressed()
{
	stat -c '%a %g' "$shm/gpc.made."* | sort -u
}

serves()	# OPTION...: it serves the cache once
{
	# shellcheck disable=SC2086
	run gpcd made --dir "$shm" $make "$@" --daemonize --pidfile "$tmp/made.pid"
	test "$status" -eq 0 || return 1
	pid=$(cat "$tmp/made.pid")
}

leaves()
{
	kill "$pid"
	until_ok is_gone "$pid"
}

serves
is "$(dressed)" "600 $mine" "as it is made by default"
leaves
is "$(ls "$shm"/gpc.made.*.idx "$shm"/gpc.made.p* 2>/dev/null | wc -l)" 1 "with memory"

start held gpcd made --dir "$shm" --block-size 16 --log-level debug
held=$pid
until_ok grep -q 'serving as' "$tmp/held.err"
serves --group "$other" --standby
ok $? "--group of a cache that exists" "$tmp/err"
is "$(dressed)" "660 $other" "all its files get it, while another process serves"
leaves
kill "$held"
finish "$held"

serves
is "$(dressed)" "660 $other" "without the option they stay"
leaves
chmod 600 "$shm"/gpc.made.p* "$shm/gpc.made.ctl"
start again gpcd made --dir "$shm" --block-size 16 --group "$other"
until_ok grep -q 'serving as' "$tmp/again.err"
is "$(dressed)" "660 $other" "what a killed one has left is changed, too"
grep -q "made: its files have mode 660 now, and group $other; before, it was mode 600, and group $other" "$tmp/again.err"
ok $? "and the log says so" "$tmp/again.err"
kill "$pid"
finish "$pid"
start same gpcd made --dir "$shm" --block-size 16 --group "$other"
until_ok grep -q 'serving as' "$tmp/same.err"
is "$(grep -c 'its files have' "$tmp/same.err")" 0 "where nothing changes nothing is said"
kill "$pid"
finish "$pid"

if test "$(id -u)" -eq 0 && setpriv --reuid 65534 --regid 65534 --clear-groups \
	"$builddir/tools/gpc-inspect" --version >/dev/null 2>&1
then
	refused="made exists with --mode 660, group 65534, instead of --mode 600, and only its owner, user 0, can change them: ask for what it has, or remove the cache \('gpc-inspect --dir $shm rm made'\)\$"
	refuses 1 'EACCES|mode' setpriv --reuid 65533 --regid 65533 --clear-groups gpcd made --dir "$shm" --block-size 16 --mode 0600
	closed()	# USER GROUP TEXT COMMAND...
	{
		as="setpriv --reuid $1 --regid $2 --clear-groups" text=$3
		shift 3
		run $as "$@"
		exits 1 "user and group: $as"
		says "$text" "its message names the remedy"
	}
	chgrp 65534 "$shm"/gpc.made.*
	closed 65533 65533 'user 0, group 65534, mode 660; this process is not in group 65534: .*SupplementaryGroups=65534 in its unit' \
		gpcd made --dir "$shm"
	chmod 0640 "$shm"/gpc.made.*
	closed 65533 65534 'user 0, group 65534, mode 640; mode 0660 lets group 65534 in: gpcd --mode, or gpc-inspect set' \
		gpcd made --dir "$shm"
	chmod 0600 "$shm"/gpc.made.*
	closed 65533 65533 'mode 600; gpcd --group lets a group in' gpcd made --dir "$shm"
	chmod 0660 "$shm"/gpc.made.*
	closed 65534 65534 'set: group: only user 0, who owns its files, can change that: they have mode 660 and group 65534' \
		gpc-inspect --dir "$shm" set made group=65534
	run setpriv --reuid 65534 --regid 65534 --clear-groups gpcd made --dir "$shm" --block-size 16 --mode 0600
	exits 1 "another user's cache"
	says "$refused" "keeps its mode, and it is said who may"
	start member setpriv --reuid 65534 --regid 65534 --clear-groups gpcd made --dir "$shm" --block-size 16 --group 65534
	until_ok grep -q 'serving as' "$tmp/member.err"
	ok $? "a member of its group may say what it has" "$tmp/member.err"
	kill "$pid"
	finish "$pid"
else
	skip 4 "needs root and setpriv"
fi

start closed gpcd made --dir "$shm" --block-size 16 --mode 0600
until_ok grep -q 'serving as' "$tmp/closed.err"
is "$(stat -c %a "$shm/gpc.made."* | sort -u)" 600 "--mode 0600 closes it again"
kill "$pid"
finish "$pid"

# ---- what cannot be changed ----

# shellcheck disable=SC2086
refuses 1 'made exists with --numa default on the nodes 0x[0-9a-f]+ instead of interleave on 0x[0-9a-f]+: ask for what it has, or remove the cache \(' \
	gpcd made --dir "$shm" $make --numa interleave
# shellcheck disable=SC2086
refuses 1 'made exists with another secret than that of --key-file or --disk: give the one that it was made with, or remove the cache \(' \
	gpcd made --dir "$shm" $make --key-file "$tmp/key"
test ! -e "$tmp/key"
ok $? "and no key file is made for it"
inspect rm made
serves --key-file "$tmp/key" --numa interleave
ok $? "made anew it has them" "$tmp/err"
leaves
serves --key-file "$tmp/key" --numa interleave
ok $? "and takes them again" "$tmp/err"
leaves

# ---- the key file, as the files of the cache ----

key=$shm/key
inspect rm made
of_key()
{
	stat -c '%a %g' "$key"
}
serves --key-file "$key" --quiet
is "$(of_key)" "600 $mine" "a key file without --group"
leaves
serves --key-file "$key" --quiet --group "$other"
is "$(of_key)" "640 $other" "it gets the group of a cache that is there, with it"
leaves
serves --key-file "$key" --quiet
is "$(of_key)" "640 $other" "without the option it stays"
leaves
start told gpcd made --dir "$shm" $make --key-file "$key" --mode 0600
until_ok grep -q 'serving as' "$tmp/told.err"
is "$(stat -c %a "$key")" 600 "--mode 0600 closes it again"
grep -q "made: --key-file $key: it has mode 600 now\$" "$tmp/told.err"
ok $? "which the log says" "$tmp/told.err"
kill "$pid"
finish "$pid"
inspect rm made
rm "$key"
serves --key-file "$key" --quiet --group "$other"
is "$(of_key)" "640 $other" "one that is made has them from the beginning"
leaves
chmod 400 "$key"
serves --key-file "$key" --quiet --group "$other"
is "$(of_key)" "440 $other" "and the owner has what the owner had"
leaves
chmod 660 "$key"
refuses 1 "--key-file $key: others could read it, or its group write to it: chmod 600 it, or 640" \
	gpcd made --dir "$shm" $make --key-file "$key"
chmod 640 "$key"
if test "$(id -u)" -eq 0 && setpriv --reuid 65534 --regid 65534 --clear-groups \
	"$builddir/tools/gpc-inspect" --version >/dev/null 2>&1
then
	mkdir -m 777 "$shm/theirs"
	start theirs setpriv --reuid 65534 --regid 65534 --clear-groups gpcd theirs --dir "$shm/theirs" --block-size 16 --key-file "$key"
	until_ok grep -q 'serving as\|key-file' "$tmp/theirs.err"
	grep -q 'serving as' "$tmp/theirs.err"
	ok $? "another user of that group takes it" "$tmp/theirs.err"
	kill "$pid"
	finish "$pid"
	gpc-inspect --dir "$shm/theirs" rm theirs >/dev/null
	run setpriv --reuid 65533 --regid 65533 --clear-groups gpcd theirs --dir "$shm/theirs" --block-size 16 --key-file "$key"
	exits 1 "one of no such group does not"
	says "key-file $key: it cannot be opened: Permission denied\$" "which is said"
	chown 65534 "$key"
	chmod 600 "$key"
	refuses 1 "--key-file $key: it belongs to another user, and its mode lets in nobody else: gpcd --group of that user gives it mode 640" \
		gpcd made --dir "$shm" $make --key-file "$key"
	chmod 640 "$key"
	refuses 1 "--key-file $key: it belongs to another user, and this one is not in its group" \
		gpcd made --dir "$shm" $make --key-file "$key"
	chmod 600 "$key"
	chown 65534:65534 "$key"
	run setpriv --reuid 65534 --regid 65534 --clear-groups gpcd theirs --dir "$shm/theirs" --block-size 16 \
		--key-file "$shm/theirs/key" --group 65533
	exits 1 "a group that is not this user's"
	says "key-file $shm/theirs/key: this user may not give it the group of --group\$" "is refused"
	is "$(ls "$shm/theirs")" '' "and nothing is left of that"
	rmdir "$shm/theirs"
else
	skip 8 "needs root and setpriv"
fi
rm "$key"

# ---- a daemon that joins ----

chmod 600 "$shm"/gpc.made.*
joins()	# LABEL OPTION...: it serves the cache once, without --block-size
{
	label=$1
	shift
	start "$label" gpcd made --dir "$shm" "$@"
	until_ok grep -q 'serving as' "$tmp/$label.err" || bail "$(cat "$tmp/$label.err")"
	kill "$pid"
	finish "$pid"
}
if test "$(id -u)" -eq 0; then
	joins fifth --group 65534
	for zero in 0 root; do
		joins "zero-$zero" --group "$zero"
		is "$(dressed)" '660 0' "--group $zero: the files get group 0"
		joins fifth --group 65534
	done
	chgrp "$mine" "$shm/gpc.made."*
	chmod 600 "$shm/gpc.made."*
else
	skip 2 "needs root"
fi
joins grouped --group "$other"
is "$(dressed)" "660 $other" "--group without --block-size: the files get it, too"
grep -q 'made: its files have mode 660 now' "$tmp/grouped.err"
ok $? "and the log says so" "$tmp/grouped.err"
joins same --mode 0660 --group "$other"
is "$(grep -c 'its files have' "$tmp/same.err")" 0 "where nothing changes nothing is said"
joins moded --mode 0600
is "$(stat -c %a "$shm/gpc.made."* | sort -u)" 600 "--mode, too"
joins idle --mode 0600 --group "$other"
like "$(cat "$tmp/idle.err")" 'made: --group counts for nothing: --mode 600 lets no group in' "a group beside such a mode is idle"
if test "$(id -u)" -eq 0 && setpriv --reuid 65534 --regid 65534 --clear-groups \
	"$builddir/tools/gpc-inspect" --version >/dev/null 2>&1
then
	joins nobody --group 65534
	start theirs setpriv --reuid 65534 --regid 65534 --clear-groups gpcd made --dir "$shm" --mode 0600
	until_ok grep -q 'serving as' "$tmp/theirs.err"
	ok $? "another user's cache is joined all the same" "$tmp/theirs.err"
	like "$(cat "$tmp/theirs.err")" 'made: --mode: its files have mode 660 and group 65534, and user 0, who owns them, can change that' \
		"and what cannot be had is said"
	kill "$pid"
	finish "$pid"
	is "$(dressed)" "660 65534" "it stays as it is"
	chown 65534 "$shm"/gpc.made.*
	chown :0 "$shm"/gpc.made.*
	joins root --group 65534
	like "$(cat "$tmp/root.err")" 'made: --group: its files have mode 660 and group 0, and user 65534' "the same for root"
	is "$(dressed)" "660 0" "which would get half of it under the unit"

	# of a user who is not in the group, files and key stay; who is, or owns them, opens the key file, too
	mkdir "$shm/theirs"
	chown 65534:65534 "$shm/theirs"
	as="setpriv --reuid 65534 --regid 65534 --clear-groups gpcd theirs --dir $shm/theirs"
	key=$shm/theirs/key
	tier="--disk $shm/theirs/disk --key-file $key"
	run $as --block-size 16 --ram-blocks 20 --block-bytes 4k --max-blocks 200 $tier --disk-blocks 9 --daemonize --quiet \
		--pidfile "$shm/theirs/pid"
	pid=$(cat "$shm/theirs/pid")
	leaves
	start poor $as $tier --group 65533
	until_ok grep -q 'serving as\|may not give it' "$tmp/poor.err"
	grep -q 'serving as' "$tmp/poor.err"
	ok $? "a cache is joined by a user who is not in the group" "$tmp/poor.err"
	like "$(cat "$tmp/poor.err")" "--key-file $key: it stays as it is, like the files of the cache that is joined" "what cannot be had is said"
	kill "$pid"
	finish "$pid"
	is "$(of_key)" "600 65534" "of the key file, too"
	start rich $as $tier --group 65534
	until_ok grep -q 'serving as' "$tmp/rich.err"
	is "$(of_key)" "640 65534" "a joined cache with a group of this user's opens its key file"
	kill "$pid"
	finish "$pid"
	gpc-inspect --dir "$shm/theirs" rm theirs >/dev/null
	rm -r "$shm/theirs"
else
	skip 9 "needs root and setpriv"
fi

done_testing
