/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A path record has changed, and connections and address handles are built on it: change.c brings
 * the former over, and the latter are made anew at once. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/repath/repath.h"
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>
#include <string.h>

/* A second look finds what the program was just making, with the old record, at the first. */
#define LOOK_AGAIN_US   1000000
#define REFRESH_US      10000000
#define HANDLE_AGAIN_MS 50

static struct {
	bool told;        /* records that nobody has looked at */
	uint64_t again;   /* when to look once more, 0: not */
	bool stale;       /* records are not known any more */
	uint64_t refresh; /* when those that are still not are asked for, 0: none is */
	bool handles;     /* some are .due */
} repath;

void repath_told(const struct shim_path *p)
{
	if (shim.fault & SHIM_FAULT_NO_SL)
		return;
	if (p->head.status)
		repath.stale |= route_stale(p);
	else
		repath.told |= route_changed(p);
}

void repath_answered(const struct shim_path *p)
{
	if (route_answered(p) && !(shim.fault & SHIM_FAULT_NO_SL))
		repath.told = true;
}

/* Who keeps no record is told of no change, so a record that something is built on is asked for
 * again. A path that has gone is asked for until it is back. */
static void refresh(uint64_t now)
{
	struct shim_ah *ah;
	struct shim_qp *q;
	bool asked = false;

	list_for_each (q, &shim.qps, link)
		asked |= q->connected && route_refresh(q->sgid, q->dgid, q->pkey);
	list_for_each (ah, &shim.ahs, link)
		asked |= ah->node && route_refresh(ah->sgid, ah->node->gid, ah->pkey);
	repath.stale = false;
	repath.refresh = asked ? now + REFRESH_US : 0;
}

/* Many records come together, so what is built on them is looked for once. */
static void look(uint64_t now)
{
	struct shim_ah *ah;
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		if (q->connected && route_untaken(q->sgid, q->dgid, q->pkey))
			change_want(q);
	list_for_each (ah, &shim.ahs, link) {
		ah->due |= ah->node && route_untaken(ah->sgid, ah->node->gid, ah->pkey);
		repath.handles |= ah->due;
	}
	repath.again = repath.told ? now + LOOK_AGAIN_US : 0;
	repath.told = false;
	routes_taken();
}

static void take_handles(void)
{
	struct shim_ah *ah;

	repath.handles = false;
	list_for_each (ah, &shim.ahs, link) {
		if (ah->due)
			ah->due = ah_take_path(ah) == -EAGAIN;
		repath.handles |= ah->due;
	}
}

static void step(void)
{
	uint64_t now = now_us();

	pthread_mutex_lock(&shim.ctl);
	if (repath.stale || (repath.refresh && now >= repath.refresh))
		refresh(now);
	if (repath.told || (repath.again && now >= repath.again))
		look(now);
	if (repath.handles)
		take_handles();
	change_step();
	pthread_mutex_unlock(&shim.ctl);
}

static int until(uint64_t us, uint64_t now)
{
	return now >= us ? 0 : (int)((us - now) / 1000) + 1;
}

static int timeout(void)
{
	uint64_t now = now_us();
	int ms = repath.handles ? HANDLE_AGAIN_MS : -1;

	if (repath.again)
		ms = sooner(ms, until(repath.again, now));
	if (repath.refresh)
		ms = sooner(ms, until(repath.refresh, now));
	return sooner(ms, change_timeout());
}

/* A new agent keeps no record, and is told of changes of those only that it keeps. */
static void agent_again(void)
{
	const struct shim_path all = {.head = {.status = -ESTALE}};

	repath_told(&all);
}

static bool making(char *ret_why, size_t bytes)
{
	bool wait = change_must_end();

	if (wait)
		snprintf(ret_why, bytes, "a connection is taking another path");
	return wait;
}

static bool concerned(void)
{
	change_give_way();
	return false;
}

static void qp_gone(const struct ibv_qp *qp)
{
	pthread_mutex_lock(&shim.ctl);
	change_end(to_qp(qp));
	pthread_mutex_unlock(&shim.ctl);
}

static void forget(void)
{
	memset(&repath, 0, sizeof(repath));
	change_forget_all();
}

const struct shim_part repath_part = {.name = "paths",
				      .making = making,
				      .concerned = concerned,
				      .agent_again = agent_again,
				      .step = step,
				      .timeout = timeout,
				      .qp_gone = qp_gone,
				      .forget = forget};
