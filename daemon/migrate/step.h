/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The steps of both roles, and what other daemons ask for. Rows of the table in
 * daemon/migrate/table.c. */
#ifndef IBVMIG_DAEMON_MIGRATE_STEP_H
#define IBVMIG_DAEMON_MIGRATE_STEP_H

#include "daemon/migrate/machine.h"

/* For an agent's answer to `query`: a peer's, which libvirt's hook waits for, and any agent's when
 * a VM is saved, which nobody waits for. The agent itself is told a second less. */
#define MIGRATE_PEER_QUERY_MS   5000
#define MIGRATE_SAVE_QUERY_MS   15000
#define MIGRATE_AGENT_MARGIN_MS 1000
/* For the mover's agent's answer to `resume`. */
#define MIGRATE_RESUME_MS 25000

/* PREPARE and SWITCH of the destination wait for these: their m->step.phase. */
enum dst_phase {
	DST_AWAIT,        /* the source's order, or its own worker */
	DST_ASK,          /* the source, or libvirt, is asked whether the VM still comes */
	DST_ASK_ORDER,    /* the VM runs here, and the source is asked for SWITCH */
	DST_JUDGE_DEAD,   /* the VM is dead here, and the source is asked whether it has ended */
	DST_DEAD_OVER,    /* the source has */
	DST_DEAD_GOES_ON, /* the source has not: the addresses move all the same */
};

/* A name in the record's data: QEMU has begun with the VFs here. */
#define DST_PRE_ATTACHED "pre_attached"

struct domain_info;
struct domain_saved;
struct http_request;

int src_prepare(struct migration *m);
int src_prepare_undo(struct migration *m);
extern const struct migrate_phase src_hold[];
int src_hold_undo(struct migration *m);
int src_quiesce(struct migration *m);
int src_quiesce_undo(struct migration *m);
extern const struct migrate_phase src_detach[];
int src_detach_undo(struct migration *m);
int src_saved(struct migration *m);
extern const struct migrate_phase src_switch[];
int src_switch_undo(struct migration *m);
int src_attach(struct migration *m);
extern const struct migrate_phase src_resume[];
int src_cancel(struct migration *m);

int dst_prepare(struct migration *m);
int dst_prepare_undo(struct migration *m);
/* The names of enum dst_phase: events begin and end it, and no order of phases. */
extern const struct migrate_phase dst_waits[];
/* The source is silent: asks it, then libvirt, whether the VM still comes. */
int dst_ask_verdict(struct migration *m);
/* The VM came, and is dead: this host was off for a while, perhaps. Its source may have been told
 * that it is lost for good, and the VM have its vGUID there again. */
int dst_judge_dead(struct migration *m);
int dst_switch(struct migration *m);
int dst_switch_undo(struct migration *m);
int dst_attach(struct migration *m);
int dst_resume(struct migration *m);

/* A timer's: looks for what events should have told, those of the migration arg that may be lost.
 */
void migrate_look(void *arg);
/* Starts its time anew; of one that waits for nothing it ends. */
void migrate_look_later(struct migration *m);

/* Routes. */
void dst_hook(struct http_request *req);
void src_on_prepare(struct http_request *req);
void dst_on_switch(struct http_request *req);
void dst_on_unswitch(struct http_request *req);
void dst_on_abort(struct http_request *req);
void src_on_outcome(struct http_request *req);
void peer_on_check(struct http_request *req);
void peer_on_reserve(struct http_request *req);
void peer_on_release(struct http_request *req);
void peer_on_suspend(struct http_request *req);
void peer_on_resume(struct http_request *req);

/* A phase that waits for the destination's word on how far it is. The first function rests for a
 * while, without the state's deadline; the second asks for a word that was lost, again and again.
 */
int src_await_outcome(struct migration *m);
int src_ask_outcome(struct migration *m);
/* Armed, and QEMU has not begun; with an early VF that has left. */
bool src_awaits_begin(const struct migration *m);
void src_begins_later(struct migration *m);
/* DETACH or CANCEL waits for this, with the way out: ": the guest keeps VF …"; "" elsewhere. */
void src_name_missing(const struct migration *m, char *text, size_t bytes);
/* HOLD: a pass has ended. */
void src_look_now(struct migration *m);
/* The agent keeps ballast-bytes dirty from now on. */
void src_begin_ballast(struct migration *m);
void src_end_ballast(struct migration *m);
/* The agent ends it by itself 120 s after it was last asked: a copy may take longer. */
void src_keep_ballast(struct migration *m);
/* A QEMU migration of a VM with a VF that nobody prepared. */
void src_unprepared(struct vm *vm);
/* libvirt's hook says that the VM comes: a record is made, and answers the hook when it is armed.
 * saved: the mark of a VM that is restored; NULL: it migrates. */
void dst_begin(struct http_request *req, const struct domain_info *info, const char *xml,
	       const struct domain_saved *saved);
/* In a job: its VFs show their parked GUIDs. */
void dst_park_run(struct job *j);
/* Tells the source how far we are, without waiting for its answer. */
void dst_tell_source(struct migration *m);
/* The source's answer to prepare; owned by the caller. */
struct json_object *src_prepare_answer(const struct migration *m);
/* Gives an ended step's answer to the caller that asked for it. */
void migrate_answer_waiting(struct migration *m, int rc);

/* Asks the hosts with peers at once: m->pending counts the calls under way, m->pending_rc and
 * pending_error keep the first failure. */
/* Has the peers' hosts keep their VMs for this migration. Once m->pending is 0, m->step.busy says
 * whether another one has one of them (m->trouble: which); peers_release() then gives the others
 * back. */
void peers_reserve(struct migration *m);
void peers_release(struct migration *m);
void peers_suspend(struct migration *m);
void peers_resume(struct migration *m, bool moved);
/* `resume` for the mover's own agent, which has MIGRATE_RESUME_MS; owned by the caller. moved: the
 * VF is another one. And what its answer means for the step that waits for it as for the peers'. */
struct json_object *mover_resume(const struct migration *m, bool moved);
void mover_resumed(struct migration *m, int rc, struct json_object *answer, const char *error);

/* ---- its hosts and VFs: migrate/ends.c; what is returned is owned by the caller ---- */

void migrate_host_here(struct migrate_host *h, const struct daemon *d);
void migrate_end_here(struct migrate_end *e, const struct vf *vf);
/* Our lease of a VF at this end; NULL: it is gone, or another VM's. */
struct vf *migrate_lease(const struct migration *m, const struct migrate_vf *v);
/* 0, or -ENOENT: the first lease that is gone stands in the record's reason. */
int migrate_check_leases(struct migration *m);
/* True if one of them is there. */
bool migrate_has_leases(const struct migration *m);
/* {vm,name,migration,vfs:[…]} for job_each_vf(), of the VFs at this end, and what the VM has them
 * as. */
struct json_object *migrate_input(const struct migration *m);
/* Gives the VFs at this end back. In a job: provider_release() of each. */
void migrate_release_run(struct job *j);
void migrate_free_leases(struct migration *m);

/* ---- after a restart: migrate/recover.c ---- */

/* The journal's open records come into memory; migrate_recover() goes on with them. */
void recover_load(struct daemon *d);
/* Asks libvirt (again) where the VM of an open migration is, and goes on from there. */
void recover_probe(struct migration *m);

/* ---- the API's calls about the journal's records: migrate/calls.c ---- */

/* 404: the journal does not have this migration, or not any more. */
void rest_no_migration(struct http_request *req, const char *id);

/* GET /v1/migrations, GET /v1/migrations/ID */
void migrate_get_all(struct http_request *req);
void migrate_get(struct http_request *req);

#endif
