/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libvirt's client library as daemon/libvirt/virt.c uses it, on simulated hosts (world.h). */
#include "tests/sim/virt.h"
#include "common/json.h"
#include "common/util.h"

#include <libvirt/libvirt-qemu.h>
#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <string.h>

#define CALL_US     (2 * SIM_MS)
#define JOB_LOCK_US (30 * SIM_S) /* how long a call waits for an incoming migration */
#define JOB_LOOK_US (50 * SIM_MS)
#define HANG_US     (5 * SIM_S)
#define LATE_US     (2 * SIM_S)
#define EVENT_US    SIM_MS
#define DOUBLE_US   (500 * SIM_MS) /* after the first */

/* A daemon's connection to its libvirtd; lives as long as the world. */
struct _virConnect {
	struct _virConnect *next;
	int host;
	unsigned libvirtd_life, proc_life;
	bool closed;
	virConnectDomainEventCallback lifecycle;
	void *lifecycle_arg;
	virConnectDomainQemuMonitorEventCallback monitor;
	void *monitor_arg;
	virConnectCloseFunc on_close;
	void *close_arg;
};

struct _virDomain {
	int host;
	struct sim_guest *guest;
};

struct sim_libvirt sim_libvirt;

static struct _virConnect *conns;
static struct _virDomain domains[SIM_HOSTS][SIM_GUESTS];
static virError last_error;

static int fail(int code, const char *message)
{
	static char text[512];

	sim_unseen(true);
	snprintf(text, sizeof text, "%.500s", message);
	sim_unseen(false);
	last_error = (virError){.code = code, .message = text};
	return -1;
}

/* A call takes its time, and waits for a libvirtd that is stopped. */
static void pass_time(int host)
{
	uint64_t until;

	sim_sleep(CALL_US + (sim_libvirt.calls == REPLIES_LATE ? LATE_US : 0));
	until = sim_hosts[host].libvirtd_stopped_until_us;
	if (until > sim_us())
		sim_sleep(until - sim_us());
}

static int fail_played(void)
{
	return fail(VIR_ERR_OPERATION_TIMEOUT, "Timed out during operation: played");
}

/* The call whose answer is lost has done what it was to do. */
static bool answer_is_lost(void)
{
	return sim_libvirt.calls == REPLIES_LOST && fail_played();
}

static bool conn_works(struct _virConnect *c)
{
	return !c->closed && sim_hosts[c->host].libvirtd_up &&
	       c->libvirtd_life == sim_libvirtd_life(c->host);
}

static int own_host(void)
{
	for (int i = 0; i < (int)sim_size.hosts; i++)
		if (sim_self == &sim_hosts[i].proc)
			return i;
	return -1;
}

virErrorPtr virGetLastError(void)
{
	return &last_error;
}

void virSetErrorFunc(void *arg, virErrorFunc fn)
{
	(void)arg;
	(void)fn;
}

void virEventRegisterImpl(virEventAddHandleFunc add, virEventUpdateHandleFunc update,
			  virEventRemoveHandleFunc remove, virEventAddTimeoutFunc add_timer,
			  virEventUpdateTimeoutFunc update_timer,
			  virEventRemoveTimeoutFunc remove_timer)
{
	(void)add;
	(void)update;
	(void)remove;
	(void)add_timer;
	(void)update_timer;
	(void)remove_timer;
}

/* ---- connections ---- */

virConnectPtr virConnectOpen(const char *uri)
{
	struct _virConnect *c;
	int host = own_host();

	(void)uri;
	pass_time(host);
	if (!sim_hosts[host].libvirtd_up) {
		fail(VIR_ERR_SYSTEM_ERROR, "Failed to connect socket");
		return NULL;
	}
	c = calloc(1, sizeof *c);
	c->host = host;
	c->libvirtd_life = sim_libvirtd_life(host);
	c->proc_life = sim_hosts[host].proc.life;
	c->next = conns;
	conns = c;
	return c;
}

int virConnectRef(virConnectPtr c)
{
	(void)c;
	return 0;
}

int virConnectClose(virConnectPtr c)
{
	(void)c;
	return 0;
}

int virConnectSetKeepAlive(virConnectPtr c, int interval, unsigned int count)
{
	(void)c;
	(void)interval;
	(void)count;
	return 0;
}

int virConnectRegisterCloseCallback(virConnectPtr c, virConnectCloseFunc fn, void *arg,
				    virFreeCallback free_fn)
{
	(void)free_fn;
	c->on_close = fn;
	c->close_arg = arg;
	return 0;
}

int virConnectUnregisterCloseCallback(virConnectPtr c, virConnectCloseFunc fn)
{
	(void)fn;
	c->on_close = NULL;
	return 0;
}

int virConnectDomainEventRegisterAny(virConnectPtr c, virDomainPtr dom, int id,
				     virConnectDomainEventGenericCallback fn, void *arg,
				     virFreeCallback free_fn)
{
	(void)dom;
	(void)id;
	(void)free_fn;
	c->lifecycle = (virConnectDomainEventCallback)(void (*)(
		void))fn; /* as VIR_DOMAIN_EVENT_CALLBACK does */
	c->lifecycle_arg = arg;
	return 0;
}

int virConnectDomainQemuMonitorEventRegister(virConnectPtr c, virDomainPtr dom, const char *event,
					     virConnectDomainQemuMonitorEventCallback fn, void *arg,
					     virFreeCallback free_fn, unsigned int flags)
{
	(void)dom;
	(void)event;
	(void)free_fn;
	(void)flags;
	if (sim_libvirt.events == REPLIES_REFUSED)
		return fail_played();
	c->monitor = fn;
	c->monitor_arg = arg;
	return 0;
}

static bool conn_lives(struct _virConnect *c, int host)
{
	return c->host == host && !c->closed && sim_hosts[host].proc.up &&
	       c->proc_life == sim_hosts[host].proc.life;
}

unsigned sim_libvirt_watched(int host)
{
	unsigned n = 0;

	for (struct _virConnect *c = conns; c; c = c->next)
		n += conn_lives(c, host) && c->on_close;
	return n;
}

static void close_event(void *arg)
{
	struct _virConnect *c = arg;

	if (c->on_close)
		c->on_close(c, VIR_CONNECT_CLOSE_REASON_EOF, c->close_arg);
}

void sim_libvirt_conns_broke(int host)
{
	for (struct _virConnect *c = conns; c; c = c->next) {
		if (!conn_lives(c, host))
			continue;
		c->closed = true;
		sim_after(&sim_hosts[host].proc, SIM_MS, close_event, c);
	}
}

/* ---- events ---- */

struct event {
	struct _virConnect *conn;
	struct _virDomain *dom;
	int kind, detail;
	char name[32], details[160]; /* only a monitor's event has them; a lifecycle's are empty */
};

static void lifecycle_event(void *arg)
{
	struct event *e = arg;

	if (e->conn->lifecycle && conn_lives(e->conn, e->conn->host))
		e->conn->lifecycle(e->conn, e->dom, e->kind, e->detail, e->conn->lifecycle_arg);
	free(e);
}

static void monitor_event(void *arg)
{
	struct event *e = arg;

	if (e->conn->monitor && conn_lives(e->conn, e->conn->host))
		e->conn->monitor(e->conn, e->dom, e->name, 0, 0, e->details, e->conn->monitor_arg);
	free(e);
}

static struct _virDomain *domain_of(int host, struct sim_guest *g)
{
	struct _virDomain *dom = &domains[host][sim_index(g)];

	*dom = (struct _virDomain){.host = host, .guest = g};
	return dom;
}

static void deliver(struct _virConnect *c, const struct event *what, uint64_t us,
		    void (*fn)(void *arg))
{
	uint64_t until = sim_hosts[c->host].libvirtd_stopped_until_us;
	struct event *e = malloc(sizeof *e);

	*e = *what;
	e->conn = c;
	if (until > sim_us() + us)
		us = until - sim_us();
	sim_after(&sim_hosts[c->host].proc, us, fn, e);
}

static enum sim_replies fate_of(const struct event *e)
{
	const char *name = *e->name ? e->name : "lifecycle";

	return !sim_libvirt.event || !strcmp(sim_libvirt.event, name) ? sim_libvirt.events
								      : REPLIES_WELL;
}

static void emit(int host, struct event what, void (*fn)(void *arg))
{
	static unsigned count;
	enum sim_replies fate = fate_of(&what);
	uint64_t us = EVENT_US;

	if (fate == REPLIES_LATE)
		us += LATE_US;
	if (fate == REPLIES_REORDERED)
		us += ++count % 2 ? 700 * SIM_MS : 0;
	for (struct _virConnect *c = conns; c; c = c->next) {
		if (!conn_lives(c, host) || !conn_works(c) || fate == REPLIES_LOST)
			continue;
		deliver(c, &what, us, fn);
		if (fate == REPLIES_DOUBLED)
			deliver(c, &what, us + DOUBLE_US, fn);
	}
}

void sim_lifecycle(int host, struct sim_guest *g, int event, int detail)
{
	emit(host, (struct event){.dom = domain_of(host, g), .kind = event, .detail = detail},
	     lifecycle_event);
}

void sim_monitor(int host, struct sim_guest *g, const char *event, const char *details)
{
	struct event e = {.dom = domain_of(host, g)};

	snprintf(e.name, sizeof e.name, "%s", event);
	snprintf(e.details, sizeof e.details, "%s", details);
	emit(host, e, monitor_event);
}

/* ---- domains ---- */

static struct sim_qemu *qemu_of(virDomainPtr dom)
{
	struct sim_qemu *q = &sim_hosts[dom->host].qemus[sim_index(dom->guest)];

	return q->exists ? q : NULL;
}

static bool is_defined(int host, unsigned guest)
{
	const struct sim_qemu *q = &sim_hosts[host].qemus[guest];

	return q->exists || (sim_guests[guest].mover && sim_mover.persistent && q->life);
}

static virDomainPtr find_domain(virConnectPtr c, const char *name_or_uuid)
{
	pass_time(c->host);
	if (!conn_works(c)) {
		fail(VIR_ERR_INTERNAL_ERROR, "client socket is closed");
		return NULL;
	}
	if (sim_libvirt.calls == REPLIES_REFUSED) {
		fail_played();
		return NULL;
	}
	for (unsigned i = 0; i < sim_size.guests; i++)
		if ((!strcmp(sim_guests[i].uuid, name_or_uuid) ||
		     !strcmp(sim_guests[i].name, name_or_uuid)) &&
		    is_defined(c->host, i))
			return domain_of(c->host, &sim_guests[i]);
	fail(VIR_ERR_NO_DOMAIN, "Domain not found");
	return NULL;
}

virDomainPtr virDomainLookupByUUIDString(virConnectPtr c, const char *uuid)
{
	return find_domain(c, uuid);
}

virDomainPtr virDomainLookupByName(virConnectPtr c, const char *name)
{
	return find_domain(c, name);
}

int virDomainFree(virDomainPtr dom)
{
	(void)dom;
	return 0;
}

int virDomainGetUUIDString(virDomainPtr dom, char *text)
{
	strcpy(text, dom->guest->uuid);
	return 0;
}

const char *virDomainGetName(virDomainPtr dom)
{
	return dom->guest->name;
}

unsigned long virDomainGetMaxMemory(virDomainPtr dom)
{
	(void)dom;
	return 24 << 10;
}

char *virDomainGetXMLDesc(virDomainPtr dom, unsigned int flags)
{
	struct sim_qemu *q = qemu_of(dom);

	(void)flags;
	if (q)
		return sim_domain_xml(dom->guest, q->path, q->mark);
	if (is_defined(dom->host, sim_index(dom->guest)))
		return sim_domain_xml(dom->guest, "", "");
	fail(VIR_ERR_NO_DOMAIN, "Domain not found");
	return NULL;
}

/* The call needs no lock, so a migration that comes in does not hold it up. */
int virDomainGetState(virDomainPtr dom, int *state, int *reason, unsigned int flags)
{
	struct sim_qemu *q;

	(void)flags;
	pass_time(dom->host);
	q = qemu_of(dom);
	*state = !q                     ? VIR_DOMAIN_SHUTOFF
		 : q->vcpu == VCPU_RUNS ? VIR_DOMAIN_RUNNING
					: VIR_DOMAIN_PAUSED;
	if (reason)
		*reason = 0;
	return 0;
}

static bool hangs(virDomainPtr dom)
{
	if (!sim_hosts[dom->host].libvirtd_hangs)
		return false;
	sim_sleep(HANG_US);
	fail(VIR_ERR_OPERATION_TIMEOUT, "Timed out during operation");
	return true;
}

/* A call that changes a domain waits while a migration comes in. */
static struct sim_qemu *job_begin(virDomainPtr dom)
{
	uint64_t until = sim_us() + JOB_LOCK_US;
	unsigned life = sim_libvirtd_life(dom->host);
	struct sim_qemu *q;

	pass_time(dom->host);
	if (hangs(dom))
		return NULL;
	while ((q = qemu_of(dom)) && q->vcpu == VCPU_INCOMING && sim_us() < until)
		sim_sleep(JOB_LOOK_US);
	if (life != sim_libvirtd_life(dom->host) || !sim_hosts[dom->host].libvirtd_up) {
		fail(VIR_ERR_INTERNAL_ERROR, "client socket is closed");
		return NULL;
	}
	if (!q) {
		if (is_defined(dom->host, sim_index(dom->guest)))
			fail(VIR_ERR_OPERATION_INVALID, "domain is not running");
		else
			fail(VIR_ERR_NO_DOMAIN, "Domain not found");
		return NULL;
	}
	if (q->vcpu != VCPU_INCOMING)
		return q;
	fail(VIR_ERR_OPERATION_TIMEOUT, "Timed out during operation: cannot acquire state change "
					"lock");
	return NULL;
}

int virDomainQemuMonitorCommand(virDomainPtr dom, const char *command, char **ret_answer,
				unsigned int flags)
{
	struct json_object *msg AUTO_JSON = NULL, *answer AUTO_JSON = NULL;
	struct sim_qemu *q = job_begin(dom);

	(void)flags;
	if (!q)
		return -1;
	if (json_parse(command, strlen(command), &msg))
		return fail(VIR_ERR_INTERNAL_ERROR, "no JSON");
	answer = sim_qmp(q, json_opt_str(msg, "execute", ""), json_opt(msg, "arguments"));
	pass_time(dom->host);
	if (answer_is_lost())
		return -1;
	*ret_answer = strdup(json_text(answer));
	return 0;
}

int virDomainQemuMonitorCommandWithFiles(virDomainPtr dom, const char *command, unsigned int n,
					 int *files, unsigned int *ret_n, int **ret_files,
					 char **ret_answer, unsigned int flags)
{
	(void)n;
	(void)files;
	(void)ret_n;
	(void)ret_files;
	return virDomainQemuMonitorCommand(dom, command, ret_answer, flags);
}

int virDomainAbortJob(virDomainPtr dom)
{
	pass_time(dom->host);
	if (hangs(dom))
		return -1;
	if (!qemu_of(dom))
		return fail(VIR_ERR_NO_DOMAIN, "Domain not found");
	if (!sim_abort(dom->guest, dom->host))
		return fail(VIR_ERR_OPERATION_INVALID, "no job is active on the domain");
	return answer_is_lost() ? -1 : 0;
}

static int host_of_uri(const char *uri)
{
	for (int i = 0; i < (int)sim_size.hosts; i++)
		if (strstr(uri, sim_hosts[i].name))
			return i;
	return -1;
}

/* Peer to peer: it goes on without who has asked. */
int virDomainMigrateToURI3(virDomainPtr dom, const char *uri, virTypedParameterPtr params,
			   unsigned int n, unsigned int flags)
{
	int to = host_of_uri(uri);

	(void)params;
	(void)n;
	(void)flags;
	pass_time(dom->host);
	if (!qemu_of(dom))
		return fail(VIR_ERR_NO_DOMAIN, "Domain not found");
	if (to < 0 || !dom->guest->mover || dom->guest->migration.under_way)
		return fail(VIR_ERR_OPERATION_INVALID, "it cannot migrate there, or does already");
	sim_migrate(dom->guest, dom->host, to);
	while (dom->guest->migration.under_way)
		sim_sleep(CALL_US);
	return dom->guest->migration.ok
		       ? 0
		       : fail(VIR_ERR_OPERATION_FAILED, dom->guest->migration.error);
}

int virDomainSaveFlags(virDomainPtr dom, const char *to, const char *xml, unsigned int flags)
{
	struct sim_qemu *q = job_begin(dom);
	unsigned life = sim_libvirtd_life(dom->host);

	(void)to;
	(void)flags;
	if (!q)
		return -1;
	if (q->refuses_save)
		return fail(VIR_ERR_OPERATION_FAILED, "job 'domain save' failed: No TLS "
						      "credentials");
	if (!sim_save(q, xml))
		return fail(VIR_ERR_OPERATION_INVALID, "another job is active");
	while (sim_image.saving)
		sim_sleep(JOB_LOOK_US);
	if (life != sim_libvirtd_life(dom->host))
		return fail(VIR_ERR_INTERNAL_ERROR, "client socket is closed");
	if (!sim_image.whole)
		return fail(VIR_ERR_OPERATION_ABORTED,
			    "operation aborted: job 'domain save' canceled by client");
	return answer_is_lost() ? -1 : 0;
}

char *virDomainSaveImageGetXMLDesc(virConnectPtr c, const char *file, unsigned int flags)
{
	(void)file;
	(void)flags;
	pass_time(c->host);
	if (sim_libvirt.calls == REPLIES_REFUSED) {
		fail_played();
		return NULL;
	}
	if (conn_works(c) && sim_image.whole)
		return sim_domain_xml(&sim_guests[0], "", sim_image.mark);
	fail(VIR_ERR_OPERATION_FAILED, "save image is incomplete");
	return NULL;
}

int virDomainRestoreFlags(virConnectPtr c, const char *from, const char *xml, unsigned int flags)
{
	(void)from;
	(void)flags;
	pass_time(c->host);
	if (!conn_works(c))
		return fail(VIR_ERR_INTERNAL_ERROR, "client socket is closed");
	if (sim_libvirt.calls == REPLIES_REFUSED)
		return fail_played();
	if (xml)
		sim_image_mark(xml);
	sim_restore(c->host);
	while (sim_image.restoring)
		sim_sleep(JOB_LOOK_US);
	if (!sim_image.restored)
		return fail(VIR_ERR_OPERATION_FAILED, sim_image.error);
	return answer_is_lost() ? -1 : 0;
}

int virDomainMigrateSetMaxSpeed(virDomainPtr dom, unsigned long mib, unsigned int flags)
{
	struct sim_qemu *q = job_begin(dom);

	(void)flags;
	if (!q)
		return -1;
	q->preset_mib = (unsigned)mib;
	if (q->job == QJOB_ACTIVE)
		q->bandwidth = (uint64_t)mib << 20;
	pass_time(dom->host);
	return answer_is_lost() ? -1 : 0;
}

int virDomainGetJobStats(virDomainPtr dom, int *type, virTypedParameterPtr *params, int *n,
			 unsigned int flags)
{
	(void)flags;
	if (!job_begin(dom))
		return -1;
	*type = VIR_DOMAIN_JOB_COMPLETED;
	*params = calloc(1, sizeof **params);
	*n = 1;
	snprintf((*params)->field, sizeof(*params)->field, "%s", VIR_DOMAIN_JOB_DOWNTIME);
	(*params)->type = VIR_TYPED_PARAM_ULLONG;
	(*params)->value.ul = 30;
	return 0;
}

int virTypedParamsGetULLong(virTypedParameterPtr params, int n, const char *name,
			    unsigned long long *ret)
{
	if (n < 1 || strcmp(params->field, name))
		return 0;
	*ret = params->value.ul;
	return 1;
}

void virTypedParamsFree(virTypedParameterPtr params, int n)
{
	(void)n;
	free(params);
}

int virConnectListAllDomains(virConnectPtr c, virDomainPtr **ret_list, unsigned int flags)
{
	int n = 0;

	(void)flags;
	pass_time(c->host);
	if (!conn_works(c))
		return fail(VIR_ERR_INTERNAL_ERROR, "client socket is closed");
	if (sim_libvirt.calls == REPLIES_REFUSED)
		return fail_played();
	*ret_list = calloc(sim_size.guests + 1, sizeof **ret_list);
	for (unsigned i = 0; i < sim_size.guests; i++)
		if (sim_hosts[c->host].qemus[i].exists)
			(*ret_list)[n++] = domain_of(c->host, &sim_guests[i]);
	return n;
}
