/* SPDX-License-Identifier: Apache-2.0 */
/* clear DIR NAME - a worker that has everything forgotten. */
#include "gpc.h"

#include <stdio.h>

int main(int argc, char **argv)
{
	struct gpc_attach_options opt = { .size = sizeof(opt) };
	gpc *c;

	if (argc != 3)
		return 2;
	opt.dir = argv[1];
	if (gpc_attach(argv[2], &opt, 0, &c) < 0 || gpc_pool_clear(c, -1, 0, 0, 5000) < 0) {
		fprintf(stderr, "clear: %s\n", gpc_last_error());
		return 1;
	}
	return gpc_close(c) < 0;
}
