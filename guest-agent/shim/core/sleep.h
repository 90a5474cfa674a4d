/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_SLEEP_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_SLEEP_H

#pragma GCC visibility push(hidden)
/* Sleeps until fd is readable. 0, or -errno: -EINTR where a read() would say so, after a signal
 * whose handler was installed without SA_RESTART. */
int shim_sleep(int fd);
#pragma GCC visibility pop

#endif
