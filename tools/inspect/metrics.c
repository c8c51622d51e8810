/* SPDX-License-Identifier: Apache-2.0 */
/* metrics: one cache, or all, as Prometheus' text.
 * Tests: t/daemon/metrics.t t/tools/inspect-cost.t */
#include "config.h"

#include "tools/common/metrics.h"
#include "tools/inspect/inspect.h"

#include <stdlib.h>

static void look(const struct inspect *in, const char *name, struct metrics *m)
{
	gpc *c = NULL;

	if (inspect_attach(in, name, GPC_READONLY, &c) < 0)
		c = NULL;
	metrics_look(m, name, in->dir, c, METRICS_NO_DAEMON);
	gpc_close(c);
}

static int print(const struct inspect *in, char **names, unsigned n)
{
	struct metrics *all = calloc(n ? n : 1, sizeof(*all));
	const struct metrics **list = calloc(n ? n : 1, sizeof(*list));
	int status = 0;

	if (all && list) {
		for (unsigned i = 0; i < n; i++) {
			look(in, names[i], &all[i]);
			list[i] = &all[i];
		}
		metrics_print(stdout, list, n);
	} else {
		cli_error("out of memory");
		status = EXIT_RUNTIME;
	}
	free(all);
	free(list);
	return status;
}

/* If a name is given, there must be a cache of that name.  Without a name a collector gets the
 * caches that there are. */
int inspect_metrics(struct inspect *in)
{
	char **names, *name = (char *)in->name;
	int n, status;
	gpc *c;

	if (in->list) {
		metrics_print_table(stdout);
		return 0;
	}
	if (name) {
		status = inspect_open(in, GPC_READONLY, &c);
		if (status)
			return status;
		gpc_close(c);
		return print(in, &name, 1);
	}
	n = inspect_scan(in, "idx", &names);
	if (n < 0)
		return EXIT_RUNTIME;
	status = print(in, names, (unsigned)n);
	inspect_free_names(names, n);
	return status;
}
