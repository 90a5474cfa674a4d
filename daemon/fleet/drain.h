/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Many moves as one job: a host is emptied, or a few VMs go where they are told to. Whoever runs
 * the job, each VM's move is its own host's (daemon/fleet/jobs.h), so the loss of the job loses no
 * VM. A daemon that starts takes up what it was running. */
#ifndef IBVMIG_DAEMON_FLEET_DRAIN_H
#define IBVMIG_DAEMON_FLEET_DRAIN_H

#include <json-c/json.h>

#define DRAIN_PARALLEL     2 /* VMs at once, where nothing else is asked for */
#define DRAIN_PARALLEL_MAX 16
#define DRAIN_MOVES_MAX    4096
/* Ended ones that are still told about. */
#define DRAIN_KEPT 16

struct daemon;
struct drains;
struct http_request;
struct job;

/* With those of the journal, which are planned again for what is left. */
int drain_new(struct daemon *d, struct drains **ret_drains);
/* Moves that run go on without us. */
void drain_free(struct drains *ds);

/* Routes. POST /v1/drains {"host"[,"to":[…]][,"vms":[…]]} or {"moves":[{"vm","from","to"}]}, with
 * ["parallel","persistent","dry_run"] → the job, once it is planned; the one that drains this host
 * already, if there is one. POST /v1/drains/N/abort {"cancel"}: nothing new is begun; with cancel,
 * what is under way is given up too. */
void drain_post(struct http_request *req);
void drain_post_abort(struct http_request *req);
void drain_get(struct http_request *req);
void drain_get_all(struct http_request *req);

/* fleet/drain_plan.c. A worker: in
 * {"from":{"host","url"},"targets":[{"host","url"}][,"vms"][,"mark"]
 * [,"again"]}; again: VMs that are not there have gone; with mark the host takes no VMs from then
 * on (daemon/fleet/drained.h). out
 * {"moves":[…of plan_moves(), and "from","url"],"ranked":bool,"rank_error"}. */
void drain_plan_run(struct job *j);

#endif
