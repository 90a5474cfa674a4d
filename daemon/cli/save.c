/* SPDX-License-Identifier: GPL-2.0-or-later */
/* save and restore. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/cli/main.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAVE_MS (24u * 3600 * 1000) /* very much memory may go to a slow disk */
#define POLL_MS 200
#define LOOK_MS 10000

/* The daemon runs in another folder. Owned by the caller. */
static char *absolute(const char *file)
{
	char folder[PATH_MAX];

	if (*file == '/' || !getcwd(folder, sizeof folder))
		return strf("%s", file);
	return strf("%s/%s", folder, file);
}

/* ---- ctrl-C: the daemon goes on ---- */

static char *interrupt_text; /* owned; a signal may come at any time */

static void on_interrupt(int sig)
{
	ssize_t n = write(STDERR_FILENO, interrupt_text, strlen(interrupt_text));

	(void)sig;
	(void)n;
	_exit(CLI_FAILED);
}

/* text: taken. */
static void tell_if_interrupted(char *text)
{
	const struct sigaction action = {.sa_handler = on_interrupt};

	interrupt_text = text;
	if (text)
		sigaction(SIGINT, &action, NULL);
}

/* ---- save ---- */

/* {"file"} to path; 0 and *ret_answer, owned by the caller, or an exit status. */
static int post_file(const struct command_line *c, const char *path, const char *name,
		     struct json_object **ret_answer)
{
	struct json_object *body AUTO_JSON = json_object_new_object();
	char *file AUTO_FREE = absolute(name);

	json_set_str(body, "file", file);
	if (command_has(c, OPT_SOURCE_LOST))
		json_set_bool(body, "source_lost", true);
	return cli_call_within(c, "POST", path, body, SAVE_MS, ret_answer);
}

int cli_save(const struct command_line *c)
{
	char *path AUTO_FREE = cli_path("/v1/vms/", c->args[0], "/save");
	struct json_object *m AUTO_JSON = NULL;
	int rc;

	tell_if_interrupted(
		strf("\nibvmig: the save goes on; `ibvmig abort %s` cancels it\n", c->args[0]));
	rc = post_file(c, path, c->args[1], &m);
	if (rc)
		return rc;
	if (command_has(c, OPT_JSON))
		cli_print_json(m);
	else if (!json_opt_bool(m, "saved", true))
		printf("%s is being saved there already; ibvmig status %s tells how far it is\n",
		       c->args[0], c->args[0]);
	else
		printf("%s is saved; ibvmig restore %s, here or on another host, goes on with it\n",
		       c->args[0], c->args[1]);
	return CLI_OK;
}

/* ---- restore ---- */

/* Returns what this host has of it: as the destination, else as the one that saved it. */
static struct json_object *part_of(struct json_object *both)
{
	struct json_object *there = json_opt(both, "destination");

	return there ? there : json_opt(both, "source");
}

static int tell(const struct command_line *c, struct json_object *answer, struct json_object *m)
{
	const char *state = cli_text(m, "state", "");

	if (command_has(c, OPT_JSON)) {
		cli_print_json(m ? m : answer);
	} else {
		printf("%s runs on this host\n", cli_text(answer, "vm", "?"));
		if (m)
			cli_print_migration(m);
	}
	return strcmp(state, "PARKED") ? CLI_OK : CLI_PARKED;
}

/* libvirt has started it: until its VF and its connections are back. */
static int follow(const struct command_line *c, struct json_object *answer)
{
	const struct timespec rest = {.tv_nsec = POLL_MS * 1000000l};
	char *path AUTO_FREE = cli_path("/v1/migrations/", json_opt_str(answer, "migration", ""),
					"");

	for (;;) {
		struct json_object *both AUTO_JSON = NULL, *m;
		int rc = cli_call_quietly(c, path, LOOK_MS, &both);

		/* A file whose record is not known here any more. */
		if (rc == -EREMOTEIO)
			return tell(c, answer, NULL);
		if (rc) {
			fprintf(stderr,
				"ibvmig: %s runs on this host, but ibvmigd does not answer any "
				"more: `ibvmig status %s` tells what has become of its VF\n",
				cli_text(answer, "vm", "?"), cli_text(answer, "vm", "?"));
			return CLI_NO_DAEMON;
		}
		m = part_of(both);
		if (json_opt_bool(m, "ended", false) || !strcmp(cli_text(m, "state", ""), "PARKED"))
			return tell(c, answer, m);
		nanosleep(&rest, NULL);
	}
}

int cli_restore(const struct command_line *c)
{
	struct json_object *answer AUTO_JSON = NULL;
	int rc;

	tell_if_interrupted(strf("\nibvmig: the restore goes on; `ibvmig list` shows it\n"));
	rc = post_file(c, "/v1/restore", c->args[0], &answer);
	if (rc)
		return rc;
	if (!json_opt(answer, "vm")) {
		if (command_has(c, OPT_JSON))
			cli_print_json(answer);
		else
			printf("%s is being restored here already; ibvmig list tells how far it "
			       "is\n",
			       c->args[0]);
		return CLI_OK;
	}
	return json_opt(answer, "migration") ? follow(c, answer) : tell(c, answer, NULL);
}
