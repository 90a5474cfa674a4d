/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The start of a child of a fork. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CHILD_H
#define IBVMIG_GUEST_AGENT_SHIM_CHILD_H

#pragma GCC visibility push(hidden)
/* Before the first device is opened. 0 or -1. */
int fork_watch(void);
#pragma GCC visibility pop

#endif
