/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The ways to the other ends and their path records. A process may have as many as a subnet has
 * ports, and looks one up for each QP that it connects: a hash table of pointers that only grows.
 */
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/core/link.h"

#include <string.h>
#include <time.h>

#define SLOTS_MIN 64u
#define LOOKS     2u     /* at what is built on a record that has changed */
#define PKEY_BASE 0x7fff /* without the membership bit */
#define ANSWER_S  3      /* the agent itself waits 2 s for the host */
/* A host that does not answer must not keep each connect waiting. */
#define FAILED_AGAIN_US 10000000

/* Under shim.call, as what the routes hold. */
static struct {
	struct shim_route **slot; /* owned; a power of two of them, at most half in use */
	uint32_t slots, count;
} routes;

static uint64_t mix(uint64_t h, const uint8_t bytes[8])
{
	uint64_t x;

	memcpy(&x, bytes, sizeof(x));
	/* Multiplication moves differences up, the shift brings them down to the index. */
	h = (h ^ x) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 32;
}

/* The route's slot, or the free one where it belongs. */
static struct shim_route **slot_of(struct shim_route **slot, uint32_t slots, const uint8_t *sgid,
				   const uint8_t *dgid, uint16_t pkey)
{
	uint64_t h = mix(mix(mix(pkey, dgid), dgid + 8), sgid + 8);
	uint32_t i = (uint32_t)h & (slots - 1);

	while (slot[i] && (slot[i]->pkey != pkey || memcmp(slot[i]->dgid, dgid, 16) ||
			   memcmp(slot[i]->sgid, sgid, 16)))
		i = (i + 1) & (slots - 1);
	return &slot[i];
}

/* True if there is room for another one. */
static bool make_room(void)
{
	uint32_t slots = routes.slots ? routes.slots * 2 : SLOTS_MIN;
	struct shim_route **slot;

	if (routes.count >= ROUTES_MAX)
		return false;
	if (routes.count + 1 <= routes.slots / 2)
		return true;
	slot = calloc(slots, sizeof(struct shim_route *));
	if (!slot)
		return false;
	for (uint32_t i = 0; i < routes.slots; i++) {
		struct shim_route *r = routes.slot[i];

		if (r)
			*slot_of(slot, slots, r->sgid, r->dgid, r->pkey) = r;
	}
	free(routes.slot);
	routes.slot = slot;
	routes.slots = slots;
	return true;
}

static struct shim_route *route_new(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey)
{
	struct shim_route *r = make_room() ? calloc(1, sizeof(*r)) : NULL;

	if (!r)
		return NULL;
	memcpy(r->sgid, sgid, 16);
	memcpy(r->dgid, dgid, 16);
	r->pkey = pkey;
	*slot_of(routes.slot, routes.slots, sgid, dgid, pkey) = r;
	routes.count++;
	return r;
}

/* NULL: it is not there. */
static struct shim_route *route_find(const uint8_t *sgid, const uint8_t *dgid, uint16_t pkey)
{
	return routes.slots ? *slot_of(routes.slot, routes.slots, sgid, dgid, pkey) : NULL;
}

struct shim_route *route_get(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.call);
	struct shim_route *r = route_find(sgid, dgid, pkey);

	return r ? r : route_new(sgid, dgid, pkey);
}

void route_ask(struct shim_route *r, bool reconnect)
{
	struct shim_path p = {.head = {.bytes = sizeof(p), .type = SHIM_PATH},
			      .pkey = r->pkey,
			      .reconnect = reconnect};

	memcpy(p.sgid, r->sgid, 16);
	memcpy(p.dgid, r->dgid, 16);
	p.head.cookie = shim_cookie();
	pthread_mutex_lock(&shim.call);
	r->cookie = p.head.cookie;
	r->reconnect = reconnect;
	r->asked_us = now_us();
	r->state = ROUTE_ASKED;
	pthread_mutex_unlock(&shim.call);
	shim_send(&p);
}

/* The next whose answer is still to come, from slot *at on, which is then behind it; NULL: none. A
 * table that has grown, from *slots, is begun anew. */
static struct shim_route *next_asked(uint32_t *at, uint32_t *slots)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.call);

	if (*slots != routes.slots)
		*at = 0;
	*slots = routes.slots;
	while (*at < routes.slots) {
		struct shim_route *r = routes.slot[(*at)++];

		if (r && r->state == ROUTE_ASKED)
			return r;
	}
	return NULL;
}

void routes_ask_again(void)
{
	struct shim_route *r;
	uint32_t at = 0, slots = 0;

	while ((r = next_asked(&at, &slots)))
		route_ask(r, r->reconnect);
}

/* The table is the parent's: it is left, not freed. */
void routes_forget_all(void)
{
	routes.slot = NULL;
	routes.slots = routes.count = 0;
}

static bool same_record(const struct shim_path *a, const struct shim_path *b)
{
	return a->dlid == b->dlid && a->slid == b->slid && a->sl == b->sl && a->mtu == b->mtu &&
	       a->rate == b->rate;
}

static void take(struct shim_route *r, const struct shim_path *p)
{
	r->path = *p;
	r->changed = true;
	r->untaken = LOOKS;
}

bool route_answered(const struct shim_path *p)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.call);
	struct shim_route *r = route_find(p->sgid, p->dgid, p->pkey);
	bool other;

	if (!r || r->state != ROUTE_ASKED || r->cookie != p->head.cookie)
		return false;
	other = !p->head.status && r->path.dlid && !same_record(&r->path, p);
	if (other)
		take(r, p);
	else if (!p->head.status)
		r->path = *p; /* else what was known last is the best that there is */
	r->state = p->head.status ? ROUTE_FAILED : ROUTE_KNOWN;
	r->stale |= p->head.status && r->again;
	r->again = false;
	pthread_cond_broadcast(&shim.call_done);
	return other;
}

static bool mark_stale(struct shim_route *r)
{
	bool known = r && r->state != ROUTE_NONE;

	if (known)
		r->stale = true;
	return known;
}

bool route_stale(const struct shim_path *p)
{
	static const uint8_t none[sizeof(p->dgid)];
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.call);
	bool any = false;

	if (memcmp(p->dgid, none, sizeof(none))) {
		any = mark_stale(route_find(p->sgid, p->dgid, p->pkey & PKEY_BASE));
		return mark_stale(route_find(p->sgid, p->dgid, p->pkey | (uint16_t)~PKEY_BASE)) ||
		       any;
	}
	for (uint32_t i = 0; i < routes.slots; i++)
		any |= mark_stale(routes.slot[i]);
	return any;
}

static struct shim_route *find_stale(const uint8_t *sgid, const uint8_t *dgid, uint16_t pkey)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.call);
	struct shim_route *r = route_find(sgid, dgid, pkey);

	if (!r || !r->stale || r->state == ROUTE_ASKED)
		return NULL;
	r->stale = false;
	r->again = true;
	return r;
}

bool route_refresh(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey)
{
	struct shim_route *r = find_stale(sgid, dgid, pkey);

	if (r)
		route_ask(r, false);
	return r;
}

/* Takes the record for the way with that P_Key, if there is one. */
static bool take_record(const struct shim_path *p, uint16_t pkey)
{
	struct shim_route *r = route_find(p->sgid, p->dgid, pkey);

	if (!r || r->state == ROUTE_NONE || same_record(&r->path, p))
		return false;
	take(r, p);
	return true;
}

/* An answer that is on its way may be of before the change, but the agent sends in order. */
bool route_changed(const struct shim_path *p)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.call);
	bool any = take_record(p, p->pkey & PKEY_BASE);

	any |= take_record(p, p->pkey | (uint16_t)~PKEY_BASE);
	return any;
}

bool route_untaken(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.call);
	const struct shim_route *r = route_find(sgid, dgid, pkey);

	return r && r->untaken;
}

void routes_taken(void)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.call);

	for (uint32_t i = 0; i < routes.slots; i++)
		if (routes.slot[i] && routes.slot[i]->untaken)
			routes.slot[i]->untaken--;
}

void route_told(const uint8_t sgid[16], uint16_t pkey, const struct shim_end *end)
{
	struct shim_route *r = route_get(sgid, end->dgid, pkey);
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.call);

	if (!r)
		return;
	r->path = (struct shim_path){.dlid = end->dlid,
				     .slid = end->slid,
				     .mtu = end->mtu,
				     .sl = end->sl,
				     .rate = end->rate};
	if (r->state != ROUTE_ASKED) /* that answer will be the newer one */
		r->state = ROUTE_KNOWN;
}

void route_wait(const struct shim_route *r)
{
	struct timespec until;
	int rc = 0, cancel;

	if (r->state != ROUTE_ASKED)
		return;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ANSWER_S;
	ctl_exit();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&shim.call);
	while (r->state == ROUTE_ASKED && !shim.agent_lost && !rc)
		rc = pthread_cond_timedwait(&shim.call_done, &shim.call, &until);
	pthread_mutex_unlock(&shim.call);
	pthread_setcancelstate(cancel, NULL);
	ctl_enter();
}

void route_renew(struct shim_route *r)
{
	const bool lately = now_us() - r->asked_us < FAILED_AGAIN_US;

	if (r->state != ROUTE_ASKED && !(r->state == ROUTE_FAILED && lately))
		route_ask(r, false);
	route_wait(r);
}

enum ibv_mtu route_mtu(unsigned bytes)
{
	enum ibv_mtu code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && 256u << code <= bytes)
		code++;
	return code;
}

void route_apply(const struct shim_route *r, struct ibv_qp_attr *a)
{
	enum ibv_mtu mtu;

	if (!r || !route_leads(r) || !a->ah_attr.dlid)
		return;
	a->ah_attr.dlid = r->path.dlid;
	a->ah_attr.sl = r->path.sl;
	/* 0 is the program's wish not to be limited. */
	if (a->ah_attr.static_rate && r->path.rate)
		a->ah_attr.static_rate = r->path.rate;
	/* Both ends see the same record, so they come to the same; never more than they had. */
	mtu = route_mtu(r->path.mtu);
	if (r->path.mtu && mtu < a->path_mtu)
		a->path_mtu = mtu;
}
