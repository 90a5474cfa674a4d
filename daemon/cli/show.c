/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commands that show what there is: the host, its VMs and VFs, migrations, events. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/cli/main.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define WATCH_S 1

/* Bytes that command a terminal can stand in strings only: json-c escapes what is below a space,
 * and leaves DEL and U+0080 to U+009F. */
static void put_json(const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		bool high = *p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f;

		if (high || *p == 0x7f)
			printf("\\u%04x", *(p += high));
		else
			putchar(*p);
	}
	putchar('\n');
}

void cli_print_json(struct json_object *o)
{
	put_json(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
							   JSON_C_TO_STRING_NOSLASHESCAPE));
}

const char *cli_text(struct json_object *o, const char *key, const char *fallback)
{
	const char *t = json_opt_str(o, key, NULL);

	return t ? t : fallback;
}

/* Columns of the terminal now: it may have been resized. */
static int columns(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? INT_MAX : size.ws_col;
}

int cli_fit(const char *text, int most)
{
	int n = (int)strlen(text);

	for (n = n < most ? n : most; n > 0 && (text[n] & 0xC0) == 0x80;)
		n--; /* the end must not be within a character */
	return n;
}

void cli_draw(const char *line, int *width)
{
	int most = columns() - 1; /* a full line would go on in the next one */
	int n = cli_fit(line, most), old = *width < most ? *width : most;

	printf("\r%.*s%*s", n, line, old > n ? old - n : 0, "");
	fflush(stdout);
	*width = n;
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

void cli_print_choice(struct json_object *choice, const char *before)
{
	static const char *const best_first[] = {"native", "late", "early", "cold"};
	struct json_object *why = json_opt(choice, "why_not");
	const char *chosen = cli_text(choice, "chosen", "?");
	bool none = json_opt(why, chosen) || str_eq(chosen, "auto");

	if (!choice)
		return;
	printf("%sstrategy %s%s%s\n", before, chosen,
	       str_eq(cli_text(choice, "asked", ""), "auto") ? "" : ", as asked",
	       none                             ? " (not possible)"
	       : json_object_object_length(why) ? ", because not"
						: "");
	for (size_t i = 0; i < ARRAY_SIZE(best_first); i++)
		if (json_opt(why, best_first[i]))
			printf("%s  %s: %s\n", before, best_first[i],
			       cli_text(why, best_first[i], ""));
}

void cli_print_migration(struct json_object *m)
{
	struct json_object *data = json_opt(m, "data"), *from = json_opt(m, "from"),
			   *to = json_opt(m, "to");

	if (!m)
		return;
	printf("  migration  %s  %s -> %s  as %s: %s%s\n", cli_text(m, "id", "?"),
	       cli_text(from, "host", "?"), cli_text(to, "host", "?"), cli_text(m, "role", "?"),
	       json_opt_str(m, "phase", cli_text(m, "state", "?")),
	       json_opt_bool(m, "back", false) ? " (walked back)" : "");
	cli_print_choice(json_opt(data, "choice"), "             ");
	if (json_opt_str(m, "reason", NULL))
		printf("             reason: %s\n", cli_text(m, "reason", ""));
	if (!str_eq(cli_text(m, "state", ""), "PARKED") && json_opt_u64(m, "failures", 0))
		printf("             failed %" PRIu64 " times, is tried again: %s\n",
		       json_opt_u64(m, "failures", 0), cli_text(m, "trouble", "?"));
	if (str_eq(cli_text(m, "state", ""), "PARKED"))
		printf("             PARKED: %s; when that is mended: ibvmig resolve %s\n",
		       cli_text(m, "trouble", "?"), cli_text(m, "id", "?"));
	if (json_opt_bool(m, "journal_behind", false))
		puts("             its journal cannot be written (is the disk full?); that is "
		     "tried "
		     "again each second");
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

static void print_vf(struct json_object *vf)
{
	printf("VF %-12s vGUID %s  LID %" PRIu64 "  PKey %s", cli_text(vf, "vf", "-"),
	       cli_text(vf, "vguid", "-"), json_opt_u64(vf, "lid", 0), cli_text(vf, "pkey", "-"));
	if (json_opt_str(vf, "membership", NULL) && !str_eq(cli_text(vf, "membership", ""), "full"))
		printf(" (%s)", str_eq(cli_text(vf, "membership", ""), "none") ? "NO MEMBER"
									       : "limited member");
}

/* The first VF's fields are the VM's own too; each other one has a line. */
static void print_vm(struct json_object *vm)
{
	struct json_object *vfs = json_opt(vm, "vfs");

	printf("VM %-12s %-10s ", cli_text(vm, "name", "?"), cli_text(vm, "state", "?"));
	print_vf(vm);
	printf("  agent %s", cli_text(json_opt(vm, "agent"), "state", "?"));
	if (json_opt(vm, "since_ms"))
		print_time("  since ", json_opt_u64(vm, "since_ms", 0));
	puts("");
	for (size_t i = 1; i < json_count(vfs); i++) {
		printf("%27s", "");
		print_vf(json_object_array_get_idx(vfs, i));
		puts("");
	}
	if (json_opt_str(vm, "problem", NULL))
		printf("  problem    %s\n", cli_text(vm, "problem", ""));
	cli_print_migration(json_opt(vm, "migration"));
}

static void print_vms(struct json_object *top)
{
	struct json_object *vms = json_opt(top, "vms");

	for (size_t i = 0; i < json_count(vms); i++)
		print_vm(json_object_array_get_idx(vms, i));
}

static void print_host(struct json_object *top)
{
	struct json_object *virt = json_opt(top, "libvirt"), *sm = json_opt(top, "sm"),
			   *vfs = json_opt(top, "vfs");
	size_t n = json_count(vfs), used = 0;

	for (size_t i = 0; i < n; i++)
		used += json_opt_str(json_object_array_get_idx(vfs, i), "vm", NULL) != NULL;
	printf("host %s  ibvmigd %s  libvirt %s  fabric %s  VFs %zu of %zu in use\n",
	       cli_text(top, "host", "?"), cli_text(top, "version", "?"),
	       json_opt_bool(virt, "connected", false) ? "ok" : "NOT CONNECTED",
	       json_opt_bool(sm, "ok", false) ? "ok" : "NOT OK", used, n);
	if (json_opt_str(sm, "error", NULL))
		printf("  fabric     %s\n", cli_text(sm, "error", ""));
	if (json_opt_bool(top, "drained", false)) {
		print_time("  drained    since ", json_opt_u64(top, "drained_since_ms", 0));
		printf(": no VM can migrate here; ibvmig undrain %s ends that\n",
		       cli_text(top, "host", "?"));
	}
	if (json_opt_str(top, "vf_error", NULL))
		printf("  VFs        %s\n", cli_text(top, "vf_error", ""));
}

/* A process that has no QP has a line as well: it holds the device. */
static void print_qp(struct json_object *process, struct json_object *q)
{
	printf("%-15s %7" PRIu64, cli_text(process, "comm", "?"), json_opt_u64(process, "pid", 0));
	if (!q) {
		puts("  no QPs");
		return;
	}
	printf("  0x%06" PRIx64 " 0x%06" PRIx64 "  %-4s %-5s %8" PRIu64 " %12" PRIu64 "  ",
	       json_opt_u64(q, "vqpn", 0), json_opt_u64(q, "qpn", 0), cli_text(q, "type", "?"),
	       cli_text(q, "state", "?"), json_opt_u64(q, "unacked", 0),
	       json_opt_u64(q, "unacked_bytes", 0));
	if (json_opt(q, "dgid"))
		printf("%s 0x%06" PRIx64 " 0x%06" PRIx64, cli_text(q, "dgid", "?"),
		       json_opt_u64(q, "dvqpn", 0), json_opt_u64(q, "dqpn", 0));
	else
		printf("-");
	puts(json_opt_bool(q, "uncovered", false) ? "  NOT COVERED" : "");
}

static void print_process(struct json_object *process)
{
	struct json_object *list = json_opt(process, "qps");
	size_t n = json_count(list);

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
	for (size_t i = 0; i < json_count(processes); i++)
		print_process(json_object_array_get_idx(processes, i));
	for (size_t i = 0; i < json_count(uncovered); i++) {
		struct json_object *u = json_object_array_get_idx(uncovered, i);

		printf("not covered: %s (pid %" PRIu64 "): %s\n", cli_text(u, "comm", "?"),
		       json_opt_u64(u, "pid", 0), cli_text(u, "why", "?"));
	}
	printf("path records: %" PRIu64 " kept, %" PRIu64 " queries sent, %" PRIu64 " saved\n",
	       json_opt_u64(paths, "entries", 0), json_opt_u64(paths, "queries", 0),
	       json_opt_u64(paths, "saved", 0));
	if (json_opt_bool(top, "truncated", false))
		puts("the list is cut: it would be longer than the guest's channel takes at once");
}

static int show_qps(const struct command_line *c)
{
	char *path AUTO_FREE = cli_path("/v1/vms/", c->args[0], "/qps");
	struct json_object *answer AUTO_JSON = NULL;
	int rc = cli_call(c, "GET", path, NULL, &answer);

	if (rc)
		return rc;
	if (command_has(c, OPT_JSON))
		cli_print_json(answer);
	else
		print_qps(answer);
	return CLI_OK;
}

static int show_status(const struct command_line *c)
{
	const char *vm = c->args[0];
	char *path AUTO_FREE = vm ? cli_path("/v1/vms/", vm, "") : strdup("/v1/status");
	struct json_object *answer AUTO_JSON = NULL;
	int rc = cli_call(c, "GET", path, NULL, &answer);

	if (rc)
		return rc;
	if (command_has(c, OPT_JSON)) {
		cli_print_json(answer);
	} else if (vm) {
		print_vm(answer);
	} else {
		print_host(answer);
		print_vms(answer);
	}
	return CLI_OK;
}

static bool can_be_cleared(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && term && strcmp(term, "dumb");
}

int cli_status(const struct command_line *c)
{
	int (*show)(const struct command_line *c) = command_has(c, OPT_QPS) ? show_qps
									    : show_status;
	bool clears = can_be_cleared();
	int rc;

	if (command_has(c, OPT_QPS) && !c->args[0]) {
		fprintf(stderr, "ibvmig: --qps is of one VM: ibvmig status VM --qps\n");
		return CLI_USAGE;
	}
	while (command_has(c, OPT_WATCH)) {
		time_t now = time(NULL);

		/* Home, and clear what is below: without the flicker of an empty screen. */
		if (clears)
			printf("\033[H\033[J");
		if (!command_has(c, OPT_JSON))
			printf("%s", ctime(&now));
		/* A daemon that is being restarted comes back. */
		rc = show(c);
		if (rc && rc != CLI_NO_DAEMON)
			return rc;
		if (fflush(stdout))
			return CLI_FAILED;
		sleep(WATCH_S);
	}
	return show(c);
}

int cli_list(const struct command_line *c)
{
	struct json_object *answer AUTO_JSON = NULL, *list;
	int rc = cli_call(c, "GET", "/v1/migrations", NULL, &answer);

	if (rc)
		return rc;
	if (command_has(c, OPT_JSON)) {
		cli_print_json(answer);
		return CLI_OK;
	}
	list = json_opt(answer, "migrations");
	for (size_t i = 0; i < json_count(list); i++) {
		struct json_object *m = json_object_array_get_idx(list, i);

		printf("VM %s\n", cli_text(m, "name", "?"));
		cli_print_migration(m);
	}
	printf("the newest %zu migrations; the journal keeps %" PRIu64 " that have ended\n",
	       json_count(list), json_opt_u64(answer, "keeps", 0));
	return CLI_OK;
}

int cli_vf(const struct command_line *c)
{
	struct json_object *answer AUTO_JSON = NULL, *vfs;
	int rc = cli_call(c, "GET", "/v1/status", NULL, &answer);

	if (rc)
		return rc;
	vfs = json_opt(answer, "vfs");
	if (command_has(c, OPT_JSON)) {
		cli_print_json(vfs);
		return CLI_OK;
	}
	if (json_opt_str(answer, "vf_error", NULL))
		printf("no inventory: %s\n", cli_text(answer, "vf_error", ""));
	printf("%-16s %-10s %-18s %-18s %s\n", "VF", "PF", "OWN GUID", "VGUID", "VM");
	for (size_t i = 0; i < json_count(vfs); i++) {
		struct json_object *vf = json_object_array_get_idx(vfs, i);

		printf("%-16s %-10s %-18s %-18s %s%s\n", cli_text(vf, "name", "?"),
		       cli_text(vf, "pf", "?"), cli_text(vf, "parked_guid", "?"),
		       cli_text(vf, "vguid", "-"), cli_text(vf, "vm", "free"),
		       json_opt_str(vf, "migration", NULL) ? "  (arriving)" : "");
	}
	return CLI_OK;
}

int cli_events(const struct command_line *asked)
{
	struct command_line json = *asked, *c = &json;
	uint64_t next = 0;

	/* as the daemon tells them */
	json.given_count = 1;
	json.given[0].option = OPT_JSON;
	json.given[0].value = "";

	for (;;) {
		struct json_object *answer AUTO_JSON = NULL, *list;
		char path[64];
		int rc;

		snprintf(path, sizeof path, "/v1/events?since=%" PRIu64, next);
		rc = cli_call(c, "GET", path, NULL, &answer);
		if (rc)
			return rc;
		list = json_opt(answer, "events");
		for (size_t i = 0; i < json_count(list); i++)
			put_json(json_text(json_object_array_get_idx(list, i)));
		if (fflush(stdout))
			return CLI_FAILED;
		next = json_opt_u64(answer, "next", 0);
	}
}
