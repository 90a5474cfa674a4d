/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Partitions of a GUID by the subnet manager, as ibvmig-sm tells them (docs/wire.md, POST
 * /v1/memberships). Pure functions read the answer; partition_ask() alone asks for it. */
#ifndef IBVMIG_DAEMON_BASE_PARTITION_H
#define IBVMIG_DAEMON_BASE_PARTITION_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct settings;

/* Full and limited members are both members; UNKNOWN: nobody can tell. */
enum partition_right { PARTITION_UNKNOWN, PARTITION_NONE, PARTITION_LIMITED, PARTITION_FULL };

/* Blocks. guids: an array of texts, owned by the call; shown: what the ports have that show them is
 * wanted too. The answer is owned by the caller. Where ibvmig-sm does not tell it (it is silent, of
 * an older version, or not configured) the answer knows nothing, and says why. */
struct json_object *partition_ask(const struct settings *s, struct json_object *guids, bool shown);
/* Why the answer does not know of some GUID; "" where it knows all. NULL knows nothing. */
const char *partition_why(struct json_object *answer);

/* The P_Keys of a GUID: an array of texts, borrowed from the answer. NULL: not known. */
struct json_object *partition_pkeys(struct json_object *answer, const char *guid);
/* The right of a GUID to the partition of a P_Key, whatever the P_Key's membership bit. */
enum partition_right partition_right(struct json_object *answer, const char *guid, uint16_t pkey);
/* The same of a VM's own P_Key, which a backend may see to by itself: then the right is what was
 * asked for. */
enum partition_right partition_own(struct json_object *answer, const char *guid, uint16_t pkey);
/* A QP with this P_Key goes on working on a port with the GUID, as far as it is known. A full
 * member stands for a limited one, and not the other way round. */
bool partition_serves(struct json_object *answer, const char *guid, uint16_t pkey);
/* True if the port that shows the GUID has told its P_Keys. */
bool partition_is_seen(struct json_object *answer, const char *guid);
/* The first P_Key that the port which shows the GUID has without a right to it; 0: none, or not
 * known. */
uint16_t partition_leftover(struct json_object *answer, const char *guid);

/* Adds the P_Keys that QPs of a guest use to list, each once for a vGUID: {vguid,pkey,pid,comm} out
 * of its agent's answer to `query`. true: there were new ones. */
bool partition_used(struct json_object *query, struct json_object *list);

/* Judges VFs [{vguid,pkey}] and what partition_used() has gathered (or NULL). 0; -EACCES with a
 * line in why that names the P_Key, who needs it, and the way out. */
int partition_judge(struct json_object *answer, struct json_object *vfs, struct json_object *used,
		    char *why, size_t bytes);
/* Calls say() for what is no fault, and an operator may want to know: limited members where the
 * VM asks for a full one's P_Key, and what is not known. */
void partition_remarks(struct json_object *answer, struct json_object *vfs,
		       void (*say)(void *arg, const char *text), void *arg);
/* The vguid of each of VFs, for partition_ask(). */
struct json_object *partition_guids(struct json_object *vfs);

#endif
