/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Migrations that an operator asks this daemon to start: libvirt's own job, seen from outside. What
 * happens to the VF during it is the state machine's matter, as with `virsh migrate`. */
#ifndef IBVMIG_DAEMON_FLEET_JOBS_H
#define IBVMIG_DAEMON_FLEET_JOBS_H

#include <stdint.h>

/* At a time; more wait for their turn. */
#define MOVER_THREADS 16
/* Ended ones that are still told about. */
#define MOVER_KEPT 64

struct daemon;
struct movers;
struct http_request;

int mover_new(struct daemon *d, struct movers **ret_movers);
/* Does not wait for jobs that run: libvirt carries them on without us. */
void mover_free(struct movers *ms);

/* Routes. POST /v1/vms/NAME/migrate {"to"[,"strategy","bandwidth_mib","persistent"]} → 202 with the
 * job as GET /v1/jobs/N shows it, 200 if the same was asked for and is under way. With "dry_run" it
 * answers what daemon/fleet/preview.h says. POST /v1/vms/NAME/abort → {"vm","under_way"}, 202 if
 * there was a job to cancel, else 200. */
void mover_post_migrate(struct http_request *req);
void mover_post_abort(struct http_request *req);
/* The same for another host's daemon, of whose plan it is a part (daemon/fleet/drain.h):
 * {"vm","to"[,…]} → the job, or {"busy": where the VM is migrating to already}; {"vm"}. */
void mover_on_migrate(struct http_request *req);
void mover_on_cancel(struct http_request *req);
void mover_get_job(struct http_request *req);
void mover_get_jobs(struct http_request *req);

#endif
