/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Guests' answers at the door: fields that we know, of their type and within bounds. Nothing else
 * of an answer is kept in a record, sent to another host, or shown. */
#ifndef IBVMIG_DAEMON_VM_ANSWERS_H
#define IBVMIG_DAEMON_VM_ANSWERS_H

#include <json-c/json.h>

/* The answer of a guest's agent to op, reduced (docs/wire.md, "Guest channel"). Owned by the
 * caller; an empty object for an op that has no fields. */
struct json_object *answers_reduce(const char *op, struct json_object *answer);

#endif
