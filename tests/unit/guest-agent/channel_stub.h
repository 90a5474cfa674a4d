/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of shim/verbs/channel.c that CQs need, for tests in which no program sleeps on a
 * channel. A test has its own channel_push(). */
#ifndef IBVMIG_TESTS_GUEST_CHANNEL_STUB_H
#define IBVMIG_TESTS_GUEST_CHANNEL_STUB_H

#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/cq.h"

void channel_forget(struct shim_channel *ch, struct shim_cq *c)
{
	(void)ch;
	(void)c;
}
void channel_left(struct shim_channel *ch, struct shim_cq *c)
{
	(void)ch;
	(void)c;
}
void channel_retract(struct shim_channel *ch, struct shim_cq *c)
{
	(void)ch;
	(void)c;
}
int channel_arm(struct shim_channel *ch, struct shim_cq *c, int solicited_only)
{
	(void)ch;
	return cq_arm_anew(c, solicited_only);
}

#endif
