/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /metrics counts migrations that end. */
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <string.h>

#include "common/http/server.h"
#include "common/json.h"
#include "daemon/base/daemon.h"
#include "daemon/base/settings.h"
#include "daemon/migrate/machine.h"
#include "daemon/report/metrics.h"
#include "daemon/vf/table.h"

static struct settings settings = {.host_name = "hosta"};
static struct vf_table vfs;
static struct daemon d = {.settings = &settings, .vfs = &vfs};
static struct migration source = {.d = &d, .rec = {.id = "m1", .role = ROLE_SOURCE}};
static struct migration destination = {
	.d = &d, .next = &source, .rec = {.id = "m1", .role = ROLE_DESTINATION}};
static char *said; /* owned: the last answer */

void __wrap_http_reply_text(struct http_exchange *x, unsigned status, const char *type, char *text);
bool __wrap_virt_is_connected(struct virt *v);

void __wrap_http_reply_text(struct http_exchange *x, unsigned status, const char *type, char *text)
{
	(void)x;
	(void)type;
	assert_int_equal(status, 200);
	free(said);
	said = text;
}

bool __wrap_virt_is_connected(struct virt *v)
{
	(void)v;
	return true;
}

static void expect(const char *line)
{
	struct http_request req = {.user = &d};

	metrics_get(&req);
	if (!strstr(said, line))
		fail_msg("no \"%s\" in:\n%s", line, said);
}

static void test_ends_are_counted(void **state)
{
	(void)state;
	expect("ibvmig_migrations_total{role=\"source\",result=\"done\"} 0\n");

	source.rec.state = M_DONE;
	source.rec.ended = true;
	source.rec.data = json_object_new_object();
	json_set_u64(source.rec.data, "outage_us", 150000);
	metrics_count(&source);
	expect("ibvmig_migrations_total{role=\"source\",result=\"done\"} 1\n");
	expect("ibvmig_outage_seconds_bucket{le=\"0.1\"} 0\n");
	expect("ibvmig_outage_seconds_bucket{le=\"0.2\"} 1\n");
	expect("ibvmig_outage_seconds_count 1\n");
	expect("ibvmig_migrations_total{role=\"destination\",result=\"done\"} 0\n");

	destination.rec.state = M_ABORTED;
	destination.rec.ended = true;
	metrics_count(&destination);
	expect("ibvmig_migrations_total{role=\"destination\",result=\"aborted\"} 1\n");
	expect("ibvmig_migrations_total{role=\"source\",result=\"aborted\"} 0\n");
}

static int setup(void **state)
{
	(void)state;
	d.migrations = &destination;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	json_object_put(source.rec.data);
	free(said);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ends_are_counted, setup, teardown),
	};

	return RUN_TESTS(tests);
}
