/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of the shim that nearly all of its files need, for tests with one thread and without
 * events. */
#ifndef IBVMIG_TESTS_GUEST_SHIM_STUB_H
#define IBVMIG_TESTS_GUEST_SHIM_STUB_H

#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/verbs/context.h"

bool shim_ours(const struct ibv_context *c)
{
	return c != NULL;
}
void ctl_enter(void)
{
}
void ctl_exit(void)
{
}
void shim_log(const char *fmt, ...)
{
	(void)fmt;
}
void context_forget_events(struct shim_context *c, const void *object)
{
	(void)c;
	(void)object;
}

#endif
