/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/deliver.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include <opensm/osm_node.h>
#include <opensm/osm_port.h>

#define POLL_MS 5

int deliver_lid(struct plugin *p, struct place *pl, uint16_t lid)
{
	osm_subn_t *subn = &p->osm->subn;
	ib_port_info_t *own = &pl->physp->port_info;
	union {
		ib_port_info_t pi;
		uint8_t bytes[IB_SMP_DATA_SIZE];
	} set;
	osm_madw_context_t c;

	memset(&set, 0, sizeof set);
	set.pi = *own;
	set.pi.state_info2 = 0x02; /* LinkDownDefault polling, PortPhysicalState no change */
	ib_port_info_set_port_state(&set.pi, IB_LINK_NO_CHANGE);
	ib_port_info_set_client_rereg(&set.pi, 0);
	set.pi.base_lid = cl_hton16(lid);
	set.pi.master_sm_base_lid = subn->sm_base_lid;
	set.pi.m_key = subn->opt.m_key;
	own->m_key_violations = cl_hton16(PLUGIN_UNANSWERED);
	memset(&c, 0, sizeof c);
	c.pi_context.node_guid = osm_node_get_node_guid(pl->node);
	c.pi_context.port_guid = pl->physp->port_guid;
	c.pi_context.set_method = TRUE;
	atomic_fetch_add(&p->count.port_info_smps, 1);
	return osm_req_set(&p->osm->sm, osm_physp_get_dr_path_ptr(pl->physp), set.bytes,
			   sizeof set.bytes, IB_MAD_ATTR_PORT_INFO,
			   cl_hton32(osm_physp_get_port_num(pl->physp)), FALSE,
			   ib_port_info_get_m_key(own), 0, CL_DISP_MSGID_NONE, &c) == IB_SUCCESS
		       ? 0
		       : -EIO;
}

int deliver_lids(struct delivery *d, bool back)
{
	int rc = 0;

	d->port_infos = 0;
	for (unsigned i = 0; i < d->count; i++) {
		struct place *pl = &d->place[i];

		if (pl->before.lid == pl->want.lid)
			continue;
		d->port_infos++;
		if (deliver_lid(d->p, pl, back ? pl->before.lid : pl->want.lid))
			rc = -EIO;
	}
	return rc;
}

/* OpenSM signals stats.cond when its last MAD is answered, to one waiter only, which may be its
 * sweeper. So look again every POLL_MS, and pass on a signal that was meant for it. */
int deliver_await(struct plugin *p, uint64_t deadline_us)
{
	osm_stats_t *s = &p->osm->stats;
	bool done;

	pthread_mutex_lock(&s->mutex);
	while (!(done = !s->qp0_mads_outstanding) && now_us() < deadline_us) {
		uint64_t at = now_us() + POLL_MS * 1000;
		struct timespec until = {(time_t)(at / 1000000), (long)(at % 1000000) * 1000};

		pthread_cond_clockwait(&s->cond, &s->mutex, CLOCK_MONOTONIC, &until);
	}
	if (done)
		pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->mutex);
	return done ? 0 : -ETIMEDOUT;
}

int deliver_lfts(struct delivery *d, uint64_t deadline_us)
{
	int first = d->ordered && !d->lfts->turned ? deliver_await(d->p, deadline_us) : 0;
	int rc = first ? first : lfts_send(d->p, d->lfts, deadline_us);
	int rc2 = deliver_await(d->p, deadline_us);
	unsigned next = 0;

	do {
		lock_time_begin(d->p, d->lock_time);
		next = lfts_note(d->p, d->lfts, next);
		lock_time_end(d->p, d->lock_time);
	} while (next);
	return rc ? rc : rc2;
}

int deliver_check(const struct delivery *d, struct sm_reply_head *h)
{
	int rc = lfts_check(d->lfts, h);

	cl_plock_acquire(&d->p->osm->lock);
	for (unsigned i = 0; !rc && i < d->count; i++) {
		const struct place *pl = &d->place[i];

		if (pl->before.lid != pl->want.lid && d->port_infos &&
		    pl->physp->port_info.m_key_violations == cl_hton16(PLUGIN_UNANSWERED))
			rc = plugin_refuse(h, -EIO, "%s did not take LID %u", pl->node->print_desc,
					   pl->want.lid);
	}
	cl_plock_release(&d->p->osm->lock);
	return rc;
}
