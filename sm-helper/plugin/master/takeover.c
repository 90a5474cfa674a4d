/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/master/takeover.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct settling {
	struct takeover_port *port; /* n of them */
	unsigned n;
	const struct sm_target *intent; /* count of them */
	unsigned count;
	struct takeover_port *at[SM_ASSIGN_MAX]; /* the port that is there; NULL: nobody */
	bool *taken;                             /* by LID: some port gets it */
};

static bool take(struct settling *s, struct takeover_port *p, uint16_t lid)
{
	if (!ib_lid_is_unicast(lid) || !ib_lid_is_unicast(lid + p->lids - 1u) || lid % p->lids)
		return false;
	for (unsigned i = lid; i < lid + p->lids; i++)
		if (s->taken[i])
			return false;
	memset(s->taken + lid, true, p->lids);
	p->gets = lid;
	return true;
}

static bool is_of_batch(const struct settling *s, uint16_t lid)
{
	for (unsigned i = 0; i < s->count; i++)
		if (lid && (s->intent[i].lid == lid || s->intent[i].was_lid == lid ||
			    s->intent[i].own_lid == lid))
			return true;
	return false;
}

/* The place to which the batch would bring this GUID, or from which it would take it. */
static const struct sm_target *wants(const struct settling *s, uint64_t guid)
{
	for (unsigned i = 0; i < s->count; i++)
		if (s->intent[i].port_guid == guid)
			return &s->intent[i];
	return NULL;
}

static const struct sm_target *had(const struct settling *s, uint64_t guid)
{
	for (unsigned i = 0; i < s->count; i++)
		if (s->intent[i].was_guid == guid)
			return &s->intent[i];
	return NULL;
}

static void find_places(struct settling *s)
{
	for (unsigned k = 0; s->count && k < s->n; k++) {
		struct takeover_port *p = &s->port[k];

		for (unsigned i = 0; p->switch_guid && i < s->count; i++)
			if (p->switch_guid == s->intent[i].switch_guid &&
			    p->switch_port == s->intent[i].switch_port)
				s->at[i] = p;
	}
}

static bool is_place(const struct settling *s, const struct takeover_port *p)
{
	for (unsigned i = 0; i < s->count; i++)
		if (s->at[i] == p)
			return true;
	return false;
}

/* A record of long ago must not rule: all its places show GUIDs and LIDs of the batch, and nobody
 * else has one of its LIDs. */
static bool is_past(const struct settling *s)
{
	bool any = false;

	for (unsigned i = 0; i < s->count; i++) {
		const struct takeover_port *p = s->at[i];

		if (!p)
			continue;
		any = true;
		if ((!wants(s, p->guid) && !had(s, p->guid) &&
		     p->guid != s->intent[i].parked_guid) ||
		    (p->lid && !is_of_batch(s, p->lid)))
			return true;
	}
	for (unsigned k = 0; k < s->n; k++)
		if (is_of_batch(s, s->port[k].lid) && !is_place(s, &s->port[k]))
			return true;
	return !any;
}

/* No LID twice, and what keeps its LID through the batch, which are the VMs, has it: then nothing
 * was cut short, or what was left out does not matter. */
static bool is_whole(const struct settling *s, const uint32_t *shown)
{
	for (unsigned i = 0; i < s->count; i++) {
		const struct takeover_port *p = s->at[i];
		const struct sm_target *to = p ? wants(s, p->guid) : NULL,
				       *from = p ? had(s, p->guid) : NULL;

		if (!p)
			continue;
		if (!p->lid || shown[p->lid] > 1 ||
		    (to && from && to->lid == from->was_lid && p->lid != to->lid))
			return false;
	}
	return true;
}

/* Any LID of the batch that is left. */
static void take_left(struct settling *s, struct takeover_port *p)
{
	for (unsigned i = 0; i < s->count; i++)
		if (take(s, p, s->intent[i].lid) || take(s, p, s->intent[i].was_lid))
			return;
}

/* A LID belongs to a GUID, wherever that is shown: the daemons may have put the GUIDs back since
 * the batch was cut short, or one of two. */
static void mend(struct settling *s)
{
	for (unsigned i = 0; i < s->count; i++) {
		struct takeover_port *p = s->at[i];
		const struct sm_target *t = p ? wants(s, p->guid) : NULL;

		if (t)
			take(s, p, t->lid ? t->lid : t->own_lid);
	}
	for (unsigned i = 0; i < s->count; i++) {
		struct takeover_port *p = s->at[i];
		const struct sm_target *t = p ? had(s, p->guid) : NULL;

		if (!p || p->gets || (t && take(s, p, t->was_lid)) || take(s, p, p->lid))
			continue;
		take_left(s, p);
	}
}

static enum takeover_intent settle_intent(struct settling *s, const uint32_t *shown)
{
	if (!s->count)
		return TAKEOVER_NONE;
	find_places(s);
	if (is_past(s)) {
		s->count = 0;
		return TAKEOVER_PAST;
	}
	if (is_whole(s, shown))
		return TAKEOVER_WHOLE; /* as any other port */
	mend(s);
	return TAKEOVER_MENDED;
}

int takeover_settle(struct takeover_port *ports, unsigned n, const struct sm_target *intent,
		    unsigned count, struct takeover_result *ret_result)
{
	uint32_t *shown AUTO_FREE = calloc(UINT16_MAX + 1u, sizeof *shown);
	bool *taken AUTO_FREE = calloc(UINT16_MAX + 1u, sizeof *taken);
	struct settling s = {.port = ports, .n = n, .intent = intent, .taken = taken};
	struct takeover_result r = {0};

	if (!shown || !taken)
		return -ENOMEM;
	s.count = count < SM_ASSIGN_MAX ? count : SM_ASSIGN_MAX;
	for (unsigned i = 0; i < n; i++) {
		ports[i].gets = 0;
		shown[ports[i].lid]++;
	}
	r.intent = settle_intent(&s, shown);
	for (unsigned i = 0; i < n; i++)
		if (!ports[i].gets && shown[ports[i].lid] == 1 &&
		    take(&s, &ports[i], ports[i].lid) && ports[i].known != ports[i].lid)
			r.kept++;
	/* ports without a LID, or with one that another port has too: the file may know better */
	for (unsigned i = 0; i < n; i++) {
		if (ports[i].gets)
			continue;
		r.doubled += ports[i].lid && shown[ports[i].lid] > 1;
		take(&s, &ports[i], ports[i].known);
	}
	*ret_result = r;
	return 0;
}
