/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Partitions on simulated hosts (tests/sim/world.h): whose right counts, what a refusal names, and
 * what becomes of a VM whose right nobody can tell. No PF is a member of the VMs' partition. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/operator.h"
#include "tests/sim/right.h"
#include "tests/sim/scene.h"

#include <string.h>

#define RIGHT_S 240

static struct sim_guest *const mover = &sim_guests[0];

static bool becomes_right(void)
{
	return sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, sim_never);
}

static const struct scene {
	const char *name;
	enum sim_rights rights; /* from the moment when the VM is asked to move */
	const char *pkey;       /* that QPs of the guest have; NULL: the VM's own */
	const char *refused;    /* the refusal's words; NULL: it moves */
	const char *noted;      /* the dry run's, where it moves; NULL: nothing */
} scenes[] = {
	{"a full member moves, with PFs that are none", RIGHTS_FULL, NULL, NULL, NULL},
	{"a limited member is a member", RIGHTS_LIMITED, "0x0001", NULL,
	 "is a limited member of the partition of PKey 0x8001: it speaks with full members only"},
	{"no member is refused by name", RIGHTS_NONE, NULL,
	 "is no member of the partition of PKey 0x8001", NULL},
	{"a QP's P_Key that the vGUID lacks is refused by name", RIGHTS_FULL, "0x8002",
	 "process 12 (ib_write_bw) in the guest has QPs with PKey 0x8002", NULL},
	{"a full member's QP where the vGUID is a limited one", RIGHTS_LIMITED, "0x8001",
	 "is a limited member only", "speaks with full members only"},
	{"an older ibvmig-sm does not know the question", RIGHTS_OLD, "0x8002", NULL,
	 "another version of ibvmig runs there"},
	{"an ibvmig-sm that does not answer the question", RIGHTS_SILENT, "0x8002", NULL,
	 "cannot be told"},
};

static bool dry_run_says(const struct scene *s)
{
	struct json_object *notes, *blocked;

	if (!sim_ask(HOST_A, "POST", "/v1/vms/g1/migrate", "{\"to\":\"hostb\",\"dry_run\":true}"))
		return sim_is_wrong("the dry run is refused: %.300s", sim_refusal);
	notes = json_opt(sim_answer, "notes");
	blocked = json_opt(sim_answer, "blocked");
	if (json_opt_bool(sim_answer, "possible", false) == (s->refused != NULL) ||
	    json_count(blocked) != (s->refused != NULL))
		return sim_is_wrong("the dry run: %.300s", json_text(sim_answer));
	if (s->refused && !strstr(json_text(blocked), s->refused))
		return sim_is_wrong("the dry run does not name it: %.300s", json_text(blocked));
	return s->noted ? strstr(json_text(notes), s->noted) ||
				  sim_is_wrong("it is not noted: %.300s", json_text(notes))
			: !json_count(notes) || sim_is_wrong("noted: %.300s", json_text(notes));
}

/* Where it is refused, nothing has been done to anybody: the connection never stood. */
static bool moves(const struct scene *s)
{
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never))
		return false;
	if (s->refused && (mover->migration.ok || !strstr(mover->migration.error, s->refused)))
		return sim_is_wrong("virsh says \"%.300s\"", mover->migration.error);
	if (!s->refused && !mover->migration.ok)
		return sim_is_wrong("it does not move: %.300s", mover->migration.error);
	return (becomes_right() && sim_home(mover) == (s->refused ? HOST_A : HOST_B)) ||
	       sim_is_wrong("it is on host %d", sim_home(mover));
}

static bool play(const void *arg, const char *dir)
{
	const struct scene *s = arg;

	sim_mover = (struct sim_mover){.strategy = "late"};
	if (!sim_world_start(dir) || !becomes_right())
		return false;
	sim_fabric.rights = s->rights;
	mover->pkey = s->pkey;
	return dry_run_says(s) && moves(s) && !*sim_broken;
}

/* ---- in the guest something begins during the copy ---- */

static bool copies(void *arg)
{
	struct migration *m = sim_record(HOST_A, ROLE_SOURCE);

	(void)arg;
	return m && m->rec.state == M_HOLD;
}

/* peer_host: of the one that it is connected to; a peer on its own host needs no looking for. */
static bool play_new_pkey(const void *peer_host, const char *dir)
{
	int at = *(const int *)peer_host;
	struct sim_guest *g = mover;

	if (at == HOST_A) {
		sim_size.vfs = 8; /* this host has three VMs */
		g = sim_add_pair(HOST_A, HOST_A);
	}
	sim_mover = (struct sim_mover){.strategy = "late", .ram_bytes = 1ull << 30};
	if (!sim_world_start(dir) || !becomes_right())
		return false;
	sim_migrate(g, HOST_A, HOST_B);
	if (!sim_run(copies, NULL, sim_us() + RIGHT_S * SIM_S, sim_never))
		return sim_is_wrong("it does not copy");
	g->pkey = "0x8002";
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never))
		return false;
	if (g->migration.ok ||
	    !strstr(sim_record(HOST_A, ROLE_SOURCE)->rec.reason, "QPs with PKey 0x8002"))
		return sim_is_wrong("the reason is \"%.300s\"",
				    sim_record(HOST_A, ROLE_SOURCE)->rec.reason);
	return becomes_right() && sim_home(g) == HOST_A && !*sim_broken;
}

/* ---- a VM that starts ---- */

static bool runs_without(void *arg)
{
	(void)arg;
	return sim_ask(HOST_A, "GET", "/v1/vms/g1", NULL) &&
	       str_eq(json_opt_str(sim_answer, "state", ""), "without-vf");
}

static bool is_said(void *arg)
{
	return sim_ask(HOST_A, "GET", "/v1/status", NULL) &&
	       str_eq(json_opt_str(json_object_array_get_idx(json_opt(sim_answer, "vms"), 0),
				   "membership", ""),
		      arg);
}

/* It gets its VF as soon as its vGUID is a member; status says which. */
static bool play_start(const void *arg, const char *dir)
{
	static char full[] = "full";

	(void)arg;
	sim_mover = (struct sim_mover){.strategy = "auto"};
	sim_fabric.rights = RIGHTS_NONE;
	sim_world_start(dir);
	if (!sim_run(runs_without, NULL, sim_us() + 60 * SIM_S, NULL))
		return sim_is_wrong("it has a VF: %.300s", json_text(sim_answer));
	if (!strstr(json_opt_str(sim_answer, "problem", ""), "is no member of the partition"))
		return sim_is_wrong("not named: %.300s", json_text(sim_answer));
	if (sim_vfs_with(mover->vguids[0]))
		return sim_is_wrong("a VF shows its vGUID");
	sim_fabric.rights = RIGHTS_FULL;
	if (!sim_ask(HOST_A, "POST", "/v1/vms/g1/attach", "{}") ||
	    !sim_ask(HOST_C, "POST", "/v1/vms/g2/attach", "{}"))
		return sim_is_wrong("not attached: %.300s", sim_refusal);
	return becomes_right() && (sim_run(is_said, full, sim_us() + 60 * SIM_S, NULL) ||
				   sim_is_wrong("status: %.300s", json_text(sim_answer)));
}

int main(int argc, char **argv)
{
	static const int near = HOST_A, far = HOST_C;
	struct sim_scene list[ARRAY_SIZE(scenes) + 3];
	size_t n = 0;

	for (; n < ARRAY_SIZE(scenes); n++)
		list[n] = (struct sim_scene){scenes[n].name, play, &scenes[n]};
	list[n++] = (struct sim_scene){"a P_Key that comes during the copy", play_new_pkey, &far};
	list[n++] = (struct sim_scene){"the same, and all peers are here", play_new_pkey, &near};
	list[n++] = (struct sim_scene){"a VM that starts before it is a member", play_start, NULL};
	return sim_scenes(list, n, argc, argv);
}
