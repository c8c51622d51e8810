/* SPDX-License-Identifier: Apache-2.0 */
/* store - a remote store from a shell: store STORE put|get|both|exists|remove FIRST N [BYTES [MS]]
 *
 * Prints how many of the blocks FIRST to FIRST + N - 1 have the result 0; "wrong" if bytes of one
 * are not those that follow from its key. */
#include "t/lib/remote.h"

static void say_log(void *arg, int level, const char *text)
{
	(void)arg;
	fprintf(stderr, "<%d> %s\n", level, text);
}

int main(int argc, char **argv)
{
	struct remote_options o = { .lanes = 1, .log = say_log };
	uint32_t n = argc > 4 ? (uint32_t)atoi(argv[4]) : 0, i, done = 0;
	uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	static struct images m;
	struct remote *r;
	gpc_key *keys;

	if (argc < 5 || !n || n > 1024)
		return 2;
	o.spec = argv[1];
	o.image_bytes = argc > 5 ? (uint64_t)atoi(argv[5]) : 65536;
	o.deadline_ms = argc > 6 ? (uint32_t)atoi(argv[6]) : 5000;
	if (remote_open(&o, &r) < 0) {
		fprintf(stderr, "%s\n", gpc_last_error());
		return 1;
	}
	images_make(&m, n, (uint32_t)o.image_bytes);
	remote_memory(r, m.at, (uint64_t)n * m.bytes, true);
	keys = calloc(n, sizeof(*keys));
	for (i = 0; i < n; i++)
		keys[i] = remote_key(first + i);
	if (!strcmp(argv[2], "put") || !strcmp(argv[2], "both")) {
		images_put(&m, first);
		done = remote_put(r, 0, m.b, n, 0);
	}
	if (!strcmp(argv[2], "get") || !strcmp(argv[2], "both")) {
		images_want(&m, first);
		done = remote_get(r, 0, m.b, n, 0);
	} else if (!strcmp(argv[2], "exists")) {
		done = remote_exists(r, 0, keys, n, NULL, 0);
	} else if (!strcmp(argv[2], "remove")) {
		done = remote_remove(r, 0, keys, n, NULL, 0);
	}
	printf("%u%s\n", done,
	       (!strcmp(argv[2], "get") || !strcmp(argv[2], "both")) && images_wrong(&m) ? " wrong"
											 : "");
	fflush(stdout);
	if (argc > 7) /* a store that goes with us is there until somebody has read this */
		(void)!getchar();
	remote_memory(r, m.at, (uint64_t)n * m.bytes, false);
	remote_close(r);
	return 0;
}
