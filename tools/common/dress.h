/* SPDX-License-Identifier: Apache-2.0 */
/* dress.h - mode and group of a cache that exists. */
#ifndef GPC_TOOLS_DRESS_H
#define GPC_TOOLS_DRESS_H

#include "gpc.h"
#include "gpc_look.h"
#include "gpc_serve.h"

/* Gives want's mode and group to all files of the cache that c is attached to, or reads; want also
 * has the folder.  opt: options of a handle that is open meanwhile.  Returns 0; -ESTALE if c's
 * cache has lost its name; or the library's error. */
int dress(gpc *c, const char *name, const struct gpc_config *want,
	  const struct gpc_attach_options *opt);

#endif
