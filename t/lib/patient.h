/* SPDX-License-Identifier: Apache-2.0 */
/* patient.h - calls that wait for a writer, however late one comes: where a test kills writers, the
 * next one needs more than the 200 ms of rule C2 on a busy machine. */
#ifndef GPC_T_PATIENT_H
#define GPC_T_PATIENT_H

#include "index/peer/handle.h"
#include "tap.h"

/* Like a handle whose own thread takes the seat: its calls never find that there is no writer. */
TAP_FN gpc *patient(gpc *c)
{
	c->flags |= GPC_SERVE;
	return c;
}

#endif
