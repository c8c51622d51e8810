/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - the drivers, and the driver of each device.
 * Tests: t/bytes/bytes-device.t t/bytes/device.t t/bytes/device-mirrors.t */
#include "config.h"

#include "bytes/device/device.h"

#include "gpc_device.h"
#include "index/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the host ---- */

static bool is_host(const char *device)
{
	return !strcmp(device, "host");
}

static bool host_same(const char *a, const char *b)
{
	return !strcmp(a, b);
}

static bool host_owns(const uint8_t uuid[16])
{
	static const uint8_t zeros[16];

	return !memcmp(uuid, zeros, sizeof(zeros));
}

static void host_say(const uint8_t uuid[16] UNUSED, char *text, size_t room)
{
	snprintf(text, room, "host");
}

/* ---- CUDA, also if this library is built without it ---- */

static bool is_cuda(const char *device)
{
	return !strncmp(device, "cuda:", 5) || !strncmp(device, "GPU-", 4);
}

/* A UUID in the driver's form: hex digits in groups of 8, 4, 4, 4 and 12; or its beginning. */
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

static bool cuda_form(const char *text)
{
	if (!strncmp(text, "cuda:", 5))
		return text[5] && !text[5 + strspn(text + 5, "0123456789")];
	return !strncmp(text, "GPU-", 4) && is_uuid(text + 4);
}

/* cuda:0 and cuda:00 are one device.  A number and a UUID may be one, but only their driver
 * knows. */
static bool cuda_same(const char *a, const char *b)
{
	if (!strncmp(a, "cuda:", 5) && !strncmp(b, "cuda:", 5))
		return strtoull(a + 5, NULL, 10) == strtoull(b + 5, NULL, 10);
	return !strcmp(a, b);
}

/* CUDA owns every UUID that no other kind owns.  A process may map memory of GPUs that it does not
 * see, so the driver cannot be asked. */
static bool cuda_owns(const uint8_t uuid[16])
{
	return !host_owns(uuid);
}

static void cuda_say(const uint8_t u[16], char *text, size_t room)
{
	snprintf(text, room, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x", u[0], u[1], u[2],
		 u[3], u[4], u[5], u[6], u[7], u[8], u[9]);
}

/* ---- the table ---- */

#define CUDA_KIND                                                                           \
	.name = "cuda", .forms = "cuda:N, and GPU- and a UUID or its beginning",            \
	.without = "this library is built without CUDA; the host device, RAM and all host " \
		   "calls work",                                                            \
	.matches = is_cuda, .is_form = cuda_form, .same = cuda_same, .owns = cuda_owns,     \
	.say = cuda_say

/* A UUID belongs to the first driver that owns it, so CUDA is the last. */
static const struct driver drivers[] = {
	{
		.name = "host",
		.forms = "host",
		.matches = is_host,
		.is_form = is_host,
		.same = host_same,
		.owns = host_owns,
		.say = host_say,
		.identify = host_identify,
		.mirror = &device_host,
		.bytes = &device_bytes_host,
	},
#ifdef HAVE_CUDA
	{ CUDA_KIND, .identify = cuda_identify, .mirror = &device_cuda,
	  .bytes = &device_bytes_cuda },
#else
	{ CUDA_KIND },
#endif
};

/* "host, cuda:N, ..." */
static const char *all_forms(char text[128])
{
	size_t i, at = 0;

	for (i = 0; i < ARRAY_SIZE(drivers); i++)
		at += (size_t)snprintf(text + at, at < 128 ? 128 - at : 0, "%s%s", i ? ", " : "",
				       drivers[i].forms);
	return text;
}

static const struct driver *kind_of(const char *device)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(drivers); i++)
		if (drivers[i].matches(device))
			return &drivers[i];
	return NULL;
}

/* ---- lists ---- */

/* Decides by the form of the name, whatever devices this library is built with. */
static bool is_device(const char *text)
{
	const struct driver *d = kind_of(text);

	return d ? d->is_form(text) : !strcmp(text, "none");
}

static bool same_device(const char *a, const char *b)
{
	const struct driver *d = kind_of(a);

	return d ? d == kind_of(b) && d->same(a, b) : !strcmp(a, b);
}

int device_check_list(const char *devices)
{
	char list[DEVICE_LIST], forms[128], *item[GPC_MAX_MIRRORS], *rest = list, *one;
	uint32_t n = 0, i;
	int err = err_text("devices", devices, sizeof(list) - 1);

	if (err || !*devices)
		return err;
	strcpy(list, devices);
	while ((one = strsep(&rest, ",")) != NULL) {
		if (!is_device(one))
			return err_set(EINVAL,
				       "devices is \"%s\", with \"%s\" in it: there are none, %s",
				       devices, one, all_forms(forms));
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

/* ---- the driver of a device ---- */

static int give(const struct driver *d, const char *what, const struct driver **ret)
{
	if (!d->mirror)
		return err_set(ENODEV, "%s: %s", what, d->without);
	*ret = d;
	return 0;
}

int driver_find(const char *device, const struct driver **ret)
{
	const struct driver *d;
	char forms[128];

	if (!device)
		return err_set(EINVAL, "device is NULL");
	d = kind_of(device);
	if (d)
		return give(d, device, ret);
	return err_set(EINVAL, "device is \"%s\": there is no such kind of device; there are %s",
		       device, all_forms(forms));
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
	size_t i;

	for (i = 0; i < ARRAY_SIZE(drivers) - 1 && !drivers[i].owns(uuid); i++)
		;
	return give(&drivers[i], "VRAM of a GPU", ret);
}

void driver_say(const uint8_t uuid[16], char *text, size_t room)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(drivers) - 1 && !drivers[i].owns(uuid); i++)
		;
	drivers[i].say(uuid, text, room);
}
