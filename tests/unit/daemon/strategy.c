/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The choice of a strategy, over all combinations of facts and wishes. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/base/strategy.h"

#define FACTS 10

static struct strategy_facts facts_of(unsigned bits)
{
	return (struct strategy_facts){
		.state_here = bits & 1,
		.state_there = bits & 2,
		.fixed = bits & 4,
		.agent = bits & 8,
		.agent_needed = bits & 16,
		.copy = bits & 32 ? COPY_POST : COPY_LIVE,
		.blocked = bits & 256,
		.passed = bits & 512,
		.paused = bits & 128 ? "g1" : NULL,
		.kernel_users = bits & 64 ? 1 : 0,
		.kernel_user_names = "IPoIB (on ib0)",
	};
}

/* docs/migration.md, "Strategies": what each one needs, column by column. */
static bool possible(enum domain_strategy s, const struct strategy_facts *f)
{
	bool guest = !f->blocked && !f->paused && (f->agent || !f->agent_needed);

	switch (s) {
	case STRATEGY_NATIVE:
		return !f->passed && f->state_here && f->state_there && f->fixed &&
		       f->copy != COPY_POST;
	case STRATEGY_LATE:
		return guest && f->agent && !f->fixed && !f->kernel_users && f->copy != COPY_POST;
	case STRATEGY_EARLY:
		return guest;
	default:
		return false;
	}
}

static void test_auto_takes_the_best(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 1u << FACTS; bits++) {
		struct strategy_facts f = facts_of(bits);
		struct strategy_choice c;
		enum domain_strategy best = STRATEGY_NATIVE;
		int rc = strategy_choose(STRATEGY_AUTO, &f, &c);

		while (best < STRATEGY_COLD && !possible(best, &f))
			best++;
		if (best == STRATEGY_COLD) {
			assert_int_equal(rc, -ENOTSUP);
		} else {
			assert_int_equal(rc, 0);
			assert_int_equal(c.chosen, best);
		}
		/* The better strategies have a reason, no other has. */
		for (int s = STRATEGY_NATIVE; s <= STRATEGY_COLD; s++)
			assert_int_equal(*c.why_not[s] != 0, s < (int)best || rc);
	}
}

static void test_what_is_asked_or_nothing(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 1u << FACTS; bits++) {
		for (int s = STRATEGY_NATIVE; s <= STRATEGY_COLD; s++) {
			struct strategy_facts f = facts_of(bits);
			struct strategy_choice c;
			int rc = strategy_choose((enum domain_strategy)s, &f, &c);

			assert_int_equal(rc, possible((enum domain_strategy)s, &f) ? 0 : -ENOTSUP);
			assert_int_equal(c.chosen, s);
			for (int o = STRATEGY_NATIVE; o <= STRATEGY_COLD; o++)
				assert_int_equal(*c.why_not[o] != 0, o == s && rc);
		}
	}
}

static void test_in_words(void **state)
{
	struct strategy_facts f = {
		.agent = true, .kernel_users = 1, .kernel_user_names = "IPoIB (on ib0)"};
	struct strategy_choice c;
	char text[512];

	(void)state;
	assert_int_equal(strategy_choose(STRATEGY_AUTO, &f, &c), 0);
	struct json_object *o AUTO_JSON = strategy_json(STRATEGY_AUTO, &c);
	assert_string_equal(json_opt_str(o, "asked", ""), "auto");
	assert_string_equal(json_opt_str(o, "chosen", ""), "early");
	assert_non_null(strstr(json_opt_str(json_opt(o, "why_not"), "late", ""), "IPoIB (on ib0)"));
	assert_null(json_opt(json_opt(o, "why_not"), "early"));
	assert_int_equal(strategy_choose(STRATEGY_LATE, &f, &c), -ENOTSUP);
	strategy_refusal(STRATEGY_LATE, &c, text, sizeof text);
	assert_non_null(strstr(text, "strategy late is not possible: IPoIB (on ib0) uses the VF"));
	f.kernel_users = 2;
	snprintf(f.kernel_user_names, sizeof f.kernel_user_names, "IPoIB (on ib0) and SRP (on m)");
	assert_int_equal(strategy_choose(STRATEGY_LATE, &f, &c), -ENOTSUP);
	assert_non_null(strstr(c.why_not[STRATEGY_LATE], "and SRP (on m) use the VF"));
	memset(f.kernel_user_names, 'x', sizeof f.kernel_user_names - 1); /* and is not cut */
	assert_int_equal(strategy_choose(STRATEGY_LATE, &f, &c), -ENOTSUP);
	assert_non_null(strstr(c.why_not[STRATEGY_LATE], "would be lost"));
	f = (struct strategy_facts){.paused = "g1"};
	assert_int_equal(strategy_choose(STRATEGY_AUTO, &f, &c), -ENOTSUP);
	strategy_refusal(STRATEGY_AUTO, &c, text, sizeof text);
	assert_non_null(strstr(text, "; late, early: the VM is paused"));
	assert_non_null(strstr(text, "gives its VF up: virsh resume g1; cold: a live"));
	f = (struct strategy_facts){
		.paused = "g1", .state_here = true, .state_there = true, .fixed = true};
	assert_int_equal(strategy_choose(STRATEGY_EARLY, &f, &c), -ENOTSUP);
	strategy_refusal(STRATEGY_EARLY, &c, text, sizeof text);
	assert_non_null(strstr(text, "virsh resume g1, or strategy native, which"));
	f = (struct strategy_facts){.blocked = true, .fixed = true, .agent = true};
	assert_int_equal(strategy_choose(STRATEGY_AUTO, &f, &c), -ENOTSUP);
	strategy_refusal(STRATEGY_AUTO, &c, text, sizeof text);
	assert_non_null(strstr(text, "; late, early: the VM's QEMU refuses to migrate while"));
	assert_non_null(strstr(text, "hooks/qemu; cold: a live migration is not cold: ibvmig"));
	f.copy = COPY_SAVE; /* takes it away before */
	assert_int_equal(strategy_choose(STRATEGY_COLD, &f, &c), 0);
	f = (struct strategy_facts){.agent_needed = true};
	assert_int_equal(strategy_choose(STRATEGY_AUTO, &f, &c), -ENOTSUP);
	strategy_refusal(STRATEGY_AUTO, &c, text, sizeof text);
	assert_non_null(strstr(text, "native: the VF's driver"));
	assert_non_null(strstr(text, "ibvmig save here"));
	strategy_refusal(STRATEGY_AUTO, &c, text, 40); /* cut, not overrun */
	assert_int_equal(strlen(text), 39);
}

static void test_names(void **state)
{
	enum domain_strategy s = STRATEGY_COLD;

	(void)state;
	for (int i = STRATEGY_AUTO; i <= STRATEGY_COLD; i++) {
		assert_int_equal(strategy_parse(strategy_name((enum domain_strategy)i), &s), 0);
		assert_int_equal(s, i);
	}
	assert_int_equal(strategy_parse("best", &s), -EINVAL);
	assert_int_equal(s, STRATEGY_COLD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_auto_takes_the_best),
		cmocka_unit_test(test_what_is_asked_or_nothing),
		cmocka_unit_test(test_in_words),
		cmocka_unit_test(test_names),
	};

	return RUN_TESTS(tests);
}
