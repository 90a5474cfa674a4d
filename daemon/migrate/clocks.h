/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How far two hosts' CLOCK_MONOTONIC are apart. What both have journaled of a migration can then be
 * told on one clock. */
#ifndef IBVMIG_DAEMON_MIGRATE_CLOCKS_H
#define IBVMIG_DAEMON_MIGRATE_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct http_request;
struct migration;

/* The other clock minus ours lies between low and high, in us. */
struct clocks_bound {
	bool known;
	int64_t low, high;
};

/* An exchange was asked at sent_us and answered by received_us of our clock, theirs_us in between.
 * An exchange can only narrow the bound; a contradiction begins it anew. */
void clocks_narrow(struct clocks_bound *b, uint64_t sent_us, uint64_t received_us,
		   uint64_t theirs_us);

/* Source: asks the destination in a worker; the record gets data.clock: {"offset_us","error_us"},
 * with offset_us the destination's clock minus ours. Nothing waits for it. */
void clocks_measure(struct migration *m);

/* GET /v1/clock */
void clocks_get(struct http_request *req);

#endif
