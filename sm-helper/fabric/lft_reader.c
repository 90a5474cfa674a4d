/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/fabric/lft_reader.h"
#include "common/util.h"

/* A block that cannot be had stays unknown, and the walk says at which switch. */
void lft_fetch(void *arg, struct fabric *f, const struct walk_block *want, unsigned count)
{
	const struct lft_reader *r = arg;
	struct probe_block *b AUTO_FREE = calloc(count, sizeof *b);
	uint32_t *sw AUTO_FREE = malloc(count * sizeof *sw), own = fabric_find_end(f, r->own_guid);
	char text[PROBE_ERROR_MAX];
	unsigned n = 0;

	if (!b || !sw)
		return;
	for (unsigned i = 0; i < count; i++) {
		int hops = fabric_route(f, own, want[i].sw, b[n].to.path);

		if (hops < 0)
			continue;
		b[n].to.hops = hops;
		b[n].block = want[i].block;
		sw[n++] = want[i].sw;
	}
	probe_lft_blocks(r->m, b, n, text);
	for (unsigned i = 0; i < n; i++)
		if (b[i].read)
			fabric_set_lft(f, sw[i], b[i].block, b[i].data);
}
