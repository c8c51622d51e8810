/* SPDX-License-Identifier: Apache-2.0 */
/* Guarantee F: whatever stands in the files of a cache, looking at it gives an error or
 * nonsense, never a signal.  Files that are cut, empty, zero, noise or gone; a thousand
 * mutations of a cache with content; files that change and shrink while a tool looks at
 * them.  The library looks in all of its ways, gpc-inspect at some.
 *
 *   GPC_T_SEED=n    other mutations
 * Tests: lib/index/door/attach.c lib/index/segment/snapshot.c tools/inspect/ */
#include "t/lib/looks.h"

#define MUTATIONS 1000
#define TOOLS     50 /* mutations between two that gpc-inspect sees */

/* ---- mutations ---- */

struct region {
	int file;
	uint64_t at, bytes;
};

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
		{ 1, at.use, 200 },
	};

	return all[random_below(ARRAY_SIZE(all))];
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

static void change_sizes(void)
{
	int i = (int)random_below(3);
	int fd = open(scratch_file(CREW_NAME, suffix[i]), O_RDWR);
	off_t half = (off_t)(random_below((uint32_t)file[i].size));

	switch (random_below(4)) {
	case 0:
		need(!ftruncate(fd, half), "cannot shrink");
		break;
	case 1:
		need(!ftruncate(fd, (off_t)file[i].size + half), "cannot grow");
		break;
	default:
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, half & ~4095, 8192);
	}
	close(fd);
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
		look_around(c, i % 32 == 0); /* a check takes time on a live one */
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
	need(end, "%s is not in the folder of tests", libs);
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
	need(pread(fd, text, sizeof(text) - 1, 0) >= 0, "cannot read what it says");
	close(fd);
	need(status == 0 || status == 1 || (status == 3 && !strcmp(command, "check")),
	     "gpc-inspect %s: %d (from 256 on: signals), %.200s", command, status, text);
	need((*text || !strcmp(command, "list")) && !strstr(text, "Sanitizer") &&
		     !strstr(text, "runtime error"),
	     "gpc-inspect %s: %.300s", command, text);
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
		   crew->count[N_GOOD] < crew->count[N_TOOLS],
	   "gpc-inspect looked %llu times", (unsigned long long)crew->count[N_TOOLS]);
	ok(crew->count[N_REFUSED] > 50 && crew->count[N_ATTACHED] > 50 && crew->count[N_TAKEN] &&
		   crew->count[N_FOUND] && crew->count[N_LINES],
	   "%llu refused, %llu attached to, %llu served; %llu keys found, %llu lines",
	   (unsigned long long)crew->count[N_REFUSED], (unsigned long long)crew->count[N_ATTACHED],
	   (unsigned long long)crew->count[N_TAKEN], (unsigned long long)crew->count[N_FOUND],
	   (unsigned long long)crew->count[N_LINES]);
}

/* ---- whole files ---- */

static const char *const damage[] = { "empty", "one page", "cut in half", "a byte short",
				      "zero",  "noise",    "a hole",      "gone" };

static void damage_file(int i, uint32_t how)
{
	const char *path = scratch_file(CREW_NAME, suffix[i]);
	const off_t size = (off_t)file[i].size,
		    length[] = { 0, SHM_PAGE, size / 2, size - 1, size, size, 0, size };
	uint8_t *bytes = calloc(1, file[i].size);
	size_t j;

	put_back(file[0].bytes, file[1].bytes);
	need(!truncate(path, length[how]) && !truncate(path, how < 4 ? length[how] : size),
	     "cannot cut");
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
		need(me == 2 || said(gpc_attach(CREW_NAME, &opt, 0, &c)) < 0, "a seat");
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
	files_begin();
	find_tool();
	test_whole();
	memset(crew, 0, sizeof(*crew));
	test_mutations();
	test_changing();
	files_end();
	return done_testing();
}

int main(void)
{
	scratch_make("t390");
	return tap_guard(60, body, scratch_remove);
}
