/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Drains over played hosts: the job with its real REST, client and workers; each host's ibvmigd is
 * a server here that has VMs, VFs and jobs of its own. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/http/client.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/base/daemon.h"
#include "daemon/fleet/drain.h"
#include "daemon/store/durable.h"
#include "daemon/fleet/drained.h"
#include "daemon/base/job.h"
#include "daemon/store/journal.h"
#include "daemon/base/settings.h"

#define HOSTS      3
#define SILENT     16
#define VMS        8
#define PARALLEL   3
#define DEADLINE_S 60 /* only a fault takes so long */

enum { A, B, C };

/* The fate of a migration that is asked for. */
enum fate {
	GOES,
	GOES_IN_COMPANY, /* goes, but only when as many as are allowed have been under way */
	REFUSED_BESIDE_OTHERS,
	NEVER_ENDS,
	FORGOTTEN_AND_GONE,
	PARKS,
	LIBVIRTD_ENDS, /* when it has gone, and does not come back */
};

struct played_vm {
	char name[16];
	int host;
	enum fate fate;
	bool moving, refused;
	int to;
	unsigned polls;
	uint64_t job;
	unsigned asked;
};

static struct played_host {
	const char *name;
	char url[128];
	struct http_server *server;
	unsigned free_vfs;
	bool drained, cannot_tell;
} hosts[HOSTS] = {{.name = "hosta"}, {.name = "hostb"}, {.name = "hostc"}};

static struct played_vm vms[VMS];
static unsigned vm_count, most_moving;
static uint64_t last_job;
static struct settings_peer peers[HOSTS + SILENT];
static struct settings settings = {.host_name = "hosta", .peers = peers, .peer_count = HOSTS - 1};
static struct daemon d = {.settings = &settings, .recovered = true};
static char state_dir[] = "/tmp/ibvmig-drain-XXXXXX";

/* ---- the hosts ---- */

static struct json_object *parse(const char *text)
{
	struct json_object *o = NULL;

	assert_int_equal(json_parse(text, strlen(text), &o), 0);
	return o;
}

static void get_host(struct http_request *req)
{
	struct played_host *h = req->user;
	struct json_object *o, *list, *vfs;

	if (h->cannot_tell) {
		http_fail(req->exchange, 503, "no-libvirt", "libvirtd is away");
		return;
	}
	list = json_object_new_array();
	vfs = json_object_new_array();
	o = parse("{\"memory_available_bytes\":1073741824,\"pfs\":[{\"name\":\"pf0\",\"pkeys\":["
		  "\"0x8001\"]}]}");
	json_set_str(o, "host", h->name);
	json_set_bool(o, "drained", h->drained);
	for (unsigned i = 0; i < vm_count; i++) {
		struct json_object *v;

		if (&hosts[vms[i].host] != h)
			continue;
		v = parse("{\"memory_bytes\":1048576,\"vfs\":[{\"pf\":\"pf0\",\"pkey\":\"0x8001\","
			  "\"vguid\":\"0x0000000000000001\"}]}");
		json_set_str(v, "name", vms[i].name);
		json_set_str(v, "uuid", vms[i].name);
		json_object_array_add(list, v);
	}
	for (unsigned i = 0; i < h->free_vfs; i++)
		json_object_array_add(vfs, parse("{\"pf\":\"pf0\",\"parked_guid\":\"0x2\"}"));
	json_set(o, "domains", list);
	json_set(o, "vfs", vfs);
	http_reply(req->exchange, 200, o);
}

static struct played_vm *vm_named(const char *name)
{
	for (unsigned i = 0; i < vm_count; i++)
		if (!strcmp(vms[i].name, name))
			return &vms[i];
	return NULL;
}

static unsigned moving(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < vm_count; i++)
		n += vms[i].moving;
	return n;
}

static struct json_object *job_json(const struct played_vm *v, const char *state)
{
	struct json_object *o = json_object_new_object();

	json_set_u64(o, "job", v->job);
	json_set_str(o, "vm", v->name);
	json_set_str(o, "state", state);
	return o;
}

static void post_migrate(struct http_request *req)
{
	struct played_vm *v = vm_named(json_opt_str(req->body, "vm", ""));

	assert_non_null(v);
	assert_ptr_equal(req->user, &hosts[v->host]);
	assert_false(v->moving);
	v->asked++;
	/* Chance decides which of several requests arrives first. The first is refused whoever
	 * moves yet, and the second has to find nobody else. */
	v->refused = v->fate == REFUSED_BESIDE_OTHERS && (v->asked == 1 || moving());
	v->moving = true;
	v->polls = 0;
	v->job = ++last_job;
	v->to = !strcmp(json_opt_str(req->body, "to", ""), "hostb") ? B : C;
	if (moving() > most_moving)
		most_moving = moving();
	http_reply(req->exchange, 202, job_json(v, "running"));
}

static void arrive(struct played_vm *v)
{
	v->moving = false;
	v->host = v->to;
}

static bool may_arrive(struct played_vm *v)
{
	return v->fate != NEVER_ENDS && ++v->polls > 1 &&
	       (v->fate != GOES_IN_COMPANY || most_moving == PARALLEL);
}

static void get_job(struct http_request *req)
{
	struct json_object *o;
	struct played_vm *v = NULL;

	for (unsigned i = 0; i < vm_count; i++)
		if (vms[i].job == strtoull(req->param, NULL, 10))
			v = &vms[i];
	assert_non_null(v);
	if (v->fate == FORGOTTEN_AND_GONE && v->moving) {
		arrive(v);
		http_fail(req->exchange, 404, "not-found", "there is no such job");
		return;
	}
	if (v->moving && v->refused) {
		v->moving = false;
		o = job_json(v, "failed");
		json_set_str(o, "error", "peer VM is migrating itself");
	} else if (v->moving && v->fate == LIBVIRTD_ENDS) {
		arrive(v);
		hosts[A].cannot_tell = true;
		o = job_json(v, "failed");
		json_set_str(o, "error", "end of file from libvirtd");
		json_set(o, "migration", parse("{\"state\":\"DONE\"}"));
	} else if (v->moving && v->fate == PARKS) {
		v->moving = false;
		o = job_json(v, "done");
		json_set(o, "migration", parse("{\"state\":\"PARKED\",\"trouble\":\"disk full\"}"));
	} else if (!v->moving) {
		o = job_json(v, "failed");
		json_set_str(o, "error", "cancelled by the user");
	} else if (may_arrive(v)) {
		arrive(v);
		o = job_json(v, "done");
	} else {
		o = job_json(v, "running");
	}
	http_reply(req->exchange, 200, o);
}

static void post_cancel(struct http_request *req)
{
	vm_named(json_opt_str(req->body, "vm", ""))->moving = false;
	http_reply(req->exchange, 202, NULL);
}

static void post_drained(struct http_request *req)
{
	((struct played_host *)req->user)->drained = json_opt_bool(req->body, "drained", false);
	http_reply(req->exchange, 200, NULL);
}

static void post_ranks(struct http_request *req)
{
	http_fail(req->exchange, 503, "sm-unavailable", "OpenSM is away");
}

static const struct http_route host_routes[] = {
	{"GET", "/v1/host", get_host, REST_NOVA},
	{"GET", "/v1/jobs/*", get_job, REST_NOVA},
	{"POST", "/v1/peer/migrate", post_migrate, REST_NOVA},
	{"POST", "/v1/peer/cancel", post_cancel, REST_NOVA},
	{"POST", "/v1/peer/drained", post_drained, REST_NOVA},
	{"POST", "/v1/ranks", post_ranks, REST_NOVA},
	{0},
};

/* ---- asking ---- */

static const struct http_route routes[] = {
	{"GET", "/v1/drains", drain_get_all, REST_NOVA},
	{"GET", "/v1/drains/*", drain_get, REST_NOVA},
	{"POST", "/v1/drains", drain_post, REST_NOVA},
	{"POST", "/v1/drains/*/abort", drain_post_abort, REST_NOVA},
	{"POST", "/v1/hosts/*/undrain", drained_post_undrain, REST_NOVA},
	{0},
};

static char base[128];

struct call {
	const char *method, *path, *body;
	int rc;
	char error[HTTP_ERROR_MAX];
	struct json_object *answer;
	bool done;
};

static void run_call(void *arg)
{
	struct call *c = arg;
	struct json_object *body AUTO_JSON = c->body ? parse(c->body) : NULL;

	c->rc = http_call(base, c->method, c->path, body, DEADLINE_S * 1000, &c->answer, c->error);
}

static void call_done(void *arg)
{
	((struct call *)arg)->done = true;
}

/* The answer, or with ret_error the refusal, lives until the next call. */
static struct json_object *ask(const char *method, const char *path, const char *body,
			       const char **ret_error)
{
	static struct call c;

	json_object_put(c.answer);
	c = (struct call){.method = method, .path = path, .body = body};
	assert_int_equal(work_submit(d.pool, run_call, call_done, &c), 0);
	while (!c.done)
		assert_true(sd_event_run(d.loop, UINT64_MAX) >= 0);
	if (ret_error)
		*ret_error = c.rc ? c.error : NULL;
	else if (c.rc)
		fail_msg("%s %s: %s", method, path, c.error);
	return c.answer;
}

static struct json_object *look(uint64_t number)
{
	char *path AUTO_FREE = strf("/v1/drains/%llu", (unsigned long long)number);

	return ask("GET", path, NULL, NULL);
}

/* Until it is in another state than "planning" or "running". */
static struct json_object *end_of(uint64_t number)
{
	uint64_t until = now_ms() + DEADLINE_S * 1000;
	struct json_object *o;

	do
		o = look(number);
	while ((str_eq(json_opt_str(o, "state", ""), "running") ||
		str_eq(json_opt_str(o, "state", ""), "planning")) &&
	       now_ms() < until);
	return o;
}

static uint64_t count(struct json_object *drain, const char *state)
{
	return json_opt_u64(json_opt(drain, "counts"), state, 0);
}

static struct json_object *move_of(struct json_object *drain, const char *vm)
{
	struct json_object *list = json_opt(drain, "moves");

	for (size_t i = 0; i < json_count(list); i++)
		if (str_eq(json_opt_str(json_object_array_get_idx(list, i), "vm", ""), vm))
			return json_object_array_get_idx(list, i);
	return NULL;
}

static uint64_t begin(const char *body)
{
	return json_opt_u64(ask("POST", "/v1/drains", body, NULL), "drain", 0);
}

/* n VMs on hosta. */
static void reset(unsigned n)
{
	memset(vms, 0, sizeof vms);
	vm_count = n;
	most_moving = 0;
	hosts[A].free_vfs = 0;
	hosts[B].free_vfs = hosts[C].free_vfs = VMS;
	hosts[A].drained = hosts[B].drained = hosts[C].drained = false;
	hosts[A].cannot_tell = false;
	for (unsigned i = 0; i < n; i++)
		snprintf(vms[i].name, sizeof vms[i].name, "g%u", i);
}

static bool all_gone(void)
{
	for (unsigned i = 0; i < vm_count; i++)
		if (vms[i].host == A)
			return false;
	return true;
}

/* ---- memory that is not there ---- */

/* The next calls of each kind, so many, cannot be started. */
static unsigned no_migrate, no_job;

int __real_job_start(struct daemon *daemon, struct json_object *in, void (*run)(struct job *j),
		     void (*done)(struct job *j), void *owner, uint64_t serial);
int __wrap_job_start(struct daemon *daemon, struct json_object *in, void (*run)(struct job *j),
		     void (*done)(struct job *j), void *owner, uint64_t serial);

int __wrap_job_start(struct daemon *daemon, struct json_object *in, void (*run)(struct job *j),
		     void (*done)(struct job *j), void *owner, uint64_t serial)
{
	const char *path = json_opt_str(in, "path", "");
	unsigned *left = str_eq(path, "/v1/peer/migrate") ? &no_migrate
			 : !strncmp(path, "/v1/jobs/", 9) ? &no_job
							  : NULL;

	if (!left || !*left)
		return __real_job_start(daemon, in, run, done, owner, serial);
	--*left;
	json_object_put(in);
	return -ENOMEM;
}

/* ---- tests ---- */

static void test_all_go(void **state)
{
	struct json_object *o;

	(void)state;
	reset(5);
	for (unsigned i = 0; i < vm_count; i++)
		vms[i].fate = GOES_IN_COMPANY;
	o = end_of(begin("{\"host\":\"hosta\",\"parallel\":3}"));
	assert_string_equal(json_opt_str(o, "state", ""), "done");
	assert_int_equal(count(o, "done"), 5);
	assert_true(all_gone());
	assert_int_equal(most_moving, PARALLEL);
	/* Without ibvmig-sm's word it goes on, and says so. */
	assert_false(json_opt_bool(o, "ranked", true));
	assert_non_null(strstr(json_opt_str(o, "rank_error", ""), "OpenSM is away"));
	o = end_of(begin("{\"host\":\"hosta\"}"));
	assert_int_equal(json_count(json_opt(o, "moves")), 0);
	assert_string_equal(json_opt_str(o, "state", ""), "done");
}

/* A question that could not be asked is asked again: a move that was begun without a call would run
 * for ever. */
static void test_no_memory_for_calls(void **state)
{
	struct json_object *o;

	(void)state;
	reset(2);
	no_migrate = no_job = 2;
	o = end_of(begin("{\"host\":\"hosta\"}"));
	assert_int_equal(no_migrate + no_job, 0);
	assert_string_equal(json_opt_str(o, "state", ""), "done");
	assert_int_equal(count(o, "done"), 2);
	assert_true(all_gone());
	assert_int_equal(vms[0].asked + vms[1].asked, 2);
}

/* The host that is emptied takes nobody, whoever runs the drain, until that is ended. */
static void test_the_mark(void **state)
{
	const char *error;

	(void)state;
	reset(1);
	ask("POST", "/v1/drains", "{\"host\":\"hosta\",\"dry_run\":true}", NULL);
	ask("POST", "/v1/drains", "{\"vms\":[\"g0\"],\"dry_run\":true}", NULL);
	end_of(begin("{\"moves\":[{\"vm\":\"g0\",\"from\":\"hosta\",\"to\":\"hostb\"}]}"));
	assert_false(hosts[A].drained);
	end_of(begin("{\"host\":\"hostb\",\"to\":[\"hosta\",\"hostc\"]}"));
	assert_true(hosts[B].drained);
	assert_false(hosts[A].drained || hosts[C].drained);
	ask("POST", "/v1/hosts/hostx/undrain", NULL, &error);
	assert_non_null(strstr(error, "\"hostx\" is neither this host nor a peer"));
	ask("POST", "/v1/hosts/hostb/undrain", NULL, NULL);
	assert_false(hosts[B].drained);
}

static void test_drained_ones_are_left_out(void **state)
{
	struct json_object *o;

	(void)state;
	reset(1);
	hosts[B].drained = true;
	o = ask("POST", "/v1/drains", "{\"host\":\"hosta\",\"dry_run\":true}", NULL);
	assert_string_equal(json_opt_str(move_of(o, "g0"), "to", ""), "hostc");
	hosts[C].drained = true;
	o = ask("POST", "/v1/drains", "{\"host\":\"hosta\",\"dry_run\":true}", NULL);
	assert_non_null(strstr(json_opt_str(move_of(o, "g0"), "reason", ""),
			       "hostc is drained (ibvmig undrain hostc ends that)"));
}

static void test_another_host(void **state)
{
	struct json_object *o;

	(void)state;
	reset(2);
	vms[0].host = B;
	o = end_of(begin("{\"host\":\"hostb\",\"to\":[\"hostc\"]}"));
	assert_int_equal(count(o, "done"), 1);
	assert_int_equal(vms[0].host, C);
	assert_int_equal(vms[1].host, A);
}

static void test_dry_run(void **state)
{
	struct json_object *o;

	(void)state;
	reset(2);
	o = ask("POST", "/v1/drains", "{\"host\":\"hosta\",\"dry_run\":true}", NULL);
	assert_string_equal(json_opt_str(o, "state", ""), "planned");
	assert_int_equal(json_count(json_opt(o, "moves")), 2);
	assert_int_equal(vms[0].asked + vms[1].asked, 0);
}

static void test_named_twice(void **state)
{
	struct json_object *o;

	(void)state;
	reset(2);
	hosts[B].free_vfs = 1;
	o = ask("POST", "/v1/drains",
		"{\"host\":\"hosta\",\"to\":[\"hostb\",\"hostb\"],\"dry_run\":true}", NULL);
	assert_int_equal(count(o, "cannot"), 1);
}

static struct {
	struct pollfd call[SILENT];
	unsigned calls, most; /* most: at once */
} silent;

/* Takes a call, and never answers. A caller that has given up has hung up. */
static int on_call(sd_event_source *source, int fd, uint32_t events, void *user)
{
	unsigned under_way = 0;
	int call = accept(fd, NULL, NULL);

	(void)source;
	(void)events;
	(void)user;
	assert_true(call >= 0 && silent.calls < SILENT);
	silent.call[silent.calls++].fd = call;
	assert_true(poll(silent.call, silent.calls, 0) >= 0);
	for (unsigned i = 0; i < silent.calls; i++)
		under_way += !(silent.call[i].revents & POLLHUP);
	if (under_way > silent.most)
		silent.most = under_way;
	return 0;
}

/* Hosts that are off must not add up: each is waited for three seconds, together with others. */
static void test_silent_hosts(void **state)
{
	char url[128], *path = url + 5;
	sd_event_source *source = NULL;
	struct json_object *o;
	struct pollfd p = {.events = POLLIN};

	(void)state;
	reset(1);
	snprintf(url, sizeof url, "unix:/tmp/ibvmig-drain-%d-silent", getpid());
	p.fd = http_listen_unix(path, 0600);
	assert_true(p.fd >= 0);
	assert_true(sd_event_add_io(d.loop, &source, p.fd, EPOLLIN, on_call, NULL) >= 0);
	for (int i = 0; i < SILENT; i++)
		peers[HOSTS - 1 + i] = (struct settings_peer){strf("silent%d", i), url};
	settings.peer_count = HOSTS - 1 + SILENT;
	o = ask("POST", "/v1/drains", "{\"vms\":[\"g0\"],\"dry_run\":true}", NULL);
	settings.peer_count = HOSTS - 1;
	assert_int_equal(json_count(json_opt(move_of(o, "g0"), "candidates")), HOSTS - 1 + SILENT);
	while (poll(&p, 1, 0) > 0) /* a call that the loop has not come to */
		on_call(source, p.fd, EPOLLIN, NULL);
	assert_int_equal(silent.calls, SILENT);
	assert_true(silent.most > 1);
	for (int i = 0; i < SILENT; i++) {
		free(peers[HOSTS - 1 + i].name);
		close(silent.call[i].fd);
	}
	sd_event_source_unref(source);
	close(p.fd);
	unlink(path);
}

static void test_marked_but_not_planned(void **state)
{
	const char *error;

	(void)state;
	reset(1);
	hosts[A].cannot_tell = true;
	ask("POST", "/v1/drains", "{\"host\":\"hosta\"}", &error);
	assert_true(hosts[A].drained);
	assert_non_null(error);
	assert_non_null(strstr(error, "libvirtd is away"));
	assert_non_null(strstr(error, "ibvmig undrain hosta"));
}

static void test_one_cannot(void **state)
{
	struct json_object *o;

	(void)state;
	reset(3);
	hosts[B].free_vfs = hosts[C].free_vfs = 1;
	o = end_of(begin("{\"host\":\"hosta\"}"));
	assert_int_equal(count(o, "done"), 2);
	assert_int_equal(count(o, "cannot"), 1);
	assert_string_equal(json_opt_str(move_of(o, "g2"), "reason", ""),
			    "hostb has no free VF on pf0; hostc has no free VF on pf0");
}

/* Two that talk to each other: the second one is refused at first, and goes alone afterwards. */
static void test_refused_beside_another(void **state)
{
	struct json_object *o;

	(void)state;
	reset(3);
	vms[1].fate = REFUSED_BESIDE_OTHERS;
	o = end_of(begin("{\"host\":\"hosta\",\"parallel\":3}"));
	assert_int_equal(count(o, "done"), 3);
	assert_int_equal(vms[1].asked, 2);
	assert_int_equal(vms[0].asked + vms[2].asked, 2);
}

static void test_a_host_forgets(void **state)
{
	(void)state;
	reset(1);
	vms[0].fate = FORGOTTEN_AND_GONE;
	assert_int_equal(count(end_of(begin("{\"host\":\"hosta\"}")), "done"), 1);
	assert_int_equal(vms[0].asked, 1);
}

static void test_parked(void **state)
{
	struct json_object *o;

	(void)state;
	reset(2);
	vms[0].fate = PARKS;
	o = end_of(begin("{\"host\":\"hosta\"}"));
	assert_int_equal(count(o, "parked"), 1);
	assert_int_equal(count(o, "done"), 1);
	assert_string_equal(json_opt_str(move_of(o, "g0"), "reason", ""), "disk full");
}

static void test_libvirtd_ends(void **state)
{
	struct json_object *o;

	(void)state;
	reset(1);
	vms[0].fate = LIBVIRTD_ENDS;
	o = end_of(begin("{\"host\":\"hosta\"}"));
	assert_int_equal(count(o, "done"), 1);
	assert_int_equal(vms[0].asked, 1);
}

static void wait_moving(unsigned n)
{
	uint64_t until = now_ms() + DEADLINE_S * 1000;

	while (moving() < n && now_ms() < until)
		assert_true(sd_event_run(d.loop, UINT64_MAX) >= 0);
	assert_int_equal(moving(), n);
}

static void test_stop_and_cancel(void **state)
{
	char path[64];
	uint64_t n;
	struct json_object *o;

	(void)state;
	reset(4);
	vms[0].fate = NEVER_ENDS;
	n = begin("{\"host\":\"hosta\",\"parallel\":1}");
	wait_moving(1);
	/* Asked again: the one that runs. */
	assert_int_equal(begin("{\"host\":\"hosta\"}"), n);
	snprintf(path, sizeof path, "/v1/drains/%llu/abort", (unsigned long long)n);
	o = ask("POST", path, "{}", NULL);
	assert_int_equal(count(o, "running"), 1);
	assert_string_equal(json_opt_str(o, "state", ""), "running");
	ask("POST", path, "{\"cancel\":true}", NULL);
	o = end_of(n);
	assert_string_equal(json_opt_str(o, "state", ""), "stopped");
	assert_int_equal(count(o, "cancelled"), 4);
	assert_int_equal(vms[1].asked + vms[2].asked + vms[3].asked, 0);
	assert_string_equal(json_opt_str(move_of(o, "g0"), "reason", ""), "cancelled by the user");
}

static void test_moves(void **state)
{
	struct json_object *o;

	(void)state;
	reset(3);
	vms[2].host = B;
	o = end_of(begin("{\"moves\":[{\"vm\":\"g1\",\"from\":\"hosta\",\"to\":\"hostb\"},"
			 "{\"vm\":\"g2\",\"from\":\"hostb\",\"to\":\"hostc\"}]}"));
	assert_int_equal(count(o, "done"), 2);
	assert_int_equal(vms[0].host, A);
	assert_int_equal(vms[1].host, B);
	assert_int_equal(vms[2].host, C);
}

static void test_bad_requests(void **state)
{
	static const char *const bad[][2] = {
		{"{}", "host"},
		{"{\"host\":\"hosta\",\"parallel\":0}", "1 to 16"},
		{"{\"host\":\"hosta\",\"parallel\":17}", "1 to 16"},
		{"{\"host\":\"hosta\",\"parallel\":\"4\"}", "1 to 16"},
		{"{\"host\":\"hosta\",\"dry_run\":\"true\"}", "dry_run must be true or false"},
		{"{\"host\":\"hosta\",\"persistent\":1}", "persistent must be true or false"},
		{"{\"host\":5,\"vms\":[\"g1\"]}", "host must be a string"},
		{"{\"host\":\"nowhere\"}", "nowhere"},
		{"{\"host\":\"hosta\",\"to\":[\"nowhere\"]}", "nowhere"},
		{"{\"host\":\"hosta\",\"to\":[\"hosta\"]}", "to leave"},
		{"{\"host\":\"hosta\",\"to\":\"hostb\"}", "to must be a list"},
		{"{\"host\":\"hosta\",\"to\":[]}", "to must be a list"},
		{"{\"vms\":[\"ghost\"]}", "ghost"},
		{"{\"host\":\"hosta\",\"moves\":[{}]}", "host"},
		{"{\"moves\":[{\"vm\":\"g0\",\"from\":\"x\",\"to\":\"hostb\"}]}", "\"x\""},
		{"{\"moves\":[7]}", "from"},
	};
	const char *error;

	(void)state;
	reset(1);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ask("POST", "/v1/drains", bad[i][0], &error);
		if (!error || !strstr(error, bad[i][1]))
			fail_msg("%s: %s", bad[i][0], error ? error : "accepted");
	}
	ask("GET", "/v1/drains/9999", NULL, &error);
	assert_non_null(error);
	assert_int_equal(vms[0].asked, 0);
}

static int serve(const char *name, const struct http_route *r, void *user, char url[128],
		 struct http_server **ret_server)
{
	snprintf(url, 128, "unix:/tmp/ibvmig-drain-%d-%s", getpid(), name);
	return http_server_new(d.loop, http_listen_unix(url + 5, 0600), NULL, r, user, ret_server);
}

static struct http_server *own_server;

/* Returns the journal's record of a drain that runs; the drain is then cancelled. */
static struct json_object *saved_of(const char *body)
{
	struct json_object *saved, *none AUTO_JSON = NULL;
	char *path AUTO_FREE = NULL;
	uint64_t n;

	reset(1);
	vms[0].fate = NEVER_ENDS;
	n = begin(body);
	saved = journal_drains(d.journal);
	assert_int_equal(json_count(saved), 1);
	path = strf("/v1/drains/%llu/abort", (unsigned long long)n);
	ask("POST", path, "{\"cancel\":true}", NULL);
	none = journal_drains(d.journal);
	assert_int_equal(json_count(none), 0);
	end_of(n);
	return saved;
}

/* A daemon that starts takes the drains of its journal up. */
static void test_taken_up(void **state)
{
	static const char *const bodies[] = {
		"{\"host\":\"hosta\"}",
		"{\"moves\":[{\"vm\":\"g0\",\"from\":\"hosta\",\"to\":\"hostc\"}]}",
		"{\"vms\":[\"g0\"]}"};
	struct drains *own = d.drains;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		struct json_object *saved AUTO_JSON = saved_of(bodies[i]), *none AUTO_JSON = NULL;
		struct json_object *one = json_object_array_get_idx(saved, 0), *o;
		struct json_object *wanted = json_opt(json_opt(one, "asked"), "vms");

		if (wanted) /* this VM had gone already */
			json_object_array_add(wanted, json_object_new_string("gone"));
		reset(1);
		json_set_u64(one, "number", 500);
		assert_int_equal(journal_drain_put(d.journal, 500, json_text(one)), 0);
		assert_int_equal(drain_new(&d, &d.drains), 0);
		o = end_of(500);
		assert_string_equal(json_opt_str(o, "state", ""), "done");
		assert_true(json_opt_bool(o, "taken_up", false));
		assert_int_equal(count(o, "done"), 1);
		assert_true(all_gone());
		none = journal_drains(d.journal);
		assert_int_equal(json_count(none), 0);
		drain_free(d.drains);
		d.drains = own;
	}
}

static int setup(void **state)
{
	char *error = NULL;

	(void)state;
	setenv("IBVMIG_LOG", "error", 1);
	log_init("test");
	http_client_init();
	if (!mkdtemp(state_dir) || journal_open(state_dir, 100, &d.journal, &error))
		return -1;
	if (loop_new(&d.loop) || durable_new(d.loop, d.journal, &d.durable) ||
	    work_pool_new(d.loop, 8, &d.pool) || drain_new(&d, &d.drains) ||
	    serve("own", routes, &d, base, &own_server))
		return -1;
	for (int i = 0; i < HOSTS; i++) {
		if (serve(hosts[i].name, host_routes, &hosts[i], hosts[i].url, &hosts[i].server))
			return -1;
		if (i)
			peers[i - 1] = (struct settings_peer){(char *)hosts[i].name, hosts[i].url};
	}
	settings.sm_url = settings.url = hosts[A].url;
	return 0;
}

static int teardown(void **state)
{
	char *path AUTO_FREE = NULL;

	(void)state;
	drain_free(d.drains);
	work_pool_free(d.pool);
	durable_free(d.durable);
	http_server_free(own_server);
	unlink(base + 5);
	for (int i = 0; i < HOSTS; i++) {
		http_server_free(hosts[i].server);
		unlink(hosts[i].url + 5);
	}
	sd_event_unref(d.loop);
	journal_close(d.journal);
	path = strf("rm -r %s", state_dir);
	return system(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_go),
		cmocka_unit_test(test_no_memory_for_calls),
		cmocka_unit_test(test_the_mark),
		cmocka_unit_test(test_drained_ones_are_left_out),
		cmocka_unit_test(test_another_host),
		cmocka_unit_test(test_dry_run),
		cmocka_unit_test(test_named_twice),
		cmocka_unit_test(test_silent_hosts),
		cmocka_unit_test(test_marked_but_not_planned),
		cmocka_unit_test(test_one_cannot),
		cmocka_unit_test(test_refused_beside_another),
		cmocka_unit_test(test_a_host_forgets),
		cmocka_unit_test(test_parked),
		cmocka_unit_test(test_libvirtd_ends),
		cmocka_unit_test(test_stop_and_cancel),
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_taken_up),
		cmocka_unit_test(test_bad_requests),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("drain", tests, setup, teardown);
}
