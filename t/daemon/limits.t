#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd where the machine says no: too little shared memory, limits, folders it may not
# use. Each is a message and an exit status, never a signal, and leaves nothing behind.
# Tests: tools/daemon/serve.c lib/index/segment/space.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

nothing_is_left()	# WHEN; the lock file may stay
{
	is "$(ls "$shm" | grep -v '^gpc\..*\.lock$')" '' "nothing is left: $1"
}

# ---- too little shared memory ----

free_mib()
{
	{
		df -Pk "$shm" | awk 'NR == 2 { print "space", $4 }'
		cat /proc/meminfo
	} | awk '
	$1 == "space" { space = $2 }
	$1 == "MemAvailable:" || $1 == "SwapFree:" { memory += $2 }
	END { print int((space < memory ? space : memory) / 1024) }'
}

# what the largest cache needs, and a good deal less, for free memory comes and goes
if test "$(free_mib)" -lt 150000; then
	run gpcd big --dir "$shm" --block-size 16 --max-blocks 256M --max-peers 250
	exits 1 "more than there is"
	says "big: $shm lacks [0-9]+ bytes .* needs [0-9]+ MiB and [0-9]+ MiB are free" \
		"the message says how much is missing"
	says 'lower --max-blocks or --max-peers' "and what to do"
	nothing_is_left "too little memory"
else
	skip 4 "this machine has room for the largest cache"
fi

# ---- limits of the process ----

limited()	# OPTION OF ULIMIT, CMD...
{
	limit=$1
	shift
	run sh -c "ulimit -$limit && exec \"\$@\"" sh "$@"
}

limited 'f 64' gpcd small --dir "$shm" --block-size 16
exits 1 "a limit on the size of files"
says 'gpcd: small: a file needs [0-9]+ bytes, and files of this process may have [0-9]+: raise the limit' "is named"
nothing_is_left "a limit on the size of files"
limited 'f 64' gpcd small --dir "$shm" --block-size 16 --daemonize
exits 1 "the same with --daemonize"
says 'files of this process may have' "is named"
limited 'f 64' gpc-replay "$small_trace" --dir "$shm"
exits 1 "gpc-replay under such a limit"
says 'gpcd did not start' "says what did not work"
nothing_is_left "gpc-replay under a limit"

# a sanitizer's own memory does not fit under such a limit
limited 'v 150000' gpcd --version
if test "$status" -eq 0; then
	limited 'v 150000' gpcd small --dir "$shm" --block-size 16 --max-blocks 1M
	exits 1 "a limit on memory"
	says 'small: .*: Cannot allocate memory' "is named"
	nothing_is_left "a limit on memory"
else
	skip 3 "the programs do not run under a limit on memory at all"
fi

# ---- descriptors ----

# each number of descriptors that a start can come to its end with
n=3
status=1
: >"$tmp/all"
while test "$status" -ne 0 && test $n -lt 40; do
	limited "n $n" gpcd few --dir "$shm" --block-size 16 --max-blocks 100 --daemonize --quiet --pidfile "$tmp/few.pid"
	cat "$tmp/err" >>"$tmp/all"
	n=$((n + 1))
done
test "$status" -eq 0 && kill "$(cat "$tmp/few.pid")"
n=3
status=1
while test "$status" -ne 0 && test $n -lt 40; do
	limited "n $n" gpcd few --dir "$shm" --daemonize --quiet --pidfile "$tmp/few.pid"
	cat "$tmp/err" >>"$tmp/all"
	n=$((n + 1))
done
test "$status" -eq 0 && kill "$(cat "$tmp/few.pid")"
like "$(grep -c 'boot_id' "$tmp/all")" '^[1-9]' "there is a number at which the boot's number is not to be had"
is "$(grep -c 'boot_id' "$tmp/all")" "$(grep -c 'boot_id: Too many open files' "$tmp/all")" \
	"without a descriptor for the boot's number the reason is said"
is "$(grep -v 'Too many open files\|loading shared libraries' "$tmp/all")" '' "and so it is of all other files"
until_ok is_gone "$(cat "$tmp/few.pid")"
inspect rm few

# ---- folders and files ----

if test "$(id -u)" -ne 0; then
	mkdir -m 0555 "$shm/closed"
	run gpcd small --dir "$shm/closed" --block-size 16
	exits 1 "a folder that cannot be written"
	says 'Permission denied' "is named"
	rmdir "$shm/closed"
else
	skip 2 "nothing is closed to root"
fi

# workers of another user
chmod 755 "$shm"
other()	# CMD...: as nobody
{
	run setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}
other gpc-inspect --version
if test "$(id -u)" -eq 0 && test "$status" -eq 0; then
	serve closed --block-size 16
	other "$helpers/hold" "$shm" closed stranger 0 0 0
	says 'gpc.closed.idx: Permission denied: user 0, group [0-9]+, mode 600; gpcd --group lets' \
		"who may not attach is told whom the cache is open to, and the remedy"
	serve open --block-size 16 --group "$(id -gn 65534)"
	start neighbour setpriv --reuid 65534 --regid 65534 --clear-groups \
		"$helpers/hold" "$shm" open neighbour 0 0 0
	until_ok grep -q holding "$tmp/neighbour.out"
	ok $? "which helps" "$tmp/neighbour.err"
	chown 65534 "$shm/gpc.closed.idx"
	run gpcd closed --dir "$shm"
	exits 1 "a cache of another user"
	says 'gpc.closed.idx belongs to user 65534, group [0-9]+, mode 600; gpcd --group lets' \
		"is refused to root as well"
else
	skip 4 "it takes root to be another user"
fi

touch "$shm/file"
run gpcd small --dir "$shm/file" --block-size 16
exits 1 "a file is no folder"
says "small: $shm/file is no directory" "and is named"
rm "$shm/file"

for suffix in idx lock; do
	ln -s "$tmp/victim" "$shm/gpc.link.$suffix"
	run gpcd link --dir "$shm" --block-size 16
	exits 1 "a link where the $suffix should be"
	says "^gpcd: link: .*/gpc.link.$suffix is a symbolic link" "is refused: $suffix"
	is "$(ls "$tmp/victim" 2>/dev/null)" '' "and not followed: $suffix"
	rm -f "$shm/gpc.link."*
done

# a foreign file that has the name of an index
for make in '' '--block-size 16'; do
	head -c 8192 /dev/zero >"$shm/gpc.junk.idx"
	run gpcd junk --dir "$shm" $make
	exits 1 "a foreign file where the index should be $make"
	says "^gpcd: junk: gpc.junk.idx is not an index of gpc; 'gpc-inspect --dir $shm rm junk' removes it" \
		"the file in the way is named, and the remedy"
	inspect rm junk
	exits 0 "which helps"
done
is "$(ls "$shm" | grep junk)" '' "nothing is left of it"
serve half --block-size 16
kill "$pid"
until_ok is_gone "$pid"
rm "$shm/gpc.half.ctl"
run gpcd half --dir "$shm"
exits 1 "an index without its control segment"
says "half: $shm/gpc.half.ctl does not exist; 'gpc-inspect" "is told from that"
rm "$shm/gpc.half."*

# what a creator that was killed left behind is no cache yet
ln -s "$tmp/victim" "$shm/gpc.left.ctl"
serve left --block-size 16
is "$(ls "$tmp/victim" 2>/dev/null)" '' "a link among what a creator left is not followed"
is "$(stat -c %F "$shm/gpc.left.ctl")" 'regular file' "but replaced"

done_testing
