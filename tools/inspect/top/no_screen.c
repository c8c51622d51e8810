/* SPDX-License-Identifier: Apache-2.0 */
/* top of a build without ncurses.
 * Tests: t/tools/inspect-top.t */
#include "config.h"

#include "tools/inspect/top/top.h"

int top_screen(const struct inspect *in)
{
	(void)in;
	cli_error("this gpc-inspect was built without ncurses, which top shows its screen with; "
		  "'gpc-inspect stat --watch SECONDS' writes lines");
	return EXIT_RUNTIME;
}
