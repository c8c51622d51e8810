#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One verdict on the files of a cache: what gpcd says when it is to serve them is what list and
# stat say of them, whatever was done to them.
# Tests: lib/index/segment/validate.c tools/inspect/state.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

file()	# SUFFIX
{
	echo "$shm/gpc.x.$1"
}

patch()	# SUFFIX OFFSET OCTAL...: bytes there
{
	at=$(file "$1")
	where=$2
	shift 2
	printf "$(printf '\\%s' "$@")" | dd of="$at" bs=1 seek="$where" conv=notrunc 2>/dev/null
}

as=                      # who looks, and serves: a command in front, or nothing

# What gpcd has to say, without what it adds: its sentence, or "served".  One that is not there would be waited for.
of_gpcd()
{
	rm -f "$tmp/x.pid"
	start x $as gpcd x --dir "$shm" --quiet ${1:+--pidfile "$tmp/x.pid"}
	until_ok eval "is_gone $pid || grep -q waiting '$tmp/x.err' || test -s '$tmp/x.pid'"
	kill -TERM "$pid" 2>/dev/null
	finish "$pid"
	if test "$status" -eq 0 && ! test -s "$tmp/x.err"; then
		echo served
	else
		sed "s/^gpcd: \(x: \)\{0,1\}//; s/; 'gpc-inspect .* removes it\$//
			s/^waiting: //; s/; an engine makes it, .*//" "$tmp/x.err"
	fi
}

# The state that list has; "no row" where it does not know of it.
of_list()
{
	run $as gpc-inspect --dir "$shm" --json list
	value 0/state 2>/dev/null | grep . || echo 'no row'
}

refused_of_list()
{
	value 0/refused 2>/dev/null
}

# The state that stat has, or why it refuses.
of_stat()
{
	run $as gpc-inspect --dir "$shm" --json stat x
	if test "$status" -eq 0 && test -n "$(value refused | grep -v null)" && ! value state | grep -q 'closed to'; then
		value refused
	elif test "$status" -eq 0; then
		value state
	else
		sed 's/^gpc-inspect: \(x: \)\{0,1\}//' "$tmp/err"
	fi
}

# The present state of the files, with part of the sentence that is expected of all.
refused()	# DAMAGE TEXT
{
	gpcd=$(of_gpcd)
	list=$(of_list)
	refused=$(refused_of_list)
	stat=$(of_stat)
	like "$gpcd" "$2" "$1: gpcd refuses"
	like "$list" '^(other layout|damaged|closed|replaced)$' "$1: list has a word"
	is "$refused" "$gpcd" "$1: its JSON says the same"
	is "$stat" "$gpcd" "$1: so does stat"
}

absent()	# LEFTOVER: there is no cache for any of them, and list says that files remain
{
	like "$(of_gpcd)" 'there is no cache x' "$1: gpcd finds no cache"
	is "$(of_list)" remains "$1: list has its files"
	like "$(of_stat)" 'there is no cache x' "$1: stat finds none"
}

fresh()	# a sound cache
{
	rm -rf "$shm"/gpc.x.*
	for suffix in idx ctl lock; do
		cp -p "$tmp/sound.$suffix" "$(file $suffix)"
	done
}

serve x --block-size 16 --vram-blocks 64
kill -TERM "$pid"
until_ok is_gone "$pid"
for suffix in idx ctl lock; do
	cp -p "$(file $suffix)" "$tmp/sound.$suffix"
done
bytes=$(stat -c %s "$(file idx)")

# ---- nothing wrong ----

is "$(of_list)" unused "sound: list"
is "$(of_stat)" unused "sound: stat"
is "$(of_gpcd pidfile)" served "sound: gpcd serves"

# ---- files that are not there, or no files ----

for part in ctl lock; do
	fresh
	rm "$(file $part)"
	refused "no $part" "gpc.x.$part does not exist"
	mkdir "$(file $part)"
	refused "$part is a folder" "gpc.x.$part is no regular file"
	rmdir "$(file $part)"
	ln -s "$tmp/sound.$part" "$(file $part)"
	refused "$part is a link" "gpc.x.$part is a symbolic link"
done
fresh
rm "$(file idx)"
absent "control segment and lock file left over"
rm "$(file ctl)"
absent "a lock file left over"
mkfifo "$(file idx)"
refused "the index is a pipe" 'gpc.x.idx is no regular file'

# ---- sizes ----

for part in idx ctl; do
	fresh
	truncate -s +4096 "$(file $part)"
	refused "$part is a page too long" "gpc.x.$part has [0-9]+ bytes instead of"
	truncate -s -8192 "$(file $part)"
	refused "$part is a page too short" "gpc.x.$part has [0-9]+ bytes instead of"
	truncate -s 4096 "$(file $part)"
	refused "$part has its first page" "gpc.x.$part has 4096 bytes instead of"
done
fresh
truncate -s 8192 "$(file idx)"
truncate -s "$bytes" "$(file idx)"
refused "the index has a hole" 'gpc.x.idx is sparse'
: >"$(file idx)"
refused "an empty index" 'gpc.x.idx is not an index'

# ---- headers ----

fresh
patch idx 8 011
refused "another layout version" 'made by a newer gpc \(layout 9\)'
fresh
patch idx 100 125 252
refused "a damaged header" 'gpc.x.idx: the checksum of its header is wrong'
fresh
patch idx 0 0 0
refused "no index at all" 'gpc.x.idx is not an index'
fresh
patch idx 256 0 0 0 0
refused "half made" 'gpc.x.idx was never completed'
fresh
patch ctl 100 125 252
refused "another's control segment" 'gpc.x.ctl does not belong to the index'
fresh
patch lock 0 125 252
refused "another's lock file" 'gpc.x.lock does not belong to the index'

# ---- who may ----

for part in idx ctl lock; do
	fresh
	chmod 0606 "$(file $part)"
	refused "$part for everybody" "gpc.x.$part has mode 606"
done
fresh
if test "$(id -u)" -eq 0 && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null
then
	chmod 0755 "$shm"
	as='setpriv --reuid 65534 --regid 65534 --clear-groups env'
	refused "another user's" 'gpc.x.idx: Permission denied: user 0'
	as=
	fresh
	chown 65534:65534 "$shm"/gpc.x.*
	gpcd=$(of_gpcd)
	like "$gpcd" 'belongs to user 65534' "another user's, for root: gpcd refuses"
	is "$(of_list)" 'unused, closed to this user' "list shows the cache, and that it is closed"
	is "$(refused_of_list)" "$gpcd" "for the same reason"
	is "$(of_stat)" 'unused, closed to this user' "so does stat"
else
	skip 8 "needs root and setpriv"
fi

done_testing
