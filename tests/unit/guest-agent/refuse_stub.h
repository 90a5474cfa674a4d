/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of shim/verbs/refuse.c that shared receive queues need; the file is about much more. */
#ifndef IBVMIG_TESTS_GUEST_REFUSE_STUB_H
#define IBVMIG_TESTS_GUEST_REFUSE_STUB_H

#include <errno.h>

#include "guest-agent/shim/verbs/refuse.h"

int refuse_shared_xrc(const char *verb)
{
	(void)verb;
	return EOPNOTSUPP;
}
int refuse_srq_type(const char *verb)
{
	(void)verb;
	return EOPNOTSUPP;
}

#endif
