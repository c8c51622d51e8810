/* SPDX-License-Identifier: Apache-2.0 */
/* bench-disk - a disk file beside fio or plain reads and writes, and a scan of many headers.
 *
 *   bench-disk [--file FILE] [--image-bytes N] [--bytes N] [--threads N] [--seconds N] [--rounds N]
 *   [--plain] bench-disk --scan SLOTS [--file FILE]
 *
 * Each round writes, or reads, random slots for some seconds by the threads of the disk, checksums
 * on, and then has fio do the same: the same file and part of it, the same size, as many threads of
 * pread or pwrite (psync), O_DIRECT.  The ratio is of the two in one round; the median of the
 * rounds counts.  FILE is made anew and removed.
 *
 * --plain: in place of fio threads of this program, as many, which pread or pwrite random slots of
 * that file with O_DIRECT and nothing else: no header, no checksum, no queue.
 *
 * --scan writes so many headers, has the kernel forget them where it may, and times a scan. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "index/base/crc.h"
#include "tiers/disk/disk.h"
#include "tiers/disk/format.h"
#include "tiers/disk/state.h"

#define MOST_DEPTH 256u

static const char *path = "bench-disk.blocks";
static uint64_t image_bytes = 2 << 20, file_bytes = 1ull << 30, scan_slots;
static uint32_t threads = 8, seconds = 2, rounds = 5, nslots;
static bool beside_plain;
static struct disk *d;

static void die(const char *what)
{
	fprintf(stderr, "bench-disk: %s: %s\n", what, gpc_last_error());
	unlink(path);
	exit(1);
}

static gpc_key key_of(uint64_t n)
{
	return (gpc_key){ { n * 0x9e3779b97f4a7c15u + 1, n + 1 } };
}

/* ---- as many operations as threads, and as many waiting ---- */

static struct lane {
	struct disk_op op;
	struct iovec iov;
	uint64_t random, done;
} lane[MOST_DEPTH];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static uint32_t running;
static uint64_t stop_ns;
static bool in_order;
static uint64_t next_slot;

static void begin(struct lane *l)
{
	uint64_t per = nslots / (threads + 1), at = (uint64_t)(l - lane) * per;

	l->random = l->random * 6364136223846793005u + 1442695040888963407u;
	l->op.what =
		(struct disk_slot){ .slot = in_order ? next_slot : at + (l->random >> 33) % per };
	l->op.what.key = key_of(l->op.what.slot);
	if (disk_submit(d, &l->op))
		die("submit");
}

static void end(struct disk_op *op)
{
	struct lane *l = op->arg;

	if (op->result) {
		errno = -op->result;
		perror("bench-disk: an operation");
		exit(1);
	}
	l->done++;
	if (!in_order && clock_ns() < stop_ns) {
		begin(l);
		return;
	}
	pthread_mutex_lock(&lock);
	running--;
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&lock);
}

static void wait_for(uint32_t most)
{
	pthread_mutex_lock(&lock);
	while (running > most)
		pthread_cond_wait(&cond, &lock);
	pthread_mutex_unlock(&lock);
}

/* Microseconds. */
static double used(int who)
{
	struct rusage u;

	getrusage(who, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double run_gpc(enum disk_kind kind)
{
	uint64_t start = clock_ns(), done = 0;
	double cpu = used(RUSAGE_SELF);
	uint32_t i;

	stop_ns = start + seconds * 1000000000ull;
	running = threads + 1;
	for (i = 0; i <= threads; i++) {
		lane[i].op.kind = kind;
		lane[i].done = 0;
		begin(&lane[i]);
	}
	wait_for(0);
	for (i = 0; i <= threads; i++)
		done += lane[i].done;
	printf("  %.1f us of processors each, ", (used(RUSAGE_SELF) - cpu) / (double)done);
	return (double)(done * image_bytes) * 1000 / (double)(clock_ns() - start);
}

/* Every slot once, so that all of them have their block. */
static void fill(void)
{
	in_order = true;
	lane[0].op.kind = DISK_WRITE;
	for (next_slot = 0; next_slot < nslots; next_slot++) {
		running = 1;
		begin(&lane[0]);
		wait_for(0);
	}
	in_order = false;
}

/* ---- fio ---- */

static double run_fio(bool write)
{
	char command[1000], line[4096], *at;
	double bytes = 0, cpu = used(RUSAGE_CHILDREN);
	FILE *f;

	snprintf(
		command, sizeof(command),
		"fio --name=x --filename=%s --offset=%llu --size=%llu --bs=%llu --rw=rand%s --numjobs=%u --thread "
		"--direct=1 --ioengine=psync --time_based --runtime=%u --norandommap --group_reporting "
		"--allow_file_create=0 --fallocate=none --output-format=json",
		path, (unsigned long long)disk_image_at(d, 0),
		(unsigned long long)(nslots * d->super.slot_bytes), (unsigned long long)image_bytes,
		write ? "write" : "read", threads, seconds);
	f = popen(command, "r");
	while (f && fgets(line, sizeof(line), f)) {
		at = strstr(line, "\"bw_bytes\" : ");
		if (at && strtod(at + 13, NULL) > bytes)
			bytes = strtod(at + 13, NULL);
	}
	if (!f || pclose(f) || bytes <= 0) {
		fprintf(stderr, "bench-disk: fio did not run: %s\n", command);
		unlink(path);
		exit(1);
	}
	printf("fio %.1f us, ",
	       (used(RUSAGE_CHILDREN) - cpu) * (double)image_bytes / (bytes * seconds));
	return bytes / 1e6;
}

/* ---- threads that do nothing else ---- */

static struct plain {
	pthread_t thread;
	struct lane *lane;
	int fd;
	bool write;
	uint64_t done;
	int err;
} plain[MOST_DEPTH];

static void *plain_run(void *arg)
{
	struct plain *p = arg;
	uint64_t random = (uint64_t)(p->lane - lane) + 77;
	const struct iovec *iov = &p->lane->iov;
	ssize_t got;
	off_t at;

	while (clock_ns() < stop_ns && !p->err) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		at = (off_t)disk_image_at(d, (random >> 33) % nslots);
		got = p->write ? pwritev(p->fd, iov, 1, at) : preadv(p->fd, iov, 1, at);
		p->err = got == (ssize_t)iov->iov_len ? 0 : got < 0 ? errno : EIO;
		p->done += !p->err;
	}
	return NULL;
}

static double run_plain(bool write)
{
	int fd = open(path, O_RDWR | (d->direct ? O_DIRECT : 0));
	uint64_t start = clock_ns(), done = 0;
	double cpu = used(RUSAGE_SELF);
	uint32_t i;

	if (fd < 0)
		die("open");
	stop_ns = start + seconds * 1000000000ull;
	for (i = 0; i < threads; i++) {
		plain[i] = (struct plain){ .lane = &lane[i], .fd = fd, .write = write };
		if (pthread_create(&plain[i].thread, NULL, plain_run, &plain[i]))
			die("a thread");
	}
	for (i = 0; i < threads; i++) {
		pthread_join(plain[i].thread, NULL);
		done += plain[i].done;
		if (plain[i].err) {
			fprintf(stderr, "bench-disk: %s\n", strerror(plain[i].err));
			unlink(path);
			exit(1);
		}
	}
	close(fd);
	printf("plain %.1f us, ", (used(RUSAGE_SELF) - cpu) / (double)(done ? done : 1));
	return (double)(done * image_bytes) * 1000 / (double)(clock_ns() - start);
}

static double run_other(bool write)
{
	double rate = beside_plain ? run_plain(write) : run_fio(write);

	if (write)
		fill(); /* it has written over the blocks */
	return rate;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void beside_other(bool write, double mark)
{
	const char *who = beside_plain ? "plain" : "fio", *what = write ? "write" : "read";
	double ratio[100], ours, other;
	uint32_t i;

	for (i = 0; i < rounds; i++) {
		if (i & 1) { /* who goes second may find the disk warmer, or throttled */
			other = run_other(write);
			ours = run_gpc(write ? DISK_WRITE : DISK_READ);
		} else {
			ours = run_gpc(write ? DISK_WRITE : DISK_READ);
			other = run_other(write);
		}
		ratio[i] = ours / other;
		printf("%-5s %6llu KiB: %7.0f MB/s, %s %7.0f MB/s: %.2f\n", what,
		       (unsigned long long)image_bytes >> 10, ours, who, other, ratio[i]);
		fflush(stdout);
	}
	qsort(ratio, rounds, sizeof(*ratio), by_size);
	printf("%-5s %6llu KiB, %u threads: %.2f of %s rate (%.2f to %.2f); must be %.2f: %s\n",
	       what, (unsigned long long)image_bytes >> 10, threads, ratio[rounds / 2],
	       beside_plain ? "the plain" : "fio's", ratio[0], ratio[rounds - 1], mark,
	       ratio[rounds / 2] >= mark ? "met" : "missed");
}

static void bench_rates(void)
{
	struct disk_options opt = { .flags = DISK_CREATE,
				    .image_bytes = image_bytes,
				    .threads = threads };
	double mark = image_bytes >= 1 << 20 ? 0.85 : 0.75;
	struct disk_info info;
	uint32_t i;

	nslots = (uint32_t)(file_bytes / image_bytes);
	/* one group: images follow each other */
	nslots = nslots > DISK_GROUP ? DISK_GROUP : nslots;
	opt.slots = nslots;
	unlink(path);
	if (disk_open(path, &opt, &d))
		die(path);
	disk_info(d, &info);
	printf("%u slots, O_DIRECT: %s\n", nslots, info.direct ? "yes" : "no");
	for (i = 0; i <= threads; i++) {
		void *at;

		if (posix_memalign(&at, 4096, image_bytes))
			die("memory");
		memset(at, (int)i + 1, image_bytes);
		lane[i].iov = (struct iovec){ at, image_bytes };
		lane[i].random = i + 1;
		lane[i].op = (struct disk_op){
			.iov = &lane[i].iov, .niov = 1, .done = end, .arg = &lane[i]
		};
	}
	fill();
	beside_other(true, mark);
	beside_other(false, mark);
	disk_close(d);
	unlink(path);
}

/* ---- scan ---- */

/* Headers as disk_write() stores them, chains of 64 children before parents. */
static void store_headers(void)
{
	struct disk_header h = { .magic = DISK_HEADER_MAGIC, .epoch = d->epoch };
	uint64_t i, n;

	memcpy(h.file, d->super.file, 16);
	for (i = 0; i < scan_slots; i++) {
		n = scan_slots - 1 - i;
		h.slot = i;
		h.serial = i + 1;
		memcpy(h.key, key_of(n).w, 16);
		memcpy(h.parent, n % 64 ? key_of(n - 1).w : key_of(0).w, 16);
		h.depth = (uint32_t)(n % 64);
		h.checksum = crc32c(0, &h, offsetof(struct disk_header, checksum));
		if (io_write(d->fd, &h, sizeof(h), disk_header_at(d, i)))
			die("a header");
	}
}

static void bench_scan(void)
{
	struct disk_options opt = { .flags = DISK_CREATE, .threads = 1, .slots = scan_slots };
	struct disk_slot *s;
	uint64_t n, start;
	uint32_t i;

	opt.image_bytes = image_bytes = 4096;
	unlink(path);
	if (disk_open(path, &opt, &d))
		die(path);
	store_headers();
	for (i = 0; i < rounds; i++) {
		disk_close(d); /* syncs */
		d = NULL;
		start = clock_ns();
		if (disk_open(path, &opt, &d))
			die(path);
		printf("open %.1f ms", (double)(clock_ns() - start) / 1e6);
		if (i < rounds / 2)
			posix_fadvise(d->fd, 0, 0, POSIX_FADV_DONTNEED);
		start = clock_ns();
		if (disk_scan(d, &s, &n))
			die("scan");
		printf(", scan of %llu headers%s: %.2f s, %llu blocks\n",
		       (unsigned long long)scan_slots, i < rounds / 2 ? " from the disk" : "",
		       (double)(clock_ns() - start) / 1e9, (unsigned long long)n);
		free(s);
	}
	disk_close(d);
	unlink(path);
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "file", 1, NULL, 'f' },    { "image-bytes", 1, NULL, 'i' },
		{ "bytes", 1, NULL, 'b' },   { "threads", 1, NULL, 't' },
		{ "seconds", 1, NULL, 's' }, { "rounds", 1, NULL, 'r' },
		{ "scan", 1, NULL, 'S' },    { "plain", 0, NULL, 'p' },
		{ NULL, 0, NULL, 0 },
	};
	int o;

	while ((o = getopt_long(argc, argv, "", known, NULL)) != -1) {
		uint64_t n = optarg ? strtoull(optarg, NULL, 0) : 0;

		if (o == 'f')
			path = optarg;
		else if (o == 'i' && n)
			image_bytes = n;
		else if (o == 'b' && n)
			file_bytes = n;
		else if (o == 't' && n && n <= DISK_MOST_THREADS)
			threads = (uint32_t)n;
		else if (o == 's' && n)
			seconds = (uint32_t)n;
		else if (o == 'r' && n && n <= 100)
			rounds = (uint32_t)n;
		else if (o == 'p')
			beside_plain = true;
		else if (o == 'S' && n)
			scan_slots = n;
		else
			return fprintf(stderr, "bench-disk: see the head of bench-disk.c\n"), 2;
	}
	if (scan_slots)
		bench_scan();
	else
		bench_rates();
	return 0;
}
