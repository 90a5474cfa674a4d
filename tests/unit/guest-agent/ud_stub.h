/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of ud that the data path needs, for tests that have no datagrams. */
#ifndef IBVMIG_TESTS_GUEST_UD_STUB_H
#define IBVMIG_TESTS_GUEST_UD_STUB_H

#include <errno.h>

#include "guest-agent/shim/verbs/ud.h"

bool ud_translate(struct shim_qp *qp, struct ibv_send_wr *wr)
{
	(void)qp;
	(void)wr;
	return true;
}
void ud_source(struct ibv_wc *wc, const struct ibv_sge *sge, int num_sge)
{
	(void)wc;
	(void)sge;
	(void)num_sge;
}
int ud_marker(struct shim_qp *qp, struct ibv_send_wr *wr)
{
	(void)qp;
	(void)wr;
	return ENOSYS;
}
void ud_drop_marker(struct shim_qp *qp)
{
	(void)qp;
}
void ud_check_all_covered(void)
{
}

#endif
