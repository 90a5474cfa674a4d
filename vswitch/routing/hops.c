/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How many hops a switch is from another one, and which of its ports lead there. */
#include "vswitch/routing/router.h"

#include <errno.h>

/* How a switch reaches a destination switch: a class and the number of hops. A packet may only
 * go to a switch of the same or a lower class; within a class the hops go down. */
enum { CLASS_DOWN, CLASS_UP, CLASS_STRAY, CLASS_NONE };
#define HOP(class, hops) ((uint16_t)((class) << 12 | (hops)))
#define HOP_CLASS(h)     ((h) >> 12)
#define HOP_NONE         HOP(CLASS_NONE, 0)

/* Fills in hops of one class to switch `to`, breadth first from those that are in the queue. Links
 * that may be used: any for minhop, only climbing away from `to` for what is above it. */
static void hops_by(struct router *r, uint32_t to, uint32_t queued, unsigned class, bool climb)
{
	for (uint32_t head = 0; head < queued; head++) {
		uint32_t at = r->queue[head];
		uint16_t h = r->hop[(size_t)at * r->n + to];
		unsigned hops = HOP_CLASS(h) == class ? (h & 0xfffu) : 0;

		for (unsigned p = 1; p <= r->f->sw[r->sw[at]].ports; p++) {
			uint32_t x = router_neighbour(r, at, p);
			uint16_t *hx = x == FABRIC_NONE ? NULL : &r->hop[(size_t)x * r->n + to];

			if (!hx || *hx != HOP_NONE || (climb && !router_is_above(r, x, at)))
				continue;
			*hx = HOP(class, hops + 1);
			r->queue[queued++] = x;
		}
	}
}

/* Switches that cannot go down to `to` go up, to a neighbour that needs the fewest hops. */
static void hops_up(struct router *r, uint32_t to)
{
	for (uint32_t i = 0; i < r->n; i++) {
		uint32_t at = r->order[i];
		uint16_t *h = &r->hop[(size_t)at * r->n + to];
		unsigned least = 0xfff;

		if (*h != HOP_NONE)
			continue;
		for (unsigned p = 1; p <= r->f->sw[r->sw[at]].ports; p++) {
			uint32_t x = router_neighbour(r, at, p);
			uint16_t hx;

			if (x == FABRIC_NONE || !router_is_above(r, x, at))
				continue;
			hx = r->hop[(size_t)x * r->n + to];
			if (hx != HOP_NONE && (hx & 0xfffu) < least)
				least = hx & 0xfff;
		}
		if (least < 0xfff)
			*h = HOP(CLASS_UP, least + 1);
	}
}

int router_hops_to(struct router *r, uint32_t to, struct fabric_error *e)
{
	uint32_t queued = 0;

	for (uint32_t i = 0; i < r->n; i++)
		r->hop[(size_t)i * r->n + to] = HOP_NONE;
	r->hop[(size_t)to * r->n + to] = HOP(CLASS_DOWN, 0);
	r->queue[0] = to;
	hops_by(r, to, 1, CLASS_DOWN, r->rules->ranked);
	if (r->rules->ranked) {
		hops_up(r, to);
		/* there is no way up and down from one root to a switch below another: only
		 * management packets to switches go there, so they may go as they like */
		for (uint32_t i = 0; i < r->n; i++)
			if (r->hop[(size_t)i * r->n + to] != HOP_NONE)
				r->queue[queued++] = i;
		hops_by(r, to, queued, CLASS_STRAY, false);
	}
	for (uint32_t i = 0; i < r->n; i++)
		if (r->hop[(size_t)i * r->n + to] == HOP_NONE)
			return fabric_fail(e, -ENETUNREACH, "no links lead from switch %s to %s",
					   r->f->sw[r->sw[i]].desc, r->f->sw[r->sw[to]].desc);
	return 0;
}

/* True if a packet to `to` may go from `at` to its neighbour x. */
static bool leads(const struct router *r, uint32_t at, uint32_t x, uint32_t to)
{
	uint16_t h = r->hop[(size_t)at * r->n + to], hx = r->hop[(size_t)x * r->n + to];
	bool nearer = (hx & 0xfff) + 1 == (h & 0xfff);

	if (HOP_CLASS(h) == CLASS_STRAY)
		return HOP_CLASS(hx) == CLASS_STRAY ? nearer : (h & 0xfff) == 1;
	if (!nearer || HOP_CLASS(hx) > HOP_CLASS(h))
		return false;
	return !r->rules->ranked || router_is_above(r, x, at) == (HOP_CLASS(h) == CLASS_UP);
}

unsigned router_candidates(const struct router *r, uint32_t at, uint32_t to, uint8_t *ret_port)
{
	unsigned count = 0;

	for (unsigned p = 1; at != to && p <= r->f->sw[r->sw[at]].ports; p++) {
		uint32_t x = router_neighbour(r, at, p);

		if (x != FABRIC_NONE && leads(r, at, x, to))
			ret_port[count++] = (uint8_t)p;
	}
	return count;
}
