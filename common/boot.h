/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef IBVMIG_COMMON_BOOT_H
#define IBVMIG_COMMON_BOOT_H

/* Which run of the kernel this is: 32 hex digits, other ones after each boot; "" if that is not
 * known (random(4), boot_id). */
void boot_id(char text[static 33]);

#endif
