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
#define HANDLE_AGAIN_MS 50

static struct {
	bool told;      /* records that nobody has looked at */
	uint64_t again; /* when to look once more, 0: not */
	bool handles;   /* some are .due */
} repath;

void repath_told(const struct shim_path *p)
{
	if (!(shim.fault & SHIM_FAULT_NO_SL))
		repath.told |= route_changed(p);
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
	if (repath.told || (repath.again && now >= repath.again))
		look(now);
	if (repath.handles)
		take_handles();
	change_step();
	pthread_mutex_unlock(&shim.ctl);
}

static int timeout(void)
{
	uint64_t now = now_us();
	int ms = repath.handles ? HANDLE_AGAIN_MS : -1;

	if (repath.again)
		ms = sooner(ms, now >= repath.again ? 0 : (int)((repath.again - now) / 1000) + 1);
	return sooner(ms, change_timeout());
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
				      .step = step,
				      .timeout = timeout,
				      .qp_gone = qp_gone,
				      .forget = forget};
