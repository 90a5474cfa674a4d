/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A timeline shows one migration on one clock: what both hosts journaled and what guest, peers and
 * fabric measured. */
#ifndef IBVMIG_DAEMON_REPORT_TIMELINE_H
#define IBVMIG_DAEMON_REPORT_TIMELINE_H

#include <json-c/json.h>
#include <stdint.h>

struct http_request;

/* source, destination: the halves as GET /v1/migrations/ID tells them; one of them may be NULL.
 * ours: that one of them which is of this host; now_us: this host's clock, for a phase that has not
 * ended. Owned by the caller:
 * {"id","vm","from","to","strategy","state","start_wall_ms","length_us",
 *  "clock":{"measured","offset_us","error_us"},
 *  "lanes":[{"name","kind","spans":[{"name","start_us","end_us"[,"detail"]}],
 *            "marks":[{"name","at_us"}]}]} */
struct json_object *timeline_make(struct json_object *source, struct json_object *destination,
				  struct json_object *ours, uint64_t now_us);

/* GET /v1/migrations/ID/timeline: asks the other host for its half. */
void timeline_get(struct http_request *req);

#endif
