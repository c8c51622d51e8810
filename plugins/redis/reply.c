/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c - what the server says: bytes to where they belong, errors to results.
 *
 * The functions by which hiredis makes objects of replies make none here: a string goes from the
 * reader's buffer to the pieces of its item, and everything else is an answer of a few words.
 * Tests: t/tiers/remote-replies.t t/tiers/redis-strays.t t/tiers/redis-ill.t */
#include "plugins/redis/redis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOO_MANY "ERR max number of clients reached"

static char token; /* "there is a reply": hiredis wants something that is not NULL */

static bool is(const char *text, const char *word)
{
	return strncmp(text, word, strlen(word)) == 0;
}

static int result_of(const char *text)
{
	static const struct {
		const char *word;
		int result;
	} words[] = {
		{ "OOM", -ENOSPC },
		{ "NOAUTH", -EACCES },
		{ "WRONGPASS", -EACCES },
		{ "NOPERM", -EACCES },
		{ "ERR invalid password", -EACCES },
		{ "ERR AUTH", -EACCES },
		{ "ERR Client sent AUTH", -EACCES },
		{ "DENIED", -EACCES },
		{ TOO_MANY, -EAGAIN },
		{ "LOADING", -EAGAIN },
		{ "CLUSTERDOWN", -EAGAIN },
		{ "MASTERDOWN", -EAGAIN },
		{ "TRYAGAIN", -EAGAIN },
		{ "BUSY", -EAGAIN },
		{ "READONLY", -EAGAIN },
		{ "NOREPLICAS", -EAGAIN },
		{ "MISCONF", -EAGAIN },
		{ "MISDIRECTED", -EAGAIN },
		{ "WRONGTYPE", -EBADMSG },
		{ "ERR Protocol error: invalid bulk", -EFBIG },
	};
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (is(text, words[i].word))
			return words[i].result;
	return -EIO;
}

bool reply_refuses(const char *text)
{
	return is(text, "NOAUTH") || is(text, "DENIED") || is(text, TOO_MANY);
}

/* "MOVED 3999 127.0.0.1:6381", "ASK 3999 ::1:6381", "MOVED 3999 [::1]:6381", "MOVED 3999 :6381" */
static void redirect(struct answer *a)
{
	char *end, *at = strchr(a->text, ' '), *colon = strrchr(a->text, ':');
	long slot = at ? strtol(at + 1, &end, 10) : -1;
	size_t n;

	a->result = -EAGAIN;
	if (slot < 0 || slot >= SLOTS || *end != ' ' || !colon || colon <= end)
		return;
	a->slot = (int)slot;
	a->port = atoi(colon + 1);
	at = end + 1;
	n = (size_t)(colon - at);
	if (n > 1 && at[0] == '[' && at[n - 1] == ']')
		at++, n -= 2;
	if (n >= sizeof(a->host) || (n == 1 && *at == '?') || a->port < 1 || a->port > 65535)
		return;
	memcpy(a->host, at, n);
	a->host[n] = 0;
	a->where = is(a->text, "MOVED") ? MOVED : ASK;
}

void reply_of_error(const char *text, size_t n, struct answer *ret)
{
	size_t i;

	if (n >= sizeof(ret->text))
		n = sizeof(ret->text) - 1;
	for (i = 0; i < n; i++)
		ret->text[i] = (char)((unsigned char)text[i] < 32 ? ' ' : text[i]);
	ret->text[n] = 0;
	ret->pong = false;
	ret->where = STAYS;
	ret->result = result_of(ret->text);
	if (is(ret->text, "MOVED ") || is(ret->text, "ASK "))
		redirect(ret);
}

static int fill(const struct gpc_remote_item *item, const char *bytes, size_t n)
{
	uint32_t i;

	if (n != item->image_bytes + GPC_REMOTE_HEADER)
		return -EBADMSG;
	memcpy(item->header, bytes, GPC_REMOTE_HEADER);
	bytes += GPC_REMOTE_HEADER;
	for (i = 0; i < item->npieces; i++) {
		memcpy(item->image[i].iov_base, bytes, item->image[i].iov_len);
		bytes += item->image[i].iov_len;
	}
	return 0;
}

/* An answer of a type that the command does not have is none. */
static struct answer *plain(const redisReadTask *task, int result)
{
	struct conn *c = task->privdata;

	c->answer.where = STAYS;
	c->answer.text[0] = 0;
	c->answer.pong = false;
	c->answer.result =
		!c->expected || c->expected == task->type || task->type == REDIS_REPLY_NIL ? result
											   : -EIO;
	return &c->answer;
}

static void *on_string(const redisReadTask *task, char *s, size_t n)
{
	struct conn *c = task->privdata;

	if (task->parent)
		return NULL;
	if (task->type == REDIS_REPLY_ERROR)
		reply_of_error(s, n, &c->answer);
	else if (task->type == REDIS_REPLY_STATUS)
		plain(task, 0)->pong = n == 4 && memcmp(s, "PONG", 4) == 0;
	else
		plain(task, c->into ? fill(c->into, s, n) : -EIO);
	return &token;
}

static void *on_integer(const redisReadTask *task, long long n)
{
	if (task->parent)
		return NULL;
	plain(task, n > 0 ? 0 : -ENOENT);
	return &token;
}

static void *on_nil(const redisReadTask *task)
{
	if (task->parent)
		return NULL;
	plain(task, -ENOENT);
	return &token;
}

/* No command of a batch is answered by one: the connection is of no use any more. */
#if HIREDIS_MAJOR >= 1
static void *on_array(const redisReadTask *task, size_t n)
{
	return NULL;
}

static void *on_double(const redisReadTask *task, double d, char *s, size_t n)
{
	return NULL;
}

static void *on_bool(const redisReadTask *task, int b)
{
	return NULL;
}
#else
static void *on_array(const redisReadTask *task, int n)
{
	return NULL;
}
#endif

#if HIREDIS_MAJOR >= 1
void *reply_small_array(const redisReadTask *task, size_t n)
#else
void *reply_small_array(const redisReadTask *task, int n)
#endif
{
	struct conn *c = task->privdata;

	return n > SLOTS ? NULL : c->objects->createArray(task, n);
}

static void on_free(void *object)
{
}

redisReplyObjectFunctions reply_flat = {
	.createString = on_string,
	.createArray = on_array,
	.createInteger = on_integer,
	.createNil = on_nil,
#if HIREDIS_MAJOR >= 1
	.createDouble = on_double,
	.createBool = on_bool,
#endif
	.freeObject = on_free,
};
