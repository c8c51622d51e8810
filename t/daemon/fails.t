#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A gpcd that fails before it is ready removes the cache that it made, and never one that was there.
# Tests: tools/daemon/serve.c tools/daemon/main.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

# Good until something is written to it.
full=/dev/full

fails()	# NAME OPTION...
{
	name=$1
	shift
	run gpcd "$name" --dir "$shm" --block-size 16 --vram-blocks 8 "$@"
	exits 1 "gpcd $name $*"
	says "^gpcd: --pidfile $full: " "says why"
}

for how in '' --daemonize --standby; do
	fails new --pidfile $full $how
	is "$(ls "$shm")" '' "the cache that it made is gone"
done
test -c $full
ok $? "what is in the way of the pid file stays"

serve old --block-size 16 --vram-blocks 8
kill "$pid"
until_ok is_gone "$pid"
for how in '' --daemonize --standby; do
	fails old --pidfile $full $how
	inspect stat old
	exits 0 "a cache that was there stays"
done
serve old --block-size 16 --vram-blocks 8
run gpcd old --dir "$shm" --block-size 16 --vram-blocks 8
exits 3 "one with a writer, too"
run gpcd old --dir "$shm" --block-size 16 --vram-blocks 8 --standby --pidfile $full
exits 1 "and under a standby that fails"
inspect stat old
prints "^writer: +$pid" "its writer serves it"

# ---- lists of devices ----

for list in 'host host' 'cuda:0 cuda:0' 'cuda:1 host cuda:01'; do
	options=
	for device in $list; do
		options="$options --device $device"
	done
	refuses 2 '--device .* is in it twice' gpcd twice --dir "$shm" --block-size 16 $options
done
is "$(ls "$shm" | grep -c twice)" 0 "nothing is made of them"

done_testing
