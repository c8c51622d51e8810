/* SPDX-License-Identifier: Apache-2.0 */
/* view.h - the mirrors of one device that this process has imported: which one is current, and
 * when an old one can be released. */
#ifndef GPC_IMPORT_H
#define GPC_IMPORT_H

#include "bytes/device/device.h"
#include "index/peer/handle.h"

#include <urcu/urcu-bp.h>

struct import {
	struct rcu_head rcu;
	struct import *next; /* the next younger one of the retired imports */
	gpc_dev *dev;
	void *handle;
	struct dev_view view;
	uint32_t generation;
	uint32_t sections; /* sections that began with it and are not over */
	uint32_t settled;  /* no thread is about to count itself here */
};

/* The use of a section place by this device.  First it belongs to the thread that has opened the
 * place by the compare-and-swap of epoch_enter, then to the thread that leaves it.  Later it
 * belongs to the next thread that finds the place idle, and that takes the old count down. */
struct section_use {
	struct import *import;
	uint64_t ticket;
	uint32_t left; /* the signal is on its way */
};

struct gpc_dev {
	gpc_dev *next;
	gpc *c;
	const struct device_ops *ops;
	char device[48];
	uint8_t uuid[16];
	void *there;    /* the driver's, see struct device_ops */
	uint32_t opens; /* under c->dev_lock */
	/* all opens together count one, and each pending callback one */
	uint32_t holds;
	uint32_t entered;                /* sections between enter and leave */
	pthread_mutex_t lock;            /* taken to replace and release imports */
	struct import *current;          /* RCU */
	struct import *retired, *newest; /* oldest first; newest is the last one */
	struct section_use use[GPC_SECTIONS];
};

/* A copy of the descriptor of this device's newest live mirror.  False: there is none. */
bool import_find(const gpc *c, const uint8_t uuid[16], struct shm_mirror *ret);
/* -ESTALE, with a sentence */
int import_none(const char *device);

/* The caller's section is open.  The import of the mirror that is live now, with the section
 * counted in it; -ESTALE. */
int import_adopt(gpc_dev *d, struct import **ret);
/* The caller has opened the place, so its earlier use is over. */
void import_forget(gpc_dev *d, uint32_t place);
/* Copy the view of the current import, for a caller with an open section.  False: there is
 * none. */
bool import_view(gpc_dev *d, struct dev_view *ret);
/* Release imports that are over, unless another thread does so; never waits. */
void import_tidy(gpc_dev *d);
/* Nobody uses the device any more and nothing is in flight: release all, free d. */
void import_end(gpc_dev *d);
/* *p += v, a full barrier; v = -1 as well */
void import_add32(uint32_t *p, uint32_t v);

#endif
