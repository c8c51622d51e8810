/* SPDX-License-Identifier: Apache-2.0 */
#include <gpc_device.h>

/* d is from gpc_dev_open(c, "cuda:0", &d); the arrays are in device memory */
int match_there(gpc_dev *d, const gpc_key *d_keys, const uint32_t *d_start, uint32_t nseq,
		uint32_t *d_len, gpc_block *d_blocks, void *stream)
{
	int s = gpc_dev_enter(d);       /* blocks that are seen from here on stay ... */
	int r;

	if (s < 0)
		return s;               /* there is no mirror now: call gpc_match() */
	r = gpc_dev_match(d, 0, d_keys, d_start, nseq, d_len, d_blocks, stream);
	gpc_dev_leave(d, s, stream);    /* ... until the stream gets here */
	return r;
}
