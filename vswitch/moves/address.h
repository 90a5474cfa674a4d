/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The three ways to give VMs LIDs, and the port whose LID a VM may share. */
#ifndef IBVMIG_VSWITCH_MOVES_ADDRESS_H
#define IBVMIG_VSWITCH_MOVES_ADDRESS_H

#include "vswitch/model/fabric.h"

enum address_mode {
	ADDRESS_PREPOPULATED, /* VFs have a LID each; VM and destination exchange theirs */
	ADDRESS_DYNAMIC,      /* a VM gets the next free one and takes it along */
	ADDRESS_SHARED_PORT,  /* LIDs belong to hosts: the VM's changes with every move */
	ADDRESS_MODES
};

const char *address_mode_name(enum address_mode m);
/* 0 or -EINVAL. */
int address_mode_parse(const char *name, enum address_mode *ret_mode, struct fabric_error *e);

/* The PF beside a VF, or the port itself where it has none. */
uint32_t address_host(const struct fabric *f, uint32_t vf);

#endif
