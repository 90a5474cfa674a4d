/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef IBVMIG_COMMON_BOOT_H
#define IBVMIG_COMMON_BOOT_H

/* The run of the kernel that this is: 32 hex digits, other ones after each boot; "" if it is not
 * known (random(4), boot_id). A file of its own: libsystemd stays out of the shim (util.c), and the
 * simulated hosts bring one for each host. */
void boot_id(char text[static 33]);

#endif
