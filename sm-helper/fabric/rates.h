/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Rates from two looks at a port's counters. Pure. */
#ifndef IBVMIG_SM_HELPER_FABRIC_RATES_H
#define IBVMIG_SM_HELPER_FABRIC_RATES_H

#include "sm-helper/fabric/probe.h"

#define RATE_UNKNOWN UINT64_MAX

/* A rate is RATE_UNKNOWN where its counter fell, as somebody has reset it meanwhile: that interval
 * tells nothing of it. */
struct port_rates {
	uint64_t in_mbps, out_mbps;
	uint64_t wait_per_s; /* RATE_UNKNOWN also where wait_stuck is set */
	bool wait_stuck;     /* PortXmitWait is at its top and counts no more, until a reset */
};

struct port_rates rates_between(const struct probe_counters *first,
				const struct probe_counters *last);

#endif
