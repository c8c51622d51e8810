#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpc-inspect rm: what nobody uses goes, what somebody uses stays.
# Tests: tools/inspect/admin.c tools/inspect/remains.c tools/inspect/list.c lib/index/segment/remove.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

files()	# NAME: of that cache, without the lock
{
	ls "$shm" | grep "^gpc\.$1\..*" | grep -v '\.lock$' | paste -sd' ' -
}

dead()	# NAME: a cache without a process
{
	serve "$1" --block-size 16 --vram-blocks 64 --max-peers 2
	kill -9 "$pid"
	until_ok is_gone "$pid"
}

refuses 2 'either NAME or --stale' gpc-inspect --dir "$shm" rm
refuses 2 'the PATTERN is empty' gpc-inspect --dir "$shm" rm --stale ''
refuses 2 'list: --dry-run is an option of rm$' gpc-inspect --dir "$shm" list --dry-run
refuses 2 '--force goes with NAME' gpc-inspect --dir "$shm" rm --stale --force
refuses 2 "'two' is one argument too many" gpc-inspect --dir "$shm" rm one two
refuses 2 "cannot name a cache" gpc-inspect --dir "$shm" rm a/b
refuses 1 'absent' gpc-inspect --dir "$shm" rm absent

# ---- one ----

dead one
like "$(files one)" 'ctl.*idx' "there is a cache"
inspect rm one
exits 0 "rm of a dead one"
is "$(cat "$tmp/out")" 'removed one' "says so"
is "$(files one)" '' "it is gone"
refuses 1 'one' gpc-inspect --dir "$shm" rm one

dead two
inspect --json rm two
exits 0 "rm --json"
is "$(value removed removed/0)" "[1]
two" "is an object"
is "$(files two)" '' "it is gone"

# ---- further files of a memory, which are left alone ----

touch "$shm/gpc.left.p0123456789abcdef.1" "$shm/gpc.left.p0123456789abcdef.3" "$shm/gpc.left.p0123456789abcdef.4" \
	"$shm/gpc.strangep0123456789abcdef.1"
inspect list
like "$(cat "$tmp/out")" 'left' "list names them"
is "$(grep -c strang "$tmp/out")" 0 "and nothing of a file that only looks alike"
rm "$shm/gpc.strangep0123456789abcdef.1"
inspect rm --stale
exits 0 "rm --stale"
like "$(cat "$tmp/out")" 'left' "says so"
is "$(files left)" 'gpc.left.p0123456789abcdef.4' "they are gone, and a file of another name is not"
rm "$shm/gpc.left.p0123456789abcdef.4"
inspect list
like "$(cat "$tmp/out")" '^$|no cache' "and nothing is left" || cat "$tmp/out" "$tmp/err"

# ---- one in use ----

serve used --block-size 16 --vram-blocks 64 --max-peers 2
start worker "$helpers/hold" "$shm" used worker 3 0 0
worker=$pid
until_ok grep -q holding "$tmp/worker.out" || bail "hold: $(cat "$tmp/worker.err")"
refuses 1 'used is in use' gpc-inspect --dir "$shm" rm used
inspect check used
exits 0 "one in use stays"
kill "$(cat "$tmp/used.pid")"
until_ok test ! -e "$tmp/used.pid"
refuses 1 'used is in use' gpc-inspect --dir "$shm" rm used
inspect rm used --force
exits 0 "--force removes it all the same"
is "$(files used)" '' "its names are gone"
is_gone "$worker"
is $? 1 "its processes are not"
kill "$worker"
finish "$worker"
is "$status" 0 "and end well"

# ---- one whose daemon is about to end ----

serve ending --block-size 16 --vram-blocks 64 --max-peers 2
stop_process "$pid"
kill "$pid"
start remover gpc-inspect --dir "$shm" rm ending
remover=$pid
until_ok grep -q 'gpc-inspe[ct]*) S' "/proc/$remover/stat" || diag "it does not wait"
is "$(files ending | grep -c idx)" 1 "while its daemon is there, it is waited for"
kill -CONT "$(cat "$tmp/ending.pid")"
finish "$remover"
is "$status $(cat "$tmp/remover.out")" '0 removed ending' "and goes when the daemon is gone" ||
	diag "$(cat "$tmp/remover.err")"
is "$(files ending)" '' "as a whole"

# ---- another user's ----

chmod 755 "$shm"
if test "$(id -u)" -eq 0 && setpriv --reuid 65534 --regid 65534 --clear-groups \
	"$builddir/tools/gpc-inspect" --version >/dev/null 2>&1
then
	dead foreign
	run setpriv --reuid 65534 --regid 65534 --clear-groups \
		gpc-inspect --dir "$shm" rm foreign
	exits 1 "rm of another user's"
	says '/gpc\.foreign\.lock: Permission denied: it belongs to user 0 \(' "says whose"
	like "$(files foreign)" 'ctl.*idx' "and it stays"
	inspect rm foreign
	exits 0 "its owner removes it"
	chmod 1777 "$shm"
	run gpcd shared --dir "$shm" --block-size 16 --max-blocks 100 --group 65534 --daemonize --quiet --pidfile "$tmp/shared.pid"
	kill "$(cat "$tmp/shared.pid")"
	until_ok is_gone "$(cat "$tmp/shared.pid")"
	run setpriv --reuid 65534 --regid 65534 --clear-groups \
		gpc-inspect --dir "$shm" rm shared
	exits 1 "rm by one of its group, in a sticky folder"
	says 'removing .*: only its owner may, user 0, or root: its folder is sticky$' "says who may"
	chmod 755 "$shm"
	inspect rm shared
else
	skip 6 "needs root and setpriv"
fi

# ---- what is damaged ----

dead broken
: >"$shm/gpc.broken.idx"
inspect rm broken
exits 0 "rm of a damaged one"
is "$(files broken)" '' "it is gone"

# ---- the remains of a cache that was never whole ----

dead rest
rm "$shm/gpc.rest.idx"
inspect list
prints '^rest .* remains$' "list names them"
says "^gpc-inspect: rest: its maker or remover was killed, .*'gpc-inspect rm rest' removes them\$" "and the remedy"
inspect --json list
is "$(values 0/name 0/state)" 'rest remains' "in JSON, too"
rest_bytes=$(value 0/pool_bytes)
is "$rest_bytes" "$(stat -c %b "$shm"/gpc.rest.* | awk '{ n += 512 * $1 } END { print n }')" "with the bytes that they take"
inspect rm rest --dry-run
exits 0 "rm --dry-run of remains"
prints '^would remove the remains of rest, which was no whole cache: [0-9.]* [KM]iB$' "says what would go"
like "$(files rest)" ctl "and nothing goes"
inspect rm rest
exits 0 "rm of remains"
is "$(cat "$tmp/err")" '' "denies nothing"
prints '^removed the remains of rest, which was no whole cache: [0-9.]* [KM]iB$' "says what went"
is "$(ls "$shm" | grep -c '^gpc\.rest\.')" 0 "and it went"
refuses 1 'there is no cache rest' gpc-inspect --dir "$shm" rm rest
dead rest
rm "$shm/gpc.rest.idx"
inspect --json rm rest
is "$(value removed/0 remains/rest | paste -sd' ' -)" "rest $rest_bytes" "--json: their bytes"

# one that is being made, as its lock tells
serve making --block-size 16 --vram-blocks 64 --max-peers 2
mv "$shm/gpc.making.idx" "$shm/making"
inspect --json list
is "$(values 0/name 0/state 0/refused)" 'making not there another process makes or removes it' "one that is being made is none"
mv "$shm/making" "$shm/gpc.making.idx"
kill "$pid"
until_ok is_gone "$pid"
inspect rm making
exits 0 "which becomes a cache"

# ---- --stale ----

dead stale1
dead stale2
: >"$shm/gpc.stale2.ctl"
dead half
rm "$shm/gpc.half.idx"
serve alive --block-size 16 --vram-blocks 64 --max-peers 2
echo "not a cache" >"$shm/gpc-replay.something"
echo "neither" >"$shm/gpc.txt"
theirs=
if test "$(id -u)" -eq 0; then
	dead theirs
	chown 65534 "$shm/gpc.theirs.idx" "$shm/gpc.theirs.ctl" "$shm/gpc.theirs.lock"
	theirs=$(files theirs)
fi
before=$(files alive)
whole=$(ls -lR "$shm")
inspect rm --stale --dry-run
exits 0 "rm --stale --dry-run"
is "$(sed 's/, which.*//' "$tmp/out" | paste -sd, -)" 'would remove the remains of half,would remove stale1,would remove stale2' "names them"
inspect --json rm --stale --dry-run
is "$(value would_remove/0 would_remove/1 would_remove/2 | paste -sd' ' -)" 'half stale1 stale2' "as JSON, too"
inspect rm --stale 'stale[2-9]' --dry-run
is "$(cat "$tmp/out")" 'would remove stale2' "those whose name is like a pattern"
inspect rm stale1 --dry-run
is "$(cat "$tmp/out")" 'would remove stale1' "and one by its name"
refuses 1 'alive is in use' gpc-inspect --dir "$shm" rm alive --dry-run
is "$(ls -lR "$shm")" "$whole" "and none of these changes a file"
inspect rm --stale 'gone*'
prints "^nothing to remove: this user has no cache like 'gone\*' in $shm that nobody uses\$" "a pattern that none is like"
dead other1
dead other2
inspect rm --stale 'other?'
is "$(paste -sd, - <"$tmp/out")" 'removed other1,removed other2' "a pattern removes these"
is "$(ls -lR "$shm" | sed '/^total/d')" "$(printf '%s\n' "$whole" | sed '/^total/d')" "and no other"
inspect --json rm --stale
exits 0 "rm --stale"
is "$(value 'removed/*' | cut -d' ' -f2 | sort | paste -sd' ' -)" 'half stale1 stale2' \
	"removes the dead, the damaged, the half"
is "$(files 'stale.')$(files half)" '' "they are gone"
is "$(files alive)" "$before" "one that is served stays"
is "$(files theirs)" "$theirs" "that of somebody else, too"
is "$(cat "$shm/gpc-replay.something" "$shm/gpc.txt")" "not a cache
neither" "and what is no cache"
inspect rm --stale
exits 0 "rm --stale, with nothing stale"
prints "^nothing to remove: this user has no cache in $shm that nobody uses\$" "says so"
inspect --json rm --stale
is "$(value removed)" '[0]' "--json: an empty list"
inspect check alive
exits 0 "the living one is sound"

refuses 1 'there is no cache nosuch' gpc-inspect --dir "$shm" rm nosuch --dry-run
done_testing
