# SPDX-License-Identifier: Apache-2.0
# What host and device compile alike.  probe.h includes nothing of ours.

noinst_HEADERS += %reldir%/probe.h
