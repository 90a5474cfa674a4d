/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A resume builds nothing on a device that lacks a P_Key of its QPs: they would speak in another
 * partition, or in none. */
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/port/pkey.h"
#include "guest-agent/shim/verbs/qp.h"

#include <errno.h>
#include <string.h>

#define WAIT_US 3000000 /* the subnet manager may still write the table */

/* The resume fails when the wait for the table is over; its deadline may come before that. */
static void say_missing(const struct shim_qp *q, int error)
{
	const uint8_t port = q->attr.port_num;
	const int index = q->attr.pkey_index;
	bool limited = pkey_is_limited_now(q->ctx, port, index);
	char why[SHIM_TEXT_MAX];

	snprintf(why, sizeof(why),
		 "%.15s: QP 0x%x has P_Key 0x%04x, %s \"%.20s\" port %u %s; the subnet manager "
		 "must give it to the vGUID",
		 program_invocation_short_name, q->v.qp_num, pkey_value(q->ctx, port, index),
		 limited ? "of which" : "which", q->ctx->real->device->name, port,
		 limited ? "is a limited member only" : "does not have");
	if (now_us() - job.start_us > WAIT_US)
		job_fail(error, "%s", why);
	else
		memcpy(job.report.why, why, sizeof(why));
}

/* A QP that was built ahead, when the table was another one, gets its index of now. */
static int move_qp(struct shim_qp *q, int index)
{
	if (!q->real || q->pkey_at == index)
		return 0;
	if (q->ud)
		qp_destroy_real(q);
	else if (q->joined)
		q->start_over = true;
	else
		return qp_set_init(q);
	return 0;
}

int resume_check_pkeys(void)
{
	struct shim_context *c;
	struct shim_qp *q;
	int index, rc;

	if (job.role != SHIM_ROLE_MOVER)
		return 0;
	list_for_each (c, &shim.contexts, link)
		if (c->in_job)
			pkeys_opened(c);
	list_for_each (q, &shim.qps, link) {
		if (!q->in_job || !pkey_matters(q))
			continue;
		index = pkey_index(q->ctx, q->attr.port_num, q->attr.pkey_index);
		if (index < 0) {
			say_missing(q, index);
			return index;
		}
		rc = move_qp(q, index);
		if (rc) {
			job_fail(rc, "QP 0x%x cannot be put into its partition: %s", q->v.qp_num,
				 strerror(-rc));
			return rc;
		}
	}
	return 0;
}
