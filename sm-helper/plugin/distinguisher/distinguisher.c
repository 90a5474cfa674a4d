/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/distinguisher/distinguisher.h"
#include "sm-helper/plugin/distinguisher/look.h"
#include "sm-helper/plugin/paths.h"
#include "common/util.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include <opensm/osm_log.h>

#define AGAIN_MS    50  /* after a look that a sweep has cut short, if nobody wakes us */
#define HEARD_MAX   256 /* GIDs between two looks */
#define TRAPS_MAX   256 /* ports that one comparison names to OpenSM's subscribers */
#define TRAPS_PIECE 64  /* in one hold of OpenSM's lock */

struct heard {
	uint64_t guid;
	bool in; /* trap 64 */
};

struct distinguisher {
	pthread_t thread;
	pthread_mutex_t lock; /* guards the rest; no other is taken with it */
	pthread_cond_t wake;
	bool due, stopping, all_heard; /* all_heard: more GIDs have come or gone than are kept */
	struct heard heard[HEARD_MAX];
	unsigned heards;
	uint64_t number;              /* of the comparison below; 0: none yet */
	struct sm_reroute_reply told; /* its head and numbers, without a list */
	struct diff diff;
	struct look look; /* the thread's alone */
	bool looked;
};

void distinguisher_wake(struct plugin *p)
{
	struct distinguisher *d = p->distinguisher;

	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->due = true;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
}

void distinguisher_heard(struct plugin *p, const ib_mad_notice_attr_t *notice)
{
	uint16_t trap = cl_ntoh16(notice->g_or_v.generic.trap_num);
	struct distinguisher *d = p->distinguisher;
	struct heard h = {.in = trap == SM_GID_IN_SERVICE_TRAP};

	if (!d || !ib_notice_is_generic(notice) ||
	    (trap != SM_GID_IN_SERVICE_TRAP && trap != SM_GID_OUT_OF_SERVICE_TRAP))
		return;
	h.guid = cl_ntoh64(notice->data_details.ntc_64_67.gid.unicast.interface_id);
	atomic_fetch_add(h.in ? &p->count.gids_in : &p->count.gids_out, 1);
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&d->lock);
	if (d->heards < HEARD_MAX)
		d->heard[d->heards++] = h;
	else
		d->all_heard = true;
	d->due = true;
	pthread_cond_signal(&d->wake);
}

/* ---- a comparison ---- */

static bool is_port(const struct look *l, uint64_t guid)
{
	unsigned low = 0, high = l->ports;

	while (low < high) {
		unsigned mid = (low + high) / 2;

		if (l->port[mid].guid < guid)
			low = mid + 1;
		else
			high = mid;
	}
	return low < l->ports && l->port[low].guid == guid;
}

/* Alias GUIDs are no ports: what OpenSM has said of them is all that is known. */
static void add_heard(struct distinguisher *d, const struct look *was, const struct look *is,
		      struct diff *diff)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&d->lock);

	for (unsigned i = 0; i < d->heards; i++) {
		const struct heard *h = &d->heard[i];

		if (is_port(was, h->guid) || is_port(is, h->guid))
			continue;
		*(h->in ? &diff->back : &diff->gone) += 1;
		diff_list(diff, &(struct sm_change){.kind = h->in ? SM_CHANGE_BACK : SM_CHANGE_GONE,
						    .to = h->guid});
	}
	diff->all |= d->all_heard;
	d->heards = 0;
	d->all_heard = false;
}

/* Ports whose paths are gone or others, each once, up to TRAPS_MAX; more: *n is greater than that.
 */
struct traps {
	unsigned n;
	struct {
		uint64_t guid;
		bool gone;
	} of[TRAPS_MAX];
};

static void add_trap(struct traps *t, uint64_t guid, bool gone)
{
	if (t->n < TRAPS_MAX) {
		t->of[t->n].guid = guid;
		t->of[t->n].gone = gone;
	}
	t->n += t->n <= TRAPS_MAX;
}

/* Changes of pairs come destination after destination. */
static void add_pairs(struct traps *t, const struct look *is, const struct diff *diff)
{
	uint64_t last = 0;

	for (size_t i = 0; i < diff->listed && t->n <= TRAPS_MAX; i++) {
		const struct sm_change *c = &diff->list[i];

		if (c->kind > SM_CHANGE_PORTS || c->to == last)
			continue;
		last = c->to;
		if (c->kind != SM_CHANGE_SWITCHES)
			add_trap(t, c->to, false);
		for (unsigned k = 0; c->kind == SM_CHANGE_SWITCHES && k < is->ports; k++)
			if (is->sw[is->port[k].sw] == c->to)
				add_trap(t, is->port[k].guid, false);
	}
}

static void choose_traps(struct traps *t, const struct look *is, const struct diff *diff)
{
	t->n = 0;
	for (size_t i = 0; i < diff->listed && t->n <= TRAPS_MAX; i++)
		if (diff->list[i].kind >= SM_CHANGE_PORT)
			add_trap(t, diff->list[i].to, diff->list[i].kind == SM_CHANGE_GONE);
	add_pairs(t, is, diff);
	if (diff->all || diff->listed == DIFF_LIST_MAX)
		t->n = TRAPS_MAX + 1;
}

/* Trap 68 or 69 of each port, or one of all where they are too many. */
static void send_traps(struct plugin *p, const struct look *is, const struct diff *diff)
{
	struct traps *t AUTO_FREE = malloc(sizeof *t);

	if (!t)
		return;
	choose_traps(t, is, diff);
	if (t->n > TRAPS_MAX) {
		t->n = 1;
		t->of[0].guid = 0;
		t->of[0].gone = false;
	}
	for (unsigned i = 0; i < t->n;) {
		cl_plock_excl_acquire(&p->osm->lock);
		for (unsigned k = 0; i < t->n && k < TRAPS_PIECE; k++, i++)
			paths_report(p, t->of[i].gone ? SM_UNPATH_TRAP : SM_REPATH_TRAP,
				     t->of[i].guid);
		cl_plock_release(&p->osm->lock);
	}
}

static void publish(struct plugin *p, const struct look *is, struct diff *diff, uint64_t since_us)
{
	struct distinguisher *d = p->distinguisher;

	pthread_mutex_lock(&d->lock);
	diff_clear(&d->diff);
	d->diff = *diff;
	*diff = (struct diff){0};
	d->told = (struct sm_reroute_reply){
		.instance = p->instance,
		.number = ++d->number,
		.generation = atomic_load(&p->count.generation),
		.pairs = d->diff.pairs,
		.changed = d->diff.changed,
		.elapsed_us = now_us() - since_us,
		.bytes = look_bytes(is),
		.ports_changed = d->diff.ports_changed,
		.gone = d->diff.gone,
		.back = d->diff.back,
		.unit = {(uint8_t)is->rows, (uint8_t)is->columns},
		.all = d->diff.all,
		.total = (uint32_t)d->diff.listed,
	};
	pthread_mutex_unlock(&d->lock);
	atomic_fetch_add(&p->count.reroutes, 1);
	eventfd_write(p->changed_fd, 1);
}

/* False: to be tried again, when the sweep is over that runs now. */
static bool compare(struct plugin *p)
{
	struct distinguisher *d = p->distinguisher;
	uint64_t since_us = now_us();
	struct look is = {0};
	struct diff diff = {0};

	if (look_read(p, &is))
		return false;
	if (d->looked)
		look_differ(&d->look, &is, &diff);
	else
		diff.all = true;
	add_heard(d, &d->look, &is, &diff);
	if (d->looked)
		send_traps(p, &is, &diff);
	publish(p, &is, &diff, since_us);
	look_clear(&d->look);
	d->look = is;
	d->looked = true;
	return true;
}

static void *run(void *arg)
{
	struct plugin *p = arg;
	struct distinguisher *d = p->distinguisher;
	bool again = false;

	pthread_mutex_lock(&d->lock);
	while (!d->stopping) {
		uint64_t until_us = now_us() + AGAIN_MS * 1000;
		struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
					 .tv_nsec = (long)(until_us % 1000000) * 1000};

		if (!d->due && again)
			pthread_cond_clockwait(&d->wake, &d->lock, CLOCK_MONOTONIC, &until);
		else if (!d->due)
			pthread_cond_wait(&d->wake, &d->lock);
		if (d->stopping || (!d->due && !again))
			continue;
		d->due = false;
		pthread_mutex_unlock(&d->lock);
		again = !compare(p);
		pthread_mutex_lock(&d->lock);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

int distinguisher_start(struct plugin *p)
{
	struct distinguisher *d = calloc(1, sizeof *d);
	sigset_t all, old;
	int rc;

	if (!d)
		return -ENOMEM;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->wake, NULL);
	p->distinguisher = d;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	rc = pthread_create(&d->thread, NULL, run, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		p->distinguisher = NULL;
		free(d);
	}
	return -rc;
}

void distinguisher_stop(struct plugin *p)
{
	struct distinguisher *d = p->distinguisher;

	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->stopping = true;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->thread, NULL);
}

/* ---- SM_OP_REROUTE ---- */

bool distinguisher_answers(struct plugin *p, const struct sm_reroute_request *req)
{
	struct distinguisher *d = p->distinguisher;
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&d->lock);

	return req->first ||
	       (d->number && (req->instance != p->instance || req->after != d->number));
}

int plugin_reroute(struct plugin *p, const struct sm_reroute_request *req,
		   struct sm_reroute_reply *r)
{
	struct distinguisher *d = p->distinguisher;
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&d->lock);
	struct sm_reply_head h = r->h;

	if (req->first && (req->instance != p->instance || req->after != d->number))
		return plugin_refuse(&r->h, -ESTALE, "there is a later comparison of paths");
	memcpy(r, &d->told, offsetof(struct sm_reroute_reply, change));
	r->h = h;
	for (size_t i = req->first; i < d->diff.listed && r->count < SM_CHANGES_MAX; i++)
		r->change[r->count++] = d->diff.list[i];
	return (int)(offsetof(struct sm_reroute_reply, change) + r->count * sizeof r->change[0]);
}
