/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The process of a running QEMU, and its RLIMIT_MEMLOCK. */
#ifndef IBVMIG_DAEMON_LIBVIRT_MEMLOCK_H
#define IBVMIG_DAEMON_LIBVIRT_MEMLOCK_H

#include <sys/types.h>

/* As libvirt says it in pid_dir/NAME.pid. 0 or -errno with a line. */
int qemu_pid(const char *pid_dir, const char *name, pid_t *ret_pid, char *error);
/* Lifts the limit of the QEMU whose process is named in pid_dir/NAME.pid, which libvirt writes. A
 * VF's DMA pins all memory of the guest, and what is mapped for other devices beside it. 0 or
 * -errno with a line. */
int memlock_lift(const char *pid_dir, const char *name, char *error);

#endif
