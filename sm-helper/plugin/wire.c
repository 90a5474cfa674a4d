/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/wire.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include <opensm/osm_log.h>
#include <opensm/osm_msgdef.h>
#include <opensm/osm_node.h>
#include <opensm/osm_port.h>
#include <opensm/osm_switch.h>

#define POLL_MS 5 /* how late an SMP is noticed that OpenSM has given up: nobody tells us */

/* OpenSM's handler of LFT answers: exported by the program, declared in no header. */
extern void osm_lft_rcv_process(void *context, void *data);

/* True: whoever waits for answers has been woken. */
static bool take(struct plugin *p, boolean_t mark, ib_smp_t *smp)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&p->wire.lock);
	const struct wire_batch *b = p->wire.batch;
	unsigned i = wire_smp(p, mark);

	if (b && i < b->count && cl_ntoh32(smp->attr_mod) == b->smp[i].block && !b->taken[i] &&
	    !ib_smp_get_status(smp) &&
	    !memcmp(ib_smp_get_payload_ptr(smp), b->smp[i].after, IB_LFT_BLOCK)) {
		b->taken[i] = true;
		p->wire.taken++;
	}
	if (b && p->wire.taken < b->count &&
	    p->osm->stats.qp0_mads_outstanding_on_wire > p->wire.wake)
		return false;
	pthread_cond_signal(&p->wire.answered);
	return true;
}

static void handle_lft(void *context, void *data)
{
	struct plugin *p = context;
	osm_madw_t *madw = data;
	boolean_t mark = osm_madw_get_lft_context_ptr(madw)->set_method;

	if (mark < 0)
		take(p, mark, osm_madw_get_smp_ptr(madw));
	else
		osm_lft_rcv_process(&p->osm->sm, data);
}

/* ---- answers past OpenSM's dispatcher ---- */

/* The part that is needed of what osm_vendor_bind() gives out. The struct is libosmvendor's own, so
 * nothing of it is believed before what must be in it has been found there. */
struct bind_info {
	osm_vendor_t *vendor;
	void *context;
	osm_mad_pool_t *pool;
	osm_vend_mad_recv_callback_t receive;
	osm_vend_mad_send_err_callback_t send_error;
	ib_net64_t port_guid;
};

/* OpenSM's, and whose it is: the callback's context is OpenSM's too. */
static osm_vend_mad_recv_callback_t receive_other;
static struct plugin *receiver;

/* True if the request is an SMP of ours; gives its mark. */
static bool own_smp(osm_madw_t *request, boolean_t *ret_mark)
{
	ib_smp_t *smp = request ? osm_madw_get_smp_ptr(request) : NULL;

	if (!smp || smp->attr_id != IB_MAD_ATTR_LIN_FWD_TBL || smp->method != IB_MAD_METHOD_SET ||
	    osm_madw_get_lft_context_ptr(request)->set_method >= 0)
		return false;
	*ret_mark = osm_madw_get_lft_context_ptr(request)->set_method;
	return true;
}

/* Runs in the thread that reads the port. For each answer OpenSM wakes its sender, which has
 * nothing to send, and a thread of its dispatcher: more work than the SMP itself. Ours wake the
 * sender only when there is room for many. */
static void receive(osm_madw_t *madw, void *context, osm_madw_t *request)
{
	struct plugin *p = receiver;
	ib_smp_t *smp = osm_madw_get_smp_ptr(madw);
	boolean_t mark;

	if (!own_smp(request, &mark) || ib_smp_get_status(smp)) { /* a refusal is logged there */
		receive_other(madw, context, request);
		return;
	}
	cl_atomic_inc(&p->osm->stats.qp0_mads_rcvd);
	cl_atomic_dec(&p->osm->stats.qp0_mads_outstanding_on_wire);
	if (take(p, mark, smp))
		osm_vl15_poll(&p->osm->vl15);
	osm_mad_pool_put(&p->osm->mad_pool, request);
	osm_mad_pool_put(&p->osm->mad_pool, madw);
	osm_stats_dec_qp0_outstanding(&p->osm->stats);
}

/* Hooks in once OpenSM has opened its port. OpenSM unbinds before plugins end. */
static void hook_receive(struct plugin *p)
{
	osm_opensm_t *osm = p->osm;
	struct bind_info *b = (struct bind_info *)osm->sm.mad_ctrl.h_bind;
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&osm->p_vendor->cb_mutex);

	receiver = p;
	if (b->vendor != osm->p_vendor || b->context != &osm->sm.mad_ctrl ||
	    b->pool != &osm->mad_pool || b->port_guid != osm->subn.sm_port_guid) {
		osm_log(&osm->log, OSM_LOG_SYS,
			"ibvmig: libosmvendor is not the one that is known: answers to LFT blocks "
			"take OpenSM's way, which is slower\n");
		return;
	}
	receive_other = b->receive;
	b->receive = receive;
}

/* ---- sending ---- */

int wire_hook(struct plugin *p)
{
	osm_sm_t *sm = &p->osm->sm;

	pthread_mutex_init(&p->wire.lock, NULL);
	pthread_cond_init(&p->wire.answered, NULL);
	cl_disp_unregister(sm->lft_disp_h);
	sm->lft_disp_h = cl_disp_register(&p->osm->disp, OSM_MSG_MAD_LFT, handle_lft, p);
	if (sm->lft_disp_h != CL_DISP_INVALID_HANDLE)
		return 0;
	sm->lft_disp_h = cl_disp_register(&p->osm->disp, OSM_MSG_MAD_LFT, osm_lft_rcv_process, sm);
	return -EIO;
}

/* Does what OpenSM's sender thread does, counters included: they are its window. */
static int post(struct plugin *p, const struct wire_batch *b, unsigned i)
{
	const struct moves_smp *s = &b->smp[i];
	osm_switch_t *sw = b->sw[s->sw];
	osm_physp_t *port0 = osm_node_get_physp_ptr(sw->p_node, 0);
	osm_stats_t *stats = &p->osm->stats;
	osm_madw_context_t c;
	osm_madw_t *madw;

	memset(&c, 0, sizeof c);
	c.lft_context.node_guid = osm_node_get_node_guid(sw->p_node);
	c.lft_context.set_method = wire_mark(p, i);
	madw = osm_prepare_req_set(&p->osm->sm, osm_physp_get_dr_path_ptr(port0), s->after,
				   IB_LFT_BLOCK, IB_MAD_ATTR_LIN_FWD_TBL, cl_hton32(s->block),
				   FALSE, ib_port_info_get_m_key(&port0->port_info), 0,
				   CL_DISP_MSGID_NONE, &c);
	if (!madw)
		return -EIO;
	osm_stats_inc_qp0_outstanding(stats);
	cl_atomic_inc(&stats->qp0_mads_outstanding_on_wire);
	cl_atomic_inc(&stats->qp0_mads_sent);
	atomic_fetch_add(&p->count.lft_smps, 1);
	/* an error's callback has taken the request out of the first two */
	return osm_vendor_send(osm_madw_get_bind_handle(madw), madw, TRUE) == IB_SUCCESS ? 0 : -EIO;
}

/* Wire lock held; let go while waiting. */
static void wait_a_little(struct plugin *p)
{
	uint64_t at = now_us() + POLL_MS * 1000;
	struct timespec until = {(time_t)(at / 1000000), (long)(at % 1000000) * 1000};

	pthread_cond_clockwait(&p->wire.answered, &p->wire.lock, CLOCK_MONOTONIC, &until);
}

/* Waits until at most `busy` SMPs are on the wire. A full window is emptied by half before more is
 * sent: waking for each answer would cost as much as the answer. */
static int await_room(struct plugin *p, int32_t busy, uint64_t deadline_us)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&p->wire.lock);

	while (p->osm->stats.qp0_mads_outstanding_on_wire > busy) {
		if (osm_exit_flag || now_us() >= deadline_us)
			return -ETIMEDOUT;
		wait_a_little(p);
	}
	return 0;
}

/* Waits until all are taken, or OpenSM waits for nothing any more. */
static int await_all(struct plugin *p, const struct wire_batch *b, uint64_t deadline_us)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&p->wire.lock);

	while (p->wire.taken < b->count && p->osm->stats.qp0_mads_outstanding) {
		if (osm_exit_flag || now_us() >= deadline_us)
			return -ETIMEDOUT;
		wait_a_little(p);
	}
	return 0;
}

static void set_batch(struct plugin *p, const struct wire_batch *b, int32_t wake)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&p->wire.lock);

	p->wire.batch = b;
	p->wire.round++;
	p->wire.taken = 0;
	p->wire.wake = wake;
}

int wire_send(struct plugin *p, const struct wire_batch *b, uint64_t deadline_us)
{
	int32_t window = (int32_t)p->osm->vl15.max_wire_smps;
	int rc = 0;

	if (b->count > WIRE_SMPS_MAX)
		return -EIO;
	if (!receiver)
		hook_receive(p);
	memset(b->taken, 0, b->count * sizeof *b->taken);
	set_batch(p, b, window / 2);
	for (unsigned i = 0; !rc && i < b->count; i++) {
		if (p->osm->stats.qp0_mads_outstanding_on_wire >= window)
			rc = await_room(p, window / 2, deadline_us);
		if (!rc)
			rc = post(p, b, i);
	}
	if (!rc)
		rc = await_all(p, b, deadline_us);
	set_batch(p, NULL, 0);
	return rc;
}
