/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/rest.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/events.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/fleet/balance.h"
#include "daemon/fleet/capacity.h"
#include "daemon/fleet/drain.h"
#include "daemon/fleet/drained.h"
#include "daemon/fleet/fence.h"
#include "daemon/fleet/jobs.h"
#include "daemon/libvirt/virt.h"
#include "daemon/migrate/step.h"
#include "daemon/migrate/clocks.h"
#include "daemon/migrate/src.h"
#include "daemon/report/doctor.h"
#include "daemon/report/metrics.h"
#include "daemon/report/openapi.h"
#include "daemon/report/timeline.h"
#include "daemon/store/journal.h"
#include "daemon/vf/table.h"
#include "daemon/vm/calls.h"
#include "daemon/vm/qps.h"
#include "daemon/vm/relay.h"
#include "daemon/vm/repath.h"
#include "daemon/vm/rights.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define LIST_MAX 200

static void get_versions(struct http_request *req)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	json_object_array_add(list, json_object_new_string("v1"));
	json_set_str(o, "program", "ibvmigd");
	json_set_str(o, "version", IBVMIG_VERSION);
	json_set(o, "api", list);
	http_reply(req->exchange, 200, o);
}

static struct json_object *peer_list(const struct settings *s)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < s->peer_count; i++) {
		struct json_object *o = json_object_new_object();

		json_set_str(o, "name", s->peers[i].name);
		json_set_str(o, "url", s->peers[i].url);
		json_object_array_add(list, o);
	}
	return list;
}

struct status_call {
	struct daemon *d;
	struct http_exchange *exchange;
};

static struct json_object *host_status(struct daemon *d)
{
	struct json_object *o = json_object_new_object(), *v = json_object_new_object();

	json_set_str(v, "uri", d->settings->libvirt_uri);
	json_set_bool(v, "connected", virt_is_connected(d->virt));
	json_set_str(o, "host", d->settings->host_name);
	json_set_str(o, "version", IBVMIG_VERSION);
	json_set_str(o, "url", d->settings->url);
	json_set(o, "libvirt", v);
	json_set(o, "sm", sm_status(d));
	drained_tell(d, o);
	json_set_str(o, "vf_error", *d->vf_error ? d->vf_error : NULL);
	json_set(o, "pfs", vf_pfs(d->vfs));
	json_set(o, "peers", peer_list(d->settings));
	return o;
}

static void status_ready(void *arg)
{
	struct status_call *c = arg;
	struct daemon *d = c->d;
	struct json_object *o AUTO_JSON = host_status(d);
	struct json_object *latest AUTO_JSON = journal_latest_migrations(d->journal, 5);
	struct printbuf *text = printbuf_new();

	json_write_open(text, NULL, '{');
	json_object_object_foreach(o, key, value)
	{
		json_write(text, key, value);
	}
	vf_write_status(text, "vfs", d->vfs);
	vm_write_list(text, d);
	json_write(text, "migrations", latest);
	json_write_close(text, '}');
	http_reply(c->exchange, 200, json_written(text));
	free(c);
}

static void get_status(struct http_request *req)
{
	struct status_call *c = malloc(sizeof *c);

	if (!c) {
		http_fail(req->exchange, 503, "no-memory", "out of memory");
		return;
	}
	*c = (struct status_call){.d = req->user, .exchange = req->exchange};
	vm_rights_refresh(req->user);
	sm_refresh(req->user, status_ready, c);
}

/* True if this role's record has waited for its operator, who has been here. */
static bool was_resolved(struct json_object *record)
{
	struct json_object *list = json_opt(record, "transitions");
	bool ended = json_opt_bool(record, "ended", false);

	for (size_t i = 0; i < json_count(list); i++) {
		const char *state = json_opt_str(json_object_array_get_idx(list, i), "state", "");

		if (str_eq(state, "PARKED") || (ended && str_eq(state, "SAVED")))
			return true;
	}
	return false;
}

static void post_resolve(struct http_request *req)
{
	struct daemon *d = req->user;
	static const char *const flags[] = {"destination_lost", "source_lost", NULL};
	struct json_object *o;
	int rc;

	if (!http_flags_fit(req, flags))
		return;
	if (json_opt_bool(req->body, "destination_lost", false)) {
		lost_post(req);
		return;
	}
	if (json_opt_bool(req->body, "source_lost", false)) {
		orphan_post(req);
		return;
	}
	rc = migrate_resolve(d, req->param);
	o = journal_migration(d->journal, req->param);
	if (rc == -ENOENT && !o) {
		rest_no_migration(req, req->param);
	} else if (!rc || was_resolved(json_opt(o, "source")) ||
		   was_resolved(json_opt(o, "destination"))) {
		http_reply(req->exchange, 200, o);
	} else {
		json_object_put(o);
		http_fail(req->exchange, 409, "not-parked",
			  "migration %s is not parked on this host", req->param);
	}
}

/* Long poll, or a stream for who accepts one; that one goes on after the last event it has seen. */
static void get_events(struct http_request *req)
{
	struct daemon *d = req->user;
	const char *accept = http_header(req->exchange, "Accept");
	const char *text = http_query(req->exchange, "since");
	bool stream = accept && strstr(accept, "text/event-stream");
	uint64_t since = 0;

	if (stream && http_header(req->exchange, "Last-Event-ID"))
		text = http_header(req->exchange, "Last-Event-ID");
	if (text && parse_u64(text, 0, UINT64_MAX, &since))
		http_fail(
			req->exchange, 400, "bad-field",
			"since is \"%.40s\"; it must be a number, the \"next\" of the last answer",
			text);
	else if (stream)
		events_stream(d->events, req->exchange, since);
	else if (text)
		events_wait(d->events, req->exchange, since);
	else
		events_answer(d->events, req->exchange, 0);
}

static void get_journal(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *o = json_object_new_object();

	json_set(o, "events", journal_events(d->journal, LIST_MAX));
	http_reply(req->exchange, 200, o);
}

const struct http_route rest_routes[] = {
	{"GET", "/", get_versions, REST_READ_ONLY},
	{"GET", "/openapi.json", openapi_get, REST_READ_ONLY},
	{"GET", "/metrics", metrics_get, REST_READ_ONLY},
	{"GET", "/v1/status", get_status, REST_READ_ONLY},
	{"GET", "/v1/vms", vm_get_all, REST_READ_ONLY},
	{"GET", "/v1/vms/*", vm_get, REST_READ_ONLY},
	{"GET", "/v1/vms/*/qps", qps_get, REST_READ_ONLY},
	{"GET", "/v1/migrations", migrate_get_all, REST_READ_ONLY},
	{"GET", "/v1/migrations/*", migrate_get, REST_READ_ONLY},
	{"GET", "/v1/migrations/*/timeline", timeline_get, REST_READ_ONLY},
	{"GET", "/v1/doctor", doctor_get, REST_READ_ONLY},
	{"GET", "/v1/clock", clocks_get, REST_READ_ONLY},
	{"GET", "/v1/jobs", mover_get_jobs, REST_READ_ONLY},
	{"GET", "/v1/jobs/*", mover_get_job, REST_READ_ONLY},
	{"GET", "/v1/host", capacity_get, REST_READ_ONLY},
	{"GET", "/v1/balance", balance_get, REST_READ_ONLY},
	{"GET", "/v1/drains", drain_get_all, REST_READ_ONLY},
	{"GET", "/v1/drains/*", drain_get, REST_READ_ONLY},
	{"GET", "/v1/events", get_events, REST_READ_ONLY},
	{"GET", "/v1/journal", get_journal, REST_READ_ONLY},
	{"POST", "/v1/peer/prepare", src_on_prepare, REST_PEER},
	{"POST", "/v1/peer/switch", dst_on_switch, REST_PEER},
	{"POST", "/v1/peer/unswitch", dst_on_unswitch, REST_PEER},
	{"POST", "/v1/peer/abort", dst_on_abort, REST_PEER},
	{"POST", "/v1/peer/outcome", src_on_outcome, REST_PEER},
	{"POST", "/v1/peer/check", peer_on_check, REST_PEER},
	{"POST", "/v1/peer/reserve", peer_on_reserve, REST_PEER},
	{"POST", "/v1/peer/release", peer_on_release, REST_PEER},
	{"POST", "/v1/peer/suspend", peer_on_suspend, REST_PEER},
	{"POST", "/v1/peer/resume", peer_on_resume, REST_PEER},
	{"POST", "/v1/peer/relay", relay_receive, REST_PEER},
	{"POST", "/v1/peer/repath", repath_on_notice, REST_PEER},
	{"POST", "/v1/peer/migrate", mover_on_migrate, REST_PEER},
	{"POST", "/v1/peer/cancel", mover_on_cancel, REST_PEER},
	{"POST", "/v1/peer/drained", drained_on_set, REST_PEER},
	{"POST", "/v1/hook", dst_hook, REST_ROOT},
	{"POST", "/v1/vms/*/attach", vm_post_attach, REST_NOVA},
	{"POST", "/v1/vms/*/migrate", mover_post_migrate, REST_NOVA},
	{"POST", "/v1/vms/*/abort", mover_post_abort, REST_NOVA},
	{"POST", "/v1/vms/*/fence", fence_post, REST_NOVA},
	{"POST", "/v1/vms/*/save", cold_post_save, REST_ROOT},
	{"POST", "/v1/restore", cold_post_restore, REST_ROOT},
	{"POST", "/v1/drains", drain_post, REST_NOVA},
	{"POST", "/v1/drains/*/abort", drain_post_abort, REST_NOVA},
	{"POST", "/v1/hosts/*/undrain", drained_post_undrain, REST_NOVA},
	{"POST", "/v1/migrations/*/resolve", post_resolve, REST_NOVA},
	{0},
};

/* ---- who may do what ---- */

static bool in_group(const struct http_who *who, const struct settings_group *g)
{
	for (unsigned i = 0; g->given && i < who->group_count; i++)
		if (who->groups[i] == g->gid)
			return true;
	return false;
}

unsigned rest_roles(const struct http_who *who, void *user)
{
	const struct settings *s = ((struct daemon *)user)->settings;

	if (who->names)
		return role_table_find(&s->tls.roles, who->names);
	/* Other hosts' daemons, and whoever reaches that address. */
	if (!who->local)
		return REST_READ_ONLY | REST_PEER;
	if (!who->uid || who->uid == geteuid())
		return REST_ALL;
	if (in_group(who, &s->admin_group))
		return REST_READ_ONLY | REST_NOVA;
	return in_group(who, &s->read_group) ? REST_READ_ONLY : 0;
}

/* The file keeps all others out: only the group that may less, or the only one, can connect. */
static void give_socket(const struct settings *s)
{
	const struct settings_group *g = s->read_group.given ? &s->read_group : &s->admin_group;

	if (g->given && chown(s->socket, (uid_t)-1, g->gid))
		log_warn("%s: cannot be given to group %u: %s", s->socket, (unsigned)g->gid,
			 strerror(errno));
}

static int serve(struct daemon *d, int fd, struct tls *tls, struct http_server **ret_server)
{
	int rc = http_server_new(d->loop, fd, tls, rest_routes, d, ret_server);

	if (rc)
		return rc;
	http_server_set_roles(*ret_server, rest_roles);
	return http_server_limit(*ret_server, d->settings->requests_per_s);
}

int rest_start(struct daemon *d, char **ret_error)
{
	const struct settings *s = d->settings;
	int fd, rc;

	make_parent_dir(s->socket);
	fd = http_listen_unix(s->socket, 0660);
	if (fd < 0) {
		*ret_error = strf("socket = %s: cannot listen: %s; it must be a path in a folder "
				  "where sockets can be made",
				  s->socket, strerror(-fd));
		return fd;
	}
	give_socket(s);
	rc = serve(d, fd, NULL, &d->unix_server);
	if (rc || !s->listen)
		return rc;
	fd = http_listen_tcp(s->listen);
	if (fd < 0) {
		*ret_error = strf("listen = %s: cannot listen: %s; it must be ADDR:PORT of this "
				  "host, with a port that nobody has",
				  s->listen, strerror(-fd));
		return fd;
	}
	return serve(d, fd, d->tls, &d->tcp_server);
}

void rest_stop(struct daemon *d)
{
	http_server_free(d->unix_server);
	http_server_free(d->tcp_server);
	unlink(d->settings->socket);
}
