#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What gpc-containers(7) says: caches shared, and not shared, by processes in namespaces of their own.
# Tests: man/gpc-containers.7 tools/inspect/state.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

command -v unshare >/dev/null || skip_all "there is no unshare"
own=
unshare -m -p -f --mount-proc true 2>/dev/null || own='-U -r'
unshare $own -m -p -f --mount-proc true 2>/dev/null || skip_all "this user may not have namespaces of its own"

# with process ids, mounts, IPC objects and a network of its own; the folder of the caches is the same
boxed()	# CMD...
{
	run unshare $own -m -p -i -n -f --mount-proc --kill-child "$@"
}

# what matters is what they hold
peer()	# LABEL FIELD...
{
	label=$1
	shift
	inspect peers c
	awk -v label="$label" -v fields="$*" '
	NR == 1 {
		gsub(/RING FULL/, "RING_FULL")
		gsub(/VRAM HITS/, "VRAM_HITS")
		gsub(/RAM HITS/, "RAM_HITS")
		for (i = 1; i <= NF; i++)
			at[$i] = i
	}
	NR > 1 { gsub(/ (ns|us|ms|s|min|h|d) /, "_ ") }
	NR > 1 && $at["LABEL"] == label {
		n = split(fields, names, " ")
		for (i = 1; i <= n; i++)
			printf "%s%s", $at[names[i]], i < n ? " " : "\n"
	}' "$tmp/out"
}

gone()	# LABEL
{
	test -z "$(peer "$1" STATE)"
}

sits()	# LABEL
{
	test -n "$(peer "$1" STATE)"
}

# ---- one folder, other processes ----

serve c --block-size 16 --vram-blocks 64 --quarantine 300
boxed gpc-inspect --dir "$shm" stat c
prints '^state: +served$' "from another PID, mount, IPC and network namespace: it is served"
boxed gpc-replay "$small_trace" --dir "$shm" --name c --json
is "$status $(values requests wrong_blocks)" '0 400 0' "a worker there replays"
start inside unshare $own -m -p -i -n -f --mount-proc --kill-child "$helpers/hold" "$shm" c inside 4 3 1
box=$pid
until_ok grep -q holding "$tmp/inside.out" || bail "$(cat "$tmp/inside.err")"
is "$(peer inside STATE REFS RESERVED SECTIONS)" 'elsewhere 4 3 1' "it is alive, elsewhere, and what it holds is seen"
is "$(peer inside PID)" 1 "by its number there"
boxed gpc-inspect --dir "$shm" rm c
exits 1 "in use, also for those who do not see its process"
kill -9 $box
wait $box 2>/dev/null
until_ok gone inside
ok $? "a container that is killed gives its seat back"
inspect --json stat c
is "$(values stats/refs stats/reserved)" '0 0' "and all that it held"
inspect check c
exits 0 "the cache is sound"

# ---- the writer in a container, the standby in another one ----

serve w --block-size 16 --vram-blocks 64 --unlink
kill "$(cat "$tmp/w.pid")"
until_ok is_gone "$pid"
writer_in()	# LABEL OPTION...
{
	label=$1
	shift
	start "$label" unshare $own -m -p -i -n -f --mount-proc --kill-child gpcd d --dir "$shm" --foreground \
		--block-size 16 --vram-blocks 64 "$@"
}
writer_in first
first=$pid
until_ok grep -q 'serving' "$tmp/first.err" || bail "$(cat "$tmp/first.err")"
writer_in second --standby
second=$pid
until_ok sh -c 'test "$(gpc-inspect --dir "$0" peers d | wc -l)" = 3' "$shm"
ok $? "a standby in another container waits"
generation()
{
	inspect --json stat d
	value generation 2>/dev/null || value stats/generation
}
kill -9 $first
wait $first 2>/dev/null
until_ok grep -q 'serving' "$tmp/second.err"
ok $? "and takes over when the writer's container is killed" "$tmp/second.err"
boxed gpc-replay "$small_trace" --dir "$shm" --name d --json
is "$status $(values requests wrong_blocks)" '0 400 0' "workers go on in a third one"
kill -9 $second
wait $second 2>/dev/null

# ---- another /dev/shm ----

boxed sh -c 'mount -t tmpfs tmpfs "$0" && gpc-inspect --dir "$0" list' "$shm"
exits 0 "an empty folder in its place"
! grep -q '^c ' "$tmp/out"
ok $? "has no caches" "$tmp/out"
mkdir "$tmp/there"
boxed sh -c 'mount --bind "$0" "$1" && gpc-inspect --dir "$1" stat c' "$shm" "$tmp/there"
prints '^state: +served$' "the folder under another name has them"
boxed sh -c 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && gpc-inspect --dir "$0" stat c' "$shm"
prints '^state: +served, closed to this user$' "read-only: it can be looked at"
boxed sh -c 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$1" "$0" c inside 1 0 0' "$shm" "$helpers/hold"
test $status -ne 0 && grep -q 'Read-only file system' "$tmp/err"
ok $? "and no worker can attach" "$tmp/err"
boxed sh -c 'mount -t tmpfs -o size=1m tmpfs "$0" && gpcd big --dir "$0" --block-size 16 --vram-blocks 1M' "$shm"
exits 1 "a folder of 1 MiB is too small"
says 'lacks [0-9]+ bytes .*big needs 195 MiB and 1 MiB are free by the limit of that file system; raise it' "and it is said by how much"

# ---- locked memory ----

sh -c 'ulimit -l 0' 2>/dev/null
ok $? "without locked memory"
run sh -c 'ulimit -l 0 && exec gpc-replay "$0" --dir "$1" --vram-blocks 100 --ram-blocks 64 --payload 4k --device host --json' \
	"$small_trace" "$shm"
is "$status $(values wrong_blocks)" '0 0' "caches, and pools with memory, work"

# ---- users ----

as()	# UID GID CMD...: beside other groups none; what it runs can be read by all
{
	uid=$1 gid=$2
	shift 2
	run setpriv --reuid "$uid" --regid "$gid" --clear-groups "$@"
}
users()
{
	chmod 755 "$shm"
	as 65534 65534 gpc-inspect --dir "$shm" stat c
	exits 1 "another user may not look"
	says 'Permission denied: user 0, group 0, mode 600; gpcd --group lets a group in' "and is told why"
	serve open --block-size 16 --vram-blocks 64 --group "$(getent group 65534 | cut -d: -f1)"
	as 65533 65534 "$helpers/hold" "$shm" open mine 200 0 0
	grep -q 'hold: ' "$tmp/err"
	ok $? "with --group it attaches: here it asks for too much" "$tmp/err"
	as 65533 65534 gpc-inspect --dir "$shm" stat open
	exits 0 "and looks"
	run unshare -U gpc-inspect --dir "$shm" stat c
	exits 0 "a user namespace changes no owner: it is the same user to the kernel"
}
if test "$(id -u)" = 0 && setpriv --reuid 65534 --regid 65534 --clear-groups \
		gpc-inspect --version >/dev/null 2>&1 && getent group 65534 >/dev/null; then
	users
else
	skip 5 "only root plays other users, and these must be able to read the build"
fi

done_testing
