/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A connection takes another path, in the same QPs. Both ends hold their sends, wait until the
 * hardware has done what it was given, and tell each other (PEER_PATH_DRAINED). Then nothing is
 * under way that a packet on the new lane could overtake. Each goes through RESET to where it was,
 * with the address vector of now and PSNs that begin anew, and sends again when the other end takes
 * its packets (PEER_PATH_READY).
 *
 * Before an end has told that it has drained it may give up at any time. It does so when sends do
 * not end: on a dead path, or where the program waits for what is held. Then it tries again. After
 * that word it is bound by what the other end says. An attempt has a number, so words of one that
 * was given up count for nothing. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/repath/repath.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"

#include <errno.h>
#include <string.h>

#define TICK_MS     1 /* while completions are waited for */
#define SLOW_MS     100
#define PASS_US     10000   /* control verbs of the program wait for a pass */
#define REMIND_US   1000000 /* an end that does not answer */
#define ASKS_QUICK  5       /* then its build may not know these words */
#define ASK_RARE_US 30000000
#define STILL_US    500000   /* without progress a drain is given up */
#define AGAIN_US    500000   /* and tried again */
#define ARRIVE_US   100000   /* without progress nothing more comes */
#define SETTLE_US   20000    /* UC: the last packets are on their way */
#define CONNECT_US  10000000 /* a QP that cannot be connected again has failed */
#define LOST_US     15000000 /* nobody knows a way to the other end */

static struct list changes = LIST_INIT(changes);
static bool cut; /* the last pass has not come to all of them */
static struct {
	unsigned taken, silent; /* since the last line in the log */
} count;

static bool differs(const struct shim_qp *q)
{
	const struct shim_way a = q->way, b = qp_way(q);

	return a.dlid != b.dlid || a.sl != b.sl || a.static_rate != b.static_rate || a.mtu != b.mtu;
}

/* A window of type 2 is bound on the QP, and would have to be bound again. */
static bool covered(const struct shim_qp *q)
{
	return q->real && q->peer && q->connected && q->resolved && !q->uncovered &&
	       !q->change.ended && (q->v.qp_type == IBV_QPT_RC || q->v.qp_type == IBV_QPT_UC) &&
	       (q->v.state == IBV_QPS_RTR || q->v.state == IBV_QPS_RTS);
}

/* Nothing is left that could be connected anew. */
static bool is_over(const struct shim_qp *q)
{
	return !q->real || !q->peer || !q->connected || q->v.state < IBV_QPS_RTR ||
	       q->v.state == IBV_QPS_ERR;
}

static bool in_order(const struct shim_qp *q)
{
	return job.role == SHIM_ROLE_MOVER ? context_has_guid(q->ctx, &job.order, NULL)
					   : gid_in_order(q->dgid, &job.order);
}

/* False while a migration concerns it: that takes the path, too. */
static bool may_begin(const struct shim_qp *q)
{
	return covered(q) && q->phase == QP_LIVE && !q->in_job && !mw_on(q) &&
	       (job.state == JOB_IDLE || !in_order(q));
}

static void say(struct shim_qp *q, uint16_t type)
{
	q->change.told_us = now_us();
	peer_queue_qp(q, type, q->change.round);
}

static void enlist(struct shim_qp *q)
{
	list_del(&q->change.link);
	list_add(&changes, &q->change.link);
}

void change_want(struct shim_qp *q)
{
	struct shim_change *c = &q->change;

	if (!covered(q) || (c->state == CHANGE_NONE && !differs(q)))
		return;
	c->wanted = true;
	c->asks = 0;
	c->next_us = 0;
	enlist(q);
}

/* The QP goes on, as it is or as it has become. */
static void go_on(struct shim_qp *q, bool wanted)
{
	struct shim_change *c = &q->change;
	bool held = c->state >= CHANGE_HELD;

	c->state = CHANGE_NONE;
	c->mtu = 0;
	c->wanted = wanted;
	c->next_us = now_us() + AGAIN_US;
	if (held)
		qp_flush(q);
	if (!wanted)
		list_del(&c->link);
}

static void give_up(struct shim_qp *q)
{
	if (q->peer)
		say(q, PEER_PATH_ABORT);
	go_on(q, q->change.wanted && covered(q));
}

static void begin(struct shim_qp *q, enum change_state state)
{
	struct shim_change *c = &q->change;

	c->round++;
	c->state = state;
	memset(&c->said, 0, sizeof(c->said));
	q->said.gone = q->said.unreachable = false;
	q->unreachable_us = 0;
	enlist(q);
}

static void hold(struct shim_qp *q)
{
	struct shim_change *c = &q->change;

	send_hold(q);
	c->state = CHANGE_HELD;
	c->asks = 0;
	c->progress_us = now_us();
	c->progress_tail = atomic_load(&q->send.tail);
}

static void note_progress(struct shim_change *c, uint64_t tail, uint64_t now)
{
	if (tail == c->progress_tail)
		return;
	c->progress_tail = tail;
	c->progress_us = now;
}

static bool drained(struct shim_qp *q, uint64_t now)
{
	uint64_t tail;

	cq_harvest(q->send_cq);
	tail = atomic_load(&q->send.tail);
	note_progress(&q->change, tail, now);
	if (!q->marker && q->v.state == IBV_QPS_RTS && send_ends_silent(q))
		send_post_marker(q);
	return tail == q->send.posted && !q->marker;
}

/* A QP that has failed must not come back to life before its program knows. */
static bool runs(const struct shim_qp *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	return !real_verbs.query_qp(q->real, &a, IBV_QP_STATE, &init) && a.qp_state == q->v.state;
}

static void step_held(struct shim_qp *q, uint64_t now)
{
	struct shim_change *c = &q->change;

	if (!drained(q, now)) {
		if (now - c->progress_us > STILL_US || q->said.unreachable)
			give_up(q);
		return;
	}
	if (!runs(q)) {
		c->wanted = false;
		give_up(q);
		return;
	}
	if (mw_on(q)) { /* bound since the attempt began */
		give_up(q);
		return;
	}
	c->psn = qp_random_psn();
	c->mtu = qp_way(q).mtu;
	q->sent = q->sent_all;
	c->state = CHANGE_DRAINED;
	c->progress_us = now;
	c->progress_tail = atomic_load(&q->recv.tail);
	say(q, PEER_PATH_DRAINED);
}

/* True if everything is here that the other end has sent. RC: it knows that all was taken, so there
 * is nothing to wait for but the completions of our own hardware. */
static bool arrived(struct shim_qp *q, uint64_t now)
{
	struct shim_change *c = &q->change;
	uint64_t tail, still;

	cq_harvest(q->recv_cq);
	tail = atomic_load(&q->recv.tail);
	note_progress(c, tail, now);
	still = now - c->progress_us;
	if (tail + q->recv_lost >= c->said.sent)
		return q->v.qp_type == IBV_QPT_RC || still > SETTLE_US;
	return still > ARRIVE_US;
}

static int turn_over(struct shim_qp *q)
{
	struct ibv_qp_attr stop = {.qp_state = IBV_QPS_SQD};
	int rc;

	lock_take(&q->recv.lock); /* posts to a QP in RESET would fail */
	queue_hold(&q->recv, true);
	lock_give(&q->recv.lock);
	q->psn = q->change.psn;
	q->said.qpn = q->dqpn;
	q->said.psn = q->change.said.psn;
	rc = qp_start_over(q);
	if (!rc)
		rc = qp_to_connected(q);
	if (!rc && q->v.state == IBV_QPS_SQD)
		rc = -real_verbs.modify_qp(q->real, &stop, IBV_QP_STATE);
	return rc;
}

/* Nobody is inside a control verb, and as long as ctl is held nobody comes. */
static void turn(struct shim_qp *q, uint64_t now)
{
	struct shim_change *c = &q->change;
	const enum ibv_mtu ours = c->mtu;
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	int rc;

	/* Both ends need the same, and one may not have heard yet. */
	if (c->said.mtu < c->mtu)
		c->mtu = c->said.mtu;
	rc = turn_over(q);
	if (rc && now - c->progress_us > CONNECT_US) {
		shim_log("QP 0x%x cannot be connected on another path: %s", q->v.qp_num,
			 strerror(-rc));
		real_verbs.modify_qp(q->real, &error, IBV_QP_STATE);
		q->v.state = IBV_QPS_ERR;
		give_up(q);
		return;
	}
	if (rc) {
		c->mtu = ours;
		return;
	}
	q->way.mtu = ours;
	q->psn_override = q->v.state == IBV_QPS_RTR;
	c->state = CHANGE_TURNED;
	lock_take(&q->recv.lock);
	queue_hold(&q->recv, false);
	recv_flush(q);
	lock_give(&q->recv.lock);
	say(q, PEER_PATH_READY);
}

/* Until the other end has said all that it has to say. */
static void remind(struct shim_qp *q, uint64_t now)
{
	if (job_lost_peer(q, now, LOST_US)) {
		go_on(q, false);
		return;
	}
	if (now - q->change.told_us < REMIND_US)
		return;
	q->said.unreachable = false;
	say(q, PEER_PATH_DRAINED);
}

static void finish(struct shim_qp *q)
{
	struct shim_change *c = &q->change;

	c->done = c->round;
	count.taken++;
	go_on(q, true);
	c->wanted = differs(q); /* the record may have changed once more */
	c->next_us = 0;
	if (!c->wanted)
		list_del(&c->link);
}

static void step_asked(struct shim_qp *q, uint64_t now)
{
	struct shim_change *c = &q->change;

	if (!may_begin(q)) {
		go_on(q, covered(q));
		return;
	}
	if (now - c->told_us < (c->asks < ASKS_QUICK ? REMIND_US : ASK_RARE_US))
		return;
	count.silent += ++c->asks == ASKS_QUICK;
	q->said.unreachable = false;
	say(q, PEER_PATH_HOLD);
}

static void step_none(struct shim_qp *q, uint64_t now)
{
	struct shim_change *c = &q->change;

	if (!covered(q) || !differs(q)) {
		go_on(q, false);
	} else if (now >= c->next_us && may_begin(q)) {
		begin(q, CHANGE_ASKED);
		c->asks++;
		say(q, PEER_PATH_HOLD);
	}
}

static void step_one(struct shim_qp *q, uint64_t now)
{
	struct shim_change *c = &q->change;

	if (c->state != CHANGE_NONE && q->said.gone) {
		go_on(q, false);
		return;
	}
	/* An end that is bound goes through with it, whatever its program makes of the QP. */
	if (c->state == CHANGE_HELD ? !covered(q) : c->state > CHANGE_HELD && is_over(q)) {
		give_up(q);
		return;
	}
	switch (c->state) {
	case CHANGE_NONE:
		step_none(q, now);
		break;
	case CHANGE_ASKED:
		step_asked(q, now);
		break;
	case CHANGE_HELD:
		step_held(q, now);
		break;
	case CHANGE_DRAINED:
		if (c->said.drained && arrived(q, now) && !shim.users)
			turn(q, now);
		else
			remind(q, now);
		break;
	case CHANGE_TURNED:
		if (c->said.ready)
			finish(q);
		else
			remind(q, now);
	}
}

/* A single line tells of all that a fault has changed. */
static void sum_up(void)
{
	struct shim_qp *any;

	if (!count.taken && !count.silent)
		return;
	list_for_each (any, &changes, change.link)
		if (any->change.state != CHANGE_ASKED || any->change.asks < ASKS_QUICK)
			return;
	if (count.taken)
		shim_log("%u QPs have taken the new record of their path", count.taken);
	if (count.silent)
		shim_log("%u QPs stay on their old path, SL included, until a migration or an "
			 "answer: their other ends do not know of paths that change",
			 count.silent);
	memset(&count, 0, sizeof(count));
}

void change_step(void)
{
	struct list *at = changes.next;
	uint64_t now = now_us();

	cut = false;
	while (at != &changes && !cut) {
		struct shim_qp *q = list_entry(at, struct shim_qp, change.link);

		at = at->next;
		step_one(q, now);
		cut = at != &changes && now_us() - now > PASS_US;
	}
	if (cut) { /* the next pass begins with those */
		list_del(&changes);
		list_add(at, &changes);
	}
	sum_up();
}

static int wait_of(const struct shim_change *c)
{
	return c->state == CHANGE_HELD || (c->state == CHANGE_DRAINED && c->said.drained) ? TICK_MS
											  : SLOW_MS;
}

int change_timeout(void)
{
	struct shim_qp *q;
	int ms = cut ? TICK_MS : -1;

	pthread_mutex_lock(&shim.ctl);
	list_for_each (q, &changes, change.link)
		ms = sooner(ms, wait_of(&q->change));
	pthread_mutex_unlock(&shim.ctl);
	return ms;
}

/* Both ends come to the same number, the larger of what they have said. */
static void take_round(struct shim_change *c, uint64_t round)
{
	if (round > c->round)
		c->round = round;
}

static void asked_to_hold(struct shim_qp *q, uint64_t round)
{
	struct shim_change *c = &q->change;

	if (c->state == CHANGE_NONE && !may_begin(q)) {
		peer_queue_qp(q, PEER_PATH_ABORT, round);
		return;
	}
	if (c->state == CHANGE_NONE) {
		begin(q, CHANGE_ASKED);
		take_round(c, round);
		say(q, PEER_PATH_HOLD);
	}
	if (c->state > CHANGE_HELD)
		return;
	take_round(c, round);
	if (c->state == CHANGE_ASKED)
		hold(q);
}

static void heard_drained(struct shim_qp *q, uint64_t round, const struct peer_qp *e)
{
	struct shim_change *c = &q->change;
	uint32_t mtu = (e->flags & PEER_MTU) >> PEER_MTU_SHIFT;

	if (c->state == CHANGE_ASKED)
		asked_to_hold(q, round);
	if (c->state == CHANGE_TURNED || (c->state == CHANGE_NONE && round == c->done)) {
		peer_queue_qp(q, PEER_PATH_READY, round);
		return;
	}
	if (c->state == CHANGE_NONE || round != c->round || mtu < IBV_MTU_256 ||
	    mtu > IBV_MTU_4096) {
		peer_queue_qp(q, PEER_PATH_ABORT, round);
		return;
	}
	c->said.drained = true;
	c->said.sent = e->sent;
	c->said.psn = e->psn & SHIM_QPN_MAX;
	c->said.mtu = (enum ibv_mtu)mtu;
}

void change_heard(struct shim_qp *q, unsigned type, uint64_t round, const struct peer_qp *e)
{
	struct shim_change *c = &q->change;

	if (q->ud)
		return;
	q->said.unreachable = false;
	q->unreachable_us = 0;
	if (type == PEER_PATH_HOLD)
		asked_to_hold(q, round);
	else if (type == PEER_PATH_DRAINED)
		heard_drained(q, round, e);
	else if (type == PEER_PATH_READY && round == c->round && c->state >= CHANGE_DRAINED)
		c->said.ready = true;
	else if (type == PEER_PATH_ABORT && round == c->round && c->state != CHANGE_NONE)
		go_on(q, c->wanted);
}

bool change_must_end(void)
{
	struct shim_qp *q;

	list_for_each (q, &changes, change.link)
		if (q->change.state >= CHANGE_DRAINED && in_order(q))
			return true;
	return false;
}

void change_give_way(void)
{
	struct list *at = changes.next;

	while (at != &changes) {
		struct shim_qp *q = list_entry(at, struct shim_qp, change.link);

		at = at->next;
		if (q->in_job && q->change.state != CHANGE_NONE)
			give_up(q);
	}
}

void change_end(struct shim_qp *q)
{
	if (q->change.state != CHANGE_NONE && q->peer)
		peer_send_qp(q, PEER_PATH_ABORT, q->change.round);
	qp_forget_change(q);
	q->change.ended = true; /* the other end may ask until it hears that the QP is gone */
}

void change_forget_all(void)
{
	list_init(&changes);
	cut = false;
}
