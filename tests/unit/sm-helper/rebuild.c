/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a registry would be, of hosts' answers, OpenSM's tables and its plugin's records. */
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "sm-helper/watch/rebuild.h"

#define SWITCH 0x10

static struct fabric f;
static struct rebuild r;

/* A switch whose port n has a CA with port GUID 0x100 + n and LID n + 1. */
static int setup(void **state)
{
	(void)state;
	if (fabric_add_switch(&f, SWITCH, 1, 8, "s"))
		return -1;
	for (unsigned i = 1; i <= 8; i++) {
		struct fabric_end e = {.node_guid = 0x200 + i,
				       .port_guid = 0x100 + i,
				       .lid = (uint16_t)(i + 1),
				       .port = 1};

		if (fabric_add_end(&f, &e) || fabric_attach(&f, i - 1, SWITCH, i))
			return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rebuild_free(&r);
	fabric_clear(&f);
	return 0;
}

static void add(const char *host, const char *vfs)
{
	char *text AUTO_FREE = strf("{\"host\": \"%s\", \"vfs\": [%s]}", host, vfs);
	char *url AUTO_FREE = strf("http://%s", host);
	struct json_object *o AUTO_JSON = json_tokener_parse(text);

	assert_int_equal(rebuild_add_host(&r, url, o), 0);
}

#define VF(name, parked, vguid, more)                                                              \
	"{\"name\": \"" name "\", \"parked_guid\": \"0x0000000000000" parked                       \
	"\", \"vguid\": \"0x0000000000000" vguid                                                   \
	"\", \"vm\": \"web\", \"vm_uuid\": \"u1\", \"pkey\": \"0x8001\"" more "}"

static const struct rebuild_row *row(uint64_t vguid)
{
	for (size_t i = 0; i < r.count; i++)
		if (r.row[i].e.vguid == vguid)
			return &r.row[i];
	fail_msg("no row of vGUID %#llx", (unsigned long long)vguid);
	return NULL;
}

static void test_enter(void **state)
{
	const struct sm_home copied = {.switch_guid = SWITCH,
				       .switch_port = 2,
				       .port_guid = 0x102,
				       .like = 0x108,
				       .own_lid = 40};
	const struct rebuild_row *x;

	(void)state;
	add("a", VF("vf0", "901", "101", "") ", " VF("vf1", "902", "102", ""));
	add("b", VF("vf0", "903", "777",
		    ", \"port_guid\": \"0x0000000000000103\", "
		    "\"guid_index\": 4"));
	assert_int_equal(rebuild_judge(&r, &f, &copied, 1, NULL, 0), 0);
	x = row(0x101);
	assert_int_equal(x->verdict, REBUILD_ENTER);
	assert_true(x->e.lid == 2 && x->e.mode == ADDRESS_PREPOPULATED && x->e.pkey == 0x8001);
	assert_true(x->e.at.switch_guid == SWITCH && x->e.at.switch_port == 1);
	assert_true(x->e.at.parked_guid == 0x901 && x->e.at.parked_node == 0xa01);
	assert_string_equal(x->e.at.url, "http://a");
	x = row(0x102);
	assert_true(x->e.mode == ADDRESS_DYNAMIC && x->e.at.lid == 40 && x->e.lid == 3);
	x = row(0x777);
	assert_int_equal(x->verdict, REBUILD_ENTER);
	assert_true(x->e.mode == ADDRESS_SHARED_PORT && x->e.lid == 4 &&
		    x->e.at.switch_guid == 0x103 && x->e.at.switch_port == 4);
}

static void test_conflicts(void **state)
{
	const struct sm_home home[] = {
		{.switch_guid = SWITCH, .switch_port = 3, .port_guid = 0x104, .parked_guid = 0x90a},
		{.switch_guid = SWITCH,
		 .switch_port = 5,
		 .port_guid = 0x105,
		 .parked_guid = 0x90b}};

	(void)state;
	add("a", VF("vf0", "901", "101", "") ", " VF("vf1", "902", "999", "") ", " VF(
			 "vf2", "903", "103", ", \"migration\": \"m1\"") ", " VF("vf3", "904",
										 "104", ""));
	add("b", VF("vf7", "907", "101", ""));
	assert_int_equal(rebuild_judge(&r, &f, home, 2, NULL, 0), 0);
	for (size_t i = 0; i < r.count; i++)
		assert_int_equal(r.row[i].verdict, REBUILD_CONFLICT);
	assert_string_equal(row(0x101)->text, "VF vf7 of b has the vGUID too");
	assert_string_equal(row(0x999)->text, "OpenSM sees no port that shows the vGUID");
	assert_non_null(strstr(row(0x103)->text, "in the middle of a migration"));
	assert_non_null(strstr(row(0x104)->text, "has it at port 3"));
	assert_non_null(strstr(row(0x105)->text, "no host that answers has it"));
	assert_int_equal(r.count, 6);
}

/* What the registry has is kept, corrected, or left where nobody tells of it. */
static void test_known(void **state)
{
	struct reg_entry known[3] = {
		{.vguid = 0x101,
		 .vm = "u1",
		 .pkey = 0x8001,
		 .lid = 2,
		 .at = {"a", "", "vf0", 0x901, 0xa01, SWITCH, 1, 0}},
		{.vguid = 0x102,
		 .vm = "u1",
		 .pkey = 0x8001,
		 .lid = 9,
		 .at = {"c", "", "vf9", 0x909, 0xa09, SWITCH, 7, 0}},
		{.vguid = 0x888, .vm = "u8", .at = {"d", "", "vf1", 0x908, 0, SWITCH, 8, 0}}};

	(void)state;
	add("a", VF("vf0", "901", "101", "") ", " VF("vf1", "902", "102", ""));
	assert_int_equal(rebuild_judge(&r, &f, NULL, 0, known, 3), 0);
	assert_int_equal(row(0x101)->verdict, REBUILD_SAME);
	assert_int_equal(row(0x102)->verdict, REBUILD_CORRECT);
	assert_string_equal(row(0x102)->text, "the registry has VM u1, VF vf9 of c, LID 9");
	assert_int_equal(row(0x888)->verdict, REBUILD_LEFT);
	known[1].intent = REG_MOVE;
	rebuild_free(&r);
	add("a", VF("vf1", "902", "102", ""));
	assert_int_equal(rebuild_judge(&r, &f, NULL, 0, known, 2), 0);
	assert_int_equal(row(0x102)->verdict, REBUILD_CONFLICT);
}

/* A VF has one vGUID: where the registry keeps another one there, that row alone is not entered. */
static void test_stayers(void **state)
{
	const struct reg_entry known[] = {
		{.vguid = 0x888, .vm = "u8", .at = {"a", "", "vf0", 0x901, 0, SWITCH, 1, 0}},
		{.vguid = 0x101, .vm = "u1", .at = {"a", "", "vf1", 0x902, 0, SWITCH, 2, 0}},
		{.vguid = 0x103, .vm = "u1", .at = {"a", "", "vf3", 0x904, 0, SWITCH, 4, 0}},
		{.vguid = 0x104, .vm = "u1", .at = {"a", "", "vf2", 0x903, 0, SWITCH, 3, 0}}};

	(void)state;
	add("a", VF("vf0", "901", "101", "") ", " VF("vf1", "902", "102", "") ", " VF(
			 "vf2", "903", "103", "") ", " VF("vf3", "904", "104", ""));
	assert_int_equal(rebuild_judge(&r, &f, NULL, 0, known, 4), 0);
	assert_int_equal(row(0x101)->verdict, REBUILD_CONFLICT);
	assert_non_null(strstr(row(0x101)->text, "0x0000000000000888 of VM u8"));
	assert_int_equal(row(0x102)->verdict, REBUILD_CONFLICT);
	assert_int_equal(row(0x103)->verdict, REBUILD_CORRECT); /* two that exchange theirs */
	assert_int_equal(row(0x104)->verdict, REBUILD_CORRECT);
	assert_int_equal(row(0x888)->verdict, REBUILD_LEFT);
	assert_true(rebuild_enters(&r, 0x103) && !rebuild_enters(&r, 0x101));
}

/* Hosts are asked first. A VM that has moved since is not where its host said. */
static void test_moved(void **state)
{
	const struct sm_home before[] = {
		{.switch_guid = SWITCH, .switch_port = 7, .port_guid = 0x101},
		{.switch_guid = SWITCH, .switch_port = 2, .port_guid = 0x102}};
	const struct sm_home now[] = {
		{.switch_guid = SWITCH, .switch_port = 1, .port_guid = 0x101},
		{.switch_guid = SWITCH, .switch_port = 2, .port_guid = 0x102}};

	(void)state;
	add("a", VF("vf0", "901", "101", "") ", " VF("vf1", "902", "102", "") ", " VF("vf2", "903",
										      "103", ""));
	rebuild_moved(&r, before, 2, now, 2);
	assert_int_equal(rebuild_judge(&r, &f, now, 2, NULL, 0), 0);
	assert_int_equal(row(0x101)->verdict, REBUILD_CONFLICT);
	assert_non_null(strstr(row(0x101)->text, "has moved while hosts were asked"));
	assert_int_equal(row(0x102)->verdict, REBUILD_ENTER);
	assert_int_equal(row(0x103)->verdict, REBUILD_ENTER);
}

/* Places by the list of a subnet manager that moves by itself: no switch is known. */
static void test_places(void **state)
{
	const struct sm_place place[] = {{0x101, 0x900, 1, 77},
					 {0x102, 0x900, 1, 0},
					 {0x103, 0x900, 1, 5},
					 {0x103, 0x901, 1, 5}};
	const struct reg_entry known[] = {{.vguid = 0x101,
					   .vm = "u1",
					   .pkey = 0x8001,
					   .lid = 76,
					   .member_before = 2,
					   .at = {"a", "", "vf0", 0x901, 0, 0x900, 1, 0}}};

	(void)state;
	add("a", VF("vf0", "901", "101", "") ", " VF("vf1", "902", "102", "") ", " VF(
			 "vf2", "903", "103", "") ", " VF("vf3", "904", "104", ""));
	rebuild_place(&r, place, 4);
	assert_int_equal(rebuild_judge(&r, NULL, NULL, 0, known, 1), 0);
	assert_int_equal(row(0x101)->verdict, REBUILD_CORRECT);
	assert_int_equal(row(0x101)->e.lid, 77);
	assert_int_equal(row(0x101)->e.at.switch_guid, 0x900);
	assert_int_equal(row(0x101)->e.member_before, 2);
	assert_non_null(strstr(row(0x102)->text, "lists 1 virtual ports with it, not active"));
	assert_non_null(strstr(row(0x103)->text, "lists 2 virtual ports with it"));
	assert_non_null(strstr(row(0x104)->text, "lists 0 virtual ports with it"));
	assert_int_equal(row(0x104)->verdict, REBUILD_CONFLICT);
}

static void test_claimed(void **state)
{
	(void)state;
	add("a", VF("vf0", "901", "101", ""));
	rebuild_claimed(&r.row[0], "u2");
	assert_int_equal(rebuild_judge(&r, &f, NULL, 0, NULL, 0), 0);
	assert_int_equal(row(0x101)->verdict, REBUILD_CONFLICT);
	assert_string_equal(row(0x101)->text, "VM u2 has claimed it: release it there first");
}

int main(void)
{
	const struct CMUnitTest sm_rebuild[] = {
		cmocka_unit_test_setup_teardown(test_enter, setup, teardown),
		cmocka_unit_test_setup_teardown(test_conflicts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_known, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stayers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_moved, setup, teardown),
		cmocka_unit_test_setup_teardown(test_places, setup, teardown),
		cmocka_unit_test_setup_teardown(test_claimed, setup, teardown),
	};

	return RUN_TESTS(sm_rebuild);
}
