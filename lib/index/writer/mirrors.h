/* SPDX-License-Identifier: Apache-2.0 */
/* mirrors.h - mirrors are made and closed. */
#ifndef GPC_WRITER_MIRRORS_H
#define GPC_WRITER_MIRRORS_H

#include "index/table/state.h"

void mirrors_open(struct writer *w); /* create, upload, publish */
void mirrors_close(struct writer *w);

#endif
