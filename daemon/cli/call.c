/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Calls to the daemon of this host, for the commands. */
#include "common/http/client.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/cli/main.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define CALL_MS 30000

/* Guests have a part in what daemons tell: names of processes, what their agents say. */
static void make_printable(struct json_object *o)
{
	for (size_t i = 0; i < json_count(o); i++)
		make_printable(json_object_array_get_idx(o, i));
	if (json_object_is_type(o, json_type_object)) {
		json_object_object_foreach(o, key, value)
		{
			(void)key;
			make_printable(value);
		}
	} else if (json_object_is_type(o, json_type_string)) {
		char *text AUTO_FREE = strdup(json_object_get_string(o));

		if (text) {
			str_make_printable(text);
			json_object_set_string(o, text);
		}
	}
}

/* "unix:PATH" */
static const char *cli_base(const struct command_line *c)
{
	return c->context;
}

static int call(const struct command_line *c, const char *method, const char *path,
		struct json_object *body, unsigned ms, struct json_object **ret_answer,
		char error[static HTTP_ERROR_MAX])
{
	int rc = http_call(cli_base(c), method, path, body, ms, ret_answer, error);

	if (rc)
		str_make_printable(error);
	else if (!command_has(c, OPT_JSON)) /* cli_print_json() shows them by escapes */
		make_printable(*ret_answer);
	return rc;
}

char *cli_path(const char *before, const char *name, const char *after)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&text, &bytes);

	if (!f)
		return NULL;
	fputs(before, f);
	for (; *name; name++)
		fprintf(f, isalnum((unsigned char)*name) || strchr("-_.~", *name) ? "%c" : "%%%02X",
			(unsigned char)*name);
	fputs(after, f);
	fclose(f);
	return text;
}

int cli_call(const struct command_line *c, const char *method, const char *path,
	     struct json_object *body, struct json_object **ret_answer)
{
	return cli_call_within(c, method, path, body, CALL_MS, ret_answer);
}

/* A daemon that ends hangs up on those whom it has not answered, or not accepted. */
static bool has_no_answer(int rc)
{
	return rc == -ECONNREFUSED || rc == -EIO || rc == -ETIMEDOUT;
}

int cli_call_within(const struct command_line *c, const char *method, const char *path,
		    struct json_object *body, unsigned ms, struct json_object **ret_answer)
{
	char error[HTTP_ERROR_MAX];
	const char *socket = cli_base(c) + strlen(CLI_SCHEME);
	int rc = call(c, method, path, body, ms, ret_answer, error);

	if (rc == -ECONNREFUSED && access(socket, W_OK) && errno == EACCES)
		fprintf(stderr,
			"ibvmig: %s may not be opened by you: be root, or in admin-group or "
			"read-group of ibvmigd.conf\n",
			socket);
	else if (rc == -ECONNREFUSED)
		fprintf(stderr,
			"ibvmig: ibvmigd does not answer at %s: start it (systemctl start "
			"ibvmigd), or give its socket with --socket\n",
			cli_base(c));
	else if (rc)
		fprintf(stderr, "ibvmig: %s\n", error);
	return has_no_answer(rc) ? CLI_NO_DAEMON : rc ? CLI_FAILED : CLI_OK;
}

int cli_call_quietly(const struct command_line *c, const char *path, unsigned ms,
		     struct json_object **ret_answer)
{
	char error[HTTP_ERROR_MAX];

	return call(c, "GET", path, NULL, ms, ret_answer, error);
}
