/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Parts that the steps share, most of them those of the host that the VM leaves: a section for each
 * file that has no header of its own. */
#ifndef IBVMIG_DAEMON_MIGRATE_SRC_H
#define IBVMIG_DAEMON_MIGRATE_SRC_H

#include "daemon/base/strategy.h"
#include "daemon/migrate/silence.h"
#include "daemon/migrate/step.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct settings;

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
 * host; sm: ibvmig-sm is asked as well. STEP_WAIT or -errno. done(), where the job has not failed,
 * has the hosts that were found go into the record. */
int src_check(struct migration *m, bool sm, void (*done)(struct migration *m, struct job *j));
void src_take_peers(struct migration *m, struct job *j);

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

/* ---- a destination that is lost: migrate/lost.c ---- */

/* POST /v1/migrations/ID/resolve {"destination_lost":true} */
void lost_post(struct http_request *req);
/* A host that may be silent, and the migration that is about it: of jobs. */
struct other_host {
	char id[37], host[64], url[256];
};

/* which: one of m's. */
static inline struct other_host other_host(const struct migration *m,
					   const struct migrate_host *which)
{
	struct other_host h;

	memcpy(h.id, m->rec.id, sizeof h.id);
	memcpy(h.host, which->host, sizeof h.host);
	memcpy(h.url, which->url, sizeof h.url);
	return h;
}

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

struct address_work lost_addresses(const struct migration *m, const struct migrate_host *lost);
/* The undo of SWITCH without it: in: migrate_input(), moves. Our VFs show the vGUIDs, and ibvmig-sm
 * has them here. → lid of VFs that were bound anew, for lost_keep_lids(). */
void lost_take_back_run(struct job *j);
void lost_keep_lids(struct migration *m, struct job *j);
/* The end without it, of a VM that had left: our VFs are given back, and ibvmig-sm lets the vGUIDs
 * go. in: migrate_input(). */
void lost_release_run(struct job *j);

/* ---- the peers, asked by PREPARE and the dry run: migrate/ask.c ---- */

/* In a worker. peer: {"guid"}, to which "host", "vm" and "url" are added; one with a URL is left as
 * it is. 0, or -errno with a line in why. */
int ask_find_peer(const struct settings *s, struct json_object *peer, char *why);
/* In a worker. Peers' agents are asked through their host, whether they could be suspended. body:
 * {"migration","vguids","guids"}, to which agent_ms is added: how long an agent has for its answer.
 * 0, or -errno with a line in why. */
int ask_peers_at(const char *url, struct json_object *body, unsigned agent_ms, char *why);

/* ---- the strategy, chosen by base/strategy.c: the facts, from migrate/choice.c ---- */

/* The facts of vm here. query: the agent's answer, or NULL without one; the facts borrow from it.
 */
void choice_facts(struct vm *vm, struct json_object *query, struct strategy_facts *ret_facts);
/* The first thing in the agent's answer that keeps QPs from being moved, as one line; "" where
 * nothing does. */
void choice_uncovered(struct json_object *query, char *why, unsigned bytes);
/* PREPARE: sets m->strategy and the record's "choice"; facts.state_there is set from m. 0, or
 * -ENOTSUP with m's reason. */
int choice_make(struct migration *m, struct strategy_facts *facts);
/* QUIESCE, query being the agent's answer of now: 0, or -EBUSY with m's reason, where somebody in
 * the guest's kernel has begun to use the VF since PREPARE. */
int choice_still_fits(struct migration *m, struct json_object *query);
/* HOLD: QEMU may switch to post-copy. 0: the strategy fits that now; or -ENOTSUP with m's
 * reason. */
int choice_for_post_copy(struct migration *m);

/* ---- a user's settings for QEMU's migration, beside ours; in jobs: migrate/src_hold.c ---- */

#define FULL_SPEED       (1000ull << 20) /* bytes/s: the user has set no --bandwidth */
#define DOWNTIME_MS      300             /* the user has set no downtime */
#define HOLD_DOWNTIME_MS 1               /* ours, until the VF has left */

/* Bytes/s and ms; 0: nothing is known, or nothing has changed. */
struct speed {
	uint64_t bandwidth, downtime_ms;
};

/* The migration of the VM would run with these without us. 0 or j->rc. */
int speed_read(struct job *j, const char *vm, struct speed *ret_user);
/* Speeds that the user has set since we set the bandwidth `ours` (0: we have not). */
static inline struct speed speed_changes(struct speed now, uint64_t ours)
{
	return (struct speed){
		.bandwidth = ours && now.bandwidth != ours ? now.bandwidth : 0,
		.downtime_ms = now.downtime_ms != HOLD_DOWNTIME_MS ? now.downtime_ms : 0,
	};
}

/* Disks that are copied along get their full speed. *ret_copies: there are some. 0 or j->rc. */
int speed_let_copy(struct job *j, const char *vm, bool *ret_copies);

/* ---- a source that is lost: migrate/lost.c ---- */

/* POST /v1/migrations/ID/resolve {"source_lost":true}, to the destination. Said again, 200. */
void orphan_post(struct http_request *req);
/* The words for a step that fails, or waits, because the source has not done its part, and what an
 * operator can do. why: cause. */
void orphan_name_way_out(const struct migration *m, const char *why,
			 char text[static HTTP_ERROR_MAX]);
/* SWITCH without the source. in: of migrate_input(); owned by the call. STEP_WAIT or -errno. */
int orphan_take_over(struct migration *m, struct json_object *in);

/* ---- strategy cold: a VM is saved to a file, and restored on this host or another with its
 * addresses (docs/migration.md, "Save and restore"). migrate/src_saved.c: the host that saves;
 * migrate/dst_restore.c: the one that restores ---- */

/* Saves, and restores, under way at a time; each keeps a worker until its file is through. */
#define COLD_JOBS_MAX 8

/* Routes. POST /v1/vms/NAME/save {"file"} → the record, once the VM is saved, or 202 with it if the
 * same was asked for and is under way. POST /v1/restore
 * {"file"[,"source_lost"]} → {"vm","migration"}, once libvirt has started it, or 202 {"file"}. */
void cold_post_save(struct http_request *req);
void cold_post_restore(struct http_request *req);

/* ---- the host that saves; src_saved() is in migrate/step.h ---- */

/* Answers /v1/peer/prepare about m, whose VM was saved here. */
void cold_answer_prepare(struct http_request *req, struct migration *m, struct record *asked);
/* The destination has not restored the VM after all. */
void cold_not_restored(struct migration *m);
/* A restart of ours found it in SAVED. */
void cold_recover(struct migration *m);
/* The operator gives the saved VM's connections and address up. false: it is not in that state. */
bool cold_give_up(struct migration *m);
/* A saved VM's address is kept here. */
bool cold_keeps(const struct daemon *d, uint64_t vguid);
/* The record has ended without the VM: its VF and address are given back. */
void cold_release(struct migration *m);

/* ---- the host that restores ---- */

/* libvirt's hook "restore begin": answers it. */
void cold_hook(struct http_request *req, const struct domain_info *info, const char *xml);
/* A VM that was started here is known now: one that was saved goes on with its connections. */
void cold_vm_started(struct vm *vm);
/* The VM has got its VF, and no record of a save awaits it: its programs go on without
 * connections. */
void cold_resume_alone(struct vm *vm);
/* PREPARE at the destination is over its time: libvirt may not have restored the VM. */
int cold_look_for_vm(struct migration *m);

#endif
