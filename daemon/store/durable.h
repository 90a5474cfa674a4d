/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Makes the journal durable beside the loop: a thread of its own waits for the disk, and one sync
 * is for all that was written before it. Whoever acts on what he has written waits for it here. */
#ifndef IBVMIG_DAEMON_STORE_DURABLE_H
#define IBVMIG_DAEMON_STORE_DURABLE_H

#include <json-c/json.h>
#include <systemd/sd-event.h>

struct durable;
struct http_exchange;
struct journal;

/* journal: borrowed, used until durable_free(). 0 or -errno. */
int durable_new(sd_event *loop, struct journal *journal, struct durable **ret_durable);
/* Waits for the sync under way. Those who wait are forgotten. */
void durable_free(struct durable *p);

/* Calls fn(arg, rc) in the loop's thread when all that is in the journal now is durable (0), or
 * could not be made so (-errno). fn comes before this returns, if all is durable already. In the
 * order of the calls. */
void durable_then(struct durable *p, void (*fn)(void *arg, int rc), void *arg);

/* http_reply() then, so that nobody hears of what a power cut would take back; or 503 "journal". */
void durable_reply(struct durable *p, struct http_exchange *x, unsigned status,
		   struct json_object *body);

#endif
