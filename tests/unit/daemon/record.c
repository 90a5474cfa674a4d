/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The journal's JSON of a migration. A record of an older ibvmigd is read, and written again byte
 * for byte, so that a host can also go back to the older one. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/http/server.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/migrate/step.h"

/* An ibvmigd has written this that kept each flag as a field of its own; its flags follow. */
static const char head[] =
	"{\"version\":2,\"id\":\"11111111-2222-3333-4444-555555555555\",\"role\":\"sour"
	"ce\",\"state\":\"CANCEL\",\"reached\":\"DETACH\",\"strategy\":\"late\",\"asked"
	"\":\"auto\",\"from\":{\"host\":\"hosta\",\"url\":\"https://10.0.0.1:7611\"},\""
	"to\":{\"host\":\"hostb\",\"url\":\"https://10.0.0.2:7611\"},\"reason\":\"the g"
	"uest keeps VF pf0vf1\",\"trouble\":\"a try \\\"failed\\\"\",\"failures\":0,\"d"
	"ata\":{\"prepare_us\":1200,\"choice\":{\"asked\":\"auto\"},\"peers_suspend\":["
	"{\"vm\":\"g2\",\"us\":5}]},\"vm\":\"99999999-8888-7777-6666-555555555555\",\"n"
	"ame\":\"g1\",\"file\":\"/var/lib/save/g1.img\",\"boot\":\"0123456789abcdef0123"
	"456789abcdef\",\"vfs\":[{\"vguid\":\"0x00fab00000000011\",\"pkey\":\"0x8001\","
	"\"dev_id\":\"ibvf1\",\"bus\":\"pci.7\",\"from\":{\"vf\":\"pf0vf1\",\"parked_gu"
	"id\":\"0x00fab0fffe000101\",\"port_guid\":\"0x00fab0fffe000001\",\"guid_index\""
	":3},\"to\":{\"vf\":\"pf0vf2\",\"parked_guid\":\"0x00fab0fffe000202\"},\"device"
	"_gone\":true},{\"vguid\":\"0x00fab00000000012\",\"pkey\":\"0xffff\",\"dev_id\""
	":\"ibvf2\",\"bus\":\"\",\"from\":{\"vf\":\"pf1vf1\",\"parked_guid\":\"0x00fab0"
	"fffe000103\"},\"to\":{\"vf\":\"\"},\"device_gone\":false}],\"peers\":[{\"guid\""
	":\"0x00fab00000000033\",\"host\":\"hostc\",\"url\":\"https://10.0.0.3:7611\"},"
	"{\"guid\":\"0x00fab00000000034\",\"host\":\"\",\"url\":\"\"}],";

static const char *const flags[] = {
	"back",           "committed",       "ended",  "armed",  "ballast",          "raised",
	"suspended",      "device_del_sent", "parked", "moved",  "attached",         "resumed",
	"switch_ordered", "vm_dead",         "saved",  "let_go", "destination_lost", "source_lost",
};

/* The record with one flag set, or with none. Owned by the caller. */
static char *record_with(size_t only)
{
	char text[1000];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s\"%s\":%s", i ? "," : "",
				      flags[i], i == only ? "true" : "false");
	return strf("%s%s}", head, text);
}

/* A migration that has this record. */
static struct migration *loaded(struct daemon *d, const char *text)
{
	struct json_object *o AUTO_JSON = NULL;
	struct migration *m;

	assert_int_equal(json_parse(text, strlen(text), &o), 0);
	m = migrate_new(d, ROLE_SOURCE, json_opt_str(o, "id", ""), json_opt_str(o, "vm", ""),
			json_opt_str(o, "name", ""));
	assert_int_equal(migrate_load(m, o), 0);
	return m;
}

static void test_byte_for_byte(void **state)
{
	static struct daemon d;

	(void)state;
	assert_true(sd_event_new(&d.loop) >= 0);
	for (size_t only = 0; only <= ARRAY_SIZE(flags); only++) {
		char *old AUTO_FREE = record_with(only);
		struct printbuf *text AUTO_TEXT = printbuf_new();
		const struct migration *m = loaded(&d, old);

		record_write(text, &m->rec, migrate_failures(m));
		assert_string_equal(text->buf, old);
	}
	migrate_free_all(&d);
	sd_event_unref(d.loop);
}

/* The boot of the record is another one than ours, which the machine has to know. */
static void test_what_was_done(void **state)
{
	static struct daemon d;
	char *old AUTO_FREE = record_with(9);
	struct migration *m;

	(void)state;
	assert_true(sd_event_new(&d.loop) >= 0);
	m = loaded(&d, old);
	assert_true(record_did(&m->rec, DID_MOVE) && !record_did(&m->rec, DID_PARK));
	assert_true(m->recovery.rebooted);
	assert_int_equal(m->rec.reached, M_DETACH);
	migrate_free_all(&d);
	sd_event_unref(d.loop);
}

/* ---- phases of a step ---- */

enum { FIRST, SECOND, DETOUR, LAST };

static unsigned begun[LAST + 1], driven;
static bool detour;

static int begin_first(struct migration *m)
{
	(void)m;
	begun[FIRST]++;
	return STEP_DONE;
}

static int begin_second(struct migration *m)
{
	begun[SECOND]++;
	return detour ? migrate_enter(m, DETOUR) : STEP_WAIT;
}

static int second_again(struct migration *m)
{
	(void)m;
	return ++driven < 2 ? STEP_WAIT : migrate_enter(m, LAST);
}

static int begin_detour(struct migration *m)
{
	begun[DETOUR]++;
	detour = false;
	return migrate_enter(m, SECOND);
}

static int begin_last(struct migration *m)
{
	(void)m;
	begun[LAST]++;
	return STEP_WAIT;
}

static const struct migrate_phase phases[] = {
	[FIRST] = {"first", begin_first, NULL},
	[SECOND] = {"second", begin_second, second_again},
	[DETOUR] = {"detour", begin_detour, NULL},
	[LAST] = {"last", begin_last, NULL},
	{0},
};

static void test_phases(void **state)
{
	static struct daemon d;
	struct migration *m;

	(void)state;
	assert_true(sd_event_new(&d.loop) >= 0);
	m = migrate_new(&d, ROLE_SOURCE, "m1", "u1", "g1");
	detour = true;
	assert_int_equal(migrate_run_phases(m, phases), STEP_WAIT);
	assert_true(begun[FIRST] == 1 && begun[SECOND] == 2 && begun[DETOUR] == 1);
	assert_true(migrate_is_in(m, SECOND));
	assert_int_equal(migrate_run_phases(m, phases), STEP_WAIT); /* driven once */
	assert_int_equal(migrate_run_phases(m, phases), STEP_WAIT); /* and again: on to the last */
	assert_true(migrate_is_in(m, LAST) && begun[LAST] == 1 && begun[SECOND] == 2);
	assert_int_equal(migrate_run_phases(m, phases), STEP_WAIT);
	assert_int_equal(begun[LAST], 1);
	migrate_next(m); /* who was asked has answered */
	assert_int_equal(migrate_run_phases(m, phases), STEP_DONE);
	migrate_free_all(&d);
	sd_event_unref(d.loop);
}

/* The phase is shown to who asks; the journal does not keep it. */
static void test_phase_is_told(void **state)
{
	static struct daemon d;
	struct printbuf *kept AUTO_TEXT = printbuf_new(), *told AUTO_TEXT = printbuf_new();
	struct migration *m;

	(void)state;
	assert_true(sd_event_new(&d.loop) >= 0);
	m = migrate_new(&d, ROLE_SOURCE, "m1", "u1", "g1");
	json_write_open(told, NULL, '{');
	migrate_write_account(told, "before", m);
	m->step.phases = phases;
	m->step.phase = DETOUR;
	migrate_write_account(told, "then", m);
	record_write(kept, &m->rec, migrate_failures(m));
	assert_non_null(strstr(told->buf, "\"phase\":null"));
	assert_non_null(strstr(told->buf, "\"phase\":\"PREPARE/detour\""));
	assert_null(strstr(kept->buf, "phase"));
	migrate_free_all(&d);
	sd_event_unref(d.loop);
}

static struct json_object *replied;

void __wrap_http_reply(struct http_exchange *x, unsigned status, struct json_object *body);
struct json_object *__wrap_journal_migration(struct journal *j, const char *id);

void __wrap_http_reply(struct http_exchange *x, unsigned status, struct json_object *body)
{
	(void)x;
	assert_int_equal(status, 200);
	replied = body;
}

struct json_object *__wrap_journal_migration(struct journal *j, const char *id)
{
	struct json_object *o = json_object_new_object();

	(void)j;
	assert_string_equal(id, "m1");
	json_set(o, "source", json_object_new_object());
	json_set(o, "destination", NULL);
	return o;
}

/* GET /v1/migrations/ID reads the journal, and tells the phase of what is in memory beside. */
static void test_phase_is_told_of_one(void **state)
{
	static struct daemon d;
	struct http_request req = {.param = "m1", .user = &d};
	struct migration *m;

	(void)state;
	assert_true(sd_event_new(&d.loop) >= 0);
	m = migrate_new(&d, ROLE_SOURCE, "m1", "u1", "g1");
	m->step.phases = phases;
	m->step.phase = LAST;
	migrate_get(&req);
	assert_string_equal(json_text(replied),
			    "{\"source\":{\"phase\":\"PREPARE/last\"},\"destination\":null}");
	json_object_put(replied);
	migrate_free_all(&d);
	migrate_get(&req);
	assert_string_equal(json_text(replied), "{\"source\":{},\"destination\":null}");
	json_object_put(replied);
	sd_event_unref(d.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_byte_for_byte),
		cmocka_unit_test(test_what_was_done),
		cmocka_unit_test(test_phases),
		cmocka_unit_test(test_phase_is_told),
		cmocka_unit_test(test_phase_is_told_of_one),
	};

	migrate_use_table();
	return RUN_TESTS(tests);
}
