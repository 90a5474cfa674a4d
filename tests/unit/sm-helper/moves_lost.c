/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Batches of moves whose answers are lost or late, that a sweep meets, or whose registry is wrong.
 */
#include "tests/unit/tap.h"

#include "sm-helper/moves/shared.h"
#include "tests/unit/sm-helper/moves_world.h"
#include "sm-helper/moves/own.h"
#include "sm-helper/registry/registry_int.h"

/* A failed call is tried again as long as its undo has time, each time for what is left, and after
 * that not at all. The daemons wait longer than the answer may take. */
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

/* As moves: what is left of the time is for the SM, and without any nothing is done. */
static void test_deadline_of_binds(void **state)
{
	const struct move_request m = way(0, 0, 8);
	struct reg_entry x;
	uint16_t lid;

	(void)state;
	assert_int_equal(registry_find(o.registry, m.vguid, &x), 0);
	assert_int_equal(ops_unbind(&o, m.vguid, m.vm, NULL, now_us(), &e), -EBUSY);
	assert_string_equal(e.code, "sm-busy");
	assert_int_equal(ops_bind(&o, &x, now_us(), &lid, &e), -EBUSY);
	assert_int_equal(w.assigns, 0);
	assert_int_equal(registry_find(o.registry, m.vguid, &x), 0);
	w.at[0].shown = parked(0);
	assert_int_equal(
		ops_unbind(&o, m.vguid, m.vm, NULL, now_us() + (OPS_UNDO_MS + 1500) * 1000, &e), 0);
	assert_int_equal(w.assigns, 1);
	assert_true(w.deadline_ms <= 1500);
	assert_int_equal(registry_find(o.registry, m.vguid, &x), -ENOENT);
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
	assert_int_equal(w.sweeping, 0); /* the batch has waited for the sweep */
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

/* A fabric that loses SMPs routed by LID verifies by the walk, and says so; no sweep is asked for
 * and nothing is taken back. A wrong LFT is found as before. */
static void test_lid_smps_lost(void **state)
{
	struct move_request m[] = {way(0, 0, 8), way(1, 1, 9)}, more[] = {way(2, 2, 10)};

	(void)state;
	show(more, 1);
	assert_int_equal(move_all(more, 1), 0);
	assert_true(res.answers_by == REACH_SMP);
	w.smps_lost = true;
	show(m, 2);
	assert_int_equal(move_all(m, 2), 0);
	assert_true(res.verified && res.answers_by == REACH_WALK);
	assert_int_equal(w.sweeps, 0);
	assert_at(0, 8);
	assert_at(1, 9);
	more[0] = way(2, 10, 2);
	show(more, 1);
	w.lie = 3;
	assert_int_equal(move_all(more, 1), -EHOSTUNREACH);
	assert_string_equal(e.code, "not-verified");
}

/* A look that took long, for answers were lost, and saw the end of something: not yet a reason. */
static void test_verified_at_second_look(void **state)
{
	struct move_request m[] = {way(0, 0, 8)};

	(void)state;
	for (unsigned us = 600000; us <= 2400000; us += 1800000) {
		show(m, 1);
		w.lie = 1;
		w.lie_us = us;
		assert_int_equal(move_all(m, 1), 0);
		assert_true(res.verified && !w.lie_us);
		assert_int_equal(w.sweeps, 0);
		m[0] = way(0, 8, 0);
	}
}

/* The connection is gone after the request: OpenSM's tables say what has become of it. */
static void test_unknown(void **state)
{
	struct move_request m[] = {way(0, 0, 8), way(1, 1, 9)};
	struct reg_entry x;

	(void)state;
	show(m, 2);
	w.fail[0] = w.lost = -ECONNRESET; /* the call is not carried out */
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

/* A sweep sees what VFs show now, and leaves each place its LID. */
static void sweep_places(unsigned from, unsigned to)
{
	for (unsigned i = from; i <= to; i++)
		w.at[i].guid = w.at[i].shown;
	w.generation++;
}

/* The process ends before OpenSM has got the batch. A sweep finds all or some of the GUIDs that the
 * hosts have set: a GUID there with another LID is no move. The same call completes it, and so does
 * the way back. */
static void test_swept_not_moved(void **state)
{
	static const struct {
		unsigned from, to; /* places that the sweep sees */
	} seen[] = {{0, OWN - 1}, {0, 0}, {0, 8}};
	struct move_request m[] = {way(0, 0, 8), way(1, 1, 9)};
	struct move_request back[] = {way(0, 8, 0), way(1, 9, 1)};

	(void)state;
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(seen); i++) {
		unsigned s = i / 2;

		show(m, 2);
		w.fail[0] = w.fail[1] = -ECONNRESET;
		assert_int_equal(move_all(m, 2), -ECONNRESET);
		memset(w.fail, 0, sizeof w.fail);
		sweep_places(seen[s].from, seen[s].to);
		assert_int_equal(ops_reconcile(&o, &e), 0);
		if (i % 2 == 0) {
			assert_int_equal(move_all(m, 2), 0);
			assert_true(res.verified);
			assert_at(0, 8);
			assert_at(1, 9);
		}
		show(back, 2);
		assert_int_equal(move_all(back, 2), 0);
		assert_nothing_moved(w.assigns);
		sweep_places(0, OWN);
	}
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
	x.lid = 203; /* the entry's VF does not show that LID just now */
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

/* A VM with a LID of its own, whose GUIDs were set for a move, is met by a heavy sweep at the other
 * VF, with its LID. The way back leaves each VF its own LID, and so does the move. */
static void test_dynamic_swept(void **state)
{
	struct move_request there = way(0, 0, 8), back = way(0, 8, 0);
	struct reg_entry x;

	(void)state;
	assert_int_equal(registry_find(o.registry, vguid(0), &x), 0);
	x.mode = ADDRESS_DYNAMIC;
	x.lid = w.at[0].lid = 40;
	x.at.lid = 1;
	assert_int_equal(registry_put(o.registry, &x), 0);
	for (unsigned round = 0; round < 6; round++) {
		show(&there, 1);
		w.at[0].guid = parked(0);
		w.at[0].lid = 1;
		w.at[8].guid = vguid(0);
		w.at[8].lid = 40;
		w.generation++;
		if (round % 2) {
			assert_int_equal(move_all(&there, 1), 0);
			assert_true(w.at[8].guid == vguid(0) && w.at[8].lid == 40);
			assert_int_equal(w.at[0].lid, 1);
		}
		show(&back, 1);
		assert_int_equal(move_all(&back, 1), 0);
		assert_true(w.at[0].guid == vguid(0) && w.at[0].lid == 40);
		assert_true(w.at[8].guid == parked(8) && w.at[8].lid == 9);
		assert_int_equal(registry_find(o.registry, vguid(0), &x), 0);
		assert_int_equal(x.at.lid, 1);
	}
}

/* A bind whose entry cannot be looked at has left nothing; where it cannot be taken back, it is
 * settled as soon as the port answers. */
static void test_shared_bind_unseen(void **state)
{
	struct reg_entry want = {.vguid = vguid(9), .vm = "vm", .at = vf(9)}, x;
	uint16_t lid;

	(void)state;
	want.at.switch_guid = parked(OWN);
	want.at.switch_port = 1;
	w.mute = true;
	for (unsigned stuck = 0; stuck < 2; stuck++) {
		w.clear_fails = stuck ? -EIO : 0;
		deadline_us = now_us() + (OPS_UNDO_MS + 200) * 1000;
		assert_int_equal(shared_bind(&o, &want, deadline_us, &lid, &e), -ENOTCONN);
		deadline_us = 0;
		assert_int_equal(w.entry, stuck ? want.vguid : 0);
		assert_non_null(strstr(e.detail,
				       stuck ? "; taking it back failed: played" : "; taken back"));
		assert_int_equal(registry_find(o.registry, want.vguid, &x), stuck ? 0 : -ENOENT);
	}
	assert_int_equal(x.intent, REG_BIND);
	w.mute = false;
	assert_int_equal(ops_reconcile(&o, &e), 0);
	assert_int_equal(registry_find(o.registry, want.vguid, &x), 0);
	assert_int_equal(x.intent, REG_NONE);
	w.clear_fails = 0;
	assert_int_equal(shared_unbind(&o, want.vguid, "vm", NULL, 0, &e), 0);
	assert_int_equal(w.entry, 0);
}

/* The same for a registry that cannot be written, and one that is new where vGUIDs are bound. */
static void test_bad_registry(void **state)
{
	struct move_request m[] = {way(0, 0, 8)};

	(void)state;
	assert_int_equal(ops_reconcile(&o, &e), 0);
	show(m, 1);
	sqlite3_exec(o.registry->db, "PRAGMA query_only = 1", NULL, NULL, NULL);
	assert_int_equal(ops_move(&o, m, 1, 0, NULL, &e), -EROFS);
	assert_string_equal(e.code, "registry-read-only");
	assert_int_equal(move_all(m, 1), -EROFS);
	assert_int_equal(w.assigns, 0);
	sqlite3_exec(o.registry->db, "PRAGMA query_only = 0", NULL, NULL, NULL);
	assert_int_equal(ops_move(&o, m, 1, 0, NULL, &e), -EROFS); /* as it was a moment ago */
	registry_judge(o.registry, 0);
	assert_int_equal(move_all(m, 1), 0);
}

static void test_empty_registry(void **state)
{
	struct move_request m[] = {way(0, 0, 8)};

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(registry_delete(o.registry, vguid(i)), 0);
	w.bound = 4;
	w.owner = (struct sm_owner){.registry = 0xabc, .grant = 7, .epoch = 2, .name = "n2:/x.db"};
	assert_int_equal(ops_move(&o, m, 1, 0, NULL, &e), -EROFS);
	assert_string_equal(e.code, "registry-empty");
	assert_non_null(strstr(e.detail, "knows 4 bound vGUIDs"));
	assert_int_equal(w.owner.registry, 0xabc); /* it claims nothing */
}

int main(void)
{
	const struct CMUnitTest sm_moves_lost[] = {
		cmocka_unit_test_setup_teardown(test_shared_bind_unseen, setup, teardown),
		cmocka_unit_test_setup_teardown(test_deadline, setup, teardown),
		cmocka_unit_test_setup_teardown(test_deadline_of_binds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unseen, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_verified, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lid_smps_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_verified_at_second_look, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unknown, setup, teardown),
		cmocka_unit_test_setup_teardown(test_swept_not_moved, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_registry, setup, teardown),
		cmocka_unit_test_setup_teardown(test_empty_registry, setup, teardown),
		cmocka_unit_test_setup_teardown(test_free_lids, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dynamic_swept, setup, teardown),
	};

	return RUN_TESTS(sm_moves_lost);
}
