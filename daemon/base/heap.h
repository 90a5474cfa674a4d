/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How malloc works in ibvmigd. */
#ifndef IBVMIG_DAEMON_BASE_HEAP_H
#define IBVMIG_DAEMON_BASE_HEAP_H

/* Before the first thread starts. */
void heap_init(void);
/* Gives free pages back, wherever they are: malloc itself does so at the end of the heap only. */
void heap_trim(void);

#endif
