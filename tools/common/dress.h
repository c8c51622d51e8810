/* SPDX-License-Identifier: Apache-2.0 */
/* dress.h - mode and group of a cache that exists. */
#ifndef GPC_TOOLS_DRESS_H
#define GPC_TOOLS_DRESS_H

#include "gpc.h"
#include "gpc_look.h"
#include "gpc_serve.h"

#include <sys/types.h>

/* A gpc_config.gid of 0 is the group that there is, and UINT32_MAX is group 0. */
static inline uint32_t dress_gid(gid_t group)
{
	return group ? group : UINT32_MAX;
}

static inline gid_t dress_group(uint32_t gid)
{
	return gid == UINT32_MAX ? 0 : gid;
}

/* Gives want's mode and group to all files of the cache that c is attached to, or reads; want also
 * has the folder.  opt: options of a handle that is open meanwhile.  Returns 0; -ESTALE if c's
 * cache has lost its name; or the library's error. */
int dress(gpc *c, const char *name, const struct gpc_config *want,
	  const struct gpc_attach_options *opt);

#endif
