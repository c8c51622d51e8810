/* SPDX-License-Identifier: Apache-2.0 */
/* A gpcd that was built without libmicrohttpd: its command line has refused --metrics.
 * Tests: t/daemon/metrics-http.t */
#include "config.h"

#include "tools/daemon/daemon.h"

int http_start(const struct daemon *d, struct http **ret)
{
	*ret = NULL;
	return d->metrics ? EXIT_USAGE : 0;
}

void http_stop(struct http *h)
{
}
