/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Directed routes through a fabric. */
#include "vswitch/model/fabric.h"

#include <errno.h>
#include <stdlib.h>

/* Breadth first, so that each way is a shortest one. */
static int find_ways(struct fabric *f, uint32_t from)
{
	uint32_t *queue = malloc(f->switches * sizeof *queue), head = 0, tail = 0;
	struct fabric_hop *hop = calloc(f->switches, sizeof *hop);

	if (!queue || !hop) {
		free(queue);
		free(hop);
		return -ENOMEM;
	}
	hop[from] = (struct fabric_hop){FABRIC_NONE, true, 0};
	queue[tail++] = from;
	while (head < tail) {
		uint32_t at = queue[head++];
		const struct fabric_switch *s = &f->sw[at];

		for (unsigned p = 1; p <= s->ports; p++) {
			uint32_t x = s->peer[p].sw;

			if (x == FABRIC_NONE || hop[x].seen)
				continue;
			hop[x] = (struct fabric_hop){at, true, (uint8_t)p};
			queue[tail++] = x;
		}
	}
	free(queue);
	free(f->hop);
	f->hop = hop;
	f->hop_from = from;
	return 0;
}

int fabric_route(struct fabric *f, uint32_t from, uint32_t sw,
		 uint8_t ret_path[static FABRIC_HOPS_MAX + 1])
{
	uint32_t start = from < f->ends ? f->end[from].sw : FABRIC_NONE;
	int hops = 1, rc;

	if (start == FABRIC_NONE || sw >= f->switches)
		return -ENETUNREACH;
	if ((!f->hop || f->hop_from != start) && (rc = find_ways(f, start)))
		return rc;
	if (!f->hop[sw].seen)
		return -ENETUNREACH;
	for (uint32_t at = sw; at != start; at = f->hop[at].before)
		if (++hops >= FABRIC_HOPS_MAX) /* another one must fit */
			return -ENETUNREACH;
	ret_path[0] = 0;
	ret_path[1] = f->end[from].port;
	for (int i = hops; sw != start; sw = f->hop[sw].before)
		ret_path[i--] = f->hop[sw].port;
	return hops;
}
