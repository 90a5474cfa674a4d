/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two copies of the registry: changesets one after the other, one that is missed, the whole, and
 * what is damaged. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/registry/claim.h"
#include "sm-helper/registry/replica.h"

static struct registry *a, *b;

static int setup(void **state)
{
	char *error = NULL;

	(void)state;
	return registry_open(":memory:", &a, &error) || registry_open(":memory:", &b, &error) ||
	       registry_track(a);
}

static int teardown(void **state)
{
	(void)state;
	registry_close(a);
	registry_close(b);
	return 0;
}

static struct reg_entry entry(unsigned vm, unsigned vf)
{
	struct reg_entry e = {.vguid = 0xf000000000000001 + vm,
			      .lid = (uint16_t)(1 + vm),
			      .at = {.parked_guid = 0x100 + vf, .switch_port = 2}};

	snprintf(e.vm, sizeof e.vm, "vm-%u", vm);
	snprintf(e.at.host, sizeof e.at.host, "host-%u", vf / 4);
	return e;
}

static void put(struct registry *r, unsigned vm, unsigned vf)
{
	struct reg_entry e = entry(vm, vf);

	assert_int_equal(registry_put(r, &e), 0);
}

static void assert_same(void)
{
	struct replica_blob x = {0}, y = {0};

	assert_int_equal(registry_export(a, &x), 0);
	assert_int_equal(registry_export(b, &y), 0);
	assert_int_equal(x.bytes, y.bytes);
	assert_memory_equal(x.data, y.data, x.bytes);
	registry_blob_free(&x);
	registry_blob_free(&y);
}

static bool is_free(void *arg, uint64_t guid)
{
	(void)arg;
	(void)guid;
	return false;
}

/* Passes what a has to tell to b. */
static int pass_on(void)
{
	struct replica_blob x = {0};
	int rc;

	assert_int_equal(registry_take(a, &x), 0);
	rc = x.data ? registry_apply(b, x.data, (size_t)x.bytes) : 0;
	registry_blob_free(&x);
	return rc;
}

static void take_all(void)
{
	struct replica_blob x = {0};

	assert_int_equal(registry_track(a), 0);
	assert_int_equal(registry_export(a, &x), 0);
	assert_int_equal(registry_import(b, x.data, (size_t)x.bytes), 0);
	registry_blob_free(&x);
}

static void test_changes(void **state)
{
	struct reg_claim claim = {.vguid = 0x77, .vm = "vm-9", .name = "nine"}, holder;
	struct claim_range range = {0x200, 0x210};
	struct replica_mark m;

	(void)state;
	assert_int_equal(pass_on(), 0); /* nothing */
	put(a, 1, 1);
	put(a, 2, 2);
	assert_int_equal(registry_claim(a, &claim, &holder), 0);
	assert_int_equal(registry_subscribe(a, "host-1", "http://h:1"), 0);
	assert_int_equal(pass_on(), 0);
	assert_same();
	claim.slot = 1;
	assert_int_equal(registry_allocate(a, &claim, &range, is_free, NULL, &holder), 0);
	assert_int_equal(registry_delete(a, entry(1, 1).vguid), 0);
	put(a, 2, 1);
	put(a, 3, 2);
	put(a, 3, 5);
	put(a, 2, 2); /* two VMs have changed places, as it were */
	assert_int_equal(pass_on(), 0);
	assert_same();
	assert_int_equal(registry_mark(b, &m), 0);
	assert_int_equal(m.seq, 2);
	assert_false(m.alone);
}

static void test_missed(void **state)
{
	struct replica_blob lost = {0};

	(void)state;
	put(a, 1, 1);
	assert_int_equal(registry_take(a, &lost), 0);
	put(a, 2, 2);
	assert_int_equal(pass_on(), -ESTALE);
	assert_int_equal(registry_find(b, entry(2, 2).vguid, &(struct reg_entry){0}), -ENOENT);
	assert_int_equal(registry_apply(b, lost.data, (size_t)lost.bytes), 0);
	assert_int_equal(registry_apply(b, lost.data, (size_t)lost.bytes), -ESTALE); /* twice */
	registry_blob_free(&lost);
	take_all();
	assert_same();
	put(a, 1, 3);
	assert_int_equal(pass_on(), 0);
	assert_same();
}

/* An entry that b has and a has not is gone afterwards. */
static void test_whole(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 500; i++)
		put(a, i, i);
	put(b, 1000, 7);
	take_all();
	assert_same();
	put(a, 1000, 1000);
	assert_int_equal(pass_on(), 0); /* 501 in one */
	assert_same();
}

/* SQLite trusts a changeset's bytes (a sum over them is checked where they arrive); what is none at
 * all is refused whole. */
static void test_damaged(void **state)
{
	(void)state;
	put(b, 2, 2);
	assert_int_equal(registry_import(b, "nonsense", 8), -ESTALE);
	assert_int_equal(registry_apply(b, "nonsense", 8), -ESTALE);
	assert_int_equal(registry_find(b, entry(2, 2).vguid, &(struct reg_entry){0}), 0);
}

static void test_alone(void **state)
{
	struct replica_mark m;

	(void)state;
	assert_int_equal(registry_set_alone(a, true), 0);
	assert_int_equal(registry_mark(a, &m), 0);
	assert_true(m.alone);
	assert_int_equal(m.seq, 1);
	assert_int_equal(registry_set_alone(a, true), 0);
	assert_int_equal(registry_mark(a, &m), 0);
	assert_int_equal(m.seq, 1);
	assert_int_equal(registry_set_alone(a, false), 0);
	take_all();
	assert_same();
}

/* A move whose batch was parked: in both copies, then in b only. */
static void test_parked(void **state)
{
	struct move_request m = {
		.vguid = 0x77, .from = {.switch_port = 1}, .to = {.switch_port = 2}};

	(void)state;
	assert_int_equal(registry_put_move(a, &m), 0);
	assert_int_equal(pass_on(), 0);
	assert_same();
	take_all();
	assert_same();
	assert_int_equal(registry_delete_move(a, m.vguid), 0);
	take_all();
	assert_same();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_missed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(test_parked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_alone, setup, teardown),
	};

	return RUN_TESTS(tests);
}
