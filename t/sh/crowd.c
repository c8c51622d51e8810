/* SPDX-License-Identifier: Apache-2.0 */
/* crowd DIR NAME SEATS - so many handles of one process, each with all of its sections used once
 * and one open.  Prints "holding" and stays so until SIGTERM. */
#include "gpc.h"
#include "gpc_device.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What has to work for the rest to make sense. */
#define must(call) must_work((call), #call)

static int must_work(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "crowd: %s: %s\n", what, gpc_last_error());
		exit(1);
	}
	return r;
}

static void sit(const char *dir, const char *name)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .dir = dir,
					  .label = "one of a crowd" };
	int section[GPC_SECTIONS];
	gpc_key k = { { 1, 2 } };
	gpc_block b;
	gpc *c;

	must(gpc_attach(name, &opt, 0, &c));
	for (int i = 0; i < GPC_SECTIONS; i++)
		section[i] = must(gpc_section_enter(c));
	must(gpc_lookup(c, 0, &k, 1, &b, 0));
	for (int i = 1; i < GPC_SECTIONS; i++)
		gpc_section_leave(c, section[i]);
}

int main(int argc, char **argv)
{
	sigset_t gate;
	int sig, i;

	if (argc != 4)
		return 2;
	for (i = 0; i < atoi(argv[3]); i++)
		sit(argv[1], argv[2]);
	sigemptyset(&gate);
	sigaddset(&gate, SIGTERM);
	sigprocmask(SIG_BLOCK, &gate, NULL);
	alarm(120);
	puts("holding");
	fflush(stdout);
	sigwait(&gate, &sig);
	return 0;
}
