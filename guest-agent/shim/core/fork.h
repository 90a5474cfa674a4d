/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Descriptors that lead nowhere in a child of a fork. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_FORK_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_FORK_H

#include <infiniband/verbs.h>

#pragma GCC visibility push(hidden)
/* A descriptor of the device or of ours, which children must not use. */
void fork_keep_fd(int fd);
void fork_drop_fd(int fd); /* before it is closed */
/* The first device is about to be opened: children will need a place that leads nowhere. */
void fork_prepare(void);
/* In a child: descriptors that were kept lead nowhere. */
void fork_cut_fds(void);
/* The poll of an inherited CQ: -EBADF. */
int fork_no_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
#pragma GCC visibility pop

#endif
