/* SPDX-License-Identifier: Apache-2.0 */
/* Pools that are made with memory: what is there then, what is refused, what becomes of the file
 * when the pool goes, and when its owner dies.
 * Tests: lib/bytes/mapping/make.c lib/bytes/mapping/make_want.c lib/bytes/mapping/huge.c lib/index/writer/pool_memory.c
 *   lib/bytes/memfile/open.c */
#include "t/lib/memory_files.h"

#include <signal.h>
#include <sys/wait.h>

#include "bytes/memfile/memfile.h"
#include "index/request/request.h"

enum { BLOCK = 8192, BLOCKS = 6 };

static gpc *new_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 512;
	cfg.max_pools = 4;
	memset(cfg.layout, 0x6c, sizeof(cfg.layout));
	return cache_make(&cfg, NULL);
}

/* ---- what is there ---- */

static void test_ram(void)
{
	gpc *c = new_cache();
	struct gpc_pool p = pool_with(GPC_RAM, BLOCKS, 0), q = { .size = sizeof(q) };
	struct gpc_memory m = memory_of(BLOCK);
	struct gpc_pool_memory got;
	struct gpc_run run[2] = { { 0 }, { .part = 77 } };
	uint8_t layout[32];

	memset(layout, 0x6c, sizeof(layout));
	is_int(gpc_pool_make(c, &p, &m, -1), 0, "RAM");
	ok(p.memory && p.block_bytes == BLOCK && !memcmp(p.fingerprint, layout, 32),
	   "the pool names its memory, whose images are the cache's");
	is_int(p.owner, -1, "it belongs to nobody");
	must(gpc_pool_get(c, 0, &q));
	ok(q.memory == p.memory && q.block_bytes == BLOCK && !memcmp(q.fingerprint, layout, 32),
	   "anybody is told the same");
	got = memory_get(c, 0);
	ok(got.kind == GPC_RAM && got.slots == BLOCKS + 2 && got.nruns == 1 && got.parts == 1 &&
		   got.parts_lent == 1 && got.memory == p.memory && got.block_bytes == BLOCK,
	   "the file says so, too");
	ok(got.bytes >= (BLOCKS + 2) * BLOCK && !memcmp(got.fingerprint, layout, 32) &&
		   got.huge_bytes <= got.bytes && !got.device[0],
	   "bytes for all slots");
	ok(memory_file_exists(p.memory) && access(got.file, F_OK) == 0 && memory_files() == 1,
	   "one file, where it is said to be");
	is_int(gpc_pool_memory_get(c, 0, NULL, run, 2), 1, "one run");
	ok(run[0].part == 0 && run[0].count == 1 && run[0].bytes == BLOCK && !run[0].offset &&
		   run[0].slot_stride == BLOCK,
	   "an image after the other");
	is_int(run[1].part, 77, "and no more is written");
	is_int(gpc_pool_memory_get(c, 0, NULL, NULL, 0), 1, "the number alone");
	clean(c, "RAM");
	is_int(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 2000), 0, "the pool goes");
	ok(memory_files_come_to(c, 0), "and its file");
	p = pool_with(GPC_RAM, BLOCKS, 0);
	m.huge_dir = "";
	is_int(gpc_pool_make(c, &p, &m, -1), 0, "an empty huge_dir is none");
	must(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 2000));
	refused(gpc_pool_memory_get(c, 0, &got, NULL, 0), ENOENT, "there is no such pool");
	cache_end(c);
}

static void test_layered(void)
{
	gpc *c = new_cache();
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, 0);
	struct gpc_run run[] = {
		{ .count = 4, .bytes = 512, .slot_stride = 1024, .run_stride = 8192 },
		{ .count = 4, .bytes = 512, .offset = 512, .slot_stride = 1024,
		  .run_stride = 8192 },
	}, back[2];
	struct gpc_memory m = { .size = sizeof(m), .nruns = 2, .runs = run };
	struct gpc_pool_memory got;

	memset(m.fingerprint, 7, sizeof(m.fingerprint));
	is_int(gpc_pool_make(c, &p, &m, -1), 0, "VRAM of the host device, in layers");
	ok(p.block_bytes == 4096 && p.flags & GPC_POOL_OWNED && p.owner == info_of(c).peer,
	   "an image is the pieces of both runs; the maker is the owner");
	got = memory_get(c, 0);
	ok(got.kind == GPC_VRAM && got.slots == BLOCKS && got.nruns == 2 && got.parts == 1 &&
		   got.parts_lent == 1 && !strcmp(got.device, "host"),
	   "the file says so");
	ok(got.bytes >= 3 * 8192 + 5 * 1024 + 1024, "bytes up to the last piece");
	ok(got.fingerprint[0] == 7 && got.fingerprint[31] == 7, "a fingerprint of its own");
	is_int(gpc_pool_memory_get(c, 0, NULL, back, 2), 2, "two runs");
	ok(!memcmp(run, back, sizeof(run)), "as they were given");
	is_int(gpc_pool_memory_get(c, 0, NULL, back, 1), 2, "room for one");
	clean(c, "VRAM");
	is_int(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 2000), 0, "the pool goes");
	must(gpc_close(c));
	must(gpc_unlink(cache_name, cache_dir));
	is_int(memory_files(), 0, "no file is left when all are gone");
}

/* ---- what is refused ---- */

static void says(gpc *c, struct gpc_pool p, struct gpc_memory m, int err, const char *word)
{
	int before = memory_files();

	if (refused(gpc_pool_make(c, &p, &m, 1000), err, "%s", word)) {
		ok(strstr(gpc_last_error(), word) != NULL, "the sentence names it");
		if (!strstr(gpc_last_error(), word))
			diag("%s", gpc_last_error());
	}
	is_int(memory_files(), before, "and no file is left");
}

#define RAM_SAYS(err, word, ...)                   \
	do {                                       \
		p = pool_with(GPC_RAM, BLOCKS, 0); \
		m = memory_of(BLOCK);              \
		__VA_ARGS__;                       \
		says(c, p, m, err, word);          \
	} while (0)

#define VRAM_SAYS(err, word, ...)                   \
	do {                                        \
		p = pool_with(GPC_VRAM, BLOCKS, 0); \
		m = memory_of(BLOCK);               \
		__VA_ARGS__;                        \
		says(c, p, m, err, word);           \
	} while (0)

static void test_fields(void)
{
	static struct gpc_run run[2] = {
		{ .count = 2, .bytes = 64, .slot_stride = 256, .run_stride = 64 },
		{ .count = 1, .bytes = 64, .offset = 128, .slot_stride = 256 },
	};
	static struct gpc_run over[2];
	gpc *c = new_cache();
	struct gpc_pool p = pool_with(GPC_RAM, BLOCKS, 0);
	struct gpc_memory m;

	refused(gpc_pool_make(c, NULL, &(struct gpc_memory){ .size = 8 }, 0), EINVAL, "no pool");
	refused(gpc_pool_make(NULL, &p, NULL, 0), EINVAL, "no handle");
	RAM_SAYS(EINVAL, "size of struct gpc_memory is 8", m.size = 8);
	RAM_SAYS(EINVAL, "size of struct gpc_pool is 12", p.size = 12);
	RAM_SAYS(EINVAL, "kind is 5", p.kind = 5);
	RAM_SAYS(EINVAL, "blocks is 0", p.blocks = 0);
	RAM_SAYS(EINVAL, "backing_size is 4", p.backing_size = 4);
	RAM_SAYS(EINVAL, "nruns is 513", m.nruns = 513; m.runs = run);
	RAM_SAYS(EINVAL, "runs is NULL, and nruns is 2", m.nruns = 2);
	RAM_SAYS(EINVAL, "block_bytes is 0", m.block_bytes = 0);
	RAM_SAYS(EINVAL, "block_bytes is 8192: the runs have 192", m.nruns = 2; m.runs = run);
	memcpy(over, run, sizeof(over));
	over[1].offset = 64;
	RAM_SAYS(EINVAL, "on pieces of runs[0]", m.nruns = 2; m.runs = over; m.block_bytes = 0);
	over[1].offset = 128;
	over[1].part = 1;
	RAM_SAYS(EINVAL, "part", m.nruns = 2; m.runs = over; m.block_bytes = 0);
	RAM_SAYS(EINVAL, "device is \"host\"", m.device = "host");
	RAM_SAYS(EINVAL, "parts is 1", m.parts = 1);
	RAM_SAYS(EINVAL, "numa is 3", m.numa = 3);
	RAM_SAYS(EINVAL, "nodes is 0x1", m.nodes = 1);
	RAM_SAYS(EINVAL, "threads is 1025: it must be 0 to 16", m.threads = 1025);
	RAM_SAYS(EINVAL, "no_checksums is 2", m.no_checksums = 2);
	RAM_SAYS(ENOENT, "/nowhere", m.huge_dir = "/nowhere");
	RAM_SAYS(ENOSPC, "missing", m.block_bytes = 1ull << 50);
	VRAM_SAYS(EINVAL, "gpus is 2", p.gpus = 2);
	VRAM_SAYS(EINVAL, "numa is 0x1", m.numa = 1);
	VRAM_SAYS(EINVAL, "nodes is 0x2", m.nodes = 2);
	VRAM_SAYS(EINVAL, "threads is 2", m.threads = 2);
	VRAM_SAYS(EINVAL, "no_checksums is 1", m.no_checksums = 1);
	VRAM_SAYS(EINVAL, "huge_dir is \"/dev/shm\"", m.huge_dir = "/dev/shm");
	VRAM_SAYS(EINVAL, "progress is set", m.progress = (int (*)(void *, uint64_t, uint64_t))1);
	VRAM_SAYS(EINVAL, "parts is 513", m.nruns = 2; m.runs = run; m.block_bytes = 0;
		  m.parts = 513);
	VRAM_SAYS(EINVAL, "parts is 2: without runs", m.parts = 2);
	VRAM_SAYS(EINVAL, "no run lies in part 1", m.nruns = 2; m.runs = run; m.block_bytes = 0;
		  m.parts = 2);
	VRAM_SAYS(EINVAL, "device is \"disk\"", m.device = "disk");
	VRAM_SAYS(EINVAL, "which is another one", m.device = "host"; p.uuid[0][3] = 1);
	VRAM_SAYS(ENODEV, "GPU", p.uuid[0][3] = 1);
	RAM_SAYS(ENOSPC, "max_blocks 512", p.blocks = 600);
	RAM_SAYS(ENOENT, "demote_to is 3", p.demote_to = 3);
	is_int(info_of(c).pools, 0, "nothing was added");
	cache_end(c);
}

static void test_demote(void)
{
	gpc *c = new_cache();
	struct gpc_pool p = pool_with(GPC_RAM, BLOCKS, 0);
	struct gpc_memory m = memory_of(BLOCK);

	is_int(gpc_pool_make(c, &p, &m, -1), 0, "RAM below");
	VRAM_SAYS(EPROTO, "block_bytes is 4096, and the images of pool 0", p.demote_to = 0;
		  m.block_bytes = 4096);
	VRAM_SAYS(EPROTO, "fingerprint is not that of pool 0", p.demote_to = 0;
		  m.fingerprint[9] = 1);
	p = pool_with(GPC_VRAM, BLOCKS, 0);
	p.demote_to = 0;
	m = memory_of(BLOCK);
	memset(m.fingerprint, 0x6c, sizeof(m.fingerprint));
	is_int(gpc_pool_make(c, &p, &m, -1), 1, "images of the same size and fingerprint");
	p = pool_with(GPC_VRAM, BLOCKS, 1);
	p.demote_to = 0;
	is_int(gpc_pool_make(c, &p, NULL, -1), 2,
	       "a pool without memory brings its bytes by itself");
	ok(!p.memory && !p.block_bytes, "and has no images");
	refused(gpc_pool_memory_get(
			c, 2, &(struct gpc_pool_memory){ .size = sizeof(struct gpc_pool_memory) },
			NULL, 0),
		ENOENT, "none to be told of");
	refused(gpc_pool_memory_get(c, 2, NULL, NULL, 0), ENOENT, "and no runs");
	refused(gpc_pool_memory_get(c, 0, NULL, NULL, 1), EINVAL, "no room");
	clean(c, "two tiers");
	cache_end(c);
}

/* What the library would never send: the writer checks it all again. */
static int sends(gpc *c, struct shm_pool rq)
{
	bool pending;
	int n;

	pthread_mutex_lock(&c->pool_lock);
	n = pool_send(c, &rq, NEVER, &pending);
	pthread_mutex_unlock(&c->pool_lock);
	return n;
}

static void test_writer_checks(void)
{
	gpc *c = new_cache();
	struct gpc_pool p = pool_with(GPC_RAM, BLOCKS, 0);
	struct gpc_memory m = memory_of(BLOCK);
	struct shm_pool good = { .range = 4,
				 .blocks = 4,
				 .kind = GPC_VRAM,
				 .demote_to = -1,
				 .flags = GPC_POOL_OWNED,
				 .memory = 4711,
				 .block_bytes = BLOCK },
			bad;

	memset(good.fingerprint, 0x6c, sizeof(good.fingerprint));
	must(gpc_pool_make(c, &p, &m, -1));
	bad = good;
	bad.memory = p.memory;
	refused(sends(c, bad), EEXIST, "another pool's memory");
	bad = good;
	bad.block_bytes = 0;
	refused(sends(c, bad), EINVAL, "images of no bytes");
	bad = good;
	bad.memory = 0;
	refused(sends(c, bad), EINVAL, "images without memory");
	bad = good;
	bad.flags = 0;
	refused(sends(c, bad), EINVAL, "VRAM of nobody");
	bad = good;
	bad.backing_size = 1;
	refused(sends(c, bad), EINVAL, "words beside memory");
	bad = good;
	bad.demote_to = 0;
	bad.block_bytes = 64;
	refused(sends(c, bad), EPROTO, "images of another size below");
	bad = good;
	bad.demote_to = 0;
	bad.fingerprint[31] = 0;
	refused(sends(c, bad), EPROTO, "images of another meaning below");
	is_int(info_of(c).pools, 1, "none was added");
	bad = good;
	bad.demote_to = 0;
	is_int(sends(c, bad), 1, "what fits is");
	is_int(gpc_check(c, NULL, NULL), 1, "a pool whose file never was is found");
	is_int(gpc_pool_clear(c, 1, 0, GPC_REMOVE, 2000), 0, "it goes");
	ok(memory_files_come_to(c, 1), "and the other one's file stays");
	clean(c, "forged requests");
	cache_end(c);
}

/* ---- the owner dies ---- */

static pid_t maker(int pipe_fd, uint32_t kind)
{
	pid_t pid = fork();
	struct gpc_pool p = pool_with(kind, BLOCKS, 0);
	struct gpc_memory m = memory_of(BLOCK);
	gpc *c;

	if (pid)
		return pid;
	c = cache_attach(0, 0);
	must(gpc_pool_make(c, &p, &m, -1));
	if (write(pipe_fd, &p.memory, sizeof(p.memory)) != sizeof(p.memory))
		_exit(1);
	for (;;)
		pause();
}

static uint64_t made_by(gpc *c, uint32_t kind, pid_t *ret)
{
	uint64_t memory = 0;
	int ends[2];

	if (pipe(ends))
		bail("no pipe");
	*ret = maker(ends[1], kind);
	cache_thread = false;
	serve_begin(c);
	if (read(ends[0], &memory, sizeof(memory)) != sizeof(memory))
		bail("nothing was made");
	serve_end();
	close(ends[0]);
	close(ends[1]);
	return memory;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0)
		;
}

static void test_owner(void)
{
	gpc *c = new_cache();
	uint64_t vram, ram;
	struct memory use;
	pid_t pid;
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, 1);
	struct gpc_memory m = memory_of(BLOCK);

	ram = made_by(c, GPC_RAM, &pid);
	end(pid);
	ok(memory_file_exists(ram), "RAM outlives its maker");
	vram = made_by(c, GPC_VRAM, &pid);
	ok(memory_files() == 2 && memory_file_exists(vram), "VRAM of another process");
	must(memory_open(&c->seg, vram, true, &use));
	end(pid);
	refused(gpc_pool_make(c, &p, &m, 0), EAGAIN, "no VRAM while the dead one's is mapped");
	refused(gpc_pool_make(c, &p, &m, 60), ETIMEDOUT, "nor for a while");
	is_int(memory_files(), 2, "its file is there as long");
	memory_close(&use);
	is_int(gpc_pool_make(c, &p, &m, 5000) >= 0, 1, "then it is made");
	ok(memory_files_come_to(c, 2) && !memory_file_exists(vram) && memory_file_exists(ram),
	   "and the dead one's file goes");
	clean(c, "the owner has died");
	cache_end(c);
}

/* ---- left behind ---- */

/* Who unmaps last removes it, with a writer or without. */
static void test_last_user(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	struct gpc_pool p = pool_with(GPC_VRAM, 4, 0);
	struct gpc_memory m = memory_of(64);
	uint64_t bytes;
	void *base;
	int i;

	must(gpc_pool_make(c, &p, &m, -1));
	must(gpc_pool_map(d, 0, 0, &base, &bytes));
	must(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 2000));
	for (i = 0; i < 100; i++)
		must(gpc_writer_serve(c, 1));
	is_int(memory_files(), 1, "somebody has it mapped");
	must(gpc_writer_drop(c));
	must(gpc_pool_unmap(d, 0));
	ok(memory_files_come_to(NULL, 0), "and removes it in the end");
	must(gpc_close(d));
	cache_end(c);
}

/* ---- gpc_check ---- */

static void serve(gpc *c)
{
	int i;

	for (i = 0; i < 50; i++)
		must(gpc_writer_serve(c, 1));
}

static void note(void *arg, const char *line)
{
	snprintf(arg, 200, "%s", line);
}

static void test_check(void)
{
	gpc *c = new_cache();
	struct gpc_pool p = pool_with(GPC_RAM, 4, 0);
	struct gpc_memory m = memory_of(64);
	char line[200] = "", path[320];

	must(gpc_pool_make(c, &p, &m, -1));
	snprintf(path, sizeof(path), "%s", memory_get(c, 0).file);
	must(unlink(path));
	is_int(gpc_check(c, note, line), 1, "a pool whose file is missing");
	ok(strstr(line, "pool 0: its memory") != NULL, "is told of");
	diag("%s", line);
	refused(gpc_pool_memory_get(
			c, 0, &(struct gpc_pool_memory){ .size = sizeof(struct gpc_pool_memory) },
			NULL, 0),
		ESTALE, "it cannot be described");
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	serve(c);
	is_int(info_of(c).pools, 0, "the next writer ends it");
	clean(c, "it has ended");
	cache_end(c);
}

static int body(void)
{
	cache_both(test_ram);
	cache_both(test_layered);
	cache_thread = false;
	test_fields();
	test_demote();
	test_writer_checks();
	test_owner();
	test_last_user();
	test_check();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
