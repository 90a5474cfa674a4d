/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The tap of a lab VF: a port of the host's data bridge, to which QEMU attaches. */
#ifndef IBVMIG_LAB_TAP_H
#define IBVMIG_LAB_TAP_H

#include <net/if.h>

#define DATA_BRIDGE "ibdata"
#define DATA_MTU    4200

/* "tap-" and the VF's name, which has at most 11 characters. */
void tap_name(const char *vf, char name[static IF_NAMESIZE]);

/* Creates it, persistent, neither learning nor flooding unicast, or completes one that is there.
 * 0 or -errno; -ENODEV: there is no bridge DATA_BRIDGE. */
int tap_create(const char *name);
/* 0, also when there is none, or -errno. */
int tap_delete(const char *name);

#endif
