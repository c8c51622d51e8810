#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The units of gpcd, a standby and a keeper are templates, one instance for each cache: systemd takes each line of them, and
# they differ where they say so.  make check-systemd runs them.
# Tests: tools/daemon/gpcd@.service.in tools/daemon/gpcd-standby@.service.in tools/daemon/gpcd-keep@.service.in

. "${top_srcdir:-$(dirname "$0")/../..}/t/sh/tap.sh"

units='gpcd gpcd-standby gpcd-keep'
mkdir "$tmp/bin" "$tmp/units"
printf '#!/bin/sh\n' >"$tmp/bin/gpcd"
chmod +x "$tmp/bin/gpcd"
for unit in $units; do
	sed "s|@sbindir@|$tmp/bin|" "$srcdir/tools/daemon/$unit@.service.in" >"$tmp/units/$unit@.service"
done

verify()	# FILE...: what systemd has to say
{
	systemd-analyze verify --man=no "$@" 2>&1 | grep -e "$tmp/units" -e gpcd
}

if command -v systemd-analyze >/dev/null; then
	for unit in $units; do
		cp "$tmp/units/$unit@.service" "$tmp/units/$unit@llama.service"
		is "$(verify "$tmp/units/$unit@llama.service")" '' "systemd has nothing to say of $unit@llama"
	done
	sed 's/^KillMode=.*/KillMode=all-of-it/; s/^NoNewPrivileges=/NoNewPrivilege=/' "$tmp/units/gpcd@.service" \
		>"$tmp/units/gpcd@ill.service"
	is "$(verify "$tmp/units/gpcd@ill.service" | wc -l)" 2 "it would tell a wrong value, and a wrong key"
else
	skip 4 "there is no systemd-analyze"
fi

service()	# UNIT: the lines of [Service] that are the same in each
{
	sed -n '/^\[Service\]/,/^\[Install\]/p' "$tmp/units/$1@.service" | grep -v -e '^#' -e '^$' | sort
}

lines()	# LETTER: those of one side of the last diff
{
	sed -n "s/^$1 //p" "$tmp/diff" | sed 's|/.*/gpcd|gpcd|' | paste -sd'|' -
}

service gpcd >"$tmp/first"
service gpcd-standby >"$tmp/second"
diff "$tmp/first" "$tmp/second" >"$tmp/diff"
is "$(lines '<')" 'ExecStart=gpcd %i --foreground $GPCD_OPTIONS|RestartPreventExitStatus=2 3' \
	"a standby has all lines of the writer's unit but two"
is "$(lines '>')" 'ExecStart=gpcd %i --foreground --standby $GPCD_OPTIONS $GPCD_STANDBY_OPTIONS|RestartPreventExitStatus=2' \
	"which are others: it never finds the seat taken"
service gpcd-keep >"$tmp/second"
diff "$tmp/first" "$tmp/second" >"$tmp/diff"
is "$(lines '>')" 'Environment=GPCD_CACHE=%i|EnvironmentFile=-gpcd-keep-%i|ExecStart=gpcd $GPCD_CACHE --foreground --keep $GPCD_OPTIONS|RestartPreventExitStatus=2|RestrictAddressFamilies=AF_UNIX AF_NETLINK' \
	"a keeper has options of its own, which may name the cache, and no network"
is "$(grep -l '^After=gpcd@%i.service' "$tmp/units/"*@.service | sed 's|.*/||' | paste -sd' ' -)" \
	'gpcd-keep@.service gpcd-standby@.service' "both start behind the writer of their instance"

done_testing
