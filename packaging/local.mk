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
