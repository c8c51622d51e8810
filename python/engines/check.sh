#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh BUILD [PART...] - what ./bootstrap check-engines runs: real engines on CPUs, with the Python module of that
# build.  PARTs are those of two_engines.py, vllm (vLLM's own tests), configs (its configurations), step (what a step of a
# scheduler costs), sglang and lmcache (their interfaces), fs (the worker of ttft's fs tier), sim (a simulator), shapes,
# serve (`vllm serve`), and ttft.  GPC_ENGINES_SHAPES names some of the shapes.  Each part's time is told.
# The virtual environment is BUILD/engines-venv, or GPC_ENGINES_VENV, and what ttft needs beside it is in
# BUILD/engines-lmcache, or GPC_ENGINES_LMCACHE; BUILD/engines gets the model and the logs.

set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: check.sh BUILD [PART...]}" && pwd) || exit 2
shift
venv=${GPC_ENGINES_VENV:-$build/engines-venv}
GPC_ENGINES_LMCACHE=${GPC_ENGINES_LMCACHE:-$build/engines-lmcache}
work=$build/engines

die()
{
	echo "check-engines: $*" >&2
	exit 1
}

parts="${*:-vllm configs step sglang lmcache fs sim pair core restart chunks tp weights tiers shapes serve ttft}"

test -e "$build/python/gpc/_gpc.abi3.so" || die "this build has no Python module: configure says why"
! grep -q '__[at]san_' "$build/lib/.libs/libgpc.so" || die "a sanitizer wants its own programs"
test "$(uname -m)" = x86_64 || die "requirements.txt is for x86-64"

since=$(date +%s)
sh "$here/install.sh" "$venv" || die "the installation failed"
echo "# installed after $(($(date +%s) - since)) s"

mkdir -p "$work"
LD_LIBRARY_PATH=$build/lib/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PYTHONPATH=$build/python:$here/../tests
PYTHONDONTWRITEBYTECODE=1
GPC_T_BUILD=$build
export GPC_T_BUILD LD_LIBRARY_PATH PYTHONPATH PYTHONDONTWRITEBYTECODE

cat <<-'END'
	# skipped: vLLM's own tests that need a model of the Hugging Face hub, as test_kv_cache_utils.py
	# skipped: SGLang as a program, and its own tests: 0.5.23 wants packages of CUDA and another PyTorch than vLLM
	# skipped: LMCache as a program but for ttft, and its own tests, which no wheel of it has
	# skipped: engines on a GPU
END

began=$(date +%s)
status=0
failed=

# run PART LOG COMMAND...: the part's name is that of its caches, too.
run()
{
	part=$1 log=$2 since=$(date +%s)
	shift 2
	echo "# $part"
	GPC_T_CACHE=$part-$$ "$venv/bin/python" "$@" 2>"$log" || { status=1 failed="$failed $part"; }
	echo "# $part: $(($(date +%s) - since)) s"
}

two=
for part in $parts; do
	case $part in
	vllm) run $part "$work/$part.log" "$here/vllm_tests.py" "$work" ;;
	configs) run $part "$work/$part.log" "$here/configs.py" "$work" ;;
	step) run $part "$work/$part.log" "$here/../bench/step.py" ;;
	sglang | lmcache) run $part "$work/$part.log" "$here/interfaces.py" "$work" $part ;;
	fs) run $part "$work/$part.log" "$here/fs_spec.py" ;;
	sim | serve) run $part "$work/$part.log" "$here/$part.py" "$work" ;;
	shapes) run $part "$work/$part.log" "$here/shapes.py" "$work" ${GPC_ENGINES_SHAPES-} ;;
	ttft) ;;
	*) two="$two $part" ;;
	esac
done
test -z "$two" || run engines "$work/engines.log" "$here/two_engines.py" "$work" $two
case " $parts " in
*" ttft "*)
	sh "$here/install.sh" "$venv" "$GPC_ENGINES_LMCACHE" || echo "# LMCache could not be installed"
	export GPC_ENGINES_LMCACHE
	run ttft "$work/ttft.log" "$here/ttft.py" "$work"
	;;
esac
test -z "$failed" || echo "# failed:$failed"
echo "# $(($(date +%s) - began)) s; the logs are in $work"
exit $status
