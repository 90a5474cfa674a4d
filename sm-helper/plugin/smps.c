/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/smps.h"
#include "sm-helper/plugin/wire.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include <opensm/osm_msgdef.h>
#include <opensm/osm_node.h>

#define POLL_MS 5 /* how late an SMP is noticed that OpenSM has given up: nobody tells us */

/* OpenSM's handlers of the answers: exported by the program, declared in no header. */
extern void osm_gi_rcv_process(void *context, void *data);
extern void osm_pkey_rcv_process(void *context, void *data);

/* The port, where a switch has a table for each of its ports, and the block. */
static uint32_t modifier(const struct smp *s)
{
	uint32_t port = osm_physp_get_port_num(s->physp);

	return s->physp->p_node->sw && s->attr == IB_MAD_ATTR_P_KEY_TABLE ? port << 16 | s->block
									  : s->block;
}

static void take(struct plugin *p, boolean_t mark, ib_smp_t *answer)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&p->wire.lock);
	const void *payload = ib_smp_get_payload_ptr(answer);
	struct smp *s = p->wire.smp;
	unsigned i = wire_smp(p, mark);

	if (i >= p->wire.smps || ib_smp_get_status(answer) || answer->attr_id != s[i].attr ||
	    cl_ntoh32(answer->attr_mod) != modifier(&s[i]))
		return;
	if (!s[i].set)
		memcpy(s[i].data.bytes, payload, sizeof s[i].data.bytes);
	else if (memcmp(payload, s[i].data.bytes, sizeof s[i].data.bytes) != 0)
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
		take(p, mark, osm_madw_get_smp_ptr(madw));
	else
		osm_gi_rcv_process(&p->osm->sm, data);
}

static void handle_pkeys(void *context, void *data)
{
	struct plugin *p = context;
	osm_madw_t *madw = data;
	boolean_t mark = osm_madw_get_pkey_context_ptr(madw)->set_method;

	if (mark < 0) {
		take(p, mark, osm_madw_get_smp_ptr(madw));
		return;
	}
	if (mark)
		atomic_fetch_add(&p->count.pkey_changes, 1);
	osm_pkey_rcv_process(&p->osm->sm, data);
}

static int hook(struct plugin *p, cl_disp_reg_handle_t *handle, cl_disp_msgid_t msgid,
		cl_pfn_msgrcv_cb_t ours, cl_pfn_msgrcv_cb_t theirs)
{
	cl_disp_unregister(*handle);
	*handle = cl_disp_register(&p->osm->disp, msgid, ours, p);
	if (*handle != CL_DISP_INVALID_HANDLE)
		return 0;
	*handle = cl_disp_register(&p->osm->disp, msgid, theirs, &p->osm->sm);
	return -EIO;
}

int smps_hook(struct plugin *p)
{
	osm_sm_t *sm = &p->osm->sm;
	int rc = hook(p, &sm->gi_disp_h, OSM_MSG_MAD_GUID_INFO, handle_guid_info,
		      osm_gi_rcv_process);

	return rc ? rc
		  : hook(p, &sm->pkey_disp_h, OSM_MSG_MAD_PKEY, handle_pkeys, osm_pkey_rcv_process);
}

static void fill_context(const struct plugin *p, const struct smp *s, unsigned i,
			 osm_madw_context_t *c)
{
	ib_net64_t node_guid = osm_node_get_node_guid(s->physp->p_node);

	memset(c, 0, sizeof *c);
	if (s->attr == IB_MAD_ATTR_GUID_INFO)
		c->gi_context = (osm_gi_context_t){node_guid, s->physp->port_guid, wire_mark(p, i),
						   osm_physp_get_port_num(s->physp)};
	else
		c->pkey_context = (osm_pkey_context_t){node_guid, s->physp->port_guid,
						       wire_mark(p, i)};
}

/* The M_Key of a switch is in its port 0. */
static ib_net64_t m_key_of(const osm_physp_t *physp)
{
	const osm_physp_t *keeper = physp->p_node->sw ? osm_node_get_physp_ptr(physp->p_node, 0)
						      : physp;

	return ib_port_info_get_m_key(&keeper->port_info);
}

static int post(struct plugin *p, struct smp *s, unsigned i)
{
	osm_sm_t *sm = &p->osm->sm;
	const osm_dr_path_t *path = osm_physp_get_dr_path_ptr(s->physp);
	ib_net32_t mod = cl_hton32(modifier(s));
	osm_madw_context_t c;
	ib_api_status_t status;

	fill_context(p, s, i, &c);
	if (s->set) {
		atomic_fetch_add(s->attr == IB_MAD_ATTR_GUID_INFO ? &p->count.guid_smps
								  : &p->count.pkey_smps,
				 1);
		status = osm_req_set(sm, path, s->data.bytes, sizeof s->data.bytes, s->attr, mod,
				     FALSE, m_key_of(s->physp), 0, CL_DISP_MSGID_NONE, &c);
	} else {
		status = osm_req_get(sm, path, s->attr, mod, FALSE, m_key_of(s->physp), 0,
				     CL_DISP_MSGID_NONE, &c);
	}
	return status == IB_SUCCESS ? 0 : -EIO;
}

static bool all_taken(const struct smp *smp, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (!smp[i].taken)
			return false;
	return true;
}

static void set_awaited(struct plugin *p, struct smp *smp, unsigned count)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&p->wire.lock);

	p->wire.smp = smp;
	p->wire.smps = count;
	p->wire.round++;
}

static int await_all(struct plugin *p, const struct smp *smp, unsigned count, uint64_t deadline_us)
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

int smps_send(struct plugin *p, struct smp *smp, unsigned count, uint64_t deadline_us)
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
