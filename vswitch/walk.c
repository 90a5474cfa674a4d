/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/walk.h"
#include "common/ib.h"

#include <errno.h>
#include <stdio.h>

const char *walk_verdict_text(enum walk_verdict v)
{
	static const char *const text[] = {
		[WALK_ARRIVED] = "arrives",
		[WALK_AT_SWITCH] = "ends in a switch",
		[WALK_NO_ENTRY] = "finds no path in the LFT",
		[WALK_NO_LINK] = "is sent to a port without a link",
		[WALK_LOOP] = "loops",
		[WALK_UNKNOWN] = "meets an LFT that cannot be read",
	};

	return text[v];
}

struct walk walk_lid(struct fabric *f, uint32_t sw, uint16_t lid, walk_fetch *fetch, void *arg)
{
	struct walk w = {.sw = sw, .end = FABRIC_NONE, .verdict = WALK_LOOP};

	while (w.hops++ <= f->switches) {
		const struct fabric_peer *peer;
		int port = fabric_lft_entry(f, w.sw, lid);

		if (port == -ENODATA && fetch && !fetch(arg, f, w.sw, lid / IB_LFT_BLOCK))
			port = fabric_lft_entry(f, w.sw, lid);
		if (port < 0)
			w.verdict = WALK_UNKNOWN;
		else if (port == VSWITCH_NO_PATH)
			w.verdict = WALK_NO_ENTRY;
		else if (port == 0)
			w.verdict = WALK_AT_SWITCH;
		else if (port > f->sw[w.sw].ports)
			w.verdict = WALK_NO_LINK;
		else {
			peer = &f->sw[w.sw].peer[port];
			if (peer->sw != FABRIC_NONE) {
				w.sw = peer->sw;
				continue;
			}
			w.end = peer->end;
			w.verdict = peer->end == FABRIC_NONE ? WALK_NO_LINK : WALK_ARRIVED;
		}
		break;
	}
	return w;
}

bool walk_reached(const struct fabric *f, const struct walk *w, uint32_t end)
{
	uint32_t pf = f->end[end].pf;

	return w->verdict == WALK_ARRIVED && (w->end == end || (pf != FABRIC_NONE && w->end == pf));
}

static int describe(const struct fabric *f, const struct walk *w, uint32_t from, uint16_t lid,
		    uint32_t end, char *text, size_t room)
{
	if (w->verdict == WALK_ARRIVED)
		snprintf(text, room, "from %s, LID %u leads to %s instead of %s", f->end[from].desc,
			 lid, f->end[w->end].desc, f->end[end].desc);
	else
		snprintf(text, room, "from %s, a packet to LID %u (%s) %s at switch %s",
			 f->end[from].desc, lid, f->end[end].desc, walk_verdict_text(w->verdict),
			 f->sw[w->sw].desc);
	return -EHOSTUNREACH;
}

int walk_verify(struct fabric *f, uint16_t lid, uint32_t end, unsigned sources, walk_fetch *fetch,
		void *arg, unsigned *ret_walks, char *ret_text, size_t room)
{
	uint32_t step = sources && f->ends > sources ? f->ends / sources : 1;

	*ret_walks = 0;
	for (uint32_t from = 0; from < f->ends; from += step) {
		struct walk w;

		if (f->end[from].sw == FABRIC_NONE || from == end)
			continue;
		w = walk_lid(f, f->end[from].sw, lid, fetch, arg);
		++*ret_walks;
		if (!walk_reached(f, &w, end))
			return describe(f, &w, from, lid, end, ret_text, room);
	}
	return 0;
}
