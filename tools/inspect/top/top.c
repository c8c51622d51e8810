/* SPDX-License-Identifier: Apache-2.0 */
/* top: rates, pools, mirrors and processes of one cache on the whole terminal.  It only looks, by
 * a read-only attachment for each look.  So it takes no seat, and goes on whatever becomes of the
 * cache.
 * Tests: t/tools/inspect-top.t */
#include "config.h"

#include "tools/inspect/top/top.h"

int inspect_top(struct inspect *in)
{
	gpc *c;
	int status;

	if (in->json)
		return cli_usage("top: it prints no JSON; stat --watch does");
	/* checks that there is such a cache at the beginning */
	status = inspect_open(in, GPC_READONLY, &c);
	if (status)
		return status;
	gpc_close(c);
	return top_screen(in);
}
