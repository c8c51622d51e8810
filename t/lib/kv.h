/* SPDX-License-Identifier: Apache-2.0 */
/* kv.h - a gpcd that publishes KV events, a worker that makes them, and consumers that listen.
 *
 * A block is a number n: its key is imported from it, the engine's name of it is KV_NAME + n, and
 * its tokens are n << 16 and on. */
#ifndef GPC_T_KV_H
#define GPC_T_KV_H

#include <endian.h>
#include <fcntl.h>
#include <libgen.h>
#include <msgpack.h>
#include <zmq.h>

#include "cache.h"

#define KV_NAME   UINT64_C(0xfedcba9876540000)
#define KV_TOKENS 4 /* a block */
enum { KV_EVENTS = 5000, KV_BLOCKS = 8192 };

static void *kv_context;
static char kv_out[128], kv_replay[128]; /* endpoints, in the cache's folder */

/* libzmq is not compiled for the thread sanitizer, which so cannot know what its threads wait
 * for. */
#define KV_TSAN "ignore_noninstrumented_modules=1"
#ifdef __SANITIZE_THREAD__
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return KV_TSAN;
}
#endif

/* ---- gpcd ---- */

/* build/tools/gpcd, for tests in t and in its folders; libtool hides programs in .libs. */
TAP_FN const char *kv_gpcd(void)
{
	static char path[PATH_MAX];
	char exe[PATH_MAX] = "";
	char *dir;

	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
		bail("no /proc/self/exe");
	dir = dirname(exe);
	if (!strcmp(dir + strlen(dir) - strlen("/.libs"), "/.libs"))
		dir = dirname(dir);
	if (strcmp(strrchr(dir, '/'), "/t")) /* a folder of it */
		dir = dirname(dir);
	snprintf(path, sizeof(path), "%s/../tools/gpcd", dir);
	return path;
}

TAP_FN void kv_begin(void)
{
	kv_context = zmq_ctx_new();
	snprintf(kv_out, sizeof(kv_out), "ipc://%s/out", cache_dir);
	snprintf(kv_replay, sizeof(kv_replay), "ipc://%s/replay", cache_dir);
}

TAP_FN void kv_name_cache(void)
{
	static int number;

	snprintf(cache_name, sizeof(cache_name), "kv-%d-%d", (int)getpid(), number++);
}

/* With these options, up to a NULL.  What it says goes to the file "said" in the cache's folder. */
TAP_FN pid_t kv_start(const char *const *options)
{
	const char *argv[32] = { "gpcd", cache_name, "--dir", cache_dir };
	char said[sizeof(cache_dir) + 8];
	int n = 4, fd;
	pid_t pid;

	while (*options && n < 31)
		argv[n++] = *options++;
	snprintf(said, sizeof(said), "%s/said", cache_dir);
	pid = fork();
	if (pid)
		return pid;
	fd = open(said, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(fd, 2);
	setenv("TSAN_OPTIONS", KV_TSAN, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(kv_gpcd(), (char *const *)argv);
	_exit(127);
}

TAP_FN bool kv_has_said(const char *text)
{
	char said[sizeof(cache_dir) + 8], all[65536] = "";
	FILE *f;
	size_t n;

	snprintf(said, sizeof(said), "%s/said", cache_dir);
	f = fopen(said, "r");
	n = f ? fread(all, 1, sizeof(all) - 1, f) : 0;
	all[n] = 0;
	if (f)
		fclose(f);
	return strstr(all, text);
}

TAP_FN int kv_end(pid_t pid, int sig)
{
	int status;

	kill(pid, sig);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A cache of its own: the usual options, and a handle of a worker. */
TAP_FN gpc *kv_worker(void)
{
	struct gpc_attach_options opt = {
		.size = sizeof(opt), .dir = cache_dir, .label = "worker", .timeout_ms = 20000
	};
	gpc *c = NULL;

	must(gpc_attach(cache_name, &opt, 0, &c));
	return c;
}

TAP_FN void kv_until_writer(gpc *c, pid_t pid)
{
	struct gpc_info info = { .size = sizeof(info) };

	do {
		must(gpc_info_get(c, &info));
		usleep(1000);
	} while (info.writer_pid != pid);
}

/* ---- a worker ---- */

TAP_FN gpc_key kv_key(gpc *c, uint64_t n)
{
	gpc_key k = { { 0, 0 } };

	if (n)
		must(gpc_key_import(c, &n, 8, 8, 1, 0, &k));
	return k;
}

/* Block n below block `parent` (0: a first one) in that pool, held by nobody. */
TAP_FN gpc_block kv_store(gpc *c, int pool, uint64_t parent, uint64_t n)
{
	gpc_key up = kv_key(c, parent), key = kv_key(c, n);
	uint64_t name = htobe64(KV_NAME + n);
	uint32_t tokens[KV_TOKENS];
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_publish_options opt = { .size = sizeof(opt) };
	gpc_block b;

	must(gpc_info_get(c, &info));
	for (uint32_t i = 0; i < KV_TOKENS; i++)
		tokens[i] = (uint32_t)n << 16 | i;
	if (info.keep_tokens)
		opt.tokens = tokens;
	if (info.keep_digests) {
		opt.digests = &name;
		opt.digest_bytes = opt.digest_stride = 8;
	}
	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 10000));
	if (must(gpc_publish(c, &up, &key, &b, 1, &opt, GPC_NO_REF, 10000)) != 1)
		bail("block %llu was not published: %s", (unsigned long long)n, gpc_last_error());
	return b;
}

TAP_FN uint64_t kv_last_change(gpc *c)
{
	uint64_t cursor = UINT64_MAX;

	must(gpc_event_read(c, &cursor, NULL, 0));
	return cursor - 1;
}

/* ---- batches ---- */

struct kv_event {
	char type[20], medium[8];
	uint64_t hash, parent;
	bool has_parent;
	uint32_t tokens, first, block_tokens, group;
	char adapter[24], salt[24], extra[56]; /* extra: "a|b" */
};

struct kv_batch {
	uint64_t sequence;
	char topic[64];
	uint32_t rank, n;
	uint8_t bytes[1 << 20];
	size_t size;
	struct kv_event event[KV_EVENTS];
};

TAP_FN bool kv_is(const msgpack_object *o, const char *text)
{
	return o->type == MSGPACK_OBJECT_STR && o->via.str.size == strlen(text) &&
	       !memcmp(o->via.str.ptr, text, o->via.str.size);
}

TAP_FN void kv_text(const msgpack_object *o, char *ret, size_t room)
{
	snprintf(ret, room, "%.*s", (int)o->via.str.size, o->via.str.ptr);
}

/* The words of one block, or "nil". */
TAP_FN void kv_decode_extra(const msgpack_object *v, char *ret, size_t room)
{
	const msgpack_object *one = v->via.array.ptr;
	char text[24];

	snprintf(ret, room, "%s",
		 v->via.array.size != 1            ? "?"
		 : one->type == MSGPACK_OBJECT_NIL ? "nil"
						   : "");
	for (uint32_t i = 0; one->type == MSGPACK_OBJECT_ARRAY && i < one->via.array.size; i++) {
		kv_text(&one->via.array.ptr[i], text, sizeof(text));
		snprintf(ret + strlen(ret), room - strlen(ret), "%s%s", i ? "|" : "", text);
	}
}

TAP_FN void kv_decode_event(const msgpack_object_map *map, struct kv_event *e)
{
	*e = (struct kv_event){ .type = "" };
	for (uint32_t i = 0; i < map->size; i++) {
		const msgpack_object *k = &map->ptr[i].key, *v = &map->ptr[i].val;

		if (kv_is(k, "type"))
			kv_text(v, e->type, sizeof(e->type));
		else if (kv_is(k, "medium"))
			kv_text(v, e->medium, sizeof(e->medium));
		else if (kv_is(k, "lora_name") && v->type != MSGPACK_OBJECT_NIL)
			kv_text(v, e->adapter, sizeof(e->adapter));
		else if (kv_is(k, "cache_salt"))
			kv_text(v, e->salt, sizeof(e->salt));
		else if (kv_is(k, "extra_keys"))
			kv_decode_extra(v, e->extra, sizeof(e->extra));
		else if (kv_is(k, "block_hashes"))
			e->hash = v->via.array.size == 1 ? v->via.array.ptr[0].via.u64 : 0;
		else if (kv_is(k, "block_size"))
			e->block_tokens = (uint32_t)v->via.u64;
		else if (kv_is(k, "group_idx"))
			e->group = (uint32_t)v->via.u64;
		else if (kv_is(k, "parent_block_hash") && v->type != MSGPACK_OBJECT_NIL) {
			e->has_parent = true;
			e->parent = v->via.u64;
		} else if (kv_is(k, "token_ids")) {
			e->tokens = v->via.array.size;
			e->first = e->tokens ? (uint32_t)v->via.array.ptr[0].via.u64 : 0;
		}
	}
}

TAP_FN void kv_decode(struct kv_batch *b)
{
	msgpack_unpacked u;
	size_t at = 0;

	msgpack_unpacked_init(&u);
	if (msgpack_unpack_next(&u, (const char *)b->bytes, b->size, &at) !=
		    MSGPACK_UNPACK_SUCCESS ||
	    u.data.type != MSGPACK_OBJECT_ARRAY || u.data.via.array.size != 3)
		bail("a batch that is none");
	b->rank = (uint32_t)u.data.via.array.ptr[2].via.u64;
	b->n = u.data.via.array.ptr[1].via.array.size;
	for (uint32_t i = 0; i < b->n && i < KV_EVENTS; i++)
		kv_decode_event(&u.data.via.array.ptr[1].via.array.ptr[i].via.map, &b->event[i]);
	msgpack_unpacked_destroy(&u);
}

/* ---- consumers ---- */

TAP_FN void *kv_open(int type, const char *endpoint, int most, const char *topic)
{
	void *s = zmq_socket(kv_context, type);
	int zero = 0;

	zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof(zero));
	zmq_setsockopt(s, ZMQ_RCVHWM, &most, sizeof(most));
	if (type == ZMQ_SUB)
		zmq_setsockopt(s, ZMQ_SUBSCRIBE, topic, strlen(topic));
	if (zmq_connect(s, endpoint))
		bail("%s: %s", endpoint, zmq_strerror(errno));
	return s;
}

TAP_FN void *kv_subscribe(void)
{
	return kv_open(ZMQ_SUB, kv_out, 0, "");
}

TAP_FN int kv_frame(void *s, void *to, size_t room, int ms)
{
	int n;

	zmq_setsockopt(s, ZMQ_RCVTIMEO, &ms, sizeof(ms));
	n = zmq_recv(s, to, room, 0);
	if (n > (int)room)
		bail("a frame of %d bytes", n);
	return n;
}

/* The next batch within so many milliseconds; three frames exactly. */
TAP_FN bool kv_next(void *s, struct kv_batch *b, int ms)
{
	uint64_t sequence;
	int more = 0, n = kv_frame(s, b->topic, sizeof(b->topic) - 1, ms);
	size_t size = sizeof(more);

	if (n < 0)
		return false;
	b->topic[n] = 0;
	if (kv_frame(s, &sequence, 8, ms) != 8)
		bail("a sequence that has not 8 bytes");
	n = kv_frame(s, b->bytes, sizeof(b->bytes), ms);
	zmq_getsockopt(s, ZMQ_RCVMORE, &more, &size);
	if (n < 0 || more)
		bail("not three frames");
	b->size = (size_t)n;
	b->sequence = be64toh(sequence);
	if (n)
		kv_decode(b);
	return true;
}

/* The same from a replay, where an empty frame stands in front. */
TAP_FN bool kv_answer(void *dealer, struct kv_batch *b, int ms)
{
	char none[8];
	int n = kv_frame(dealer, none, sizeof(none), ms);

	if (n > 0)
		bail("an answer begins with a frame of %d bytes", n);
	return n == 0 && kv_next(dealer, b, ms);
}

/* What a consumer knows: blocks by name, medium and rank. */
struct kv_model {
	struct {
		uint64_t hash;
		uint32_t rank;
		char medium[8];
	} at[KV_BLOCKS];
	uint32_t n;
	uint64_t last;
	bool begun, clears_all;
	uint32_t batches, skipped, orphans, twice, unknown, replays, snapshots;
};

TAP_FN bool kv_knows(const struct kv_model *m, uint64_t hash)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (m->at[i].hash == hash)
			return true;
	return false;
}

TAP_FN uint32_t kv_find(const struct kv_model *m, uint64_t hash, const char *medium, uint32_t rank)
{
	uint32_t i;

	for (i = 0; i < m->n; i++)
		if (m->at[i].hash == hash && m->at[i].rank == rank &&
		    !strcmp(m->at[i].medium, medium))
			break;
	return i;
}

TAP_FN void kv_apply_event(struct kv_model *m, const struct kv_event *e, uint32_t rank)
{
	uint32_t i = kv_find(m, e->hash, e->medium, rank);

	if (!strcmp(e->type, "AllBlocksCleared")) {
		/* of its rank: some consumers take it for all ranks */
		for (i = 0; i < m->n; i++)
			if (m->at[i].rank == rank || m->clears_all)
				m->at[i--] = m->at[--m->n];
	} else if (!strcmp(e->type, "BlockRemoved")) {
		m->unknown += i == m->n;
		if (i < m->n)
			m->at[i] = m->at[--m->n];
	} else if (i < m->n) {
		m->twice++;
	} else if (m->n < KV_BLOCKS) {
		m->orphans += e->has_parent && !kv_knows(m, e->parent);
		m->at[m->n].hash = e->hash;
		m->at[m->n].rank = rank;
		snprintf(m->at[m->n++].medium, 8, "%s", e->medium);
	}
}

TAP_FN void kv_apply(struct kv_model *m, const struct kv_batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		kv_apply_event(m, &b->event[i], b->rank);
	m->snapshots += b->n && !strcmp(b->event[0].type, "AllBlocksCleared");
	m->last = b->sequence;
	m->begun = true;
	m->batches++;
}

TAP_FN void kv_ask(void *dealer, uint64_t first)
{
	first = htobe64(first);
	zmq_send(dealer, "", 0, ZMQ_SNDMORE);
	zmq_send(dealer, &first, 8, 0);
}

/* As Dynamo's indexer does it: all that comes up to the batch without payload. */
TAP_FN void kv_recover(struct kv_model *m, void *dealer, uint64_t first)
{
	struct kv_batch *b = malloc(sizeof(*b));
	uint32_t before = m->snapshots;

	kv_ask(dealer, first);
	while (kv_answer(dealer, b, 20000) && b->size)
		kv_apply(m, b);
	m->snapshots = before + (m->snapshots > before);
	m->replays++;
	if (b->sequence != UINT64_MAX)
		bail("a replay without an end");
	free(b);
}

/* A batch of the stream as a consumer takes it that can ask for others; without a dealer it
 * cannot. */
TAP_FN void kv_take(struct kv_model *m, const struct kv_batch *b, void *dealer)
{
	if (dealer && (!m->begun ? b->sequence > 0 : b->sequence > m->last + 1))
		kv_recover(m, dealer, m->begun ? m->last + 1 : 0);
	if (m->begun && b->sequence <= m->last)
		m->skipped++;
	else
		kv_apply(m, b);
}

/* Until it knows what there is after that change. */
TAP_FN bool kv_follow(struct kv_model *m, void *sub, void *dealer, uint64_t last)
{
	struct kv_batch *b = malloc(sizeof(*b));
	bool good = true;

	while (good && (!m->begun || m->last < last)) {
		good = kv_next(sub, b, 20000);
		if (good)
			kv_take(m, b, dealer);
	}
	free(b);
	return good;
}

/* Does it know what a walk shows, and nothing else? */
TAP_FN bool kv_is_what_there_is(gpc *c, const struct kv_model *m)
{
	struct gpc_pool p = { .size = sizeof(p) };
	struct gpc_entry e;
	uint64_t at = 0, hash;
	uint32_t n = 0, found = 0;

	while (must(gpc_walk(c, &at, &e, 1))) {
		must(gpc_pool_get(c, GPC_POOL(e.block), &p));
		memcpy(&hash, e.digest, 8);
		hash = e.digest_bytes ? be64toh(hash) : e.key.w[0];
		found += kv_find(m, hash, p.kind == GPC_VRAM ? "GPU" : "CPU", p.space) < m->n;
		n++;
	}
	if (found != n || m->n != n)
		diag("%u live, %u of them known, %u known", n, found, m->n);
	return found == n && m->n == n;
}

#endif
