#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd where /dev/shm is full: in a mount namespace, with a /dev/shm of one MiB.
# Tests: lib/index/segment/space.c tools/daemon/serve.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

alone=
for alone in 'unshare -m' 'unshare -Urm' ''; do
	test -n "$alone" && $alone sh -c 'mount -t tmpfs -o size=1m gpc /dev/shm' \
		2>/dev/null && break
done
test -n "$alone" || skip_all "no mount namespace with a tmpfs here"

# What is left comes after a line "left", in the same namespace.
in_small()	# CMD...
{
	run $alone sh -c '
		mount -t tmpfs -o size=1m gpc /dev/shm || exit 99
		"$@"
		status=$?
		echo left
		ls -A /dev/shm
		exit $status' sh "$@"
}

nothing_is_left()	# WHEN
{
	is "$(sed -n '/^left$/,$p' "$tmp/out")" left "nothing is left: $1"
}

for daemonize in '' --daemonize; do
	in_small gpcd full --block-size 16 --vram-blocks 64K $daemonize
	exits 1 "gpcd $daemonize in a MiB"
	says '^gpcd: full: /dev/shm lacks [0-9]+ bytes \([0-9]+ MiB\): full needs [0-9]+ MiB and 1 MiB are free' \
		"it says how much is needed, and how much is there"
	says 'by the limit of that file system; raise it or lower --max-blocks or --max-peers' "and what to do"
	nothing_is_left "gpcd $daemonize"
done
in_small gpcd full --block-size 16 --ram-blocks 64K --block-bytes 4k
exits 1 "with memory for RAM"
says 'full needs 2[0-9][0-9] MiB, 26[01] MiB of them for the memory of its RAM pool, and 1 MiB are free by the limit of that file system; raise it or lower --ram-blocks, --block-bytes, --max-blocks' \
	"the first refusal counts the memory as well"
in_small gpcd full --block-size 16 --vram-blocks 64K --daemonize --pidfile "$tmp/full.pid"
exits 1 "with a pid file"
is "$(ls "$tmp/full.pid" 2>/dev/null)" '' "which is gone as well"

in_small gpc-replay "$small_trace" --vram-blocks 64K
exits 1 "gpc-replay in a MiB"
says '/dev/shm lacks [0-9]+ bytes' "says the same"
nothing_is_left "gpc-replay"

in_small gpc-inspect list
exits 0 "gpc-inspect list in an empty one"

done_testing
