/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/fleet/jobs.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/migrate/machine.h"
#include "daemon/fleet/preview.h"
#include "daemon/base/settings.h"
#include "daemon/libvirt/virt.h"
#include "daemon/vm/vm.h"

#include <errno.h>
#include <string.h>

#define TO_MAX            200
#define BANDWIDTH_MIB_MAX (1u << 20)

enum mover_state { MOVER_RUNS, MOVER_DONE, MOVER_FAILED };

struct mover {
	struct mover *next;
	struct daemon *d; /* borrowed */
	uint64_t number;
	char name[VM_NAME_MAX], uuid[37]; /* uuid: "" for a VM without a VF */
	char *to, *uri;                   /* owned */
	const char *strategy;             /* or NULL: the VM's own */
	uint64_t bandwidth_mib;           /* 0: not limited */
	bool persistent;
	bool is_gone;    /* the job has failed, and the VM does not run here */
	char before[37]; /* the VM's latest migration when the job started, or "" */
	enum mover_state state;
	uint64_t started_ms, ended_ms;
	int rc;
	char error[HTTP_ERROR_MAX];
};

struct movers {
	struct work_pool *pool; /* owned */
	struct mover *list;     /* owned; newest first */
	uint64_t last;
	unsigned running;
};

int mover_new(struct daemon *d, struct movers **ret_movers)
{
	struct movers *ms = calloc(1, sizeof *ms);
	int rc;

	if (!ms)
		return -ENOMEM;
	rc = work_pool_new(d->loop, MOVER_THREADS, &ms->pool);
	if (rc) {
		free(ms);
		return rc;
	}
	*ret_movers = ms;
	return 0;
}

static void free_one(struct mover *mv)
{
	free(mv->to);
	free(mv->uri);
	free(mv);
}

void mover_free(struct movers *ms)
{
	/* A thread inside libvirt's call still uses its job; the end of the process ends it. */
	if (!ms || ms->running)
		return;
	work_pool_free(ms->pool);
	while (ms->list) {
		struct mover *mv = ms->list;

		ms->list = mv->next;
		free_one(mv);
	}
	free(ms);
}

/* ---- the job ---- */

static void run(void *arg)
{
	struct mover *mv = arg;
	char why[HTTP_ERROR_MAX];
	bool runs = true;

	mv->rc = virt_migrate(mv->d->virt, mv->name, mv->uri, (unsigned)mv->bandwidth_mib,
			      mv->persistent, mv->error);
	if (mv->rc)
		virt_is_running(mv->d->virt, mv->name, &runs, why);
	mv->is_gone = !runs;
}

/* The newest job of mv's VM in list, if it was to do the same and has. Then who asks for mv has not
 * had the answer to that, or the VM is back. */
static const struct mover *done_before(const struct mover *list, const struct mover *mv,
				       const char *to)
{
	const struct mover *o = list;

	while (o && strcmp(o->name, mv->name) && strcmp(o->uuid, mv->name))
		o = o->next;
	return o && o->state == MOVER_DONE && o->strategy == mv->strategy && str_eq(o->to, to)
		       ? o
		       : NULL;
}

static void collect(struct movers *ms)
{
	unsigned kept = 0;

	for (struct mover **p = &ms->list; *p;) {
		struct mover *mv = *p;

		if (mv->state == MOVER_RUNS || ++kept <= MOVER_KEPT) {
			p = &mv->next;
			continue;
		}
		*p = mv->next;
		free_one(mv);
	}
}

static void done(void *arg)
{
	struct mover *mv = arg;
	const struct mover *before = mv->is_gone ? done_before(mv->next, mv, mv->to) : NULL;
	struct vm *vm = vm_by_name(mv->d, mv->name);

	if (before) {
		mv->rc = 0;
		memcpy(mv->uuid, before->uuid, sizeof mv->uuid);
		memcpy(mv->before, before->before, sizeof mv->before);
	}
	mv->state = mv->rc ? MOVER_FAILED : MOVER_DONE;
	mv->ended_ms = wall_ms();
	mv->d->movers->running--;
	if (vm)
		vm->has_strategy_once = false;
	if (mv->rc)
		log_warn("VM %s: the migration to %s that was asked for here failed: %s", mv->name,
			 mv->uri, mv->error);
	else
		log_notice("VM %s: has migrated to %s, as was asked for here", mv->name, mv->uri);
	collect(mv->d->movers);
}

/* The migration that belongs to the job: the first newer one than what was there before. */
static const struct migration *migration_of(const struct mover *mv)
{
	const struct migration *found = NULL;

	for (const struct migration *m = mv->d->migrations; m; m = m->next) {
		if (strcmp(m->rec.vm_uuid, mv->uuid))
			continue;
		if (!strcmp(m->rec.id, mv->before))
			break;
		if (m->rec.role == ROLE_SOURCE)
			found = m;
	}
	return found;
}

static struct json_object *mover_json(const struct mover *mv)
{
	static const char *const names[] = {"running", "done", "failed"};
	struct json_object *o = json_object_new_object();
	const struct migration *m = *mv->uuid ? migration_of(mv) : NULL;

	json_set_u64(o, "job", mv->number);
	json_set_str(o, "vm", mv->name);
	json_set_str(o, "to", mv->to);
	json_set_str(o, "uri", mv->uri);
	json_set_str(o, "strategy", mv->strategy);
	json_set_str(o, "state", names[mv->state]);
	json_set_str(o, "error", mv->state == MOVER_FAILED ? mv->error : NULL);
	json_set_u64(o, "started_ms", mv->started_ms);
	if (mv->ended_ms)
		json_set_u64(o, "ended_ms", mv->ended_ms);
	json_set(o, "migration", m ? migrate_record(m) : NULL);
	return o;
}

/* ---- starting one ---- */

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]"

/* libvirtd opens the URI as root. Transports and parameters that name files or programs of this
 * host (ext, unix; command, netcat, socket, pkipath ...) are not for who may only operate. */
static bool is_remote_uri(const char *uri)
{
	static const char *const schemes[] = {"qemu://", "qemu+tls://", "qemu+tcp://",
					      "qemu+ssh://"};

	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
		size_t n = strlen(schemes[i]);
		const char *rest = uri + n;

		if (!strncmp(uri, schemes[i], n))
			return *rest && *rest != '/' && *rest != '-' &&
			       strspn(rest, NAME_CHARS "@/") == strlen(rest);
	}
	return false;
}

/* "NAME" becomes settings' migrate-uri with NAME in it; a URI stays. NULL: neither a name of a host
 * nor a URI of one. */
static char *make_uri(const struct settings *s, const char *to)
{
	const char *spot = strstr(s->migrate_uri, "%s");

	if (strstr(to, "://"))
		return is_remote_uri(to) ? strdup(to) : NULL;
	if (!*to || strspn(to, NAME_CHARS) != strlen(to))
		return NULL;
	return strf("%.*s%s%s", (int)(spot - s->migrate_uri), s->migrate_uri, to, spot + 2);
}

/* NULL for what no live migration can be asked for. */
static const char *known_strategy(const char *text)
{
	enum domain_strategy s;

	return strategy_parse(text, &s) || s == STRATEGY_COLD ? NULL : strategy_name(s);
}

/* Reads the request into mv; an error is answered here. */
static int read_request(struct http_request *req, struct mover *mv, const struct vm *vm)
{
	struct http_exchange *x = req->exchange;
	const char *to = json_opt_str(req->body, "to", NULL);
	const char *strategy = json_opt_str(req->body, "strategy", NULL);
	struct json_object *bandwidth = json_opt(req->body, "bandwidth_mib");
	uint64_t mib = bandwidth ? json_opt_u64(req->body, "bandwidth_mib", UINT64_MAX) : 0;

	mv->uri = to && strlen(to) <= TO_MAX ? make_uri(mv->d->settings, to) : NULL;
	mv->strategy = strategy ? known_strategy(strategy) : NULL;
	mv->bandwidth_mib = mib;
	mv->persistent = json_opt_bool(req->body, "persistent", false);
	if (!mv->uri)
		http_fail(x, 400, "bad-field",
			  "to is \"%.60s\"; it must be the name of a host, or a libvirt URI of it: "
			  "qemu, qemu+tls, qemu+tcp or qemu+ssh, without parameters, which belong "
			  "into migrate-uri of ibvmigd.conf",
			  to ? to : "");
	else if (str_eq(to, mv->d->settings->host_name))
		http_fail(x, 400, "bad-field", "VM %s runs on host %s already", mv->name, to);
	else if (strategy && !mv->strategy)
		http_fail(x, 400, "bad-field",
			  "strategy is \"%.20s\"; it must be auto, native, late or early",
			  strategy);
	else if (mv->strategy && strcmp(mv->strategy, "auto") && !vm &&
		 !done_before(mv->d->movers->list, mv, to))
		http_fail(x, 400, "no-vf", "VM %s has no VF on this host: no strategy applies",
			  mv->name);
	else if (mib > BANDWIDTH_MIB_MAX)
		http_fail(x, 400, "bad-field",
			  "bandwidth_mib is %.40s; it must be a number from 1 to %u",
			  json_object_to_json_string(bandwidth), BANDWIDTH_MIB_MAX);
	else
		return 0;
	return -EINVAL;
}

/* The same once more: a request whose answer was lost, or a user who asks twice. */
static bool asks_the_same(const struct mover *mv, struct json_object *body)
{
	const char *strategy = json_opt_str(body, "strategy", NULL);

	return str_eq(json_opt_str(body, "to", NULL), mv->to) &&
	       (strategy ? str_eq(strategy, mv->strategy) : !mv->strategy) &&
	       json_opt_u64(body, "bandwidth_mib", 0) == mv->bandwidth_mib &&
	       json_opt_bool(body, "persistent", false) == mv->persistent;
}

static const struct mover *running_one(const struct movers *ms, const char *name)
{
	for (const struct mover *mv = ms->list; mv; mv = mv->next)
		if (mv->state == MOVER_RUNS && !strcmp(mv->name, name))
			return mv;
	return NULL;
}

static void note_before(struct mover *mv)
{
	for (const struct migration *m = mv->d->migrations; m; m = m->next) {
		if (strcmp(m->rec.vm_uuid, mv->uuid))
			continue;
		memcpy(mv->before, m->rec.id, sizeof mv->before);
		return;
	}
}

/* Takes mv. */
static void launch(struct http_request *req, struct mover *mv, struct vm *vm)
{
	struct movers *ms = mv->d->movers;

	mv->started_ms = wall_ms();
	mv->number = ms->last + 1;
	if (vm) {
		memcpy(mv->uuid, vm->uuid, sizeof mv->uuid);
		vm->has_strategy_once = mv->strategy &&
					!strategy_parse(mv->strategy, &vm->strategy_once);
		note_before(mv);
	}
	if (work_submit(ms->pool, run, done, mv)) {
		if (vm)
			vm->has_strategy_once = false;
		free_one(mv);
		http_fail(req->exchange, 503, "no-memory", "out of memory");
		return;
	}
	ms->last++;
	ms->running++;
	mv->next = ms->list;
	ms->list = mv;
	log_notice("VM %s: migration to %s asked for", mv->name, mv->uri);
	http_reply(req->exchange, 202, mover_json(mv));
}

static void start(struct http_request *req, struct vm *vm, const char *name)
{
	struct daemon *d = req->user;
	struct mover *mv = calloc(1, sizeof *mv);

	if (!mv) {
		http_fail(req->exchange, 503, "no-memory", "out of memory");
		return;
	}
	mv->d = d;
	snprintf(mv->name, sizeof mv->name, "%s", name);
	if (read_request(req, mv, vm)) {
		free_one(mv);
		return;
	}
	str_set(&mv->to, json_opt_str(req->body, "to", ""));
	launch(req, mv, vm);
}

void mover_post_migrate(struct http_request *req)
{
	struct daemon *d = req->user;
	struct vm *vm = vm_by_name(d, req->param);
	const char *name = vm ? vm->name : req->param;
	const struct mover *other = running_one(d->movers, name);
	static const char *const flags[] = {"dry_run", "persistent", NULL};
	static const char *const texts[] = {"to", "strategy", NULL};

	if (!http_flags_fit(req, flags) || !http_texts_fit(req, texts))
		return;
	if (json_opt_bool(req->body, "dry_run", false))
		preview_post(req);
	else if (other && asks_the_same(other, req->body))
		http_reply(req->exchange, 200, mover_json(other));
	else if (other)
		http_fail(req->exchange, 409, "busy",
			  "VM %s is migrating to %s already, job %llu with other arguments: wait "
			  "for its end, or abort it",
			  name, other->to, (unsigned long long)other->number);
	else
		start(req, vm, name);
}

void mover_on_migrate(struct http_request *req)
{
	struct daemon *d = req->user;
	const char *name = json_opt_str(req->body, "vm", "");
	struct vm *vm = vm_by_name(d, name);
	const struct migration *m = vm ? migrate_open(d, vm->uuid) : NULL;
	const struct mover *other = running_one(d->movers, name);
	struct json_object *o;

	if (!*name || strlen(name) >= sizeof((struct mover *)0)->name) {
		http_fail(req->exchange, 400, "bad-field",
			  "vm is \"%.80s\", %zu bytes; it must be a VM's name, 1 to %d", name,
			  strlen(name), VM_NAME_MAX - 1);
	} else if (m && m->rec.state == M_PARKED) {
		http_fail(req->exchange, 409, "parked",
			  "an earlier migration of it is PARKED: ibvmig resolve %s", m->rec.id);
	} else if (m || other) {
		o = json_object_new_object();
		json_set_str(o, "busy", other ? other->to : m->rec.to.host);
		http_reply(req->exchange, 200, o);
	} else {
		start(req, vm, name);
	}
}

/* ---- asking ---- */

struct ask {
	struct http_exchange *exchange;
	uint64_t number;
};

static void progress_run(struct job *j)
{
	struct virt_progress p = {0};
	const char *name = json_opt_str(j->in, "name", "");

	j->rc = virt_progress(j->d->virt, name, &p, j->error);
	if (j->rc)
		return;
	json_set_u64(j->out, "total_bytes", p.total_bytes);
	json_set_u64(j->out, "remaining_bytes", p.remaining_bytes);
	json_set_u64(j->out, "bytes_per_s", p.bytes_per_s);
	json_set_u64(j->out, "passes", p.passes);
}

static struct mover *by_number(struct daemon *d, uint64_t number)
{
	for (struct mover *mv = d->movers->list; mv; mv = mv->next)
		if (mv->number == number)
			return mv;
	return NULL;
}

static void progress_done(struct job *j)
{
	struct ask *a = j->owner;
	struct mover *mv = by_number(j->d, a->number);
	struct json_object *o;

	if (!mv) {
		http_fail(a->exchange, 404, "not-found", "there is no job %llu any more",
			  (unsigned long long)a->number);
	} else {
		o = mover_json(mv);
		/* Without a job in QEMU there is nothing to tell. */
		if (!j->rc && mv->state == MOVER_RUNS)
			json_set(o, "progress", json_object_get(j->out));
		http_reply(a->exchange, 200, o);
	}
	free(a);
}

void mover_get_job(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *in;
	struct mover *mv = NULL;
	struct ask *a;
	uint64_t n = 0;

	if (!parse_u64(req->param, 1, UINT64_MAX, &n))
		mv = by_number(d, n);
	if (!mv) {
		http_fail(req->exchange, 404, "not-found", "there is no job %s", req->param);
		return;
	}
	a = mv->state == MOVER_RUNS ? malloc(sizeof *a) : NULL;
	if (!a) {
		http_reply(req->exchange, 200, mover_json(mv));
		return;
	}
	*a = (struct ask){.exchange = req->exchange, .number = n};
	in = json_object_new_object();
	json_set_str(in, "name", mv->name);
	if (job_look(d, req->exchange, in, progress_run, progress_done, a))
		free(a);
}

void mover_get_jobs(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (const struct mover *mv = d->movers->list; mv; mv = mv->next)
		json_object_array_add(list, mover_json(mv));
	json_set(o, "jobs", list);
	http_reply(req->exchange, 200, o);
}

/* ---- abort ---- */

static void abort_run(struct job *j)
{
	const char *name = json_opt_str(j->in, "name", "");
	struct virt_progress p;
	char why[HTTP_ERROR_MAX];

	j->rc = virt_abort_job(j->d->virt, name, j->error);
	if (j->rc == -EIO && virt_progress(j->d->virt, name, &p, why) == -ENODATA)
		j->rc = -EALREADY;
	json_set_str(j->out, "vm", name);
	json_set_bool(j->out, "under_way", !j->rc);
}

static void abort_done(struct job *j)
{
	struct http_exchange *x = j->owner;

	if (!j->rc || j->rc == -EALREADY)
		http_reply(x, j->rc ? 200 : 202, json_object_get(j->out));
	else if (j->rc == -ENOENT)
		http_fail(x, 404, "not-found", "%s", j->error);
	else if (j->rc == -ENOTCONN)
		http_fail(x, 503, "no-libvirt", "%s", j->error);
	else
		http_fail(x, 409, "not-aborted", "%s", j->error);
}

static void abort_vm(struct http_request *req, const char *name)
{
	struct json_object *in = json_object_new_object();

	json_set_str(in, "name", name);
	if (job_start(req->user, in, abort_run, abort_done, req->exchange, 0))
		http_fail(req->exchange, 503, "no-memory", "out of memory");
}

void mover_post_abort(struct http_request *req)
{
	abort_vm(req, req->param);
}

void mover_on_cancel(struct http_request *req)
{
	abort_vm(req, json_opt_str(req->body, "vm", ""));
}
