/* SPDX-License-Identifier: Apache-2.0 */
/* Copies on a GPU by the table of bytes/device/bytes.h itself, in all forms, each compared byte by
 * byte with a naive one; and what a process has beside them: limits, pins, marks, captures, a
 * device that is lost.
 * Tests: lib/bytes/device/device.c lib/bytes/device/bytes.h lib/bytes/device/cuda_bytes.c lib/bytes/device/cuda_copy.c kernels/copy.cu
 *   lib/bytes/device/cuda_pin.c lib/bytes/device/cuda_probe.c */
#include "t/gpu/bytes.h"

#define FRAME ((size_t)4 << 20) /* bytes of a buffer in which copies are compared */

/* ---- frames: both sides of copies, and what they must be ---- */

struct frame {
	uint8_t *host, *vram, *other, *want, *got;
};

static void randomize(uint8_t *p, size_t n, uint64_t *seed)
{
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = (uint8_t)crew_random(seed, 256);
}

static struct frame new_frame(uint64_t *seed)
{
	struct frame f;

	must_cuda(cudaHostAlloc((void **)&f.host, FRAME, 0));
	must_cuda(cudaMalloc((void **)&f.vram, FRAME));
	must_cuda(cudaMalloc((void **)&f.other, FRAME));
	f.want = malloc(FRAME);
	f.got = malloc(FRAME);
	need(f.want && f.got, "no memory");
	randomize(f.host, FRAME, seed);
	return f;
}

static void free_frame(struct frame *f)
{
	free(f->want);
	free(f->got);
	must_cuda(cudaFree(f->vram));
	must_cuda(cudaFree(f->other));
	must_cuda(cudaFreeHost(f->host));
}

/* The naive copy, of addresses that are offsets. */
static void naive(uint8_t *to, const uint8_t *from, const struct copy_op *op)
{
	uint64_t s, r;

	for (s = 0; s < op->slices; s++)
		for (r = 0; r < op->rows; r++)
			memcpy(to + (uintptr_t)op->to + s * op->to_slice + r * op->to_pitch,
			       from + (uintptr_t)op->from + s * op->from_slice + r * op->from_pitch,
			       op->width);
}

/* Where two buffers differ; FRAME: nowhere. */
static size_t differ(const uint8_t *a, const uint8_t *b)
{
	size_t i;

	if (!memcmp(a, b, FRAME))
		return FRAME;
	for (i = 0; a[i] == b[i]; i++)
		;
	return i;
}

static void compare(struct frame *f, const uint8_t *to, const char *what)
{
	size_t at;

	must_cuda(cudaMemcpy(f->got, to, FRAME, cudaMemcpyDefault));
	at = differ(f->got, f->want);
	need(at == FRAME, "%s: byte %zu is 0x%02x, must be 0x%02x", what, at, f->got[at],
	     f->want[at]);
}

/* ops: offsets; `to` and `from` say whose. */
static void run_ops(struct frame *f, uint8_t *to, const uint8_t *from, const uint8_t *from_host,
		    const struct copy_op *ops, uint32_t n, const char *what)
{
	struct copy_op real[16];
	cudaStream_t stream = new_stream();
	uint32_t i, done = 99;

	memset(f->want, 0x5a, FRAME);
	must_cuda(cudaMemset(f->vram == to ? to : f->other, 0x5a, FRAME));
	if (to != f->vram && to != f->other)
		memset(to, 0x5a, FRAME);
	must_cuda(cudaDeviceSynchronize());
	for (i = 0; i < n; i++) {
		naive(f->want, from_host, &ops[i]);
		real[i] = ops[i];
		real[i].to = to + (uintptr_t)ops[i].to;
		real[i].from = from + (uintptr_t)ops[i].from;
	}
	must_be(B->check_stream(uuid(), stream), 0);
	must_be(B->copy(uuid(), real, n, stream, &done), 0);
	must_be(done, n);
	must_cuda(cudaStreamSynchronize(stream));
	compare(f, to, what);
	must_cuda(cudaStreamDestroy(stream));
}

/* ---- copies between host and device ---- */

#define AT(n) ((uint8_t *)(uintptr_t)(n))

static const struct {
	const char *what;
	uint32_t n;
	struct copy_op op[3];
} forms[] = {
	{ "one row", 1, { { AT(4096), AT(8192), 70000, 1, 0, 0, 1, 0, 0 } } },
	{ "odd bytes", 1, { { AT(3), AT(77), 1023, 1, 0, 0, 1, 0, 0 } } },
	{ "layers to an image", 1, { { AT(65536), AT(8192), 4096, 64, 4096, 49152, 1, 0, 0 } } },
	{ "an image to layers", 1, { { AT(8192), AT(65536), 4096, 64, 49152, 4096, 1, 0, 0 } } },
	{ "odd rows", 1, { { AT(1), AT(5), 333, 17, 1001, 777, 1, 0, 0 } } },
	{ "three ops",
	  3,
	  { { AT(0), AT(0), 4096, 8, 4096, 16384, 1, 0, 0 },
	    { AT(1 << 20), AT(4096), 4096, 8, 8192, 16384, 1, 0, 0 },
	    { AT(2 << 20), AT(8192), 100, 1, 0, 0, 1, 0, 0 } } },
	{ "slices of whole rows",
	  1,
	  { { AT(4096), AT(0), 1024, 5, 2048, 4096, 7, 2048 * 6, 4096 * 9 } } },
	{ "slices at no multiple of a row",
	  1,
	  { { AT(0), AT(64), 1024, 3, 2048, 4096, 5, 2048 * 4 + 512, 4096 * 4 } } },
	{ "slices closer than rows",
	  1, /* 3D copies cannot: one copy a slice */
	  { { AT(0), AT(0), 1024, 8, 65536, 1024, 7, 1024, 8192 } } },
	{ "nothing, and a row",
	  3,
	  { { AT(0), AT(0), 0, 1, 0, 0, 1, 0, 0 },
	    { AT(0), AT(0), 64, 0, 64, 64, 1, 0, 0 },
	    { AT(64), AT(64), 64, 1, 0, 0, 1, 0, 0 } } },
};

static int copies(int me)
{
	uint64_t seed = 506;
	struct frame f;
	char what[100];
	size_t i;

	uuid();
	f = new_frame(&seed);
	for (i = 0; i < ARRAY_SIZE(forms); i++) {
		snprintf(what, sizeof(what), "%s, to the device", forms[i].what);
		run_ops(&f, f.vram, f.host, f.host, forms[i].op, forms[i].n, what);
	}
	for (i = 0; i < ARRAY_SIZE(forms); i++) {
		uint8_t *source = malloc(FRAME);

		snprintf(what, sizeof(what), "%s, to the host", forms[i].what);
		randomize(source, FRAME, &seed);
		must_cuda(cudaMemcpy(f.vram, source, FRAME, cudaMemcpyDefault));
		run_ops(&f, f.host, f.vram, source, forms[i].op, forms[i].n, what);
		free(source);
	}
	free_frame(&f);
	return me;
}

/* One that the driver refuses, behind one that it takes. */
static int refused(int me)
{
	struct copy_op op[3] = { { NULL, NULL, 4096, 1, 0, 0, 1, 0, 0 },
				 { NULL, NULL, 4096, 4, 1024, 4096, 1, 0, 0 }, /* pitch < width */
				 { NULL, NULL, 4096, 1, 0, 0, 1, 0, 0 } };
	uint64_t seed = 1;
	struct frame f;
	uint32_t i, done = 99;

	uuid();
	f = new_frame(&seed);
	for (i = 0; i < 3; i++) {
		op[i].to = f.vram;
		op[i].from = f.host;
	}
	need(B->copy(uuid(), op, 3, NULL, &done) < 0, "a pitch below the width is taken");
	must_be(done, 1);
	need(strstr(gpc_last_error(), "copy 2 of 3"), "the sentence is: %s", gpc_last_error());
	must_cuda(cudaDeviceSynchronize());
	must_cuda(cudaGetLastError());
	must_be(B->copy(uuid(), op, 1, NULL, &done), 0);
	must_cuda(cudaDeviceSynchronize());
	free_frame(&f);
	return me;
}

/* ---- within the device ---- */

static void naive_pairs(uint8_t *to, const uint8_t *from, const struct copy_shape *s, uint32_t ns,
			const struct copy_pair *p, uint32_t np)
{
	uint32_t i, j;

	for (i = 0; i < ns; i++)
		for (j = 0; j < np; j++) {
			struct copy_op op = { s[i].to + p[j].to * s[i].to_slot,
					      s[i].from + p[j].from * s[i].from_slot,
					      s[i].width,
					      s[i].rows,
					      s[i].to_pitch,
					      s[i].from_pitch,
					      1,
					      0,
					      0 };

			naive(to, from, &op);
		}
}

static void run_pairs(struct frame *f, const struct copy_shape *s, uint32_t ns,
		      const struct copy_pair *p, uint32_t np, const char *what)
{
	struct copy_shape real[20];
	cudaStream_t stream = new_stream();
	uint32_t i;

	memset(f->want, 0x5a, FRAME);
	must_cuda(cudaMemset(f->other, 0x5a, FRAME));
	must_cuda(cudaDeviceSynchronize());
	naive_pairs(f->want, f->host, s, ns, p, np);
	for (i = 0; i < ns; i++) {
		real[i] = s[i];
		real[i].to = f->other + (uintptr_t)s[i].to;
		real[i].from = f->vram + (uintptr_t)s[i].from;
	}
	must_be(B->copy_pairs(uuid(), real, ns, p, np, stream), 0);
	must_cuda(cudaStreamSynchronize(stream));
	compare(f, f->other, what);
	must_cuda(cudaStreamDestroy(stream));
}

/* Every alignment of address and width, by itself. */
static void alignments(struct frame *f)
{
	static const uint32_t off[] = { 0, 1, 2, 3, 4, 8, 12, 16 };
	static const uint32_t width[] = { 1, 3, 4, 8, 12, 16, 100, 4096, 4097, 20000 };
	const struct copy_pair p[3] = { { 0, 2 }, { 1, 0 }, { 2, 1 } };
	char what[120];
	size_t i, j, k;

	for (i = 0; i < ARRAY_SIZE(off); i++)
		for (j = 0; j < ARRAY_SIZE(off); j++)
			for (k = 0; k < ARRAY_SIZE(width); k++) {
				struct copy_shape s = { AT(64 + off[i]), AT(128 + off[j]),
							262144,          524288,
							width[k],        7,
							20016,           32768 };

				snprintf(what, sizeof(what),
					 "rows of %u to an address at %u from "
					 "one at %u",
					 width[k], off[i], off[j]);
				run_pairs(f, &s, 1, p, 3, what);
			}
}

static int pairs(int me)
{
	struct copy_shape s[19];
	struct copy_pair p[1000];
	uint64_t seed = 7;
	struct frame f;
	uint32_t i;

	uuid();
	f = new_frame(&seed);
	must_cuda(cudaMemcpy(f.vram, f.host, FRAME, cudaMemcpyDefault));
	alignments(&f);
	/* more shapes and more pairs than a launch has room for */
	for (i = 0; i < 19; i++)
		s[i] = (struct copy_shape){ AT(i * 64), AT(i * 128), 4096, 3000,
					    16 + i,     2,           2048, 1024 };
	for (i = 0; i < 1000; i++)
		p[i] = (struct copy_pair){ .from = crew_random(&seed, 1000), .to = i };
	run_pairs(&f, s, 19, p, 1000, "19 shapes of 1000 pairs");
	run_pairs(&f, s, 8, p, 400, "8 shapes of 400 pairs");
	run_pairs(&f, s, 9, p, 401, "9 shapes of 401 pairs");
	run_pairs(&f, s, 1, p, 0, "no pair");
	run_pairs(&f, s, 0, p, 1, "no shape");
	free_frame(&f);
	return me;
}

/* ---- streams, pins, limits, marks ---- */

static int captures(int me)
{
	cudaStream_t taken = new_stream(), stream = new_stream();
	struct copy_limits l;
	struct copy_op op = { NULL, NULL, 4096, 1, 0, 0, 1, 0, 0 };
	uint8_t *host = pinned(4096), *vram;
	uint64_t *word;
	cudaGraph_t graph;
	uint32_t done;
	void *ram = shared_memory(4 * MIB);

	must_cuda(cudaMalloc((void **)&vram, 4096));
	op.to = vram;
	op.from = host;
	must_cuda(cudaStreamBeginCapture(taken, cudaStreamCaptureModeGlobal));
	must_be(B->check_stream(uuid(), taken), -EINVAL);
	need(strstr(gpc_last_error(), "captures"), "the sentence is: %s", gpc_last_error());
	/* whatever is done beside it, slow things first, leaves the capture alone */
	must_be(B->limits(uuid(), NULL, &l), 0);
	must_be(B->pin(ram, 2 * MIB), 0);
	word = ram;
	must_be(B->check_stream(uuid(), stream), 0);
	must_be(B->copy(uuid(), &op, 1, stream, &done), 0);
	must_be(B->mark(uuid(), word, 7, stream), 0);
	must_be(B->state(uuid()), 0);
	B->unpin(ram);
	must_cuda(cudaStreamEndCapture(taken, &graph));
	must_cuda(cudaStreamSynchronize(stream));
	must_be(*word, 7);
	return me;
}

static bool is_host(const void *p)
{
	struct cudaPointerAttributes a;

	must_cuda(cudaPointerGetAttributes(&a, p));
	return a.type == cudaMemoryTypeHost;
}

static int pins(int me)
{
	uint8_t *p = shared_memory(8 * MIB);

	uuid();
	must_be(B->pin(p, 4 * MIB), 0);
	need(is_host(p) && is_host(p + 4 * MIB - 1) && !is_host(p + 4 * MIB),
	     "what was asked for is registered, and no more");
	must_be(B->pin(p, 4 * MIB), 0);
	must_be(B->pin(p, 2 * MIB), -EINVAL);
	B->unpin(p);
	need(!is_host(p), "it is registered still");
	B->unpin(p); /* none is there: nothing happens */
	must_be(B->pin(p, 2 * MIB), 0);
	B->unpin(p);
	/* what the engine has registered stays the engine's */
	must_cuda(cudaHostRegister(p, 8 * MIB, cudaHostRegisterPortable));
	must_be(B->pin(p, 4 * MIB), 0);
	B->unpin(p);
	need(is_host(p), "the engine's registration has gone");
	must_cuda(cudaHostUnregister(p));
	must_cuda(cudaGetLastError());
	return me;
}

static int limits(int me)
{
	struct copy_limits l = { 0 }, again;
	int device = -1, now = -2;
	uint8_t nobody[16] = "nobody's uuid..";

	uuid();
	must_cuda(cudaGetDevice(&device));
	must_be(B->limits(uuid(), NULL, &l), 0);
	need(!l.pairs && l.slices && l.max_pitch >= INT32_MAX,
	     "to the device: pairs %d, slices %d, max_pitch %llu", l.pairs, l.slices,
	     (unsigned long long)l.max_pitch);
	crew->count[40] = l.max_pitch;
	must_be(B->limits(NULL, uuid(), &again), 0);
	must_be(again.max_pitch, l.max_pitch);
	must_be(B->limits(uuid(), uuid(), &again), 0);
	need(again.pairs, "no pairs within the device");
	must_be(B->limits(nobody, NULL, &l), -ENODEV);
	must_be(B->check_stream(nobody, NULL), -ENODEV);
	must_cuda(cudaGetDevice(&now));
	must_be(now, device);
	return me;
}

/* The word comes behind the bytes, and not before the copies begin. */
static int marks(int me)
{
	uint64_t *word = shared_memory(2 * MIB);
	uint8_t *host = pinned(32 * MIB), *vram;
	struct work_spin *spin = pinned(sizeof(*spin));
	cudaStream_t stream = new_stream();
	struct copy_op op = { host, NULL, 32 * MIB, 1, 0, 0, 1, 0, 0 };
	uint32_t done;
	size_t i;
	int round;

	uuid();
	must_cuda(cudaMalloc((void **)&vram, 32 * MIB));
	op.from = vram;
	must_be(B->mark(uuid(), word, 1, stream),
		0); /* not pinned yet: by a function of the host */
	must_cuda(cudaStreamSynchronize(stream));
	need(load_acquire(word) == 1, "a word that is not pinned is not marked");
	must_be(B->pin(word, 2 * MIB), 0);
	for (round = 1; round <= 20; round++) {
		store_release(&spin->stop, 0);
		must_cuda(cudaMemset(vram, round, 32 * MIB));
		must_cuda(cudaDeviceSynchronize());
		must_cuda(work_spin(spin, 3000000000ull, 32, stream));
		must_be(B->copy(uuid(), &op, 1, stream, &done), 0);
		must_be(B->mark(uuid(), &word[3], (uint64_t)round << 33, stream), 0);
		need(load_acquire(&word[3]) == (uint64_t)(round - 1) << 33,
		     "round %d: marked before the copy began", round);
		store_release(&spin->stop, 1);
		crew_until(load_acquire(&word[3]) == (uint64_t)round << 33, (void)0);
		for (i = 0; i < 32 * MIB; i += 4096 - 1)
			need(host[i] == round, "round %d: marked, and byte %zu is %d", round, i,
			     host[i]);
	}
	must_cuda(cudaStreamSynchronize(stream));
	must_cuda(cudaGetLastError());
	return me;
}

/* ---- a lost context ---- */

static int loser(int me)
{
	uint32_t *slots = pinned(4), done;
	cudaStream_t stream = new_stream();
	uint8_t *host = pinned(4096);
	struct copy_op op = { host, host, 4096, 1, 0, 0, 1, 0, 0 };

	must_be(B->state(uuid()), 0);
	must_cuda(work_fill((uint32_t *)(uintptr_t)0x100, 1, slots, 1, 1, 0, stream)); /* faults */
	need(cudaStreamSynchronize(stream) != cudaSuccess, "no fault");
	must_be(B->state(uuid()), -EIO);
	need(B->copy(uuid(), &op, 1, stream, &done) < 0 && done == 0, "a lost device copies");
	return me;
}

/* ---- all ---- */

static void one(int (*member)(int me), const char *what)
{
	crew_join(crew_fork(member, 0), what);
}

static int body(void)
{
	device_need_gpu();
	crew_begin();
	one(limits, "limits");
	diag("the largest pitch that was seen to be right: %llu MiB",
	     (unsigned long long)crew->count[40] >> 20);
	one(copies, "copies in all forms");
	one(refused, "a copy that the driver refuses");
	one(pairs, "copies within the device");
	one(captures, "beside a capture");
	one(pins, "pins");
	one(marks, "marks");
	one(loser, "a device that is lost");
	return done_testing();
}

int main(void)
{
	scratch_make("t506");
	return tap_guard(240, body, scratch_remove);
}
