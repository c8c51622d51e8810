#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# "make bench" runs this, which runs gpc-bench and bench-recovery and writes RESULTS.md:
#
#	results.sh SRCDIR BUILDDIR
#
# RESULTS.md goes into t/bench of SRCDIR, or of BUILDDIR where that is not writable.  It is written only when all has
# been measured and verified.  gpc-bench gets the words of BENCHFLAGS, or "all" without them; bench-recovery gets those
# of RECOVERYFLAGS.
#
# "make bench-folder" makes a folder for a machine without compiler and libraries.  "sh run" in that folder runs this
# with the folder as SRCDIR and BUILDDIR.

set -eu
srcdir=$1
builddir=$2
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpc-bench.XXXXXX")
trap 'rm -rf "$tmp"' 0
trap 'exit 1' HUP INT TERM

commit()
{
	if test -r "$srcdir/commit"; then
		cat "$srcdir/commit"
	elif hash=$(git -C "$srcdir" rev-parse --short HEAD 2>/dev/null); then
		git -C "$srcdir" diff --quiet HEAD -- lib kernels tools 2>/dev/null ||
			hash="$hash and changes that are not committed"
		echo "commit $hash"
	else
		echo "no commit: built from an archive"
	fi
}

program()
{
	if test -f "$srcdir/run"; then
		echo '`run` in the folder that `make bench-folder` makes'
	else
		echo '`make bench`'
	fi
}

marks()	# of gpc-bench, in a sentence
{
	sed -n 's/^\([0-9]* marks met, [0-9]* missed\), .*/ gpc-bench: \1./p' "$tmp/bench"
}

load()
{
	cut -d' ' -f1 /proc/loadavg
}

from=$(date +%s)
before=$(load)
"$builddir/tools/gpc-bench" ${BENCHFLAGS:-all} >"$tmp/bench"
"$builddir/t/bench/bench-recovery" ${RECOVERYFLAGS-} >"$tmp/recovery"
cat "$tmp/bench" "$tmp/recovery"

{
	cat <<-END
	<!-- SPDX-License-Identifier: Apache-2.0 -->
	# Figures of the host

	Written on $(date -u +%Y-%m-%d), $(commit), in $(($(date +%s) - from)) s by $(program).$(marks)
	gpc-bench(1) explains the rows, [NOTES.md](NOTES.md) explains the missed marks, and
	[RESULTS-GPU.md](RESULTS-GPU.md) has the figures of a GPU.

	Linux $(uname -r), $(uname -m); load average $before before the run, $(load) at its end.

	\`\`\`
	END
	cat "$tmp/bench"
	cat <<-END
	\`\`\`

	bench-recovery kills a process and measures the time until others go on. The last rows are lookups of another
	process during takeovers and at other times:

	\`\`\`
	END
	cat "$tmp/recovery"
	echo '```'
} >"$tmp/RESULTS.md"

to=$srcdir/t/bench/RESULTS.md
if ! test -w "$srcdir/t/bench" || { test -e "$to" && ! test -w "$to"; }; then
	to=$builddir/t/bench/RESULTS.md
fi
cp "$tmp/RESULTS.md" "$to"
echo "written to $to"
