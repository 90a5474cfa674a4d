/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The states of a migration, and the rows of their table. */
#ifndef IBVMIG_DAEMON_MIGRATE_STATES_H
#define IBVMIG_DAEMON_MIGRATE_STATES_H

#include <stdbool.h>
#include <stddef.h>

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
	 * - seen: the outage begins to count; 45 s */
	M_SWITCH,
	/* VF and LID are at the destination, QPs are saved, the guest runs there after COMMIT.
	 * - allowed: the VF is plugged in, and found by the guest; after COMMIT no way leads back
	 * - ends: the guest has the VF, or has died
	 * - seen: the source waits and asks; a silent destination stands in `trouble` */
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
	 * - seen: virsh fails with the reason; over 60 s it is PARKED, and waits for QEMU */
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

struct migrate_row {
	enum migrate_state state;
	enum migrate_role actor;
	unsigned deadline_ms;             /* 0: none */
	int (*run)(struct migration *m);  /* NULL: an end */
	int (*undo)(struct migration *m); /* NULL: nothing to undo */
	enum migrate_state next;
};

const char *migrate_state_name(enum migrate_state s);
/* 0, or -EINVAL: it names no state. */
int migrate_state_parse(const char *name, enum migrate_state *ret_state);
static inline const char *migrate_role_name(enum migrate_role role)
{
	return role == ROLE_SOURCE ? "source" : "destination";
}

#endif
