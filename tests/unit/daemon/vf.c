/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/json.h"
#include "daemon/libvirt/domain.h"
#include "daemon/store/journal.h"
#include "daemon/vf/table.h"

static char dir[] = "/tmp/ibvmig-vf-XXXXXX";
static struct journal *journal;
static struct vf_table table;
static char error[HTTP_ERROR_MAX];

static const char inventory[] =
	"{\"pfs\":[{\"name\":\"pf0\",\"guid\":\"0x00fab0fffe000100\","
	"\"pkeys\":[\"0xffff\",\"0x8001\"]}],"
	"\"vfs\":[{\"name\":\"pf0vf1\",\"pf\":\"pf0\",\"index\":1,"
	"\"parked_guid\":\"0x00fab0fffe000101\",\"guid\":\"0x00fab0fffe000101\"},"
	"{\"name\":\"pf0vf2\",\"pf\":\"pf0\",\"index\":2,\"pci\":\"0000:3b:00.2\","
	"\"port_guid\":\"0x00fab0fffe000901\",\"guid_index\":7,"
	"\"parked_guid\":\"0x00fab0fffe000102\",\"guid\":\"0x00fab0fffe000102\"}]}";

static bool no_memory;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

static int load(const char *text)
{
	struct json_object *o AUTO_JSON = NULL;

	assert_int_equal(json_parse(text, strlen(text), &o), 0);
	return vf_table_load(&table, journal, o, error);
}

static int claim(const char *vm, uint64_t vguid, const char *pf, uint16_t pkey, struct vf **ret_vf)
{
	struct vf_want want = {.vguid = vguid, .pkey = pkey};

	snprintf(want.pf, sizeof want.pf, "%s", pf);
	error[0] = '\0';
	return vf_claim(&table, vm, vm, &want, 1, "", ret_vf, error);
}

#define VM1 "11111111-2222-3333-4444-555555555551"
#define VM2 "11111111-2222-3333-4444-555555555552"
#define VM3 "11111111-2222-3333-4444-555555555553"

/* The reason is what the daemon tells of the host from then on. */
static void test_no_memory_is_told(void **state)
{
	(void)state;
	error[0] = '\0';
	vf_table_clear(&table);
	no_memory = true;
	assert_int_equal(load(inventory), -ENOMEM);
	no_memory = false;
	assert_string_equal(error, "out of memory for the provider's inventory of 1 PFs and 2 VFs");
	assert_int_equal(load(inventory), 0);
}

static void test_claims_say_what_is_allowed(void **state)
{
	struct vf *vf = NULL;

	(void)state;
	assert_int_equal(claim(VM1, 0x11, "pf9", 0x8001, &vf), -EINVAL);
	assert_string_equal(error, "pf \"pf9\" is unknown; this host has pf0");
	assert_null(vf);
}

/* The PF need not be a member of its VMs' partitions. */
static void test_partition_of_the_vm_alone(void **state)
{
	struct vf *vf = NULL;

	(void)state;
	assert_int_equal(claim(VM1, 0x11, "pf0", 0x9001, &vf), 0);
	assert_int_equal(vf->pkey, 0x9001);
	vf_free_lease(&table, vf);
}

/* A VF is this entry of this GUID table: the provider's word, else the PF's port and VF 0 in entry
 * 1. */
static void test_entries(void **state)
{
	struct json_object *o AUTO_JSON = json_object_new_object();
	struct json_object *copy AUTO_JSON = json_object_new_object();

	(void)state;
	assert_int_equal(table.vfs[0].port_guid, 0x00fab0fffe000100);
	assert_int_equal(table.vfs[0].guid_index, 2);
	vf_set_entry(o, &table.vfs[1]);
	vf_copy_entry(copy, o);
	assert_string_equal(json_opt_str(copy, "port_guid", ""), "0x00fab0fffe000901");
	assert_int_equal(json_opt_u64(copy, "guid_index", 0), 7);
	table.vfs[0].guid_index = 0; /* a VF beyond the table's end has none, and none is told */
	json_object_put(o);
	o = json_object_new_object();
	vf_set_entry(o, &table.vfs[0]);
	vf_copy_entry(o, o);
	assert_int_equal(json_object_object_length(o), 0);
	table.vfs[0].guid_index = 2;
}

static void test_leases_are_exclusive_and_durable(void **state)
{
	struct vf *a = NULL, *b = NULL, *c = NULL;

	(void)state;
	assert_int_equal(claim(VM1, 0x11, "pf0", 0x8001, &a), 0);
	assert_int_equal(claim(VM1, 0x11, "pf0", 0x8001, &b), 0);
	assert_ptr_equal(a, b);
	assert_int_equal(claim(VM2, 0x11, "pf0", 0x8001, &c), -EINVAL);
	assert_non_null(strstr(error, "0x0000000000000011 belongs to VM " VM1));
	assert_int_equal(claim(VM2, 0x12, "pf0", 0x8001, &c), 0);
	assert_ptr_not_equal(a, c);
	assert_int_equal(claim(VM3, 0x13, "pf0", 0x8001, &b), -EBUSY);
	assert_non_null(strstr(error, "no free VF"));
	assert_non_null(strstr(error, VM2));

	/* The daemon restarts. */
	strcpy(a->bus, "pci.7");
	assert_int_equal(vf_save(&table, a), 0);
	vf_table_clear(&table);
	assert_int_equal(load(inventory), 0);
	a = vf_of_vm(&table, VM1, 0);
	assert_non_null(a);
	assert_string_equal(a->bus, "pci.7");
	assert_int_equal(a->vguid, 0x11);
	assert_int_equal(a->pkey, 0x8001);
	vf_free_lease(&table, a);
	assert_null(vf_of_vm(&table, VM1, 0));
	assert_int_equal(claim(VM3, 0x13, "pf0", 0x8001, &b), 0);
}

static int claim_pci(const char *vm, uint64_t vguid, const char *pci, struct vf **ret_vf)
{
	struct vf_want want = {.pf = "pf0", .vguid = vguid, .pkey = 0x8001};

	snprintf(want.pci, sizeof want.pci, "%s", pci);
	return vf_claim(&table, vm, vm, &want, 1, "", ret_vf, error);
}

static void test_a_vf_by_its_address(void **state)
{
	struct vf *vf = NULL;

	(void)state;
	for (size_t i = 0; i < table.vf_count; i++)
		if (table.vfs[i].leased)
			vf_free_lease(&table, &table.vfs[i]);
	assert_int_equal(claim_pci(VM1, 0x11, "0000:3b:00.9", &vf), -EINVAL);
	assert_string_equal(error, "pci \"0000:3b:00.9\" is no VF of pf0, which has one without an "
				   "address, 0000:3b:00.2");
	assert_int_equal(claim_pci(VM1, 0x11, "0000:3B:00.2", &vf), 0);
	assert_string_equal(vf->name, "pf0vf2");
	assert_int_equal(claim_pci(VM2, 0x12, "0000:3b:00.2", &vf), -EBUSY);
	assert_string_equal(error, "VF pf0vf2 (0000:3b:00.2) belongs to VM " VM1 " already");
	assert_int_equal(claim_pci(VM1, 0x11, "0000:3b:00.2", &vf), 0); /* its own */
	vf_free_lease(&table, vf);
}

/* A VM gets all VFs that it asks for, or none. */
static void test_several_for_one_vm(void **state)
{
	struct vf_want wants[3] = {{.pf = "pf0", .vguid = 0x21, .pkey = 0x8001},
				   {.pf = "pf0", .vguid = 0x22, .pkey = 0x8001},
				   {.pf = "pf0", .vguid = 0x23, .pkey = 0x8001}};
	struct vf *vfs[3] = {NULL}, *again[2];

	(void)state;
	for (size_t i = 0; i < table.vf_count; i++)
		vf_free_lease(&table, &table.vfs[i]);
	assert_int_equal(vf_claim(&table, VM1, "g1", wants, 3, "", vfs, error), -EBUSY);
	assert_null(vf_of_vm(&table, VM1, 0));
	assert_int_equal(vf_claim(&table, VM1, "g1", wants, 2, "", vfs, error), 0);
	assert_ptr_not_equal(vfs[0], vfs[1]);
	assert_ptr_equal(vf_of_vm(&table, VM1, 0x22), vfs[1]);
	/* The VM keeps what it had before when the next one fails. */
	assert_int_equal(vf_claim(&table, VM1, "g1", wants, 3, "", again, error), -EBUSY);
	assert_int_equal(vf_claim(&table, VM1, "g1", wants, 2, "", again, error), 0);
	assert_ptr_equal(again[0], vfs[0]);
	assert_ptr_equal(again[1], vfs[1]);
}

static void test_bad_inventories(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"{}", "\"pfs\""},
		{"{\"pfs\":[]}", "\"vfs\""},
		{"{\"pfs\":[{\"name\":\"p\"}],\"vfs\":[]}", "\"guid\""},
		{"{\"pfs\":[],\"vfs\":[{\"name\":\"v\",\"pf\":\"p\",\"index\":1,"
		 "\"parked_guid\":\"0x1\"}]}",
		 "parked_guid"},
	};

	(void)state;
	vf_table_clear(&table);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_true(load(bad[i].text) < 0);
		if (!strstr(error, bad[i].says))
			fail_msg("\"%s\" does not name %s", error, bad[i].says);
	}
	assert_int_equal(load(inventory), 0);
}

static void change_journal(const char *sql)
{
	char path[256];
	sqlite3 *db;

	snprintf(path, sizeof path, "%s/ibvmigd.db", dir);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

/* QEMU may have the VF of a VM that asks again, so nobody else gets it. */
static void test_journal_fails(void **state)
{
	struct vf *vf = NULL, *other = NULL;

	(void)state;
	for (size_t i = 0; i < table.vf_count; i++)
		vf_free_lease(&table, &table.vfs[i]);
	assert_int_equal(claim(VM1, 0x11, "pf0", 0x8001, &vf), 0);
	change_journal("ALTER TABLE leases RENAME TO hidden");
	assert_int_equal(claim(VM1, 0x11, "pf0", 0x8001, &vf), -EIO);
	assert_non_null(strstr(error, "is the disk full?"));
	assert_true(vf->leased);
	assert_int_equal(claim(VM2, 0x12, "pf0", 0x8001, &other), -EIO);
	assert_null(vf_of_vm(&table, VM2, 0));
	change_journal("ALTER TABLE hidden RENAME TO leases");
	assert_int_equal(claim(VM2, 0x12, "pf0", 0x8001, &other), 0);
	assert_ptr_not_equal(vf, other);
	vf_free_lease(&table, vf);
	vf_free_lease(&table, other);
}

static int setup(void **state)
{
	char *why = NULL;

	(void)state;
	if (!mkdtemp(dir) || journal_open(dir, 100, &journal, &why))
		return -1;
	return load(inventory);
}

static int teardown(void **state)
{
	static const char *const names[] = {"ibvmigd.db", "ibvmigd.db-wal", "ibvmigd.db-shm"};
	char path[256];

	(void)state;
	vf_table_clear(&table);
	journal_close(journal);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		unlink(path);
	}
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_claims_say_what_is_allowed),
		cmocka_unit_test(test_partition_of_the_vm_alone),
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_leases_are_exclusive_and_durable),
		cmocka_unit_test(test_a_vf_by_its_address),
		cmocka_unit_test(test_several_for_one_vm),
		cmocka_unit_test(test_journal_fails),
		cmocka_unit_test(test_no_memory_is_told),
		cmocka_unit_test(test_bad_inventories),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
