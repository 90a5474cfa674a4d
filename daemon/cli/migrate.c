/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commands that change something: migrate, with its progress bar, and abort, resolve, attach,
 * undrain, fence. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/cli/main.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#define POLL_MS    200
#define PREVIEW_MS 300000 /* hosts and peers are asked, of which some may be silent */
#define BAR_CELLS  24
#define MIB        (1024.0 * 1024.0)

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* body: borrowed, or NULL. */
static int post(const struct command_line *c, const char *before, const char *after,
		struct json_object *body)
{
	char *path AUTO_FREE = cli_path(before, c->args[0], after);
	struct json_object *answer AUTO_JSON = NULL;

	return cli_call(c, "POST", path, body, &answer);
}

int cli_abort(const struct command_line *c)
{
	char *path AUTO_FREE = cli_path("/v1/vms/", c->args[0], "/abort");
	struct json_object *answer AUTO_JSON = NULL;
	int rc = cli_call(c, "POST", path, NULL, &answer);

	if (!rc && !json_opt_bool(answer, "under_way", true))
		printf("%s does not migrate: nothing to cancel\n", c->args[0]);
	return rc;
}

int cli_resolve(const struct command_line *c)
{
	struct json_object *body AUTO_JSON = json_object_new_object();

	if (command_has(c, OPT_DESTINATION_LOST) && command_has(c, OPT_SOURCE_LOST)) {
		fprintf(stderr, "ibvmig: --source-lost or --destination-lost, not both: one of "
				"the hosts has the VM\n");
		return CLI_USAGE;
	}
	if (command_has(c, OPT_DESTINATION_LOST))
		json_set_bool(body, "destination_lost", true);
	if (command_has(c, OPT_SOURCE_LOST))
		json_set_bool(body, "source_lost", true);
	return post(c, "/v1/migrations/", "/resolve", body);
}

int cli_undrain(const struct command_line *c)
{
	return post(c, "/v1/hosts/", "/undrain", NULL);
}

int cli_attach(const struct command_line *c)
{
	return post(c, "/v1/vms/", "/attach", NULL);
}

int cli_fence(const struct command_line *c)
{
	char *path AUTO_FREE = cli_path("/v1/vms/", c->args[0], "/fence");
	struct json_object *body AUTO_JSON = json_object_new_object(), *answer AUTO_JSON = NULL;
	struct json_object *list;
	int rc;

	json_set_str(body, "host", c->args[1]);
	rc = cli_call(c, "POST", path, body, &answer);
	list = json_opt(answer, "vguids");
	for (size_t i = 0; !rc && i < json_count(list); i++)
		printf("%s\n", json_object_get_string(json_object_array_get_idx(list, i)));
	if (!rc && !json_count(list))
		fprintf(stderr, "ibvmig: ibvmig-sm knows of nothing that VM %s has on %s\n",
			c->args[0], c->args[1]);
	return rc;
}

/* ---- migrate ---- */

/* The bar keeps this: the last phase shown, for a file; cli_draw()'s width, for a terminal. */
struct bar {
	bool terminal;
	char phase[24];
	int width;
};

static const char *phase_of(struct json_object *job)
{
	struct json_object *m = json_opt(job, "migration");

	return m ? cli_text(m, "state", "?") : "starting";
}

static int format_progress(struct json_object *job, char *line, size_t bytes)
{
	struct json_object *p = json_opt(job, "progress");
	double total = (double)json_opt_u64(p, "total_bytes", 0);
	double left = (double)json_opt_u64(p, "remaining_bytes", 0);
	double part = total > 0 && left <= total ? 1 - left / total : 0;
	char cells[BAR_CELLS + 1];

	if (total <= 0)
		return snprintf(line, bytes, "%s", "");
	memset(cells, '.', BAR_CELLS);
	memset(cells, '#', (size_t)(part * BAR_CELLS));
	cells[BAR_CELLS] = '\0';
	return snprintf(line, bytes, "[%s] %3.0f%%  %.0f MiB left  %.0f MiB/s  pass %" PRIu64,
			cells, part * 100, left / MIB,
			(double)json_opt_u64(p, "bytes_per_s", 0) / MIB,
			json_opt_u64(p, "passes", 0));
}

static void show_progress(struct bar *b, struct json_object *job)
{
	const char *phase = phase_of(job);
	char progress[128], line[200];

	format_progress(job, progress, sizeof progress);
	snprintf(line, sizeof line, "%s to %s  %-8s %s", cli_text(job, "vm", "?"),
		 cli_text(job, "to", "?"), phase, progress);
	if (b->terminal) {
		cli_draw(line, &b->width);
	} else if (strcmp(b->phase, phase)) {
		puts(line);
		fflush(stdout);
	}
	snprintf(b->phase, sizeof b->phase, "%s", phase);
}

/* True if job has come to an end, that of the VF's part included; *ret_status says how. */
static bool has_ended(struct json_object *job, int *ret_status)
{
	struct json_object *m = json_opt(job, "migration");
	const char *state = cli_text(m, "state", "");
	bool parked = !strcmp(state, "PARKED");

	if (!strcmp(cli_text(job, "state", ""), "running") && !parked)
		return false;
	if (m && !parked && strcmp(state, "DONE") && strcmp(state, "ABORTED"))
		return false;
	if (parked)
		*ret_status = CLI_PARKED;
	else if (m && !strcmp(state, "ABORTED") && strcmp(cli_text(m, "reached", ""), "PREPARE"))
		*ret_status = CLI_BACK;
	else /* libvirtd may fail when the VM has gone */
		*ret_status = !strcmp(state, "DONE") || !strcmp(cli_text(job, "state", ""), "done")
				      ? CLI_OK
				      : CLI_FAILED;
	return true;
}

static int tell_end(const struct command_line *c, struct json_object *job, int status)
{
	struct json_object *m = json_opt(job, "migration");
	const char *vm = cli_text(job, "vm", "?"), *error = json_opt_str(job, "error", NULL);

	if (command_has(c, OPT_JSON)) {
		cli_print_json(job);
		return status;
	}
	if (status == CLI_OK)
		printf("%s runs on %s\n", vm, cli_text(job, "to", "?"));
	else if (status == CLI_BACK)
		printf("%s stays where it was: %s\n", vm, cli_text(m, "reason", "walked back"));
	else if (status == CLI_FAILED)
		printf("%s was not migrated\n", vm);
	if (error)
		fprintf(stderr, "ibvmig: %s\n", error);
	cli_print_migration(m);
	return status;
}

/* A daemon that was restarted has none of its jobs any more, and gives their numbers anew. */
static bool is_same(struct json_object *a, struct json_object *b)
{
	return str_eq(json_opt_str(a, "vm", NULL), json_opt_str(b, "vm", NULL)) &&
	       json_opt_u64(a, "started_ms", 0) == json_opt_u64(b, "started_ms", 0);
}

/* asked: the job as it was when it was asked for. */
static int follow(const struct command_line *c, struct json_object *asked)
{
	struct bar b = {.terminal = isatty(STDOUT_FILENO) && !command_has(c, OPT_JSON)};
	const struct timespec rest = {.tv_nsec = POLL_MS * 1000000l};
	char *path AUTO_FREE = strf("/v1/jobs/%" PRIu64, json_opt_u64(asked, "job", 0));

	for (;;) {
		struct json_object *job AUTO_JSON = NULL;
		int status;

		if (cli_call(c, "GET", path, NULL, &job) || !is_same(job, asked)) {
			fprintf(stderr,
				"ibvmig: ibvmigd has been restarted, or is away; the migration "
				"goes on: `ibvmig status %s`, here or on %s, shows it\n",
				c->args[0], c->args[1]);
			return CLI_NO_DAEMON;
		}
		if (!command_has(c, OPT_JSON))
			show_progress(&b, job);
		if (has_ended(job, &status)) {
			if (b.terminal)
				puts("");
			return tell_end(c, job, status);
		}
		nanosleep(&rest, NULL);
		if (interrupted) {
			fprintf(stderr,
				"\nibvmig: the migration goes on; `ibvmig abort %s` cancels it\n",
				c->args[0]);
			return CLI_FAILED;
		}
	}
}

static int read_bandwidth(const struct command_line *c, struct json_object *body)
{
	uint64_t mib;

	if (!command_has(c, OPT_BANDWIDTH))
		return CLI_OK;
	if (parse_u64(command_value(c, OPT_BANDWIDTH), 1, 1u << 20, &mib)) {
		fprintf(stderr, "ibvmig: --bandwidth %s: must be a number of MiB/s from 1 to %u\n",
			command_value(c, OPT_BANDWIDTH), 1u << 20);
		return CLI_USAGE;
	}
	json_set_u64(body, "bandwidth_mib", mib);
	return CLI_OK;
}

/* ---- migrate --dry-run ---- */

static void print_lines(struct json_object *list, const char *before)
{
	for (size_t i = 0; i < json_count(list); i++)
		printf("  %-9s  %s\n", before,
		       json_object_get_string(json_object_array_get_idx(list, i)));
}

/* A shared port's VFs all have its LID, which stays behind. */
static void print_address(struct json_object *vf)
{
	bool stays = str_eq(cli_text(vf, "addresses", ""), "shared-port");

	printf("  VF         %s; there a free one of %s\n", cli_text(vf, "vf", "?"),
	       cli_text(vf, "pf", "?"));
	printf("  addresses  vGUID %s and PKey %s move along, LID %" PRIu64 " %s\n",
	       cli_text(vf, "vguid", "?"), cli_text(vf, "pkey", "?"), json_opt_u64(vf, "lid", 0),
	       stays ? "becomes that of the port there" : "too");
}

static void print_peers(struct json_object *peers)
{
	for (size_t i = 0; i < json_count(peers); i++) {
		struct json_object *p = json_object_array_get_idx(peers, i);

		printf("  peer       %s  %s on %s: %s\n", cli_text(p, "guid", "?"),
		       cli_text(p, "vm", "?"), cli_text(p, "host", "?"),
		       json_opt_str(p, "problem", "its connections are held meanwhile"));
	}
}

static void print_fabric(struct json_object *o)
{
	struct json_object *cost = json_opt(o, "cost");
	const char *why = json_opt_str(o, "rank_error", NULL);

	if (cost)
		printf("  fabric     %" PRIu64 " SMPs to %" PRIu64 " switches%s\n",
		       json_opt_u64(cost, "smps", 0), json_opt_u64(cost, "switches", 0),
		       json_opt_bool(cost, "same_leaf", false) ? ", same leaf" : "");
	else if (why)
		printf("  fabric     what it would cost is not known: %s\n", why);
}

static int print_preview(struct json_object *o)
{
	bool possible = json_opt_bool(o, "possible", false);
	struct json_object *vfs = json_opt(o, "vfs");

	printf("%s %s from %s to %s, %.0f MiB\n", cli_text(o, "vm", "?"),
	       possible ? "would go" : "cannot go", cli_text(o, "from", "?"),
	       cli_text(o, "to", "?"), (double)json_opt_u64(o, "memory_bytes", 0) / MIB);
	print_lines(json_opt(o, "blocked"), "blocked");
	cli_print_choice(json_opt(o, "choice"), "  ");
	print_lines(json_opt(o, "notes"), "note");
	for (size_t i = 0; i < json_count(vfs); i++)
		print_address(json_object_array_get_idx(vfs, i));
	if (json_count(vfs))
		print_fabric(o);
	print_peers(json_opt(o, "peers"));
	return possible ? CLI_OK : CLI_FAILED;
}

static int preview(const struct command_line *c, const char *path, struct json_object *body)
{
	struct json_object *answer AUTO_JSON = NULL;
	int rc;

	json_set_bool(body, "dry_run", true);
	rc = cli_call_within(c, "POST", path, body, PREVIEW_MS, &answer);
	if (rc)
		return rc;
	if (!command_has(c, OPT_JSON))
		return print_preview(answer);
	cli_print_json(answer);
	return json_opt_bool(answer, "possible", false) ? CLI_OK : CLI_FAILED;
}

int cli_migrate(const struct command_line *c)
{
	char *path AUTO_FREE = cli_path("/v1/vms/", c->args[0], "/migrate");
	struct json_object *body AUTO_JSON = json_object_new_object(), *job AUTO_JSON = NULL;
	/* Once more, if the daemon takes its time, and the command ends at once. */
	const struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
	int rc = read_bandwidth(c, body);

	json_set_str(body, "to", c->args[1]);
	if (command_has(c, OPT_STRATEGY))
		json_set_str(body, "strategy", command_value(c, OPT_STRATEGY));
	if (command_has(c, OPT_PERSISTENT))
		json_set_bool(body, "persistent", true);
	if (!rc && command_has(c, OPT_DRY_RUN))
		return preview(c, path, body);
	if (!rc)
		rc = cli_call(c, "POST", path, body, &job);
	if (rc)
		return rc;
	if (command_has(c, OPT_NO_WAIT)) {
		if (command_has(c, OPT_JSON))
			cli_print_json(job);
		else
			printf("job %" PRIu64 " started; ibvmig status %s\n",
			       json_opt_u64(job, "job", 0), c->args[0]);
		return CLI_OK;
	}
	sigaction(SIGINT, &action, NULL);
	return follow(c, job);
}
