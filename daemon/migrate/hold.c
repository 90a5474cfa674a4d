/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/hold.h"

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

uint64_t hold_enough(uint64_t threshold_bytes, uint64_t ballast_bytes,
		     uint64_t bandwidth_bytes_per_s)
{
	uint64_t bytes = threshold_bytes + ballast_bytes;

	return bytes > bandwidth_bytes_per_s / 20 ? bytes : bandwidth_bytes_per_s / 20;
}

/* QEMU begins a pass where it has sent all. With auto-converge it also asks in the middle of later
 * passes what is dirty (each 5 s from 9.2 on), and what is left then is no beginning. */
static bool pass_begins(const struct hold *h, const struct hold_look *now)
{
	uint64_t sent = now->sent_bytes - h->last.sent_bytes;

	return h->last.at_us && now->syncs > 1 && now->syncs > h->last.syncs &&
	       sent + h->threshold_bytes >= h->last.remaining_bytes;
}

/* More than three quarters. */
static bool hardly_less(uint64_t bytes, uint64_t before)
{
	return bytes > before / 4 * 3;
}

/* Since QEMU asked before, the guest has written hardly less than was sent. */
static bool falls_behind(const struct hold *h, const struct hold_look *now)
{
	uint64_t sent = now->sent_bytes - h->sync.sent_bytes;
	uint64_t before = h->sync.remaining_bytes, left = before > sent ? before - sent : 0;

	return h->sync.at_us && now->remaining_bytes > left &&
	       hardly_less(now->remaining_bytes - left, sent);
}

/* Pre-copy has come as far as it will come. */
static bool is_enough(struct hold *h, const struct hold_look *now, bool begins)
{
	bool asked = now->syncs > h->last.syncs, enough = false;

	if (begins)
		enough = now->remaining_bytes <= h->enough_bytes ||
			 (h->pass_bytes && hardly_less(now->remaining_bytes, h->pass_bytes));
	else if (asked)
		enough = falls_behind(h, now);
	if (begins || (asked && now->syncs == 1))
		h->pass_bytes = now->remaining_bytes;
	if (asked)
		h->sync = *now;
	return enough;
}

static bool is_reached(struct hold *h, const struct hold_look *now)
{
	bool little = now->syncs && now->remaining_bytes <= h->threshold_bytes;
	bool begins = pass_begins(h, now), enough = is_enough(h, now, begins);

	if (h->patient)
		return enough;
	return little || (h->kept ? begins : now->syncs > 1);
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
