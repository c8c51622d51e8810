#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd keeps a tier on disk: what it refuses, what it finds again after its death, and the secret of the keys.
# Tests: tools/daemon/tiers.c tools/daemon/tiers_options.c lib/tiers/steward/peek.c lib/look/tiers.c tools/inspect/tiers.c
#   lib/index/segment/shm_tiers.h

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

serves()	# LABEL
{
	grep -q 'serving as process' "$tmp/$1.err"
}

serve()	# LABEL OPTION...: the cache `disk`, until it serves; $pid
{
	label=$1
	shift
	start "$label" gpcd disk --dir "$shm" "$@"
	until_ok serves "$label" || diag "$(cat "$tmp/$label.err")"
}

stop()	# SIGNAL
{
	kill -"$1" "$pid"
	finish "$pid"
}

make='--block-size 16 --ram-blocks 64 --block-bytes 4k --max-peers 8'

# ---- mistakes ----

refuses 2 '--disk-bytes: --disk is missing' gpcd disk --dir "$shm" --disk-bytes 1M
refuses 2 '--disk-ahead: --disk is missing' gpcd disk --dir "$shm" --disk-ahead 5
refuses 2 '--disk-resize: --disk is missing' gpcd disk --dir "$shm" --remote folder:dir=. --disk-ahead 5 --disk-resize
refuses 2 '--disk-bytes and --disk-blocks exclude' gpcd disk --dir "$shm" --disk x --disk-bytes 1M --disk-blocks 5
refuses 2 "--disk: a cache has one tier on disk, and 'x' and 'y' are two: give one" gpcd disk --dir "$shm" --disk x --disk y
refuses 2 '--keep and --disk exclude' gpcd disk --dir "$shm" --keep --device host --vram-blocks 5 --block-bytes 4k \
	--disk x
refuses 2 '--disk-ahead: 5000 is out of range' gpcd disk --dir "$shm" --disk x --disk-ahead 5000
for option in disk-blocks disk-ahead disk-min-uses remote-blocks remote-min-uses remote-deadline; do
	refuses 2 "--$option: 0 is out of range .1 to" gpcd disk --dir "$shm" --disk x --remote folder:dir=. "--$option" 0
done
# shellcheck disable=SC2086
refuses 2 '--disk-bytes: .* 16777248 blocks of 4096 bytes.* at most 70867091456$' \
	gpcd disk --dir "$shm" $make --disk x --disk-bytes 70867226624
refuses 2 '--max-peers: 1 is too few' gpcd disk --dir "$shm" --block-size 16 --max-peers 1 --disk x --disk-blocks 5
# shellcheck disable=SC2086
{
refuses 1 'too many: disk has --max-blocks 200' gpcd disk --dir "$shm" $make --max-blocks 200 --disk "$tmp/file" --disk-blocks 100
test ! -e "$tmp/file"
ok $? "and makes no file"
refuses 1 '--disk: --block-bytes is missing: a tier keeps blocks of a pool of RAM with memory$' \
	gpcd disk --dir "$shm" --block-size 16 --ram-blocks 5 --max-peers 4 --disk "$tmp/file" --disk-blocks 100
refuses 1 '--disk: --ram-blocks and --block-bytes are missing: .*; and so are --disk-bytes and --disk-blocks, one of which' \
	gpcd disk --dir "$shm" --block-size 16 --max-peers 4 --disk "$tmp/file"
run gpcd disk --dir "$shm" --block-size 16 --max-blocks 200 --ram-blocks 5 --max-peers 4 --daemonize --pidfile "$tmp/there.pid"
there=$(cat "$tmp/there.pid")	# which is gone with the daemon
kill "$there"
until_ok is_gone "$there"
refuses 1 'no pool of RAM with memory' gpcd disk --dir "$shm" --block-size 16 --max-blocks 200 --max-peers 4 \
	--disk "$tmp/file" --disk-blocks 100
run gpc-inspect --dir "$shm" rm disk
refuses 1 'disk-bytes and --disk-blocks are 0.* one of them must say how large' gpcd disk --dir "$shm" $make --disk "$tmp/file"
refuses 2 '--disk-bytes: 1 is too few: it must be 131073 or more' \
	gpcd disk --dir "$shm" $make --disk "$tmp/file" --disk-bytes 1
refuses 1 'no/file cannot be made: its folder does not exist; make the folder' \
	gpcd disk --dir "$shm" $make --disk "$tmp/no/file" --disk-blocks 100
ln -s "$tmp/elsewhere" "$tmp/link"
refuses 1 '--disk: ' gpcd disk --dir "$shm" $make --disk "$tmp/link" --disk-blocks 100
echo 'not a key' >"$tmp/key"
chmod 600 "$tmp/key"
refuses 1 'has not the 32 hex digits' gpcd disk --dir "$shm" $make --key-file "$tmp/key"
chmod 644 "$tmp/key"
refuses 1 'others could read it, or its group write to it: chmod 600 it, or 640' gpcd disk --dir "$shm" $make --key-file "$tmp/key"
rm "$tmp/key"
ln -s "$tmp/elsewhere" "$tmp/key"
refuses 1 'symbolic link: name the file itself' gpcd disk --dir "$shm" $make --key-file "$tmp/key"
refuses 1 'no/key: it cannot be made: its folder does not exist' gpcd disk --dir "$shm" $make --key-file "$tmp/no/key"
rm "$tmp/key"
mkfifo -m 600 "$tmp/key"
refuses 1 'no regular file' gpcd disk --dir "$shm" $make --key-file "$tmp/key"
rm "$tmp/key"
for other in pipe folder; do
	test $other = pipe && mkfifo -m 600 "$tmp/wrong" || mkdir "$tmp/wrong"
	refuses 1 'is no regular file' gpcd disk --dir "$shm" $make --disk "$tmp/wrong" --disk-blocks 9
	rm -r "$tmp/wrong"
done
# what is made of RAM would be refused as well, and is not begun
early="$make --huge-dir $shm"
refuses 1 '--disk: .*no/file cannot be made: its folder does not exist; make the folder' \
	gpcd disk --dir "$shm" $early --disk "$tmp/no/file" --disk-blocks 100
refuses 1 'disk-bytes and --disk-blocks are 0.* one of them must say how large' gpcd disk --dir "$shm" $early --disk "$tmp/file"
if test "$(id -u)" -ne 0; then
	mkdir -m 500 "$tmp/closed"
	refuses 1 '--disk: .*/closed/file cannot be opened: Permission denied' \
		gpcd disk --dir "$shm" $early --disk "$tmp/closed/file" --disk-blocks 100
	rmdir "$tmp/closed"
fi
is "$(ls "$shm")" '' "nothing is left of all that"

# ---- the smallest ----

serve small $make --disk "$tmp/small" --disk-bytes 131073
run gpc-inspect stat disk --dir "$shm"
like "$(cat "$tmp/out")" 'DISK +31 +1 ' "few bytes are one block, for which a cache that is made has room"
stop TERM
run gpc-inspect rm disk --dir "$shm"

# ---- bytes are as many blocks for all ----

# the notes of blocks take room as well; only the maker of the cache knows the size of a block beforehand
serve bytes $make --keep-tokens --keep-digests --disk "$tmp/bytes" --disk-bytes 4M
stop KILL
serve heir --disk "$tmp/bytes" --disk-bytes 4M
is "$(grep -o 'tier disk: .*blocks' "$tmp/heir.err")" "$(grep -o 'tier disk: .*blocks' "$tmp/bytes.err")" "another process with the same bytes has the same blocks"
stop TERM
run gpc-inspect rm disk --dir "$shm"
serve maker $make --disk "$tmp/bytes" --disk-bytes 4M
is "$(grep -o 'tier disk: .*blocks' "$tmp/maker.err")" "$(grep -o 'tier disk: .*blocks' "$tmp/bytes.err")" "and so has a cache that has smaller notes"
stop TERM
run gpc-inspect rm disk --dir "$shm"

# ---- its life ----

serve first $make --disk "$tmp/file" --disk-blocks 200 --disk-write-rate 1G
is "$(stat -c '%a' "$tmp/file")" 600 "the file is this user's alone"
is "$(grep -c "^gpcd: disk: tier disk: $tmp/file, 200 blocks of 4096 bytes$" "$tmp/first.err")" 1 "the log says which, and how large"
run gpc-inspect stat disk --dir "$shm" --json
like "$(cat "$tmp/out")" '"kind": "DISK"' "gpc-inspect stat shows the pool"
like "$(cat "$tmp/out")" '"written"' "and the tier"
like "$(cat "$tmp/out")" "\"what\": \"$tmp/file\"" "with the file that its steward was told"
run gpc-inspect stat disk --dir "$shm"
like "$(cat "$tmp/out")" 'TIER +POOL +STEWARD' "also as a table"
run gpc-inspect metrics disk --dir "$shm"
like "$(cat "$tmp/out")" 'gpc_tier_kept\{cache="disk",tier="disk"\} 1' "metrics say that somebody keeps it"
refuses 3 'has a writer already' gpcd disk --dir "$shm" $make --max-blocks 328 --disk "$tmp/file" --disk-blocks 150
refuses 3 'has a writer already' gpcd disk --dir "$shm" $make --disk "$tmp/no/file" --disk-blocks 200
refuses 1 'another process|has it' gpcd other --dir "$shm" $make --disk "$tmp/file"
stop KILL
run gpc-inspect metrics disk --dir "$shm"
like "$(cat "$tmp/out")" 'gpc_tier_kept\{cache="disk",tier="disk"\} 0' "killed, nobody does"
refuses 1 'resized.*--disk-resize' gpcd disk --dir "$shm" --disk "$tmp/file" --disk-blocks 150
serve second --disk "$tmp/file" --disk-blocks 150 --disk-resize
like "$(cat "$tmp/second.err")" "tier disk: $tmp/file, 150 blocks of 4096 bytes$" "so it does of another size"
run gpc-inspect stat disk --dir "$shm"
like "$(cat "$tmp/out")" 'DISK +3[01] +150' "it is resized when it is told so"
stop TERM
is "$status" 0 "and ends by SIGTERM"

# ---- secrets ----

run gpc-inspect rm disk --dir "$shm"
serve third $make --disk "$tmp/file"
stop TERM
ok "$status" "a cache that is made again has the secret of the file"
run gpc-inspect rm disk --dir "$shm"
serve fourth $make --disk "$tmp/other" --disk-blocks 50 --key-file "$tmp/key"
is "$(stat -c '%a %s' "$tmp/key")" '600 33' "the key file is made"
like "$(cat "$tmp/fourth.err")" "--key-file $tmp/key: made, with a new secret" "which the log says"
stop TERM
run gpc-inspect rm disk --dir "$shm"
refuses 1 'secret' gpcd disk --dir "$shm" $make --disk "$tmp/other"
refuses 1 "the keys in $tmp/file were hashed with another secret than that of --key-file $tmp/key, and it has that secret: remove $tmp/file, or name a key file that is not there, which is made with it" \
	gpcd disk --dir "$shm" $make --disk "$tmp/file" --key-file "$tmp/key"
mv "$tmp/key" "$tmp/key.aside"
refuses 1 "--key-file $tmp/key: there is no such file, and the keys in $tmp/other were hashed with a secret that a key file has: put back the one that it was made with, or remove $tmp/other\$" \
	gpcd disk --dir "$shm" $make --disk "$tmp/other" --key-file "$tmp/key"
is "$(ls "$tmp" | grep -c '^key$')" 0 "and no key file is made"
mv "$tmp/key.aside" "$tmp/key"
serve fifth $make --disk "$tmp/other" --key-file "$tmp/key"
stop TERM
ok "$status" "with the key file it is accepted"
refuses 1 "--key-file $tmp/key2: there is no such file, and the keys in $tmp/other were hashed with a secret" gpcd disk --dir "$shm" \
	--disk "$tmp/other" --key-file "$tmp/key2"
refuses 1 "--key-file $tmp/key2: there is no such file, and it is made with a new cache, or with the secret of --disk: give the one" \
	gpcd disk --dir "$shm" --disk "$tmp/new" --disk-blocks 50 --key-file "$tmp/key2"
refuses 1 "exists with another secret than that of --key-file or --disk: .*gpc-inspect --dir $shm rm disk'.; there is no file $tmp/key2\$" \
	gpcd disk --dir "$shm" --block-size 16 --key-file "$tmp/key2"
refuses 1 "exists with another secret than that of --key-file or --disk" gpcd disk --dir "$shm" --block-size 16 --disk "$tmp/file" \
	--ram-blocks 64 --block-bytes 4k --max-blocks 178 --max-peers 8 --key-file "$tmp/key2"
is "$(ls "$tmp" | grep -c 'key2')" 0 "none of that has made the key file"
echo 000102030405060708090a0b0c0d0e0f >"$tmp/key2"
chmod 600 "$tmp/key2"
refuses 1 '--key-file has not the secret of disk: .*gpc-inspect --dir [^ ]* rm disk.*; --key-file is /' gpcd disk --dir "$shm" --disk "$tmp/new" --disk-blocks 50 \
	--key-file "$tmp/key2"
rm "$tmp/key2"

# the disk has the secret: the key file gets it, and then both are needed no more than one
run gpc-inspect rm disk --dir "$shm"
serve gets $make --disk "$tmp/file" --key-file "$tmp/key2"
like "$(cat "$tmp/gets.err")" "--key-file $tmp/key2: made, with the secret of $tmp/file" "a key file for a disk with a secret of its own gets that"
is "$(stat -c '%a %s' "$tmp/key2")" '600 33' "as any"
stop TERM
serve both $make --disk "$tmp/file" --key-file "$tmp/key2"
stop TERM
ok "$status" "it is taken with the cache"
run gpc-inspect rm disk --dir "$shm"
serve anew $make --disk "$tmp/file" --key-file "$tmp/key2"
stop TERM
ok "$status" "and without"
run gpc-inspect rm disk --dir "$shm"
mv "$tmp/file" "$tmp/file.aside"
serve alone $make --disk "$tmp/file" --disk-blocks 150 --key-file "$tmp/key2"
stop TERM
mv "$tmp/file.aside" "$tmp/file"
rm "$tmp/key2"
serve keeps --disk "$tmp/file" --key-file "$tmp/key2"
like "$(cat "$tmp/keeps.err")" "--key-file $tmp/key2: made, with the secret of $tmp/file" "also of a cache that is there: it is that secret"
stop TERM
rm "$tmp/key2"
refuses 1 "--key-file $tmp/nowhere/key: it cannot be made: its folder does not exist" gpcd disk --dir "$shm" $make --disk "$tmp/file" \
	--key-file "$tmp/nowhere/key"

# ---- refused, untouched ----

run gpc-inspect rm disk --dir "$shm"
sum=$(cksum <"$tmp/other")
refuses 1 'has blocks of 4096 bytes' gpcd disk --dir "$shm" --block-size 16 --ram-blocks 64 --block-bytes 8k --max-peers 8 \
	--disk "$tmp/other" --key-file "$tmp/key"
refuses 1 'has blocks of 4096 bytes, these have 8192' gpcd disk --dir "$shm" $early --block-bytes 8k --disk "$tmp/other" \
	--key-file "$tmp/key"
refuses 1 'hashed with another secret' gpcd disk --dir "$shm" $early --disk "$tmp/other"
refuses 1 'has 50 slots, asked for are 60: .*--disk-resize' gpcd disk --dir "$shm" $early --disk "$tmp/other" --disk-blocks 60 \
	--key-file "$tmp/key"
refuses 1 'hashed with another secret' gpcd disk --dir "$shm" $early --disk "$tmp/file" --key-file "$tmp/key"
is "$(ls "$shm")" '' "and RAM is not begun with"
chmod 640 "$tmp/other"
refuses 1 'others|mode' gpcd disk --dir "$shm" $make --disk "$tmp/other" --key-file "$tmp/key"
chmod 600 "$tmp/other"
is "$(cksum <"$tmp/other")" "$sum" "a file that is refused is left as it was"
}

done_testing
