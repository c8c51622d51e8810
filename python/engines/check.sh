#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh BUILD [PART...] - what ./bootstrap check-engines runs: real engines on CPUs, with the Python module of that
# build.  PARTs are those of two_engines.py, vllm (vLLM's own tests), configs (its configurations), step (what a step of a
# scheduler costs), sglang and lmcache (their interfaces), and ttft.
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

parts="${*:-vllm configs step sglang lmcache pair core restart chunks tp weights ttft}"

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
export LD_LIBRARY_PATH PYTHONPATH PYTHONDONTWRITEBYTECODE

cat <<-'END'
	# skipped: vLLM's own tests that need a model of the Hugging Face hub, as test_kv_cache_utils.py
	# skipped: SGLang as a program, and its own tests: 0.5.23 wants packages of CUDA and another PyTorch than vLLM
	# skipped: LMCache as a program but for ttft, and its own tests, which no wheel of it has
	# skipped: engines on a GPU
END

since=$(date +%s)
status=0
case " $parts " in
*" vllm "*) GPC_T_CACHE=vllm-$$ "$venv/bin/python" "$here/vllm_tests.py" "$work" || status=1 ;;
esac
for part in $parts; do
	case $part in
	step)
		echo "# $part: no test, a table"
		GPC_T_CACHE=$part-$$ "$venv/bin/python" "$here/../bench/step.py" 2>"$work/$part.log" || status=1
		;;
	configs)
		echo "# $part"
		GPC_T_CACHE=$part-$$ "$venv/bin/python" "$here/configs.py" "$work" 2>"$work/$part.log" || status=1
		;;
	sglang | lmcache)
		echo "# $part"
		GPC_T_CACHE=$part-$$ "$venv/bin/python" "$here/interfaces.py" "$work" $part 2>"$work/$part.log" || status=1
		;;
	esac
done
engines=$(printf '%s\n' $parts | grep -vx -e ttft -e vllm -e configs -e step -e sglang -e lmcache | tr '\n' ' ')
if test -n "$engines"; then
	GPC_T_CACHE=engines-$$ "$venv/bin/python" "$here/two_engines.py" "$work" $engines || status=1
fi
case " $parts " in
*" ttft "*)
	sh "$here/install.sh" "$venv" "$GPC_ENGINES_LMCACHE" || echo "# LMCache could not be installed"
	export GPC_ENGINES_LMCACHE
	GPC_T_CACHE=engines-$$ "$venv/bin/python" "$here/ttft.py" "$work" || status=1
	;;
esac
echo "# $(($(date +%s) - since)) s; the logs are in $work"
exit $status
