/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/moves/address.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>

static const char *const mode_name[ADDRESS_MODES] = {
	[ADDRESS_PREPOPULATED] = "prepopulated",
	[ADDRESS_DYNAMIC] = "dynamic",
	[ADDRESS_SHARED_PORT] = "shared-port",
};

const char *address_mode_name(enum address_mode m)
{
	return mode_name[m];
}

int address_mode_parse(const char *name, enum address_mode *ret_mode, struct fabric_error *e)
{
	for (unsigned i = 0; i < ADDRESS_MODES; i++)
		if (str_eq(name, mode_name[i])) {
			*ret_mode = (enum address_mode)i;
			return 0;
		}
	return fabric_fail(e, -EINVAL, "mode \"%s\": must be prepopulated, dynamic or shared-port",
			   name);
}

uint32_t address_host(const struct fabric *f, uint32_t vf)
{
	const struct fabric_end *e = &f->end[vf];

	if (e->pf != FABRIC_NONE)
		return e->pf;
	if (e->sw == FABRIC_NONE || !f->sw[e->sw].inside)
		return vf;
	for (unsigned p = 1; p <= f->sw[e->sw].ports; p++)
		if (f->sw[e->sw].peer[p].end != FABRIC_NONE)
			return f->sw[e->sw].peer[p].end;
	return vf;
}

int address_init(struct address *a, enum address_mode mode, const struct fabric *f, unsigned first,
		 unsigned last, struct fabric_error *e)
{
	unsigned top = fabric_top_lid(f);
	int rc;

	a->mode = mode;
	if (!first && top == IB_LID_UCAST_MAX)
		return fabric_fail(e, -ENOSPC,
				   "LID %u is taken: no LID is free above; name a range", top);
	rc = lids_init(&a->lids, first ? first : top + 1, last ? last : IB_LID_UCAST_MAX, e);
	return rc ? rc : lids_hold_fabric(&a->lids, f, e);
}

static int need_vf(const struct fabric *f, uint32_t vf, struct fabric_error *e)
{
	if (vf < f->ends && f->end[vf].sw != FABRIC_NONE)
		return 0;
	return fabric_fail(e, -ENODATA, "%s has no link",
			   vf < f->ends ? f->end[vf].desc : "a VF that is unknown");
}

static int need_lid(const struct fabric *f, uint32_t end, uint16_t *ret_lid, struct fabric_error *e)
{
	if (!f->end[end].lid)
		return fabric_fail(e, -ENODATA, "%s has no LID", f->end[end].desc);
	*ret_lid = f->end[end].lid;
	return 0;
}

int address_start(struct address *a, const struct fabric *f, uint32_t vf, struct address_change *c,
		  struct fabric_error *e)
{
	int rc = need_vf(f, vf, e);

	c->moves = 0;
	if (rc)
		return rc;
	if (a->mode == ADDRESS_PREPOPULATED)
		return need_lid(f, vf, &c->lid, e);
	if (a->mode == ADDRESS_SHARED_PORT)
		return need_lid(f, address_host(f, vf), &c->lid, e);
	if (f->end[vf].lid)
		return fabric_fail(e, -EBUSY, "%s has LID %u already", f->end[vf].desc,
				   f->end[vf].lid);
	if ((rc = lids_take(&a->lids, f->end[vf].lmc, &c->lid, e)))
		return rc;
	rc = moves_to_port(f, c->lid, f->end[vf].sw, f->end[vf].sw_port, &c->move[0], e);
	if (rc) {
		address_forget(a, c->lid, f->end[vf].lmc);
		return rc;
	}
	c->move[0].new_end = vf;
	c->move[0].lmc = f->end[vf].lmc;
	c->moves = 1;
	return 0;
}

int address_move(const struct address *a, const struct fabric *f, uint32_t from, uint32_t to,
		 struct address_change *c, struct fabric_error *e)
{
	int rc = need_vf(f, from, e);

	rc = rc ? rc : need_vf(f, to, e);
	c->moves = 0;
	if (rc)
		return rc;
	if (a->mode == ADDRESS_SHARED_PORT)
		return need_lid(f, address_host(f, to), &c->lid, e);
	if ((rc = need_lid(f, from, &c->lid, e)))
		return rc;
	if (a->mode == ADDRESS_DYNAMIC && f->end[to].lid)
		return fabric_fail(e, -EBUSY, "%s has LID %u already", f->end[to].desc,
				   f->end[to].lid);
	c->moves = a->mode == ADDRESS_DYNAMIC ? 1 : 2;
	return c->moves == 1 ? moves_copy(f, from, to, c->move, e)
			     : moves_swap(f, from, to, c->move, e);
}

int address_stop(const struct address *a, const struct fabric *f, uint32_t vf,
		 struct address_change *c, struct fabric_error *e)
{
	int rc = need_vf(f, vf, e);

	c->moves = 0;
	if (rc || a->mode == ADDRESS_SHARED_PORT)
		return rc;
	if ((rc = need_lid(f, vf, &c->lid, e)) || a->mode == ADDRESS_PREPOPULATED)
		return rc;
	c->move[0] = (struct move){c->lid,      0,  FABRIC_NONE,    0, true,
				   FABRIC_NONE, vf, f->end[vf].lmc, 0};
	c->moves = 1;
	return 0;
}

void address_forget(struct address *a, uint16_t lid, unsigned lmc)
{
	lids_release(&a->lids, lid, lmc);
}
