/* SPDX-License-Identifier: Apache-2.0 */
/* lag.h - how far the mirrors of a cache are behind. */
#ifndef GPC_T_LAG_H
#define GPC_T_LAG_H

#include "gpc.h"
#include "gpc_look.h"
#include "tap.h"

/* Changes of the table that the slowest live mirror does not show yet; 0 without mirrors. */
TAP_FN int mirror_lag(gpc *c)
{
	struct gpc_mirror m = { .size = sizeof(m) };
	uint64_t lag = 0;
	int i;

	for (i = 0; gpc_mirror_get(c, i, &m) == 0 && !m.retired; i++)
		lag = m.changes - m.flushed > lag ? m.changes - m.flushed : lag;
	return (int)lag;
}

#endif
