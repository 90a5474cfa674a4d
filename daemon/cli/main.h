/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The command line `ibvmig`: what its files share. It shows what the daemon says, and asks it. */
#ifndef IBVMIG_DAEMON_CLI_MAIN_H
#define IBVMIG_DAEMON_CLI_MAIN_H

#include "common/command.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

/* Exit statuses; docs/man/ibvmig.1 tells them. */
enum {
	CLI_OK = 0,
	CLI_FAILED = 1, /* refused, or found wrong */
	CLI_USAGE = COMMAND_USAGE,
	CLI_BACK = 3,      /* a migration was walked back: the VM runs where it was */
	CLI_PARKED = 4,    /* a migration waits for an operator */
	CLI_NO_DAEMON = 5, /* ibvmigd does not answer */
};

#define CLI_SCHEME "unix:" /* before the socket's path, in the context of a command_line */

/* The options of commands, as indices of the table in main.c. */
enum cli_option {
	OPT_SOCKET,
	OPT_JSON,
	OPT_QPS,
	OPT_WATCH,
	OPT_STRATEGY,
	OPT_BANDWIDTH,
	OPT_PERSISTENT,
	OPT_NO_WAIT,
	OPT_SVG,
	OPT_TO,
	OPT_PARALLEL,
	OPT_DRY_RUN,
	OPT_APPLY,
	OPT_SOURCE_LOST,
	OPT_DESTINATION_LOST,
	OPTIONS
};

/* before, then name as a path may hold it, then after. Owned by the caller. */
char *cli_path(const char *before, const char *name, const char *after);
/* Makes a call to the daemon. 0 and *ret_answer (owned by the caller), or an exit status, and what
 * is wrong has been printed. body: borrowed, or NULL. */
int cli_call(const struct command_line *c, const char *method, const char *path,
	     struct json_object *body, struct json_object **ret_answer);
/* The same, with ms for the answer. */
int cli_call_within(const struct command_line *c, const char *method, const char *path,
		    struct json_object *body, unsigned ms, struct json_object **ret_answer);
/* GET without a word on stderr: 0, or -errno as http_call(). */
int cli_call_quietly(const struct command_line *c, const char *path, unsigned ms,
		     struct json_object **ret_answer);

/* Parts of what is shown. */
void cli_print_json(struct json_object *o);
const char *cli_text(struct json_object *o, const char *key, const char *fallback);
void cli_print_migration(struct json_object *m);
/* Prints which strategy is chosen, and why not each better one; before: the beginning of each line.
 */
void cli_print_choice(struct json_object *choice, const char *before);

/* As many bytes of text, at most so many, as are whole characters of UTF-8. */
int cli_fit(const char *text, int most);

/* Writes line over the last one on a terminal, cut to its width; *width: how much of it the last
 * one took, 0 at first. */
void cli_draw(const char *line, int *width);

/* Commands. */
int cli_status(const struct command_line *c);
int cli_list(const struct command_line *c);
int cli_timeline(const struct command_line *c);
int cli_vf(const struct command_line *c);
int cli_doctor(const struct command_line *c);
int cli_events(const struct command_line *c);
int cli_migrate(const struct command_line *c);
int cli_save(const struct command_line *c);
int cli_restore(const struct command_line *c);
int cli_abort(const struct command_line *c);
int cli_attach(const struct command_line *c);
int cli_fence(const struct command_line *c);
int cli_resolve(const struct command_line *c);
int cli_plan(const struct command_line *c);
int cli_drain(const struct command_line *c);
int cli_undrain(const struct command_line *c);
int cli_rebalance(const struct command_line *c);

#endif
