/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The second of a VM's two VFs has something wrong, on simulated hosts (tests/sim/world.h). Before
 * COMMIT the VM stays with both; after it the record is parked, and `ibvmig resolve` gives it both
 * there. The sentence names the VF that it is about, and no other. */
#include "tests/sim/right.h"
#include "common/ib.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/scene.h"

#include <string.h>

#define RIGHT_S 240

static struct sim_guest *const mover = &sim_guests[0];

/* ---- faults: each is set at the beginning of a state, and mended after the migration ---- */

static void provider_refuses(bool bad)
{
	sim_hosts[HOST_B].vfs[sim_size.vfs / 2].unfit = bad;
}

static void guest_keeps(bool bad)
{
	mover->ignores_device_del = bad;
}

static void fabric_refuses(bool bad)
{
	sim_fabric.unseen_guid = bad ? sim_hosts[HOST_B].vfs[sim_size.vfs / 2].parked_guid : 0;
}

static void attach_fails(bool bad)
{
	sim_hosts[HOST_B].device_add_fails = bad;
}

static void port_is_dead(bool bad)
{
	mover->port_dead = bad;
}

/* The first VF of pf1 is the one that the VM's second one becomes. */
static const struct scene {
	const char *name;
	const char *strategy;
	void (*set)(bool bad);
	enum migrate_state in; /* the source's state */
	const char *word;      /* must be in the sentence; NULL: the second vGUID */
	const char *other;     /* must not be in it: the VF that is well */
	bool parks;            /* at the destination; else the VM stays */
} scenes[] = {
	{"the provider there does not prepare it", "late", provider_refuses, M_PREPARE,
	 "VF b-vf3: ", "b-vf1", false},
	{"the guest keeps it: late", "late", guest_keeps, M_PREPARE,
	 "the guest keeps VF a-vf3: ", "a-vf1", false},
	{"the guest keeps it: early", "early", guest_keeps, M_PREPARE,
	 "the guest keeps VF a-vf3: ", "a-vf1", false},
	{"its address would not move: late", "late", fabric_refuses, M_PREPARE, "VF b-vf3 of hostb",
	 "b-vf1", false},
	{"its address would not move: early", "early", fabric_refuses, M_PREPARE,
	 "VF b-vf3 of hostb", "b-vf1", false},
	{"its address does not move after all: late", "late", fabric_refuses, M_DETACH,
	 "VF b-vf3 of hostb", "b-vf1", true},
	{"its address does not move after all: early", "early", fabric_refuses, M_DETACH,
	 "VF b-vf3 of hostb", "b-vf1", true},
	{"QEMU there does not take it: late", "late", attach_fails, M_PREPARE,
	 "VF b-vf3: ", "b-vf1", true},
	{"QEMU there does not take it: early", "early", attach_fails, M_PREPARE,
	 "VF b-vf3: ", "b-vf1", true},
	{"its port never becomes ACTIVE", "late", port_is_dead, M_PREPARE, NULL, "b-vf1", true},
};

static struct migration *newest(int host)
{
	return sim_hosts[host].d.migrations;
}

static bool says(const char *text, const struct scene *s)
{
	char guid[IB_GUID_TEXT];

	ib_guid_format(mover->vguids[1], guid);
	if (!strstr(text, s->word ? s->word : guid))
		return sim_is_wrong("\"%.300s\" does not name it", text);
	return !strstr(text, s->other) ||
	       sim_is_wrong("\"%.300s\" names the VF that is well", text);
}

static bool becomes_right(void)
{
	return sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, sim_never);
}

/* Both VFs are in use and work where the VM is: sim_all_right() looks at each. */
static bool runs_on(int host)
{
	return sim_home(mover) == host || sim_is_wrong("it is on host %d", sim_home(mover));
}

static bool stays(const struct scene *s)
{
	struct migration *m = newest(HOST_A);

	if (mover->migration.ok)
		return sim_is_wrong("it has migrated");
	/* A refusal in PREPARE is told by virsh alone. */
	if (!says(m ? m->rec.reason : mover->migration.error, s))
		return false;
	s->set(false);
	return becomes_right() && runs_on(HOST_A);
}

static void resolved(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	(void)answer;
	if (rc)
		snprintf(sim_broken, sizeof sim_broken, "resolve is refused: %.200s", error);
}

static bool parks(const struct scene *s)
{
	struct migration *m = newest(HOST_B);
	char *path AUTO_FREE = NULL;

	if (!m || m->rec.state != M_PARKED)
		return sim_is_wrong("it is not parked");
	if (!says(m->rec.trouble, s))
		return false;
	s->set(false);
	path = strf("/v1/migrations/%s/resolve", m->rec.id);
	sim_http(HOST_B, "unix:/ibvmigd-hostb.sock", "POST", path, NULL, 10000, resolved, NULL);
	return becomes_right() && runs_on(HOST_B);
}

static bool has_come_to(void *arg)
{
	const struct scene *s = arg;
	struct migration *m = newest(HOST_A);

	return s->in == M_PREPARE || (m && m->rec.state == s->in);
}

static bool play(const void *arg, const char *dir)
{
	const struct scene *s = arg;

	sim_mover = (struct sim_mover){.strategy = s->strategy, .two_vfs = true};
	if (!sim_world_start(dir) || !becomes_right())
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(has_come_to, (void *)(uintptr_t)s, sim_us() + RIGHT_S * SIM_S, sim_never))
		return sim_is_wrong("it does not come to %s", migrate_state_name(s->in));
	s->set(true);
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never))
		return false;
	return (s->parks ? parks(s) : stays(s)) && !*sim_broken;
}

int main(int argc, char **argv)
{
	struct sim_scene list[ARRAY_SIZE(scenes)];

	for (size_t i = 0; i < ARRAY_SIZE(scenes); i++)
		list[i] = (struct sim_scene){scenes[i].name, play, &scenes[i]};
	return sim_scenes(list, ARRAY_SIZE(scenes), argc, argv);
}
