/* SPDX-License-Identifier: Apache-2.0 */
/* lie DIR NAME LABEL WHAT - a worker that takes what it can get.
 *
 *   reserved    blocks, until it is refused      sections    opened, until there are no more
 *   refs        on one block, that it publishes  ring        commands, and waits for no answer
 *
 * Prints what it is refused with, then "lying", and stays so until SIGTERM. */
#include "gpc.h"
#include "gpc_device.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int take_reserved(gpc *c)
{
	gpc_block b;
	int r;

	while ((r = gpc_reserve(c, 0, 1, &b, NULL, 0, 5000)) == 1)
		;
	return r;
}

static int take_refs(gpc *c)
{
	uint64_t number = 77;
	gpc_key key;
	gpc_block b;
	int r;

	if ((r = gpc_reserve(c, 0, 1, &b, NULL, 0, 5000)) < 0 ||
	    (r = gpc_key_import(c, &number, 8, 8, 1, 0, &key)) < 0 ||
	    (r = gpc_publish(c, NULL, &key, &b, 1, NULL, 0, -1)) < 0)
		return r;
	while ((r = gpc_ref(c, &key, &b, 1)) == 1)
		;
	return r;
}

static int take_sections(gpc *c)
{
	int r;

	while ((r = gpc_section_enter(c)) >= 0)
		;
	return r;
}

/* Of a block that is free: nothing is dropped. */
static int take_ring(gpc *c)
{
	static gpc_block b[4096];
	int r, i;

	for (i = 0; i < 4096; i++)
		b[i] = 63;
	while ((r = gpc_drop(c, b, 4096, NULL, 0, 0)) == 0)
		;
	return r;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *what;
		int (*take)(gpc *c);
	} lies[] = {
		{ "reserved", take_reserved },
		{ "refs", take_refs },
		{ "sections", take_sections },
		{ "ring", take_ring },
	};
	struct gpc_attach_options opt = { .size = sizeof(opt) };
	sigset_t gate;
	gpc *c;
	int sig;

	if (argc != 5)
		return 2;
	opt.dir = argv[1];
	opt.label = argv[3];
	sigemptyset(&gate);
	sigaddset(&gate, SIGTERM);
	sigprocmask(SIG_BLOCK, &gate, NULL);
	alarm(120);
	if (gpc_attach(argv[2], &opt, 0, &c) < 0) {
		fprintf(stderr, "lie: %s\n", gpc_last_error());
		return 1;
	}
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		if (!strcmp(argv[4], lies[i].what))
			printf("%s: %s\n", argv[4], strerror(-lies[i].take(c)));
	puts("lying");
	fflush(stdout);
	sigwait(&gate, &sig);
	return gpc_close(c) < 0;
}
