/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of shim/verbs/srq.c that CQs need, for tests that have no SRQ. */
#ifndef IBVMIG_TESTS_GUEST_SRQ_STUB_H
#define IBVMIG_TESTS_GUEST_SRQ_STUB_H

#include "guest-agent/shim/verbs/srq.h"

void srq_source(struct shim_srq *s, uint32_t slot, struct ibv_wc *wc)
{
	(void)s;
	(void)slot;
	(void)wc;
}
bool srq_take(struct shim_srq *s, uint32_t slot, struct shim_qp *qp, uint64_t *ret_wr_id)
{
	(void)s;
	(void)slot;
	(void)qp;
	(void)ret_wr_id;
	return false;
}

#endif
