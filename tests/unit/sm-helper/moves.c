/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Batches of moves: what becomes of them in OpenSM's tables, the registry and the fabric. */
#include "tests/unit/tap.h"

#include "sm-helper/moves/shared.h"
#include "tests/unit/sm-helper/moves_world.h"
#include "sm-helper/moves/own.h"
#include "sm-helper/registry/registry_int.h"

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
	show(mixed + 1, 1); /* the first is there, and the second goes */
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

/* A batch with a move that cannot be makes none. */
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

/* A parked GUID is nobody's vGUID: not the coming VM's, nor one's of the batch, nor another's.
 * Binds hold to that as moves do, and a vGUID is no VF's parked GUID. */
static void test_parked_guid(void **state)
{
	struct move_request m[] = {way(0, 0, 8), way(1, 1, 9)};
	struct reg_entry want = {.vguid = vguid(9), .vm = "vm", .at = vf(9)};
	uint16_t lid;

	(void)state;
	show(m, 2);
	for (unsigned vm = 0; vm < 4; vm++) {
		m[0].to.parked_guid = vguid(vm);
		assert_int_equal(move_all(m, vm == 1 ? 2 : 1), -EINVAL);
		assert_string_equal(e.code, "parked-guid");
		assert_non_null(strstr(e.detail, "of VF vf8 of h8 is the vGUID of VM"));
		assert_int_equal(ops_move(&o, m, 1, 0, NULL, &e), -EINVAL); /* asked before */
	}
	want.at.parked_guid = vguid(2);
	assert_int_equal(ops_bind(&o, &want, 0, &lid, &e), -EINVAL);
	assert_string_equal(e.code, "parked-guid");
	want.at = vf(9);
	want.vguid = parked(2);
	assert_int_equal(ops_bind(&o, &want, 0, &lid, &e), -EINVAL);
	assert_string_equal(e.code, "parked-guid");
	assert_non_null(strstr(e.detail, "is the parked GUID of VF vf2 of h2"));
	assert_nothing_moved(0);
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

static void test_peer(void **state)
{
	struct move_request there = way(0, 0, 8), back = way(0, 8, 0);

	(void)state;
	o.twin = (struct twin *)&w;
	show(&there, 1);
	assert_int_equal(move_all(&there, 1), 0);
	assert_int_equal(w.told, 1);
	assert_at(0, 8);

	show(&back, 1);
	w.twin_lead = -EAGAIN;
	assert_int_equal(move_all(&back, 1), -EAGAIN);
	assert_string_equal(e.code, "registry-unsure");
	w.twin_lead = -EPERM;
	assert_int_equal(move_all(&back, 1), -EHOSTDOWN);
	assert_string_equal(e.code, "sm-not-master");
	w.twin_lead = 0;
	w.twin_tell = -EPERM; /* the other has become master this moment */
	assert_int_equal(move_all(&back, 1), -EHOSTDOWN);
	assert_string_equal(e.code, "sm-not-master");
	w.twin_tell = -ECONNREFUSED; /* this one has not yet looked for another OpenSM */
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

/* VM 0 and 1 share the LID of a port: OpenSM is told once, and again after a sweep, also after one
 * that ended while it was told. What it refuses it is not told for ever. */
static void test_restated(void **state)
{
	struct reg_entry x;

	(void)state;
	for (unsigned vm = 0; vm < 2; vm++) {
		assert_int_equal(registry_find(o.registry, vguid(vm), &x), 0);
		x.mode = ADDRESS_SHARED_PORT;
		x.at.switch_guid = parked(OWN);
		x.at.switch_port = (uint8_t)(vm + 1);
		assert_int_equal(registry_put(o.registry, &x), 0);
	}
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_int_equal(w.entries, 2);
	w.generation++;
	w.swept = true;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_int_equal(w.entries, 6);
	w.generation++;
	w.refused = vguid(1);
	for (unsigned i = 0; i < 9; i++)
		assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_int_equal(w.entries, 9);
	w.refused = 0;
	w.generation++;
	assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_int_equal(w.entries, 11);
}

/* LFT blocks go in waves where one VM's senders are alive, and on the way back too. */
static void test_senders_alive(void **state)
{
	struct move_request m[] = {way(0, 0, 8), way(1, 1, 9)}, more[] = {way(2, 2, 10)};

	(void)state;
	show(m, 2);
	m[1].senders_alive = true;
	assert_int_equal(move_all(m, 2), 0);
	assert_true(w.flags & SM_ASSIGN_ORDERED);
	show(more, 1);
	assert_int_equal(move_all(more, 1), 0);
	assert_false(w.flags & SM_ASSIGN_ORDERED);
	more[0] = way(2, 10, 2);
	more[0].senders_alive = true;
	show(more, 1);
	w.lie = 3;
	assert_int_equal(move_all(more, 1), -EHOSTUNREACH);
	assert_int_equal(w.flags, SM_ASSIGN_ORDERED | SM_ASSIGN_BACK);
}

/* Another registry takes the subnet: PREPARE's question and the move are refused with its name, and
 * with the way out. Who takes it back goes on. */
static void test_fenced(void **state)
{
	struct move_request m[] = {way(0, 0, 8)};
	struct sm_owner ours;

	(void)state;
	assert_int_equal(ops_reconcile(&o, &e), 0);
	ours = w.owner;
	assert_true(ours.registry && ours.epoch == 1);
	w.owner = (struct sm_owner){.registry = 0xabc, .grant = 7, .epoch = 2, .name = "n2:/x.db"};
	show(m, 1);
	assert_int_equal(ops_move(&o, m, 1, 0, NULL, &e), -EKEYREJECTED);
	assert_string_equal(e.code, "registry-fenced");
	assert_non_null(strstr(e.detail, "registry 0000000000000abc (n2:/x.db) has the subnet"));
	assert_non_null(strstr(e.detail, "ibvmig-sm rebuild"));
	assert_int_equal(move_all(m, 1), -EKEYREJECTED);
	assert_int_equal(w.assigns, 0);
	e = (struct op_error){0};
	assert_int_equal(own_take(&o, &e), 0);
	assert_int_equal(move_all(m, 1), 0);
	assert_true(w.owner.registry == ours.registry && w.owner.grant == ours.grant);
}

int main(void)
{
	const struct CMUnitTest sm_moves[] = {
		cmocka_unit_test_setup_teardown(test_batch, setup, teardown),
		cmocka_unit_test_setup_teardown(test_follows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_peer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_restated, setup, teardown),
		cmocka_unit_test_setup_teardown(test_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(test_chain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_circle, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random_chains, setup, teardown),
		cmocka_unit_test_setup_teardown(test_settled_chain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_parked_guid, setup, teardown),
		cmocka_unit_test_setup_teardown(test_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_senders_alive, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fenced, setup, teardown),
		cmocka_unit_test(test_lid_range),
	};

	return RUN_TESTS(sm_moves);
}
