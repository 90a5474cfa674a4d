/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two switches with eight VFs each, for ibvmig-sm's batches of moves: what OpenSM's tables say of
 * them, and what the VFs show, are played; the registry is real. To be included once in a program.
 */
#ifndef IBVMIG_TESTS_MOVES_WORLD_H
#define IBVMIG_TESTS_MOVES_WORLD_H

#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"
#include "daemon/base/sm.h"
#include "sm-helper/moves/dynamic.h"
#include "sm-helper/moves/ops.h"

/* Time passes in sleeps alone: no stall of this machine comes between a deadline and what is to
 * begin before it. */
static uint64_t clock_us = 3600000000;

int clock_gettime(clockid_t id, struct timespec *t)
{
	(void)id;
	*t = (struct timespec){.tv_sec = (time_t)(clock_us / 1000000),
			       .tv_nsec = (long)(clock_us % 1000000 * 1000)};
	return 0;
}

int usleep(useconds_t us)
{
	clock_us += us;
	return 0;
}

#define VFS 8 /* VFs of a switch, at its ports 2 to 9 */
#define OWN (2 * VFS)

struct vf_place {
	uint64_t guid, shown; /* port GUIDs: in OpenSM's tables, on the VF */
	uint16_t lid;
};

static struct world {
	struct vf_place at[2 * VFS + 1]; /* and our own port */
	uint64_t generation;
	unsigned sweeps, sweeping; /* asked for; how often the status still says that one runs */
	unsigned assigns, targets; /* calls, and how many places the last one named */
	unsigned reads;            /* reads of the topology */
	bool swept;                /* a sweep ends just before the next batch begins */
	int fail[4];          /* results of the next calls, the last one for good; 0: carried out */
	unsigned deadline_ms; /* deadline of the last call */
	int lost;             /* carried out, but this is returned */
	uint16_t lie;         /* a LID that the switches send nowhere */
	unsigned lie_us;      /* the switches do send it for one look, which takes so long */
	uint8_t others,
		past; /* SMs in the fabric; of these: gone, but OpenSM knows after a sweep */
	int twin_lead, twin_tell; /* answers of the other ibvmig-sm */
	unsigned told, alone;     /* batches that it was told; changes made without it */
	unsigned entries;         /* entries of GUID tables that OpenSM was told */
	uint64_t refused;         /* a vGUID that it does not take there */
	uint64_t entry;           /* GUID in the entry of our own port's GUID table */
	bool mute;                /* our own port does not answer */
	bool smps_lost;           /* those that are routed by LID */
	int clear_fails;          /* result of clearing that entry */
	uint32_t flags;           /* of the last batch */
	struct sm_owner owner;    /* who has the subnet */
	uint32_t bound;           /* vGUIDs that the plugin knows */
} w;

static uint64_t switch_of(unsigned place)
{
	return place < VFS || place == OWN ? 0x10 : 0x20;
}

static uint8_t port_of(unsigned place)
{
	return (uint8_t)(place == OWN ? 10 : 2 + place % VFS);
}

static uint64_t parked(unsigned place)
{
	return 0x1001 + 2 * place;
}

static uint64_t vguid(unsigned vm)
{
	return 0x5001 + 2 * vm;
}

static int place_at(uint64_t sw, unsigned port)
{
	for (unsigned i = 0; i <= OWN; i++)
		if (switch_of(i) == sw && port_of(i) == port)
			return (int)i;
	return -1;
}

/* ---- played: OpenSM ---- */

int backend_status(struct backend *c, struct sm_status_reply *s,
		   char error[static BACKEND_ERROR_MAX])
{
	(void)c;
	(void)error;
	*s = (struct sm_status_reply){.instance = 1,
				      .generation = w.generation,
				      .sweeping = w.sweeping && w.sweeping--,
				      .sm_state = 3,
				      .others = w.others,
				      .owner = w.owner,
				      .bound = w.bound,
				      .ready = 1};
	return 0;
}

bool backend_claims(const struct backend *c)
{
	(void)c;
	return true;
}

int backend_claim(struct backend *c, const struct sm_owner_request *want,
		  struct sm_owner *ret_owner, char error[static BACKEND_ERROR_MAX])
{
	(void)c;
	if (w.owner.registry && !(want->flags & SM_OWNER_TAKE) &&
	    (w.owner.registry != want->owner.registry || w.owner.grant != want->was))
		return backend_fail(error, -EKEYREJECTED, "another has it");
	w.owner = want->owner;
	w.owner.epoch++;
	*ret_owner = w.owner;
	return 0;
}

int backend_sweep(struct backend *c, char error[static BACKEND_ERROR_MAX])
{
	(void)c;
	(void)error;
	w.sweeps++;
	w.sweeping = 3;
	return 0;
}

int backend_fabric(struct backend *c, struct fabric *f, struct backend_epoch *ret_epoch,
		   char error[static BACKEND_ERROR_MAX])
{
	(void)c;
	(void)error;
	w.reads++;
	fabric_clear(f);
	assert_int_equal(fabric_add_switch(f, 0x10, 200, 12, "s0"), 0);
	assert_int_equal(fabric_add_switch(f, 0x20, 201, 12, "s1"), 0);
	assert_int_equal(fabric_link(f, 0x10, 1, 0x20, 1), 0);
	for (unsigned i = 0; i <= OWN; i++) {
		struct fabric_end e = {.node_guid = w.at[i].guid - 1,
				       .port_guid = w.at[i].guid,
				       .lid = w.at[i].lid,
				       .port = 1,
				       .desc = "vf"};

		assert_int_equal(fabric_add_end(f, &e), 0);
		assert_int_equal(fabric_attach(f, i, switch_of(i), port_of(i)), 0);
	}
	*ret_epoch = (struct backend_epoch){1, w.generation};
	return 0;
}

/* The generation that a batch has begun with and the one that it has made. */
static void next_generation(uint64_t *ret_before, uint64_t *ret_after)
{
	w.generation += w.swept;
	w.swept = false;
	*ret_before = w.generation;
	*ret_after = ++w.generation;
}

int backend_guids(struct backend *c, const struct sm_slot *slots, unsigned count,
		  unsigned deadline_ms, struct sm_guids_reply *r,
		  char error[static BACKEND_ERROR_MAX])
{
	(void)c;
	(void)deadline_ms;
	strcpy(error, "played");
	for (unsigned i = 0; i < count; i++)
		if (w.refused && slots[i].guid == w.refused)
			return -EINVAL;
	if (!slots[0].guid && w.clear_fails)
		return w.clear_fails;
	w.entries += count;
	*r = (struct sm_guids_reply){.instance = 1, .before[0] = w.entry};
	w.entry = slots[0].guid;
	for (unsigned i = 0; i < count; i++)
		r->lid[i] = slots[i].was_lid;
	next_generation(&r->generation_before, &r->generation);
	return 0;
}

int probe_guid(struct probe *m, uint16_t lid, uint64_t port_guid, unsigned index,
	       uint64_t *ret_guid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)lid;
	strcpy(error, "played");
	assert_int_equal(port_guid, parked(OWN));
	assert_int_equal(index, 1);
	*ret_guid = w.entry;
	return w.mute ? -EIO : 0;
}

/* Nothing is parked here: tests/unit/sm-helper/parked.c. */
int backend_parked(struct backend *c, uint32_t first, uint32_t flags,
		   struct sm_parked_reply *ret_reply, char error[static BACKEND_ERROR_MAX])
{
	(void)c;
	(void)first;
	(void)flags;
	(void)ret_reply;
	(void)error;
	fail();
	return -ECONNREFUSED;
}

int probe_port_info(struct probe *m, const struct probe_route *to, unsigned port,
		    struct probe_port *ret_port, char error[static PROBE_ERROR_MAX])
{
	int i = place_at(to->hops == 2 ? 0x10 : 0x20, to->path[to->hops]);

	(void)m;
	(void)error;
	assert_int_equal(port, 0);
	assert_true(i >= 0);
	*ret_port = (struct probe_port){.lid = w.at[i].lid, .state = 4};
	return 0;
}

static int assign_one(const struct sm_target *t, struct sm_target *ret_before, uint16_t *ret_lid)
{
	int i = place_at(t->switch_guid, t->switch_port);
	struct vf_place *at;

	assert_true(i >= 0 && i < OWN);
	at = &w.at[i];
	if ((t->was_guid && t->was_guid != at->guid) || (t->was_lid && t->was_lid != at->lid))
		return -ESTALE;
	*ret_before = *t;
	ret_before->port_guid = at->guid;
	ret_before->node_guid = at->guid - 1;
	ret_before->lid = at->lid;
	at->guid = t->port_guid;
	at->lid = t->lid ? t->lid : at->lid;
	*ret_lid = at->lid;
	return 0;
}

/* A place that shall keep its LID, which another one of the batch gets, has the one that waits for
 * it: the told one, or else the VF's own. */
static void keep_lids(const struct sm_target *t, unsigned count, struct sm_assign_reply *r)
{
	for (unsigned i = 0; i < count; i++) {
		int at = place_at(t[i].switch_guid, t[i].switch_port);

		r->own_lid[i] = t[i].own_lid;
		for (unsigned k = 0; !t[i].lid && k < count; k++)
			if (t[k].lid == w.at[at].lid)
				r->lid[i] = w.at[at].lid = t[i].own_lid ? t[i].own_lid
									: (uint16_t)(at + 1);
	}
}

/* The plugin refuses a batch after which two ports would have one LID, those that wait at places
 * with copies included. */
static int check_lids(const struct sm_target *t, unsigned count)
{
	for (unsigned i = 0; i <= OWN; i++)
		for (unsigned k = 0; k < i; k++)
			if (w.at[i].lid == w.at[k].lid)
				return -EEXIST;
	for (unsigned i = 0; i < count; i++) {
		int own = place_at(t[i].switch_guid, t[i].switch_port);

		for (int k = 0; t[i].like_guid && k <= OWN; k++)
			if (k != own && w.at[k].lid == t[i].own_lid)
				return -EEXIST;
	}
	return 0;
}

int backend_assign(struct backend *c, const struct sm_target *t, unsigned count, uint32_t flags,
		   unsigned deadline_ms, struct sm_assign_reply *r,
		   char error[static BACKEND_ERROR_MAX])
{
	struct vf_place saved[2 * VFS + 1];
	int rc = w.fail[0];

	(void)c;
	w.flags = flags;
	strcpy(error, "played");
	w.deadline_ms = deadline_ms;
	w.assigns++;
	w.targets = count;
	memmove(w.fail, w.fail + 1, sizeof w.fail - sizeof w.fail[0]);
	memcpy(saved, w.at, sizeof saved);
	for (unsigned i = 0; !rc && i < count; i++)
		rc = assign_one(&t[i], &r->before[i], &r->lid[i]);
	if (!rc)
		keep_lids(t, count, r);
	rc = rc ? rc : check_lids(t, count);
	if (rc) {
		memcpy(w.at, saved, sizeof saved);
		return rc;
	}
	r->lft_smps = memcmp(saved, w.at, sizeof saved) != 0;
	r->instance = 1;
	next_generation(&r->generation_before, &r->generation);
	return w.lost;
}

int twin_lead(struct twin *p, char error[static BACKEND_ERROR_MAX])
{
	(void)p;
	strcpy(error, "played");
	return w.twin_lead;
}

void twin_sm(struct twin *p, uint64_t instance, bool master)
{
	(void)p;
	assert_int_equal(instance, 1);
	assert_true(master);
}

void twin_mend(struct twin *p)
{
	(void)p;
}

bool twin_ready(struct twin *p)
{
	(void)p;
	return !w.twin_tell;
}

uint64_t twin_standby(struct twin *p)
{
	(void)p;
	return 0;
}

/* The batch is told before it begins, and the registry has it as begun. */
int twin_tell(struct twin *p, const struct sm_target *t, unsigned count,
	      char error[static BACKEND_ERROR_MAX])
{
	(void)p;
	strcpy(error, "played");
	if (w.twin_tell)
		return w.twin_tell;
	w.told++;
	assert_int_equal(w.told, w.assigns + 1);
	for (unsigned i = 0; i < count; i++) {
		int at = place_at(t[i].switch_guid, t[i].switch_port);

		assert_int_equal(t[i].was_guid, w.at[at].guid);
		assert_int_equal(t[i].was_lid, w.at[at].lid);
	}
	return 0;
}

int twin_go_alone(struct twin *p)
{
	(void)p;
	w.alone++;
	return 0;
}

void path_service_expire(struct path_service *s)
{
	(void)s;
}

/* ---- played: the fabric ---- */

int probe_own_guid(struct probe *m, uint64_t *ret_guid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	*ret_guid = w.at[OWN].guid;
	return 0;
}

int probe_node_info(struct probe *m, const struct probe_route *to, uint64_t *ret_node,
		    uint64_t *ret_port, char error[static PROBE_ERROR_MAX])
{
	int i = place_at(to->hops == 2 ? 0x10 : 0x20, to->path[to->hops]);

	(void)m;
	(void)error;
	assert_true(i >= 0);
	*ret_port = w.at[i].shown;
	*ret_node = w.at[i].shown - 1;
	return 0;
}

int probe_node_info_lid(struct probe *m, uint16_t lid, uint64_t *ret_port,
			char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	for (unsigned i = 0; !w.smps_lost && i <= OWN; i++)
		if (w.at[i].lid == lid) {
			*ret_port = w.at[i].shown;
			return 0;
		}
	if (!w.smps_lost && (lid == 200 || lid == 201)) { /* the switches */
		*ret_port = lid == 200 ? 0x10 : 0x20;
		return 0;
	}
	return -EIO;
}

/* VFs whose guests do not run answer none. */
int probe_gmp_lid(struct probe *m, uint16_t lid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)lid;
	(void)error;
	return -EIO;
}

int probe_lft_blocks(struct probe *m, struct probe_block *b, unsigned count,
		     char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	for (unsigned n = 0; n < count; n++) {
		uint64_t sw = b[n].to.hops == 1 ? 0x10 : 0x20;

		memset(b[n].data, VSWITCH_NO_PATH, sizeof b[n].data);
		for (unsigned i = 0; i <= OWN; i++)
			if (w.at[i].lid / 64 == b[n].block && w.at[i].lid != w.lie)
				b[n].data[w.at[i].lid % 64] = switch_of(i) == sw ? port_of(i) : 1;
		b[n].read = true;
	}
	if (w.lie_us) {
		usleep(w.lie_us);
		w.lie = w.lie_us = 0;
	}
	return 0;
}

/* ---- a host's part ---- */

static char dir[64], path[96];
static struct ops o;

static struct reg_vf vf(unsigned place)
{
	struct reg_vf v = {.parked_guid = parked(place)};

	snprintf(v.host, sizeof v.host, "h%u", place);
	snprintf(v.vf, sizeof v.vf, "vf%u", place);
	return v;
}

static struct move_request way(unsigned vm, unsigned from, unsigned to)
{
	struct move_request m = {
		.vguid = vguid(vm), .vm = "vm", .from = vf(from), .to = vf(to), .pkey = 0xffff};

	return m;
}

/* Does what the hosts do before a move, and to undo one. All that is left shows its own GUID before
 * a vGUID is shown anywhere else. */
static void show(const struct move_request *m, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < OWN; k++)
			if (parked(k) == m[i].from.parked_guid)
				w.at[k].shown = parked(k);
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < OWN; k++)
			if (parked(k) == m[i].to.parked_guid)
				w.at[k].shown = m[i].vguid;
}

/* VM n on place n, with LID n + 1. */
static int setup(void **state)
{
	char *error = NULL;

	(void)state;
	strcpy(dir, "/tmp/test_sm_moves.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof path, "%s/r.db", dir);
	o = (struct ops){.verify_sources = 0};
	pthread_mutex_init(&o.lock, NULL);
	if (registry_open(path, &o.registry, &error))
		return -1;
	w = (struct world){.generation = 1};
	for (unsigned i = 0; i <= OWN; i++)
		w.at[i] = (struct vf_place){parked(i), parked(i), (uint16_t)(i + 1)};
	for (unsigned i = 0; i < 4; i++) {
		struct reg_entry e = {.vguid = vguid(i), .vm = "vm", .lid = w.at[i].lid};

		e.at = vf(i);
		e.at.switch_guid = switch_of(i);
		e.at.switch_port = port_of(i);
		w.at[i].guid = w.at[i].shown = vguid(i);
		if (registry_put(o.registry, &e))
			return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	static const char *const suffix[] = {"", "-wal", "-shm"};

	(void)state;
	registry_close(o.registry);
	fabric_clear(&o.fabric);
	for (size_t i = 0; i < ARRAY_SIZE(suffix); i++) {
		char *f AUTO_FREE = strf("%s%s", path, suffix[i]);

		unlink(f);
	}
	return rmdir(dir);
}

/* The VM is there for the registry and for OpenSM, with the LID that it always had, and nothing
 * about it is open. */
static void assert_at(unsigned vm, unsigned place)
{
	struct reg_entry e;

	assert_int_equal(registry_find(o.registry, vguid(vm), &e), 0);
	assert_int_equal(e.intent, REG_NONE);
	assert_int_equal(e.at.parked_guid, parked(place));
	assert_int_equal(w.at[place].guid, vguid(vm));
	assert_int_equal(w.at[place].lid, vm + 1);
}

static struct move_result res;
static struct op_error e;
static uint64_t deadline_us; /* deadline of ops_move(); 0: as it comes */

static int move_all(const struct move_request *m, unsigned n)
{
	e = (struct op_error){0};
	return ops_move(&o, m, n, deadline_us, &res, &e);
}

static void assert_nothing_moved(unsigned assigns)
{
	assert_int_equal(w.assigns, assigns);
	for (unsigned i = 0; i < 4; i++)
		assert_at(i, i);
}

#endif
