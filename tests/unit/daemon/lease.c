/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Leases: what ibvmigd writes while, what ibvmig-lease does about it. Real files, a clock of ours.
 */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/store/lease.h"
#include "daemon/migrate/machine.h"
#include "daemon/base/settings.h"

#define VM    "11111111-2222-3333-4444-555555555555"
#define OTHER "11111111-2222-3333-4444-666666666666"
#define S     1000000ull

static char dir[64];

static struct {
	unsigned calls;
	char uuid[40];
	int rc;
	uint64_t renewed_us; /* meanwhile; 0: not */
	bool over;
} played;

static int cut(void *arg, const char *uuid)
{
	(void)arg;
	if (played.renewed_us)
		lease_put(dir, uuid, played.renewed_us);
	played.over = lease_has_run_out(dir, uuid, 10 * S);
	played.calls++;
	snprintf(played.uuid, sizeof played.uuid, "%s", uuid);
	return played.rc;
}

static const struct lease_holder holder = {.dir = dir, .cut = cut};

static bool there(const char *name)
{
	char *path AUTO_FREE = strf("%s/%s", dir, name);

	return !access(path, F_OK);
}

static int setup(void **state)
{
	(void)state;
	memset(&played, 0, sizeof played);
	snprintf(dir, sizeof dir, "/tmp/ibvmig-lease-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	lease_drop(dir, VM);
	lease_drop(dir, OTHER);
	lease_drop(dir, "README");
	return rmdir(dir);
}

static void test_nothing(void **state)
{
	(void)state;
	assert_int_equal(lease_look(&holder, S), -1);
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(lease_look(&holder, S), -1);
	assert_int_equal(lease_put(dir, VM, 2 * S), 0); /* makes it again */
}

static void test_runs_out(void **state)
{
	(void)state;
	lease_put(dir, VM, 10 * S);
	lease_put(dir, OTHER, 11 * S);
	assert_in_range(lease_look(&holder, 9 * S), 1000, 1001);
	lease_put(dir, VM, 12 * S); /* renewed */
	assert_in_range(lease_look(&holder, 10 * S), 1000, 1001);
	assert_int_equal(played.calls, 0);
	assert_in_range(lease_look(&holder, 11 * S), 1000, 1001);
	assert_int_equal(played.calls, 1);
	assert_string_equal(played.uuid, OTHER);
	assert_true(there(VM) && !there(OTHER));
	lease_drop(dir, VM);
	assert_int_equal(lease_look(&holder, 20 * S), -1);
	assert_int_equal(played.calls, 1);
}

/* Until libvirt says that there is no migration, it is asked again and again. */
static void test_again(void **state)
{
	(void)state;
	lease_put(dir, VM, 10 * S);
	played.rc = -ENOTCONN;
	assert_in_range(lease_look(&holder, 10 * S), LEASE_RETRY_MS, LEASE_RETRY_MS + 1);
	assert_int_equal(played.calls, 1);
	assert_true(there(VM));
	/* An ibvmigd that goes on gets it back. */
	lease_put(dir, VM, 14 * S);
	assert_in_range(lease_look(&holder, 11 * S), 3000, 3001);
	assert_int_equal(played.calls, 1);
	played.rc = 0;
	assert_int_equal(lease_look(&holder, 14 * S), -1);
	assert_int_equal(played.calls, 2);
	assert_false(there(VM));
}

/* Taken anew between the reading of the clock and of the file. */
static void test_renewed_meanwhile(void **state)
{
	(void)state;
	lease_put(dir, VM, 10 * S + LEASE_MS * 1000 + 300);
	assert_in_range(lease_look(&holder, 10 * S), LEASE_MS, LEASE_MS + 1);
	assert_int_equal(played.calls, 0);
	assert_true(there(VM));
}

/* libvirt takes its time to tell whether there is a job to cut. */
static void test_renewed_while_libvirt_is_asked(void **state)
{
	(void)state;
	played.rc = -EAGAIN;
	lease_put(dir, VM, 9 * S);
	lease_look(&holder, 10 * S);
	assert_true(played.over);
	played.renewed_us = 12 * S;
	lease_look(&holder, 10 * S);
	assert_int_equal(played.calls, 2);
	assert_false(played.over);
	assert_true(there(VM));
	lease_drop(dir, VM);
	assert_false(lease_has_run_out(dir, VM, 20 * S));
}

static void write_text(const char *name, const char *text)
{
	char *path AUTO_FREE = strf("%s/%s", dir, name);
	FILE *f AUTO_FILE = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
}

static void test_odd_files(void **state)
{
	static const char *const run_out[] = {"nonsense\n", "99999999999999999999\n",
					      "00000000000000000000\n", "-1\n"};

	(void)state;
	write_text("README", "0\n");
	assert_int_equal(lease_look(&holder, S), -1);
	write_text(VM, ""); /* is just being made */
	assert_in_range(lease_look(&holder, S), LEASE_RETRY_MS, LEASE_RETRY_MS + 1);
	assert_int_equal(played.calls, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(run_out); i++) {
		write_text(VM, run_out[i]);
		assert_int_equal(lease_look(&holder, S), -1);
		assert_int_equal(played.calls, i + 1);
	}
	/* Longer than ibvmigd ever takes it: from another boot, or forged. */
	lease_put(dir, VM, 100 * S);
	assert_int_equal(lease_look(&holder, S), -1);
	assert_int_equal(played.calls, ARRAY_SIZE(run_out) + 1);
}

/* From PREPARE to DETACH, on the way forward, at the source. */
static void test_when_there_is_one(void **state)
{
	static struct migration m[2];
	struct settings settings = {.lease_dir = dir};
	struct daemon d = {.settings = &settings, .migrations = &m[0]};

	(void)state;
	assert_int_equal(sd_event_new(&d.loop), 0);
	assert_int_equal(lease_keeper_new(&d, &d.leases), 0);
	m[0].next = &m[1]; /* an older one of the same VM */
	strcpy(m[0].rec.vm_uuid, VM);
	strcpy(m[1].rec.vm_uuid, VM);
	m[1].rec.state = M_ABORTED;
	m[1].leased = true;
	for (int s = M_PREPARE; s <= M_PARKED; s++) {
		m[0].rec.state = (enum migrate_state)s;
		m[0].rec.role = ROLE_DESTINATION;
		m[0].rec.back = false;
		lease_sync(&d);
		assert_false(there(VM));
		m[0].rec.role = ROLE_SOURCE;
		lease_sync(&d);
		if (there(VM) != (s <= M_DETACH))
			fail_msg("%s: %s", migrate_state_name(m[0].rec.state),
				 there(VM) ? "a lease" : "no lease");
		m[0].rec.back = true;
		lease_sync(&d);
		assert_false(there(VM));
	}
	lease_keeper_free(d.leases);
	sd_event_unref(d.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_runs_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_renewed_meanwhile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_renewed_while_libvirt_is_asked, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_odd_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_when_there_is_one, setup, teardown),
	};

	return RUN_TESTS(tests);
}
