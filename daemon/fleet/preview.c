/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/fleet/preview.h"
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/fleet/capacity.h"
#include "daemon/base/daemon.h"
#include "daemon/fleet/drain.h"
#include "daemon/base/job.h"
#include "daemon/base/partition.h"
#include "daemon/migrate/src.h"
#include "daemon/migrate/step.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/libvirt/virt.h"
#include "daemon/vm/vm.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define QUERY_MS 3000

/* answer grows while the VM, its guest, the hosts and the fabric are asked, in this order. */
struct preview {
	struct daemon *d; /* borrowed */
	struct http_exchange *exchange;
	char uuid[37];              /* "" for a VM without a VF */
	struct json_object *in;     /* owned until the worker has it */
	struct json_object *answer; /* owned */
	enum domain_strategy asked;
	bool paused;
};

static const char *str(struct json_object *o, const char *key)
{
	return json_opt_str(o, key, "");
}

static void add_line(struct json_object *answer, const char *list, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void add_line(struct json_object *answer, const char *list, const char *fmt, ...)
{
	char text[HTTP_ERROR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	json_object_array_add(json_opt(answer, list), json_object_new_string(text));
}

/* ---- the hosts and the fabric: a worker ---- */

/* The way that VFs are addressed decides where the vGUID's LID goes. */
static void ask_address(struct job *j, struct json_object *vf)
{
	struct json_object *o AUTO_JSON = NULL;
	char path[64], why[HTTP_ERROR_MAX];

	snprintf(path, sizeof path, "/v1/vguids/%.40s", str(vf, "vguid"));
	if (sm_call(j->d->settings, "GET", path, NULL, &o, why))
		return;
	if (json_opt(o, "lid"))
		json_set(vf, "lid", json_object_get(json_opt(o, "lid")));
	json_set_str(vf, "addresses", json_opt_str(o, "addresses", NULL));
}

static void ask_fabric(struct job *j, struct json_object *answer)
{
	struct json_object *vfs = json_opt(answer, "vfs");
	char why[HTTP_ERROR_MAX];
	bool caching;

	if (sm_check(j->d->settings, &caching, why))
		add_line(answer, "blocked", "%s", why);
	for (size_t i = 0; i < json_count(vfs); i++)
		ask_address(j, json_object_array_get_idx(vfs, i));
}

static void add_note(void *arg, const char *text)
{
	add_line(arg, "notes", "%s", text);
}

/* The plan has said which vGUID is no member: what is left is what the guest uses. */
static void judge_partitions(struct job *j, struct json_object *answer)
{
	struct json_object *told = json_opt(j->out, "partitions"), *vfs = json_opt(answer, "vfs");
	struct json_object *used = json_opt(j->in, "pkeys");
	char why[HTTP_ERROR_MAX];

	if (!j->d->settings->sm_url)
		return;
	if (!partition_judge(told, vfs, NULL, why, sizeof why) &&
	    partition_judge(told, vfs, used, why, sizeof why))
		add_line(answer, "blocked", "%s", why);
	partition_remarks(told, vfs, add_note, answer);
}

static void check_peer(struct json_object *answer, struct json_object *peer)
{
	struct json_object *body AUTO_JSON = json_object_new_object();
	struct json_object *guids = json_object_new_array(), *movers = json_object_new_array();
	struct json_object *vfs = json_opt(answer, "vfs");
	char why[HTTP_ERROR_MAX];

	json_object_array_add(guids, json_object_new_string(str(peer, "guid")));
	json_set_str(body, "migration", "");
	for (size_t i = 0; i < json_count(vfs); i++)
		json_object_array_add(movers, json_object_new_string(str(
						      json_object_array_get_idx(vfs, i), "vguid")));
	json_set(body, "vguids", movers);
	json_set(body, "guids", guids);
	if (ask_peers_at(str(peer, "url"), body, MIGRATE_PEER_QUERY_MS, why))
		json_set_str(peer, "problem", why);
}

struct asked {
	struct job *j;
	struct json_object *answer, *peers; /* borrowed */
	size_t first;
};

/* Every peer has an object of its own. */
static void ask_peer(void *arg, size_t i)
{
	const struct asked *a = arg;
	struct json_object *peer = json_object_array_get_idx(a->peers, a->first + i);
	char why[HTTP_ERROR_MAX];

	if (ask_find_peer(a->j->d->settings, peer, why))
		json_set_str(peer, "problem", why);
	else
		check_peer(a->answer, peer);
	json_object_object_del(peer, "url");
}

/* Several at once: those whose hosts are silent must not add up. */
static void ask_peers(struct job *j, struct json_object *answer)
{
	struct asked a = {.j = j, .answer = answer, .peers = json_opt(answer, "peers")};
	size_t count = json_count(a.peers), n;

	for (; a.first < count; a.first += n) {
		n = count - a.first < WORK_EACH_MAX ? count - a.first : WORK_EACH_MAX;
		work_each(n, ask_peer, &a);
	}
	for (size_t i = 0; i < count; i++) {
		struct json_object *peer = json_object_array_get_idx(a.peers, i);

		if (*str(peer, "problem"))
			add_line(answer, "blocked", "its peer %s on %s: %s", str(peer, "guid"),
				 json_opt_str(peer, "host", "no known host"), str(peer, "problem"));
	}
}

static void take_plan(struct job *j, struct json_object *answer)
{
	struct json_object *move = json_object_array_get_idx(json_opt(j->out, "moves"), 0);

	if (*str(move, "reason"))
		add_line(answer, "blocked", "%s", str(move, "reason"));
	json_set_u64(answer, "memory_bytes", json_opt_u64(move, "memory_bytes", 0));
	json_set(answer, "cost", json_object_get(json_opt(move, "cost")));
	json_set_str(answer, "rank_error", json_opt_str(j->out, "rank_error", NULL));
}

static void look_around(struct job *j)
{
	struct json_object *answer = json_opt(j->in, "answer");

	drain_plan_run(j);
	if (j->rc)
		return;
	take_plan(j, answer);
	if (json_count(json_opt(answer, "vfs")))
		ask_fabric(j, answer);
	judge_partitions(j, answer);
	ask_peers(j, answer);
}

static void looked(struct job *j)
{
	struct preview *p = j->owner;
	struct json_object *answer = json_opt(j->in, "answer");

	if (j->rc) {
		http_fail(p->exchange, j->rc == -ENOENT ? 404 : 503, "no-preview", "%s", j->error);
	} else {
		json_set_bool(answer, "possible", !json_count(json_opt(answer, "blocked")));
		http_reply(p->exchange, 200, json_object_get(answer));
	}
	free(p);
}

static void ask_hosts(struct preview *p)
{
	json_set(p->in, "answer", TAKE(p->answer));
	if (job_look(p->d, p->exchange, TAKE(p->in), look_around, looked, p))
		free(p);
}

/* ---- the VM and its guest: the loop ---- */

static void list_peers(struct preview *p, const struct vm *vm, struct json_object *query)
{
	struct json_object *list = json_opt(query, "peers"), *peers = json_opt(p->answer, "peers");

	for (size_t i = 0; i < json_count(list) && json_count(peers) < MIGRATE_PEERS_MAX; i++) {
		struct json_object *peer;
		char text[IB_GUID_TEXT];
		struct ib_gid gid;

		if (ib_gid_parse(str(json_object_array_get_idx(list, i), "dgid"), &gid) ||
		    vm_has_guid(vm, gid.guid))
			continue;
		ib_guid_format(gid.guid, text);
		if (json_find(peers, "guid", text))
			continue;
		peer = json_object_new_object();
		json_set_str(peer, "guid", text);
		json_object_array_add(peers, peer);
	}
}

/* query: the agent's answer, or NULL, and error says why there is none. */
static void choose(struct preview *p, struct vm *vm, struct json_object *query, const char *error)
{
	struct strategy_facts f;
	struct strategy_choice c;
	char why[HTTP_ERROR_MAX];

	choice_facts(vm, query, &f);
	f.paused = p->paused ? vm->name : NULL;
	/* The destination's VF is known only when it is prepared. */
	f.state_there = f.state_here;
	if (strategy_choose(p->asked, &f, &c)) {
		strategy_refusal(p->asked, &c, why, sizeof why);
		add_line(p->answer, "blocked", "%s",
			 f.agent_needed && !f.agent && !f.paused && !f.blocked ? error : why);
	} else if (c.chosen == STRATEGY_NATIVE) {
		add_line(p->answer, "notes",
			 "native if each VF there takes the state of the one here, which is seen "
			 "when it is prepared");
	} else if (query) {
		choice_uncovered(query, why, sizeof why);
		if (*why)
			add_line(p->answer, "blocked", "%s", why);
		list_peers(p, vm, query);
		partition_used(query, json_opt(p->in, "pkeys"));
	}
	json_set(p->answer, "choice", strategy_json(p->asked, &c));
}

/* Or NULL, which the answer then says. */
static struct vm *still_there(struct preview *p)
{
	struct vm *vm = vm_find(p->d, p->uuid);

	if (vm && vm_has_vfs(vm))
		return vm;
	add_line(p->answer, "blocked", "the VM has ended");
	return NULL;
}

static void queried(void *arg, int rc, struct json_object *query, const char *error)
{
	struct preview *p = arg;
	struct vm *vm = still_there(p);

	if (vm)
		choose(p, vm, rc ? NULL : query, error);
	ask_hosts(p);
}

static void ask_guest(struct preview *p, struct vm *vm)
{
	struct json_object *msg;
	char why[HTTP_ERROR_MAX];

	if (!p->paused && agent_state(vm->agent) == AGENT_UP) {
		msg = json_object_new_object();
		json_set_str(msg, "op", "query");
		agent_request(vm->agent, msg, QUERY_MS, queried, p);
		return;
	}
	snprintf(why, sizeof why,
		 "no ibvmig-agent answers in VM %s: start it in the guest, with the channel %s",
		 vm->name, DOMAIN_CHANNEL);
	choose(p, vm, NULL, why);
	ask_hosts(p);
}

/* ---- whether it runs, and what its metadata asks for, which may have changed since the VM
 * started: a worker ---- */

static void read_strategy(struct job *j)
{
	struct domain_info *info = NULL;
	char *xml AUTO_FREE = NULL;

	j->rc = virt_domain_xml(j->d->virt, str(j->in, "vm"), &xml, j->error);
	if (j->rc || domain_parse(xml, strlen(xml), &info))
		return;
	json_set_u64(j->out, "strategy", info->strategy);
	domain_free(info);
}

static void look_at_vm(struct job *j)
{
	enum virt_state state = VIRT_RUNS;

	virt_state(j->d->virt, str(j->in, "vm"), &state, j->error);
	json_set_bool(j->out, "paused", state == VIRT_STANDS);
	if (json_opt_bool(j->in, "metadata", false))
		read_strategy(j);
}

static void looked_at_vm(struct job *j)
{
	struct preview *p = j->owner;
	struct vm *vm = still_there(p);

	p->paused = json_opt_bool(j->out, "paused", false);
	p->asked = (enum domain_strategy)json_opt_u64(j->out, "strategy", p->asked);
	if (vm)
		ask_guest(p, vm);
	else
		ask_hosts(p);
}

/* The last known state has to do where libvirt does not answer, or there is no memory. */
static void ask_libvirt(struct preview *p, struct vm *vm, bool metadata)
{
	struct json_object *in = json_object_new_object();

	json_set_str(in, "vm", vm->uuid);
	json_set_bool(in, "metadata", metadata);
	if (job_start(p->d, in, look_at_vm, looked_at_vm, p, 0))
		ask_guest(p, vm);
}

static void tell_vm(struct preview *p, const struct vm *vm)
{
	const struct migration *m = migrate_open(p->d, vm->uuid);

	if (m)
		add_line(p->answer, "blocked",
			 "migration %s of it is in %s: `ibvmig status %s` shows it", m->rec.id,
			 migrate_state_name(m->rec.state), vm->name);
	if (!vm_has_vfs(vm)) {
		add_line(p->answer, "notes", "it runs without a VF (%s), and would go so",
			 vm->problem ? vm->problem : vm_state_name(vm));
		return;
	}
	vm_set_vfs(p->answer, vm);
}

/* ---- what is asked for ---- */

/* Returns the input of a daemon/fleet/drain.h plan for this VM and this host alone. */
static struct json_object *plan_input(const struct settings *s, const char *vm, const char *to)
{
	struct json_object *in = json_object_new_object(), *targets = json_object_new_array(),
			   *vms = json_object_new_array();

	json_object_array_add(targets, capacity_host(to, settings_peer_url(s, to)));
	json_object_array_add(vms, json_object_new_string(vm));
	json_set(in, "from", capacity_host(s->host_name, s->url));
	json_set(in, "targets", targets);
	json_set(in, "vms", vms);
	return in;
}

static void begin(struct preview *p, const char *name, const char *to)
{
	static const char *const lists[] = {"blocked", "notes", "peers"};

	p->in = plan_input(p->d->settings, name, to);
	json_set(p->in, "pkeys", json_object_new_array());
	p->answer = json_object_new_object();
	json_set_str(p->answer, "vm", name);
	json_set_str(p->answer, "from", p->d->settings->host_name);
	json_set_str(p->answer, "to", to);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		json_set(p->answer, lists[i], json_object_new_array());
}

void preview_post(struct http_request *req)
{
	struct daemon *d = req->user;
	struct vm *vm = vm_by_name(d, req->param);
	const char *to = str(req->body, "to"), *strategy = str(req->body, "strategy");
	enum domain_strategy asked = vm ? vm->strategy : STRATEGY_AUTO;
	struct preview *p;

	if (str_eq(to, d->settings->host_name)) {
		http_fail(req->exchange, 400, "bad-field", "VM %s runs on host %s already",
			  req->param, to);
	} else if (!settings_peer_url(d->settings, to)) {
		http_fail(req->exchange, 400, "unknown-host",
			  "to is \"%.60s\"; a dry run needs the name of a peer of ibvmigd.conf",
			  to);
	} else if (*strategy && strategy_parse(strategy, &asked)) {
		http_fail(req->exchange, 400, "bad-field",
			  "strategy is \"%.20s\"; it must be auto, native, late or early",
			  strategy);
	} else if (!(p = calloc(1, sizeof *p))) {
		http_fail(req->exchange, 503, "no-memory", "out of memory");
	} else {
		*p = (struct preview){.d = d, .exchange = req->exchange, .asked = asked};
		begin(p, vm ? vm->name : req->param, to);
		if (vm) {
			memcpy(p->uuid, vm->uuid, sizeof p->uuid);
			tell_vm(p, vm);
		}
		if (vm && vm_has_vfs(vm))
			ask_libvirt(p, vm, !*strategy);
		else
			ask_hosts(p);
	}
}
