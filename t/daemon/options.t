#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpcd's command line: each option does what its page says, each mistake has its message
# and its exit status.
# Tests: tools/daemon/no_events.c tools/daemon/options.c tools/daemon/options_check.c
#   tools/daemon/endpoint.c tools/common/cli.c

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

# ---- help ----

run gpcd --help
exits 0 "--help"
prints '^Usage: gpcd NAME' "--help goes to standard output"
prints '--unlink +remove the cache at the end, if this process has' "--unlink is for one that served"
run gpcd -h
exits 0 "-h"
run gpcd --version
exits 0 "--version"
prints '^gpcd [0-9]+\.[0-9]+\.[0-9]+ \(libgpc [0-9]+\.[0-9]+\)$' "--version prints both"
run sh -c 'exec gpcd --help >/dev/full'
exits 1 "--help into a full disk"
says 'cannot write the output' "--help into a full disk says so"

# ---- mistakes ----

long=$(printf '%065d' 0)
refuses 2 'NAME is missing' gpcd
refuses 2 "one NAME only: 'two' is one argument too many" gpcd one two
refuses 2 '--foreground and --daemonize exclude each other' \
	gpcd "$cache" --dir "$shm" --block-size 16 --foreground --daemonize
refuses 2 '--foreground and --daemonize exclude each other' \
	gpcd "$cache" --dir "$shm" --block-size 16 --daemonize --foreground
refuses 2 "'' cannot name a cache" gpcd ''
refuses 2 "'a/b' cannot name a cache" gpcd a/b
refuses 2 "'\.a' cannot name a cache" gpcd .a
refuses 2 "cannot name a cache" gpcd "$long" --block-size 16
refuses 2 "option '--nonsense' is unknown" gpcd "$cache" --nonsense
refuses 2 "no option '-x'" gpcd "$cache" -x
refuses 2 "takes no value" gpcd "$cache" --quiet=1
refuses 2 "option '--block-size' needs a value" gpcd "$cache" --block-size

# OPTION: what needs a number, and the first one that is too high
while read -r option high; do
	refuses 2 "$option: 'many' is not a number" gpcd "$cache" "$option" many
	refuses 2 "$option: '' is not a number" gpcd "$cache" "$option" ''
	refuses 2 "$option: '-7' is not a number.*: [01] to [0-9]+" \
		gpcd "$cache" "$option" -7
	refuses 2 "$option: '12x' is not a number" gpcd "$cache" "$option" 12x
	refuses 2 "$option: '1e6' is not a number" gpcd "$cache" "$option" 1e6
	refuses 2 "$option: $high is out of range" gpcd "$cache" "$option" "$high"
done <<-END
	--block-size 65537
	--max-blocks 268435457
	--vram-blocks 16777217
	--ram-blocks 17179869184G
	--ram-space 32
	--max-peers 251
	--max-pools 128
	--quarantine 3600001
	--quota 4096M
	--quota 1T
	--tick 60001
	--free-target 2147483648
END
refuses 2 "--quota: '1e6' is not a number: 0 to 4294967295, with k, M, G or T for powers of 1024" \
	gpcd "$cache" --quota 1e6
for option in --block-size --max-blocks --max-peers --max-pools --quarantine --tick; do
	refuses 2 "$option: 0 is out of range" gpcd "$cache" "$option" 0
done

refuses 2 "--tick: 'fast' is not a number of milliseconds, nor 'exact'" gpcd "$cache" --tick fast
# the last one counts, and two that differ are told
run gpcd "$cache" --dir "$shm" --block-size 16 --block-size 32 --quiet --quiet --max-peers 4 --max-peers 4 --keep
exits 2 "twice"
is "$(head -n 1 "$tmp/err")" "gpcd: --block-size is given twice, '16' and '32': the last one counts" "--block-size twice is told"
is "$(grep -c twice "$tmp/err")" 1 "and what is the same is not"
refuses 2 "--mode: '0666' is not an octal mode" gpcd "$cache" --mode 0666
refuses 2 "--mode: '0' is not an octal mode" gpcd "$cache" --mode 0
refuses 2 "--mode: '8' is not an octal mode" gpcd "$cache" --mode 8
refuses 2 "--mode: '60x' is not an octal mode" gpcd "$cache" --mode 60x
refuses 2 "no group 'no such group', and it is no number of one, 0 to 4294967294" \
	gpcd "$cache" --group 'no such group'
for bad in 4294967295 18446744073709551616 1x -1 ''; do
	refuses 2 "no group '$bad'" gpcd "$cache" --group "$bad"
done
# a gid of 0 is "the own one" to gpc_create
if test "$(id -u)" = 0 && command -v setpriv >/dev/null; then
	run setpriv --regid 65534 --clear-groups gpcd zero --dir "$shm" --block-size 16 --vram-blocks 8 --group root \
		--daemonize --pidfile "$tmp/zero.pid"
	is "$status $(stat -c '%a %g' "$shm/gpc.zero.idx")" '0 660 0' "group 0, for a process of another group"
	kill "$(cat "$tmp/zero.pid")"
	until_ok test ! -e "$tmp/zero.pid"
	rm -f "$shm"/gpc.zero.*
	run setpriv --reuid 65534 --regid 65534 --clear-groups gpcd "$cache" --block-size 16 --group root
	exits 2 "group 0 is refused to a user who is not in it"
	says 'group 0 for ' "and named"
else
	skip 3 "this user has one group"
fi
refuses 2 "--layout: 'xyz' is not" gpcd "$cache" --layout xyz
refuses 2 "--layout: '123' is not" gpcd "$cache" --layout 123
refuses 2 "--layout: '' is not" gpcd "$cache" --layout ''
refuses 2 "--layout: '0${long}' is not" gpcd "$cache" --layout "0$long"
refuses 2 "--dir: the path is empty" gpcd "$cache" --dir ''
refuses 2 "--dir: the path is too long" gpcd "$cache" --dir "/$(printf '%05000d' 0)"
refuses 2 "--pidfile: the path is empty" gpcd "$cache" --pidfile ''
refuses 2 "--device: '' is not" gpcd "$cache" --device ''
refuses 2 "--device: 'floppy' is not" gpcd "$cache" --block-size 16 --device floppy
for device in cuda: cuda:x cuda:-1 GPU- GPU-zz GPU-AB GPU-0123456789 GPU-0123456-8 host,none \
	GPU-01234567-89ab-cdef-0123-456789abcdef0; do
	refuses 2 "--device: '$device' is not none, host, cuda:N, or GPU- and a UUID" \
		gpcd "$cache" --block-size 16 --device $device
done

for option in --max-blocks --vram-blocks --ram-blocks --max-peers --max-pools; do
	refuses 2 '--block-size is missing' gpcd "$cache" --dir "$shm" $option 3
done
refuses 2 '--block-size is missing' gpcd "$cache" --dir "$shm" --device host
refuses 2 '--block-size is missing' gpcd "$cache" --dir "$shm" --ram-space 0
refuses 2 '--block-size is missing' gpcd "$cache" --dir "$shm" --unchained
for option in '--ram-space 0' --unchained; do
	refuses 2 "${option% 0}: --ram-blocks is missing: it is for the pool of RAM" \
		gpcd "$cache" --dir "$shm" --block-size 16 --vram-blocks 8 $option
	refuses 2 "--keep and ${option%% *} exclude" gpcd "$cache" --dir "$shm" --keep --device host \
		--vram-blocks 8 --block-bytes 4k $option
done
refuses 2 '--sums: --block-bytes is missing' gpcd "$cache" --dir "$shm" --block-size 16 --ram-blocks 8 --sums 2
refuses 2 '--sums: 3 does not divide --block-bytes 4096' \
	gpcd "$cache" --dir "$shm" --block-size 16 --ram-blocks 8 --block-bytes 4k --sums 3
refuses 2 "--keep and --sums exclude" gpcd "$cache" --dir "$shm" --keep --device host --vram-blocks 8 --block-bytes 4k --sums 2
refuses 2 '--sums: 257 is out of range \(1 to 256\)' gpcd "$cache" --sums 257
refuses 2 "takes no value" gpcd "$cache" --unchained=1
refuses 2 '--space: it is for the pool of --keep; that of --ram-blocks has --ram-space' \
	gpcd "$cache" --dir "$shm" --block-size 16 --ram-blocks 8 --space 1
for option in --keep-tokens --keep-digests '--max-aliases 5'; do
	refuses 2 '--block-size is missing' gpcd "$cache" --dir "$shm" $option
done

refuses 1 'No such file or directory' \
	gpcd "$cache" --dir "$shm/nowhere" --block-size 16
refuses 1 '--pidfile /nonexistent/pid: it cannot be made: its folder does not exist' \
	gpcd "$cache" --dir "$shm" --block-size 16 --pidfile /nonexistent/pid
refuses 2 '--max-blocks is 10: --vram-blocks 11' \
	gpcd "$cache" --dir "$shm" --block-size 16 --max-blocks 10 --vram-blocks 11
refuses 2 '--max-pools is 1: --vram-blocks and --ram-blocks make 2 pools' \
	gpcd "$cache" --dir "$shm" --block-size 16 --max-pools 1 --vram-blocks 8 \
	--ram-blocks 8
is "$(ls "$shm" | grep -v '\.lock$')" '' "what was refused has left no segment"

# ---- what the options do ----

serve all --block-size 32 --max-blocks 1k --vram-blocks 100 --ram-blocks 50 \
	--max-peers 5 --max-pools 3 --device host --tick exact --free-target 7 \
	--quarantine 300 --quota 9 --mode 0640 --layout 00ff7F --keep-tokens --keep-digests \
	--max-aliases 100
inspect --json stat all
is "$(value block_tokens)" 32 "--block-size"
is "$(value max_blocks)" 1024 "--max-blocks, with a suffix"
is "$(value max_peers)" 5 "--max-peers"
is "$(value max_pools)" 3 "--max-pools"
is "$(values keeps/0 keeps/1)" 'digests tokens' "--keep-digests, --keep-tokens"
is "$(values max_aliases stats/aliases)" '102 0' "--max-aliases, in buckets of three"
is "$(value tick tick_us)" "exact
1" "--tick exact"
is "$(value free_target)" 7 "--free-target"
is "$(value layout)" "00ff7f$(printf '%058d' 0)" "--layout"
is "$(value devices)" host "--device"
is "$(value mirrors/0/device mirrors/0/state)" "host
live" "--device: there is a mirror"
is "$(value pools/0/kind pools/0/blocks pools/0/demote_to)" "VRAM
100
1" "--vram-blocks make pool 0, which demotes to pool 1"
is "$(value pools/1/kind pools/1/blocks pools/1/demote_to)" "RAM
50
null" "--ram-blocks make pool 1"
is "$(value pools)" '[2]' "there are no other pools"
is "$(stat -c %a "$shm/gpc.all.idx" "$shm/gpc.all.ctl")" "640
640" "--mode"
run "$helpers/hold" "$shm" all greedy 0 10 0
says 'quota' "--quota: ten blocks are too many"
start modest "$helpers/hold" "$shm" all modest 0 9 0
until_ok grep -q holding "$tmp/modest.out"
ok $? "--quota: nine are not" "$tmp/modest.err"

serve others --block-size 16 --ram-blocks 3k --tick 20 --free-target 0 --group "$(id -gn)" \
	--device none
inspect --json stat others
is "$(value tick tick_us)" "timed
20000" "--tick MS"
is "$(value free_target)" 0 "--free-target 0"
is "$(value pools/0/kind pools/0/blocks)" "RAM
3072" "--ram-blocks alone make pool 0"
is "$(value pools)" '[1]' "and no other"
is "$(value mirrors)" '[0]' "--device none"
is "$(stat -c '%a %g' "$shm/gpc.others.idx")" "660 $(id -g)" "--group implies mode 0660"
if test "$(id -u)" = 0; then
	serve number --block-size 16 --vram-blocks 8 --group 43210
	is "$(stat -c '%a %g' "$shm/gpc.number.idx")" "660 43210" "a group that has a number and no name"
else
	skip 1 "a user is in groups that have names"
fi

serve plain --block-size 16
inspect --json stat plain
is "$(value max_blocks max_peers max_pools tick_us free_target pools)" "65536
32
16
1000
64
[0]" "defaults"
is "$(stat -c %a "$shm/gpc.plain.ctl")" 600 "by default the cache is its owner's"

serve apart --block-size 16 --max-peers 4 --vram-blocks 8 --ram-blocks 8 --ram-space 31 --unchained
inspect --json stat apart
is "$(values pools/0/space pools/0/flags pools/0/demote_to)" '0 [0] 1' \
	"--ram-space leaves pool 0 where it was"
is "$(values pools/1/space pools/1/flags pools/1/flags/0)" '31 [1] unchained' "--ram-space, --unchained"
kill "$pid"
finish "$pid"
refuses 1 'apart exists, but with --ram-space 31, not 30' gpcd apart --dir "$shm" --block-size 16 \
	--max-peers 4 --vram-blocks 8 --ram-blocks 8 --ram-space 30
serve apart --block-size 16 --max-peers 4 --vram-blocks 8 --ram-blocks 8 --ram-space 31 --unchained
ok 0 "with all of its options it is served again"
serve chained --block-size 16 --max-peers 4 --ram-blocks 8
kill "$pid"
finish "$pid"
refuses 1 'chained exists, but its RAM pool is chained: it was not made with --unchained' \
	gpcd chained --dir "$shm" --block-size 16 --max-peers 4 --ram-blocks 8 --unchained

serve twice --block-size 16 --vram-blocks 8 --device host --device none
inspect --json stat twice
is "$(value devices mirrors)" "host,none
[1]" "--device may be repeated"

# ---- a device that is not there ----

start absent env GPC_LOG=debug gpcd absent --dir "$shm" --block-size 16 --vram-blocks 8 \
	--device cuda:63 --device host
until_ok grep -q 'serving as' "$tmp/absent.err"
is "$(grep -c 'no mirror on cuda:63' "$tmp/absent.err")" 1 "GPC_LOG=debug: each message once"
is "$(grep -c ': attached to absent as peer 0$' "$tmp/absent.err")" 1 "... who attaches, too"
inspect --json stat absent
is "$(values mirrors mirrors/0/device mirrors/0/state mirrors/1/device mirrors/1/state)" \
	"[2] host live cuda:63 no mirror" "stat: a device without a mirror"
inspect stat absent
prints '^cuda:63 .*  no mirror$' "stat: for people"
aligned "stat: with such a row"

# ---- KV events ----

for option in '--events-replay ipc:///tmp/x' '--topic t' '--events-public'; do
	refuses 2 "${option%% *}: --events is missing" gpcd "$cache" $option
done
run gpcd "$cache" --events nonsense
if grep -q 'was built without libzmq and msgpack-c' "$tmp/err"; then
	exits 2 "without its libraries gpcd refuses --events"
else
	exits 2 "an endpoint is checked"
	for endpoint in nonsense udp://127.0.0.1:1 tcp://5557 tcp://127.0.0.1 tcp://127.0.0.1:0 \
			tcp://127.0.0.1:65536 'tcp://127.0.0.1:*' tcp://:1; do
		refuses 2 "--events: '$(echo "$endpoint" | tr '*' .)' is not" \
			gpcd "$cache" --events "$endpoint"
	done
	refuses 2 "path of a socket begins with /" gpcd "$cache" --events ipc://here
	refuses 2 "too long for a socket: 107" gpcd "$cache" --events "ipc:///$(printf '%0107d' 0)"
	for host in '*' 0.0.0.0 '[::]'; do
		refuses 2 "open to every network.* or add --events-public" \
			gpcd "$cache" --events "tcp://$host:5557"
	done
	refuses 2 "--events-replay: tcp://.* is open to every" \
		gpcd "$cache" --events tcp://127.0.0.1:5557 --events-replay 'tcp://*:5558'
	refuses 2 "want two endpoints" gpcd "$cache" --events ipc:///tmp/x --events-replay ipc:///tmp/x
	refuses 2 "more than 255 bytes" gpcd "$cache" --events ipc:///tmp/x --topic "$(printf '%0256d' 0)"
	refuses 2 "--keep and --events exclude" gpcd "$cache" --keep --events ipc:///tmp/x
	refuses 1 "events tcp://no.such.host.invalid:5557: this machine has no such address or host name" \
		gpcd nowhere --dir "$shm" --block-size 16 --vram-blocks 8 --events tcp://no.such.host.invalid:5557
	refuses 1 "nowhere: No such file" gpcd "$cache" --dir "$shm/nowhere" --events-public --events 'tcp://*:5557'
fi

done_testing
