#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two processes share a mirror and a pool of VRAM by what CUDA hands over between processes, while one of them is in
# namespaces of its own: the second one, which opens what the first one has made, the first one, and both.  Each line says which
# namespace, and where it does not work, which step fails with which error.  Two processes that are number 1 of two PID
# namespaces have one number, and CUDA takes the other process for itself; it does not begin without a /proc of its own PID
# namespace.  Both are told by a sentence.
# /dev/shm is one in all of them.  On the host device, or on the GPU of GPC_TEST_DEVICE; alone on a machine with a GPU, as root:
#
#	sh gpu-tests/check device-namespaces.t
#
# Tests: lib/bytes/device/cuda_memory.c lib/bytes/device/host_import.c lib/bytes/mirror/view.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

command -v unshare >/dev/null || skip_all "there is no unshare"
user='--user --map-root-user'
own=
unshare --pid --fork true 2>/dev/null || own=$user
unshare $own --pid --fork true 2>/dev/null || skip_all "this user may not have namespaces of its own"

n=0
pair()	# WHAT FIRST SECOND: options of unshare for who owns and for who uses; `-`: none
{
	n=$((n + 1))
	what=$1
	first= second=
	test "$2" = - || first="unshare --kill-child $own $2"
	test "$3" = - || second="unshare --kill-child $own $3"
	# shellcheck disable=SC2086
	if ! { $first true && $second true; } 2>"$tmp/cannot"; then
		skip 1 "$what: $(head -n 1 "$tmp/cannot")"
		return
	fi
	# shellcheck disable=SC2086
	start "own$n" $first "$helpers/pair" "$shm" "pair$n" own
	owner=$pid
	until_ok owns_or_ends
	if ! grep -q owning "$tmp/own$n.out"; then
		tell "the first process cannot start: $(cat "$tmp/own$n.out" "$tmp/own$n.err" | head -n 1)"
		finish "$owner"
		return
	fi
	# shellcheck disable=SC2086
	run $second "$helpers/pair" "$shm" "pair$n" use
	test "$status" = 0 && tell works || tell "$(cat "$tmp/out" "$tmp/err" | head -n 1), status $status"
	for process in $(of "pair$n own"); do
		kill -TERM "$process"
	done
	finish "$owner"
	gpc-inspect --dir "$shm" rm "pair$n" >/dev/null 2>&1
}

owns_or_ends()
{
	grep -q owning "$tmp/own$n.out" || is_gone "$owner"
}

# The processes whose command line ends so; unshare itself is one of them, and passes no signal on.
of()	# WORDS
{
	for process in $(crew); do
		tr '\0' ' ' <"/proc/$process/cmdline" 2>/dev/null | grep -q "^[^ ]*pair .*$1 \$" && echo "$process"
	done
}

wanted=works
tell()	# RESULT
{
	case $1 in
	*"$wanted"*) ok 0 "$what" ;;
	*) ok 1 "$what" ;;
	esac
	diag "$(printf '%-52s %s' "$what" "$1")"
}

all='--pid --fork --mount-proc --ipc --mount --uts --net --cgroup'
pair 'both in the namespaces of the machine' - -
for name in pid ipc mount uts net cgroup user; do
	case $name in
	pid) options='--pid --fork --mount-proc' ;;
	user) options=$user ;;
	*) options=--$name ;;
	esac
	test -z "$own" || test $name != user || options=--uts
	pair "$name: the second one" - "$options"
	pair "$name: the first one" "$options" -
done
pair 'ipc and net: each its own' '--ipc --net' '--ipc --net'
pair 'all but user: the second one' - "$all"
pair 'all: the second one' - "$all $user"
on_gpu && wanted='this one, 1, in another PID namespace'
pair 'pid: both, and each is number 1' '--pid --fork --mount-proc' '--pid --fork --mount-proc'
pair 'all but user: each its own, and number 1' "$all" "$all"
pair 'all: each its own, and number 1' "$all $user" "$all $user"
on_gpu && wanted='OS call failed'
pair 'pid without a /proc of its own: the second one' - '--pid --fork'

done_testing
