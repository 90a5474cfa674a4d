/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A migration's record, as the journal keeps it: who moves, how far it has come, and what has been
 * done to the world, so that it can be undone. It knows no daemon. */
#ifndef IBVMIG_DAEMON_MIGRATE_RECORD_H
#define IBVMIG_DAEMON_MIGRATE_RECORD_H

#include "common/http/client.h"
#include "daemon/base/strategy.h"
#include "daemon/libvirt/domain.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/vf/table.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#define MIGRATE_PEERS_MAX 256

/* ---- states ---- */

/* A state says who has the VF, the LID and vGUID, and the QPs, and whether the guest runs. Then
 * come what is allowed in it, how it ends, and what an operator sees. Walking back ends in the
 * state before, and may fail and be tried again in any state but an end. */
enum migrate_state {
	/* VF and LID are at the source, QPs live, the guest runs; the destination has leased a VF.
	 * - allowed: questions to the agent, the peers and ibvmig-sm; nothing of the VM changes
	 * - ends: source: QEMU begins, or the strategy lets the VF leave first; destination: the
	 *   source orders SWITCH, or is silent and libvirt starts nothing
	 * - seen: virsh waits in the hook; a refusal is the hook's text */
	M_PREPARE,
	/* The same holds; pre-copy runs, and is held when little remains.
	 * - allowed: QEMU's bandwidth and downtime are ours, the guest may write as it likes
	 * - ends: little is left, or as little as it will be
	 * - seen: HOLD/look for as long as the copy takes; there is no deadline */
	M_HOLD,
	/* VF and LID are at the source, QPs are drained at both ends, the guest runs.
	 * - allowed: peers' hosts keep their VMs for this migration alone; posts wait in the shim
	 * - ends: all agents have answered `suspend`, or one refuses
	 * - seen: QUIESCE/reserve names in `trouble` whom it waits for; 20 s for each question */
	M_QUIESCE,
	/* Nobody has the VF, the LID is at the source, QPs are saved, the guest runs.
	 * - allowed: device_del was sent, the guest gives the device up when it likes
	 * - ends: all VFs have left and are clean; early: QEMU has begun
	 * - seen: DETACH/unplug; over 15 s the refusal names the VF that the guest keeps */
	M_DETACH,
	/* Strategy cold: the source keeps the VF for nobody, the LID is at the source, QPs are
	 * saved, the guest becomes a file.
	 * - allowed: the VM is restored here or elsewhere, or given up by an operator
	 * - ends: a host has restored it, or it runs here again
	 * - seen: SAVED/keep for as long as the operator likes; the note has both commands */
	M_SAVED,
	/* Nobody has the VF, the LID moves, the guest stops and resumes at the destination.
	 * - allowed: QEMU is released; either end may be the one that has the addresses
	 * - ends: ibvmig-sm has moved them; a failure before COMMIT is the source's to judge
	 * - seen: SWITCH/move; the outage has begun to count; 45 s */
	M_SWITCH,
	/* VF and LID are at the destination, QPs are saved, the guest runs there after COMMIT.
	 * - allowed: the VF is plugged in, and found by the guest; after COMMIT no way leads back
	 * - ends: the guest has the VF, or has died
	 * - seen: ATTACH/outcome: the source waits and asks; a silent destination stands in
	 *   `trouble` */
	M_ATTACH,
	/* VF and LID are at the destination, QPs are rebuilt at both ends.
	 * - allowed: a resume is asked again, peers and mover meet each other
	 * - ends: destination: all have resumed; source: it has heard so, and gives its VF back
	 * - seen: the outage ends; failures are tried again, then PARKED */
	M_RESUME,
	/* VM and addresses are at the destination, the source's VF is free. An end: nothing is
	 * allowed any more, and the journal keeps it for `ibvmig list`. */
	M_DONE,
	/* VF, LID and QPs are as in the state that failed; QEMU's migration is made to end.
	 * - allowed: an abort by libvirt; nothing is undone before QEMU has ended either way
	 * - ends: QEMU has failed, and the state is undone; or it had finished, and it goes on
	 * - seen: CANCEL/abort; virsh fails with the reason; over 60 s it is PARKED, and waits */
	M_CANCEL,
	/* VM and addresses are at the source, as before. An end: the reason says why. */
	M_ABORTED,
	/* VF, LID and QPs are as in the state that failed.
	 * - allowed: an operator's word, or the end of the VM or of QEMU's job
	 * - ends: `ibvmig resolve ID`: it goes on where it was, or back
	 * - seen: a warning with the cause and that command, in the log and in `ibvmig status` */
	M_PARKED,
};

enum migrate_role { ROLE_SOURCE, ROLE_DESTINATION };

/* Results of run() and undo() besides -errno. */
enum { STEP_DONE = 0, STEP_WAIT = 1, STEP_JUMP = 2 /* within a step: migrate_enter() */ };

struct migration;
struct migrate_phase;

struct migrate_row {
	enum migrate_state state;
	enum migrate_role actor;
	unsigned deadline_ms; /* 0: none */
	/* The step: a function that looks first on each drive, or phases alone. Neither: an end. */
	int (*run)(struct migration *m);
	const struct migrate_phase *phases;
	int (*undo)(struct migration *m); /* NULL: nothing to undo */
	enum migrate_state next;
};

static inline bool migrate_row_is_end(const struct migrate_row *r)
{
	return !r->run && !r->phases;
}

/* By state, for migrate_state_name(). */
extern const char *const migrate_state_names[M_PARKED + 1];
static inline const char *migrate_state_name(enum migrate_state s)
{
	return s <= M_PARKED ? migrate_state_names[s] : "?";
}

/* 0, or -EINVAL: it names no state. */
int migrate_state_parse(const char *name, enum migrate_state *ret_state);
static inline const char *migrate_role_name(enum migrate_role role)
{
	return role == ROLE_SOURCE ? "source" : "destination";
}

/* ---- who moves, and what of ---- */

struct migrate_host {
	char host[64], url[256];
};

/* A VF of one of the two hosts. */
struct migrate_end {
	char vf[VF_NAME_MAX];
	uint64_t parked_guid;
	uint64_t port_guid;  /* that port, where VFs share their port's LID; 0: not known */
	unsigned guid_index; /* and the entry of its GUID table */
};

/* A VF of the VM: its fixed part, and the two that it has at the ends. */
struct migrate_vf {
	uint64_t vguid;
	uint16_t pkey;
	char dev_id[QMP_DEV_ID], bus[16];
	struct migrate_end from, to;
	bool device_gone; /* source: QEMU has it no more */
};

/* A host with VMs that the moving VM is connected to. */
struct migrate_peer {
	uint64_t guid;
	char host[64], url[256];
	bool suspended;
};

/* Deeds that undo() looks at, and facts that were seen or told and decide the way. */
enum deed {
	DID_ARM,               /* PREPARE is through: the other side may rely on it */
	DID_BALLAST,           /* source: the agent keeps memory dirty */
	DID_RAISE,             /* source: QEMU's limits are not the user's */
	DID_SUSPEND,           /* the programs and their peers are suspended, or kept for that */
	DID_UNPLUG,            /* source: device_del was sent */
	DID_PARK,              /* the VFs at this end may not show what they showed */
	DID_MOVE,              /* ibvmig-sm has the addresses at the destination */
	DID_ATTACH,            /* the guest at the destination has its VFs */
	DID_RESUME,            /* destination: the programs and their peers go on */
	DID_ORDER,             /* destination: the source has ordered SWITCH */
	SAW_VM_END,            /* the VM has stopped, and not by migrating */
	DID_SAVE,              /* strategy cold: the file is whole, and the VM has ended here */
	DID_LET_GO,            /* strategy cold: the peers do not wait for it any more */
	TOLD_DESTINATION_LOST, /* source: an operator has said so (migrate/lost.c) */
	TOLD_SOURCE_LOST,      /* destination: so (there as well) */
};

struct record {
	char id[37];
	enum migrate_role role;
	enum migrate_state state, reached; /* reached: the furthest state, for walking back */
	bool back, committed, ended;
	char vm_uuid[37], vm_name[VM_NAME_MAX];
	struct migrate_vf vfs[DOMAIN_VFS_MAX]; /* the VFs move together, or not at all */
	unsigned vf_count;
	enum domain_strategy asked, strategy; /* strategy: as asked, until PREPARE has chosen */
	bool state_there;                     /* the destination's VFs take the state of ours */
	struct migrate_host from, to;
	struct migrate_peer peers[MIGRATE_PEERS_MAX];
	unsigned peer_count;
	/* Sentences about the VM that do not name it: who shows them does. */
	char reason[HTTP_ERROR_MAX];  /* why it is walked back, or "" */
	char trouble[HTTP_ERROR_MAX]; /* the last try of a step ran into this, or "" */
	char *file;                   /* owned; strategy cold: where the VM is saved; else NULL */
	char boot[33];                /* the kernel that it began under */
	struct json_object *data;     /* owned; measurements, by name */
	unsigned deeds;               /* a bit for each enum deed */
};

static inline bool record_did(const struct record *r, enum deed d)
{
	return r->deeds >> d & 1;
}

static inline void record_do(struct record *r, enum deed d)
{
	r->deeds |= 1u << d;
}

static inline void record_undo(struct record *r, enum deed d)
{
	r->deeds &= ~(1u << d);
}

static inline void record_set(struct record *r, enum deed d, bool done)
{
	if (done)
		record_do(r, d);
	else
		record_undo(r, d);
}

/* The VM's VF leaves before QEMU begins. */
static inline bool record_vf_first(const struct record *r)
{
	return r->strategy == STRATEGY_EARLY || r->strategy == STRATEGY_COLD;
}

/* Strategy cold: what libvirt and QEMU tell of the VM's job is the save's, not a migration's. */
static inline bool record_ignores_job(const struct record *r)
{
	return r->file && r->state == M_SAVED && !r->back;
}

/* Strategy cold: the VM is in its file, and no QEMU's that a boot could have ended. */
static inline bool record_is_file(const struct record *r)
{
	return record_did(r, DID_SAVE) && r->state == M_SAVED && !r->back;
}

/* Writes the record, as the journal keeps it. failures: tries of the present state that have
 * failed. */
void record_write(struct printbuf *text, const struct record *r, unsigned failures);
/* The same into an open object. */
void record_write_fields(struct printbuf *text, const struct record *r, unsigned failures);
/* The fields that a VM's status has as well, into an open object. */
void record_write_common(struct printbuf *text, const struct record *r, unsigned failures);
/* id, role, vm_uuid and vm_name are the caller's to set. 0, or -EINVAL: it is of a newer ibvmigd.
 */
int record_load(struct record *r, struct json_object *o);
/* Frees what it owns. */
void record_clear(struct record *r);

/* ---- parts of it; what is returned is owned by the caller ---- */

struct json_object *migrate_host_json(const struct migrate_host *h);
void migrate_host_load(struct migrate_host *h, struct json_object *o);
/* Adds the end's fields to o, which may have its host already. Returns o. */
struct json_object *migrate_end_add(struct json_object *o, const struct migrate_end *e);
void migrate_end_load(struct migrate_end *e, struct json_object *o);
/* [{vguid,pkey,dev_id,bus,from,to,device_gone}…], all that is known. */
struct json_object *record_vfs_json(const struct record *r);
/* From the field "vfs" of a record; the only VF of an old one is its own fields. */
void record_vfs_load(struct record *r, struct json_object *record);
/* {"guid","host","url"}… of a request or record. */
struct json_object *record_peers_json(const struct record *r);
void record_peers_load(struct record *r, struct json_object *list);
/* Borrowed; NULL: none of the VM's VFs has this vGUID. */
struct migrate_vf *record_vf(struct record *r, uint64_t vguid);
/* [vGUID…] */
struct json_object *record_guids(const struct record *r);
/* How many VFs have left QEMU here. */
unsigned record_devices_gone(const struct record *r);
/* ibvmig-sm's {"moves":[…]} of all VFs; back: from the destination to the source. */
struct json_object *record_moves(const struct record *r, bool back);

#endif
