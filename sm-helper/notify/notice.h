/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Tells the hosts that have subscribed what happened to paths (docs/wire.md, "Fabric"). A host gets
 * one notice, however many VMs it has and however many have moved in a batch. It is sent until the
 * host acknowledges it (sm-helper/notify/outbox.h). Blocking, from worker threads. */
#ifndef IBVMIG_SM_HELPER_NOTIFY_NOTICE_H
#define IBVMIG_SM_HELPER_NOTIFY_NOTICE_H

#include "sm-helper/moves/ops.h"

#include <json-c/json.h>

/* Functions for outbox_new(); arg: a struct ops. */
int notice_send(void *arg, const char *url, struct json_object *body, char *error);
void notice_lost(void *arg, const char *host, const char *url, const char *error);

/* Tells the hosts of moves: all vGUIDs whose paths have changed. Returns how many notices, to all
 * hosts together. */
unsigned notice_moved(struct ops *o, const struct move_result *res);
/* The vGUID is bound to nothing any more. */
unsigned notice_gone(struct ops *o, uint64_t vguid);
/* The paths that a move changed, for its answer as well. NULL where some are unknown. */
struct json_object *notice_paths(const struct move_result *res, const struct moved *m);
unsigned notice_mtu_bytes(unsigned code);

#endif
