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

/* Near the end means: this much or less is left, or what the link sends in 100 ms if that is more.
 */
#define HOLD_NEAR_BYTES (64ull << 20)

struct hold {
	uint64_t threshold_bytes;
	bool fast; /* max-bandwidth is the user's, not that of hold_approach() */
	uint64_t last_remaining, last_us; /* of the poll before; 0: none yet */
};

/* Where to hold: what is left then is sent while the VF is away, so less where the link is slow;
 * enough to last for the detach, and for a late look, all the same. max_bytes: hold-bytes. */
uint64_t hold_threshold(uint64_t max_bytes, uint64_t bandwidth_bytes_per_s);

/* Whether the end of the pass may come before anybody can react. */
bool hold_is_near(uint64_t remaining_bytes, uint64_t bandwidth_bytes_per_s);

/* The bandwidth for the end of pre-copy: at full speed QEMU sends the whole ballast, and finds it
 * clean, before a busy guest has dirtied it again; so a pass over it shall take 200 ms. */
uint64_t hold_approach(uint64_t bandwidth_bytes_per_s, uint64_t ballast_bytes);

/* One look at query-migrate. true: clamp now. Otherwise *ret_wait_ms is when to look again: half
 * the time that the rest above the threshold takes at the rate seen, within the limits above. */
bool hold_reached(struct hold *h, uint64_t remaining_bytes, uint64_t passes, uint64_t at_us,
		  unsigned *ret_wait_ms);

#endif
