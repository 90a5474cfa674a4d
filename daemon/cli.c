/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig: shows what the daemon of this host knows. No logic of its own. */
#include "common/http_client.h"
#include "common/json.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define SOCKET_DEFAULT "/run/ibvmig/ibvmigd.sock"
#define CALL_MS        30000

struct args {
	char *base; /* owned: "unix:PATH" */
	bool json, qps;
	const char *name; /* the command's argument, or NULL */
};

static int get(const struct args *a, const char *method, const char *path,
	       struct json_object **ret_answer)
{
	char error[HTTP_ERROR_MAX];
	int rc = http_call(a->base, method, path, NULL, CALL_MS, ret_answer, error);

	if (rc == -ECONNREFUSED)
		fprintf(stderr,
			"ibvmig: ibvmigd does not answer at %s: start it (systemctl start "
			"ibvmigd), "
			"or give its socket with --socket\n",
			a->base);
	else if (rc)
		fprintf(stderr, "ibvmig: %s\n", error);
	return rc;
}

static void print_json(struct json_object *o)
{
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
						       JSON_C_TO_STRING_NOSLASHESCAPE));
}

static const char *text(struct json_object *o, const char *key, const char *fallback)
{
	const char *t = json_opt_str(o, key, NULL);

	return t ? t : fallback;
}

static void print_time(const char *label, uint64_t ms)
{
	time_t s = (time_t)(ms / 1000);
	struct tm tm;
	char line[32];

	strftime(line, sizeof line, "%Y-%m-%d %H:%M:%S", localtime_r(&s, &tm));
	printf("%s%s", label, line);
}

static void print_us(struct json_object *data, const char *key, const char *label)
{
	if (json_opt(data, key))
		printf("  %s %.1f ms", label, (double)json_opt_u64(data, key, 0) / 1000.0);
}

static void print_migration(struct json_object *m)
{
	struct json_object *data = json_opt(m, "data"), *from = json_opt(m, "from"),
			   *to = json_opt(m, "to");

	if (!m)
		return;
	printf("  migration  %s  %s -> %s  as %s: %s%s\n", text(m, "id", "?"),
	       text(from, "host", "?"), text(to, "host", "?"), text(m, "role", "?"),
	       text(m, "state", "?"), json_opt_bool(m, "back", false) ? " (walked back)" : "");
	if (json_opt_str(m, "reason", NULL))
		printf("             reason: %s\n", text(m, "reason", ""));
	if (str_eq(text(m, "state", ""), "PARKED"))
		printf("             PARKED: %s; when that is mended: ibvmig resolve %s\n",
		       text(m, "trouble", "?"), text(m, "id", "?"));
	printf("            ");
	print_us(data, "prepare_us", "prepare");
	print_us(data, "hold_us", "hold");
	print_us(data, "quiesce_us", "quiesce");
	print_us(data, "detach_us", "detach");
	print_us(data, "switch_us", "switch");
	print_us(data, "attach_us", "attach");
	print_us(data, "resume_us", "resume");
	print_us(data, "detach_to_attach_us", "detach to attach");
	print_us(data, "outage_us", "outage");
	if (json_opt(data, "vm_downtime_ms"))
		printf("  VM downtime %" PRIu64 " ms", json_opt_u64(data, "vm_downtime_ms", 0));
	puts("");
}

static void print_vm(struct json_object *vm)
{
	printf("VM %-12s %-10s VF %-12s vGUID %s  LID %" PRIu64 "  PKey %s  agent %s",
	       text(vm, "name", "?"), text(vm, "state", "?"), text(vm, "vf", "-"),
	       text(vm, "vguid", "-"), json_opt_u64(vm, "lid", 0), text(vm, "pkey", "-"),
	       text(json_opt(vm, "agent"), "state", "?"));
	if (json_opt(vm, "since_ms"))
		print_time("  since ", json_opt_u64(vm, "since_ms", 0));
	puts("");
	if (json_opt_str(vm, "problem", NULL))
		printf("  problem    %s\n", text(vm, "problem", ""));
	print_migration(json_opt(vm, "migration"));
}

static void print_vms(struct json_object *top)
{
	struct json_object *vms = json_opt(top, "vms");

	for (size_t i = 0; vms && i < json_object_array_length(vms); i++)
		print_vm(json_object_array_get_idx(vms, i));
}

static void print_host(struct json_object *top)
{
	struct json_object *virt = json_opt(top, "libvirt"), *sm = json_opt(top, "sm"),
			   *vfs = json_opt(top, "vfs");
	size_t n = vfs ? json_object_array_length(vfs) : 0, used = 0;

	for (size_t i = 0; i < n; i++)
		used += json_opt_str(json_object_array_get_idx(vfs, i), "vm", NULL) != NULL;
	printf("host %s  ibvmigd %s  libvirt %s  fabric %s  VFs %zu of %zu in use\n",
	       text(top, "host", "?"), text(top, "version", "?"),
	       json_opt_bool(virt, "connected", false) ? "ok" : "NOT CONNECTED",
	       json_opt_bool(sm, "ok", false) ? "ok" : "NOT OK", used, n);
	if (json_opt_str(sm, "error", NULL))
		printf("  fabric     %s\n", text(sm, "error", ""));
	if (json_opt_str(top, "vf_error", NULL))
		printf("  VFs        %s\n", text(top, "vf_error", ""));
}

/* A process that has no QP has a line as well: it holds the device. */
static void print_qp(struct json_object *process, struct json_object *q)
{
	printf("%-15s %7" PRIu64, text(process, "comm", "?"), json_opt_u64(process, "pid", 0));
	if (!q) {
		puts("  no QPs");
		return;
	}
	printf("  0x%06" PRIx64 " 0x%06" PRIx64 "  %-4s %-5s %8" PRIu64 " %12" PRIu64 "  ",
	       json_opt_u64(q, "vqpn", 0), json_opt_u64(q, "qpn", 0), text(q, "type", "?"),
	       text(q, "state", "?"), json_opt_u64(q, "unacked", 0),
	       json_opt_u64(q, "unacked_bytes", 0));
	if (json_opt(q, "dgid"))
		printf("%s 0x%06" PRIx64 " 0x%06" PRIx64, text(q, "dgid", "?"),
		       json_opt_u64(q, "dvqpn", 0), json_opt_u64(q, "dqpn", 0));
	else
		printf("-");
	puts(json_opt_bool(q, "uncovered", false) ? "  NOT COVERED" : "");
}

static void print_process(struct json_object *process)
{
	struct json_object *list = json_opt(process, "qps");
	size_t n = list ? json_object_array_length(list) : 0;

	for (size_t i = 0; i < n; i++)
		print_qp(process, json_object_array_get_idx(list, i));
	if (!n)
		print_qp(process, NULL);
}

static void print_qps(struct json_object *top)
{
	struct json_object *processes = json_opt(top, "processes"),
			   *uncovered = json_opt(top, "uncovered"), *paths = json_opt(top, "paths");

	printf("%-15s %7s  %-8s %-8s  %-4s %-5s %8s %12s  %-39s %-8s %s\n", "PROCESS", "PID", "QPN",
	       "REAL", "TYPE", "STATE", "UNACKED", "BYTES", "PEER", "QPN", "REAL");
	for (size_t i = 0; processes && i < json_object_array_length(processes); i++)
		print_process(json_object_array_get_idx(processes, i));
	for (size_t i = 0; uncovered && i < json_object_array_length(uncovered); i++) {
		struct json_object *u = json_object_array_get_idx(uncovered, i);

		printf("not covered: %s (pid %" PRIu64 "): %s\n", text(u, "comm", "?"),
		       json_opt_u64(u, "pid", 0), text(u, "why", "?"));
	}
	printf("path records: %" PRIu64 " kept, %" PRIu64 " queries sent, %" PRIu64 " saved\n",
	       json_opt_u64(paths, "entries", 0), json_opt_u64(paths, "queries", 0),
	       json_opt_u64(paths, "saved", 0));
	if (json_opt_bool(top, "truncated", false))
		puts("the list is cut: it would be longer than the guest's channel takes at once");
}

static int cmd_qps(const struct args *a)
{
	char *path AUTO_FREE = strf("/v1/vms/%s/qps", a->name);
	struct json_object *answer AUTO_JSON = NULL;

	if (get(a, "GET", path, &answer))
		return 1;
	if (a->json)
		print_json(answer);
	else
		print_qps(answer);
	return 0;
}

static int cmd_status(const struct args *a)
{
	if (a->qps)
		return cmd_qps(a);
	char *path AUTO_FREE = a->name ? strf("/v1/vms/%s", a->name) : strdup("/v1/status");
	struct json_object *answer AUTO_JSON = NULL;

	if (get(a, "GET", path, &answer))
		return 1;
	if (a->json) {
		print_json(answer);
	} else if (a->name) {
		print_vm(answer);
	} else {
		print_host(answer);
		print_vms(answer);
	}
	return 0;
}

static int cmd_list(const struct args *a)
{
	struct json_object *answer AUTO_JSON = NULL, *list;

	if (get(a, "GET", "/v1/migrations", &answer))
		return 1;
	if (a->json) {
		print_json(answer);
		return 0;
	}
	list = json_opt(answer, "migrations");
	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		struct json_object *m = json_object_array_get_idx(list, i);

		printf("VM %s\n", text(m, "name", "?"));
		print_migration(m);
	}
	return 0;
}

static int cmd_events(const struct args *a)
{
	uint64_t next = 0;

	for (;;) {
		struct json_object *answer AUTO_JSON = NULL, *list;
		char path[64];

		snprintf(path, sizeof path, "/v1/events?since=%" PRIu64, next);
		if (get(a, "GET", path, &answer))
			return 1;
		list = json_opt(answer, "events");
		for (size_t i = 0; list && i < json_object_array_length(list); i++)
			puts(json_text(json_object_array_get_idx(list, i)));
		fflush(stdout);
		next = json_opt_u64(answer, "next", 0);
	}
}

static int post(const struct args *a, const char *fmt_path)
{
	char *path AUTO_FREE = strf(fmt_path, a->name);
	struct json_object *answer AUTO_JSON = NULL;

	return get(a, "POST", path, &answer) ? 1 : 0;
}

static int cmd_resolve(const struct args *a)
{
	return post(a, "/v1/migrations/%s/resolve");
}

static int cmd_attach(const struct args *a)
{
	return post(a, "/v1/vms/%s/attach");
}

static const struct command {
	const char *name, *argument; /* NULL: none; in brackets: may be left out */
	int (*run)(const struct args *a);
	const char *help;
} commands[] = {
	{"status", "[VM]", cmd_status, "this host, its VFs and VMs, or one VM"},
	{"list", NULL, cmd_list, "the last migrations from and to this host"},
	{"events", NULL, cmd_events, "what happens, one JSON object a line, until stopped"},
	{"attach", "VM", cmd_attach, "try again to give a VM its VF"},
	{"resolve", "ID", cmd_resolve, "let a parked migration go on"},
};

static int usage(FILE *out)
{
	fprintf(out, "usage: ibvmig [--socket PATH] [--json] COMMAND [ARGUMENT]\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-8s %-6s %s\n", commands[i].name,
			commands[i].argument ? commands[i].argument : "", commands[i].help);
	fprintf(out, "  --qps            with status VM: processes, their QPs and peers\n");
	fprintf(out, "  --socket PATH    default " SOCKET_DEFAULT "\n"
		     "  --json           as the daemon answers\n");
	return out == stderr ? 2 : 0;
}

static int dispatch(struct args *a, const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(commands); i++) {
		const struct command *c = &commands[i];

		if (strcmp(c->name, name))
			continue;
		if (a->qps && (c->run != cmd_status || !a->name))
			break;
		if ((a->name && !c->argument) || (!a->name && c->argument && c->argument[0] != '['))
			break;
		return c->run(a);
	}
	return usage(stderr);
}

int main(int argc, char **argv)
{
	struct args a = {.base = strdup("unix:" SOCKET_DEFAULT)};
	const char *name = NULL;
	int rc;

	http_client_init();
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			rc = usage(stdout);
			goto out;
		} else if (!strcmp(argv[i], "--json")) {
			a.json = true;
		} else if (!strcmp(argv[i], "--qps")) {
			a.qps = true;
		} else if (!strcmp(argv[i], "--socket") && i + 1 < argc) {
			free(a.base);
			a.base = strf("unix:%s", argv[++i]);
		} else if (argv[i][0] == '-' || (name && a.name)) {
			rc = usage(stderr);
			goto out;
		} else if (name) {
			a.name = argv[i];
		} else {
			name = argv[i];
		}
	}
	rc = dispatch(&a, name);
out:
	free(a.base);
	return rc;
}
