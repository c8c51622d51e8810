/* SPDX-License-Identifier: Apache-2.0 */
/* spoil KEY AT FILE - whoever's stray store: in the file of a pool's memory, where an image of the
 * block of that key (32 hex digits, as gpc-inspect prints them) begins, one byte changes, AT bytes
 * further.  The images of slots that are free now change, too.  Exit status: 1 if there is none. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int spoil(const char *path, const uint64_t key[2], size_t at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC), found = 0;
	unsigned char *bytes, *image;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return 0;
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		return 0;
	for (size_t i = 0; i + 16 + at < (size_t)st.st_size; i += 8) {
		image = bytes + i;
		if (memcmp(image, key, 16))
			continue;
		image[at] ^= 0x10;
		found++;
	}
	return found;
}

int main(int argc, char **argv)
{
	uint64_t key[2];

	if (argc != 4 || sscanf(argv[1], "%16" SCNx64 "%16" SCNx64, &key[0], &key[1]) != 2)
		return 2;
	if (spoil(argv[3], key, (size_t)atol(argv[2])))
		return 0;
	fprintf(stderr, "spoil: %s has no such image\n", argv[3]);
	return 1;
}
