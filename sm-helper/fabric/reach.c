/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/fabric/reach.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

const char *reach_name(enum reach_by by)
{
	static const char *const name[] = {"smp", "gmp", "walk", NULL};

	return name[by];
}

static int fail_shows(char *error, uint16_t lid, uint64_t shown)
{
	snprintf(error, PROBE_ERROR_MAX, "LID %u answers as 0x%016" PRIx64, lid, shown);
	return -EHOSTUNREACH;
}

int reach_route(struct probe *m, struct fabric *f, uint32_t end, struct probe_route *ret_route,
		char error[static PROBE_ERROR_MAX])
{
	const struct fabric_end *x = &f->end[end];
	uint64_t own;
	int hops, rc = probe_own_guid(m, &own, error);

	if (rc)
		return rc;
	hops = fabric_route(f, fabric_find_end(f, own), x->sw, ret_route->path);
	if (hops < 0) {
		snprintf(error, PROBE_ERROR_MAX, "no way from our own port to %s", x->desc);
		return -ENETUNREACH;
	}
	ret_route->path[hops + 1] = x->sw_port;
	ret_route->hops = hops + 1;
	return 0;
}

/* By directed route: the place shows the GUID and has the LID. */
static int check_place(struct probe *m, struct fabric *f, uint32_t end, uint16_t lid,
		       uint64_t port_guid, char *error)
{
	struct probe_route route = {0};
	struct probe_port port;
	uint64_t node, shown;
	int rc = reach_route(m, f, end, &route, error);

	if (rc || (rc = probe_node_info(m, &route, &node, &shown, error)) ||
	    (rc = probe_port_info(m, &route, 0, &port, error)))
		return rc;
	if (shown != port_guid)
		return fail_shows(error, lid, shown);
	if (port.lid == lid)
		return 0;
	snprintf(error, PROBE_ERROR_MAX, "the port at the place has LID %u, not %u", port.lid, lid);
	return -EHOSTUNREACH;
}

/* Tells if the switch next to our own port answers at its LID. */
static bool leaf_answers(struct probe *m, const struct fabric *f)
{
	char ignored[PROBE_ERROR_MAX];
	uint64_t own, shown;
	uint32_t end;

	if (probe_own_guid(m, &own, ignored))
		return true;
	end = fabric_find_end(f, own);
	return end == FABRIC_NONE || f->end[end].sw == FABRIC_NONE ||
	       !probe_node_info_lid(m, f->sw[f->end[end].sw].lid, &shown, ignored);
}

static void remember(struct reach *r, enum reach_by by)
{
	if (r->by == by)
		return;
	r->by = by;
	r->since_ms = now_ms();
	if (by != REACH_SMP)
		log_notice("SMPs routed by LID get no answer in this fabric: LIDs are verified by "
			   "%s",
			   by == REACH_GMP ? "GMPs" : "the walk of the LFTs alone");
}

/* 0: it answers, by *ret_by; -EIO: nobody does. */
static int ask_lid(struct reach *r, struct probe *m, const struct fabric *f, uint16_t lid,
		   uint64_t *ret_shown, enum reach_by *ret_by, char *error)
{
	char ignored[PROBE_ERROR_MAX];
	int rc = -EIO;

	if (r->by == REACH_SMP && !(rc = probe_node_info_lid(m, lid, ret_shown, error)))
		*ret_by = REACH_SMP;
	else if (r->by <= REACH_GMP && !probe_gmp_lid(m, lid, ignored))
		*ret_by = REACH_GMP;
	else if (r->by == REACH_GMP && !(rc = probe_node_info_lid(m, lid, ret_shown, error)))
		*ret_by = REACH_SMP; /* an SMP was lost by chance before */
	else if (r->by == REACH_WALK || !leaf_answers(m, f))
		*ret_by = REACH_WALK;
	else
		return rc;
	return 0;
}

int reach_lid(struct reach *r, struct probe *m, struct fabric *f, uint32_t end, uint16_t lid,
	      uint64_t port_guid, enum reach_by *ret_by, char error[static PROBE_ERROR_MAX])
{
	uint64_t shown = 0;
	int rc;

	if (r->by != REACH_SMP && now_ms() > r->since_ms + REACH_KEEP_MS)
		*r = (struct reach){0};
	snprintf(error, PROBE_ERROR_MAX, "nobody answers at LID %u", lid);
	*ret_by = REACH_WALK;
	if ((rc = ask_lid(r, m, f, lid, &shown, ret_by, error)))
		return rc;
	if (*ret_by == REACH_SMP)
		rc = shown == port_guid ? 0 : fail_shows(error, lid, shown);
	else
		rc = check_place(m, f, end, lid, port_guid, error);
	if (!rc)
		remember(r, *ret_by);
	return rc;
}
