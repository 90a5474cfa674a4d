/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Blocks of ports' tables, of GUIDs (GUIDInfo) and of P_Keys (P_KeyTable), on their way to the
 * ports and back: one block an SMP. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_SMPS_H
#define IBVMIG_SM_HELPER_PLUGIN_SMPS_H

#include "sm-helper/plugin/main.h"

#include <opensm/osm_port.h>

struct smp {
	osm_physp_t *physp; /* borrowed */
	ib_net16_t attr;    /* IB_MAD_ATTR_GUID_INFO or IB_MAD_ATTR_P_KEY_TABLE */
	uint16_t block;
	bool set;
	union { /* a Set: what the port shall hold; a Get: what it does */
		ib_guid_info_t guids;
		ib_pkey_table_t pkeys;
		uint8_t bytes[IB_SMP_DATA_SIZE];
	} data;
	bool taken; /* answered; a Set: that it holds this */
};

/* Stands between OpenSM's dispatcher and its handlers of such answers. At load time. 0 or -EIO. */
int smps_hook(struct plugin *p);

/* Sends all and waits until each is answered or given up, at most until deadline_us
 * (CLOCK_MONOTONIC); their `taken` tells which. The gate is held, so the ports stay; OpenSM's lock
 * must not be. 0; -EIO: OpenSM could not send one, or one was not taken. */
int smps_send(struct plugin *p, struct smp *smp, unsigned count, uint64_t deadline_us);

#endif
