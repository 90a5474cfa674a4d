/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig-lease: cancels the migration of a VM that still has its VF when ibvmigd, which should take
 * it away first, is dead or stands still (daemon/store/lease.h). It knows nothing but the leases;
 * for each that has run out it opens a connection to libvirtd of its own. */
#include "common/command.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/store/lease.h"
#include "daemon/base/settings.h"

#include <errno.h>
#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <systemd/sd-daemon.h>

#define DEFAULT_CONF "/etc/ibvmig/ibvmigd.conf"

static const char *last_error(void)
{
	virErrorPtr e = virGetLastError();

	return e && e->message ? e->message : "unknown";
}

static void quiet(void *arg, virErrorPtr e)
{
	(void)arg;
	(void)e;
}

/* Returns 1 if the domain is on its way to another host, 0 if it is not, -errno where libvirt does
 * not say. */
static int is_leaving(virDomainPtr dom)
{
	virTypedParameterPtr params = NULL;
	int type = VIR_DOMAIN_JOB_NONE, n = 0, operation = VIR_DOMAIN_JOB_OPERATION_UNKNOWN;

	if (virDomainGetJobStats(dom, &type, &params, &n, 0) < 0)
		return -EIO;
	virTypedParamsGetInt(params, n, VIR_DOMAIN_JOB_OPERATION, &operation);
	virTypedParamsFree(params, n);
	return (type == VIR_DOMAIN_JOB_BOUNDED || type == VIR_DOMAIN_JOB_UNBOUNDED) &&
	       operation == VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT;
}

/* After a stall of the whole machine ibvmigd's next renewal comes while libvirt is being asked. */
static int cut_domain(virDomainPtr dom, const char *dir, const char *uuid)
{
	const char *name = virDomainGetName(dom);
	int rc = is_leaving(dom);

	if (!rc)
		log_notice("VM %s: does not migrate (any more); its lease is removed", name);
	else if (rc < 0)
		log_warn("VM %s: libvirt does not tell of its job: %s", name, last_error());
	else if (!lease_has_run_out(dir, uuid, now_us()))
		log_notice("VM %s: ibvmigd drives its migration after all", name);
	else if (virDomainAbortJob(dom) < 0)
		log_warn("VM %s: its migration cannot be cancelled: %s", name, last_error());
	else
		log_warn("VM %s: ibvmigd has not said for %d s that it drives the migration: "
			 "cancelled, because the VF is still there",
			 name, LEASE_MS / 1000);
	/* The next look sees that the job has ended. */
	return rc > 0 ? -EAGAIN : rc;
}

static int cut(void *arg, const char *uuid)
{
	const struct settings *s = arg;
	virConnectPtr conn = virConnectOpen(s->libvirt_uri);
	virDomainPtr dom;
	int rc;

	if (!conn) {
		log_warn("VM %s: its migration is to be cancelled, but %s: %s", uuid,
			 s->libvirt_uri, last_error());
		return -ENOTCONN;
	}
	dom = virDomainLookupByUUIDString(conn, uuid);
	if (dom)
		rc = cut_domain(dom, s->lease_dir, uuid);
	else
		rc = virGetLastErrorCode() == VIR_ERR_NO_DOMAIN ? 0 : -EIO;
	if (dom)
		virDomainFree(dom);
	virConnectClose(conn);
	return rc;
}

/* Says when files have changed; what has, is read anew. */
static int watch(const char *dir)
{
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (inotify_add_watch(fd, dir, IN_CREATE | IN_MODIFY | IN_DELETE) < 0)
		return -errno;
	return fd;
}

static void drain(int fd)
{
	char events[4096];

	while (read(fd, events, sizeof events) > 0)
		;
}

static int hold(struct settings *s)
{
	const struct lease_holder h = {.dir = s->lease_dir, .cut = cut, .arg = s};
	int claim AUTO_CLOSE = lease_claim(s->lease_dir);
	struct pollfd p = {.fd = claim < 0 ? claim : watch(s->lease_dir), .events = POLLIN};

	if (p.fd < 0) {
		log_error("%s cannot be watched: %s", s->lease_dir,
			  claim == -EWOULDBLOCK ? "another ibvmig-lease does so" : strerror(-p.fd));
		return 1;
	}
	sd_notify(0, "READY=1");
	log_notice("ibvmig-lease %s watches %s", IBVMIG_VERSION, s->lease_dir);
	for (;;) {
		drain(p.fd);
		if (poll(&p, 1, lease_look(&h, now_us())) < 0 && errno != EINTR)
			return 1;
	}
}

enum { OPT_CONFIG, OPTIONS };

static const struct command_option options[OPTIONS] = {
	[OPT_CONFIG] = {"--config", "FILE", "ibvmigd's configuration, instead of " DEFAULT_CONF,
			'c'},
};

static int start(const struct command_line *l)
{
	const char *config = command_value(l, OPT_CONFIG);
	char *error AUTO_FREE = NULL;
	struct settings *s = NULL;

	if (settings_load(config ? config : DEFAULT_CONF, &s, &error)) {
		log_error("configuration: %s", error ? error : "out of memory");
		return 1;
	}
	virSetErrorFunc(NULL, quiet);
	return hold(s);
}

static const struct command watch_command = {
	NULL, "", COMMAND_BIT(OPT_CONFIG), start,
	"cancel migrations whose VF has not left when ibvmigd is dead"};

static const struct program program = {
	.name = "ibvmig-lease",
	.options = options,
	.option_count = OPTIONS,
	.commands = &watch_command,
	.command_count = 1,
};

int main(int argc, char **argv)
{
	struct command_line l;
	int rc;

	log_init("ibvmig-lease");
	rc = command_parse(&program, argc, argv, &l);
	return rc == COMMAND_RUN ? start(&l) : rc;
}
