#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd --config: the long options in a file, beaten by the command line; each mistake has file, line, key, value and
# limit. t/python/tiers.t has engines refuse the same files.
# Tests: tools/daemon/config.c tools/daemon/options.c tools/common/cli.c

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

conf=$tmp/m.conf

# Needs: plugins/gpc_remote_folder.la

folder=$builddir/plugins/.libs/gpc_remote_folder.so

serves()	# LABEL: until it does, or has ended
{
	until_ok eval "grep -q 'serving as process' '$tmp/$1.err' || is_gone $pid" || :
	grep -q 'serving as process' "$tmp/$1.err" || bail "$(cat "$tmp/$1.err")"
}

file()	# the file, from standard input
{
	cat >"$conf"
}

mistake()	# LINE TEXT, in the file of standard input
{
	file
	refuses 2 "$conf:$1: $2" gpcd made --dir "$shm" --config "$conf"
}

# ---- all that stands there counts ----

file <<EOF
# one file for all
[gpc]
name = made
dir = $shm
disk = $tmp/file     ; beside the engines'
disk-blocks = 50
disk-ahead = 7
remote = $folder:
	dir=$tmp/store
remote-blocks = 80
key-file: $tmp/key

[gpcd]
block-size = 16
ram-blocks = 20
block-bytes = 4k
max-peers = 9
quiet = no
keep-digests = yes
device = none
[engines]
bytes = 4G
[vllm]
pending-ms = 5
EOF
mkdir "$tmp/store"
start first gpcd --config "$conf"
serves first
like "$(cat "$tmp/first.err")" "made: tier disk: $tmp/file, 50 blocks" "a disk from the file"
like "$(cat "$tmp/first.err")" "made: tier remote: $folder:dir=$tmp/store, 80 blocks" "a store, whose value goes on in the next line"
run gpc-inspect stat made --dir "$shm"
like "$(cat "$tmp/out")" 'RAM .* 20 ' "the pool of RAM"
test -s "$tmp/key"
ok $? "the key file"
kill "$pid"
finish "$pid"
run gpc-inspect rm made --dir "$shm"

# ---- the command line beats it ----

start second gpcd other --config "$conf" --disk-bytes 300k --disk "$tmp/else" --ram-blocks 30 --log-level info
serves second
like "$(cat "$tmp/second.err")" "other: tier disk: $tmp/else, [1-4][0-9] blocks" "another disk, another size, another name"
run gpc-inspect stat other --dir "$shm"
like "$(cat "$tmp/out")" 'RAM .* 30 ' "more RAM"
kill "$pid"
finish "$pid"
run gpc-inspect rm other --dir "$shm"

# ---- mistakes ----

refuses 2 "--config $tmp/none: " gpcd made --config "$tmp/none"
refuses 2 'NAME is missing' gpcd --config /dev/null
mistake 2 "diks: there is no such key, and '/x' is its value; \[gpc\] has name, dir" <<'EOF'
[gpc]
diks = /x
EOF
mistake 2 "config: there is no such key" <<'EOF'
[gpcd]
config = /x
EOF
mistake 3 "quiet: 'yes': no engine knows it; its section is \[gpcd\]" <<'EOF'

[gpc]
quiet = yes
EOF
mistake 2 "disk-ahead: 5000 is out of range .1 to 4096.$" <<'EOF'
[gpc]
disk-ahead = 5000
EOF
mistake 2 "disk-bytes: '20 GB' is not a number: 1 to [0-9]+, with k, M, G or T" <<'EOF'
[gpc]
disk-bytes = 20 GB
EOF
mistake 2 "disk-exclusive: 'maybe', yes or no is wanted" <<'EOF'
[gpc]
disk-exclusive = maybe
EOF
mistake 2 "disk: 'm.disk' does not begin with /" <<'EOF'
[gpc]
disk = m.disk
EOF
mistake 3 "disk: it is given twice, '/x' in line 2 and '/y' here" <<'EOF'
[gpc]
disk = /x
disk = /y
EOF
mistake 4 "dir: it is given twice, '/x' in line 2 and '/y' here" <<'EOF'
[gpc]
dir = /x
[gpcd]
dir = /y
EOF
mistake 2 'disk: \[cache\] is no section; there are \[gpc\]' <<'EOF'
[cache]
disk = /x
EOF
mistake 1 'disk: no section is above it; there are \[gpc\]' <<'EOF'
disk = /x
EOF
mistake 2 'the line is neither \[SECTION\] nor KEY = VALUE' <<'EOF'
[gpc]
disk
EOF
mistake 3 'the line begins with a blank, and there is no value in the line above' <<'EOF'
[gpc]
# disk =
  /x
EOF
{
	echo '[gpc]'
	printf 'disk = /%0200d\n' 0
} >"$tmp/long"
mistake 2 'the line has more than 198 bytes' <"$tmp/long"
# values that are wrong beside others, which are checked once the whole file is read
mistake 4 "sums: 3 does not divide --block-bytes 65536$" <<'EOF'
[gpcd]
block-size = 16
ram-blocks = 8
sums = 3
block-bytes = 64k
EOF
mistake 3 "events: tcp://0.0.0.0:1 is open to every network" <<'EOF'
[gpcd]
block-size = 16
events = tcp://0.0.0.0:1
EOF
for wrong in x 99999; do
	mistake 2 "metrics: '$wrong' is not \[ADDR:\]PORT: a port of 0 to 65535" <<EOF
[gpcd]
metrics = $wrong
EOF
done
mistake 2 "metrics: 0.0.0.0:9400 is open to every network" <<'EOF'
[gpcd]
metrics = 0.0.0.0:9400
EOF
mistake 2 "remote-blocks: --remote is missing" <<'EOF'
[gpc]
remote-blocks = 5
EOF
mistake 2 "mode: '0460': the owner must be able to read and write" <<'EOF'
[gpcd]
mode = 0460
EOF
file <<'EOF'
[gpcd]
# how large
block-bytes = 64k
EOF
refuses 2 "--sums: 3 does not divide --block-bytes 65536 \(--block-bytes: $conf:3\)$" \
	gpcd made --dir "$shm" --config "$conf" --block-size 16 --ram-blocks 8 --sums 3
file <<'EOF'
[gpcd]
metrics = 9400
EOF
refuses 2 "--keep and --metrics exclude each other.* \(--metrics: $conf:2\)$" gpcd made --dir "$shm" --config "$conf" --keep
mistake 2 'device: .gpu. is not none, host' <<'EOF'
[gpcd]
device = none, gpu
EOF
is "$(ls "$shm")" '' "nothing is left of all that"
# what the file leaves out is said as ever
file <<'EOF'
[gpc]
disk-bytes = 1M
EOF
refuses 2 "$conf:2: disk-bytes: --disk is missing" gpcd made --config "$conf"

done_testing
