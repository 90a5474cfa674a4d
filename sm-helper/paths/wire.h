/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The path record service on a stream (docs/wire.md, "Path records"): a head, then up to
 * PATH_WIRE_MAX queries; the answer likewise, in their order. Big-endian. */
#ifndef IBVMIG_SM_HELPER_PATHS_WIRE_H
#define IBVMIG_SM_HELPER_PATHS_WIRE_H

#include "sm-helper/paths/service.h"

#define PATH_WIRE_MAGIC       0x69627071u /* "ibpq" */
#define PATH_WIRE_VERSION     1
#define PATH_WIRE_MAX         PATH_BATCH_MAX
#define PATH_WIRE_HEAD_BYTES  16
#define PATH_WIRE_QUERY_BYTES 40
#define PATH_WIRE_REPLY_BYTES 12
#define PATH_WIRE_CACHEABLE   1 /* flag of an answer: its records may be kept */

enum path_wire_status { PATH_OK, PATH_NONE, PATH_UNAVAILABLE };

struct path_wire_head {
	uint32_t id;    /* an answer repeats the question's */
	uint16_t count; /* 1 to PATH_WIRE_MAX */
	uint16_t flags; /* flags of an answer; 0 in a question */
};

void path_wire_put_head(uint8_t *to, const struct path_wire_head *h);
/* 0, -EPROTO (magic or version) or -EINVAL (count). */
int path_wire_get_head(const uint8_t *from, struct path_wire_head *ret_head);

void path_wire_put_query(uint8_t *to, const struct path_query *q);
void path_wire_get_query(const uint8_t *from, struct path_query *ret_query);
void path_wire_put_answer(uint8_t *to, const struct path_answer *a);
void path_wire_get_answer(const uint8_t *from, struct path_answer *ret_answer);

#endif
