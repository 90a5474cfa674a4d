/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The operations that fail with EOPNOTSUPP. The functions return it and set errno. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_REFUSE_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_REFUSE_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
void refuse_set_ops(struct verbs_context *v);
int refuse_devx(const char *verb);
int refuse_shared_xrc(const char *verb); /* with another process */
int refuse_cm_xrc(const char *verb);
int refuse_srq_type(const char *verb);
#pragma GCC visibility pop

#endif
