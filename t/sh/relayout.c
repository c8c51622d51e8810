/* SPDX-License-Identifier: Apache-2.0 */
/* relayout DIR NAME VERSION [damaged] - a cache's headers as another layout has them: that version,
 * and their checksums, or wrong ones. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "index/segment/files.h"

static int relabel(const char *dir, const char *name, const char *suffix, uint32_t version,
		   uint64_t spoil)
{
	struct shm_header h;
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/gpc.%s.%s", dir, name, suffix);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || pread(fd, &h, sizeof(h), 0) != sizeof(h))
		return 1;
	h.version = version;
	h.checksum = segment_header_sum(&h) ^ spoil;
	if (pwrite(fd, &h, sizeof(h), 0) != sizeof(h))
		return 1;
	return close(fd);
}

int main(int argc, char **argv)
{
	uint32_t version = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;

	if (argc != 4 && (argc != 5 || strcmp(argv[4], "damaged")))
		return 2;
	return relabel(argv[1], argv[2], "idx", version, argc == 5) ||
	       relabel(argv[1], argv[2], "ctl", version, argc == 5);
}
