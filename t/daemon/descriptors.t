#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Descriptors: the tools with standard streams closed, a daemon that keeps nothing of who started
# it, and the one place of the library that opens files.
# Tests: lib/index/base/fd.c tools/daemon/process.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

# What a process has open, one line each: "N FILE".
open_of()	# PID
{
	for fd in /proc/"$1"/fd/*; do
		echo "${fd##*/} $(readlink "$fd")"
	done
}

# All there is are the cache's own files, the pid file and /dev/null at 0, 1 and 2.
has_its_own()	# PID NAME
{
	open_of "$1" >"$tmp/open"
	test "$(grep -c '^[012] /dev/null$' "$tmp/open")" -eq 3 &&
		! grep -Ev -e '^[012] /dev/null$' -e " $shm/gpc\.$2\." -e " $tmp/$2.pid\$" \
			"$tmp/open" >"$tmp/other" &&
		grep -Eq "^[0-9]+ $shm/gpc\.$2\.lock" "$tmp/open"
}

# A file that it looks into is open for a moment.
keeps_its_own()	# PID NAME
{
	until_ok has_its_own "$1" "$2"
	ok $? "$2: 0 to 2 are /dev/null, the rest is its own" "$tmp/open"
}

ends_well()	# PID NAME
{
	kill -TERM "$1"
	until_ok is_gone "$1"
	ok $? "$2: ends"
	inspect check "$2"
	exits 0 "$2: the cache is sound"
}

# ---- streams that are closed ----

n=0
for closed in '<&-' '>&-' '2>&-' '>&- 2>&-' '<&- >&- 2>&-'; do
	n=$((n + 1))
	name=closed$n
	run sh -c "exec gpcd $name --dir '$shm' --block-size 16 --vram-blocks 64 --daemonize \
		--device host --pidfile '$tmp/$name.pid' $closed"
	exits 0 "gpcd --daemonize $closed"
	pid=$(cat "$tmp/$name.pid")
	keeps_its_own "$pid" $name
	run sh -c "exec gpc-inspect --dir '$shm' stat $name $closed"
	case $closed in
	*'>&- '* | '>&-')
		exits 1 "gpc-inspect stat $closed: nobody gets the result" ;;
	*)
		exits 0 "gpc-inspect stat $closed" ;;
	esac
	ends_well "$pid" $name
done

start front sh -c "exec gpcd front --dir '$shm' --block-size 16 --vram-blocks 64 \
	--pidfile '$tmp/front.pid' <&- >&- 2>&-"
until_ok test -s "$tmp/front.pid"
ok $? "gpcd in the foreground, all closed"
open_of "$pid" >"$tmp/open"
is "$(grep -c '^[012] /dev/null$' "$tmp/open")" 3 "front: 0 to 2 are /dev/null"
ends_well "$pid" front

run sh -c "exec gpc-replay '$small_trace' --dir '$shm' --workers 2 <&- 2>&-"
exits 0 "gpc-replay <&- 2>&-"
prints '^requests +400$' "has its result"

# ---- who starts a daemon is let go ----

free()	# NAME REDIRECTION: $(...) returns while the daemon lives, whatever pipe it inherited
{
	start "$1" sh -c "out=\$(gpcd $1 --dir '$shm' --block-size 16 \
		--vram-blocks 64 --daemonize --pidfile '$tmp/$1.pid' $2); echo \"returned \$?\""
	until_ok grep -q returned "$tmp/$1.out"
	ok $? "\$(gpcd --daemonize $2) returns" "$tmp/$1.err"
	finish "$pid"
	is "$(cat "$tmp/$1.out")" 'returned 0' "with status 0"
	pid=$(cat "$tmp/$1.pid")
	! is_gone "$pid"
	ok $? "the daemon lives"
	keeps_its_own "$pid" "$1"
}

free plain ''
is "$(readlink "/proc/$pid/cwd")" / "its folder is /"
is "$(awk '{ sub(/.*\) /, ""); print $4 }' "/proc/$pid/stat")" "$pid" "its session is its own"
is "$(awk '{ sub(/.*\) /, ""); print $5 }' "/proc/$pid/stat")" 0 "without a terminal"
run sh -c "gpcd plain --dir '$shm' --standby --daemonize \
	--pidfile '$tmp/standby.pid' 5>&1 | cat"
exits 0 "a standby lets a pipeline end"
standby=$(cat "$tmp/standby.pid")
ends_well "$standby" plain
ends_well "$pid" plain
free third '3>&1'
ends_well "$pid" third
free many '3>&1 4>&2 7>&1 9</dev/null'
ends_well "$pid" many
run sh -c "gpcd absent --dir '$shm/nowhere' --daemonize 3>&1 | cat; exit 0"
says 'absent: .*nowhere: No such' "one that cannot start says why"

# ---- one place that opens ----

# Calls that return a descriptor, outside fd.c.  CUDA's library opens its own.  A name of a manual
# page, shm_open(3), is no call.
opens='open|openat|openat2|creat|fopen|opendir|fdopendir|tmpfile|mkstemp|mkostemp|pipe2?'
opens="$opens|dup[23]?|socket|socketpair|accept4?|eventfd|signalfd|timerfd_create|memfd_create"
opens="$opens|epoll_create1?|inotify_init1?|pidfd_open|shm_open|userfaultfd|popen"
find "$srcdir/lib" -name '*.[ch]' ! -name fd.c | sort >"$tmp/sources"
test "$(grep -c . "$tmp/sources")" -gt 50
ok $? "there are sources"
xargs grep -nE "(^|[^a-zA-Z0-9_>.])($opens)\(|F_DUPFD|SYS_(pidfd|memfd|open)" <"$tmp/sources" |
	grep -vE '^[^:]*:[0-9]+:[ 	]*(/\*| \*)' |
	grep -vE '\([2-8]\)' |
	grep -vE '^[^:]*\.[ch]:[0-9]+:.*\((\*|int \(\*)(open|close)\)' >"$tmp/bare"
! test -s "$tmp/bare"
ok $? "lib/index/base/fd.c alone opens files" "$tmp/bare"
grep -Eq '[^_]open\(' "$srcdir/lib/index/base/fd.c"
ok $? "and it does"

done_testing
