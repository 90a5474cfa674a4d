/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The end of a hold: what the program has posted meanwhile goes to the hardware. */
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/verbs/srq.h"

void qp_flush(struct shim_qp *q)
{
	lock_take(&q->recv.lock);
	queue_hold(&q->recv, false);
	recv_flush(q);
	lock_give(&q->recv.lock);
	lock_take(&q->send.lock);
	queue_hold(&q->send, false);
	q->wanted.type = 0;
	send_flush(q);
	lock_give(&q->send.lock);
}

void qp_unhold(struct shim_qp *q)
{
	qp_flush(q);
	srq_unhold(q);
	q->phase = QP_LIVE;
	q->in_job = false;
	q->said.drained_by = q->said.freeze_by = q->said.frozen_by = 0;
}
