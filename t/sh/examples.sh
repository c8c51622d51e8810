# SPDX-License-Identifier: Apache-2.0
# examples.sh - runs the examples of doc/cmd as the pages show them, and compares what they print with their NAME.out.
#
#	. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"
#	. "$srcdir/t/sh/examples.sh"
#	example worker.sh
#
# An example runs in a folder that has the files of doc/cmd and what is not installed: a compiler, pkg-config, python3, and
# the plugins by their paths.  Its cache demo has a name of the test's own, and demo again in what is printed.
#
# Needs: tools/gpc-replay tools/gpcd tools/gpc-inspect
#
# Numbers of processes, times and the like differ in each run.  plain_text turns them into words, in both texts, so NAME.out
# has what one run has printed.

examples=$tmp/examples
mkdir -p "$examples/bin" "$examples/plugins" "$examples/t/data"
cp "$srcdir"/doc/cmd/* "$examples"
chmod u+w "$examples"/*             # those of a distribution may only be read
ln -s "$srcdir/t/data/small.jsonl" "$examples/t/data"
ln -s "$builddir" "$examples/build"
chmod 755 "$examples/plugins"
for plugin in folder redis; do
	test ! -e "$builddir/plugins/.libs/gpc_remote_$plugin.so" ||
		install -m 644 "$builddir/plugins/.libs/gpc_remote_$plugin.so" "$examples/plugins"
done
# the compiler of this build, and what pkg-config would say
cat >"$examples/bin/cc" <<-END
	#!/bin/sh
	PATH="$PATH" exec ${CC:-cc} "\$@"
END
cat >"$examples/bin/pkg-config" <<-END
	#!/bin/sh
	test "\$*" = '--cflags --libs libgpc' && echo -I"$srcdir/lib" -L"$libs" -lgpc
END
printf '#!/bin/sh\nexec "%s" "$@"\n' "${PYTHON:-false}" >"$examples/bin/python3"
# A second is enough for a reader at a terminal.  On a busy machine these wait for what it stands for: the end of a daemon
# that was killed, and a keeper that has spilled.
cat >"$examples/bin/gpc-inspect" <<-END
	#!/bin/sh
	# its locks go behind its memory, when no thread is left
	is_there()
	{
		test ! -e "/proc/\$1/exe" || return 0
		set -- "\$1" "/proc/\$1/task"/*
		test -e "/proc/\$1" && { test \$# -gt 2 || ! grep -q '^State:.*[ZX]' "/proc/\$1/status" 2>/dev/null; }
	}
	test "\$1" != rm || for file in *.pid; do
		tries=0
		while pid=\$(cat "\$file" 2>/dev/null) && is_there "\$pid" && test \$((tries += 1)) -lt 1200; do
			command -p sleep 0.05
		done
	done
	PATH="$PATH" exec gpc-inspect "\$@"
END
cat >"$examples/bin/sleep" <<-END
	#!/bin/sh
	tries=0
	while pid=\$(cat keep.pid 2>/dev/null) && test -e "/proc/\$pid/exe" && test \$((tries += 1)) -lt 1200 &&
			! gpc-inspect stat "$cache" | grep -q '^spilled: *13\$'; do
		command -p sleep 0.05
	done
END
chmod +x "$examples"/bin/*

own_name()	# FILE: in a cache of this test's name
{
	sed "s/\"demo\"/\"$cache\"/; s/\([ -]\)demo\( \|\$\)/\1$cache\2/g" "$1"
}

plain_text()	# FILE: without what differs in each run
{
	sed -E "s/$cache/demo/g
		s/[0-9]+ (bytes|[KMGT]iB)\b/BYTES/g
		s/\b[0-9.]+ ?(ns|us|ms|s|min)\b( ago)?/TIME/g
		s/\b[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+( ?[A-Z]+)?/DATE/g
		s/\b(process|pid|PID|writer:?|peer) +[0-9]+/\1 PID/g
		s/^(gpc_[a-z_]+\{.*\}) [0-9]+$/\1 COUNT/
		s/^( +[0-9]+ +)[0-9]+( +gpcd )/\1PID\2/
		s/=[0-9.]+\b/=NUMBER/g
		s/, [1-9][0-9]* of them in RAM/, SOME of them in RAM/
		s/ +/ /g; s/ \$//" "$1"
}

example()	# NAME.sh: its status is 0, it prints NAME.out, and nothing is left
{
	for file in "$srcdir"/doc/cmd/*.c "$srcdir"/doc/cmd/*.py; do
		test ! -e "$file" || own_name "$file" >"$examples/${file##*/}"
	done
	own_name "$srcdir/doc/cmd/$1" | sed "s/\b9400\b/$((20000 + $$ % 12000))/; s|--remote \([a-z]*\):|--remote $examples/plugins/gpc_remote_\1.so:|" >"$examples/$1"
	run env -C "$examples" PATH="$examples/bin:$PATH" LD_LIBRARY_PATH="$libs" sh -e "$examples/$1"
	exits 0 "$1: all commands succeed"
	wanted=$srcdir/doc/cmd/${1%.sh}.out
	if test "$GPC_DOC_WRITE" = "$1"; then
		sed "s/$cache/demo/g" "$tmp/out" >"$wanted"
	fi
	plain_text "$wanted" >"$tmp/want" 2>/dev/null
	plain_text "$tmp/out" >"$tmp/got"
	diff "$tmp/want" "$tmp/got" >"$tmp/differs"
	ok $? "$1: it prints ${1%.sh}.out" "$tmp/differs"
	is "$(ls /dev/shm | grep -F "gpc.$cache.")" '' "$1: no cache is left"
}
