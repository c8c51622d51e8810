# SPDX-License-Identifier: Apache-2.0
# tap.sh - the Test Anything Protocol for scripts, and what those share that run the tools.
#
#	. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"
#
#	run gpc-inspect list
#	exits 0 "list"
#	prints '^NAME ' "there are titles"
#	refuses 2 'COMMAND is missing' gpc-inspect
#	done_testing
#
# $tmp is a directory of the script's own, $shm one in /dev/shm for its caches, $cache a
# name that no other test has.  However the script ends, every process that it started is
# killed, daemons too, and its files are gone.  A watchdog ends a script that hangs.
#
# Nothing sleeps to let something happen: until_ok waits for it, and gives up when it hangs.

# The watchdog: it ends all that runs here, and the traps below do the rest.  Its seconds are those
# of t/lib/patience.h where it is built, else those of the clock.
if test -z "$GPC_T_SECONDS"; then
	GPC_T_SECONDS=${GPC_T_LIMIT:-120}
	export GPC_T_SECONDS
	within=${top_builddir:-${top_srcdir:-$(dirname "$0")/..}}/t/sh/within
	test ! -x "$within" || exec env -u GPC_T_TIMES "$within" $GPC_T_SECONDS /bin/sh "$0"
	! command -v timeout >/dev/null || exec timeout -s ALRM -k 10 $GPC_T_SECONDS /bin/sh "$0"
fi

# alone, it is t/NAME.t or t/ROOM/NAME.t of the sources
test -n "$top_srcdir" || top_srcdir=$(dirname "$0")/..
test -e "$top_srcdir/t/sh/tap.sh" || top_srcdir=$top_srcdir/..
srcdir=$(cd "$top_srcdir" && pwd) || exit 99
builddir=$(cd "${top_builddir:-$srcdir}" && pwd) || exit 99
helpers=$builddir/t/sh
PATH=$builddir/tools:$PATH
# libtool puts a script before each program, which takes longer than the program itself
libs=$builddir/lib/.libs
if LD_LIBRARY_PATH=$libs ldd "$builddir/tools/.libs/gpc-inspect" 2>/dev/null |
	grep -qF "$libs/libgpc.so"; then
	PATH=$builddir/tools/.libs:$PATH
	LD_LIBRARY_PATH=$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
fi
LC_ALL=C
export PATH LC_ALL
unset NOTIFY_SOCKET GPCD GPC_LOG

test_name=$(basename "$0" .t)
cache=${test_name%%-*}-$$
whole_trace=$srcdir/t/data/small.jsonl
small_trace=$whole_trace
tests=0
failures=0
planned=
other_caches=            # names of those in /dev/shm that the script does not choose

tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-$cache.XXXXXX") || exit 99
shm=$(mktemp -d "/dev/shm/gpc-$cache.XXXXXX") || exit 99

# ---- the end ----

# What we start inherits this, and what that starts; the shells here do not have it.
GPC_T_CREW=$tmp
export GPC_T_CREW

crew()	# pids; those that look for them are none
{
	(
		unset GPC_T_CREW
		grep -ls "GPC_T_CREW=$tmp" /proc/[0-9]*/environ |
			sed 's|^/proc/||; s|/environ$||'
	)
}

clean_up()
{
	status=$?
	trap '' HUP INT TERM ALRM
	nobody=0
	while test $nobody -lt 2; do         # one just forked is not known by its name yet
		pids=$(crew)
		test -z "$pids" && nobody=$((nobody + 1)) || nobody=0
		kill -9 $pids 2>/dev/null
		sleep 0.01
	done
	wait
	rm -rf "$tmp" "$shm"
	for name in "$cache" $other_caches; do
		rm -f "/dev/shm/gpc.$name."* "/dev/shm/gpc-replay.$name"
	done
	exit $status
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
trap 'bail "out of time"' ALRM

# ---- the protocol ----

plan()	# N
{
	planned=$1
	echo "1..$1"
}

skip_all()	# WHY
{
	echo "1..0 # SKIP $1"
	exit 0
}

bail()	# WHY
{
	echo "Bail out! $1"
	exit 255
}

diag()	# TEXT
{
	printf '%s\n' "$1" | sed 's/^/# /'
}

ok()	# STATUS NAME [FILE with diagnostics]
{
	tests=$((tests + 1))
	if test "$1" -eq 0; then
		echo "ok $tests - $2"
		return 0
	fi
	failures=$((failures + 1))
	echo "not ok $tests - $2"
	test -z "$3" || head -n 40 "$3" | sed 's/^/# /'
	return 1
}

is()	# GOT WANT NAME
{
	test "x$1" = "x$2"
	ok $? "$3" || diag "got '$1', want '$2'"
}

like()	# TEXT REGEX NAME
{
	printf '%s\n' "$1" | grep -Eq -e "$2"
	ok $? "$3" || diag "'$1' is not like '$2'"
}

skip()	# N WHY
{
	left=$1
	while test "$left" -gt 0; do
		left=$((left - 1))
		tests=$((tests + 1))
		echo "ok $tests # SKIP $2"
	done
}

done_testing()
{
	if test -z "$planned"; then
		echo "1..$tests"
	elif test "$planned" -ne "$tests"; then
		diag "planned $planned tests and ran $tests"
		exit 1
	fi
	test "$failures" -eq 0
	exit
}

# ---- commands ----

# Not in the foreground: a shell looks at its traps only between commands, and in wait.
run()	# CMD...: $status, $tmp/out, $tmp/err
{
	"$@" >"$tmp/out" 2>"$tmp/err" &
	wait $! 2>/dev/null
	status=$?
}

run_with()	# FILE CMD...: the same with a standard input
{
	input=$1
	shift
	"$@" <"$input" >"$tmp/out" 2>"$tmp/err" &
	wait $! 2>/dev/null
	status=$?
}

start()	# LABEL CMD...: in the background: $pid, $tmp/LABEL.out, $tmp/LABEL.err
{
	label=$1
	shift
	# here, and not in the background: who waits for a line must not find it in what an earlier one has said
	: >"$tmp/$label.out"
	: >"$tmp/$label.err"
	"$@" >"$tmp/$label.out" 2>"$tmp/$label.err" &
	pid=$!
}

finish()	# PID of one that was started: $status; of a daemon, which is no child: until it is gone
{
	wait "$1" 2>/dev/null
	status=$?
	test $status -ne 127 || until_ok is_gone "$1"
}

# Good if the last command ended with that status; a signal is 128 and more.
exits()	# WANT NAME
{
	test "$status" -eq "$1"
	ok $? "$2" && return
	diag "exit status $status, want $1"
	cat "$tmp/out" "$tmp/err" 2>/dev/null | head -n 20 | sed 's/^/# /'
}

prints()	# REGEX NAME
{
	grep -Eq -e "$1" "$tmp/out"
	ok $? "$2" "$tmp/out" || diag "does not print '$1'"
}

says()	# REGEX NAME: on standard error
{
	grep -Eq -e "$1" "$tmp/err"
	ok $? "$2" "$tmp/err" || diag "does not say '$1'"
}

# One assertion: that status, a message of its own, and nothing on standard output.
refuses()	# STATUS REGEX CMD...
{
	want=$1
	text=$2
	shift 2
	run "$@"
	test "$status" -eq "$want" && grep -Eq -e "^$1: .*$text" "$tmp/err" &&
		! test -s "$tmp/out"
	ok $? "$* is refused: $text" "$tmp/err" ||
		diag "exit status $status, want $want; $(wc -c <"$tmp/out") bytes printed"
}

value()	# PATH...: from the JSON that the last command printed
{
	"$helpers/json" "$tmp/out" "$@"
}

values()	# PATH...: the same in one line
{
	value "$@" | paste -sd' ' -
}

# ---- what people see ----

# Paragraph by paragraph: a table has a gap of two blanks, through all lines, between any
# two titles; "title: value" lines have their values in one column.
aligned()	# NAME: what the last command printed
{
	awk '
	function blank(at,    l) {
		for (l = 1; l <= n; l++)
			if (substr(line[l], at, 1) ~ /[^ ]/)
				return 0
		return 1
	}
	function table(    titles, columns, gap, i) {
		sub(/^ +/, "", title)
		titles = split(title, unused, /  +/)
		gap = 2
		for (i = 1; i <= width; i++) {
			if (blank(i)) {
				gap++
				continue
			}
			columns += gap >= 2
			gap = 0
		}
		if (titles != columns)
			print titles " titles over " columns + 0 " columns: " line[1]
	}
	function paragraph(    l, at) {
		if (title !~ /: +/ && n) {
			table()
		} else {
			for (l = 1; l <= n; l++) {
				match(line[l], /^[^:]*: +/)
				if (l > 1 && RLENGTH != at)
					print "value out of line: " line[l]
				at = RLENGTH
			}
		}
		n = width = 0
	}
	/^$/ { paragraph(); next }
	{
		line[++n] = $0
		if (n == 1)
			title = $0
		if (length($0) > width)
			width = length($0)
	}
	END { paragraph() }' "$tmp/out" >"$tmp/aligned"
	test -s "$tmp/out" && ! test -s "$tmp/aligned"
	ok $? "$1" "$tmp/aligned"
}

# Neither escape sequences nor a carriage return, nor anything else that is not text.
plain()	# NAME
{
	! cat "$tmp/out" "$tmp/err" | tr -d '\n\t' | grep -q '[^[:print:]]'
	ok $? "$1" "$tmp/out"
}

relabel()	# CACHE OLD FORMAT: a peer writes its own label, whatever it likes; as long as OLD
{
	at=$(grep -abo -F -e "$2" "$shm/gpc.$1.ctl" | head -n 1 | cut -d: -f1)
	printf "$3" | dd of="$shm/gpc.$1.ctl" bs=1 seek="$at" conv=notrunc 2>/dev/null
}

# ---- waiting ----

# A second counts as the part of it that one process more would have had a processor: 100 are a
# whole one.  The second process that runs is the shell that asks.
processors=$(nproc 2>/dev/null || echo 1)
quiet_begin()	# $quiet is 0
{
	quiet=0
	quiet_at=$(date +%s)
}

quiet_count()	# $quiet grows; how often this comes is chance, so that no script shares a name with it
{
	quiet_now=$(date +%s)
	test "$quiet_now" -gt "$quiet_at" || return 0
	read -r quiet_not quiet_not quiet_not quiet_runs quiet_not </proc/loadavg || quiet_runs=1
	quiet_runs=$((${quiet_runs%%/*} - 1))
	test "$quiet_runs" -gt "$processors" || quiet_runs=$processors
	quiet=$((quiet + (quiet_now - quiet_at) * 100 * processors / quiet_runs))
	quiet_at=$quiet_now
}

# Is it little more than so many milliseconds, for a machine as busy as this one?  See is_soon() in
# t/lib/patience.h.
soon()	# TOOK MS
{
	awk -v took="$1" -v ms="$2" -v here="$processors" -v nice="$(nice)" '{
		split($4, running, "/")
		most = $1 > running[1] ? $1 : running[1]
		stretch = most > here + 1 ? 1 + most / here : 1
		while (stretch > 1 && nice-- > 0)
			stretch *= 1.25
		exit took >= ms * stretch
	}' /proc/loadavg
}

until_ok()	# CMD...: until it succeeds; false after 60 s of a machine that has nothing else to do
{
	quiet_begin
	quiet_looks=0
	until "$@" >/dev/null 2>&1; do
		quiet_count
		test $quiet -lt 6000 || return 1
		# a look may take longer than the pause, and others need the processor
		quiet_looks=$((quiet_looks + 1))
		test $quiet_looks -le 20 && sleep 0.01 || sleep 0.05
	done
}

# PID: not there any more, or waiting for its parent to notice.  Its memory goes before its locks do, and
# its first thread may go before the others.
is_gone()
{
	test ! -e "/proc/$1/exe" || return 1
	set -- "$1" "/proc/$1/task"/*
	test ! -e "/proc/$1" || { test $# -eq 2 && grep -q '^State:.*[ZX]' "/proc/$1/status" 2>/dev/null; } || test ! -e "/proc/$1"
}

is_stopped()	# PID: each thread of it
{
	set -- $(sed 's/.*) //; s/ .*//' "/proc/$1/task"/*/stat 2>/dev/null | sort -u)
	test "$*" = T
}

# SIGSTOP is on its way for a while, and a look too early finds a process that runs.
stop_process()	# PID
{
	kill -STOP "$1"
	until_ok is_stopped "$1" || bail "process $1 does not stop"
}

# ---- replays to look at, or to disturb ----

# Where replays run that have a device.  On a GPU a process takes a second to begin, and each of its
# kernels waits some milliseconds for those of other processes.
device=${GPC_TEST_DEVICE:-host}
on_gpu()
{
	test "$device" != host
}

times=20
long_trace()	# the whole one, $times over
{
	awk -v times="$times" '
	{ line[NR] = $0 }
	END {
		while (times--)
			for (i = 1; i <= NR; i++)
				print line[i]
	}' "$whole_trace" >"$tmp/long.jsonl"
	requests=$((times * $(grep -c . "$whole_trace")))
	refs=$((times * $(sed 's/.*"hash_ids": \[//; s/\].*//' "$whole_trace" | awk -F, '{ n += NF } END { print n }')))
}

# All workers on that cache have published something; together they have asked for so many
# blocks, but for less than half of the trace.  $writer is who serves them.
at_work()	# CACHE BLOCKS
{
	writer=$(gpc-inspect --dir "$shm" peers "$1" | awk -v from="$2" -v to=$((refs / 2)) '
	/ writer | stopped / { writer = $2 }
	/ gpc-replay [0-9]+ of / { all = $6; busy += $(NF - 1) > 0; asked += $(NF - 5) }
	END { if (busy && busy == all && asked > from && asked < to) print writer }')
	test -n "$writer"
}

# And so it stays: they come to no end while their writer is stopped.
stopped_at_work()	# CACHE BLOCKS
{
	at_work "$@" || return 1
	stopped=$writer
	stop_process "$stopped"
	at_work "$@" && return
	kill -CONT "$stopped"
	return 1
}

# The first requests of the small trace, for replays that nobody disturbs.
short_trace()	# REQUESTS
{
	head -n "$1" "$whole_trace" >"$tmp/short.jsonl"
	small_trace=$tmp/short.jsonl
}

# Start a replay and return while it is at work on CACHE ("own": its own), with its writer
# stopped: the caller lets it go on.  If it was over before anybody could look, a longer one
# begins; false: none was long enough, or one has failed.  $pid, $writer, and $requests that it has
# to replay.
catch_replay()	# LABEL CACHE BLOCKS OPTION...
{
	caught=$1
	on=$2
	from=$3
	shift 3
	while test "$times" -lt 10000; do
		test -s "$tmp/long.jsonl" || long_trace
		start "$caught" gpc-replay "$tmp/long.jsonl" --dir "$shm" "$@"
		test "$on" != own || watched=replay-$pid
		test "$on" = own || watched=$on
		until stopped_at_work "$watched" "$from" 2>/dev/null || is_gone "$pid"; do
			sleep 0.01
		done
		is_gone "$pid" || return 0
		finish "$pid"
		test "$status" -eq 0 || return 1
		times=$((times * 3))
		rm "$tmp/long.jsonl"
	done
	return 1
}

# ---- caches ----

# A gpcd in $shm; its pid is in $pid.  It returns when the cache is served.
serve()	# NAME OPTION...
{
	rm -f "$tmp/$1.pid"
	run gpcd "$@" --dir "$shm" --daemonize --quiet --pidfile "$tmp/$1.pid"
	test $status -eq 0 || bail "gpcd $*: $(cat "$tmp/err")"
	pid=$(cat "$tmp/$1.pid")
}

inspect()	# ARGUMENT...: in $shm
{
	run gpc-inspect --dir "$shm" "$@"
}

for tool in gpcd gpc-inspect gpc-replay; do
	test $tool != gpc-replay || grep -q 'gpc-replay\|catch_replay\|lru\.sh\|demo\.sh' "$0" || continue
	test -x "$builddir/tools/$tool" || skip_all "$tool is not built"
done
