/* SPDX-License-Identifier: Apache-2.0 */
/* kv_main.h - the end of a test of gpcd's KV events: its body runs where gpcd publishes any, else
 * it is skipped. */
#ifndef T_KV_MAIN_H
#define T_KV_MAIN_H

#ifdef HAVE_EVENTS
int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
#else
#include "t/lib/tap.h"

int main(void)
{
	plan_skip_all("gpcd is built without libzmq and msgpack-c");
}
#endif

#endif
