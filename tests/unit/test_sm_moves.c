/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Batches of moves with a real registry; OpenSM and the fabric are played: two switches with eight
 * VFs each, what OpenSM's tables say of them, and what the VFs show. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "daemon/sm.h"
#include "sm-helper/dynamic.h"
#include "sm-helper/ops.h"

#define VFS 8 /* of a switch, at its ports 2 to 9 */
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
	unsigned reads;            /* of the topology */
	bool swept;                /* a sweep ends just before the next batch begins */
	int fail[4]; /* what the next calls return, the last one for good; 0: carried out */
	unsigned deadline_ms; /* of the last call */
	int lost;             /* carried out, but this is returned */
	uint16_t lie;         /* a LID that the switches send nowhere */
	uint8_t others,
		past; /* SMs in the fabric; of these: gone, but OpenSM knows after a sweep */
	int peer_lead, peer_tell; /* what the other ibvmig-sm makes of it */
	unsigned told, alone;     /* batches that it was told; changes made without it */
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

int client_status(struct client *c, struct sm_status_reply *s, char error[static CLIENT_ERROR_MAX])
{
	(void)c;
	(void)error;
	*s = (struct sm_status_reply){.instance = 1,
				      .generation = w.generation,
				      .sweeping = w.sweeping && w.sweeping--,
				      .sm_state = 3,
				      .others = w.others,
				      .ready = 1};
	return 0;
}

int client_sweep(struct client *c, char error[static CLIENT_ERROR_MAX])
{
	(void)c;
	(void)error;
	w.sweeps++;
	w.sweeping = 3;
	return 0;
}

int client_fabric(struct client *c, struct fabric *f, struct client_epoch *ret_epoch,
		  char error[static CLIENT_ERROR_MAX])
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
	*ret_epoch = (struct client_epoch){1, w.generation};
	return 0;
}

/* No VF here shares its port's LID. */
int client_guids(struct client *c, const struct sm_slot *slots, unsigned count,
		 unsigned deadline_ms, struct sm_guids_reply *ret_reply,
		 char error[static CLIENT_ERROR_MAX])
{
	(void)c;
	(void)slots;
	(void)count;
	(void)deadline_ms;
	(void)ret_reply;
	(void)error;
	fail();
	return -ECONNREFUSED;
}

int probe_guid(struct probe *m, uint16_t lid, uint64_t port_guid, unsigned index,
	       uint64_t *ret_guid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)lid;
	(void)port_guid;
	(void)index;
	(void)ret_guid;
	(void)error;
	fail();
	return -EIO;
}

/* Nothing is parked here: tests/unit/test_sm_parked.c. */
int client_parked(struct client *c, uint32_t first, uint32_t flags,
		  struct sm_parked_reply *ret_reply, char error[static CLIENT_ERROR_MAX])
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
	(void)m;
	(void)to;
	(void)port;
	(void)ret_port;
	(void)error;
	fail();
	return -EIO;
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

int client_assign(struct client *c, const struct sm_target *t, unsigned count, uint32_t flags,
		  unsigned deadline_ms, struct sm_assign_reply *r,
		  char error[static CLIENT_ERROR_MAX])
{
	struct vf_place saved[2 * VFS + 1];
	int rc = w.fail[0];

	(void)c;
	(void)flags;
	strcpy(error, "played");
	w.deadline_ms = deadline_ms;
	w.assigns++;
	w.targets = count;
	memmove(w.fail, w.fail + 1, sizeof w.fail - sizeof w.fail[0]);
	memcpy(saved, w.at, sizeof saved);
	for (unsigned i = 0; !rc && i < count; i++)
		rc = assign_one(&t[i], &r->before[i], &r->lid[i]);
	if (rc) {
		memcpy(w.at, saved, sizeof saved);
		return rc;
	}
	r->lft_smps = memcmp(saved, w.at, sizeof saved) != 0;
	w.generation += w.swept;
	w.swept = false;
	r->instance = 1;
	r->generation_before = w.generation;
	r->generation = ++w.generation;
	return w.lost;
}

int peer_lead(struct peer *p, char error[static CLIENT_ERROR_MAX])
{
	(void)p;
	strcpy(error, "played");
	return w.peer_lead;
}

void peer_sm(struct peer *p, uint64_t instance, bool master)
{
	(void)p;
	assert_int_equal(instance, 1);
	assert_true(master);
}

void peer_mend(struct peer *p)
{
	(void)p;
}

bool peer_ready(struct peer *p)
{
	(void)p;
	return !w.peer_tell;
}

uint64_t peer_standby(struct peer *p)
{
	(void)p;
	return 0;
}

/* The batch is told before it begins, and the registry has it as begun. */
int peer_tell(struct peer *p, const struct sm_target *t, unsigned count,
	      char error[static CLIENT_ERROR_MAX])
{
	(void)p;
	strcpy(error, "played");
	if (w.peer_tell)
		return w.peer_tell;
	w.told++;
	assert_int_equal(w.told, w.assigns + 1);
	for (unsigned i = 0; i < count; i++) {
		int at = place_at(t[i].switch_guid, t[i].switch_port);

		assert_int_equal(t[i].was_guid, w.at[at].guid);
		assert_int_equal(t[i].was_lid, w.at[at].lid);
	}
	return 0;
}

int peer_go_alone(struct peer *p)
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
	for (unsigned i = 0; i <= OWN; i++)
		if (w.at[i].lid == lid) {
			*ret_port = w.at[i].shown;
			return 0;
		}
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

/* What the hosts do before a move, and to undo one: all that is left shows its own GUID before a
 * vGUID is shown anywhere else. */
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
static uint64_t deadline_us; /* of ops_move(); 0: as it comes */

static int move_all(const struct move_request *m, unsigned n)
{
	e = (struct op_error){0};
	return ops_move(&o, m, n, deadline_us, &res, &e);
}

/* ---- tests ---- */

static void test_batch(void **state)
{
	struct move_request m[] = {way(0, 0, 8), way(1, 1, 9), way(2, 2, 4)};
	struct move_request mixed[] = {way(0, 0, 8), way(3, 3, 10)};

	(void)state;
	show(m, 3);
	assert_int_equal(move_all(m, 3), 0);
	assert_int_equal(w.assigns, 1);
	assert_int_equal(w.targets, 6);
	assert_int_equal(res.moves, 3);
	assert_true(res.verified);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(res.move[i].vguid, vguid(i));
		assert_int_equal(res.move[i].lid_after, i + 1);
	}
	assert_at(0, 8);
	assert_at(1, 9);
	assert_at(2, 4);
	assert_at(3, 3);
	assert_int_equal(w.at[0].guid, parked(0)); /* with the LID of the VF that the VM has now */
	assert_int_equal(w.at[0].lid, 9);
	assert_int_equal(o.moves, 3);
	assert_int_equal(move_all(m, 3), 0); /* again */
	assert_true(res.verified && !res.lft_smps);
	assert_int_equal(w.targets, 3);
	assert_int_equal(o.moves, 3);
	show(mixed + 1, 1); /* one that is there and one that goes */
	assert_int_equal(move_all(mixed, 2), 0);
	assert_int_equal(w.targets, 3);
	assert_at(0, 8);
	assert_at(3, 10);
	assert_int_equal(o.moves, 4);
}

/* The topology is read once, and again only when something else than our batches has changed it. */
static void test_follows(void **state)
{
	struct move_request there = way(0, 0, 8), back = way(0, 8, 0), swept = way(1, 1, 9);

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		show(&there, 1);
		assert_int_equal(move_all(&there, 1), 0);
		assert_at(0, 8);
		show(&back, 1);
		assert_int_equal(move_all(&back, 1), 0);
		assert_at(0, 0);
		assert_int_equal(fabric_find_end(&o.fabric, vguid(0)), 0);
		assert_int_equal(fabric_find_end(&o.fabric, parked(0)), FABRIC_NONE);
		assert_int_equal(o.fabric.end[8].lid, 9);
	}
	assert_int_equal(w.reads, 1);
	w.swept = true;
	show(&swept, 1);
	assert_int_equal(move_all(&swept, 1), 0);
	assert_true(res.verified);
	assert_int_equal(w.reads, 2);
}

static void test_twice(void **state)
{
	struct move_request vm[] = {way(0, 0, 8), way(1, 1, 9), way(0, 0, 10)},
			    to[] = {way(0, 0, 8), way(1, 1, 9), way(2, 2, 8)},
			    from[] = {way(0, 0, 8), way(1, 0, 9)};

	(void)state;
	show(vm, 2);
	assert_int_equal(move_all(vm, 3), -EINVAL);
	assert_int_equal(e.status, 400);
	assert_string_equal(e.detail, "moves 0 and 2 both name vGUID 0x0000000000005001");
	assert_int_equal(move_all(to, 3), -EINVAL);
	assert_string_equal(e.detail, "moves 0 and 2 both go to VF vf8 of h8 (parked GUID "
				      "0x0000000000001011)");
	assert_int_equal(move_all(from, 2), -EINVAL);
	assert_non_null(strstr(e.detail, "moves 0 and 1 both go from VF vf0"));
	assert_int_equal(w.assigns, 0);
	for (unsigned i = 0; i < 4; i++)
		assert_at(i, i);
}

static void assert_nothing_moved(unsigned assigns)
{
	assert_int_equal(w.assigns, assigns);
	for (unsigned i = 0; i < 4; i++)
		assert_at(i, i);
}

/* A VM goes where another one leaves: the LID of the VF at the end goes where the first one was,
 * and each place is named once. */
static void test_chain(void **state)
{
	struct move_request m[] = {way(1, 1, 2), way(0, 0, 1), way(2, 2, 9)};
	struct move_request back[] = {way(1, 2, 1), way(2, 9, 2), way(0, 1, 0)};
	struct move_request taken[] = {way(0, 0, 1), way(2, 2, 9)};

	(void)state;
	show(taken, 1); /* VM 1 stays where VM 0 wants to be */
	assert_int_equal(move_all(taken, 2), -EBUSY);
	assert_string_equal(e.code, "vf-in-use");
	w.at[1].shown = vguid(1);
	show(m, 3);
	assert_int_equal(move_all(m, 3), 0);
	assert_int_equal(w.targets, 4);
	assert_true(res.verified);
	assert_at(0, 1);
	assert_at(1, 2);
	assert_at(2, 9);
	assert_int_equal(w.at[0].guid, parked(0));
	assert_int_equal(w.at[0].lid, 10);
	assert_int_equal(move_all(m, 3), 0); /* again */
	assert_int_equal(w.targets, 3);
	show(back, 3);
	assert_int_equal(move_all(back, 3), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_at(i, i);
	assert_int_equal(w.at[9].lid, 10);
	assert_int_equal(w.at[9].guid, parked(9));
}

/* Two change places; and a circle that is undone by the hosts after it was refused, once as it was,
 * once found by a sweep where they had been. */
static void test_circle(void **state)
{
	struct move_request m[] = {way(0, 0, 1), way(1, 1, 0), way(3, 3, 8)};
	struct move_request back[] = {way(0, 1, 0), way(1, 0, 1), way(3, 8, 3)};

	(void)state;
	show(m, 3);
	w.fail[0] = -EEXIST;
	assert_int_equal(move_all(m, 3), -EEXIST);
	for (unsigned swept = 0; swept < 2; swept++) {
		for (unsigned i = 0; swept && i < OWN; i++)
			w.at[i].guid = w.at[i].shown;
		if (swept) { /* OpenSM gives LIDs by GUIDs */
			w.at[0].lid = 2;
			w.at[1].lid = 1;
			w.at[8].lid = 4;
			w.at[3].lid = 60;
			w.generation++;
		}
		show(back, 3);
		assert_int_equal(move_all(back, 3), 0);
		for (unsigned i = 0; i < 4; i++)
			assert_at(i, i);
		show(m, 3);
	}
	assert_int_equal(move_all(m, 2), 0);
	assert_int_equal(w.targets, 2);
	assert_at(0, 1);
	assert_at(1, 0);
}

/* Batches of any shape, of which some fail and are undone, and some end before the answer. */
static void random_batch(unsigned *at)
{
	struct move_request m[4], back[4];
	bool used[OWN] = {false};
	unsigned n = 0, to[4], outcome = (unsigned)rand() % 5;
	int rc;

	for (unsigned vm = 0; vm < 4; vm++)
		if (rand() % 2) /* it stays */
			used[at[vm]] = true;
		else
			m[n++].vguid = vm;
	for (unsigned i = 0; i < n; i++) {
		unsigned vm = (unsigned)m[i].vguid;

		do {
			to[i] = rand() % 2 ? at[rand() % 4] : (unsigned)rand() % OWN;
		} while (used[to[i]] || to[i] == at[vm]);
		used[to[i]] = true;
		m[i] = way(vm, at[vm], to[i]);
		back[i] = way(vm, to[i], at[vm]);
	}
	show(m, n);
	w.fail[0] = outcome == 1 ? -EEXIST : outcome == 2 ? -ECONNRESET : 0;
	w.lost = outcome == 3 ? -ECONNRESET : 0;
	w.swept = outcome == 4;
	rc = n ? move_all(m, n) : 0;
	assert_int_equal(rc, n ? w.lost + (outcome == 1   ? -EEXIST
					   : outcome == 2 ? -ECONNRESET
							  : 0)
			       : 0);
	w.fail[0] = w.lost = 0;
	if (rc) { /* the hosts' undo, whatever has become of it */
		assert_int_equal(ops_reconcile(&o, &e), 0);
		show(back, n);
		assert_int_equal(move_all(back, n), 0);
	}
	for (unsigned i = 0; !rc && i < n; i++)
		at[(m[i].vguid - vguid(0)) / 2] = to[i];
}

static void test_random_chains(void **state)
{
	unsigned at[] = {0, 1, 2, 3};

	(void)state;
	srand(3);
	for (unsigned round = 0; round < 300; round++) {
		bool lid[2 * OWN] = {false};

		random_batch(at);
		for (unsigned vm = 0; vm < 4; vm++)
			assert_at(vm, at[vm]);
		for (unsigned i = 0; i <= OWN; i++) { /* none lost, none twice */
			assert_true(w.at[i].lid <= OWN + 1 && !lid[w.at[i].lid]);
			lid[w.at[i].lid] = true;
		}
	}
}

/* The process ends in a batch with a chain; one VM of it is nowhere when it is back. */
static void test_settled_chain(void **state)
{
	struct move_request m[] = {way(0, 0, 1), way(1, 1, 9)};
	struct reg_entry x;

	(void)state;
	show(m, 2);
	w.lost = -ECONNRESET;
	assert_int_equal(move_all(m, 2), -ECONNRESET);
	w.lost = 0;
	w.at[9].guid = parked(9);
	w.generation++;
	assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_at(0, 1);
	assert_int_equal(registry_find(o.registry, vguid(1), &x), 0);
	assert_int_equal(x.intent, REG_NONE);
	assert_int_equal(x.at.parked_guid, parked(9));
}

/* One of a batch cannot be: none is. */
static void test_refused(void **state)
{
	struct move_request m[] = {way(0, 0, 8), way(1, 1, 9)};
	struct move_request wrong[] = {way(0, 0, 8), way(1, 2, 9)};
	struct move_request taken[] = {way(0, 0, 8), way(1, 1, 3)};

	(void)state;
	show(m, 1); /* the second one's VF does not show its vGUID */
	assert_int_equal(move_all(m, 2), -EINVAL);
	assert_string_equal(e.code, "guid-not-set");
	assert_nothing_moved(0);
	show(m, 2);
	assert_int_equal(move_all(wrong, 2), -EINVAL);
	assert_string_equal(e.code, "wrong-host");
	assert_int_equal(move_all(taken, 2), -EBUSY);
	assert_string_equal(e.code, "vf-in-use");
	assert_nothing_moved(0);
	w.fail[0] = -EEXIST;
	assert_int_equal(move_all(m, 2), -EEXIST);
	assert_nothing_moved(1);
}

/* A sweep that came between is looked at again, an SMP that was not taken is tried again. */
static void test_again(void **state)
{
	struct move_request m[] = {way(0, 0, 8), way(1, 1, 9)};

	(void)state;
	show(m, 2);
	w.fail[0] = -ESTALE;
	w.fail[1] = -EREMOTEIO;
	assert_int_equal(move_all(m, 2), 0);
	assert_int_equal(w.assigns, 3);
	assert_at(0, 8);
	assert_at(1, 9);
}

/* What fails is tried as long as its undo has time, each time for what is left; after that not at
 * all. The daemons wait longer than the answer may take. */
static void test_deadline(void **state)
{
	struct move_request m[] = {way(0, 0, 8)};

	(void)state;
	assert_true(SM_CHANGE_MS >= OPS_ANSWER_MS + 1000);
	show(m, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(w.fail); i++)
		w.fail[i] = -EREMOTEIO;
	deadline_us = now_us() + (OPS_UNDO_MS + 1500) * 1000;
	assert_int_equal(move_all(m, 1), -EREMOTEIO);
	assert_true(now_us() < deadline_us);
	assert_true(w.assigns > 0);
	assert_true(w.deadline_ms <= 1500);
	w.assigns = w.told = 0;
	assert_int_equal(move_all(m, 1), -EBUSY);
	assert_string_equal(e.code, "sm-busy");
	assert_int_equal(w.assigns, 0);
	deadline_us = 0;
	memset(w.fail, 0, sizeof w.fail);
	assert_int_equal(move_all(m, 1), 0);
	assert_true(w.deadline_ms <= OPS_ANSWER_MS - OPS_UNDO_MS);
	assert_at(0, 8);
}

/* A place that OpenSM does not see is looked for once more, after a sweep. */
static void test_unseen(void **state)
{
	struct move_request m[] = {way(0, 0, 1), way(1, 1, 9)};

	(void)state;
	show(m, 2);
	w.fail[0] = w.fail[1] = -ENOENT; /* still not there after a sweep */
	assert_int_equal(move_all(m, 2), -ENOENT);
	assert_string_equal(e.code, "unknown-vf");
	assert_int_equal(w.sweeps, 1);
	assert_int_equal(w.sweeping, 0); /* it has been waited for */
	w.fail[0] = -ENOENT;
	assert_int_equal(move_all(m, 2), 0);
	assert_int_equal(w.sweeps, 2);
	assert_at(0, 1);
	assert_at(1, 9);
}

/* The walk finds one LID astray: after a sweep, all of the batch is taken back. */
static void test_not_verified(void **state)
{
	struct move_request m[] = {way(0, 0, 8), way(1, 1, 9)};
	struct move_request back[] = {way(0, 8, 0), way(1, 9, 1)};

	(void)state;
	show(m, 2);
	w.lie = 2;
	assert_int_equal(move_all(m, 2), -EHOSTUNREACH);
	assert_string_equal(e.code, "not-verified");
	assert_non_null(strstr(e.detail, "taken back"));
	assert_int_equal(w.sweeps, 1);
	assert_nothing_moved(2);
	w.lie = 0;
	show(back, 2);
	assert_int_equal(move_all(back, 2), 0); /* the hosts' undo */
	assert_true(!res.lft_smps && res.verified);
	assert_nothing_moved(3);
}

/* The connection is gone after the request: OpenSM's tables say what has become of it. */
static void test_unknown(void **state)
{
	struct move_request m[] = {way(0, 0, 8), way(1, 1, 9)};
	struct reg_entry x;

	(void)state;
	show(m, 2);
	w.fail[0] = w.lost = -ECONNRESET; /* not carried out */
	assert_int_equal(move_all(m, 2), -ECONNRESET);
	assert_int_equal(registry_find(o.registry, vguid(1), &x), 0);
	assert_int_equal(x.intent, REG_MOVE);
	assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_nothing_moved(1);
	assert_int_equal(move_all(m, 2), -ECONNRESET); /* carried out */
	w.lost = 0;
	assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_at(0, 8);
	assert_at(1, 9);
}

static void test_lid_range(void **state)
{
	static const char *const bad[] = {"",          "7",       "0 - 5",  "9 - 5",
					  "1 - 49152", "1 - 5 x", "-3 - 5", "1 - 99999999999"};
	struct lid_range r;
	const char *why;

	(void)state;
	assert_int_equal(dynamic_range_parse("2000 - 2999", &r, &why), 0);
	assert_int_equal(r.first, 2000);
	assert_int_equal(r.last, 2999);
	assert_int_equal(dynamic_range_parse("1-49151", &r, &why), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(dynamic_range_parse(bad[i], &r, &why), -EINVAL);
}

/* Free is what neither a port nor a bound VM has, from the hosts' highest LID up, or in the range.
 */
static void test_free_lids(void **state)
{
	struct reg_entry x;
	struct lids lids;
	uint16_t lid;

	(void)state;
	o.addresses = ADDRESS_DYNAMIC;
	assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_int_equal(registry_find(o.registry, vguid(0), &x), 0);
	x.mode = ADDRESS_DYNAMIC;
	x.lid = 203; /* its VF does not show that just now */
	assert_int_equal(registry_put(o.registry, &x), 0);
	assert_int_equal(dynamic_lids(&o, &lids, &e), 0);
	for (unsigned want = 202; want < 206; want += 1 + (want == 202)) {
		assert_int_equal(dynamic_take(&lids, 0, &lid, &e), 0);
		assert_int_equal(lid, want);
	}
	o.lid_range = (struct lid_range){200, 204}; /* both switches, and the VM's */
	assert_int_equal(dynamic_lids(&o, &lids, &e), 0);
	assert_int_equal(dynamic_take(&lids, 0, &lid, &e), 0);
	assert_int_equal(dynamic_take(&lids, 0, &lid, &e), 0);
	assert_int_equal(lid, 204);
	assert_int_equal(dynamic_take(&lids, 0, &lid, &e), -ENOSPC);
	assert_non_null(strstr(e.detail, "0 of the 5 from 200 to 204 are free"));
	assert_string_equal(e.code, "no-free-lid");
}

static void test_peer(void **state)
{
	struct move_request there = way(0, 0, 8), back = way(0, 8, 0);

	(void)state;
	o.peer = (struct peer *)&w;
	show(&there, 1);
	assert_int_equal(move_all(&there, 1), 0);
	assert_int_equal(w.told, 1);
	assert_at(0, 8);

	show(&back, 1);
	w.peer_lead = -EAGAIN;
	assert_int_equal(move_all(&back, 1), -EAGAIN);
	assert_string_equal(e.code, "registry-unsure");
	w.peer_lead = -EPERM;
	assert_int_equal(move_all(&back, 1), -EHOSTDOWN);
	assert_string_equal(e.code, "sm-not-master");
	w.peer_lead = 0;
	w.peer_tell = -EPERM; /* it has become master this moment */
	assert_int_equal(move_all(&back, 1), -EHOSTDOWN);
	assert_string_equal(e.code, "sm-not-master");
	w.peer_tell = -ECONNREFUSED; /* not yet looked for another OpenSM */
	assert_int_equal(move_all(&back, 1), -EHOSTDOWN);
	assert_string_equal(e.code, "standby-not-in-sync");
	assert_false(ops_may_change(&o));
	w.others = 1; /* there it is */
	assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_int_equal(w.sweeps, 1);
	assert_int_equal(move_all(&back, 1), -EHOSTDOWN);
	assert_string_equal(e.code, "standby-not-in-sync");
	assert_int_equal(w.assigns, 1);
	assert_int_equal(w.alone, 0);
	w.others = 0; /* as a sweep has found */
	assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_true(ops_may_change(&o));
	assert_int_equal(move_all(&back, 1), 0);
	assert_int_equal(w.alone, 1);
	assert_int_equal(w.told, 1);
	assert_at(0, 0);
}

int main(void)
{
	const struct CMUnitTest sm_moves[] = {
		cmocka_unit_test_setup_teardown(test_batch, setup, teardown),
		cmocka_unit_test_setup_teardown(test_follows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_peer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(test_chain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_circle, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random_chains, setup, teardown),
		cmocka_unit_test_setup_teardown(test_settled_chain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_deadline, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unseen, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_verified, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unknown, setup, teardown),
		cmocka_unit_test(test_lid_range),
		cmocka_unit_test_setup_teardown(test_free_lids, setup, teardown),
	};

	return RUN_TESTS(sm_moves);
}
