#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd for a cache that exists and is another one: each option that differs is refused by its own name, with
# what the cache has, and with both ways out.
# Tests: lib/index/segment/validate.c lib/index/door/attach.c tools/daemon/serve.c tools/daemon/tiers.c

. "${top_srcdir:-$(dirname "$0")/..}/t/sh/tap.sh"

serve made --block-size 16 --vram-blocks 8 --ram-blocks 40 --block-bytes 4k --max-peers 8 --quota 9
kill "$pid"
until_ok is_gone "$pid"

differs()	# REGEX OPTION...: what is refused
{
	text=$1
	shift
	refuses 1 "made: made exists.*$text.*, or remove the cache \('gpc-inspect --dir $shm rm made'\)" \
		gpcd made --dir "$shm" --block-size 16 "$@"
	sed -n 's/^gpcd: //p' "$tmp/err" | grep -q '[a-z]_[a-z]'
	is $? 1 "and no word of it is a name of C: $*"
}

refuses 1 "made exists with --block-size 16 instead of 32: ask for what it has, or remove the cache \('gpc-inspect --dir $shm rm made'\)\$" \
	gpcd made --dir "$shm" --block-size 32
differs 'with --max-blocks 112 instead of 4096' --max-blocks 4096
differs 'with --max-peers 8 instead of 9' --max-peers 9
differs 'with --max-pools 16 instead of 17' --max-pools 17
differs 'with --tick \(in microseconds\) 1000 instead of 2000' --tick 2
differs 'with --free-target 64 instead of 5' --free-target 5
differs 'with --quarantine 1000 instead of 999' --quarantine 999
differs 'with --quota 9 instead of 7' --quota 7
differs 'with --keep-tokens 0 instead of 1' --keep-tokens
differs 'with --keep-digests 0 instead of 1' --keep-digests
differs 'with --max-aliases [0-9]+ instead of 5' --max-aliases 5
differs 'with --device none instead of host' --device host
differs 'with --vram-blocks 8, not 9' --vram-blocks 9
differs 'with --ram-blocks 40, not 39' --vram-blocks 8 --ram-blocks 39
differs 'with --block-bytes 4096, not 8192' --vram-blocks 8 --ram-blocks 40 --block-bytes 8k
differs 'with --sums 1 instead of 4' --vram-blocks 8 --ram-blocks 40 --block-bytes 4k --sums 4
differs 'with --ram-space 0, not 3' --vram-blocks 8 --ram-blocks 40 --ram-space 3
differs 'it was not made with --unchained' --vram-blocks 8 --ram-blocks 40 --unchained
refuses 1 "made was made for another model .* remove the cache \('gpc-inspect --dir $shm rm made'\)" \
	gpcd made --dir "$shm" --block-size 16 --layout 0102

# a number that nobody has typed
refuses 1 'exists with --max-blocks 112 instead of 212: .*; --max-blocks was not given, and is what the pools and the tiers of --disk and --remote need together$' \
	gpcd made --dir "$shm" --block-size 16 --vram-blocks 8 --ram-blocks 40 --block-bytes 4k \
	--disk "$tmp/file" --disk-blocks 100
refuses 1 'exists with --max-blocks 112 instead of 198: .* need together; its pool of VRAM has 8 blocks, and --vram-blocks is 4; its pool of RAM has 40 blocks, and --ram-blocks is 30$' \
	gpcd made --dir "$shm" --block-size 16 --vram-blocks 4 --ram-blocks 30 --block-bytes 4k \
	--disk "$tmp/file" --disk-blocks 100

done_testing
