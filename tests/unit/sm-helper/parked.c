/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The remains of a failed batch, as they are told: the plugin's list in pages, the answers of the
 * switches, and the way out. OpenSM, plugin and switches are played. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/moves/ops_int.h"

#define SWITCHES 3
#define PAGE     2 /* entries that the plugin gives at once */

static struct world {
	struct sm_parked_entry entry[8];
	unsigned entries, calls, sweeps;
	unsigned settled_after; /* sweeps, then the plugin's list is empty; 0: never */
	uint8_t lft[SWITCHES][2 * IB_LFT_BLOCK];
	bool silent[SWITCHES];
	uint16_t port_lid;
	int begin;                   /* result of ops_begin() */
	struct move_request move[8]; /* in the registry */
	uint64_t shown;              /* by entry 3 of our own port; the others do not answer */
	unsigned moves;
} w;
static struct ops o;
static struct op_error e;

static uint64_t guid_of(unsigned sw)
{
	return 0x10 + sw;
}

int ops_start(struct ops *p, uint64_t deadline_us, struct op_error *ret)
{
	(void)p;
	(void)ret;
	assert_int_equal(deadline_us, 0);
	return 0;
}

int ops_begin(struct ops *p, struct op_error *ret)
{
	(void)p;
	return w.begin ? ops_fail(ret, w.begin, 503, "played", "played") : 0;
}

int ops_sweep(struct ops *p, struct op_error *ret)
{
	(void)p;
	(void)ret;
	if (++w.sweeps == w.settled_after)
		w.entries = 0;
	return 0;
}

int ops_fail(struct op_error *ret, int rc, unsigned status, const char *code, const char *fmt, ...)
{
	(void)fmt;
	ret->status = status;
	snprintf(ret->code, sizeof ret->code, "%s", code);
	return rc;
}

int ops_fail_plugin(struct op_error *ret, int rc, const char *text)
{
	return ops_fail(ret, rc, 503, "plugin", "%s", text);
}

int backend_parked(struct backend *c, uint32_t first, uint32_t flags, struct sm_parked_reply *r,
		   char error[static BACKEND_ERROR_MAX])
{
	(void)c;
	(void)flags;
	(void)error;
	w.calls++;
	*r = (struct sm_parked_reply){.total = w.entries, .since_ms = 5, .why = "played"};
	for (uint32_t i = first; i < w.entries && r->count < PAGE; i++)
		r->entry[r->count++] = w.entry[i];
	return 0;
}

int probe_own_guid(struct probe *m, uint64_t *ret_guid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	*ret_guid = 0x1001;
	return 0;
}

/* The switches are in a row: the hops tell which one answers. */
int probe_lft_blocks(struct probe *m, struct probe_block *b, unsigned count,
		     char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	for (unsigned i = 0; i < count; i++) {
		unsigned sw = (unsigned)b[i].to.hops - 1;

		assert_true(sw < SWITCHES && b[i].block < 2);
		b[i].read = !w.silent[sw];
		memcpy(b[i].data, w.lft[sw] + b[i].block * IB_LFT_BLOCK, IB_LFT_BLOCK);
	}
	return 0;
}

int probe_port_info(struct probe *m, const struct probe_route *to, unsigned port,
		    struct probe_port *ret_port, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	assert_int_equal(port, 0);
	assert_int_equal(to->path[to->hops], 7);
	*ret_port = (struct probe_port){.lid = w.port_lid};
	return 0;
}

int registry_find(struct registry *r, uint64_t vguid, struct reg_entry *ret_entry)
{
	(void)r;
	*ret_entry = (struct reg_entry){.vguid = vguid, .mode = ADDRESS_SHARED_PORT};
	return vguid == 7 ? 0 : -ENOENT;
}

int probe_guid(struct probe *m, uint16_t lid, uint64_t port_guid, unsigned index,
	       uint64_t *ret_guid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	assert_int_equal(lid, 1);
	assert_int_equal(port_guid, 0x1001);
	*ret_guid = w.shown;
	return index == 3 ? 0 : -EIO;
}

/* The registry: what it has is what parked_load_moves() finds. */
int registry_put_move(struct registry *r, const struct move_request *m)
{
	(void)r;
	registry_delete_move(r, m->vguid);
	w.move[w.moves++] = *m;
	return 0;
}

int registry_delete_move(struct registry *r, uint64_t vguid)
{
	(void)r;
	for (unsigned i = 0; i < w.moves; i++)
		if (w.move[i].vguid == vguid)
			w.move[i--] = w.move[--w.moves];
	return 0;
}

int registry_each_move(struct registry *r, void (*fn)(void *arg, const struct move_request *m),
		       void *arg)
{
	(void)r;
	for (unsigned i = 0; i < w.moves; i++)
		fn(arg, &w.move[i]);
	return 0;
}

/* ---- */

/* Three switches in a row; our own port is at the first one. */
static int setup(void **state)
{
	struct fabric_end own = {.node_guid = 0x1000, .port_guid = 0x1001, .lid = 1, .port = 1};
	char name[8];
	int rc = 0;

	(void)state;
	w = (struct world){0};
	e = (struct op_error){0};
	o = (struct ops){0};
	pthread_mutex_init(&o.lock, NULL);
	pthread_mutex_init(&o.parked.lock, NULL);
	for (unsigned i = 0; !rc && i < SWITCHES; i++) {
		snprintf(name, sizeof name, "s%u", i);
		rc = fabric_add_switch(&o.fabric, guid_of(i), (uint16_t)(50 + i), 12, name);
		if (!rc && i)
			rc = fabric_link(&o.fabric, guid_of(i - 1), 1, guid_of(i), 2);
	}
	rc = rc ? rc : fabric_add_end(&o.fabric, &own);
	return rc ? rc : fabric_attach(&o.fabric, 0, guid_of(0), 3);
}

static int teardown(void **state)
{
	(void)state;
	parked_clear(&o.parked);
	fabric_clear(&o.fabric);
	return 0;
}

static void add(unsigned sw, uint16_t lid, uint16_t before, uint16_t after, bool settled)
{
	w.entry[w.entries++] = (struct sm_parked_entry){.switch_guid = guid_of(sw),
							.lid = lid,
							.before = before,
							.after = after,
							.wanted = before,
							.switch_port = lid ? 0 : 7,
							.settled = settled};
}

static const struct parked_entry *found(unsigned sw, uint16_t lid)
{
	for (uint32_t i = 0; i < o.parked.entries; i++)
		if (o.parked.entry[i].of.switch_guid == guid_of(sw) &&
		    o.parked.entry[i].of.lid == lid)
			return &o.parked.entry[i];
	fail();
	return NULL;
}

static void assert_state(unsigned sw, uint16_t lid, const char *state)
{
	assert_string_equal(parked_state_name(parked_state(found(sw, lid))), state);
}

/* Two LIDs of one block at a switch, one of another block, a silent switch, one that is gone, and
 * the LID of a port. */
static void test_states(void **state)
{
	(void)state;
	add(0, 5, 1, 2, true);
	add(0, 6, 2, 1, true);
	add(1, 70, 3, VSWITCH_NO_PATH, true);
	add(1, 5, 1, 2, true);
	add(2, 5, 1, 2, false);
	add(3, 5, 1, 2, false);
	add(1, 0, VSWITCH_NO_PATH, 9, true);
	w.lft[0][5] = 1;
	w.lft[0][6] = 1;
	w.lft[1][70] = VSWITCH_NO_PATH;
	w.lft[1][5] = 4;
	w.silent[2] = true;
	w.port_lid = VSWITCH_NO_PATH;
	assert_int_equal(parked_look(&o, &e), 0);
	assert_int_equal(o.parked.entries, 7);
	assert_int_equal(w.calls, 4); /* pages */
	assert_state(0, 5, "old");
	assert_state(0, 6, "new");
	assert_state(1, 70, "new");
	assert_state(1, 5, "other");
	assert_state(2, 5, "unknown");
	assert_state(3, 5, "unknown");
	assert_state(1, 0, "old");
	assert_int_equal(found(1, 5)->holds, 4);
	assert_string_equal(found(1, 70)->name, "s1");
	assert_string_equal(found(2, 5)->name, "s2");
	assert_string_equal(found(3, 5)->name, "");
	assert_false(o.parked.entry[0].of.settled || o.parked.entry[1].of.settled);
	assert_string_equal(o.parked.why, "played");
	assert_int_equal(o.parked.since_ms, 5);
	w.silent[2] = false;
	w.lft[2][5] = 2;
	assert_int_equal(parked_look(&o, &e), 0);
	assert_state(2, 5, "new");
}

/* A move that cannot be asked about stays as it was; the timer asks only where there is
 * something. */
static void test_when(void **state)
{
	(void)state;
	parked_watch(&o);
	assert_int_equal(w.calls, 0);
	add(0, 5, 1, 2, false);
	o.parked_at_sm = 1;
	o.epoch = (struct backend_epoch){1, 1};
	parked_watch(&o);
	assert_int_equal(o.parked.entries, 1);
	w.begin = -EHOSTDOWN;
	assert_int_equal(parked_look(&o, &e), -EHOSTDOWN);
	assert_int_equal(e.status, 503);
	assert_int_equal(o.parked.entries, 1);
	w.begin = 0;
	w.entries = 0;
	o.parked_at_sm = 0;
	o.epoch.generation++;
	parked_watch(&o);
	assert_int_equal(o.parked.entries, 0);
}

static void test_settle(void **state)
{
	(void)state;
	assert_int_equal(parked_settle(&o, &e), 0);
	assert_int_equal(w.sweeps, 0);
	add(0, 5, 1, 2, false);
	w.settled_after = 2;
	assert_int_equal(parked_settle(&o, &e), 0);
	assert_int_equal(w.sweeps, 2);
	assert_int_equal(e.status, 0);
	assert_int_equal(o.parked.entries, 0);
}

static void test_moves(void **state)
{
	struct move_request m[3] = {{.vguid = 1}, {.vguid = 2}, {.vguid = 3}};
	static struct move_request got[OPS_MOVES_MAX];

	(void)state;
	parked_drop_move(&o, 1);
	parked_add_moves(&o, m, 2);
	m[1].pkey = 7;
	parked_add_moves(&o, m + 1, 2); /* the first of these again, and another one */
	assert_int_equal(parked_moves(&o.parked, got), 3);
	assert_int_equal(got[1].vguid, 2);
	assert_int_equal(got[1].pkey, 7);
	parked_clear(&o.parked); /* another process */
	assert_int_equal(parked_moves(&o.parked, got), 0);
	parked_load_moves(&o);
	parked_load_moves(&o);
	assert_int_equal(parked_moves(&o.parked, got), 3);
	parked_drop_move(&o, 1);
	parked_drop_move(&o, 9);
	assert_int_equal(parked_moves(&o.parked, got), 2);
	parked_drop_move(&o, 2);
	parked_drop_move(&o, 3);
	parked_load_moves(&o);
	assert_int_equal(parked_moves(&o.parked, got), 0);
}

/* Entries of GUID tables: those of the parked moves, as their ports say; one port is not there. */
static void test_guids(void **state)
{
	struct move_request m = {.vguid = 7,
				 .from = {.switch_guid = 0x1001, .switch_port = 3},
				 .to = {.switch_guid = 0x2001, .switch_port = 4}};
	const uint64_t shows[] = {7, 0, 8};
	const enum parked_state want[] = {PARKED_OLD, PARKED_NEW, PARKED_OTHER};

	(void)state;
	parked_add_moves(&o, &m, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(shows); i++) {
		w.shown = shows[i];
		assert_int_equal(parked_look(&o, &e), 0);
		assert_int_equal(o.parked.guids, 2);
		assert_int_equal(parked_guid_state(&o.parked.guid[0]), want[i]);
		assert_int_equal(parked_guid_state(&o.parked.guid[1]), PARKED_UNKNOWN);
		assert_int_equal(o.parked.guid[1].lid, 0);
	}
	parked_drop_move(&o, 7);
	assert_int_equal(parked_look(&o, &e), 0);
	assert_int_equal(o.parked.guids, 0);
}

int main(void)
{
	const struct CMUnitTest sm_parked[] = {
		cmocka_unit_test_setup_teardown(test_states, setup, teardown),
		cmocka_unit_test_setup_teardown(test_when, setup, teardown),
		cmocka_unit_test_setup_teardown(test_settle, setup, teardown),
		cmocka_unit_test_setup_teardown(test_guids, setup, teardown),
		cmocka_unit_test_setup_teardown(test_moves, setup, teardown),
	};

	return RUN_TESTS(sm_parked);
}
