/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin that breaks its contract: bad:how=WORD,flag=FILE, while FILE is there.
 *
 *   get, put, exists, remove, tick, close    never returns from it, whatever deadline and cancel say
 *   write      get returns only then, says that all came, and stores other bytes in every image
 *   crash      close ends the process
 *   null       open answers 0 without a store
 *   positive   open answers 1
 *   more       results and counters that nobody has asked for
 *   nothing    get says that all came, and stores nothing
 *   wrong      get gives the bytes of another value
 *
 * Values are in the memory of the process, and all stores of it have the same. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpc_remote.h"

enum { MOST = 512 };

struct value {
	char key[GPC_REMOTE_KEY + 1];
	char *bytes;
	uint64_t n;
};
static struct value value[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct store {
	char how[32], flag[512];
	uint64_t calls;
};

static int is(const struct store *s, const char *how)
{
	return !strcmp(s->how, how) && !access(s->flag, F_OK);
}

static void stay(const struct store *s, const char *how)
{
	while (is(s, how))
		usleep(2000);
}

static struct value *find(const char *key)
{
	int i;

	for (i = 0; i < MOST; i++)
		if (!strcmp(value[i].key, key))
			return &value[i];
	return NULL;
}

static void copy(const struct gpc_remote_item *item, char *at, int out)
{
	uint32_t i;

	memcpy(out ? item->header : at, out ? at : item->header, GPC_REMOTE_HEADER);
	at += GPC_REMOTE_HEADER;
	for (i = 0; i < item->npieces; i++) {
		memcpy(out ? item->image[i].iov_base : at, out ? at : item->image[i].iov_base,
		       item->image[i].iov_len);
		at += item->image[i].iov_len;
	}
}

static void spoil(const struct gpc_remote_item *item)
{
	uint32_t i;

	for (i = 0; i < item->npieces; i++)
		memset(item->image[i].iov_base, 0xdb, item->image[i].iov_len);
}

static int open_bad(const struct gpc_remote_setup *setup, void **store, char *why, size_t room)
{
	struct store *s = calloc(1, sizeof(*s));
	uint32_t i;

	(void)why, (void)room;
	if (!s)
		return -ENOMEM;
	for (i = 0; i < setup->noptions; i++)
		strncpy(strcmp(setup->options[i].word, "how") ? s->flag : s->how,
			setup->options[i].value,
			strcmp(setup->options[i].word, "how") ? sizeof(s->flag) - 1
							      : sizeof(s->how) - 1);
	*store = s;
	if (!strcmp(s->how, "null") || !strcmp(s->how, "positive")) {
		*store = !strcmp(s->how, "null") ? NULL : s;
		i = !strcmp(s->how, "positive");
		free(s);
		return (int)i;
	}
	return 0;
}

static void close_bad(void *store)
{
	struct store *s = store;

	stay(s, "close");
	if (is(s, "crash"))
		abort();
	free(s);
}

static void exists(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		   uint32_t n)
{
	struct store *s = store;
	uint32_t i;

	(void)call;
	stay(s, "exists");
	pthread_mutex_lock(&lock);
	for (i = 0; i < n; i++)
		items[i].result = is(s, "more") ? (int32_t)i + 1 : find(items[i].key) ? 0 : -ENOENT;
	pthread_mutex_unlock(&lock);
}

static int get_one(struct store *s, const struct gpc_remote_item *item, int late)
{
	struct value *v = find(item->key);

	if (late) {
		spoil(item);
		return 0;
	}
	if (is(s, "nothing"))
		return 0;
	if (!v)
		return -ENOENT;
	if (v->n != GPC_REMOTE_HEADER + item->image_bytes)
		return -EBADMSG;
	copy(item, v->bytes, 1);
	if (is(s, "wrong"))
		((char *)item->image[0].iov_base)[0] ^= 1;
	return is(s, "more") ? 7 : 0;
}

static void get(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		uint32_t n)
{
	struct store *s = store;
	int late = is(s, "write");
	uint32_t i;

	(void)call;
	stay(s, "get");
	stay(s, "write");
	pthread_mutex_lock(&lock);
	s->calls += n;
	for (i = 0; i < n; i++)
		items[i].result = get_one(s, &items[i], late);
	pthread_mutex_unlock(&lock);
}

static int put_one(const struct gpc_remote_item *item)
{
	struct value *v = find(item->key);

	if (v)
		return 0;
	v = find("");
	if (!v)
		return -ENOSPC;
	v->n = GPC_REMOTE_HEADER + item->image_bytes;
	v->bytes = malloc(v->n);
	if (!v->bytes)
		return -EIO;
	copy(item, v->bytes, 0);
	strcpy(v->key, item->key);
	return 0;
}

static void put(void *store, const struct gpc_remote_call *call, struct gpc_remote_item *items,
		uint32_t n)
{
	struct store *s = store;
	uint32_t i;

	(void)call;
	stay(s, "put");
	pthread_mutex_lock(&lock);
	for (i = 0; i < n; i++)
		items[i].result = is(s, "more") ? 7 : put_one(&items[i]);
	pthread_mutex_unlock(&lock);
}

static void take_away(void *store, const struct gpc_remote_call *call,
		      struct gpc_remote_item *items, uint32_t n)
{
	struct value *v;
	uint32_t i;

	(void)call;
	stay(store, "remove");
	pthread_mutex_lock(&lock);
	for (i = 0; i < n; i++) {
		v = find(items[i].key);
		items[i].result = 0;
		if (!v)
			continue;
		free(v->bytes);
		memset(v, 0, sizeof(*v));
	}
	pthread_mutex_unlock(&lock);
}

#ifdef WITH_TICK
static int tick(void *store, const struct gpc_remote_call *call, char *why, size_t room)
{
	(void)call, (void)why, (void)room;
	stay(store, "tick");
	return 0;
}
#endif

static uint32_t counters(void *store, struct gpc_remote_counter *ret, uint32_t n)
{
	struct store *s = store;

	pthread_mutex_lock(&lock);
	if (n)
		ret[0] = (struct gpc_remote_counter){ "calls", s->calls };
	pthread_mutex_unlock(&lock);
	return is(s, "more") ? 100000 : n ? 1 : 0;
}

static const struct gpc_remote_word words[] = { { "how", "what it breaks" },
						{ "flag", "a file: it does while this is there" },
						{ NULL, NULL } };

const struct gpc_remote_plugin gpc_remote_plugin = {
	.size = sizeof(struct gpc_remote_plugin),
	.abi = GPC_REMOTE_ABI,
	.name = "bad",
	.about = "breaks its contract, for tests",
	.words = words,
	.open = open_bad,
	.close = close_bad,
	.exists = exists,
	.get = get,
	.put = put,
	.remove = take_away,
#ifdef WITH_TICK
	.tick = tick,
#endif
	.counters = counters,
};
