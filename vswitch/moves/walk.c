/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/moves/walk.h"
#include "common/ib.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Goes as far as the known LFTs lead. False: stopped at an unknown block. */
static bool walk_on(const struct fabric *f, struct walk *w, uint16_t lid)
{
	for (; w->hops <= f->switches; w->hops++) {
		const struct fabric_peer *peer;
		int port = fabric_lft_entry(f, w->sw, lid);

		if (port < 0) {
			w->verdict = WALK_UNKNOWN;
			return false;
		}
		if (port == VSWITCH_NO_PATH)
			w->verdict = WALK_NO_ENTRY;
		else if (port == 0)
			w->verdict = WALK_AT_SWITCH;
		else if (port > f->sw[w->sw].ports)
			w->verdict = WALK_NO_LINK;
		else {
			peer = &f->sw[w->sw].peer[port];
			if (peer->sw != FABRIC_NONE) {
				w->sw = peer->sw;
				continue;
			}
			w->end = peer->end;
			w->verdict = peer->end == FABRIC_NONE ? WALK_NO_LINK : WALK_ARRIVED;
		}
		w->hops++;
		return true;
	}
	w->verdict = WALK_LOOP;
	return true;
}

struct walk walk_lid(struct fabric *f, uint32_t sw, uint16_t lid, walk_fetch *fetch, void *arg)
{
	struct walk w = {.sw = sw, .end = FABRIC_NONE};
	struct walk_block need = {FABRIC_NONE, lid / IB_LFT_BLOCK};

	while (!walk_on(f, &w, lid) && fetch && need.sw != w.sw) {
		need.sw = w.sw;
		fetch(arg, f, &need, 1);
	}
	return w;
}

/* True if the walk has ended at the link of CA port `end`, its own or that of its PF. */
static bool reached(const struct fabric *f, const struct walk *w, uint32_t end)
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

/* Walks from many CA ports to one LID. */
struct walks {
	uint32_t *from;    /* owned; CA ports */
	struct walk *walk; /* owned */
	unsigned count;
	struct walk_block *need; /* owned; unknown blocks that walks have stopped at */
	bool *asked; /* owned; of each switch: its block has been fetched, or tried to */
};

static int begin_walks(const struct fabric *f, struct walks *w, uint32_t end, unsigned sources)
{
	uint32_t step = sources && f->ends > sources ? f->ends / sources : 1;

	w->from = malloc((f->ends + 1u) * sizeof *w->from);
	w->walk = calloc(f->ends + 1u, sizeof *w->walk);
	w->need = malloc((f->switches + 1u) * sizeof *w->need);
	w->asked = calloc(f->switches + 1u, sizeof *w->asked);
	if (!w->from || !w->walk || !w->need || !w->asked)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->ends; i += step) {
		if (f->end[i].sw == FABRIC_NONE || i == end)
			continue;
		w->from[w->count] = i;
		w->walk[w->count++] = (struct walk){WALK_UNKNOWN, FABRIC_NONE, f->end[i].sw, 0};
	}
	return 0;
}

/* Goes on with all walks as far as they get. Returns how many blocks they need that nobody has
 * asked for yet. */
static unsigned go_on(const struct fabric *f, struct walks *w, uint16_t lid)
{
	unsigned n = 0;

	for (unsigned i = 0; i < w->count; i++) {
		struct walk *x = &w->walk[i];

		if (x->verdict != WALK_UNKNOWN || walk_on(f, x, lid) || w->asked[x->sw])
			continue;
		w->asked[x->sw] = true;
		w->need[n++] = (struct walk_block){x->sw, lid / IB_LFT_BLOCK};
	}
	return n;
}

static void free_walks(struct walks *w)
{
	free(w->from);
	free(w->walk);
	free(w->need);
	free(w->asked);
}

int walk_verify(struct fabric *f, uint16_t lid, uint32_t end, unsigned sources, walk_fetch *fetch,
		void *arg, unsigned *ret_walks, char *ret_text, size_t room)
{
	struct walks w = {0};
	unsigned n;
	int rc = begin_walks(f, &w, end, sources);

	if (rc)
		snprintf(ret_text, room, "no memory");
	while (!rc && (n = go_on(f, &w, lid)) && fetch)
		fetch(arg, f, w.need, n);
	for (unsigned i = 0; !rc && i < w.count; i++)
		if (!reached(f, &w.walk[i], end))
			rc = describe(f, &w.walk[i], w.from[i], lid, end, ret_text, room);
	*ret_walks = w.count;
	free_walks(&w);
	return rc;
}
