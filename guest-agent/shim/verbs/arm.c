/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Events of a CQ: which of them the program gets. A program that arms, finds the CQ empty and
 * sleeps must be woken by a completion that has come since, wherever the helper has put it. A
 * program that has seen its descriptor readable must get an event. As far as this can be known, no
 * event is given for completions that were there before the arming: perftest takes one for an
 * error.
 *
 * The hardware makes one event for each arming. It does not make them for the program only:
 * the helper arms, too, and its markers complete. */
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/cq.h"

static int notify(struct shim_cq *cq, int solicited_only)
{
	cq->asked = true;
	return cq->real->context->ops.req_notify_cq(cq->real, solicited_only);
}

/* Under the lock: whether the program waits and has something to find. */
static enum cq_due take_arming(struct shim_cq *cq)
{
	if (!cq->armed || !cq->channel || cq->soft_tail == cq->soft_head)
		return CQ_NO;
	if (cq->unsolicited && cq->soft_head == cq->unsolicited_end)
		return CQ_NO;
	cq->armed = false;
	cq->stray |= cq->asked; /* the hardware's own event comes as well */
	return (int32_t)(cq->soft_head - cq->mark) > 0 ? CQ_YES : CQ_PERHAPS;
}

void cq_announce(struct shim_cq *cq)
{
	enum cq_due due;

	lock_take(&cq->lock);
	cq_harvest_locked(cq);
	due = take_arming(cq);
	lock_give(&cq->lock);
	if (due)
		channel_push(cq->channel, cq, due);
}

void cq_harvest_old(struct shim_cq *cq)
{
	lock_take(&cq->lock);
	cq_harvest_locked(cq);
	cq->mark = cq->soft_head;
	/* A completion does not tell whether it was solicited. The hardware knows, until it is
	 * armed for the helper: its event comes, if there was one. */
	cq->unsolicited = cq->armed && cq->armed_solicited && !cq->stray;
	cq->unsolicited_end = cq->soft_head;
	lock_give(&cq->lock);
}

/* Under the lock: the program waits on, on the hardware as well. */
static enum cq_due wait_on(struct shim_cq *cq)
{
	if (!cq->armed || !cq->real)
		return CQ_NO;
	notify(cq, cq->armed_solicited);
	cq_harvest_locked(cq); /* completions from before the arming */
	return take_arming(cq);
}

enum cq_due cq_event(struct shim_cq *cq, bool seen)
{
	enum cq_due due = CQ_YES;

	lock_take(&cq->lock);
	cq->asked = false;
	if (!cq->stray) /* it is for the program */
		cq->unsolicited = false;
	if (seen) {
		if (cq->stray && !cq->armed)
			due = CQ_EXTRA;
		cq->armed = false;
	} else {
		cq_harvest_locked(cq);
		due = take_arming(cq);
		if (!due)
			due = wait_on(cq);
	}
	lock_give(&cq->lock);
	return due;
}

void cq_push(struct shim_cq *cq, const struct ibv_wc *wc)
{
	enum cq_due due;

	lock_take(&cq->lock);
	cq_add(cq, wc);
	due = take_arming(cq);
	lock_give(&cq->lock);
	if (due)
		channel_push(cq->channel, cq, due);
}

void cq_watch(struct shim_cq *cq)
{
	atomic_store(&cq->awaited, true);
	lock_take(&cq->lock);
	if (cq->real && !(cq->armed && cq->asked && !cq->armed_solicited)) {
		cq->stray = true;
		cq->real->context->ops.req_notify_cq(cq->real, 0);
	}
	lock_give(&cq->lock);
}

enum cq_due cq_go_on(struct shim_cq *cq, bool *ret_clean)
{
	enum cq_due due = CQ_NO;

	lock_take(&cq->lock);
	cq->direct = NULL; /* poll_any() sees what the program leaves behind */
	if (!cq->asked)
		due = wait_on(cq);
	*ret_clean = cq->armed || !cq->stray;
	lock_give(&cq->lock);
	return due;
}

enum cq_due cq_wait_on(struct shim_cq *cq)
{
	enum cq_due due = CQ_PERHAPS;

	lock_take(&cq->lock);
	if (cq->soft_tail == cq->soft_head) {
		cq->armed = true;
		cq->mark = cq->soft_head;
		due = wait_on(cq);
	}
	lock_give(&cq->lock);
	return due;
}

enum cq_due cq_left(struct shim_cq *cq)
{
	enum cq_due due;

	lock_take(&cq->lock);
	due = take_arming(cq) ? CQ_PERHAPS : CQ_NO;
	lock_give(&cq->lock);
	return due;
}

/* Under the lock. */
static int arm(struct shim_cq *cq, int solicited_only)
{
	cq->armed = cq->channel != NULL;
	cq->armed_solicited = solicited_only;
	cq->unsolicited = false;
	cq->mark = cq->soft_head;
	return cq->real ? notify(cq, solicited_only) : 0;
}

int cq_arm_anew(struct shim_cq *cq, int solicited_only)
{
	int rc;

	lock_take(&cq->lock);
	cq_harvest_locked(cq);
	cq->stray = false;
	rc = arm(cq, solicited_only);
	lock_give(&cq->lock);
	return rc;
}

int shim_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct shim_cq *cq = to_cq(ibcq);
	bool plain;
	int rc = 0;

	lock_take(&cq->lock);
	plain = !cq->channel || (!cq->stray && atomic_load(&cq->channel->attached));
	if (plain)
		rc = arm(cq, solicited_only);
	lock_give(&cq->lock);
	return plain ? rc : channel_arm(cq->channel, cq, solicited_only);
}
