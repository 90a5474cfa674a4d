// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Automatic path migration (IBA 17.2.8), which stock rxe lacks. The lock is the QP's state_lock. */
#include "rxe.h"
#include "rxe_loc.h"

/* The MigReq bit of what a QP sends: only a connection that has an alternate path clears it. */
int ibx_mig_bit(struct rxe_qp *qp)
{
	if (qp_type(qp) != IB_QPT_RC && qp_type(qp) != IB_QPT_UC)
		return 1;
	return READ_ONCE(qp->attr.path_mig_state) == IB_MIG_MIGRATED;
}

static void swap_paths(struct rxe_qp *qp)
{
	swap(qp->pri_av, qp->alt_av);
	swap(qp->attr.port_num, qp->attr.alt_port_num);
	swap(qp->attr.pkey_index, qp->attr.alt_pkey_index);
	swap(qp->attr.timeout, qp->attr.alt_timeout);
	qp->qp_timeout_jiffies = 0;
	if (qp->attr.timeout)
		qp->qp_timeout_jiffies = max_t(u64, nsecs_to_jiffies(4096ULL << qp->attr.timeout),
					       1);
}

/* The armed alternate path becomes the primary one; false if none is armed. */
bool ibx_apm_switch(struct rxe_qp *qp)
{
	struct ib_event event = {
		.device = qp->ibqp.device, .element.qp = &qp->ibqp, .event = IB_EVENT_PATH_MIG};
	unsigned long flags;
	bool armed;

	spin_lock_irqsave(&qp->state_lock, flags);
	armed = qp->attr.path_mig_state == IB_MIG_ARMED && ibx_path(&qp->alt_av)->dlid_be;
	if (armed) {
		swap_paths(qp);
		WRITE_ONCE(qp->attr.path_mig_state, IB_MIG_MIGRATED);
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);
	if (armed && qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
	return armed;
}

/* Both ends have loaded their paths once a packet without MigReq comes. */
static void arm(struct rxe_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->state_lock, flags);
	if (qp->attr.path_mig_state == IB_MIG_REARM)
		WRITE_ONCE(qp->attr.path_mig_state, IB_MIG_ARMED);
	spin_unlock_irqrestore(&qp->state_lock, flags);
}

/* A packet of a connection has come; false if it came by a path that is not the connection's. */
bool ibx_apm_receive(struct rxe_qp *qp, struct sk_buff *skb, struct rxe_pkt_info *pkt)
{
	bool primary = ibx_came_by(&qp->pri_av, skb, pkt);

	if (primary && !bth_mig(pkt))
		arm(qp);
	if (bth_mig(pkt) && READ_ONCE(qp->attr.path_mig_state) == IB_MIG_ARMED &&
	    ibx_came_by(&qp->alt_av, skb, pkt))
		return ibx_apm_switch(qp) || primary;
	return primary;
}

void ibx_apm_modify(struct rxe_qp *qp, enum ib_mig_state to)
{
	if (to != IB_MIG_MIGRATED || !ibx_apm_switch(qp))
		WRITE_ONCE(qp->attr.path_mig_state, to);
}
