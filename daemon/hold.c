/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/hold.h"

static unsigned clip(uint64_t ms)
{
	if (ms < HOLD_POLL_MIN_MS)
		return HOLD_POLL_MIN_MS;
	return ms > HOLD_POLL_MAX_MS ? HOLD_POLL_MAX_MS : (unsigned)ms;
}

uint64_t hold_threshold(uint64_t max_bytes, uint64_t bandwidth_bytes_per_s)
{
	uint64_t bytes = bandwidth_bytes_per_s / 10;

	if (bytes < HOLD_BYTES_MIN)
		bytes = HOLD_BYTES_MIN;
	return bytes < max_bytes ? bytes : max_bytes;
}

uint64_t hold_limit(uint64_t user_bytes_per_s, uint64_t ballast_bytes, uint64_t remaining_bytes)
{
	uint64_t limit = ballast_bytes * 5 / 2;

	if (limit < HOLD_BYTES_MIN)
		limit = HOLD_BYTES_MIN;
	/* In steps, for each is a command to QEMU. */
	while (limit < user_bytes_per_s && limit * 2 <= remaining_bytes)
		limit *= 2;
	return limit < user_bytes_per_s ? limit : user_bytes_per_s;
}

bool hold_reached(struct hold *h, uint64_t remaining_bytes, uint64_t passes, uint64_t at_us,
		  unsigned *ret_wait_ms)
{
	uint64_t sent = h->last_remaining > remaining_bytes ? h->last_remaining - remaining_bytes
							    : 0;
	uint64_t took_us = h->last_us && at_us > h->last_us ? at_us - h->last_us : 0;

	/* In the second pass all memory has been sent once: the rest is what gets dirty. A guest
	 * that dirties faster than the link sends would never come below the threshold. */
	if (passes >= 2 || (passes && remaining_bytes <= h->threshold_bytes))
		return true;
	h->last_remaining = remaining_bytes;
	h->last_us = at_us;
	if (!sent || !took_us || remaining_bytes <= h->threshold_bytes) {
		*ret_wait_ms = clip(0);
		return false;
	}
	*ret_wait_ms = clip((remaining_bytes - h->threshold_bytes) * took_us / sent / 2000);
	return false;
}
