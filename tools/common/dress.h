/* SPDX-License-Identifier: Apache-2.0 */
/* dress.h - mode and group of a cache that exists. */
#ifndef GPC_TOOLS_DRESS_H
#define GPC_TOOLS_DRESS_H

#include "gpc.h"
#include "gpc_look.h"
#include "gpc_serve.h"

/* All files of the cache that c is attached to, or reads, get want's mode and group; dir as well is of
 * want.  opt: of a handle that is open meanwhile.  0; -ESTALE: c's cache has lost its name; or the
 * library's error. */
int dress(gpc *c, const char *name, const struct gpc_config *want,
	  const struct gpc_attach_options *opt);

#endif
