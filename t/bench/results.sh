#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What "make bench" runs, and where it writes it down:
#
#	results.sh SRCDIR BUILDDIR
#
# RESULTS.md goes beside this script, or into the build where that is not writable, and only when
# everything was measured and verified.  BENCHFLAGS are those of gpc-bench, "all" when there are
# none; RECOVERYFLAGS those of bench-recovery.
#
# "make bench-folder" makes a folder with all that this needs, for a machine without compiler and libraries: there
# it is "sh run", and RESULTS.md is written into that folder.

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

	Written by \`make bench\` on $(date -u +%Y-%m-%d), $(commit), in
	$(($(date +%s) - from)) s. gpc-bench(1) says what the rows mean, [NOTES.md](NOTES.md) why marks are
	missed, [RESULTS-GPU.md](RESULTS-GPU.md) has the figures of a GPU.

	Linux $(uname -r), $(uname -m); load average $before before it began, $(load) at its end.

	\`\`\`
	END
	cat "$tmp/bench"
	cat <<-END
	\`\`\`

	How long a death is felt, by bench-recovery:

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
