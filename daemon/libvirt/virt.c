/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/libvirt/virt.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/libvirt/domain_saved.h"
#include "daemon/base/job.h"
#include "daemon/libvirt/grant.h"
#include "daemon/libvirt/memlock.h"
#include "daemon/base/settings.h"

#include <errno.h>
#include <libvirt/libvirt-qemu.h>
#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <string.h>

#define RECONNECT_MS 500
/* A libvirtd that is dead closes the socket; this is for one that hangs. A beat asks a libvirtd
 * that has said nothing for 5 s, and the next beat takes it for lost, so within 35 s. */
#define KEEPALIVE_S        5
#define KEEPALIVE_MISSED   1
#define MONITOR_ANSWER_MAX (1u << 20)
#define QEMU_PID_DIR       "/run/libvirt/qemu"

struct virt {
	struct daemon *d; /* borrowed */
	const struct virt_ops *ops;
	pthread_mutex_t lock; /* for conn */
	virConnectPtr conn;   /* owned reference, or NULL */
	struct loop_timer *retry;
	bool complained;
};

static void quiet(void *arg, virErrorPtr e)
{
	(void)arg;
	(void)e;
}

static virConnectPtr conn_get(struct virt *v)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&v->lock);

	if (v->conn)
		virConnectRef(v->conn);
	return v->conn;
}

static int from_libvirt(char *error, const char *what)
{
	virErrorPtr e = virGetLastError();

	snprintf(error, HTTP_ERROR_MAX, "%s: %s", what, e && e->message ? e->message : "unknown");
	return e && e->code == VIR_ERR_NO_DOMAIN ? -ENOENT : -EIO;
}

/* ---- events ---- */

static int lifecycle_change(int event, int detail)
{
	switch (event) {
	case VIR_DOMAIN_EVENT_STARTED:
		return detail == VIR_DOMAIN_EVENT_STARTED_MIGRATED ? VIRT_STARTED_INCOMING
								   : VIRT_STARTED;
	case VIR_DOMAIN_EVENT_RESUMED:
		return detail == VIR_DOMAIN_EVENT_RESUMED_MIGRATED ? VIRT_RESUMED_INCOMING
								   : VIRT_RESUMED;
	case VIR_DOMAIN_EVENT_SUSPENDED:
		return VIRT_SUSPENDED;
	case VIR_DOMAIN_EVENT_STOPPED:
		return detail == VIR_DOMAIN_EVENT_STOPPED_MIGRATED ? VIRT_STOPPED_MIGRATED
								   : VIRT_STOPPED;
	default:
		return -1;
	}
}

static int on_lifecycle(virConnectPtr conn, virDomainPtr dom, int event, int detail, void *arg)
{
	struct virt *v = arg;
	char uuid[VIR_UUID_STRING_BUFLEN];
	int change = lifecycle_change(event, detail);

	(void)conn;
	if (change >= 0 && !virDomainGetUUIDString(dom, uuid))
		v->ops->changed(v->d, uuid, virDomainGetName(dom), (enum virt_change)change);
	return 0;
}

static void on_monitor(virConnectPtr conn, virDomainPtr dom, const char *event, long long seconds,
		       unsigned int micros, const char *details, void *arg)
{
	struct virt *v = arg;
	struct json_object *obj AUTO_JSON = NULL;
	char uuid[VIR_UUID_STRING_BUFLEN];

	(void)conn;
	(void)seconds;
	(void)micros;
	if (virDomainGetUUIDString(dom, uuid))
		return;
	if (details)
		json_parse(details, strlen(details), &obj);
	v->ops->monitor(v->d, uuid, event, obj);
}

/* ---- connecting ---- */

static void connect_start(void *arg);
static void on_close(virConnectPtr conn, int reason, void *arg);

static void lost_run(struct job *j)
{
	(void)j;
}

static void lost_done(struct job *j)
{
	struct virt *v = j->owner;
	virConnectPtr old;

	pthread_mutex_lock(&v->lock);
	old = TAKE(v->conn);
	pthread_mutex_unlock(&v->lock);
	if (!old)
		return;
	log_warn("libvirt: the connection to %s is lost; reconnecting",
		 v->d->settings->libvirt_uri);
	virConnectUnregisterCloseCallback(old, on_close);
	virConnectClose(old);
	loop_timer_arm(v->retry, 0);
}

/* Called inside libvirt: the connection is given back later, from the loop. */
static void on_close(virConnectPtr conn, int reason, void *arg)
{
	struct virt *v = arg;

	(void)conn;
	(void)reason;
	job_start(v->d, NULL, lost_run, lost_done, v, 0);
}

static void connect_run(struct job *j)
{
	struct virt *v = j->owner;
	virConnectPtr conn = virConnectOpen(v->d->settings->libvirt_uri);

	if (!conn) {
		j->rc = from_libvirt(j->error, "cannot connect");
		return;
	}
	virConnectSetKeepAlive(conn, KEEPALIVE_S, KEEPALIVE_MISSED);
	if (virConnectRegisterCloseCallback(conn, on_close, v, NULL) < 0 ||
	    virConnectDomainEventRegisterAny(conn, NULL, VIR_DOMAIN_EVENT_ID_LIFECYCLE,
					     VIR_DOMAIN_EVENT_CALLBACK(on_lifecycle), v,
					     NULL) < 0 ||
	    virConnectDomainQemuMonitorEventRegister(conn, NULL, NULL, on_monitor, v, NULL, 0) <
		    0) {
		j->rc = from_libvirt(j->error, "cannot register for events");
		virConnectUnregisterCloseCallback(conn, on_close);
		virConnectClose(conn);
		return;
	}
	pthread_mutex_lock(&v->lock);
	v->conn = conn;
	pthread_mutex_unlock(&v->lock);
}

static void connect_done(struct job *j)
{
	struct virt *v = j->owner;

	if (j->rc) {
		if (!v->complained)
			log_warn("libvirt: %s: %s; trying again every %d ms",
				 v->d->settings->libvirt_uri, j->error, RECONNECT_MS);
		v->complained = true;
		loop_timer_arm(v->retry, RECONNECT_MS);
		return;
	}
	v->complained = false;
	log_info("libvirt: connected to %s", v->d->settings->libvirt_uri);
	v->ops->connected(v->d);
}

static void connect_start(void *arg)
{
	struct virt *v = arg;

	job_start(v->d, NULL, connect_run, connect_done, v, 0);
}

int virt_new(struct daemon *d, const struct virt_ops *ops, struct virt **ret_virt)
{
	struct virt *v = calloc(1, sizeof *v);
	int rc;

	if (!v)
		return -ENOMEM;
	v->d = d;
	v->ops = ops;
	pthread_mutex_init(&v->lock, NULL);
	virSetErrorFunc(NULL, quiet);
	rc = loop_timer_new(d->loop, connect_start, v, &v->retry);
	if (rc) {
		free(v);
		return rc;
	}
	loop_timer_arm(v->retry, 0);
	*ret_virt = v;
	return 0;
}

void virt_free(struct virt *v)
{
	if (!v)
		return;
	loop_timer_free(v->retry);
	if (v->conn) {
		virConnectUnregisterCloseCallback(v->conn, on_close);
		virConnectClose(v->conn);
	}
	free(v);
}

bool virt_is_connected(struct virt *v)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&v->lock);

	return v->conn;
}

/* ---- calls ---- */

static virDomainPtr lookup(virConnectPtr conn, const char *uuid)
{
	bool is_uuid = strlen(uuid) == VIR_UUID_STRING_BUFLEN - 1 &&
		       strspn(uuid, "0123456789abcdefABCDEF-") == VIR_UUID_STRING_BUFLEN - 1;

	return is_uuid ? virDomainLookupByUUIDString(conn, uuid)
		       : virDomainLookupByName(conn, uuid);
}

static virConnectPtr conn_need(struct virt *v, char *error)
{
	virConnectPtr conn = conn_get(v);

	if (!conn)
		snprintf(error, HTTP_ERROR_MAX, "libvirtd is not reachable at %s",
			 v->d->settings->libvirt_uri);
	return conn;
}

/* *ret_conn and *ret_dom are to be given back with domain_put(). */
static int domain_get(struct virt *v, const char *uuid, virConnectPtr *ret_conn,
		      virDomainPtr *ret_dom, char *error)
{
	virConnectPtr conn = conn_need(v, error);
	int rc;

	if (!conn)
		return -ENOTCONN;
	*ret_dom = lookup(conn, uuid);
	if (*ret_dom) {
		*ret_conn = conn;
		return 0;
	}
	rc = from_libvirt(error, "domain look-up");
	virConnectClose(conn);
	return rc;
}

static void domain_put(virConnectPtr conn, virDomainPtr dom)
{
	virDomainFree(dom);
	virConnectClose(conn);
}

int virt_domain_xml(struct virt *v, const char *uuid, char **ret_xml, char *error)
{
	virConnectPtr conn;
	virDomainPtr dom;
	int rc = domain_get(v, uuid, &conn, &dom, error);

	if (rc)
		return rc;
	*ret_xml = virDomainGetXMLDesc(dom, 0);
	if (!*ret_xml)
		rc = from_libvirt(error, "domain XML");
	domain_put(conn, dom);
	return rc;
}

static int monitor_call(virDomainPtr dom, const char *command, int fd, char **ret_answer)
{
	unsigned none = 0;
	int *fds AUTO_FREE = NULL;

	if (fd < 0)
		return virDomainQemuMonitorCommand(dom, command, ret_answer, 0);
	return virDomainQemuMonitorCommandWithFiles(dom, command, 1, &fd, &none, &fds, ret_answer,
						    0);
}

static int too_large(size_t bytes, char *error)
{
	snprintf(error, HTTP_ERROR_MAX, "QEMU's answer has %zu bytes; at most %u are taken", bytes,
		 MONITOR_ANSWER_MAX);
	return -EFBIG;
}

int virt_monitor(struct virt *v, const char *uuid, const char *command, int fd, char **ret_answer,
		 char *error)
{
	virConnectPtr conn;
	virDomainPtr dom;
	int rc = domain_get(v, uuid, &conn, &dom, error);

	if (rc)
		return rc;
	*ret_answer = NULL;
	if (monitor_call(dom, command, fd, ret_answer) < 0)
		rc = from_libvirt(error, "monitor command");
	else if (strlen(*ret_answer) > MONITOR_ANSWER_MAX)
		rc = too_large(strlen(*ret_answer), error);
	domain_put(conn, dom);
	return rc;
}

int virt_allow_pinning(struct virt *v, const char *uuid, char *error)
{
	virConnectPtr conn;
	virDomainPtr dom;
	int rc = domain_get(v, uuid, &conn, &dom, error);

	if (rc)
		return rc;
	rc = memlock_lift(QEMU_PID_DIR, virDomainGetName(dom), error);
	domain_put(conn, dom);
	return rc;
}

int virt_let_open(struct virt *v, const char *uuid, const char *node, bool may, char *error)
{
	virConnectPtr conn;
	virDomainPtr dom;
	pid_t pid;
	int rc = domain_get(v, uuid, &conn, &dom, error);

	if (rc)
		return rc;
	rc = qemu_pid(QEMU_PID_DIR, virDomainGetName(dom), &pid, error);
	if (!rc)
		rc = may ? grant_node(pid, node, error) : grant_take_back(pid, node, error);
	domain_put(conn, dom);
	return rc;
}

int virt_abort_job(struct virt *v, const char *uuid, char *error)
{
	virConnectPtr conn;
	virDomainPtr dom;
	int rc = domain_get(v, uuid, &conn, &dom, error);

	if (rc)
		return rc;
	if (virDomainAbortJob(dom) < 0)
		rc = from_libvirt(error, "abort of the migration");
	domain_put(conn, dom);
	return rc;
}

int virt_set_max_speed(struct virt *v, const char *uuid, unsigned long mib_per_s, char *error)
{
	virConnectPtr conn;
	virDomainPtr dom;
	int rc = domain_get(v, uuid, &conn, &dom, error);

	if (rc)
		return rc;
	if (virDomainMigrateSetMaxSpeed(dom, mib_per_s, 0) < 0)
		rc = from_libvirt(error, "migration speed");
	domain_put(conn, dom);
	return rc;
}

int virt_migrate(struct virt *v, const char *uuid, const char *uri, unsigned mib_per_s,
		 bool persistent, char *error)
{
	unsigned flags = VIR_MIGRATE_LIVE | VIR_MIGRATE_PEER2PEER;
	virTypedParameterPtr params = NULL;
	virConnectPtr conn;
	virDomainPtr dom;
	int n = 0, max = 0, rc = domain_get(v, uuid, &conn, &dom, error);

	if (rc)
		return rc;
	if (persistent)
		flags |= VIR_MIGRATE_PERSIST_DEST | VIR_MIGRATE_UNDEFINE_SOURCE;
	if ((mib_per_s && virTypedParamsAddULLong(&params, &n, &max, VIR_MIGRATE_PARAM_BANDWIDTH,
						  mib_per_s) < 0) ||
	    virDomainMigrateToURI3(dom, uri, params, (unsigned)n, flags) < 0)
		rc = from_libvirt(error, "migration");
	virTypedParamsFree(params, n);
	domain_put(conn, dom);
	return rc;
}

int virt_save(struct virt *v, const char *uuid, const char *file, const struct domain_saved *mark,
	      char *error)
{
	char *xml AUTO_FREE = NULL, *marked AUTO_FREE = NULL;
	virConnectPtr conn;
	virDomainPtr dom;
	int rc = domain_get(v, uuid, &conn, &dom, error);

	if (rc)
		return rc;
	xml = virDomainGetXMLDesc(dom, VIR_DOMAIN_XML_SECURE | VIR_DOMAIN_XML_MIGRATABLE);
	marked = xml ? domain_saved_mark(xml, mark) : NULL;
	if (!marked || virDomainSaveFlags(dom, file, marked, 0) < 0)
		rc = from_libvirt(error, "save");
	domain_put(conn, dom);
	return rc;
}

int virt_image_xml(struct virt *v, const char *file, char **ret_xml, char *error)
{
	virConnectPtr conn = conn_need(v, error);
	int rc = 0;

	if (!conn)
		return -ENOTCONN;
	*ret_xml = virDomainSaveImageGetXMLDesc(conn, file, VIR_DOMAIN_SAVE_IMAGE_XML_SECURE);
	if (!*ret_xml)
		rc = from_libvirt(error, "saved VM");
	virConnectClose(conn);
	return rc;
}

int virt_restore(struct virt *v, const char *file, const char *xml, char *error)
{
	virConnectPtr conn = conn_need(v, error);
	int rc = 0;

	if (!conn)
		return -ENOTCONN;
	if (virDomainRestoreFlags(conn, file, xml, 0) < 0)
		rc = from_libvirt(error, "restore");
	virConnectClose(conn);
	return rc;
}

static uint64_t stat(virTypedParameterPtr params, int n, const char *name)
{
	unsigned long long value = 0;

	virTypedParamsGetULLong(params, n, name, &value);
	return value;
}

int virt_progress(struct virt *v, const char *uuid, struct virt_progress *ret, char *error)
{
	virTypedParameterPtr params = NULL;
	virConnectPtr conn;
	virDomainPtr dom;
	int type = 0, n = 0, rc = domain_get(v, uuid, &conn, &dom, error);

	if (rc)
		return rc;
	if (virDomainGetJobStats(dom, &type, &params, &n, 0) < 0)
		rc = from_libvirt(error, "job statistics");
	else if (type != VIR_DOMAIN_JOB_BOUNDED && type != VIR_DOMAIN_JOB_UNBOUNDED)
		rc = -ENODATA;
	else
		*ret = (struct virt_progress){
			.total_bytes = stat(params, n, VIR_DOMAIN_JOB_MEMORY_TOTAL),
			.remaining_bytes = stat(params, n, VIR_DOMAIN_JOB_MEMORY_REMAINING),
			.bytes_per_s = stat(params, n, VIR_DOMAIN_JOB_MEMORY_BPS),
			.passes = stat(params, n, VIR_DOMAIN_JOB_MEMORY_ITERATION),
		};
	virTypedParamsFree(params, n);
	domain_put(conn, dom);
	return rc;
}

int virt_downtime_ms(struct virt *v, const char *uuid, uint64_t *ret_ms, char *error)
{
	virTypedParameterPtr params = NULL;
	virConnectPtr conn;
	virDomainPtr dom;
	unsigned long long ms;
	int type, n = 0, rc = domain_get(v, uuid, &conn, &dom, error);

	if (rc)
		return rc;
	if (virDomainGetJobStats(dom, &type, &params, &n,
				 VIR_DOMAIN_JOB_STATS_COMPLETED |
					 VIR_DOMAIN_JOB_STATS_KEEP_COMPLETED) < 0)
		rc = from_libvirt(error, "job statistics");
	else if (virTypedParamsGetULLong(params, n, VIR_DOMAIN_JOB_DOWNTIME, &ms) == 1)
		*ret_ms = ms;
	else
		rc = -ENODATA;
	virTypedParamsFree(params, n);
	domain_put(conn, dom);
	return rc;
}

int virt_state(struct virt *v, const char *uuid, enum virt_state *ret_state, char *error)
{
	virConnectPtr conn;
	virDomainPtr dom;
	int state = VIR_DOMAIN_SHUTOFF, rc = domain_get(v, uuid, &conn, &dom, error);

	if (!rc) {
		rc = virDomainGetState(dom, &state, NULL, 0) < 0
			     ? from_libvirt(error, "domain state")
			     : 0;
		domain_put(conn, dom);
	}
	if (rc && rc != -ENOENT)
		return rc;
	if (state == VIR_DOMAIN_SHUTOFF)
		*ret_state = VIRT_GONE;
	else
		*ret_state = state == VIR_DOMAIN_RUNNING ? VIRT_RUNS : VIRT_STANDS;
	return 0;
}

int virt_is_running(struct virt *v, const char *uuid, bool *ret_running, char *error)
{
	enum virt_state state;
	int rc = virt_state(v, uuid, &state, error);

	if (!rc)
		*ret_running = state != VIRT_GONE;
	return rc;
}

int virt_running(struct virt *v, struct json_object **ret_list, char *error)
{
	virConnectPtr conn = conn_get(v);
	virDomainPtr *doms = NULL;
	int n;

	if (!conn) {
		snprintf(error, HTTP_ERROR_MAX, "libvirtd is not reachable");
		return -ENOTCONN;
	}
	n = virConnectListAllDomains(conn, &doms, VIR_CONNECT_LIST_DOMAINS_ACTIVE);
	if (n < 0) {
		n = from_libvirt(error, "list of domains");
		virConnectClose(conn);
		return n;
	}
	*ret_list = json_object_new_array();
	for (int i = 0; i < n; i++) {
		struct json_object *o = json_object_new_object();
		char uuid[VIR_UUID_STRING_BUFLEN];

		virDomainGetUUIDString(doms[i], uuid);
		json_set_str(o, "uuid", uuid);
		json_set_str(o, "name", virDomainGetName(doms[i]));
		json_set_u64(o, "memory_bytes", (uint64_t)virDomainGetMaxMemory(doms[i]) << 10);
		json_object_array_add(*ret_list, o);
		virDomainFree(doms[i]);
	}
	free(doms);
	virConnectClose(conn);
	return 0;
}
