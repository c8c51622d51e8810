#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A cache that is there, and a daemon whose key, disk or room do not fit it: it ends at its start, beside a gpcd as
# beside an engine, and neither the files of the cache nor a key file get another mode or group.
# Tests: tools/daemon/serve.c tools/daemon/tiers.c tools/daemon/tiers_options.c tools/daemon/key.c lib/tiers/steward/plan.c lib/tiers/disk/open.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

cp "$builddir/t/lib/.libs/gpc_remote_bad.so" "$tmp" && chmod 644 "$tmp/gpc_remote_bad.so"

chmod 755 "$shm"
if test "$(id -u)" -eq 0; then
	other=65534
else
	other=$(id -g)
fi
a=$tmp/a.key b=$tmp/b.key
echo 00112233445566778899aabbccddeeff >"$a"
echo ffffffffffffffffffffffffffffffff >"$b"
chmod 600 "$a" "$b"
ram="--block-size 16 --ram-blocks 64 --block-bytes 4k --max-blocks 1k --device host"

dressed()	# modes and groups of all files of the cache, and of both key files
{
	stat -c '%a %g' "$shm"/gpc.a.* "$a" "$b" | sort -u
}

serve()	# OPTION...: a gpcd that serves the cache a; $writer
{
	start writer gpcd a --dir "$shm" "$@"
	writer=$pid
	until_ok grep -q 'serving as' "$tmp/writer.err" || bail "$(cat "$tmp/writer.err")"
	before=$(dressed)
}

ends_early()	# CACHE NAME REGEX OPTION...: before it serves, stands by or waits
{
	to=$1 name=$2 text=$3
	shift 3
	start early gpcd "$to" --dir "$shm" "$@"
	until_ok eval "is_gone $pid || grep -Eq 'standing by|serving as|waiting' '$tmp/early.err'"
	kill "$pid" 2>/dev/null
	finish "$pid"
	test "$status" -eq 1 && grep -Eq -e "$text" "$tmp/early.err"
	ok $? "$name: $text" "$tmp/early.err" || diag "exit status $status, want 1"
}

unfit()	# REGEX OPTION...: refused at once, and nothing is touched
{
	ends_early a refused "$@"
	is "$(dressed)" "$before" "and modes and groups stay"
}

# shellcheck disable=SC2086
serve $ram --key-file "$a"
for how in "--standby" "--standby $ram"; do
	# shellcheck disable=SC2086
	{
	unfit 'secret' $how --group "$other" --key-file "$b" --disk "$tmp/b.disk" --disk-blocks 256
	unfit 'secret' $how --group "$other" --key-file "$b" --remote "$tmp/gpc_remote_bad.so"
	unfit 'blocks are too many: a has --max-blocks 1024, of which [0-9]+ are left' \
		$how --group "$other" --key-file "$a" --disk "$tmp/b.disk" --disk-blocks 1020
	}
done
unfit "--remote-blocks is 1020, and these are too many: a has --max-blocks 1024" --standby --group "$other" --key-file "$a" --remote "$tmp/gpc_remote_bad.so" --remote-blocks 1020
test ! -e "$tmp/b.disk"
ok $? "no disk is made"

# a disk of another cache, beside the right key file
start third gpcd third --dir "$shm" --block-size 16 --ram-blocks 64 --block-bytes 4k --key-file "$b" --disk "$tmp/third.disk" --disk-blocks 99
until_ok grep -q 'serving as' "$tmp/third.err" || bail "$(cat "$tmp/third.err")"
kill "$pid"
finish "$pid"
unfit 'the keys in .*third.disk were hashed with another secret' --standby --group "$other" --key-file "$a" --disk "$tmp/third.disk"

# one that fits
start fits gpcd a --dir "$shm" --standby --key-file "$a" --disk "$tmp/a.disk" --disk-blocks 99
fits=$pid
until_ok eval "is_gone $fits || grep -q 'standing by' '$tmp/fits.err'"
kill "$writer"
finish "$writer"
until_ok eval "is_gone $fits || grep -q 'serving as' '$tmp/fits.err'"
grep -q 'serving as' "$tmp/fits.err"
ok $? "what fits takes over, with its tier" "$tmp/fits.err"
kill "$fits"
finish "$fits"

# no writer: the seat is not taken in vain
before=$(dressed)
unfit 'secret' --group "$other" --key-file "$b" --disk "$tmp/b.disk" --disk-blocks 256
inspect rm a

# ---- no cache yet: file, key file and size are compared all the same ----

at_once()	# REGEX OPTION...
{
	ends_early none "before a wait" "$@"
}
at_once '--disk: the keys in .*third.disk were hashed with another secret: give the key file' --key-file "$a" --disk "$tmp/third.disk"
at_once '--disk: .*third.disk has 99 slots, asked for are [0-9]+: .*--disk-resize' --key-file "$b" --disk "$tmp/third.disk" --disk-bytes 128M
start right gpcd none --dir "$shm" --key-file "$b" --disk "$tmp/third.disk" --disk-bytes 128M --disk-resize
until_ok eval "is_gone $pid || grep -q waiting '$tmp/right.err'"
kill "$pid"
finish "$pid"
is "$status" 0 "what may fit waits"
refuses 2 '--disk-bytes: 1 is too few: it must be 131073 or more' gpcd none --dir "$shm" --block-size 16 --ram-blocks 64 \
	--block-bytes 4k --disk "$tmp/new.disk" --disk-bytes 1 --key-file "$tmp/new.key"
test ! -e "$tmp/new.key"
ok $? "and no key file is made"
done_testing
