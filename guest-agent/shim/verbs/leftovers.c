/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Objects that a program leaves behind when it closes their device, which is a leak and no error
 * (ibv_close_device(3)). The kernel gives them back with the device. Their memory stays the
 * program's, but no list has them any more: the device of none of them is there. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/mr.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/verbs/ud.h"

/* Takes each element e of the list off that is left, after the statement. */
#define TAKE_OFF(e, head, left, statement)                                                         \
	for (struct list *l_ = (head)->next, *next_; l_ != (head); l_ = next_) {                   \
		next_ = l_->next;                                                                  \
		(e) = list_entry(l_, __typeof__(*(e)), link);                                      \
		if (!(left))                                                                       \
			continue;                                                                  \
		statement;                                                                         \
		list_del(l_);                                                                      \
	}

void context_leave_objects(struct shim_context *c)
{
	struct shim_channel *ch;
	struct shim_xrcd *x;
	struct shim_srq *s;
	struct shim_ah *ah;
	struct shim_cq *cq;
	struct shim_mr *m;
	struct shim_qp *q;
	struct shim_pd *pd;

	mw_leave(c);
	pthread_mutex_lock(&shim.ctl);
	TAKE_OFF(q, &shim.qps, q->ctx == c, qp_leave(q));
	TAKE_OFF(ah, &shim.ahs, ah->pd->ctx == c, shim.dead_ahs -= ah->dead);
	TAKE_OFF(s, &shim.srqs, s->pd->ctx == c, );
	TAKE_OFF(m, &shim.mrs, m->pd->ctx == c, mr_leave(m));
	TAKE_OFF(cq, &shim.cqs, cq->ctx == c, );
	TAKE_OFF(ch, &shim.channels, ch->ctx == c, );
	TAKE_OFF(x, &shim.xrcds, x->ctx == c, );
	TAKE_OFF(pd, &shim.pds, pd->ctx == c, );
	pthread_mutex_unlock(&shim.ctl);
}
