/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The answer to the agent's query: the regions and QPs of this process, and what is not covered. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/port/pkey.h"
#include "guest-agent/shim/verbs/ud.h"

#include <string.h>

/* Counts the sends that the program has posted and not seen completed. The data path counts nothing
 * for it; that is done here, on a query only. */
static void count_unacked(struct shim_qp *q, struct shim_qp_info *i)
{
	struct shim_queue *s = &q->send;

	lock_take(&s->lock);
	for (uint64_t n = atomic_load(&s->tail); n != s->head; n++) {
		const struct ibv_send_wr *wr = &s->send[n & s->mask].wr;

		i->unacked++;
		for (int k = 0; k < wr->num_sge; k++)
			i->unacked_bytes += wr->sg_list[k].length;
	}
	lock_give(&s->lock);
}

static void describe_qp(struct shim_qp *q, uint32_t cookie)
{
	struct shim_qp_info i = {.head = {sizeof(i), SHIM_QP_INFO, 0, cookie, 0}};

	i.vqpn = q->v.qp_num;
	i.dvqpn = q->dvqpn;
	i.dqpn = q->dqpn;
	i.qpn = q->real ? q->real->qp_num : 0;
	i.type = (uint8_t)q->v.qp_type;
	i.state = (uint8_t)q->v.state;
	i.connected = q->connected;
	i.uncovered = q->uncovered != NULL;
	memcpy(i.sgid, q->sgid, 16);
	memcpy(i.dgid, q->dgid, 16);
	i.vguid = q->ctx->guid_count ? q->ctx->guid[0] : 0;
	if (q->real && pkey_matters(q))
		i.pkey = pkey_value(q->ctx, q->attr.port_num, q->attr.pkey_index);
	count_unacked(q, &i);
	shim_send(&i);
}

/* A process without a QP has nothing that a migration could break. */
void shim_describe(uint32_t cookie)
{
	struct shim_process p = {.head = {sizeof(p), SHIM_PROCESS, 0, cookie, 0}};
	struct shim_head end = {sizeof(end), SHIM_QUERY_END, 0, cookie, 0};
	struct shim_context *c;
	struct shim_mr *m;
	struct shim_qp *q;

	pthread_mutex_lock(&shim.ctl);
	list_for_each (m, &shim.mrs, link)
		p.mr_bytes += m->v.length;
	ud_check_all_covered();
	p.uncovered = shim.uncovered_objects != 0;
	snprintf(p.why, sizeof(p.why), "%s", shim.uncovered_why);
	list_for_each (q, &shim.qps, link) {
		if (!q->uncovered || p.uncovered)
			continue;
		p.uncovered = 1;
		snprintf(p.why, sizeof(p.why), "QP 0x%x: %s", q->v.qp_num, q->uncovered);
	}
	shim_send(&p);
	list_for_each (c, &shim.contexts, link)
		pkeys_refresh(c);
	list_for_each (q, &shim.qps, link)
		describe_qp(q, cookie);
	parts_describe(cookie);
	pthread_mutex_unlock(&shim.ctl);
	shim_send(&end);
}
