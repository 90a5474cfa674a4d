/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/migrate/machine.h"
#include "daemon/migrate/step.h"

#define SRC ROLE_SOURCE
#define DST ROLE_DESTINATION

static void test_way_forward(void **state)
{
	static const enum migrate_state src[] = {M_PREPARE, M_HOLD,   M_QUIESCE, M_DETACH,
						 M_SWITCH,  M_ATTACH, M_RESUME,  M_DONE};
	static const enum migrate_state dst[] = {M_PREPARE, M_SWITCH, M_ATTACH, M_RESUME, M_DONE};

	(void)state;
	for (size_t i = 0; i + 1 < ARRAY_SIZE(src); i++)
		assert_true(migrate_edge_ok(SRC, src[i], src[i + 1], false, false));
	for (size_t i = 0; i + 1 < ARRAY_SIZE(dst); i++)
		assert_true(migrate_edge_ok(DST, dst[i], dst[i + 1], false, false));
}

static void test_no_short_cuts(void **state)
{
	(void)state;
	assert_false(migrate_edge_ok(SRC, M_PREPARE, M_SWITCH, false, false));
	assert_false(migrate_edge_ok(SRC, M_HOLD, M_DONE, false, false));
	assert_false(migrate_edge_ok(SRC, M_DETACH, M_ABORTED, true, false));
	assert_false(migrate_edge_ok(SRC, M_DONE, M_PREPARE, false, true));
	assert_false(migrate_edge_ok(SRC, M_ABORTED, M_PREPARE, false, false));
	assert_false(migrate_edge_ok(DST, M_PREPARE, M_CANCEL, false, false));
	assert_false(migrate_edge_ok(DST, M_PREPARE, M_HOLD, false, false));
}

static void test_never_back_after_commit(void **state)
{
	(void)state;
	for (int s = M_PREPARE; s <= M_PARKED; s++) {
		for (int to = M_PREPARE; to < M_PARKED; to++) {
			if (s == M_PARKED)
				continue;
			assert_false(migrate_edge_ok(SRC, (enum migrate_state)s,
						     (enum migrate_state)to, true, true));
			assert_false(migrate_edge_ok(DST, (enum migrate_state)s,
						     (enum migrate_state)to, true, true));
		}
	}
	assert_false(migrate_edge_ok(SRC, M_ATTACH, M_CANCEL, false, true));
}

static void test_way_back(void **state)
{
	static const enum migrate_state src[] = {M_ATTACH,  M_SWITCH, M_DETACH,
						 M_QUIESCE, M_HOLD,   M_PREPARE};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(src); i++) {
		assert_true(migrate_edge_ok(SRC, src[i], M_CANCEL, false, false));
		assert_true(migrate_edge_ok(SRC, M_CANCEL, src[i], true, false));
		assert_true(migrate_edge_ok(SRC, src[i], M_PARKED, true, false));
	}
	for (size_t i = 0; i + 1 < ARRAY_SIZE(src); i++)
		assert_true(migrate_edge_ok(SRC, src[i], src[i + 1], true, false));
	assert_true(migrate_edge_ok(SRC, M_PREPARE, M_ABORTED, true, false));
	assert_true(migrate_edge_ok(DST, M_SWITCH, M_PREPARE, true, false));
	/* The job had finished before it could be cancelled. */
	assert_true(migrate_edge_ok(SRC, M_CANCEL, M_ATTACH, false, true));
}

/* A detour behind DETACH, there and back. */
static void test_saved(void **state)
{
	(void)state;
	assert_true(migrate_edge_ok(SRC, M_DETACH, M_SAVED, false, false));
	assert_true(migrate_edge_ok(SRC, M_SAVED, M_SWITCH, false, true));
	assert_true(migrate_edge_ok(SRC, M_SAVED, M_CANCEL, false, false));
	assert_true(migrate_edge_ok(SRC, M_CANCEL, M_SAVED, true, false));
	assert_true(migrate_edge_ok(SRC, M_SAVED, M_DETACH, true, false));
	assert_false(migrate_edge_ok(SRC, M_QUIESCE, M_SAVED, false, false));
	assert_false(migrate_edge_ok(SRC, M_SWITCH, M_SAVED, true, false));
	assert_false(migrate_edge_ok(DST, M_PREPARE, M_SAVED, false, false));
}

/* The operator's manual must show what the program does. */
static void test_manual_has_the_table(void **state)
{
	char *manual AUTO_FREE = NULL, *dump = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&dump, &bytes);

	(void)state;
	migrate_dump_states(f);
	fclose(f);
	assert_int_equal(read_file("docs/migration.md", 1 << 20, &manual, NULL), 0);
	if (!strstr(manual, dump))
		fail_msg("docs/migration.md lacks the output of ibvmigd --dump-states:\n%s", dump);
	free(dump);
}

static void test_record_survives(void **state)
{
	static struct daemon d;
	struct migration *m, *n;

	(void)state;
	assert_true(sd_event_new(&d.loop) >= 0);
	m = migrate_new(&d, SRC, "m1", "u1", "g1");
	m->rec.state = M_DETACH;
	m->rec.reached = M_DETACH;
	m->rec.vf_count = 2;
	m->rec.vfs[0].vguid = 0x11;
	m->rec.vfs[1].vguid = 0x12;
	m->rec.vfs[1].device_gone = true;
	record_do(&m->rec, DID_SUSPEND);
	record_do(&m->rec, DID_UNPLUG);
	record_do(&m->rec, DID_ARM);
	strcpy(m->rec.vfs[1].bus, "pci.7");
	strcpy(m->rec.to.url, "http://10.0.0.2:7611");
	m->rec.vfs[1].to.parked_guid = 0x22;
	m->rec.peers[0] = (struct migrate_peer){.guid = 0x33, .url = "http://10.0.0.3:7611"};
	m->rec.peer_count = 1;
	struct printbuf *text = printbuf_new();

	record_write(text, &m->rec, migrate_failures(m));
	struct json_object *o AUTO_JSON = json_read_back(text);

	n = migrate_new(&d, SRC, "m2", "u1", "g1");
	assert_int_equal(migrate_load(n, o), 0);
	assert_int_equal(n->rec.state, M_DETACH);
	assert_int_equal(n->rec.vf_count, 2);
	assert_int_equal(n->rec.vfs[0].vguid, 0x11);
	assert_int_equal(n->rec.vfs[1].vguid, 0x12);
	assert_int_equal(record_devices_gone(&n->rec), 1);
	assert_true(record_did(&n->rec, DID_SUSPEND) && record_did(&n->rec, DID_UNPLUG) &&
		    record_did(&n->rec, DID_ARM) && !n->rec.committed);
	assert_string_equal(n->rec.vfs[1].bus, "pci.7");
	assert_string_equal(n->rec.to.url, "http://10.0.0.2:7611");
	assert_int_equal(n->rec.vfs[1].to.parked_guid, 0x22);
	assert_int_equal(n->rec.peer_count, 1);
	assert_int_equal(n->rec.peers[0].guid, 0x33);
	json_set_u64(o, "version", 3);
	assert_true(migrate_load(n, o) < 0);
	json_set_u64(o, "version", 2);
	json_set_str(o, "state", "NONSENSE");
	assert_true(migrate_load(n, o) < 0);
	migrate_free_all(&d);
	sd_event_unref(d.loop);
}

/* The record is of a version that knew one VF. */
static void test_old_record_is_read(void **state)
{
	static const char text[] =
		"{\"id\":\"m1\",\"role\":\"source\",\"state\":\"DETACH\",\"reached\":\"DETACH\","
		"\"vguid\":\"0x0000000000000011\",\"pkey\":\"0x8001\",\"dev_id\":\"ibvf3\","
		"\"bus\":\"pci.7\",\"from\":{\"host\":\"hosta\",\"url\":\"http://10.0.0.1:7611\","
		"\"vf\":\"pf0vf1\",\"parked_guid\":\"0x0000000000000021\"},\"to\":{\"host\":"
		"\"hostb\","
		"\"url\":\"http://10.0.0.2:7611\",\"vf\":\"pf0vf2\","
		"\"parked_guid\":\"0x0000000000000022\",\"port_guid\":\"0x0000000000000031\","
		"\"guid_index\":3},\"device_gone\":true,\"armed\":true}";
	static struct daemon d;
	struct json_object *o AUTO_JSON = NULL;
	struct migration *m;

	(void)state;
	assert_true(sd_event_new(&d.loop) >= 0);
	assert_int_equal(json_parse(text, strlen(text), &o), 0);
	m = migrate_new(&d, SRC, "m1", "u1", "g1");
	assert_int_equal(migrate_load(m, o), 0);
	assert_int_equal(m->rec.vf_count, 1);
	assert_int_equal(m->rec.vfs[0].vguid, 0x11);
	assert_int_equal(m->rec.vfs[0].pkey, 0x8001);
	assert_string_equal(m->rec.vfs[0].dev_id, "ibvf3");
	assert_string_equal(m->rec.vfs[0].bus, "pci.7");
	assert_string_equal(m->rec.vfs[0].from.vf, "pf0vf1");
	assert_int_equal(m->rec.vfs[0].to.parked_guid, 0x22);
	assert_int_equal(m->rec.vfs[0].to.guid_index, 3);
	assert_string_equal(m->rec.to.url, "http://10.0.0.2:7611");
	assert_true(m->rec.vfs[0].device_gone && record_did(&m->rec, DID_ARM));
	migrate_free_all(&d);
	sd_event_unref(d.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_way_forward),
		cmocka_unit_test(test_no_short_cuts),
		cmocka_unit_test(test_never_back_after_commit),
		cmocka_unit_test(test_way_back),
		cmocka_unit_test(test_manual_has_the_table),
		cmocka_unit_test(test_saved),
		cmocka_unit_test(test_record_survives),
		cmocka_unit_test(test_old_record_is_read),
	};

	migrate_use_table();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
