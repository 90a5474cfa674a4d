/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The parts of a job as the floors below see them: which of them are asked, in which order, and
 * what becomes of their answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "guest-agent/shim/core/part.h"

static char asked[16];       /* the parts, in the order in which they were asked */
static bool says[2];         /* the answer of each part */
static int error[2], due[2]; /* -errno; milliseconds */

static void note(char part)
{
	asked[strlen(asked)] = part;
}

static bool first_answers(void)
{
	note('a');
	return says[0];
}

static bool second_answers(void)
{
	note('b');
	return says[1];
}

static bool first_making(char *ret_why, size_t bytes)
{
	note('a');
	if (says[0])
		snprintf(ret_why, bytes, "one is made");
	return says[0];
}

static bool second_making(char *ret_why, size_t bytes)
{
	(void)ret_why;
	(void)bytes;
	note('b');
	return says[1];
}

static int first_rebuilds(struct shim_qp *q)
{
	(void)q;
	note('a');
	return error[0];
}

static int second_rebuilds(struct shim_qp *q)
{
	(void)q;
	note('b');
	return error[1];
}

static int first_waits(void)
{
	return due[0];
}

static int second_waits(void)
{
	return due[1];
}

static void second_ends(void)
{
	note('b');
}

static const struct shim_part first = {.name = "first",
				       .making = first_making,
				       .concerned = first_answers,
				       .quiet = first_answers,
				       .ready = first_answers,
				       .rebuild_qp = first_rebuilds,
				       .timeout = first_waits};
static const struct shim_part second = {.name = "second",
					.making = second_making,
					.concerned = second_answers,
					.quiet = second_answers,
					.ready = second_answers,
					.rebuild_qp = second_rebuilds,
					.timeout = second_waits,
					.ended = second_ends};
const struct shim_part *const shim_parts[] = {&first, &second, NULL};

static int forget(void **state)
{
	(void)state;
	memset(asked, 0, sizeof(asked));
	memset(says, 0, sizeof(says));
	memset(error, 0, sizeof(error));
	return 0;
}

static void one_that_makes_a_connection_is_enough(void **state)
{
	char why[32] = "";

	(void)state;
	assert_false(parts_making(why, sizeof(why)));
	assert_string_equal(asked, "ab");
	forget(NULL);
	says[0] = true;
	assert_true(parts_making(why, sizeof(why)));
	assert_string_equal(why, "one is made");
	assert_string_equal(asked, "a");
}

/* A part that chooses, drains or tries must be asked, whatever the others say. */
static void every_part_is_asked(void **state)
{
	bool (*const ask[])(void) = {parts_concerned, parts_quiet, parts_ready};

	for (size_t i = 0; i < ARRAY_SIZE(ask); i++) {
		for (unsigned who = 0; who < 2; who++) {
			forget(state);
			says[who] = true;
			assert_int_equal(ask[i](), ask[i] == parts_concerned);
			assert_string_equal(asked, "ab");
		}
		says[0] = says[1] = true;
		assert_true(ask[i]());
	}
}

static void the_first_error_ends_the_rebuild_of_a_qp(void **state)
{
	(void)state;
	error[1] = -ENOMEM;
	assert_int_equal(parts_rebuild_qp(NULL), -ENOMEM);
	assert_string_equal(asked, "ab");
	forget(NULL);
	error[0] = -EINVAL;
	assert_int_equal(parts_rebuild_qp(NULL), -EINVAL);
	assert_string_equal(asked, "a");
}

static void the_sooner_time_counts(void **state)
{
	static const int times[][3] = {{-1, -1, -1}, {-1, 5, 5}, {7, -1, 7}, {7, 5, 5}, {0, 5, 0}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		memcpy(due, times[i], sizeof(due));
		assert_int_equal(parts_timeout(), times[i][2]);
	}
}

static void a_part_without_the_hook_is_left_out(void **state)
{
	(void)state;
	parts_ended();
	assert_string_equal(asked, "b");
	parts_abort(); /* nobody has it */
	assert_false(parts_hold(NULL));
	assert_false(parts_find_gids(NULL, 0, NULL, NULL));
	assert_string_equal(asked, "b");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(one_that_makes_a_connection_is_enough, forget),
		cmocka_unit_test_setup(every_part_is_asked, forget),
		cmocka_unit_test_setup(the_first_error_ends_the_rebuild_of_a_qp, forget),
		cmocka_unit_test_setup(the_sooner_time_counts, forget),
		cmocka_unit_test_setup(a_part_without_the_hook_is_left_out, forget),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
