/* SPDX-License-Identifier: Apache-2.0 */
/* holders.h - the peers whose columns of cells have to be looked at. */
#ifndef GPC_TABLE_HOLDERS_H
#define GPC_TABLE_HOLDERS_H

#include "index/table/state.h"

void holders_show(struct writer *w, uint32_t peer); /* the writer has raised a cell of its column */
/* Takeover: until the columns have been looked at, any seat may hold blocks. */
void holders_all(struct writer *w);
void holders_end(struct writer *w, uint32_t peer); /* the peer has gone: its column becomes zero */
/* Forget peers that hold nothing any more; at most one column a call is read. */
void holders_housekeep(struct writer *w, uint64_t now_ns);

#endif
