/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/guid_smps.h"
#include "sm-helper/plugin/wire.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include <opensm/osm_msgdef.h>
#include <opensm/osm_node.h>

#define POLL_MS 5 /* how late an SMP is noticed that OpenSM has given up: nobody tells us */

/* OpenSM's handler of GUIDInfo answers: exported by the program, declared in no header. */
extern void osm_gi_rcv_process(void *context, void *data);

static void take(struct plugin *p, unsigned i, ib_smp_t *smp)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&p->wire.lock);
	struct guid_smp *s = p->wire.guid_smp;

	/* late answers are of a batch before, or say something else */
	if (i >= p->wire.guid_smps || ib_smp_get_status(smp) ||
	    cl_ntoh32(smp->attr_mod) != s[i].block)
		return;
	if (!s[i].set)
		memcpy(&s[i].info, ib_smp_get_payload_ptr(smp), sizeof s[i].info);
	else if (memcmp(ib_smp_get_payload_ptr(smp), &s[i].info, sizeof s[i].info) != 0)
		return;
	s[i].taken = true;
	pthread_cond_signal(&p->wire.answered);
}

static void handle_guid_info(void *context, void *data)
{
	struct plugin *p = context;
	osm_madw_t *madw = data;
	boolean_t mark = osm_madw_get_gi_context_ptr(madw)->set_method;

	if (mark < 0)
		take(p, (unsigned)~mark, osm_madw_get_smp_ptr(madw));
	else
		osm_gi_rcv_process(&p->osm->sm, data);
}

int guid_smps_hook(struct plugin *p)
{
	osm_sm_t *sm = &p->osm->sm;

	cl_disp_unregister(sm->gi_disp_h);
	sm->gi_disp_h = cl_disp_register(&p->osm->disp, OSM_MSG_MAD_GUID_INFO, handle_guid_info, p);
	if (sm->gi_disp_h != CL_DISP_INVALID_HANDLE)
		return 0;
	sm->gi_disp_h = cl_disp_register(&p->osm->disp, OSM_MSG_MAD_GUID_INFO, osm_gi_rcv_process,
					 sm);
	return -EIO;
}

static int post(struct plugin *p, struct guid_smp *s, unsigned i)
{
	osm_sm_t *sm = &p->osm->sm;
	const osm_dr_path_t *path = osm_physp_get_dr_path_ptr(s->physp);
	ib_net64_t m_key = ib_port_info_get_m_key(&s->physp->port_info);
	osm_madw_context_t c;
	uint8_t payload[IB_SMP_DATA_SIZE] = {0};
	ib_api_status_t status;

	memset(&c, 0, sizeof c);
	c.gi_context.node_guid = osm_node_get_node_guid(s->physp->p_node);
	c.gi_context.port_guid = s->physp->port_guid;
	c.gi_context.port_num = osm_physp_get_port_num(s->physp);
	c.gi_context.set_method = wire_mark(i);
	if (s->set) {
		memcpy(payload, &s->info, sizeof s->info);
		atomic_fetch_add(&p->count.guid_smps, 1);
		status = osm_req_set(sm, path, payload, sizeof payload, IB_MAD_ATTR_GUID_INFO,
				     cl_hton32(s->block), FALSE, m_key, 0, CL_DISP_MSGID_NONE, &c);
	} else {
		status = osm_req_get(sm, path, IB_MAD_ATTR_GUID_INFO, cl_hton32(s->block), FALSE,
				     m_key, 0, CL_DISP_MSGID_NONE, &c);
	}
	return status == IB_SUCCESS ? 0 : -EIO;
}

static bool all_taken(const struct guid_smp *smp, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (!smp[i].taken)
			return false;
	return true;
}

static void set_awaited(struct plugin *p, struct guid_smp *smp, unsigned count)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&p->wire.lock);

	p->wire.guid_smp = smp;
	p->wire.guid_smps = count;
}

static int await_all(struct plugin *p, const struct guid_smp *smp, unsigned count,
		     uint64_t deadline_us)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&p->wire.lock);

	while (!all_taken(smp, count)) {
		uint64_t at = now_us() + POLL_MS * 1000;
		struct timespec until = {(time_t)(at / 1000000), (long)(at % 1000000) * 1000};

		if (osm_exit_flag || now_us() >= deadline_us || !p->osm->stats.qp0_mads_outstanding)
			return -EIO;
		pthread_cond_clockwait(&p->wire.answered, &p->wire.lock, CLOCK_MONOTONIC, &until);
	}
	return 0;
}

int guid_smps_send(struct plugin *p, struct guid_smp *smp, unsigned count, uint64_t deadline_us)
{
	int rc = 0, rc2;

	for (unsigned i = 0; i < count; i++)
		smp[i].taken = false;
	set_awaited(p, smp, count);
	for (unsigned i = 0; !rc && i < count; i++)
		rc = post(p, &smp[i], i);
	rc2 = await_all(p, smp, count, deadline_us);
	set_awaited(p, NULL, 0);
	return rc ? rc : rc2;
}
