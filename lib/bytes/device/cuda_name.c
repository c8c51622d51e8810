/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_name.c - GPUs by number and by UUID.
 * Tests: t/bytes/cuda-writer-fails.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/err.h"
#include "index/base/order.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* UUIDs do not change while a process lives, and asking for them is not cheap. */
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
			order_or64(&have, 1ull << ordinal); /* pairs with the acquire */
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
	return err ? err
		   : err_set(ENODEV, "the mirror is on a GPU that this process "
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
		return err_set(EINVAL, "%s: cuda: and a number, or GPU- and a UUID", device);
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
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
		 u[13], u[14], u[15]);
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

int cuda_ordinal(const char *device, int *ret)
{
	return device[0] == 'c' ? by_number(device, ret) : by_uuid(device, ret);
}

int cuda_identify(const char *device, uint8_t uuid[16])
{
	int ordinal, err = cuda_ordinal(device, &ordinal);

	return err ? err : cuda_uuid(ordinal, uuid);
}
