/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The gate between batches and heavy sweeps, OpenSM's lock with its time, and refusals. */
#include "sm-helper/plugin/main.h"
#include "common/util.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include <opensm/osm_log.h>

#define END_LOOK_MS 20 /* while a batch waits for the end of a sweep */

int plugin_refuse(struct sm_reply_head *h, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(h->reason, sizeof h->reason, fmt, ap);
	va_end(ap);
	return error;
}

/* The first sweep of a mastership is not over. One that was handed over begins before its sweep
 * does: OpenSM is master by then, with the tables of its last time. */
static bool is_new_master(const osm_subn_t *subn)
{
	return subn->force_first_time_master_sweep || subn->coming_out_of_standby;
}

int plugin_refuse_state(struct plugin *p, struct sm_reply_head *h)
{
	if (p->osm->subn.sm_state != IB_SMINFO_STATE_MASTER)
		return plugin_refuse(h, -EHOSTDOWN, "this OpenSM is not the master");
	if (!p->ready || is_new_master(&p->osm->subn))
		return plugin_refuse(h, -EAGAIN, "OpenSM has not finished its first sweep");
	return 0;
}

void plugin_want_sweep(struct plugin *p)
{
	p->sweep_asked = true;
	p->osm->subn.force_heavy_sweep = TRUE;
	osm_sm_signal(&p->osm->sm, OSM_SIGNAL_SWEEP);
}

void plugin_end_sweep(struct plugin *p, bool asked_anew)
{
	p->sweeping = p->end_asked = false;
	p->sweep_asked = p->sweep_asked && asked_anew;
	plugin_changed(p);
	pthread_cond_broadcast(&p->sweep_ended);
}

/* OpenSM (3.3.23, do_sweep()) reports SUBNET_UP where a sweep has gone through, and STATE_CHANGE
 * where it finds its port down or another master. It says nothing where it hands over or waits for
 * another master. Nor does it where it leaves the sweep because it could not ask the first switch
 * or no engine could route. Light sweeps only may follow, or nothing. But the sweeper takes signals
 * between sweeps alone: what is signalled in one is taken when it is over. This signal has it look
 * at a queue of ports with new GUIDs, which is empty where nobody has filled it. */
void plugin_look_for_end(struct plugin *p)
{
	osm_sm_t *sm = &p->osm->sm;
	bool taken;

	if (!p->sweeping)
		return;
	if (!p->end_asked) {
		osm_sm_signal(sm, OSM_SIGNAL_GUID_PROCESS_REQUEST);
		p->end_asked = true;
		return;
	}
	cl_spinlock_acquire(&sm->signal_lock);
	taken = !(sm->signal_mask & 1u << OSM_SIGNAL_GUID_PROCESS_REQUEST);
	cl_spinlock_release(&sm->signal_lock);
	if (!taken)
		return;
	osm_log(&p->osm->log, OSM_LOG_INFO, "ibvmig: a heavy sweep has ended early\n");
	plugin_end_sweep(p, p->osm->subn.sm_state == IB_SMINFO_STATE_MASTER &&
				    p->osm->subn.force_heavy_sweep);
}

static struct timespec timespec_of(uint64_t us)
{
	return (struct timespec){.tv_sec = (time_t)(us / 1000000),
				 .tv_nsec = (long)(us % 1000000) * 1000};
}

int plugin_gate_enter(struct plugin *p, uint64_t deadline_us)
{
	pthread_mutex_lock(&p->gate);
	p->batch_waits = true;
	while (p->sweeping && now_us() < deadline_us) {
		uint64_t look_us = now_us() + END_LOOK_MS * 1000ull;
		struct timespec until = timespec_of(look_us < deadline_us ? look_us : deadline_us);

		plugin_look_for_end(p);
		if (p->sweeping)
			pthread_cond_clockwait(&p->sweep_ended, &p->gate, CLOCK_MONOTONIC, &until);
	}
	p->batch_waits = false;
	if (!p->sweeping)
		return 0;
	plugin_gate_leave(p);
	return -EBUSY;
}

void plugin_gate_leave(struct plugin *p)
{
	pthread_cond_signal(&p->batch_ended);
	pthread_mutex_unlock(&p->gate);
}

void lock_time_begin(struct plugin *p, struct lock_time *t)
{
	cl_plock_excl_acquire(&p->osm->lock);
	t->since_us = now_us();
}

void lock_time_end(struct plugin *p, struct lock_time *t)
{
	uint64_t held = now_us() - t->since_us;

	cl_plock_release(&p->osm->lock);
	if (held > t->longest_us)
		t->longest_us = held;
}

void plugin_changed(struct plugin *p)
{
	atomic_fetch_add(&p->count.generation, 1);
	eventfd_write(p->changed_fd, 1);
}
