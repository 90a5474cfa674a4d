/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/fabric/rates.h"

/* scale: the rate of one count in a microsecond. */
static uint64_t rate(uint64_t first, uint64_t last, uint64_t us, uint64_t scale)
{
	return last < first || !us ? RATE_UNKNOWN : (last - first) * scale / us;
}

struct port_rates rates_between(const struct probe_counters *first,
				const struct probe_counters *last)
{
	uint64_t us = last->read_us - first->read_us;
	bool stuck = last->wait_ticks == UINT32_MAX;

	return (struct port_rates){
		.in_mbps = rate(first->in_bytes, last->in_bytes, us, 8), /* bits a microsecond */
		.out_mbps = rate(first->out_bytes, last->out_bytes, us, 8),
		.wait_per_s = stuck ? RATE_UNKNOWN
				    : rate(first->wait_ticks, last->wait_ticks, us, 1000000),
		.wait_stuck = stuck,
	};
}
