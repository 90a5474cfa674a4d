/* SPDX-License-Identifier: GPL-2.0-or-later */
/* When pre-copy has come far enough to be held (docs/migration.md, "Hold"). Pure. */
#ifndef IBVMIG_DAEMON_MIGRATE_HOLD_H
#define IBVMIG_DAEMON_MIGRATE_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#define HOLD_POLL_MIN_MS 2
#define HOLD_POLL_MAX_MS 50
/* While the VF leaves; QEMU then sends about 1.3 MiB/s, a burst each 100 ms. */
#define HOLD_CLAMP_BYTES_PER_S 4096

#define HOLD_BYTES_MIN (6ull << 20)

/* query-migrate, at at_us: syncs is its dirty-sync-count, sent_bytes are pages, zero ones too. */
struct hold_look {
	uint64_t remaining_bytes, syncs, sent_bytes, at_us; /* at_us 0: there was none */
};

/* How far pre-copy goes before it is held. A guest whose agent dies where a pass ends would leave,
 * so that is before the first one does, or else at once. Where QEMU keeps the VM (qmp_keeps_vm())
 * and the agent keeps memory dirty (patient), later passes are awaited. What the guest dirties in a
 * pass is known in the next one only. Pre-copy is then held where a pass begins with little, or
 * with not much less than the one before. */
struct hold {
	uint64_t threshold_bytes;
	bool starts_with; /* the destination's QEMU, with VFs: it can load their devices' state */
	bool kept, patient;
	uint64_t enough_bytes; /* a pass that begins with less is enough, if patient */
	uint64_t pass_bytes;   /* the newest pass began with so much; 0: not known */
	struct hold_look last;
	struct hold_look sync; /* QEMU last asked the kernel here what is dirty */
	uint64_t limit;        /* max-bandwidth wanted, bytes/s; see hold_limit() */
};

/* The threshold at which to hold: the rest is sent while the VF is away, so it is less where the
 * link is slow. It is enough to last for the detach, and for a late look. max_bytes: hold-bytes. */
uint64_t hold_threshold(uint64_t max_bytes, uint64_t bandwidth_bytes_per_s);

/* Little, at the beginning of a pass, means: the threshold and the ballast, or the bytes that
 * the link takes in 50 ms. */
uint64_t hold_enough(uint64_t threshold_bytes, uint64_t ballast_bytes,
		     uint64_t bandwidth_bytes_per_s);

/* The bandwidth while this much is left (0: not known). All of it goes in a second, so that the
 * end comes no quicker than looks do, but no less than what sends the ballast in 400 ms. Zero pages
 * pass any limit, so a guest that has little else is left with the ballast at once. The ballast has
 * to last until a late look, and be dirtied again by a busy guest meanwhile. At most the user's. */
uint64_t hold_limit(uint64_t user_bytes_per_s, uint64_t ballast_bytes, uint64_t remaining_bytes);

/* Takes one look. true: clamp now. Otherwise *ret_wait_ms says when to look again: half the time
 * that the rest (above the threshold, if not patient) takes at the rate seen, within the limits
 * above. */
bool hold_reached(struct hold *h, const struct hold_look *now, unsigned *ret_wait_ms);

#endif
