/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How malloc works in ibvmigd. */
#ifndef IBVMIG_DAEMON_HEAP_H
#define IBVMIG_DAEMON_HEAP_H

/* Before the first thread starts. */
void heap_init(void);

#endif
