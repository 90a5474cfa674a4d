/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/report/doctor.h"
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/fleet/drained.h"
#include "daemon/base/job.h"
#include "daemon/base/partition.h"
#include "daemon/migrate/machine.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/libvirt/virt.h"
#include "daemon/vm/vm.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>

#define BUDGET_MS 20000 /* the client waits 30 s */
#define PEER_MS   8000
#define GUEST_MS  3000         /* for all agents, which are asked at once */
#define OVERHEAD  (1ull << 30) /* libvirt's own allowance for what a VF maps beside memory */

static const char *const ports[] = {"active", "down", "none"};
static const char *const verdicts[] = {"ok", "skipped", "warning", "bad"};

void doctor_add(struct doctor *d, const char *check, enum doctor_verdict v, const char *subject,
		const char *fix, const char *fmt, ...)
{
	struct json_object *o = json_object_new_object();
	char detail[HTTP_ERROR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof detail, fmt, ap);
	va_end(ap);
	json_set_str(o, "check", check);
	json_set_str(o, "subject", subject);
	json_set_str(o, "verdict", verdicts[v]);
	json_set_str(o, "detail", detail);
	json_set_str(o, "fix", fix);
	json_object_array_add(d->found, o);
}

/* ---- in a worker ---- */

/* Every host or VM that does not answer costs its time-out: what is left then is told as skipped.
 */
static bool out_of_time(struct doctor *d, const char *check, const char *subject, uint64_t start_ms)
{
	if (now_ms() - start_ms < BUDGET_MS)
		return false;
	doctor_add(d, check, DOCTOR_SKIPPED, subject, NULL,
		   "not looked at: others have not answered for %d s", BUDGET_MS / 1000);
	return true;
}

static void look_at_vm(struct job *j, struct doctor *d, struct json_object *vm, bool ib)
{
	struct json_object *args, *value AUTO_JSON = NULL, *memory AUTO_JSON = NULL;
	const char *uuid = json_opt_str(vm, "uuid", ""), *name = json_opt_str(vm, "name", "?");
	char *path AUTO_FREE = strf("/run/libvirt/qemu/%s.pid", name), *text AUTO_FREE = NULL;
	char error[HTTP_ERROR_MAX];
	uint64_t pid = 0;

	if (ib) {
		args = json_object_new_object();
		json_set_str(args, "typename", "vfio-pci");
		qmp_call(j->d->virt, uuid, "device-list-properties", args, &value, error);
		doctor_qemu(d, name, value);
	}
	if (!json_opt_bool(vm, "vfio", false))
		return;
	if (!read_file(path, 64, &text, NULL))
		text[strcspn(text, "\n")] = '\0';
	if (!text || parse_u64(text, 1, UINT32_MAX, &pid) ||
	    qmp_call(j->d->virt, uuid, "query-memory-size-summary", NULL, &memory, error))
		doctor_add(d, "memlock", DOCTOR_SKIPPED, name, NULL, "its QEMU is not found");
	else
		doctor_memlock(d, name, pid, json_opt_u64(memory, "base-memory", 0) + OVERHEAD);
}

static void look_at_fabric(struct job *j, struct doctor *d, struct json_object *vms)
{
	struct json_object *status AUTO_JSON = NULL, *bound AUTO_JSON = NULL;
	const struct settings *s = j->d->settings;
	char error[HTTP_ERROR_MAX] = "";

	if (!s->sm_url) {
		doctor_add(d, "sm", DOCTOR_BAD, "ibvmig-sm", "sm-url = URL in ibvmigd.conf",
			   "not configured: no address can move");
	} else {
		sm_call(s, "GET", "/v1/status", NULL, &status, error);
		doctor_sm(d, status, error);
		doctor_sm_certificate(d, status, time(NULL));
		sm_call(s, "GET", "/v1/vguids", NULL, &bound, error);
	}
	doctor_duplicates(d, vms, json_opt(bound, "vguids"));
}

static void look_at_partitions(struct job *j, struct doctor *d, struct json_object *vms)
{
	struct json_object *vfs = json_opt(j->in, "vfs"), *answer AUTO_JSON = NULL;

	if (!j->d->settings->sm_url)
		return;
	answer = partition_ask(j->d->settings, doctor_guids(vms, vfs), true);
	doctor_partitions(d, vms, vfs, answer);
}

static void look_at_certificate(struct job *j, struct doctor *d)
{
	struct tls_keys *k = j->d->tls ? tls_keys_get(j->d->tls) : NULL;

	doctor_certificate(d, j->d->settings->listen, k, k ? k->not_after : 0, time(NULL));
	tls_keys_put(k);
}

static void look_at_peers(struct job *j, struct doctor *d, struct json_object *vms,
			  uint64_t start_ms)
{
	const struct settings *s = j->d->settings;

	for (size_t i = 0; i < s->peer_count; i++) {
		struct json_object *status AUTO_JSON = NULL;
		char error[HTTP_ERROR_MAX] = "";

		if (out_of_time(d, "peer", s->peers[i].name, start_ms))
			continue;
		http_call(s->peers[i].url, "GET", "/v1/status", NULL, PEER_MS, &status, error);
		doctor_peer(d, s->peers[i].name, vms, status, error);
	}
	if (!s->peer_count)
		doctor_add(d, "peer", DOCTOR_WARNING, "hosts",
			   "peer = NAME URL in ibvmigd.conf, for each",
			   "no other host is configured");
}

static void run(struct job *j)
{
	struct json_object *vms = json_opt(j->in, "vms");
	struct doctor d = {.root = "", .found = json_object_new_array()};
	bool ib = doctor_has_ib(&d);
	uint64_t start_ms = now_ms();

	if (virt_is_connected(j->d->virt))
		doctor_add(&d, "libvirt", DOCTOR_OK, j->d->settings->libvirt_uri, NULL,
			   "connected");
	else
		doctor_add(&d, "libvirt", DOCTOR_BAD, j->d->settings->libvirt_uri,
			   "systemctl start libvirtd", "libvirtd does not answer");
	doctor_hook(&d);
	doctor_lease(&d, j->d->settings->lease_dir);
	doctor_ipoib(&d);
	doctor_ports(&d);
	doctor_zero_guid(&d, j->d->provider, json_opt(j->in, "vfs"));
	doctor_vfio(&d, j->d->provider, json_opt(j->in, "vfs"));
	doctor_inventory(&d, json_opt(j->in, "vfs"), json_opt_str(j->in, "vf_error", ""));
	doctor_agents(&d, vms);
	doctor_guest_ports(&d, vms);
	for (size_t i = 0; i < json_count(vms); i++) {
		struct json_object *vm = json_object_array_get_idx(vms, i);

		if (!out_of_time(&d, "qemu", json_opt_str(vm, "name", "?"), start_ms))
			look_at_vm(j, &d, vm, ib);
	}
	if (ib && !json_count(vms))
		doctor_qemu(&d, NULL, NULL);
	doctor_drained(&d, j->d->settings->host_name, json_opt_bool(j->in, "drained", false));
	look_at_certificate(j, &d);
	look_at_fabric(j, &d, vms);
	look_at_partitions(j, &d, vms);
	look_at_peers(j, &d, vms, start_ms);
	json_set(j->out, "checks", d.found);
}

/* ---- in the loop ---- */

static void done(struct job *j)
{
	struct json_object *list = json_opt(j->out, "checks"), *top = json_object_new_object();
	uint64_t n[ARRAY_SIZE(verdicts)] = {0};

	for (size_t i = 0; i < json_count(list); i++)
		for (size_t v = 0; v < ARRAY_SIZE(verdicts); v++)
			n[v] += str_eq(verdicts[v], json_opt_str(json_object_array_get_idx(list, i),
								 "verdict", ""));
	json_set_str(top, "host", j->d->settings->host_name);
	json_set(top, "checks", json_object_get(list));
	json_set_u64(top, "bad", n[DOCTOR_BAD]);
	json_set_u64(top, "warnings", n[DOCTOR_WARNING]);
	json_set_u64(top, "skipped", n[DOCTOR_SKIPPED]);
	http_reply(j->owner, 200, top);
}

static bool is_vfio(const struct vf *vf)
{
	return vf && vf->attach && strstr(vf->attach, "vfio");
}

static bool uses_vfio(const struct vm *vm)
{
	for (unsigned i = 0; i < vm->vf_count; i++)
		if (is_vfio(vm->vfs[i].lease))
			return true;
	return false;
}

static struct json_object *vfs_of(struct daemon *d)
{
	struct json_object *list = vf_status(d->vfs);

	for (size_t i = 0; i < json_count(list); i++) {
		const struct vf *vf = &d->vfs->vfs[i];

		json_set_bool(json_object_array_get_idx(list, i), "vfio",
			      is_vfio(vf) && vf->since_ms);
	}
	return list;
}

static struct json_object *vms_of(struct daemon *d)
{
	struct json_object *list = json_object_new_array();

	for (struct vm *vm = d->vms; vm; vm = vm->next) {
		struct json_object *o;

		if (vm->gone)
			continue;
		o = vm_facts(vm);
		json_set_bool(o, "vfio", uses_vfio(vm));
		json_set_bool(o, "migrates", migrate_open(d, vm->uuid));
		json_object_array_add(list, o);
	}
	return list;
}

/* The questions to the guests' agents come before the worker begins. */
struct asking {
	struct daemon *d;
	struct http_exchange *exchange;
	struct json_object *in;
	unsigned pending; /* agents, and one */
};

struct question {
	struct asking *asking;
	struct json_object *vm; /* borrowed from asking->in */
};

static void ask_on(struct asking *l)
{
	if (--l->pending)
		return;
	job_look(l->d, l->exchange, l->in, run, done, l->exchange);
	free(l);
}

/* The guest is not trusted: known words, and as many as a VM may have VFs. */
static struct json_object *guest_vfs(struct json_object *answer)
{
	struct json_object *told = json_opt(answer, "vfs"), *list = json_object_new_array();

	for (size_t i = 0; i < json_count(told) && i < DOMAIN_VFS_MAX; i++) {
		struct json_object *vf = json_object_array_get_idx(told, i);
		struct json_object *o = json_object_new_object();
		uint64_t vguid = 0;

		ib_guid_parse(json_opt_str(vf, "vguid", ""), &vguid);
		json_set_guid(o, "vguid", vguid);
		for (size_t k = 0; k < ARRAY_SIZE(ports); k++)
			if (str_eq(json_opt_str(vf, "port", ""), ports[k]))
				json_set_str(o, "port", ports[k]);
		json_object_array_add(list, o);
	}
	return list;
}

static void told(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct question *q = arg;
	struct asking *l = q->asking;

	(void)error;
	if (!rc) {
		struct json_object *pkeys = json_object_new_array();

		partition_used(answer, pkeys);
		json_set(q->vm, "guest_pkeys", pkeys);
		json_set(q->vm, "guest_vfs", guest_vfs(answer));
	}
	free(q);
	ask_on(l);
}

static void ask_guest(struct asking *l, struct vm *vm, struct json_object *o)
{
	struct question *q = malloc(sizeof *q);
	struct json_object *msg = json_object_new_object();

	if (!q)
		abort(); /* some bytes: the kernel's overcommit ends the process elsewhere */
	*q = (struct question){.asking = l, .vm = o};
	l->pending++;
	json_set_str(msg, "op", "query");
	json_set_u64(msg, "deadline_ms", GUEST_MS - 500);
	agent_request(vm->agent, msg, GUEST_MS, told, q);
}

void doctor_get(struct http_request *req)
{
	struct daemon *d = req->user;
	struct asking *l = malloc(sizeof *l);
	struct json_object *vms = vms_of(d);

	if (!l)
		abort(); /* as above */
	*l = (struct asking){.d = d, .exchange = req->exchange, .in = json_object_new_object()};
	json_set(l->in, "vms", vms);
	json_set(l->in, "vfs", vfs_of(d));
	json_set_str(l->in, "vf_error", d->vf_error);
	drained_tell(d, l->in);
	l->pending = 1;
	for (struct vm *vm = d->vms; vm; vm = vm->next)
		if (!vm->gone && agent_state(vm->agent) == AGENT_UP)
			ask_guest(l, vm, json_find(vms, "uuid", vm->uuid));
	ask_on(l);
}
