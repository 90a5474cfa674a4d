/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Moves by UFM with a registry that stands in for a broken file: nothing may be entered there. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "sm-helper/moves/mover.h"

#define VGUID 0x0002c90300000101

static void refused(int rc, const struct op_error *e)
{
	assert_int_equal(rc, -EROFS);
	assert_int_equal(e->status, 503);
	assert_string_equal(e->code, "registry-corrupt");
	assert_non_null(strstr(e->detail, "/x.db: damaged"));
}

static void test_broken(void **state)
{
	const struct backend_kind kind = {.name = "played"};
	const struct backend_conf conf = {0};
	const struct reg_entry want = {.vguid = VGUID, .vm = "u1", .pkey = 0x8001};
	const struct move_request move = {.vguid = VGUID, .vm = "u1", .pkey = 0x8001};
	struct move_result res;
	struct op_error e = {0};
	struct ops o = {0};
	uint16_t lid;

	(void)state;
	pthread_mutex_init(&o.lock, NULL);
	assert_int_equal(backend_new(&kind, &conf, &o.backend), 0);
	assert_int_equal(registry_stand_in("/x.db", -EBADMSG, "/x.db: damaged", &o.registry), 0);
	refused(mover_ufm.bind(&o, &want, 0, &lid, &e), &e);
	assert_int_equal(registry_count(o.registry), 0);
	refused(mover_ufm.unbind(&o, VGUID, "u1", NULL, 0, &e), &e);
	refused(mover_ufm.move(&o, &move, 1, 0, &res, &e), &e);
	registry_close(o.registry);
	backend_free(o.backend);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_broken)};

	return RUN_TESTS(tests);
}
