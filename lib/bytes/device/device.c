/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - the drivers, and which of them has a device.
 * Tests: t/bytes/bytes-device.t t/bytes/device.t t/bytes/device-mirrors.t */
#include "config.h"

#include "bytes/device/device.h"

#include "gpc_device.h"
#include "index/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_host(const char *device)
{
	return !strcmp(device, "host");
}

static bool is_cuda(const char *device)
{
	return !strncmp(device, "cuda:", 5) || !strncmp(device, "GPU-", 4);
}

enum { HOST, CUDA, DRIVERS };

static const struct driver drivers[DRIVERS] = {
	[HOST] = { "host", is_host, host_identify, &device_host, &device_bytes_host },
#ifdef HAVE_CUDA
	[CUDA] = { "cuda", is_cuda, cuda_identify, &device_cuda, &device_bytes_cuda },
#else
	[CUDA] = { "cuda", is_cuda, NULL, NULL, NULL },
#endif
};

/* ---- lists ---- */

/* As the driver writes it: hex digits in groups of 8, 4, 4, 4 and 12; or its beginning. */
static bool is_uuid(const char *text)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
	size_t i;

	for (i = 0; text[i]; i++)
		if (i >= sizeof(form) - 1 ||
		    !(form[i] == '-' ? text[i] == '-'
				     : strchr("0123456789abcdef", text[i]) != NULL))
			return false;
	return i > 0;
}

/* none, host, cuda:N, GPU-UUID or its beginning: by its form, whatever this library is built
 * with. */
static bool is_device(const char *text)
{
	if (!strncmp(text, "cuda:", 5))
		return text[5] && !text[5 + strspn(text + 5, "0123456789")];
	if (!strncmp(text, "GPU-", 4))
		return is_uuid(text + 4);
	return !strcmp(text, "none") || !strcmp(text, "host");
}

/* cuda:0 and cuda:00 are one; a number and a UUID may be, which only their driver knows. */
static bool same_device(const char *a, const char *b)
{
	if (!strncmp(a, "cuda:", 5) && !strncmp(b, "cuda:", 5))
		return strtoull(a + 5, NULL, 10) == strtoull(b + 5, NULL, 10);
	return !strcmp(a, b);
}

int device_check_list(const char *devices)
{
	char list[DEVICE_LIST], *item[GPC_MAX_MIRRORS], *rest = list, *one;
	uint32_t n = 0, i;
	int err = err_text("devices", devices, sizeof(list) - 1);

	if (err || !*devices)
		return err;
	strcpy(list, devices);
	while ((one = strsep(&rest, ",")) != NULL) {
		if (!is_device(one))
			return err_set(EINVAL,
				       "devices is \"%s\", with \"%s\" in it: there are none, "
				       "host, cuda:N, and GPU- and a UUID or its beginning",
				       devices, one);
		if (n == GPC_MAX_MIRRORS)
			return err_set(EINVAL, "devices is \"%s\": a cache has at most %d mirrors",
				       devices, GPC_MAX_MIRRORS);
		for (i = 0; i < n; i++)
			if (same_device(item[i], one))
				return err_set(EINVAL, "devices is \"%s\": %s is in it twice",
					       devices, one);
		item[n++] = one;
	}
	return 0;
}

/* ---- for drivers ---- */

int device_check_entries(uint64_t entries, uint64_t mirror_entries)
{
	if (entries == mirror_entries)
		return 0;
	return err_set(EINVAL, "a table of %llu entries does not fit a mirror of %llu",
		       (unsigned long long)entries, (unsigned long long)mirror_entries);
}

int device_check_changes(const struct launch_change *changes, uint32_t n, uint64_t entries)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (changes[i].slot >= entries)
			return err_set(EINVAL, "entry %u is beyond the mirror's %llu",
				       changes[i].slot, (unsigned long long)entries);
	return 0;
}

void device_describe(const char *device, struct shm_mirror *desc)
{
	memset(desc->device, 0, sizeof(desc->device));
	memcpy(desc->device, device, MIN(strlen(device), sizeof(desc->device) - 1));
}

/* ---- which one ---- */

static int give(const struct driver *d, const char *what, const struct driver **ret)
{
	if (!d->mirror)
		return err_set(ENODEV,
			       "%s: this library is built without CUDA; the host device, RAM "
			       "and all host calls work",
			       what);
	*ret = d;
	return 0;
}

int driver_find(const char *device, const struct driver **ret)
{
	size_t i;

	if (!device)
		return err_set(EINVAL, "device is NULL");
	for (i = 0; i < DRIVERS; i++)
		if (drivers[i].matches(device))
			return give(&drivers[i], device, ret);
	return err_set(EINVAL,
		       "device is \"%s\": there is no such kind of device; there are host, cuda:N "
		       "and GPU-UUID",
		       device);
}

int driver_identify(const char *device, const struct driver **ret, uint8_t uuid[16])
{
	const struct driver *d;
	int err = driver_find(device, &d);

	if (!err)
		err = d->identify(device, uuid);
	if (!err)
		*ret = d;
	return err;
}

int driver_of(const uint8_t uuid[16], const struct driver **ret)
{
	static const uint8_t host[16];

	return give(&drivers[memcmp(uuid, host, sizeof(host)) ? CUDA : HOST], "VRAM of a GPU", ret);
}
