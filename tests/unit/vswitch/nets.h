/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Generated nets for the tests of plans and rankings. After tap.h. */
#ifndef IBVMIG_TESTS_VSWITCH_NETS_H
#define IBVMIG_TESTS_VSWITCH_NETS_H

#include "vswitch/nets/gen.h"
#include "vswitch/routing/engine.h"

/* The net that text describes (gen_parse()), routed. Ends the test if that fails. */
static void make(const char *text, const struct route_engine *engine, struct fabric *f)
{
	struct fabric_error e = {""};
	struct gen_spec spec;
	int rc = gen_parse(text, &spec, &e);

	rc = rc ? rc : gen_fabric(&spec, f, &e);
	rc = rc ? rc : engine->run(f, &e);
	if (rc)
		fail_msg("%s: %s", text, e.text);
}

#endif
