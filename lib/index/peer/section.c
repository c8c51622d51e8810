/* SPDX-License-Identifier: Apache-2.0 */
/* section.c - sections and grace periods for ids that are used without a reference.
 * Tests: t/index/sections.t t/index/epoch.t */
#include "config.h"

#include <errno.h>
#include "index/peer/handle.h"

static int enter_lowest(gpc *c)
{
	uint32_t i;

	for (i = 0; i < GPC_SECTIONS; i++) {
		if (epoch_enter(&c->seg, c->peer, SHM_SECTION(i))) {
			store_relaxed(&c->section_thread[i], handle_thread());
			return (int)i;
		}
	}
	return -EAGAIN;
}

GPC_EXPORT int gpc_section_enter(gpc *c)
{
	int section, err = handle_check(c, true);

	if (err)
		return err;
	section = enter_lowest(c);
	if (section < 0) {
		handle_sweep_sections(c);
		section = enter_lowest(c);
	}
	if (section < 0)
		return err_set(EAGAIN,
			       "all %d sections of this peer are open: leave one "
			       "first",
			       GPC_SECTIONS);
	return section;
}

/* The mark is taken before the place becomes idle, since after that it is the next owner's.  The
 * thread that entered takes its mark without a locked instruction, which would cost as much as
 * entering does.  If several other threads leave the section, only one gets the mark. */
static bool take_mark(gpc *c, int section)
{
	uint64_t *mark = &c->section_thread[section];

	if (load_relaxed(mark) != handle_thread())
		return load_relaxed(mark) && order_swap64(mark, 0);
	store_relaxed(mark, 0);
	return true;
}

/* Leaves only a section that gpc_section_enter has opened, and only once. */
GPC_EXPORT int gpc_section_leave(gpc *c, int section)
{
	int err = handle_check(c, true);

	if (err)
		return err;
	if (section < 0 || section >= GPC_SECTIONS || !take_mark(c, section))
		return err_set(EINVAL, "section is %d: it is no open section of this handle",
			       section);
	epoch_leave(&c->seg, c->peer, SHM_SECTION((uint32_t)section));
	return 0;
}

/* Without a seat it returns 0, a cookie whose grace period is always over. */
GPC_EXPORT uint64_t gpc_grace_start(gpc *c)
{
	if (handle_check(c, true))
		return 0;
	return epoch_start(&c->seg);
}

GPC_EXPORT int gpc_grace_done(gpc *c, uint64_t cookie)
{
	int err = handle_check(c, true);

	if (err)
		return err;
	if (cookie > load_relaxed(&seg_shared(&c->seg)->epoch))
		return err_set(EINVAL, "cookie %llu was never given", (unsigned long long)cookie);
	handle_sweep_sections(c);
	return epoch_done(&c->seg, cookie);
}
