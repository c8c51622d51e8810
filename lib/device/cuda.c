/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - GPUs: which there are, their memory between processes, their errors. */
#include "config.h"

#include "device/cuda.h"

#include "base/err.h"
#include "base/order.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_DEVICES 64

uint32_t device_cuda_fail_at;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_memory *memory;       /* all of this process */
static struct pin {
	struct pin *next;
	void *base;
	uint8_t id[16];
	uint64_t offset;
	uint32_t users;
} *pins;

bool cuda_injected(void)
{
	uint32_t left = load_relaxed(&device_cuda_fail_at);

	if (!left)
		return false;
	store_relaxed(&device_cuda_fail_at, left - 1);
	return left == 1;
}

/* CUDA says of a driver that is missing that it is too old. */
static bool driver_is_missing(cudaError_t e)
{
	void *there;

	if (e != cudaErrorInsufficientDriver)
		return false;
	there = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (there)
		dlclose(there);
	return !there;
}

int cuda_error(cudaError_t e, const char *what)
{
	int code = EIO;

	cudaGetLastError();              /* what is not sticky is over with it */
	switch (e) {
	case cudaErrorNoDevice:
	case cudaErrorInvalidDevice:
	case cudaErrorInsufficientDriver:
	case cudaErrorSystemDriverMismatch:
	case cudaErrorCompatNotSupportedOnDevice:
	case cudaErrorDevicesUnavailable:
	case cudaErrorStubLibrary:
		code = ENODEV;
		break;
	case cudaErrorMemoryAllocation:
		code = ENOMEM;
		break;
	case cudaErrorNotReady:
		code = EAGAIN;
		break;
	case cudaErrorInvalidValue:
	case cudaErrorInvalidResourceHandle:
	case cudaErrorInvalidDevicePointer:
	case cudaErrorStreamCaptureUnsupported:
	case cudaErrorStreamCaptureInvalidated:
	case cudaErrorStreamCaptureIsolation:
	case cudaErrorStreamCaptureImplicit:
		code = EINVAL;
		break;
	default:
		break;
	}
	if (driver_is_missing(e))
		return err_set(code, "%s: no NVIDIA driver (CUDA: %s)", what,
			       cudaGetErrorString(e));
	return err_set(code, "%s: %s (%s)", what, cudaGetErrorString(e),
		       cudaGetErrorName(e));
}

/* ---- the calling thread's device ---- */

/* The driver's own calls: a program need not be linked with it. */
static struct {
	CUresult (*get)(CUcontext *context);
	CUresult (*set)(CUcontext context);
	CUresult (*of_stream)(CUstream stream, CUcontext *context);
} driver;

static cudaError_t entry_point(const char *name, void **ret)
{
	enum cudaDriverEntryPointQueryResult found;
	cudaError_t e;

#if CUDART_VERSION >= 12050
	e = CUDA(cudaGetDriverEntryPointByVersion(name, ret, 12000, cudaEnableDefault, &found));
#else
	e = CUDA(cudaGetDriverEntryPoint(name, ret, cudaEnableDefault, &found));
#endif
	if (e == cudaSuccess && found != cudaDriverEntryPointSuccess)
		e = cudaErrorSymbolNotFound;
	return e;
}

static cudaError_t find_driver(void)
{
	void *get = NULL, *set = NULL, *of_stream = NULL;
	cudaError_t e;

	if (load_acquire(&driver.set))
		return cudaSuccess;
	e = entry_point("cuCtxGetCurrent", &get);
	if (e == cudaSuccess)
		e = entry_point("cuCtxSetCurrent", &set);
	if (e == cudaSuccess)
		e = entry_point("cuStreamGetCtx", &of_stream);
	if (e != cudaSuccess)
		return e;
	store_relaxed((void **)&driver.get, get);
	store_relaxed((void **)&driver.of_stream, of_stream);
	store_release((void **)&driver.set, set);        /* pairs with the load above */
	return e;
}

int cuda_switch(int ordinal, CUcontext *ret_before)
{
	cudaError_t e = find_driver();
	int now;

	if (e == cudaSuccess && driver.get(ret_before) != CUDA_SUCCESS)
		e = cudaErrorInitializationError;
	if (e == cudaSuccess)
		e = CUDA(cudaGetDevice(&now));
	if (e == cudaSuccess && (now != ordinal || !*ret_before)) {
		e = CUDA(cudaSetDevice(ordinal));
		if (e != cudaSuccess)
			cuda_switch_back(*ret_before);
	}
	return e == cudaSuccess ? 0 : cuda_error(e, "the device cannot be used");
}

void cuda_switch_back(CUcontext before)
{
	CUcontext now;

	if (driver.get(&now) != CUDA_SUCCESS || now != before)
		driver.set(before);
}

/* With the device's context current.  A launch into a stream of another device would run there,
 * and fault. */
cudaError_t cuda_check_stream(cudaStream_t stream)
{
	CUcontext here, its;

	if (!stream)
		return cudaSuccess;
	if (driver.get(&here) != CUDA_SUCCESS || driver.of_stream(stream, &its) != CUDA_SUCCESS ||
	    its != here)
		return cudaErrorInvalidResourceHandle;
	return cudaSuccess;
}

/* Whatever another thread captures, what is done here is not part of it. */
int cuda_enter(struct cuda_scope *s, int ordinal)
{
	int err = cuda_switch(ordinal, &s->before);

	if (err)
		return err;
	s->mode = cudaStreamCaptureModeRelaxed;
	cudaThreadExchangeStreamCaptureMode(&s->mode);
	return 0;
}

void cuda_leave(const struct cuda_scope *s)
{
	enum cudaStreamCaptureMode mode = s->mode;

	cudaThreadExchangeStreamCaptureMode(&mode);
	cuda_switch_back(s->before);
}

/* ---- names ---- */

/* They do not change while a process lives, and are not cheap to ask for. */
int cuda_uuid(int ordinal, uint8_t ret[16])
{
	static uint8_t known[MAX_DEVICES][16];
	static uint64_t have;
	struct cudaDeviceProp prop;
	cudaError_t e;

	if (ordinal < 0 || ordinal >= MAX_DEVICES)
		return err_set(ENODEV, "there is no GPU number %d", ordinal);
	if (!(load_acquire(&have) >> ordinal & 1)) {
		e = CUDA(cudaGetDeviceProperties(&prop, ordinal));
		if (e != cudaSuccess)
			return cuda_error(e, "the GPU cannot be asked for its UUID");
		pthread_mutex_lock(&lock);
		if (!(have >> ordinal & 1)) {
			memcpy(known[ordinal], prop.uuid.bytes, 16);
			order_or64(&have, 1ull << ordinal);      /* pairs with the acquire */
		}
		pthread_mutex_unlock(&lock);
	}
	memcpy(ret, known[ordinal], 16);
	return 0;
}

static int count_devices(int *ret)
{
	cudaError_t e = CUDA(cudaGetDeviceCount(ret));

	if (e != cudaSuccess)
		return cuda_error(e, "no GPU can be used");
	*ret = MIN(*ret, MAX_DEVICES);
	return 0;
}

int cuda_ordinal_of(const uint8_t uuid[16], int *ret)
{
	uint8_t other[16];
	int i, n, err = count_devices(&n);

	for (i = 0; !err && i < n; i++) {
		err = cuda_uuid(i, other);
		if (!err && !memcmp(uuid, other, 16)) {
			*ret = i;
			return 0;
		}
	}
	return err ? err : err_set(ENODEV, "the mirror is on a GPU that this process "
				   "does not see");
}

static int by_number(const char *device, int *ret)
{
	unsigned long number;
	char *end;
	int n, err = count_devices(&n);

	if (err)
		return err;
	errno = 0;
	number = strtoul(device + 5, &end, 10);
	if (device[5] < '0' || device[5] > '9' || *end || errno)
		return err_set(EINVAL, "%s: cuda: and a number, or GPU- and a UUID",
			       device);
	if (number >= (unsigned long)n)
		return err_set(ENODEV, "%s: this process sees %d GPU%s", device, n,
			       n == 1 ? "" : "s");
	*ret = (int)number;
	return 0;
}

static void uuid_text(const uint8_t u[16], char ret[48])
{
	snprintf(ret, 48,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
		 "%02x%02x%02x%02x%02x%02x",
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
		 u[12], u[13], u[14], u[15]);
}

static int by_uuid(const char *device, int *ret)
{
	uint8_t uuid[16];
	char text[48];
	int i, n, found = 0, err = count_devices(&n);

	for (i = 0; !err && i < n; i++) {
		err = cuda_uuid(i, uuid);
		uuid_text(uuid, text);
		if (!err && !strncmp(device, text, strlen(device)) && found++ == 0)
			*ret = i;
	}
	if (err)
		return err;
	if (found > 1)
		return err_set(EINVAL, "%s: several GPUs begin like that", device);
	return found ? 0 : err_set(ENODEV, "%s: this process does not see it", device);
}

static bool cuda_matches(const char *device)
{
	return !strncmp(device, "cuda:", 5) || !strncmp(device, "GPU-", 4);
}

int cuda_ordinal(const char *device, int *ret)
{
	return device[0] == 'c' ? by_number(device, ret) : by_uuid(device, ret);
}

static int cuda_identify(const char *device, uint8_t uuid[16])
{
	int ordinal, err = cuda_ordinal(device, &ordinal);

	return err ? err : cuda_uuid(ordinal, uuid);
}

/* ---- memory that several processes have ---- */

static struct cuda_memory *find(const uint8_t handle[64], int ordinal)
{
	struct cuda_memory *m = memory;

	while (m && (m->pid != getpid() || m->ordinal != ordinal ||
		     memcmp(&m->handle, handle, sizeof(m->handle))))
		m = m->next;
	return m;
}
_Static_assert(sizeof(cudaIpcMemHandle_t) == 64, "a descriptor has room for a handle");

static void remember(struct cuda_memory *m, int ordinal)
{
	m->users = 1;
	m->ordinal = ordinal;
	m->pid = getpid();
	m->next = memory;
	memory = m;
}

int cuda_memory_make(uint64_t bytes, int ordinal, struct cuda_memory **ret)
{
	struct cuda_memory *m = calloc(1, sizeof(*m));
	cudaError_t e;

	if (!m)
		return err_set(ENOMEM, "no memory for a mirror");
	e = CUDA(cudaMalloc((void **)&m->base, bytes));
	if (e == cudaSuccess) {
		e = CUDA(cudaIpcGetMemHandle(&m->handle, m->base));
		if (e != cudaSuccess)
			cudaFree(m->base);
	}
	if (e != cudaSuccess) {
		free(m);
		return cuda_error(e, "no device memory that other processes can open");
	}
	pthread_mutex_lock(&lock);
	remember(m, ordinal);
	pthread_mutex_unlock(&lock);
	*ret = m;
	return 0;
}

static int open_handle(const uint8_t handle[64], int ordinal, struct cuda_memory **ret)
{
	struct cuda_memory *m = calloc(1, sizeof(*m));
	cudaError_t e;

	if (!m)
		return err_set(ENOMEM, "no memory to import a mirror");
	memcpy(&m->handle, handle, sizeof(m->handle));
	e = CUDA(cudaIpcOpenMemHandle((void **)&m->base, m->handle,
				      cudaIpcMemLazyEnablePeerAccess));
	if (e != cudaSuccess) {
		free(m);
		cuda_error(e, "the mirror's memory cannot be opened");
		/* its writer is gone, or going */
		return e == cudaErrorInvalidResourceHandle ||
				       e == cudaErrorMapBufferObjectFailed ||
				       e == cudaErrorAlreadyMapped
			       ? -ESTALE
			       : cuda_error(e, "the mirror's memory cannot be opened");
	}
	m->imported = true;
	remember(m, ordinal);
	*ret = m;
	return 0;
}

int cuda_memory_import(const uint8_t handle[64], int ordinal, struct cuda_memory **ret)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	*ret = find(handle, ordinal);
	if (*ret)
		(*ret)->users++;
	else
		err = open_handle(handle, ordinal, ret);
	pthread_mutex_unlock(&lock);
	return err;
}

void cuda_memory_put(struct cuda_memory *m)
{
	struct cuda_memory **at = &memory;
	bool last;

	pthread_mutex_lock(&lock);
	last = --m->users == 0;
	while (last && *at != m)
		at = &(*at)->next;
	if (last)
		*at = m->next;
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	if (m->pid == getpid() && m->imported)
		cudaIpcCloseMemHandle(m->base);
	else if (m->pid == getpid())
		cudaFree(m->base);       /* it lives on where others have it open */
	free(m);
}

/* ---- host memory that devices read and write ---- */

/* Under the lock.  A mapping that was given up with work in flight may have left its pin. */
static struct pin *find_pin(const void *base, const uint8_t id[16], uint64_t offset)
{
	struct pin **at = &pins, *p;

	while ((p = *at) != NULL && p->base != base)
		at = &p->next;
	if (!p || (!memcmp(p->id, id, sizeof(p->id)) && p->offset == offset))
		return p;
	*at = p->next;
	cudaHostUnregister(p->base);
	free(p);
	return NULL;
}

static cudaError_t make_pin(void *base, uint64_t bytes, const uint8_t id[16], uint64_t offset)
{
	struct pin *p = calloc(1, sizeof(*p));
	cudaError_t e;

	if (!p)
		return cudaErrorMemoryAllocation;
	e = CUDA(cudaHostRegister(base, bytes,
				  cudaHostRegisterPortable | cudaHostRegisterMapped));
	if (e != cudaSuccess) {
		free(p);
		return e;
	}
	*p = (struct pin){ .base = base, .offset = offset, .users = 1, .next = pins };
	memcpy(p->id, id, sizeof(p->id));
	pins = p;
	return e;
}

int cuda_pin(void *base, uint64_t bytes, const uint8_t id[16], uint64_t offset)
{
	cudaError_t e = cudaSuccess;
	struct pin *p;

	pthread_mutex_lock(&lock);
	p = find_pin(base, id, offset);
	if (p)
		p->users++;
	else
		e = make_pin(base, bytes, id, offset);
	pthread_mutex_unlock(&lock);
	return e == cudaSuccess ? 0 : cuda_error(e, "shared memory cannot be registered");
}

void cuda_unpin(void *base)
{
	struct pin **at = &pins, *p;

	pthread_mutex_lock(&lock);
	while ((p = *at) != NULL && p->base != base)
		at = &p->next;
	if (p && --p->users == 0) {
		*at = p->next;
		cudaHostUnregister(base);
		free(p);
	}
	pthread_mutex_unlock(&lock);
}

/* ---- the driver ---- */

/* Memory of a dead writer is freed by the last process that has it. */
static void cuda_sweep(const struct segment *s UNUSED, const struct shm_mirror *desc UNUSED)
{
}

const struct device_ops device_cuda = {
	.name = "cuda",
	.matches = cuda_matches,
	.identify = cuda_identify,
	.create = cuda_create,
	.upload = cuda_upload,
	.flush = cuda_flush,
	.flushed = cuda_flushed,
	.destroy = cuda_destroy,
	.sweep = cuda_sweep,
	.read = cuda_read,
	.import = cuda_import,
	.release = cuda_release,
	.open = cuda_open,
	.close = cuda_close,
	.adopt = cuda_adopt,
	.lookup = cuda_lookup,
	.match = cuda_match,
	.signal = cuda_signal,
	.counted = cuda_counted,
	.ask = cuda_ask,
	.wait = cuda_wait,
	.lost = cuda_lost,
};
