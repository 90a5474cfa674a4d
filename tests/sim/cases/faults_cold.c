/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/cases/faults_cold.h"
#include "common/util.h"
#include "tests/sim/cold.h"
#include "tests/sim/lost.h"
#include "tests/sim/operator.h"
#include "tests/sim/right.h"

#include <string.h>

#define REACH_S  400
#define BEHIND_S 30 /* in that time begins what goes on behind a world that looks settled */
#define RIGHT_S  240
#define STAY_S   120
#define LOST_S   600 /* more than a peer waits for a source that does not answer */
#define TRIES    6

static struct sim_guest *const mover = &sim_guests[0];

/* ---- states ---- */

enum scenario {
	SAVED,        /* and restored on B, by whom the fault has struck */
	RESTORED,     /* on B */
	HERE,         /* restored on A */
	PARKED_HERE,  /* restored on A, and QEMU takes no device */
	ABORTED_SAVE, /* by the user, while libvirt writes */
	PARKED_SAVE,  /* aborted likewise, and then QEMU takes no device */
	UNREADABLE,   /* on B, where libvirt cannot load the file */
	PARKED_THERE, /* on B, where QEMU takes no device */
};

static bool is_saving(const struct migration *m)
{
	return !record_did(&m->rec, DID_SAVE);
}

static bool is_kept(const struct migration *m)
{
	return record_did(&m->rec, DID_SAVE) && !*m->rec.to.url && !m->pending &&
	       !record_did(&m->rec, DID_LET_GO);
}

static bool lets_peers_go(const struct migration *m)
{
	return record_did(&m->rec, DID_SAVE) && m->pending;
}

static bool is_alone(const struct migration *m)
{
	return record_did(&m->rec, DID_LET_GO);
}

static bool is_asked_for(const struct migration *m)
{
	return *m->rec.to.url;
}

static bool is_armed(const struct migration *m)
{
	return record_did(&m->rec, DID_ARM);
}

#define AT(called, who, what, ...)                                                                 \
	{                                                                                          \
		.name = called, .role = ROLE_##who, .state = M_##what, ##__VA_ARGS__               \
	}
#define BACK(called, who, what, ...) AT(called, who, what, .back = true, ##__VA_ARGS__)

const struct sim_point faults_cold_points[FAULTS_COLD_POINTS] = {
	AT("PREPARE", SOURCE, PREPARE, .scenario = SAVED),
	AT("HOLD", SOURCE, HOLD, .scenario = SAVED),
	AT("QUIESCE", SOURCE, QUIESCE, .scenario = SAVED),
	AT("DETACH", SOURCE, DETACH, .scenario = SAVED),
	AT("SAVED-writes", SOURCE, SAVED, .scenario = SAVED, .is_more = is_saving),
	AT("SAVED", SOURCE, SAVED, .scenario = SAVED, .is_more = is_kept),
	AT("SAVED-lets-go", SOURCE, SAVED, .scenario = SAVED, .is_more = lets_peers_go),
	AT("SAVED-alone", SOURCE, SAVED, .scenario = SAVED, .is_more = is_alone),
	AT("SAVED-asked", SOURCE, SAVED, .scenario = RESTORED, .is_more = is_asked_for),
	AT("SWITCH", SOURCE, SWITCH, .scenario = RESTORED),
	AT("ATTACH", SOURCE, ATTACH, .scenario = RESTORED),
	AT("RESUME", SOURCE, RESUME, .scenario = RESTORED),
	AT("DONE", SOURCE, DONE, .scenario = RESTORED),
	AT("CANCEL", SOURCE, CANCEL, .scenario = ABORTED_SAVE),
	BACK("undo-SAVED", SOURCE, SAVED, .scenario = ABORTED_SAVE),
	BACK("undo-DETACH", SOURCE, DETACH, .scenario = ABORTED_SAVE),
	BACK("undo-QUIESCE", SOURCE, QUIESCE, .scenario = ABORTED_SAVE),
	BACK("undo-HOLD", SOURCE, HOLD, .scenario = ABORTED_SAVE),
	BACK("undo-PREPARE", SOURCE, PREPARE, .scenario = ABORTED_SAVE),
	BACK("ABORTED", SOURCE, ABORTED, .scenario = ABORTED_SAVE),
	BACK("PARKED", SOURCE, PARKED, .scenario = PARKED_SAVE),
	AT("here-CANCEL", SOURCE, CANCEL, .scenario = HERE),
	BACK("here-undo-SAVED", SOURCE, SAVED, .scenario = HERE),
	BACK("here-undo-DETACH", SOURCE, DETACH, .scenario = HERE),
	BACK("here-undo-QUIESCE", SOURCE, QUIESCE, .scenario = HERE),
	BACK("here-undo-HOLD", SOURCE, HOLD, .scenario = HERE),
	BACK("here-undo-PREPARE", SOURCE, PREPARE, .scenario = HERE),
	BACK("here-ABORTED", SOURCE, ABORTED, .scenario = HERE),
	BACK("here-PARKED", SOURCE, PARKED, .scenario = PARKED_HERE),
	AT("dst-PREPARE", DESTINATION, PREPARE, .scenario = RESTORED),
	AT("dst-PREPARE-armed", DESTINATION, PREPARE, .scenario = RESTORED, .is_more = is_armed),
	AT("dst-SWITCH", DESTINATION, SWITCH, .scenario = RESTORED),
	AT("dst-ATTACH", DESTINATION, ATTACH, .scenario = RESTORED),
	AT("dst-RESUME", DESTINATION, RESUME, .scenario = RESTORED),
	AT("dst-DONE", DESTINATION, DONE, .scenario = RESTORED),
	BACK("dst-undo-PREPARE", DESTINATION, PREPARE, .scenario = UNREADABLE),
	BACK("dst-ABORTED", DESTINATION, ABORTED, .scenario = UNREADABLE),
	AT("dst-PARKED", DESTINATION, PARKED, .scenario = PARKED_THERE),
};

static void abort_save(void *arg)
{
	(void)arg;
	if (!sim_image.saving || !sim_abort(mover, HOST_A))
		sim_after(NULL, SIM_MS, abort_save, NULL);
}

static bool set_scene(enum scenario s)
{
	if (s == ABORTED_SAVE || s == PARKED_SAVE)
		sim_after(NULL, SIM_MS, abort_save, NULL);
	sim_hosts[HOST_A].device_add_fails = s == PARKED_SAVE;
	sim_hosts[HOST_B].device_add_fails = s == PARKED_THERE;
	sim_cold_save(HOST_A);
	if (s == SAVED || s == ABORTED_SAVE || s == PARKED_SAVE)
		return true;
	if (!sim_cold_wait() || sim_reply.rc)
		return sim_is_wrong("save fails: %.300s", sim_reply.error);
	sim_image.unreadable = s == UNREADABLE;
	sim_hosts[HOST_A].device_add_fails = s == PARKED_HERE;
	sim_cold_restore(s == HERE || s == PARKED_HERE ? HOST_A : HOST_B, false);
	return true;
}

/* ---- what must never be ---- */

/* A peer of a saved VM must wait for it for saved-peers-s. */
static void watch(void)
{
	static uint64_t suspended_us; /* since when the mover is; 0: it is not */
	static bool had_ended;

	sim_never();
	if (!*mover->suspended)
		suspended_us = 0;
	else if (!suspended_us)
		suspended_us = sim_us();
	if (mover->connection_ended && !had_ended && suspended_us && !sim_vm_may_be_dead &&
	    !sim_source_lost && sim_us() - suspended_us < SIM_PEERS_S * SIM_S)
		snprintf(sim_broken, sizeof sim_broken, "its peer has not waited for it");
	had_ended = mover->connection_ended;
}

/* ---- what the operator does ---- */

static unsigned restores;

static bool settles(void)
{
	return sim_run(sim_cold_settled, NULL, sim_us() + SIM_QUIET_S * SIM_S, watch);
}

/* A VM that was killed when its file had been used is dead. */
static bool is_to_be_restored(void)
{
	return sim_home(mover) < 0 && sim_image.whole &&
	       (sim_cold_is_kept() || !sim_vm_may_be_dead);
}

/* The VM goes to its first goal, or home; a refusal tells the source's way out. */
static bool restore(void)
{
	int to = sim_lost_host == HOST_B || restores > 1 ? HOST_A : HOST_B;

	if (sim_cold_is_kept() &&
	    !sim_tells(HOST_A, sim_record(HOST_A, ROLE_SOURCE), "ibvmig restore " SIM_COLD_FILE))
		return sim_is_wrong("its record does not tell how it is restored");
	restores++;
	sim_cold_restore(to, false);
	if (!sim_cold_wait())
		return false;
	if (sim_reply.rc && sim_lost_host == HOST_A && strstr(sim_reply.error, "--source-lost")) {
		sim_cold_restore(to, true);
		if (!sim_cold_wait() || sim_reply.rc)
			return sim_is_wrong("--source-lost: %.300s", sim_reply.error);
	}
	return true;
}

static void mend(void)
{
	sim_mend_all();
	sim_image.unreadable = false;
	sim_virsh_mends();
}

/* The host that has saved it does not come back. A file that nobody has restored is restored, and
 * its peers look for it. */
static bool gets_right_without_a(struct sim_result *r)
{
	sim_run(NULL, NULL, sim_us() + LOST_S * SIM_S, watch);
	mend();
	if (sim_home(mover) < 0 && sim_image.whole && !sim_image.restored && !restore())
		return false;
	return sim_lost_source_play(&r->parked);
}

/* The host that restores it does not come back: where the record waits for it, it says what the
 * operator can do. */
static bool is_released(struct sim_result *r)
{
	const struct migration *m = sim_record(HOST_A, ROLE_SOURCE);
	char *command AUTO_FREE = m ? strf("ibvmig resolve %s --destination-lost", m->rec.id)
				    : NULL;

	if (!m || m->rec.state != M_SAVED || !*m->rec.to.url || m->rec.committed)
		return true;
	if (!strstr(m->rec.trouble, command))
		return sim_is_wrong("nobody is told of the command: \"%.300s\"", m->rec.trouble);
	r->parked++;
	sim_cold_resolve(true);
	return sim_cold_wait() &&
	       (!sim_reply.rc || sim_is_wrong("it is refused: %.300s", sim_reply.error));
}

static bool gets_right_without_b(struct sim_result *r)
{
	sim_run(sim_cold_settled, NULL, sim_us() + LOST_S * SIM_S, watch);
	mend();
	if (sim_record(HOST_A, ROLE_SOURCE)->rec.state == M_PARKED && !sim_resolve_all(&r->parked))
		return false;
	if (!is_released(r) || (sim_cold_is_kept() && !restore()))
		return false;
	mover->migration.to = HOST_B; /* as sim_lost_play() knows those that it is to look at */
	return sim_lost_play(&r->parked);
}

static bool gets_right(struct sim_result *r)
{
	for (int tries = 0; tries < TRIES; tries++) {
		if (!settles())
			return false;
		mend();
		if (is_to_be_restored() && !restore())
			return false;
		if (sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, watch))
			return true;
		if (!sim_resolve_all(&r->parked) || sim_resolve_was_refused())
			return false;
	}
	return false;
}

/* ---- one cell ---- */

/* The operator restores what the scenario leaves to him, once, and nothing is given up. */
static bool keeps_promise(const struct sim_fault *f, const struct sim_point *p,
			  const struct sim_result *r)
{
	bool is_plain = p->scenario == SAVED || p->scenario == RESTORED;
	enum sim_promise promise = f && is_plain ? f->promise : PROMISE_NONE;
	bool before = p->role == ROLE_SOURCE && p->state <= M_DETACH;

	if (promise == PROMISE_ARRIVES &&
	    (!r->moved || r->parked || restores != (p->scenario == SAVED)))
		return sim_is_wrong("it was given up for an event: %.300s", sim_reply.error);
	if (promise == PROMISE_STAYS && before && (r->moved || r->parked || restores))
		return sim_is_wrong("it went on without its journal");
	return true;
}

static bool cold_again(void)
{
	int from = sim_home(mover), to = from == HOST_A ? HOST_B : HOST_A;

	sim_cold_save(from);
	if (!sim_cold_wait() || sim_reply.rc)
		return sim_is_wrong("the next save fails: %.300s", sim_reply.error);
	sim_cold_restore(to, false);
	if (!sim_cold_wait() || sim_reply.rc)
		return sim_is_wrong("the next restore fails: %.300s", sim_reply.error);
	return sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, watch) &&
	       (sim_home(mover) == to || sim_is_wrong("it is on host %d", sim_home(mover)));
}

bool faults_cold_play(const struct sim_fault *f, const struct sim_point *p, unsigned delay_ms,
		      struct sim_result *ret)
{
	uint64_t start;

	if (!set_scene((enum scenario)p->scenario))
		return false;
	ret->reached = sim_run(sim_at_point, (void *)(uintptr_t)p, sim_us() + REACH_S * SIM_S,
			       watch);
	if (!ret->reached)
		return sim_is_wrong("the state was not reached");
	sim_run(NULL, NULL, sim_us() + delay_ms * SIM_MS, watch);
	sim_strike(f, ret);
	start = sim_us();
	sim_run(NULL, NULL, sim_us() + BEHIND_S * SIM_S, watch);
	if (sim_source_lost) {
		bool right = gets_right_without_a(ret);

		ret->dead = sim_home(mover) < 0;
		ret->moved = !ret->dead;
		return right;
	}
	if (!(sim_destination_lost ? gets_right_without_b(ret) : gets_right(ret)))
		return false;
	ret->seconds = (double)(sim_us() - start) / 1e6;
	ret->moved = sim_home(mover) == HOST_B;
	ret->dead = sim_home(mover) < 0;
	if (!keeps_promise(f, p, ret))
		return false;
	/* The world stays right, too. */
	sim_run(NULL, NULL, sim_us() + STAY_S * SIM_S, watch);
	return sim_all_right(NULL) && (ret->dead || cold_again());
}
