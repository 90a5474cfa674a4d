/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How an operation begins, and what a timer does between them: OpenSM leads, and nothing half done
 * is left. */
#include "common/util.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/moves/own.h"
#include "sm-helper/moves/slots.h"

#include <errno.h>

#define UNTOLD_MAX 3 /* tries, a second apart */
#define LOOK_MS    10000

/* OpenSM is master and ready, and the registry is the newest. */
static int lead(struct ops *o, struct op_error *e)
{
	char text[BACKEND_ERROR_MAX];
	int rc = ops_refresh(o, e);

	rc = rc ? rc : own_check(o, OWN_FRESH_MS, e);
	if (!rc && o->twin && (rc = twin_lead(o->twin, text)))
		return ops_fail(e, rc == -EPERM ? -EHOSTDOWN : rc, 503,
				rc == -EPERM ? "sm-not-master" : "registry-unsure", "%s", text);
	return rc;
}

static int settle_once(struct ops *o, struct op_error *e)
{
	int rc = o->reconciled ? 0 : ops_settle(o, e);

	o->reconciled = !rc;
	return rc;
}

int ops_begin(struct ops *o, struct op_error *e)
{
	int rc = lead(o, e);

	return rc ? rc : settle_once(o, e);
}

/* OpenSM may have forgotten what ports show, in a state that it was not told in. A sweep that ends
 * while it is told makes such a state too, and is seen by the next call: only batches that follow
 * one upon another carry `stated` on. */
static int restate(struct ops *o, struct op_error *e)
{
	bool told;
	int rc;

	if (o->stated.instance == o->epoch.instance && o->stated.generation == o->epoch.generation)
		return 0;
	o->stated = o->epoch;
	told = slots_restate(o);
	rc = ops_refresh(o, e);
	if (told) {
		o->untold = 0;
	} else if (!rc && ++o->untold == UNTOLD_MAX) { /* refused for good, not by a sweep */
		o->stated = o->epoch;
		o->untold = 0;
	}
	return rc;
}

/* OpenSM may not have noticed a standby that has come; it looks when it sweeps. */
static void notice_standby(struct ops *o)
{
	uint64_t standby = twin_standby(o->twin);
	char text[BACKEND_ERROR_MAX];

	if (!standby || o->others || standby == o->standby)
		return;
	o->standby = standby;
	backend_sweep(o->backend, text);
}

/* While the peer cannot be told: whether an SM is in the fabric that would take over. OpenSM's
 * knowledge of others is of its last sweep, so one is made. It is made here and not in the middle
 * of a move, when a sweep would find the GUIDs on their way. */
static void look_for_others(struct ops *o)
{
	struct op_error ignored;

	if (twin_ready(o->twin)) {
		o->others_looked = false;
		o->looked_ms = 0;
		return;
	}
	if ((o->others_looked && !o->others) || (o->looked_ms && now_ms() < o->looked_ms + LOOK_MS))
		return;
	o->looked_ms = now_ms();
	o->others_looked = !ops_sweep(o, &ignored) && !ops_refresh(o, &ignored);
}

int ops_reconcile(struct ops *o, struct op_error *e)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	int rc = ops_start(o, 0, e);

	if (rc || (rc = lead(o, e)))
		return rc;
	if (o->twin) { /* first: what is to be settled may need one who can be told, or nobody */
		twin_mend(o->twin);
		notice_standby(o);
		look_for_others(o);
	}
	if (o->mend_ms && now_ms() >= o->mend_ms + LOOK_MS)
		o->reconciled = false;
	rc = settle_once(o, e);
	return rc ? rc : restate(o, e);
}

bool ops_may_change(struct ops *o)
{
	return !o->twin || twin_ready(o->twin) || (o->others_looked && !o->others);
}
