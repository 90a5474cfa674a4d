/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The parts of libibvmigsm.so. All of it runs in OpenSM's process: the events in OpenSM's threads,
 * requests in one thread of our own. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_MAIN_H
#define IBVMIG_SM_HELPER_PLUGIN_MAIN_H

#include "sm-helper/proto/plugin.h"

#include <opensm/osm_config.h> /* first: it decides the layout of the structs below */
#include <opensm/osm_opensm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define PLUGIN_CLIENTS_MAX 8
#define PLUGIN_DIE_STORE   (1 << 20)
/* Stands in our copy of PortInfo.M_KeyViolations from the Set until its answer overwrites it. */
#define PLUGIN_UNANSWERED 0xfedc

struct plugin_counters {
	atomic_ullong generation, heavy_sweeps, lft_smps, port_info_smps, lft_changes,
		sa_path_requests, repath_notices, unpath_notices, gids_in, gids_out, reroutes,
		guid_smps, pkey_smps, pkey_changes;
};

struct wire_batch;
struct smp;
struct partitions;
struct parked_list;
struct keep;
struct doubts;
struct distinguisher;

struct plugin {
	osm_opensm_t *osm; /* borrowed */
	char path[108];    /* sun_path */
	int listen_fd, stop_fd;
	int client_fd[PLUGIN_CLIENTS_MAX]; /* -1: free */
	int changed_fd;                    /* wakes our thread for those who watch */
	struct sm_watch_request watch[PLUGIN_CLIENTS_MAX];   /* head.op 0: does not watch */
	struct sm_reroute_request await[PLUGIN_CLIENTS_MAX]; /* likewise, for comparisons */
	uint64_t grant[PLUGIN_CLIENTS_MAX]; /* that the client has shown; 0: none */
	struct sm_owner owner;              /* our thread's: plugin/owner.h */
	pthread_t thread;
	uint64_t lids_stale_us; /* our thread's: since when guid2lid's file is old; 0: it is not */
	bool neighbors_stale;   /* the same: OpenSM's file of neighbours is to be written */
	bool bound_known;       /* our thread's: plugin/view.c, of generation bound_at */
	uint32_t bound;
	uint64_t bound_at;
	bool uniform; /* our thread's: plugin/paths.c, of heavy sweep uniform_at */
	uint64_t uniform_at;
	struct plugin_counters count;
	struct homes *homes;        /* owned; guarded by OpenSM's lock */
	struct parked_list *parked; /* owned; our thread's: plugin/parked.h. NULL: nothing */
	struct keep *keep;     /* owned; the sweeper's: plugin/keep.h. NULL: nothing is known */
	struct doubts *doubts; /* owned; likewise. NULL: none */
	struct partitions *partitions;       /* owned; plugin/partitions.h */
	struct distinguisher *distinguisher; /* owned; plugin/distinguisher/distinguisher.h */
	uint64_t instance; /* when it was loaded, CLOCK_REALTIME in microseconds */

	/* Record of the batch under way, here or at the master whose standby this is:
	 * plugin/master.h */
	int record_fd;
	struct sm_intent_request record;
	bool may_die; /* fault: as master_arm() says */
	int die_at;   /* -1: never; PLUGIN_DIE_STORE; else after this many SMPs of the batch */

	/* A batch and a heavy sweep exclude each other: discovery in the middle of a batch would
	 * find GUIDs that the tables do not have yet. A batch holds it, and a sweep takes it to
	 * start. A sweep lets a batch that has waited for the last sweep go first: sweeps that
	 * follow each other without a pause keep no VM waiting. */
	pthread_mutex_t gate;
	pthread_cond_t sweep_ended, batch_ended;
	bool sweeping, ready, batch_waits; /* guarded by gate */
	bool sweep_asked;                  /* by us, and not over; likewise */
	bool end_asked; /* plugin_look_for_end() has signalled since the sweep's begin; likewise */

	struct {
		pthread_mutex_t lock; /* guards the rest; taken last */
		pthread_cond_t answered;
		const struct wire_batch *batch; /* batch whose answers are awaited, or NULL */
		unsigned taken, round;          /* round: the number of the batch */
		int32_t wake;    /* number of SMPs on the wire at which who waits is woken */
		struct smp *smp; /* smps of them, whose answers are awaited */
		unsigned smps;
	} wire; /* plugin/wire.c, plugin/smps.c */
};

/* How many LIDs each CA port has, from its own on. */
static inline unsigned plugin_lids(const struct plugin *p)
{
	return 1u << p->osm->subn.opt.lmc;
}

/* ---- plugin/gate.c ---- */

/* Waits until no heavy sweep runs and keeps new ones out. 0, or -EBUSY after deadline_us
 * (CLOCK_MONOTONIC), and then nothing is held. */
int plugin_gate_enter(struct plugin *p, uint64_t deadline_us);
/* The gate is held. Sees, the second time at the earliest, that a heavy sweep is over whose end
 * OpenSM has not told. */
void plugin_look_for_end(struct plugin *p);
void plugin_gate_leave(struct plugin *p);
/* Notes that no heavy sweep runs any more. The gate is held. asked_anew: OpenSM still knows of a
 * sweep that it was asked for. */
void plugin_end_sweep(struct plugin *p, bool asked_anew);

/* OpenSM's lock, exclusively, with the time of the longest of all holds. */
struct lock_time {
	uint64_t since_us, longest_us;
};
void lock_time_begin(struct plugin *p, struct lock_time *t);
void lock_time_end(struct plugin *p, struct lock_time *t);

/* The subnet has changed: a new generation. Any thread. */
void plugin_changed(struct plugin *p);

/* -EHOSTDOWN or -EAGAIN with reason where nothing may be changed. The gate is held. */
int plugin_refuse_state(struct plugin *p, struct sm_reply_head *h);

/* Asks OpenSM for a heavy sweep. The gate is held. */
void plugin_want_sweep(struct plugin *p);

/* Sets reason and returns error. */
int plugin_refuse(struct sm_reply_head *h, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- requests, by the files that serve them ---- */

/* A request fills the reply (zeroed, head set) behind its head. It returns the number of bytes of
 * the packet, or -errno with reason filled. */
int plugin_status(struct plugin *p, struct sm_status_reply *reply);
int plugin_endports(struct plugin *p, const struct sm_page_request *req,
		    struct sm_endports_reply *reply);
int plugin_homes(struct plugin *p, const struct sm_page_request *req, struct sm_homes_reply *reply);
int plugin_links(struct plugin *p, const struct sm_page_request *req, struct sm_links_reply *reply);
int plugin_lft(struct plugin *p, const struct sm_lft_request *req, struct sm_lft_reply *reply);
int plugin_sweep(struct plugin *p, struct sm_sweep_reply *reply);
int plugin_assign(struct plugin *p, const struct sm_assign_request *req,
		  struct sm_assign_reply *reply);
int plugin_guids(struct plugin *p, const struct sm_guids_request *req,
		 struct sm_guids_reply *reply);
int plugin_parked(struct plugin *p, const struct sm_parked_request *req,
		  struct sm_parked_reply *reply);
int plugin_records(struct plugin *p, const struct sm_records_request *req,
		   struct sm_records_reply *reply);

int plugin_memberships(struct plugin *p, const struct sm_memberships_request *req,
		       struct sm_memberships_reply *reply);
int plugin_partitions(struct plugin *p, const struct sm_page_request *req,
		      struct sm_partitions_reply *reply);
int plugin_members(struct plugin *p, const struct sm_members_request *req,
		   struct sm_members_reply *reply);

/* Writes the files that batches have left for later: all of them where nobody waits (idle), else
 * what has waited for long. Our thread, or when that has ended. */
void plugin_store(struct plugin *p, bool idle);

#endif
