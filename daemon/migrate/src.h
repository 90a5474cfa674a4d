/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Parts that the steps of the host share that the VM leaves: migrate/src*.c. */
#ifndef IBVMIG_DAEMON_MIGRATE_SRC_H
#define IBVMIG_DAEMON_MIGRATE_SRC_H

#include "daemon/migrate/remote.h"
#include "daemon/migrate/step.h"

#define SRC_QUERY_MS 4000 /* an agent that is well answers `query` and `ballast` at once */

/* {"op"}; owned by the caller. */
struct json_object *src_op_message(const char *op);
/* Asks the mover's agent `query`. */
void src_query(struct migration *m, struct vm *vm,
	       void (*done)(struct migration *m, int rc, struct json_object *answer,
			    const char *error));

/* The VM cannot go without an agent. */
bool src_agent_needed(const struct migration *m);
/* The VM's agent is to be asked. */
bool src_agent_wanted(struct migration *m, struct vm *vm);
/* The agent's answer to `query`: its peers go into the record. 0, or -errno with a reason: who
 * cannot be suspended. */
int src_read_query(struct migration *m, struct json_object *answer);
/* A job that finds the hosts of peers that are not here, and asks each peer's agent through its
 * host; sm: ibvmig-sm is asked as well. → peers */
struct json_object *src_check_input(struct migration *m, bool sm);
void src_check_run(struct job *j);

/* Why this VM cannot migrate now, or NULL. asked: what the destination has told (its id, url and
 * VFs); NULL: nobody has. */
const char *src_cannot_migrate(struct vm *vm, const struct record *asked);
/* PREPARE begins with these: the VM's addresses, its VFs, and the place that they go to. */
void src_fill_record(struct migration *m, struct vm *vm, struct record *asked);
void src_set_destination(struct migration *m, struct record *asked);

/* Armed: waits for QEMU to begin, and asks the destination now and then whether it still waits. Its
 * word that was lost with it would keep the VM from its next migration until the deadline. */
int src_await_begin(struct migration *m);

/* For job_each_vf(): the VF shows the vGUID. */
int src_show_guid(struct job *j, struct json_object *vf, char *error);

/* ---- a destination that is lost: migrate/src_lost.c ---- */

/* POST /v1/migrations/ID/resolve {"destination_lost":true} */
void lost_post(struct http_request *req);
/* A host that may be silent, and the migration that is about it: of jobs. */
struct other_host {
	char id[37], host[64], url[256];
};

/* The destination; owned by the caller, NULL without memory. */
struct other_host *lost_host(const struct migration *m);
/* A job's error is that this host is silent: it says what an operator can do. */
void lost_name_way_out(struct job *j, const struct other_host *h);

/* The work of a job that has asked the destination for its record. */
struct outcome {
	struct other_host at;
	struct remote_record dst;
};

/* Asks for it: done() finds an outcome in its job. STEP_WAIT or -errno. */
int src_ask_destination(struct migration *m, void (*done)(struct migration *m, struct job *j));
/* A job that has asked the destination has learnt these. A silent destination is asked for as long
 * as it takes, for it may come back. An operator sees what is waited for, and what to do if it does
 * not come back. j: it failed, its work is an outcome. */
void src_note_silence(struct migration *m, struct job *j);
void src_note_heard(struct migration *m);
/* The work of the next two: the VM, and the host that is lost. */
struct address_work {
	char vm[37], host[64];
};

/* Owned by the caller, NULL without memory. */
struct address_work *lost_addresses(const struct migration *m, const struct migrate_host *lost);
/* The undo of SWITCH without it: in: migrate_input(), moves. Our VFs show the vGUIDs, and ibvmig-sm
 * has them here. → lid of VFs that were bound anew, for lost_keep_lids(). */
void lost_take_back_run(struct job *j);
void lost_keep_lids(struct migration *m, struct job *j);
/* The end without it, of a VM that had left: our VFs are given back, and ibvmig-sm lets the vGUIDs
 * go. in: migrate_input(). */
void lost_release_run(struct job *j);

#endif
