/* SPDX-License-Identifier: GPL-2.0-or-later */
/* When pre-copy has come far enough to be held (docs/migration.md, "Hold"). Pure. */
#ifndef IBVMIG_DAEMON_HOLD_H
#define IBVMIG_DAEMON_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#define HOLD_POLL_MIN_MS 2
#define HOLD_POLL_MAX_MS 50
/* While the VF leaves; QEMU then sends about 1.3 MiB/s, a burst each 100 ms. */
#define HOLD_CLAMP_BYTES_PER_S 4096

#define HOLD_BYTES_MIN (6ull << 20)

struct hold {
	uint64_t threshold_bytes;
	uint64_t limit;                   /* max-bandwidth wanted, bytes/s; see hold_limit() */
	uint64_t last_remaining, last_us; /* of the poll before; 0: none yet */
};

/* Where to hold: what is left then is sent while the VF is away, so less where the link is slow;
 * enough to last for the detach, and for a late look, all the same. max_bytes: hold-bytes. */
uint64_t hold_threshold(uint64_t max_bytes, uint64_t bandwidth_bytes_per_s);

/* The bandwidth while this much is left (0: not known): all of it in a second, so that the end
 * comes no quicker than looks do, and no less than what sends the ballast in 400 ms. Zero pages
 * pass any limit, so a guest that has little else is left with the ballast at once: that has to
 * last until a late look, and be dirtied again by a busy guest meanwhile. At most the user's. */
uint64_t hold_limit(uint64_t user_bytes_per_s, uint64_t ballast_bytes, uint64_t remaining_bytes);

/* One look at query-migrate. true: clamp now. Otherwise *ret_wait_ms is when to look again: half
 * the time that the rest above the threshold takes at the rate seen, within the limits above. */
bool hold_reached(struct hold *h, uint64_t remaining_bytes, uint64_t passes, uint64_t at_us,
		  unsigned *ret_wait_ms);

#endif
