/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/paths/service.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/backend/backend.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#define TABLE_ROOM   ((size_t)1 << 18)
#define REFRESH_MAX  ((size_t)1 << 16) /* records read again after a change, the rest on demand */
#define REFRESH_S    3600              /* age of the last question for them, at most */
#define RECONNECT_MS 200

struct path_service {
	bool on;
	struct probe *probe;   /* borrowed */
	struct backend *ask;   /* owned, as the next one: one connection for each thread's use; NULL
				 with a backend that has no records */
	struct backend *watch; /* used by our thread only */
	int stop_fd;           /* owned */
	bool started;
	pthread_t thread;
	pthread_mutex_t lock;       /* guards all below */
	struct path_table *table;   /* owned */
	struct backend_epoch epoch; /* the state that `serial` stands for; 0: not known yet */
	uint32_t serial;            /* never 0 */
	uint64_t prefix;            /* prefix of the subnet's GIDs; 0: not known yet */
	struct path_counts count;
};

static uint32_t now_s(void)
{
	return (uint32_t)(now_ms() / 1000);
}

/* Lock held. */
static void expire(struct path_service *s)
{
	s->epoch = (struct backend_epoch){0};
	if (!++s->serial)
		s->serial = 1;
	s->count.expired++;
}

void path_service_expire(struct path_service *s)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&s->lock);

	expire(s);
}

/* An OpenSM that was started later, or a later state of the same one. */
static bool is_later(const struct backend_epoch *a, const struct backend_epoch *b)
{
	return a->instance != b->instance ? a->instance > b->instance
					  : a->generation > b->generation;
}

/* The state as it is known now. Lock held. */
static void adopt(struct path_service *s, const struct backend_epoch *seen)
{
	if (s->epoch.instance && is_later(seen, &s->epoch))
		expire(s);
	if (!s->epoch.instance)
		s->epoch = *seen;
}

void path_service_saw(struct path_service *s, const struct backend_epoch *seen)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&s->lock);

	if (s->epoch.instance && is_later(seen, &s->epoch))
		expire(s);
}

static bool is_ours(const struct path_service *s, const struct path_query *q)
{
	return s->prefix && q->sgid.prefix == s->prefix && q->dgid.prefix == s->prefix &&
	       q->sgid.guid && q->dgid.guid;
}

static struct path_key key_of(const struct path_query *q)
{
	return (struct path_key){q->sgid.guid, q->dgid.guid, q->pkey};
}

unsigned path_service_lookup(struct path_service *s, const struct path_query *q, unsigned n,
			     struct path_answer *ret_answers)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&s->lock);
	uint32_t now = now_s();
	unsigned unknown = 0;

	for (unsigned i = 0; i < n; i++) {
		struct path_key key = key_of(&q[i]);
		struct path_answer *a = &ret_answers[i];

		a->error = -EAGAIN;
		if (s->on && s->epoch.instance && is_ours(s, &q[i]) &&
		    path_table_get(s->table, &key, s->serial, now, &a->path))
			a->error = a->path.none ? -ENOENT : 0;
		unknown += a->error == -EAGAIN;
	}
	s->count.hits += n - unknown;
	s->count.misses += unknown;
	return unknown;
}

/* Up to SM_RECORDS_MAX keys from the plugin, into the table unless they are past already. Records
 * of *ret_reply are the keys' as they are told. */
static int read_records(struct path_service *s, struct backend *c, const struct path_key *keys,
			unsigned n, struct sm_records_reply *ret_reply, char *error)
{
	struct sm_record_key k[SM_RECORDS_MAX] = {0};
	struct backend_epoch seen;
	uint32_t serial;
	int rc;

	for (unsigned i = 0; i < n; i++)
		k[i] = (struct sm_record_key){keys[i].sguid, keys[i].dguid, keys[i].pkey, {0}};
	pthread_mutex_lock(&s->lock);
	serial = s->serial;
	pthread_mutex_unlock(&s->lock);
	rc = backend_records(c, k, n, ret_reply, error);
	if (rc)
		return rc;
	seen = (struct backend_epoch){ret_reply->instance, ret_reply->generation};
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&s->lock);
	s->prefix = ret_reply->prefix;
	if (serial != s->serial)
		return 0; /* asked before a change */
	adopt(s, &seen);
	if (s->epoch.instance != seen.instance || s->epoch.generation != seen.generation)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		const struct sm_record *r = &ret_reply->record[i];
		const struct path_value v = {r->error != 0, r->dlid, r->slid, r->pkey,
					     r->sl,         r->mtu,  r->rate};

		if (!r->error || r->error == -ENOENT)
			path_table_put(s->table, &keys[i], s->serial, now_s(), &v);
	}
	return 0;
}

/* Asks the SA itself. A record is kept where its subnet's state is seen. The lack of one is never
 * kept, for an SA that is busy says the same. */
static int ask_sa(struct path_service *s, const struct path_query *q, struct path_answer *a,
		  char *error)
{
	struct path_key key = key_of(q);
	struct sm_status_reply sm = {0};
	struct probe_path p = {0};
	char text[BACKEND_ERROR_MAX];
	uint32_t serial;

	pthread_mutex_lock(&s->lock);
	serial = s->serial;
	s->count.sa_queries++;
	pthread_mutex_unlock(&s->lock);
	/* Without the plugin the SM's LID is the one that the port was told. */
	if (!s->ask || backend_status(s->ask, &sm, text))
		sm.sm_lid = 0;
	a->error = probe_path(s->probe, sm.sm_lid, &q->sgid, &q->dgid, q->pkey, &p, text);
	if (a->error && !*error)
		snprintf(error, BACKEND_ERROR_MAX, "%s", text);
	if (a->error)
		return a->error;
	a->path = (struct path_value){false, p.dlid, p.slid, p.pkey, p.sl, p.mtu, p.rate};
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&s->lock);
	if (s->on && serial == s->serial && s->epoch.instance && is_ours(s, q))
		path_table_put(s->table, &key, s->serial, now_s(), &a->path);
	return 0;
}

static void take_record(const struct sm_record *r, struct path_answer *a)
{
	a->error = r->error;
	if (!r->error || r->error == -ENOENT)
		a->path = (struct path_value){r->error != 0, r->dlid, r->slid, r->pkey,
					      r->sl,         r->mtu,  r->rate};
}

/* Runs one round: up to SM_RECORDS_MAX unknown pairs from *at on. Pairs that the plugin cannot tell
 * stay -EOPNOTSUPP; without the plugin all do. */
static void fill_round(struct path_service *s, const struct path_query *q, unsigned n,
		       struct path_answer *a, unsigned *at)
{
	struct sm_records_reply *r AUTO_FREE = malloc(sizeof *r);
	struct path_key key[SM_RECORDS_MAX];
	unsigned index[SM_RECORDS_MAX], m = 0;
	char text[BACKEND_ERROR_MAX];
	bool told;

	for (; *at < n && m < SM_RECORDS_MAX; ++*at)
		if (a[*at].error == -EAGAIN) {
			key[m] = key_of(&q[*at]);
			index[m++] = *at;
		}
	if (!m)
		return;
	told = r && s->on && !read_records(s, s->ask, key, m, r, text);
	for (unsigned i = 0; i < m; i++) {
		const struct path_query *x = &q[index[i]];

		a[index[i]].error = -EOPNOTSUPP;
		if (told && x->sgid.prefix == r->prefix && x->dgid.prefix == r->prefix)
			take_record(&r->record[i], &a[index[i]]);
	}
}

void path_service_fill(struct path_service *s, const struct path_query *q, unsigned n,
		       struct path_answer *answers, char error[static BACKEND_ERROR_MAX])
{
	unsigned at = 0;

	*error = '\0';
	while (at < n)
		fill_round(s, q, n, answers, &at);
	for (unsigned i = 0; i < n; i++)
		if (answers[i].error == -EOPNOTSUPP &&
		    ask_sa(s, &q[i], &answers[i], error) == -ETIMEDOUT)
			break; /* nobody there: the others would wait as long each */
	for (unsigned i = 0; i < n; i++)
		if (answers[i].error == -EOPNOTSUPP)
			answers[i].error = -ETIMEDOUT;
}

/* ---- our thread ---- */

/* Reads again what is past and was asked for of late. Ends early when the state changes anew. */
static void refresh(struct path_service *s, struct backend *c)
{
	struct sm_records_reply *r AUTO_FREE = malloc(sizeof *r);
	struct path_key key[SM_RECORDS_MAX];
	char text[BACKEND_ERROR_MAX];
	uint32_t serial = 0, now = now_s();
	size_t at = 0, done = 0, n;

	while (r && done < REFRESH_MAX) {
		pthread_mutex_lock(&s->lock);
		if (!serial)
			serial = s->serial;
		n = serial == s->serial ? path_table_past(s->table, serial,
							  now > REFRESH_S ? now - REFRESH_S : 0,
							  &at, key, SM_RECORDS_MAX)
					: 0;
		s->count.refreshed += n;
		pthread_mutex_unlock(&s->lock);
		if (!n || read_records(s, c, key, (unsigned)n, r, text))
			return;
		done += n;
	}
}

/* False: to stop. */
static bool pause_or_stop(struct path_service *s)
{
	struct pollfd p = {.fd = s->stop_fd, .events = POLLIN};

	return poll(&p, 1, RECONNECT_MS) == 0;
}

static void *watch_thread(void *arg)
{
	struct path_service *s = arg;
	struct backend_epoch seen = {0};
	char text[BACKEND_ERROR_MAX];

	for (;;) {
		int rc = backend_watch(s->watch, &seen, s->stop_fd, text);

		if (rc == -ECANCELED)
			return NULL;
		if (rc) { /* OpenSM has ended, perhaps to come back with other LIDs */
			if (seen.instance)
				path_service_expire(s);
			seen = (struct backend_epoch){0};
			if (!pause_or_stop(s))
				return NULL;
			continue;
		}
		pthread_mutex_lock(&s->lock);
		adopt(s, &seen);
		pthread_mutex_unlock(&s->lock);
		refresh(s, s->watch);
	}
}

int path_service_new(const struct backend_kind *kind, const struct backend_conf *conf,
		     struct probe *probe, bool on, struct path_service **ret_service)
{
	struct path_service *s = calloc(1, sizeof *s);
	int rc = 0;

	if (!s)
		return -ENOMEM;
	s->on = on = on && kind->watch && kind->records;
	s->probe = probe;
	s->serial = 1;
	pthread_mutex_init(&s->lock, NULL);
	s->stop_fd = eventfd(0, EFD_CLOEXEC);
	s->table = path_table_new(on ? TABLE_ROOM : 1);
	if (s->stop_fd < 0 || !s->table)
		rc = -ENOMEM;
	if (!rc && kind->records && !(rc = backend_new(kind, conf, &s->ask)))
		rc = backend_new(kind, conf, &s->watch);
	if (!rc && on) {
		rc = -pthread_create(&s->thread, NULL, watch_thread, s);
		s->started = !rc;
	}
	if (rc) {
		path_service_free(s);
		return rc;
	}
	*ret_service = s;
	return 0;
}

void path_service_free(struct path_service *s)
{
	if (!s)
		return;
	if (s->started) {
		eventfd_write(s->stop_fd, 1);
		pthread_join(s->thread, NULL);
	}
	if (s->stop_fd >= 0)
		close(s->stop_fd);
	backend_free(s->ask);
	backend_free(s->watch);
	path_table_free(s->table);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

uint64_t path_service_prefix(struct path_service *s)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&s->lock);

	return s->prefix;
}

bool path_service_caches(const struct path_service *s)
{
	return s->on;
}

struct path_counts path_service_counts(struct path_service *s)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&s->lock);

	return s->count;
}
