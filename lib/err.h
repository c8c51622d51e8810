/* SPDX-License-Identifier: Apache-2.0 */
/* err.h - errors with a sentence.  err_set(EINVAL, "...") stores the text for gpc_last_error
 * of this thread and returns -EINVAL; err_sys adds strerror(errno) and returns -err (err 0:
 * -errno). */
#ifndef GPC_ERR_H
#define GPC_ERR_H

#include "base.h"

int err_set(int err, const char *fmt, ...) PRINTF_LIKE(2, 3);
int err_sys(int err, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
