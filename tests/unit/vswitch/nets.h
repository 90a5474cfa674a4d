/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Generated nets for the tests of plans and rankings. After tap.h. */
#ifndef IBVMIG_TESTS_VSWITCH_NETS_H
#define IBVMIG_TESTS_VSWITCH_NETS_H

#include <errno.h>
#include <string.h>

#include "common/ib.h"
#include "vswitch/moves/moves.h"
#include "vswitch/nets/gen.h"
#include "vswitch/routing/engine.h"

/* The net that text describes (gen_parse()), routed. Ends the test if that fails. */
static inline void make(const char *text, const struct route_engine *engine, struct fabric *f)
{
	struct fabric_error e = {""};
	struct gen_spec spec;
	int rc = gen_parse(text, &spec, &e);

	rc = rc ? rc : gen_fabric(&spec, f, &e);
	rc = rc ? rc : engine->run(f, &e);
	if (rc)
		fail_msg("%s: %s", text, e.text);
}

/* Carries a plan out: switches take all its SMPs, and the ports change their LIDs. 0, -ENOMEM. */
static inline int apply_plan(struct fabric *f, const struct moves_plan *p)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < p->smps; i++)
		rc = moves_send(f, &p->smp[i]);
	for (unsigned i = 0; !rc && i < p->moves; i++)
		if (p->move[i].old_end != FABRIC_NONE)
			rc = fabric_set_lid(f, p->move[i].old_end, 0);
	for (unsigned i = 0; !rc && i < p->moves; i++)
		if (p->move[i].new_end != FABRIC_NONE)
			rc = fabric_set_lid(f, p->move[i].new_end, p->move[i].lid);
	return rc;
}

/* Changes one entry of a table that is known. 0, -ENODATA, -ENOMEM. */
static inline int set_entry(struct fabric *f, uint32_t sw, uint16_t lid, uint8_t port)
{
	const uint8_t *old = fabric_lft_block(f, sw, lid / IB_LFT_BLOCK);
	uint8_t data[IB_LFT_BLOCK];

	if (!old)
		return -ENODATA;
	memcpy(data, old, sizeof data);
	data[lid % IB_LFT_BLOCK] = port;
	return fabric_set_lft(f, sw, lid / IB_LFT_BLOCK, data);
}

#endif
