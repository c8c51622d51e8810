/* SPDX-License-Identifier: Apache-2.0 */
/* smaps.h - what the kernel says of this process's mappings. */
#ifndef T_LIB_SMAPS_H
#define T_LIB_SMAPS_H

#include <stdio.h>
#include <string.h>

/* Mappings of files whose path has `part`: `all` of them, and those for which this process has asked for
 * huge pages. */
TAP_FN int huge_wishes(const char *part, int *all)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[4096];
	bool here = false;
	int n = 0;

	*all = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (strchr("0123456789abcdef", line[0])) {
			here = strstr(line, part) != NULL;
			*all += here;
		} else if (here && !strncmp(line, "VmFlags:", 8)) {
			n += strstr(line, " hg") != NULL;
		}
	}
	if (f)
		fclose(f);
	return n;
}

#endif
