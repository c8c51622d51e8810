#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The limits of memory of gpc-containers(7): gpcd touches all memory of a cache that it makes, so a worker in a small
# container fills and reads a pool that is larger than its limit, and whoever makes a cache needs room for all of it.  By
# the pages of the files, and by control groups of memory, of version 1 or 2, where this user makes any.
# Tests: man/gpc-containers.7 lib/bytes/memfile/pages.c lib/index/segment/create.c lib/index/segment/pages.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

mib=36		# of the pool of RAM below, with its 64 transit blocks
pool="--ram-blocks 512 --block-bytes 64k"

# ---- groups ----

groups=
version=0
drop_groups()	# however the test ends; a group goes when its last process is gone
{
	before=$?
	for at in "$groups".*; do
		test -n "$groups" && test -d "$at" || continue
		kill -9 $(cat "$at/cgroup.procs") 2>/dev/null
		n=0
		until rmdir "$at" 2>/dev/null || test $((n += 1)) = 100; do
			sleep 0.05
		done
	done
	return $before
}
trap 'drop_groups; clean_up' EXIT
group()	# NAME [LIMIT]
{
	mkdir "$groups.$1" 2>/dev/null && test -e "$groups.$1/$limit" || return 1
	test -z "$2" || echo "$2" >"$groups.$1/$limit" || return 1
	# a page that is swapped out would make room
	test -z "$2" || echo 0 2>/dev/null >"$groups.$1/memory.swap.max" ||
		echo "$2" 2>/dev/null >"$groups.$1/memory.memsw.limit_in_bytes" || :
}
for at in /sys/fs/cgroup /sys/fs/cgroup/memory; do
	test -e "$at/cgroup.procs" || continue
	groups=$at/gpc-$cache
	limit=memory.max used=memory.current version=2
	test -e "$at/cgroup.controllers" || limit=memory.limit_in_bytes used=memory.usage_in_bytes version=1
	group daemon 2>/dev/null && break
	rmdir "$groups.daemon" 2>/dev/null
	version=0
done
grouped()	# GROUP CMD...: of run or start, whose process becomes that
{
	group=$1
	shift
	test $version = 0 && exec "$@"
	exec sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$groups.$group" "$@"
}
# By what counts for the limit: memory.stat keeps pages that the kernel has made huge where their small ones were.
charged()	# GROUP: MiB, shared or not
{
	echo $(($(cat "$groups.$1/$used") >> 20))
}

# ---- by pages ----

pages()	# of each file of that cache
{
	stat -c '%n %b' "$shm/gpc.$1".* | sort
}
start charged grouped daemon gpcd g --dir "$shm" --block-size 16 $pool --keep-tokens --keep-digests --quarantine 1
until_ok grep -q serving "$tmp/charged.err" || bail "$(cat "$tmp/charged.err")"
daemon=$pid
stat -c '%n %b %s' "$shm"/gpc.g.idx "$shm"/gpc.g.ctl "$shm"/gpc.g.lock | awk '$2 * 512 < $3' >"$tmp/out"
! test -s "$tmp/out"
ok $? "what gpcd makes has all of its pages" "$tmp/out"
pages g >"$tmp/before"
test $version = 0 || group worker 16M || bail "no group of 16 MiB"
start fill grouped worker "$helpers/fill" "$shm" g
worker=$pid
until_ok grep -q holding "$tmp/fill.out" || bail "$(cat "$tmp/fill.err")"
is "$(($(head -n 1 "$tmp/fill.out") >> 20))" $mib "a worker stores to the pool and reads all of it"
pages g >"$tmp/after"
cmp -s "$tmp/before" "$tmp/after"
ok $? "which adds no page to any file" "$tmp/after"

# ---- by groups ----

with_groups()
{
	test "$(charged daemon)" -ge $mib
	ok $? "the memory is gpcd's" "$groups.daemon/memory.stat"
	test "$(charged worker)" -lt 8
	ok $? "the worker, whose group may have 16 MiB, is charged $(charged worker) MiB" "$groups.worker/memory.stat"
	kill $worker
	wait $worker 2>/dev/null
	group standby
	start heir grouped standby gpcd g --dir "$shm" --standby
	until_ok grep -q 'standing by' "$tmp/heir.err"
	kill -9 $daemon
	wait $daemon 2>/dev/null
	until_ok grep -q 'serving' "$tmp/heir.err" || bail "$(cat "$tmp/heir.err")"
	test "$(charged standby)" -lt 8
	ok $? "a standby that takes over is charged nothing for it" "$groups.standby/memory.stat"
	until_ok rmdir "$groups.daemon"
	ok $? "the group can be removed"
	start more grouped worker "$helpers/fill" "$shm" g
	until_ok grep -q holding "$tmp/more.out" || bail "$(cat "$tmp/more.err")"
	test "$(charged worker)" -lt 8
	ok $? "and the cache goes on, at nobody's cost" "$groups.worker/memory.stat"
	run gpc-inspect --dir "$shm" check g
	exits 0 "it is sound"

	# whoever makes it
	group maker
	start maker grouped maker "$helpers/fill" "$shm" m 512 65536
	until_ok grep -q holding "$tmp/maker.out" || bail "$(cat "$tmp/maker.err")"
	test "$(charged maker)" -ge $mib
	ok $? "a cache that a worker makes is the worker's" "$groups.maker/memory.stat"
	group small 4M
	run grouped small "$helpers/fill" "$shm" h 512 65536
	test "$status" = 137 || grep -q ENOSPC "$tmp/err" || grep -q 'are free; enlarge' "$tmp/err"
	ok $? "with less room it gets none: it is refused, or killed" "$tmp/err"
	run grouped small gpcd h --dir "$shm" --block-size 16 $pool
	test "$status" = 137 || grep -q 'are free; enlarge' "$tmp/err"
	ok $? "so is gpcd" "$tmp/err"
	start again gpcd h --dir "$shm" --block-size 16 $pool
	until_ok grep -q serving "$tmp/again.err"
	ok $? "and the next one makes the cache" "$tmp/again.err"
	is "$(ls "$shm" | grep -c '^gpc[.]h[.]')" 4 "of what was left, nothing is left"

	# killed at a limit
	start greedy grouped small "$helpers/hold" "$shm" g greedy 4 3 0 100000
	until_ok grep -q holding "$tmp/greedy.out" || bail "$(cat "$tmp/greedy.err")"
	sh -c 'echo $$ >"$0/cgroup.procs"; head -c 8000000 /dev/zero | tail -c 8000000 >/dev/null' "$groups.small" 2>"$tmp/err"
	kill -9 $(cat "$groups.small/cgroup.procs") 2>/dev/null
	until_ok sh -c '! gpc-inspect --dir "$0" peers g | grep -q greedy' "$shm"
	run gpc-inspect --dir "$shm" check g
	exits 0 "whoever is killed at a limit: the cache is sound"
}
if test $version = 0; then
	skip 12 "this user makes no control groups of memory"
else
	diag "control groups of version $version"
	with_groups
fi

done_testing
