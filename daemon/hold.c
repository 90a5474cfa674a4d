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

uint64_t hold_next(const struct hold *h, uint64_t at_us)
{
	return at_us > h->sync_us ? h->written_per_s * ((at_us - h->sync_us) / 1000) / 1000 : 0;
}

uint64_t hold_limit(uint64_t user_bytes_per_s, uint64_t ballast_bytes, uint64_t next_bytes,
		    uint64_t remaining_bytes)
{
	uint64_t limit = ballast_bytes * 5 / 2;

	if (limit < HOLD_BYTES_MIN)
		limit = HOLD_BYTES_MIN;
	/* In steps, for each is a command to QEMU. */
	while (limit < user_bytes_per_s &&
	       (limit * 2 <= remaining_bytes || limit * 2 <= next_bytes * 5 / 4))
		limit *= 2;
	return limit < user_bytes_per_s ? limit : user_bytes_per_s;
}

uint64_t hold_enough(uint64_t threshold_bytes, uint64_t ballast_bytes,
		     uint64_t bandwidth_bytes_per_s)
{
	uint64_t bytes = threshold_bytes + ballast_bytes;

	return bytes > bandwidth_bytes_per_s / 20 ? bytes : bandwidth_bytes_per_s / 20;
}

/* QEMU begins a pass where it has sent all; with auto-converge it also asks in the middle of later
 * ones what is dirty (each 5 s from 9.2 on), and what is left then is no beginning. */
static bool pass_begins(struct hold *h, const struct hold_look *now)
{
	uint64_t sent = now->sent_bytes - h->last.sent_bytes;
	uint64_t took_ms = (now->at_us - h->sync_us) / 1000;
	bool begins = now->syncs > 1 &&
		      (!h->last.at_us || sent + h->threshold_bytes >= h->last.remaining_bytes);

	if (now->syncs <= h->syncs)
		return false;
	if (begins && h->syncs && took_ms)
		h->written_per_s = now->remaining_bytes * 1000 / took_ms;
	if (now->syncs == 1)
		h->pass_bytes = now->remaining_bytes;
	h->syncs = now->syncs;
	h->sync_us = now->at_us;
	h->ended |= begins;
	return begins;
}

/* A pass that begins with more than three quarters of the one before shows a guest with which the
 * link does not catch up. */
static bool is_last(struct hold *h, uint64_t bytes)
{
	uint64_t before = h->pass_bytes;

	h->pass_bytes = bytes;
	return bytes <= h->enough_bytes || (before && bytes > before / 4 * 3);
}

static bool is_reached(struct hold *h, const struct hold_look *now)
{
	bool begins = pass_begins(h, now);

	if (!h->patient)
		return h->ended || (now->syncs && now->remaining_bytes <= h->threshold_bytes);
	return begins && is_last(h, now->remaining_bytes);
}

bool hold_reached(struct hold *h, const struct hold_look *now, unsigned *ret_wait_ms)
{
	const struct hold_look last = h->last;
	bool reached = is_reached(h, now);
	uint64_t sent = last.remaining_bytes > now->remaining_bytes
				? last.remaining_bytes - now->remaining_bytes
				: 0;
	uint64_t took_us = last.at_us && now->at_us > last.at_us ? now->at_us - last.at_us : 0;

	uint64_t to = h->patient ? 0 : h->threshold_bytes;

	h->last = *now;
	if (!sent || !took_us || now->remaining_bytes <= to)
		*ret_wait_ms = clip(0);
	else
		*ret_wait_ms = clip((now->remaining_bytes - to) * took_us / sent / 2000);
	return reached;
}
