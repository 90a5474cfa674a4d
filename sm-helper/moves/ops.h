/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Bind, unbind and move: the registry, the plugin and our own eyes on the fabric brought together.
 * Blocking, from worker threads; changes run one after the other. */
#ifndef IBVMIG_SM_HELPER_MOVES_OPS_H
#define IBVMIG_SM_HELPER_MOVES_OPS_H

#include "sm-helper/backend/backend.h"
#include "sm-helper/moves/parked.h"
#include "sm-helper/paths/service.h"
#include "sm-helper/twin/twin.h"
#include "sm-helper/fabric/probe.h"
#include "sm-helper/fabric/reach.h"
#include "sm-helper/registry/registry.h"
#include "vswitch/moves/address.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define OPS_DEADLINE_MS    10000 /* for a sweep in progress and the answers to the SMPs, at most */
#define OPS_ANSWER_MS      18000 /* a change is answered within this */
#define OPS_UNDO_MS        8000  /* kept of OPS_ANSWER_MS, for taking back what has failed */
#define OPS_VERIFY_DEFAULT 256
#define OPS_MOVES_MAX      (SM_ASSIGN_MAX / 2)

/* Error as the REST answer gives it. */
struct op_error {
	unsigned status;
	char code[32];
	char detail[640];
};

struct lid_range {
	uint16_t first, last; /* 0: above all LIDs of hosts, and up to the highest unicast LID */
};

#define OWN_WHY_MAX  640
#define OWN_FRESH_MS 5000 /* how old what is known of the registry's file may be */

struct interest;
struct move_result;
struct outbox;
struct reroute;

struct ops {
	struct backend *backend; /* owned, as the next eight */
	struct outbox *outbox;
	struct path_service *paths;
	struct interest *interest; /* who holds which path records */
	struct reroute *reroute;
	struct registry *registry;
	struct probe *probe;
	struct probe *eyes;           /* serves those who only look, and gives way to the other */
	struct twin *twin;            /* owned; NULL: there is no other ibvmig-sm */
	unsigned verify_sources;      /* CA ports that each verification walks from, at most */
	uint32_t fault;               /* enum sm_assign_flag */
	enum address_mode addresses;  /* kind of what is bound from now on */
	bool leaves;                  /* no switch is a vSwitch, whatever it looks like */
	bool said_vswitches;          /* guarded by the lock */
	char name[SM_OWNER_NAME_MAX]; /* of this registry, for people: host and file */
	struct lid_range lid_range;   /* ADDRESS_DYNAMIC only */
	/* Notices of moves that nobody waits for, under the lock; NULL: none. */
	unsigned (*tell_moved)(struct ops *o, const struct move_result *res);
	pthread_mutex_t lock; /* guards all below, and holds changes apart */
	uint64_t give_up_us;  /* deadline of the operation that has the lock: it tries no more then;
				 ops_start() */
	struct fabric fabric;
	struct backend_epoch epoch;  /* state that fabric is of; all 0: none yet, or stale */
	struct backend_epoch stated; /* when OpenSM was last told which ports show which vGUIDs */
	unsigned untold;             /* how often since then not all of it could be told */
	uint64_t instance;           /* the OpenSM process that was seen last */
	atomic_uint others;          /* SMs in the fabric besides it, as it knows */
	atomic_bool others_looked;   /* others is of a sweep since the peer was lost */
	uint64_t looked_ms;          /* when that sweep was asked for; 0: not yet */
	uint64_t standby;            /* the peer's OpenSM process for which a sweep was asked */
	struct reach reach;          /* how LIDs can be verified */
	struct sm_owner owner;       /* who has the subnet, as the plugin said last */
	uint64_t mend_ms; /* when VMs' LIDs could not be mended last; 0: they are right */
	uint32_t bound;   /* likewise: vGUIDs that it knows */
	bool claimed;     /* moves/own.h */
	bool reconciled;
	unsigned parked_at_sm;            /* entries, as OpenSM's plugin said last */
	struct backend_epoch parked_seen; /* when they were asked for */
	uint64_t parked_looked_ms;
	atomic_ullong batches;              /* begun and ended: odd while one is under way */
	atomic_ullong moves, subscriptions; /* subscriptions: requests */
	struct parked parked;               /* has a lock of its own */
};

struct moved {
	uint64_t vguid;
	uint16_t lid_before, lid_after;
	unsigned paths_changed; /* between the vGUID and other ports */
};

/* Result of a batch: SMPs, switches, walks and times are those of all its moves together. */
struct move_result {
	struct moved move[OPS_MOVES_MAX]; /* request's order */
	unsigned moves;
	uint32_t lft_smps, port_info_smps, guid_smps, pkey_smps, switches_updated, switches_total,
		repath_notices;
	uint32_t waves; /* of the LFT SMPs; 0: there were none */
	bool verified;
	enum reach_by answers_by; /* where it is verified: the weakest of all its LIDs */
	unsigned walks;
	uint64_t elapsed_us, sm_us; /* sm_us: in OpenSM, the answers to SMPs included */
	uint64_t pkey_us, lock_us;  /* of sm_us: P_Key tables; OpenSM's lock, its longest hold */
	unsigned path_count;        /* the first of all that have changed */
	struct sm_path path[SM_PATHS_MAX];
};

/* Every operation returns 0, or -errno with *e filled; then nothing has changed, unless e->detail
 * says otherwise. deadline_us is the time of CLOCK_MONOTONIC when the outcome must be known; 0:
 * OPS_ANSWER_MS from now on. The last try begins OPS_UNDO_MS before it, and a call that has waited
 * for others until then fails with -EBUSY. */
int ops_bind(struct ops *o, const struct reg_entry *want, uint64_t deadline_us, uint16_t *ret_lid,
	     struct op_error *e);
/* from: who unbinds; where the vGUID is on another VF or host by now, it stays. NULL: from
 * anywhere. */
int ops_unbind(struct ops *o, uint64_t vguid, const char *vm, const struct reg_vf *from,
	       uint64_t deadline_us, struct op_error *e);
/* 1 to OPS_MOVES_MAX moves in one batch: all of them or none. No vGUID and no VF twice. ret_result
 * NULL: nothing is done; 0 if all may begin and their destinations are in the fabric, whatever
 * GUIDs the VFs show. */
int ops_move(struct ops *o, const struct move_request *m, unsigned count, uint64_t deadline_us,
	     struct move_result *ret_result, struct op_error *e);
/* Finds the vSwitches of a fabric, unless the configuration says that there are none; how many. */
unsigned ops_judge_vswitches(const struct ops *o, struct fabric *f);
/* True if the other ibvmig-sm is told, or nobody needs to be. Without o->lock. */
bool ops_may_change(struct ops *o);
/* Sends changes of the registry to the other ibvmig-sm, if there is one. Without o->lock. News that
 * the other one misses now, it is told as soon as it is back. */
void ops_publish(struct ops *o);
/* Finishes or drops what an earlier process left half done, once OpenSM is there. For a timer. */
int ops_reconcile(struct ops *o, struct op_error *e);

#endif
