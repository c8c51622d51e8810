# SPDX-License-Identifier: Apache-2.0
# Packages: debian/ for dpkg-buildpackage, gpc.spec for rpmbuild, a container.

EXTRA_DIST += \
	debian/changelog \
	debian/control \
	debian/copyright \
	debian/gpc-plugin-redis.install \
	debian/gpc-tools.install \
	debian/gpcd.install \
	debian/libgpc-dev.install \
	debian/libgpc1.install \
	debian/libgpc1.symbols \
	debian/rules \
	debian/source/format \
	%reldir%/Containerfile \
	%reldir%/check \
	%reldir%/compose.yaml \
	%reldir%/gpc.spec \
	%reldir%/kubernetes/check.py \
	%reldir%/kubernetes/example.yaml \
	%reldir%/kubernetes/gpc-device-plugin \
	%reldir%/check-systemd \
	%reldir%/smoke \
	%reldir%/systemd-inside

# builds the packages of this tree, installs and runs them in a root of their own: takes minutes
check-packages:
	+$(SHELL) $(srcdir)/%reldir%/check
.PHONY: check-packages

# the units under a systemd that is process 1 of a root of its own; needs root
check-systemd: all
	+$(SHELL) $(srcdir)/%reldir%/check-systemd
.PHONY: check-systemd

# the device plugin beside a kubelet that is played; grpcio and protobuf from PyPI, and root for the mounts of a pod
check-kubernetes: all
	@test -x kubernetes-venv/bin/pip && kubernetes-venv/bin/python -c 'import grpc, google.protobuf' 2>/dev/null || \
		{ rm -rf kubernetes-venv && $(PYTHON) -m venv kubernetes-venv && kubernetes-venv/bin/pip -q install grpcio protobuf; }
	timeout -k 5 300 kubernetes-venv/bin/python $(srcdir)/%reldir%/kubernetes/check.py '$(abs_top_srcdir)' '$(abs_top_builddir)'
.PHONY: check-kubernetes
