/* SPDX-License-Identifier: Apache-2.0 */
/* Guarantee F: whatever stands in the files of a cache, looking at it gives an error or
 * nonsense, never a signal.  Files that are cut, empty, zero, noise or gone; a thousand
 * mutations of a cache with content; files that change and shrink while a tool looks at
 * them.  The library looks in all of its ways, gpc-inspect at some.
 *
 *   GPC_T_SEED=n    other mutations */
#include "t/lib/crew.h"

#include "peer/handle.h"

#include <errno.h>
#include <fcntl.h>

#define MUTATIONS 1000
#define BLOCKS    48
#define PEERS     2
#define LIMIT     20             /* seconds for one look: it must not go on for ever */
#define TOOLS     50             /* mutations between two that gpc-inspect sees */

enum { N_DONE, N_REFUSED, N_ATTACHED, N_TAKEN, N_FOUND, N_LINES, N_TOOLS, N_GOOD };

static const char *const suffix[3] = { "idx", "ctl", "lock" };
static struct { uint8_t *bytes; size_t size; } file[3];
static struct layout at;
static uint64_t seed = 1, random_state;

static uint32_t random_below(uint32_t n)
{
	return crew_random(&random_state, n);
}

/* ---- a cache with something of everything ---- */

static void fill(gpc *c)
{
	gpc_key k[20];
	gpc_block b[20];
	struct gpc_move m[4];
	int i;

	for (i = 0; i < 20; i++) {
		k[i] = crew_key((uint64_t)i + 1);
		must_be(gpc_reserve(c, 0, 1, &b[i], NULL, 0, -1), 1);
	}
	k[0] = crew_no_key;
	must_be(gpc_publish(c, k, k + 1, b, 19,
			    GPC_OPTIONS(gpc_publish_options, .tag = 7), 0, -1), 19);
	must_be(gpc_release(c, b, 12), 0);
	must_be(gpc_evict(c, 0, 0, b, 0, -1), 0);
	must(gpc_demote(c, 0, 1, (gpc_block[1]){ b[18] }, 1, m, 0, -1) == 1, "demote: %s",
	     gpc_last_error());
	must_be(gpc_commit(c, m, 1, NULL, 0, -1), 1);
	must_be(gpc_reserve(c, 0, 3, b, NULL, 0, -1), 3);
	must(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
}

/* It dies with all it has, so that seats, rings and sections have content, too. */
static int maker(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .ram_blocks = 16, .max_pools = 4,
				  .max_peers = PEERS, .devices = "host", .tick_us = 1 };
	gpc *c = crew_create(cfg, 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	fill(c);
	kill(getpid(), SIGKILL);
	return me;
}

static void read_file(int i)
{
	int fd = open(scratch_file(CREW_NAME, suffix[i]), O_RDONLY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !(file[i].bytes = malloc((size_t)st.st_size)) ||
	    pread(fd, file[i].bytes, (size_t)st.st_size, 0) != st.st_size)
		bail("cannot read the cache that is to be mutated");
	file[i].size = (size_t)st.st_size;
	close(fd);
}

static void keep_copy(void)
{
	struct shm_header h;
	int i;

	for (i = 0; i < 3; i++)
		read_file(i);
	memcpy(&h, file[0].bytes, sizeof(h));
	geometry_layout(&h.geometry, &at);
}

/* ---- mutations ---- */

struct region { int file; uint64_t at, bytes; };

static struct region choose_region(void)
{
	const struct region all[] = {
		{ 0, 0, sizeof(struct shm_header) },
		{ 1, 0, sizeof(struct shm_header) },
		{ 2, 0, 16 },
		{ 0, at.state, sizeof(struct shm_state) },
		{ 0, at.pool, 4 * sizeof(struct shm_pool) },
		{ 0, at.pool, 64 },
		{ 0, at.pool + sizeof(struct shm_pool), 64 },
		{ 0, at.mirror, sizeof(struct shm_mirror) },
		{ 0, at.table, at.record - at.table },
		{ 0, at.record, at.change - at.record },
		{ 0, at.record, 20 * sizeof(struct shm_record) },
		{ 0, at.change, 40 * sizeof(struct shm_change) },
		{ 1, at.shared, sizeof(struct shm_shared) },
		{ 1, at.seat, PEERS * sizeof(struct shm_seat) },
		{ 1, at.seat, 1024 },
		{ 1, at.section, PEERS * SHM_SECTIONS * sizeof(struct shm_section) },
		{ 1, at.ring, 40 * sizeof(struct shm_command) },
		{ 1, at.ref, at.stamp - at.ref },
		{ 1, at.stamp, 400 },
	};

	return all[random_below(ARRAY_SIZE(all))];
}

static uint64_t nasty(void)
{
	static const uint64_t value[] = { 0, 1, 2, 3, 7, 0x7f, 0xff, 0x8000, 0xffff,
					  1u << 24, INT32_MAX, 1ull << 31, UINT32_MAX,
					  1ull << 32,
					  INT64_MAX, 1ull << 63, UINT64_MAX };

	return random_below(3) ? value[random_below(ARRAY_SIZE(value))] :
				 crew_mix(random_state);
}

/* Some words, or all of the region. */
static void scribble(uint8_t *bytes, const struct region *r)
{
	uint32_t i, n = 1 + random_below(6), width = 1u << random_below(4);
	uint64_t value, where;

	if (!random_below(6)) {
		for (where = 0; where < r->bytes; where++)
			bytes[r->at + where] = (uint8_t)random_below(256);
		return;
	}
	for (i = 0; i < n; i++) {
		where = r->at + random_below((uint32_t)(r->bytes / width)) * width;
		value = random_below(4) ? nasty() : 1ull << random_below(64);
		memcpy(bytes + where, &value, width);
	}
}

/* A header that looks whole: both have the new bytes, and true checksums. */
static void seal(uint8_t *index, uint8_t *control)
{
	struct shm_header h;

	memcpy(&h, index, sizeof(h));
	h.checksum = key_checksum(&h, offsetof(struct shm_header, checksum));
	memcpy(index, &h, sizeof(h));
	h.magic = SHM_MAGIC_CONTROL;
	h.bytes = file[1].size;
	memset(h.secret, 0, sizeof(h.secret));
	h.checksum = key_checksum(&h, offsetof(struct shm_header, checksum));
	memcpy(control, &h, sizeof(h));
}

static void change_sizes(void)
{
	int i = (int)random_below(3);
	int fd = open(scratch_file(CREW_NAME, suffix[i]), O_RDWR);
	off_t half = (off_t)(random_below((uint32_t)file[i].size));

	switch (random_below(4)) {
	case 0:
		must(!ftruncate(fd, half), "cannot shrink");
		break;
	case 1:
		must(!ftruncate(fd, (off_t)file[i].size + half), "cannot grow");
		break;
	default:
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, half & ~4095,
			  8192);
	}
	close(fd);
}

/* The files as they were, or with another index. */
static void put_back(const uint8_t *index, const uint8_t *control)
{
	const uint8_t *bytes[3] = { index, control, file[2].bytes };
	int i, fd;

	for (i = 0; i < 3; i++) {
		fd = open(scratch_file(CREW_NAME, suffix[i]), O_RDWR | O_CREAT, 0600);
		must(fd >= 0 && !ftruncate(fd, (off_t)file[i].size) &&
		     !fallocate(fd, 0, 0, (off_t)file[i].size) &&
		     pwrite(fd, bytes[i], file[i].size, 0) == (ssize_t)file[i].size,
		     "cannot write the files");
		close(fd);
	}
}

/* Write all files anew, changed. */
static void mutate(uint8_t *bytes[3])
{
	struct region r;
	int i, n = 1 + (int)random_below(3);

	for (i = 0; i < 3; i++)
		memcpy(bytes[i], file[i].bytes, file[i].size);
	while (n--) {
		r = choose_region();
		scribble(bytes[r.file], &r);
	}
	if (random_below(2))
		seal(bytes[0], bytes[1]);
	put_back(bytes[0], bytes[1]);
	scratch_patch(scratch_file(CREW_NAME, "lock"), 0, bytes[2], NULL, 16);
	if (!random_below(12))
		change_sizes();
}

/* ---- looking ---- */

/* An error has a sentence of its own. */
#define said(call) (((char *)gpc_last_error())[0] = 0, has_said((call), #call))

static int has_said(int got, const char *call)
{
	must(got >= 0 || *gpc_last_error(), "%s: %d, without a word", call, got);
	return got;
}

static void count_line(void *arg, const char *line)
{
	must(strlen(line) < 300, "a long line");
	crew->count[N_LINES]++;
}

static void look_up(gpc *c)
{
	gpc_key k[24];
	gpc_block b[24];
	uint32_t i, len, start[2] = { 0, 23 };

	for (i = 0; i < 24; i++)
		k[i] = crew_key(i + 1);
	for (i = 0; i < 24; i++)
		crew->count[N_FOUND] += gpc_lookup(c, 0, &k[i], 1, b, GPC_QUIET) > 0;
	gpc_lookup(c, 0, k, 24, b, 0);
	gpc_lookup(c, 0xffffffff, k, 24, b, 0);
	gpc_match(c, 0, k + 1, start, 1, &len, b, 0);
}

static void look_around(gpc *c, bool check)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_mirror mirror = { .size = sizeof(mirror) };
	struct gpc_pool pool = { .size = sizeof(pool) };
	struct gpc_entry entry[8];
	struct gpc_event change[8];
	uint64_t cursor = 0;
	int i;

	said(gpc_info_get(c, &info));
	said(gpc_stats_get(c, -1, &st));
	said(gpc_stats_get(c, (int)random_below(PEERS + 1), &st));
	for (i = 0; i < 5; i++) {
		said(gpc_pool_get(c, i, &pool));
		said(gpc_pool_available(c, i));
		said(gpc_mirror_get(c, i, &mirror));
	}
	for (i = 0; said(gpc_walk(c, &cursor, entry, 8)) > 0; i++)
		must(i < 100, "a walk without end");
	for (cursor = 0, i = 0; i < 3000; i++)
		if (said(gpc_event_read(c, &cursor, change, 8)) <= 0)
			break;
	gpc_mirror_lag(c);
	if (check)
		must(said(gpc_check(c, count_line, NULL)) < 3000, "a check without end");
}

/* A peer, without a writer: what needs one times out at once. */
static void be_a_peer(gpc *c)
{
	gpc_key k[8];
	gpc_block b[8];
	gpc_dev *d;
	int i, n, section;

	for (i = 0; i < 8; i++)
		k[i] = crew_key((uint64_t)i + 1);
	n = gpc_acquire(c, 0, k + 1, 7, b, 0);
	if (n > 0)
		gpc_release(c, b, (uint32_t)n);
	for (i = 0; i < 8; i++)
		b[i] = (gpc_block)nasty();
	gpc_ref(c, k, b, 8);
	gpc_release(c, b, 8);
	section = gpc_section_enter(c);
	gpc_section_leave(c, section);
	gpc_grace_done(c, gpc_grace_start(c));
	if (gpc_dev_open(c, "host", &d) == 0) {
		section = gpc_dev_enter(d);
		if (section >= 0) {
			gpc_dev_lookup(d, 0, k, 8, b, NULL);
			gpc_dev_wait(d, NULL, 1000);
			gpc_dev_leave(d, section, NULL);
		}
		gpc_dev_close(d);
	}
}

static void look(uint32_t i)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	gpc *c;

	if (said(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c)) == 0) {
		look_up(c);
		look_around(c, true);
		gpc_close(c);
	} else {
		crew->count[N_REFUSED]++;
	}
	if (said(gpc_attach(CREW_NAME, &opt, 0, &c)) == 0) {
		crew->count[N_ATTACHED]++;
		look_up(c);
		be_a_peer(c);
		look_around(c, i % 32 == 0);     /* a check takes time on a live one */
		if (i % 4 == 0 && gpc_writer_take(c, 0, 0) == 0) {
			crew->count[N_TAKEN]++;
			gpc_writer_serve(c, 0);
			gpc_writer_drop(c);
		}
		gpc_close(c);
	}
}

/* ---- gpc-inspect ---- */

static char inspect[PATH_MAX];

/* Beside this program; behind libtool's script, which takes longer than the tool. */
static void find_tool(void)
{
	static char libs[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", libs, sizeof(libs) - 1);
	char *end;

	libs[MAX(n, 0)] = 0;
	end = strstr(libs, "/t/");
	while (end && strstr(end + 1, "/t/"))
		end = strstr(end + 1, "/t/");
	must(end, "%s is not in the folder of tests", libs);
	*end = 0;
	snprintf(inspect, sizeof(inspect), "%.4000s/tools/.libs/gpc-inspect", libs);
	if (access(inspect, X_OK))
		snprintf(inspect, sizeof(inspect), "%.4000s/tools/gpc-inspect", libs);
	strcpy(end, "/lib/.libs");
	setenv("LD_LIBRARY_PATH", libs, 1);
}

static void run_tool(const char *command)
{
	const char *output = scratch_file("tool", "out");
	int status, fd = open(output, O_RDWR | O_CREAT | O_TRUNC, 0600);
	char text[4096] = "";
	pid_t pid = fork();

	if (!pid) {
		alarm(LIMIT);
		dup2(fd, 1);
		dup2(fd, 2);
		execl(inspect, "gpc-inspect", "--dir", scratch, command,
		      strcmp(command, "list") ? CREW_NAME : NULL, NULL);
		_exit(127);
	}
	status = crew_status(pid);
	must(pread(fd, text, sizeof(text) - 1, 0) >= 0, "cannot read what it says");
	close(fd);
	must(status == 0 || status == 1 || (status == 3 && !strcmp(command, "check")),
	     "gpc-inspect %s: %d (from 256 on: signals), %.200s", command, status, text);
	must((*text || !strcmp(command, "list")) && !strstr(text, "Sanitizer") &&
	     !strstr(text, "runtime error"), "gpc-inspect %s: %.300s", command, text);
	crew->count[N_TOOLS]++;
	crew->count[N_GOOD] += status == 0;
}

static void run_tools(void)
{
	static const char *const command[] = { "list", "stat", "peers", "ls", "check" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(command); i++)
		run_tool(command[i]);
}

/* From the mutation on that the shared page names: the parent sees where it ended. */
static int onlooker(int me)
{
	uint8_t *bytes[3];
	uint64_t i;
	int j;

	for (j = 0; j < 3; j++)
		bytes[j] = malloc(file[j].size);
	while ((i = crew->count[N_DONE]) < MUTATIONS) {
		random_state = crew_mix(seed << 32 | i) | 1;
		alarm(LIMIT);
		mutate(bytes);
		look((uint32_t)i);
		if (i % TOOLS == 0)
			run_tools();
		crew->count[N_DONE]++;
	}
	for (j = 0; j < 3; j++)
		free(bytes[j]);
	return me;
}

static void test_mutations(void)
{
	int status, bad = 0;

	while (crew->count[N_DONE] < MUTATIONS && bad < 10) {
		status = crew_status(crew_fork(onlooker, 0));
		if (!status)
			break;
		bad++;
		diag("mutation %llu of seed %llu: %s %d %s",
		     (unsigned long long)crew->count[N_DONE], (unsigned long long)seed,
		     status >= 256 ? "signal" : "status", status & 255, crew->why);
		crew->count[N_DONE]++;
		crew->failed = 0;
	}
	is_int(bad, 0, "%d mutations and no signal", MUTATIONS);
	ok(crew->count[N_TOOLS] && crew->count[N_GOOD] &&
	   crew->count[N_GOOD] < crew->count[N_TOOLS], "gpc-inspect looked %llu times",
	   (unsigned long long)crew->count[N_TOOLS]);
	ok(crew->count[N_REFUSED] > 50 && crew->count[N_ATTACHED] > 50 &&
	   crew->count[N_TAKEN] && crew->count[N_FOUND] && crew->count[N_LINES],
	   "%llu refused, %llu attached to, %llu served; %llu keys found, %llu lines",
	   (unsigned long long)crew->count[N_REFUSED],
	   (unsigned long long)crew->count[N_ATTACHED],
	   (unsigned long long)crew->count[N_TAKEN],
	   (unsigned long long)crew->count[N_FOUND],
	   (unsigned long long)crew->count[N_LINES]);
}

/* ---- whole files ---- */

static const char *const damage[] = {
	"empty", "one page", "cut in half", "a byte short", "zero", "noise", "a hole",
	"gone"
};

static void damage_file(int i, uint32_t how)
{
	const char *path = scratch_file(CREW_NAME, suffix[i]);
	const off_t size = (off_t)file[i].size, length[] = {
		0, SHM_PAGE, size / 2, size - 1, size, size, 0, size };
	uint8_t *bytes = calloc(1, file[i].size);
	size_t j;

	put_back(file[0].bytes, file[1].bytes);
	must(!truncate(path, length[how]) &&
	     !truncate(path, how < 4 ? length[how] : size), "cannot cut");
	for (j = 0; how == 5 && j < file[i].size; j++)
		bytes[j] = (uint8_t)random_below(256);
	if (how == 4 || how == 5)
		scratch_patch(path, 0, bytes, NULL, file[i].size);
	if (how == 7)
		unlink(path);
	free(bytes);
}

/* me: which file */
static int whole_looker(int me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	uint32_t how;
	gpc *c;

	random_state = seed;
	for (how = 0; how < ARRAY_SIZE(damage); how++) {
		alarm(LIMIT);
		crew->count[N_DONE] = how;
		damage_file(me, how);
		look(1);
		run_tools();
		/* a lock file says less */
		must(me == 2 || said(gpc_attach(CREW_NAME, &opt, 0, &c)) < 0, "a seat");
	}
	return 0;
}

static void test_whole(void)
{
	int i, status;

	for (i = 0; i < 3; i++) {
		memset(crew, 0, sizeof(*crew));
		status = crew_status(crew_fork(whole_looker, i));
		if (!is_int(status, 0, "a file .%s that is empty, cut, zero, noise, gone",
			    suffix[i]))
			diag("%s: %s", damage[crew->count[N_DONE]], crew->why);
	}
}

/* ---- made with care: blocks that are each other's parents ---- */

static struct shm_record *record_at(uint8_t *index, uint32_t i)
{
	return (struct shm_record *)(index + at.record) + i;
}

static void make_ring_of(uint8_t *index, const uint32_t *list, uint32_t n)
{
	struct shm_record *r;
	uint32_t i;

	for (i = 0; i < n; i++) {
		r = record_at(index, list[i]);
		memcpy(r->parent, record_at(index, list[(i + 1) % n])->key,
		       sizeof(r->parent));
		r->flags &= (uint8_t)~REC_UNCHAINED;
		r->check = key_check(r->key, r->parent, r->depth, r->tag);
	}
}

static int circled(int me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	gpc_block b[BLOCKS];
	gpc *c;
	int i;

	alarm(LIMIT);
	must_be(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c), 0);
	look_up(c);
	look_around(c, true);
	gpc_close(c);
	must_be(gpc_attach(CREW_NAME, &opt, GPC_SERVE, &c), 0);
	for (i = 0; i < BLOCKS; i++)
		b[i] = GPC_BLOCK(0, i);
	must(gpc_drop(c, b, BLOCKS, NULL, 0, -1) >= 0, "drop: %s", gpc_last_error());
	must(gpc_reserve(c, 0, BLOCKS, b, NULL, 0, -1) == BLOCKS, "reserve: %s",
	     gpc_last_error());
	must_be(gpc_check(c, NULL, NULL), 0);
	gpc_close(c);
	return me;
}

static void test_circle(void)
{
	uint8_t *index = malloc(file[0].size);
	uint32_t list[3], n = 0, i;

	memset(crew, 0, sizeof(*crew));
	memcpy(index, file[0].bytes, file[0].size);
	for (i = 0; i < BLOCKS && n < 3; i++)
		if (WORD_STATE(record_at(index, i)->word) == LIVE)
			list[n++] = i;
	is_int(n, 3, "three live blocks become a circle");
	make_ring_of(index, list, n);
	put_back(index, file[1].bytes);
	is_int(crew_status(crew_fork(circled, 0)), 0, "a writer takes it, and goes on");
	if (crew->why[0])
		diag("%s", crew->why);
	free(index);
}

/* ---- a seat that says it is free, and has an open section and a head ---- */

static int seated(int me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	gpc_block b[BLOCKS];
	gpc_key none = crew_no_key, k = crew_key(77);
	gpc *c;
	int i;

	alarm(LIMIT);
	must_be(gpc_attach(CREW_NAME, &opt, 0, &c), 0);
	must_be(c->peer, 1);
	look_up(c);
	must_be(gpc_writer_take(c, 0, 0), 0);
	for (i = 0; i < BLOCKS; i++)
		b[i] = GPC_BLOCK(0, i);
	must(gpc_drop(c, b, BLOCKS, NULL, 0, -1) >= 0, "drop: %s", gpc_last_error());
	must_be(gpc_reserve(c, 0, BLOCKS, b, NULL, 0, 10000), BLOCKS);
	must_be(gpc_publish(c, &none, &k, b, 1, NULL, 0, -1), 1);
	gpc_close(c);
	return me;
}

static void test_free_seat(void)
{
	uint8_t *control = malloc(file[1].size);
	struct shm_section *s;

	memset(crew, 0, sizeof(*crew));
	memcpy(control, file[1].bytes, file[1].size);
	((struct shm_seat *)(control + at.seat))[1].head = 9;
	s = (struct shm_section *)(control + at.section) + SHM_SECTIONS;
	s->epoch = s->ticket = 1;
	put_back(file[0].bytes, control);
	is_int(crew_status(crew_fork(seated, 0)), 0,
	       "a free seat with a section and a head holds nobody up");
	if (crew->why[0])
		diag("%s", crew->why);
	free(control);
}

/* ---- records between the pools: reserved for a move from nowhere, and live ---- */

#define BETWEEN 8

static int between(int me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	struct gpc_pool p = { .size = sizeof(p), .kind = GPC_VRAM, .blocks = BETWEEN,
			      .demote_to = -1 };
	gpc_block b[BETWEEN];
	gpc *c;

	alarm(LIMIT);
	must_be(gpc_attach(CREW_NAME, &opt, 0, &c), 0);
	must_be(gpc_writer_take(c, 0, 0), 0);
	must_be(gpc_pool_clear(c, 1, 0, GPC_REMOVE, 10000), 0);
	must_be(gpc_pool_add(c, &p, -1), 1);
	must_be(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 10000), 0);
	must_be(gpc_pool_add(c, &p, -1), 0);
	must_be(gpc_reserve(c, 0, BETWEEN, b, NULL, 0, 10000), BETWEEN);
	must_be(gpc_reserve(c, 1, BETWEEN, b, NULL, 0, 10000), BETWEEN);
	must_be(gpc_check(c, NULL, NULL), 0);
	gpc_close(c);
	return me;
}

static void test_between(void)
{
	static const uint32_t state[] = { RESERVED, LIVE, DYING, RESERVED };
	uint8_t *index = malloc(file[0].size);
	struct shm_pool *ram;
	struct shm_record *r;
	uint32_t i, first;

	memset(crew, 0, sizeof(*crew));
	memcpy(index, file[0].bytes, file[0].size);
	ram = (struct shm_pool *)(index + at.pool) + 1;
	first = (uint32_t)(ram->range >> 32);
	/* what was the beginning of the RAM pool is between the two now */
	ram->range += ((uint64_t)BETWEEN << 32) - BETWEEN;
	for (i = 0; i < BETWEEN; i++) {
		r = record_at(index, first + i);
		r->word = WORD(state[i % 4], 5);
		r->owner = 0;
		r->flags = 0;
		r->source = i % 4 ? 2 : 0xfffffff0;
	}
	put_back(index, file[1].bytes);
	is_int(crew_status(crew_fork(between, 0)), 0, "records between the pools are nobody's");
	if (crew->why[0])
		diag("%s", crew->why);
	free(index);
}

/* ---- a header that speaks ---- */

static void test_words(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	uint8_t *index = malloc(file[0].size), *control = malloc(file[1].size);
	struct shm_header *h = (struct shm_header *)index;
	const unsigned char *p;
	gpc *c;

	memcpy(index, file[0].bytes, file[0].size);
	memcpy(control, file[1].bytes, file[1].size);
	memcpy(h->hash, "\x9b\x1b[2Jsiphash\x80\n\r\xfc", 16);
	seal(index, control);
	put_back(index, control);
	is_int(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c), -EPROTO, "another hash");
	for (p = (const unsigned char *)gpc_last_error(); *p >= ' ' && *p < 0x7f; p++)
		;
	ok(!*p, "whose name comes as text");
	free(index);
	free(control);
}

/* A page that speaks of the largest cache there can be: its copy would have 50 GB. */
static void test_large(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	struct gpc_config cfg = { .max_blocks = 1u << 28, .max_peers = PEERS };
	uint8_t *index = malloc(file[0].size), *control = malloc(file[1].size);
	struct shm_header *h = (struct shm_header *)index;
	struct layout large;
	gpc *c;

	memcpy(index, file[0].bytes, file[0].size);
	memcpy(control, file[1].bytes, file[1].size);
	is_int(geometry_from_config(&cfg, &h->geometry), 0, "a geometry");
	geometry_layout(&h->geometry, &large);
	h->bytes = large.index_bytes;
	seal(index, control);
	put_back(index, control);
	is_int(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c), -EBADMSG,
	       "which is not there is not copied");
	must(!truncate(scratch_file(CREW_NAME, "idx"), (off_t)h->bytes), "cannot grow");
	is_int(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c), -EBADMSG, "nor when it is a hole");
	free(index);
	free(control);
}

/* ---- under a tool's eyes ---- */

enum { GATE_LOOKS, GATE_END };

static int tool(int me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	gpc *c;

	must_be(gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c), 0);
	while (crew_goes_on(GATE_END, 1)) {
		look_up(c);
		look_around(c, true);
		crew_open(GATE_LOOKS);
	}
	gpc_close(c);
	return me;
}

static void let_it_look(void)
{
	crew_wait(GATE_LOOKS, load_acquire(&crew->gate[GATE_LOOKS]) + 2);
}

static void test_changing(void)
{
	uint8_t *bytes[3];
	pid_t pid;
	int i, j, fd;

	memset(crew, 0, sizeof(*crew));
	for (i = 0; i < 3; i++)
		bytes[i] = malloc(file[i].size);
	random_state = seed;
	put_back(file[0].bytes, file[1].bytes);
	pid = crew_fork(tool, 0);
	let_it_look();
	for (i = 0; i < 60; i++) {
		mutate(bytes);
		let_it_look();
	}
	for (j = 0; j < 3; j++) {
		fd = open(scratch_file(CREW_NAME, suffix[j]), O_RDWR);
		for (i = 5; i >= 0; i--) {
			if (ftruncate(fd, (off_t)(file[j].size * (size_t)i / 6)))
				bail("cannot shrink");
			let_it_look();
		}
		close(fd);
		unlink(scratch_file(CREW_NAME, suffix[j]));
		let_it_look();
	}
	crew_open(GATE_END);
	crew_join(pid, "a tool, under whose eyes files changed, shrank, were removed,");
	for (i = 0; i < 3; i++)
		free(bytes[i]);
}

static int body(void)
{
	const char *s = getenv("GPC_T_SEED");

	seed = s ? strtoull(s, NULL, 10) : seed;
	diag("GPC_T_SEED=%llu", (unsigned long long)seed);
	crew_begin();
	is_int(crew_status(crew_fork(maker, 0)), 256 + SIGKILL, "a cache, left as it is");
	keep_copy();
	find_tool();
	test_whole();
	memset(crew, 0, sizeof(*crew));
	test_mutations();
	test_circle();
	test_free_seat();
	test_between();
	test_words();
	test_large();
	test_changing();
	for (int i = 0; i < 3; i++)
		free(file[i].bytes);
	return done_testing();
}

int main(void)
{
	scratch_make("t390");
	return tap_guard(60, body, scratch_remove);
}
