/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commands that plan and move many VMs: plan, drain. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/cli/main.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#define POLL_MS   300
#define PLAN_MS   300000 /* many hosts are asked, of which some may be silent */
#define BAR_CELLS 24
#define MIB       (1024.0 * 1024.0)

static volatile sig_atomic_t interrupts;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupts++;
}

/* "hostb,hostc" → an array. */
static struct json_object *split(const char *text)
{
	struct json_object *list = json_object_new_array();

	while (*text) {
		size_t n = strcspn(text, ",");

		if (n)
			json_object_array_add(list, json_object_new_string_len(text, (int)n));
		text += n + (text[n] == ',');
	}
	return list;
}

/* ---- plan ---- */

static void print_cost(struct json_object *cost)
{
	if (cost)
		printf("  %3" PRIu64 " switches, %3" PRIu64 " SMPs, %2" PRIu64
		       " VMs on the fullest link%s",
		       json_opt_u64(cost, "switches", 0), json_opt_u64(cost, "smps", 0),
		       json_opt_u64(cost, "load", 0),
		       json_opt_bool(cost, "same_leaf", false) ? ", same leaf" : "");
}

static void print_unranked(struct json_object *drain)
{
	const char *why = json_opt_str(drain, "rank_error", NULL);

	if (why)
		printf("(what moves cost the fabric is not known: %s)\n", why);
}

static int all_can_go(struct json_object *drain)
{
	struct json_object *moves = json_opt(drain, "moves");

	for (size_t i = 0; i < json_count(moves); i++)
		if (!json_opt_str(json_object_array_get_idx(moves, i), "to", NULL))
			return CLI_FAILED;
	return CLI_OK;
}

static void print_candidates(struct json_object *drain)
{
	struct json_object *m = json_object_array_get_idx(json_opt(drain, "moves"), 0);
	struct json_object *list = json_opt(m, "candidates");
	const char *best = json_opt_str(m, "to", NULL);

	for (size_t i = 0; i < json_count(list); i++) {
		struct json_object *c = json_object_array_get_idx(list, i);
		const char *host = cli_text(c, "host", "?"), *why = json_opt_str(c, "reason", NULL);

		printf("%s %-16s", str_eq(host, best) ? "*" : why ? "-" : " ", host);
		if (why)
			printf("  %s", why);
		else
			print_cost(json_opt(c, "cost"));
		puts("");
	}
	print_unranked(drain);
	if (!best)
		fprintf(stderr, "ibvmig: %s can go nowhere\n", cli_text(m, "vm", "?"));
}

int cli_plan(const struct command_line *c)
{
	struct json_object *body AUTO_JSON = json_object_new_object(), *drain AUTO_JSON = NULL;
	struct json_object *vms = json_object_new_array();
	int rc;

	json_object_array_add(vms, json_object_new_string(c->args[0]));
	json_set(body, "vms", vms);
	json_set_bool(body, "dry_run", true);
	if (command_has(c, OPT_TO))
		json_set(body, "to", split(command_value(c, OPT_TO)));
	rc = cli_call_within(c, "POST", "/v1/drains", body, PLAN_MS, &drain);
	if (rc)
		return rc;
	if (command_has(c, OPT_JSON))
		cli_print_json(drain);
	else
		print_candidates(drain);
	return all_can_go(drain);
}

/* ---- how far it is ---- */

struct shown {
	bool terminal;
	int width;
	size_t count;
	char (*state)[40]; /* owned; the last one shown, of each move */
	uint64_t begun_ms;
	double first_left; /* bytes, when it was looked at first */
};

/* Bytes that a move still has to send, and what it sends a second. */
static double left_of(struct json_object *m, double *rate)
{
	struct json_object *p = json_opt(m, "progress");
	const char *state = cli_text(m, "state", "");

	if (!strcmp(state, "waiting"))
		return (double)json_opt_u64(m, "memory_bytes", 0);
	if (strcmp(state, "running"))
		return 0;
	if (!p)
		return json_opt_str(m, "phase", NULL) ? 0
						      : (double)json_opt_u64(m, "memory_bytes", 0);
	*rate += (double)json_opt_u64(p, "bytes_per_s", 0);
	return (double)json_opt_u64(p, "remaining_bytes", 0);
}

static void format_eta(const struct shown *s, double left, char *text, size_t bytes)
{
	double sent = s->first_left - left, took = (double)(now_ms() - s->begun_ms) / 1000;

	*text = '\0';
	if (sent > 0 && took >= 1 && left > 0)
		snprintf(text, bytes, "  about %.0f s left", left / (sent / took));
}

static void show_bar(struct shown *s, struct json_object *drain)
{
	struct json_object *moves = json_opt(drain, "moves"), *n = json_opt(drain, "counts");
	uint64_t gone = json_opt_u64(n, "done", 0);
	double left = 0, rate = 0;
	char cells[BAR_CELLS + 1], active[120] = "", eta[40], line[400];

	for (size_t i = 0; i < json_count(moves); i++) {
		struct json_object *m = json_object_array_get_idx(moves, i);
		const char *vm = cli_text(m, "vm", "?");
		size_t at = strlen(active);

		left += left_of(m, &rate);
		if (!strcmp(cli_text(m, "state", ""), "running"))
			snprintf(active + at, sizeof active - at, "  %.*s %.10s", cli_fit(vm, 40),
				 vm, cli_text(m, "phase", "starting"));
	}
	if (!json_count(moves)) {
		cli_draw(cli_text(drain, "state", "?"), &s->width);
		return;
	}
	if (!s->begun_ms) {
		s->begun_ms = now_ms();
		s->first_left = left;
	}
	memset(cells, '.', BAR_CELLS);
	memset(cells, '#', gone * BAR_CELLS / json_count(moves));
	cells[BAR_CELLS] = '\0';
	format_eta(s, left, eta, sizeof eta);
	snprintf(line, sizeof line, "[%s] %" PRIu64 "/%zu VMs  %.0f MiB left  %.0f MiB/s%s%s",
		 cells, gone, json_count(moves), left / MIB, rate / MIB, eta, active);
	cli_draw(line, &s->width);
}

static void print_move(struct json_object *m)
{
	const char *why = json_opt_str(m, "reason", NULL), *to = json_opt_str(m, "to", NULL);

	printf("%-16s %-9s %s%s%s%s\n", cli_text(m, "vm", "?"), cli_text(m, "state", "?"),
	       to ? "to " : "", to ? to : "", why ? (to ? ": " : "") : "", why ? why : "");
}

/* A line for each change, where the output is a file. */
static void show_lines(struct shown *s, struct json_object *drain)
{
	struct json_object *moves = json_opt(drain, "moves");

	if (!s->state && json_count(moves)) { /* none while it is planned */
		s->count = json_count(moves);
		s->state = calloc(s->count + 1, sizeof *s->state);
	}
	for (size_t i = 0; s->state && i < s->count && i < json_count(moves); i++) {
		struct json_object *m = json_object_array_get_idx(moves, i);
		const char *state = cli_text(m, "state", "?");

		if (!strcmp(s->state[i], state))
			continue;
		snprintf(s->state[i], sizeof *s->state, "%s", state);
		if (strcmp(state, "waiting"))
			print_move(m);
	}
	fflush(stdout);
}

/* ---- its end ---- */

static int status_of(struct json_object *drain)
{
	struct json_object *n = json_opt(drain, "counts");

	if (json_opt_u64(n, "parked", 0))
		return CLI_PARKED;
	return str_eq(json_opt_str(drain, "state", ""), "failed") || json_opt_u64(n, "failed", 0) ||
			       json_opt_u64(n, "cannot", 0) || json_opt_u64(n, "cancelled", 0)
		       ? CLI_FAILED
		       : CLI_OK;
}

static int tell_end(const struct command_line *c, struct json_object *drain, const struct shown *s)
{
	struct json_object *moves = json_opt(drain, "moves"), *n = json_opt(drain, "counts");
	uint64_t started = json_opt_u64(drain, "started_ms", 0);
	uint64_t ended = json_opt_u64(drain, "ended_ms", started);

	if (command_has(c, OPT_JSON)) {
		cli_print_json(drain);
		return status_of(drain);
	}
	if (s->terminal)
		puts("");
	for (size_t i = 0; s->terminal && i < json_count(moves); i++)
		print_move(json_object_array_get_idx(moves, i));
	printf("%" PRIu64 " of %zu VMs have gone, in %.1f s\n", json_opt_u64(n, "done", 0),
	       json_count(moves), ended > started ? (double)(ended - started) / 1000 : 0);
	if (json_opt_str(drain, "error", NULL))
		fprintf(stderr, "ibvmig: the drain has failed: %s\n", cli_text(drain, "error", ""));
	return status_of(drain);
}

/* The first ctrl-C lets those that are under way arrive, the second one takes them back. */
static void stop(const struct command_line *c, uint64_t number, int times)
{
	char *path AUTO_FREE = strf("/v1/drains/%" PRIu64 "/abort", number);
	struct json_object *body AUTO_JSON = json_object_new_object(), *answer AUTO_JSON = NULL;

	json_set_bool(body, "cancel", times > 1);
	fprintf(stderr, "\nibvmig: %s\n",
		times > 1 ? "those under way are cancelled"
			  : "no other VM is begun; ctrl-C again cancels those under way");
	cli_call(c, "POST", path, body, &answer);
}

static int follow(const struct command_line *c, uint64_t number)
{
	struct shown s = {.terminal = isatty(STDOUT_FILENO) && !command_has(c, OPT_JSON)};
	const struct timespec rest = {.tv_nsec = POLL_MS * 1000000l};
	char *path AUTO_FREE = strf("/v1/drains/%" PRIu64, number);
	int stopped = 0, rc;

	for (;;) {
		struct json_object *drain AUTO_JSON = NULL;
		const char *state;

		rc = cli_call(c, "GET", path, NULL, &drain);
		if (rc) {
			fprintf(stderr, "ibvmig: the drain goes on as soon as ibvmigd does: the "
					"same command shows it again\n");
			break;
		}
		if (s.terminal)
			show_bar(&s, drain);
		else if (!command_has(c, OPT_JSON))
			show_lines(&s, drain);
		state = cli_text(drain, "state", "");
		if (strcmp(state, "running") && strcmp(state, "planning")) {
			rc = tell_end(c, drain, &s);
			break;
		}
		nanosleep(&rest, NULL);
		if (interrupts > stopped)
			stop(c, number, stopped = interrupts);
	}
	free(s.state);
	return rc;
}

/* ---- drain ---- */

static void print_plan(struct json_object *drain)
{
	struct json_object *moves = json_opt(drain, "moves");

	for (size_t i = 0; i < json_count(moves); i++) {
		struct json_object *m = json_object_array_get_idx(moves, i);
		const char *to = json_opt_str(m, "to", NULL);

		printf("%-16s %6.0f MiB  %-16s", cli_text(m, "vm", "?"),
		       (double)json_opt_u64(m, "memory_bytes", 0) / MIB, to ? to : "nowhere");
		if (to)
			print_cost(json_opt(m, "cost"));
		else
			printf("  %s", cli_text(m, "reason", ""));
		puts("");
	}
	print_unranked(drain);
	printf("%zu VMs\n", json_count(moves));
}

static int read_options(const struct command_line *c, struct json_object *body)
{
	uint64_t n;

	if (command_has(c, OPT_TO))
		json_set(body, "to", split(command_value(c, OPT_TO)));
	json_set_bool(body, "dry_run", command_has(c, OPT_DRY_RUN));
	json_set_bool(body, "persistent", command_has(c, OPT_PERSISTENT));
	if (!command_has(c, OPT_PARALLEL))
		return CLI_OK;
	if (parse_u64(command_value(c, OPT_PARALLEL), 1, 16, &n)) {
		fprintf(stderr, "ibvmig: --parallel %s: must be a number from 1 to 16\n",
			command_value(c, OPT_PARALLEL));
		return CLI_USAGE;
	}
	json_set_u64(body, "parallel", n);
	return CLI_OK;
}

static int start_and_follow(const struct command_line *c, struct json_object *body)
{
	const struct sigaction action = {.sa_handler = on_interrupt};
	struct json_object *drain AUTO_JSON = NULL;
	bool follows = !command_has(c, OPT_NO_WAIT) && !command_has(c, OPT_DRY_RUN);
	int rc;

	/* Also while it is planned: the daemon would go on without us. */
	if (follows)
		sigaction(SIGINT, &action, NULL);
	rc = cli_call_within(c, "POST", "/v1/drains", body, PLAN_MS, &drain);
	if (rc)
		return rc;
	if (follows)
		return follow(c, json_opt_u64(drain, "drain", 0));
	if (command_has(c, OPT_JSON))
		cli_print_json(drain);
	else if (command_has(c, OPT_DRY_RUN))
		print_plan(drain);
	else
		printf("drain %" PRIu64 " started\n", json_opt_u64(drain, "drain", 0));
	return command_has(c, OPT_DRY_RUN) ? all_can_go(drain) : CLI_OK;
}

int cli_drain(const struct command_line *c)
{
	struct json_object *body AUTO_JSON = json_object_new_object();
	int rc = read_options(c, body);

	json_set_str(body, "host", c->args[0]);
	return rc ? rc : start_and_follow(c, body);
}

/* ---- rebalance ---- */

static void print_rates(struct json_object *o, const char *in, const char *out)
{
	printf("  in %6.1f, out %6.1f Gb/s", (double)json_opt_u64(o, in, 0) / 1000,
	       (double)json_opt_u64(o, out, 0) / 1000);
}

static const char *link_state(struct json_object *l)
{
	if (json_opt_bool(l, "wait_stuck", false))
		return "  full (PortXmitWait is at its top: reset the port's counters)";
	if (json_opt_bool(l, "full", false))
		return "  full";
	return json_opt(l, "in_mbps") && json_opt(l, "out_mbps") && json_opt(l, "wait_per_s")
		       ? ""
		       : "  unknown (a counter was reset meanwhile)";
}

static void print_balance(struct json_object *balance)
{
	struct json_object *links = json_opt(balance, "links"), *moves = json_opt(balance, "moves");

	for (size_t i = 0; i < json_count(links); i++) {
		struct json_object *l = json_object_array_get_idx(links, i);

		printf("%-16s %-8s %5.0f Gb/s", cli_text(l, "host", "?"), cli_text(l, "pf", "?"),
		       (double)json_opt_u64(l, "mbps", 0) / 1000);
		print_rates(l, "in_mbps", "out_mbps");
		printf("  then");
		print_rates(l, "in_after", "out_after");
		puts(link_state(l));
	}
	for (size_t i = 0; i < json_count(moves); i++) {
		struct json_object *m = json_object_array_get_idx(moves, i);

		printf("%s from %s to %s", cli_text(m, "vm", "?"), cli_text(m, "from", "?"),
		       cli_text(m, "to", "?"));
		print_rates(m, "in_mbps", "out_mbps");
		puts("");
	}
	if (!json_count(moves))
		puts("nothing to move");
}

int cli_rebalance(const struct command_line *c)
{
	struct json_object *balance AUTO_JSON = NULL;
	struct json_object *body AUTO_JSON = json_object_new_object(), *moves;
	bool apply = command_has(c, OPT_APPLY) && !command_has(c, OPT_DRY_RUN);
	int rc = read_options(c, body);

	if (rc || (rc = cli_call_within(c, "GET", "/v1/balance", NULL, PLAN_MS, &balance)))
		return rc;
	moves = json_opt(balance, "moves");
	apply = apply && json_count(moves);
	if (!command_has(c, OPT_JSON))
		print_balance(balance);
	else if (!apply)
		cli_print_json(balance);
	if (!apply)
		return CLI_OK;
	json_set(body, "moves", json_object_get(moves));
	return start_and_follow(c, body);
}
