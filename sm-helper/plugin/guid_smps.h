/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GUIDInfo on its way to ports and back: one block of a port's GUID table an SMP. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_GUID_SMPS_H
#define IBVMIG_SM_HELPER_PLUGIN_GUID_SMPS_H

#include "sm-helper/plugin/main.h"

#include <opensm/osm_port.h>

struct guid_smp {
	osm_physp_t *physp; /* borrowed */
	uint8_t block;
	bool set;
	ib_guid_info_t info; /* a Set: what the port shall hold; a Get: what it does */
	bool taken;          /* answered; a Set: that it holds this */
};

/* Stands between OpenSM's dispatcher and its handler of GUIDInfo answers. At load time. 0 or -EIO.
 */
int guid_smps_hook(struct plugin *p);

/* Sends all and waits until each is answered or given up, at most until deadline_us
 * (CLOCK_MONOTONIC); their `taken` tells which. The gate is held, so the ports stay; OpenSM's lock
 * must not be. 0; -EIO: OpenSM could not send one, or one was not taken. */
int guid_smps_send(struct plugin *p, struct guid_smp *smp, unsigned count, uint64_t deadline_us);

#endif
