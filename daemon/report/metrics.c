/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/report/metrics.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/migrate/machine.h"
#include "daemon/base/settings.h"
#include "daemon/vm/vm.h"

#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

#define TYPE "text/plain; version=0.0.4"

/* Upper bounds in seconds; the last bucket has none. */
static const double bounds[] = {0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30};
#define BUCKETS (ARRAY_SIZE(bounds) + 1)

static struct histogram {
	const char *name, *help;
	const char *key; /* key in the record's data */
	double scale;    /* factor from the value to seconds */
	uint64_t count[BUCKETS];
	double sum;
} histograms[] = {
	{"ibvmig_outage_seconds",
	 "Time that applications were without RDMA, by source.",
	 "outage_us",
	 1e-6,
	 {0},
	 0},
	{"ibvmig_vm_downtime_seconds",
	 "Time that the VM stood still, by destination.",
	 "vm_downtime_ms",
	 1e-3,
	 {0},
	 0},
};

static struct {
	uint64_t done, aborted;
} ended[2]; /* by role */

static void observe(struct histogram *h, struct json_object *data)
{
	double value = (double)json_opt_u64(data, h->key, 0) * h->scale;
	size_t i = 0;

	if (!json_opt(data, h->key))
		return;
	while (i < ARRAY_SIZE(bounds) && value > bounds[i])
		i++;
	h->count[i]++;
	h->sum += value;
}

void metrics_count(const struct migration *m)
{
	if (m->rec.state != M_DONE) {
		ended[m->rec.role].aborted++;
		return;
	}
	ended[m->rec.role].done++;
	for (size_t i = 0; i < ARRAY_SIZE(histograms); i++)
		observe(&histograms[i], m->rec.data);
}

/* ---- writing ---- */

static void head(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(FILE *f, const char *name, const char *type, const char *help, double value)
{
	head(f, name, type, help);
	fprintf(f, "%s %.17g\n", name, value);
}

/* A label's value: quotes, backslashes and line ends are escaped. */
static void label(FILE *f, const char *key, const char *value)
{
	fprintf(f, "%s=\"", key);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', f);
		fputs(*value == '\n' ? "\\n" : (char[]){*value, '\0'}, f);
	}
	fputc('"', f);
}

static void write_vfs(FILE *f, const struct vf_table *t)
{
	head(f, "ibvmig_vfs", "gauge", "VFs of a PF, by whether a VM has them.");
	for (size_t p = 0; p < t->pf_count; p++) {
		unsigned n[2] = {0};

		for (size_t i = 0; i < t->vf_count; i++)
			n[t->vfs[i].leased] += str_eq(t->vfs[i].pf, t->pfs[p].name);
		for (int used = 0; used < 2; used++) {
			fputs("ibvmig_vfs{", f);
			label(f, "pf", t->pfs[p].name);
			fprintf(f, ",used=\"%s\"} %u\n", used ? "yes" : "no", n[used]);
		}
	}
}

static void write_vms(FILE *f, const struct daemon *d)
{
	head(f, "ibvmig_vm_attached", "gauge", "1 for a VM that has its VF, else 0.");
	for (const struct vm *vm = d->vms; vm; vm = vm->next) {
		if (vm->gone)
			continue;
		fputs("ibvmig_vm_attached{", f);
		label(f, "vm", vm->name);
		fprintf(f, "} %d\n", vm->state == VM_ATTACHED);
	}
	head(f, "ibvmig_vm_agent_up", "gauge", "1 for a VM whose agent answers, else 0.");
	for (const struct vm *vm = d->vms; vm; vm = vm->next) {
		if (vm->gone)
			continue;
		fputs("ibvmig_vm_agent_up{", f);
		label(f, "vm", vm->name);
		fprintf(f, "} %d\n", vm->agent && agent_state(vm->agent) == AGENT_UP);
	}
}

static void write_open(FILE *f, const struct daemon *d)
{
	static const char *const roles[] = {"source", "destination"};
	unsigned n[2] = {0}, parked = 0;

	for (const struct migration *m = d->migrations; m; m = m->next) {
		parked += m->rec.state == M_PARKED;
		n[m->rec.role] += !m->rec.ended && m->rec.state != M_PARKED;
	}
	head(f, "ibvmig_migrations_open", "gauge", "Migrations under way.");
	for (size_t r = 0; r < ARRAY_SIZE(roles); r++)
		fprintf(f, "ibvmig_migrations_open{role=\"%s\"} %u\n", roles[r], n[r]);
	one(f, "ibvmig_migrations_parked", "gauge", "Migrations that wait for an operator.",
	    parked);
	head(f, "ibvmig_migrations_total", "counter", "Migrations that ended since the start.");
	for (size_t r = 0; r < ARRAY_SIZE(roles); r++)
		fprintf(f,
			"ibvmig_migrations_total{role=\"%s\",result=\"done\"} %" PRIu64 "\n"
			"ibvmig_migrations_total{role=\"%s\",result=\"aborted\"} %" PRIu64 "\n",
			roles[r], ended[r].done, roles[r], ended[r].aborted);
}

static void write_histogram(FILE *f, const struct histogram *h)
{
	uint64_t sum = 0;

	head(f, h->name, "histogram", h->help);
	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++) {
		sum += h->count[i];
		fprintf(f, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", h->name, bounds[i], sum);
	}
	sum += h->count[BUCKETS - 1];
	fprintf(f, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.17g\n%s_count %" PRIu64 "\n",
		h->name, sum, h->name, h->sum, h->name, sum);
}

static void write_rest(FILE *f, const struct daemon *d)
{
	const struct http_server *servers[] = {d->unix_server, d->tcp_server};
	struct http_counters sum = {0};

	for (size_t i = 0; i < ARRAY_SIZE(servers); i++) {
		if (!servers[i])
			continue;
		sum.requests += http_server_counters(servers[i])->requests;
		sum.refused += http_server_counters(servers[i])->refused;
		sum.strangers += http_server_counters(servers[i])->strangers;
		sum.late += http_server_counters(servers[i])->late;
	}
	one(f, "ibvmig_http_requests_total", "counter", "REST requests.", (double)sum.requests);
	one(f, "ibvmig_http_refused_total", "counter", "REST requests answered with an error.",
	    (double)sum.refused);
	one(f, "ibvmig_http_strangers_total", "counter",
	    "Connections without a certificate that is believed.", (double)sum.strangers);
	one(f, "ibvmig_http_late_total", "counter",
	    "Connections closed because no whole request came in time.", (double)sum.late);
}

/* Only with TLS: a date that is none would raise alarms. */
static void write_certificate(FILE *f, const struct daemon *d)
{
	struct tls_keys *k = d->tls ? tls_keys_get(d->tls) : NULL;

	if (k)
		one(f, "ibvmig_certificate_expiry_timestamp_seconds", "gauge",
		    "When the certificate or its CA ends, in seconds of Unix time.",
		    (double)k->not_after);
	tls_keys_put(k);
}

/* Resident memory now, not its maximum; 0 if the kernel does not tell. */
static double resident_bytes(void)
{
	char *text AUTO_FREE = NULL;
	unsigned long pages = 0;

	if (read_file("/proc/self/statm", 256, &text, NULL) || sscanf(text, "%*u %lu", &pages) != 1)
		return 0;
	return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

void metrics_get(struct http_request *req)
{
	const struct daemon *d = req->user;
	char *text = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&text, &bytes);

	if (!f) {
		http_fail(req->exchange, 503, "no-memory", "out of memory");
		return;
	}
	head(f, "ibvmig_info", "gauge", "1; the version is a label.");
	fputs("ibvmig_info{", f);
	label(f, "version", IBVMIG_VERSION);
	fputs(",", f);
	label(f, "host", d->settings->host_name);
	fputs("} 1\n", f);
	one(f, "ibvmig_libvirt_connected", "gauge", "1 while libvirtd answers.",
	    virt_is_connected(d->virt));
	one(f, "ibvmig_fabric_ok", "gauge", "1 if addresses could be moved when last asked.",
	    d->sm.known && !*d->sm.error);
	write_vfs(f, d->vfs);
	write_vms(f, d);
	write_open(f, d);
	for (size_t i = 0; i < ARRAY_SIZE(histograms); i++)
		write_histogram(f, &histograms[i]);
	write_rest(f, d);
	write_certificate(f, d);
	one(f, "process_resident_memory_bytes", "gauge", "Memory of ibvmigd.", resident_bytes());
	fclose(f);
	http_reply_text(req->exchange, 200, TYPE, text);
}
