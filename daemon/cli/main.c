/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig: asks the daemon of this host. One table is dispatch, usage and completion; the manual
 * page is compared with it by tests/integration/daemon/cli_table. */
#include "daemon/cli/main.h"
#include "common/http/client.h"
#include "common/json.h"
#include "common/util.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define SOCKET_DEFAULT "/run/ibvmig/ibvmigd.sock"
#define SOCKET_SCHEME  "unix:"
#define CALL_MS        30000
#define COMPLETE_MS    5000 /* a daemon that is away refuses at once */

#define BIT(o)        (1u << (o))
#define EVERY_COMMAND (BIT(OPT_HELP) | BIT(OPT_SOCKET))

static const struct {
	const char *name, *value; /* value: NULL if it takes none */
	const char *help;
} options[OPTIONS] = {
	[OPT_HELP] = {"--help", NULL, "print this and exit"},
	[OPT_SOCKET] = {"--socket", "PATH", "the daemon's socket, instead of " SOCKET_DEFAULT},
	[OPT_JSON] = {"--json", NULL, "as the daemon answers"},
	[OPT_QPS] = {"--qps", NULL, "the VM's processes, their QPs and peers"},
	[OPT_WATCH] = {"--watch", NULL, "again each second, until stopped"},
	[OPT_STRATEGY] = {"--strategy", "auto|native|late|early", "instead of the VM's own"},
	[OPT_BANDWIDTH] = {"--bandwidth", "MIB", "of the memory's copy, per second"},
	[OPT_PERSISTENT] = {"--persistent", NULL, "the VM's definition moves along"},
	[OPT_NO_WAIT] = {"--no-wait", NULL, "start it and return"},
	[OPT_SVG] = {"--svg", "FILE", "draw it into FILE"},
	[OPT_TO] = {"--to", "HOST,...", "only to these hosts"},
	[OPT_PARALLEL] = {"--parallel", "N", "so many VMs at once (default 2)"},
	[OPT_DRY_RUN] = {"--dry-run", NULL, "show the plan, move nothing"},
	[OPT_APPLY] = {"--apply", NULL, "carry the proposals out"},
	[OPT_SOURCE_LOST] = {"--source-lost", NULL, "the host where it comes from is off for good"},
	[OPT_DESTINATION_LOST] = {"--destination-lost", NULL,
				  "the host where it goes is off for good"},
};

/* arguments: in brackets what may be left out; the words also say what completes them. */
static const struct command {
	const char *name, *arguments;
	unsigned options;
	int (*run)(const struct cli *c);
	const char *help;
} commands[] = {
	{"status", "[VM]", BIT(OPT_JSON) | BIT(OPT_QPS) | BIT(OPT_WATCH), cli_status,
	 "this host, its VFs and VMs, or one VM"},
	{"list", "", BIT(OPT_JSON), cli_list, "the last migrations from and to this host"},
	{"timeline", "ID", BIT(OPT_JSON) | BIT(OPT_SVG), cli_timeline,
	 "every phase of a migration, of all who took part, on one clock"},
	{"vf", "", BIT(OPT_JSON), cli_vf, "the VFs of this host, and which VM has each"},
	{"migrate", "VM DEST",
	 BIT(OPT_STRATEGY) | BIT(OPT_BANDWIDTH) | BIT(OPT_PERSISTENT) | BIT(OPT_NO_WAIT) |
		 BIT(OPT_DRY_RUN) | BIT(OPT_JSON),
	 cli_migrate, "move a VM to another host, and show how far it is"},
	{"plan", "VM", BIT(OPT_TO) | BIT(OPT_JSON), cli_plan,
	 "where a VM could go, what that would cost the fabric, and where it cannot go"},
	{"drain", "HOST",
	 BIT(OPT_TO) | BIT(OPT_PARALLEL) | BIT(OPT_DRY_RUN) | BIT(OPT_PERSISTENT) |
		 BIT(OPT_NO_WAIT) | BIT(OPT_JSON),
	 cli_drain, "move all VMs away from a host"},
	{"undrain", "HOST", 0, cli_undrain, "let VMs migrate to a host that was drained"},
	{"rebalance", "",
	 BIT(OPT_APPLY) | BIT(OPT_PARALLEL) | BIT(OPT_DRY_RUN) | BIT(OPT_PERSISTENT) |
		 BIT(OPT_JSON),
	 cli_rebalance, "moves away from hosts whose links are full"},
	{"abort", "VM", 0, cli_abort, "cancel a VM's migration: it stays where it is"},
	{"resolve", "ID", BIT(OPT_DESTINATION_LOST) | BIT(OPT_SOURCE_LOST), cli_resolve,
	 "let a parked migration go on, or give a saved VM's address up"},
	{"save", "VM FILE", BIT(OPT_JSON), cli_save,
	 "save a VM to a file; its address is kept for it"},
	{"restore", "FILE", BIT(OPT_JSON) | BIT(OPT_SOURCE_LOST), cli_restore,
	 "start a saved VM on this host, with its address and connections"},
	{"attach", "VM", 0, cli_attach, "try again to give a VM its VF"},
	{"fence", "UUID HOST", 0, cli_fence,
	 "that host is off: let go what a VM has there, so that it can start elsewhere"},
	{"doctor", "", BIT(OPT_JSON), cli_doctor,
	 "what keeps VFs from working or VMs from migrating, and how to mend it"},
	{"events", "", 0, cli_events, "what happens, one JSON object a line, until stopped"},
};

/* ---- calls ---- */

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

static int call(const struct cli *c, const char *method, const char *path, struct json_object *body,
		unsigned ms, struct json_object **ret_answer, char error[static HTTP_ERROR_MAX])
{
	int rc = http_call(c->base, method, path, body, ms, ret_answer, error);

	if (rc)
		str_make_printable(error);
	else if (!cli_has(c, OPT_JSON)) /* cli_print_json() shows them by escapes */
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

int cli_call(const struct cli *c, const char *method, const char *path, struct json_object *body,
	     struct json_object **ret_answer)
{
	return cli_call_within(c, method, path, body, CALL_MS, ret_answer);
}

/* A daemon that ends hangs up on those whom it has not answered, or not accepted. */
static bool has_no_answer(int rc)
{
	return rc == -ECONNREFUSED || rc == -EIO || rc == -ETIMEDOUT;
}

int cli_call_within(const struct cli *c, const char *method, const char *path,
		    struct json_object *body, unsigned ms, struct json_object **ret_answer)
{
	char error[HTTP_ERROR_MAX];
	const char *socket = c->base + strlen(SOCKET_SCHEME);
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
			c->base);
	else if (rc)
		fprintf(stderr, "ibvmig: %s\n", error);
	return has_no_answer(rc) ? CLI_NO_DAEMON : rc ? CLI_FAILED : CLI_OK;
}

int cli_call_quietly(const struct cli *c, const char *path, unsigned ms,
		     struct json_object **ret_answer)
{
	char error[HTTP_ERROR_MAX];

	return call(c, "GET", path, NULL, ms, ret_answer, error);
}

/* ---- usage ---- */

/* The command with its arguments and options, as it is typed. Owned by the caller. */
static char *synopsis(const struct command *k)
{
	char *text = strf("%s%s%s", k->name, *k->arguments ? " " : "", k->arguments);

	for (int o = 0; o < OPTIONS; o++) {
		char *longer;

		if (!(k->options & BIT(o)))
			continue;
		longer = strf("%s [%s%s%s]", text, options[o].name, options[o].value ? " " : "",
			      options[o].value ? options[o].value : "");
		free(text);
		text = longer;
	}
	return text;
}

static void print_option(FILE *out, int o)
{
	char *name AUTO_FREE = strf("%s %s", options[o].name,
				    options[o].value ? options[o].value : "");

	fprintf(out, "    %-28s %s\n", name, options[o].help);
}

static int usage(FILE *out)
{
	fprintf(out, "usage: ibvmig COMMAND [ARGUMENT...] [OPTION...]\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		char *text AUTO_FREE = synopsis(&commands[i]);

		fprintf(out, "  %s\n      %s\n", text, commands[i].help);
	}
	fprintf(out, "options:\n");
	for (int o = 0; o < OPTIONS; o++)
		print_option(out, o);
	return out == stderr ? CLI_USAGE : CLI_OK;
}

static int command_usage(FILE *out, const struct command *k)
{
	char *text AUTO_FREE = synopsis(k);

	fprintf(out, "usage: ibvmig %s\n  %s\n", text, k->help);
	for (int o = 0; o < OPTIONS; o++)
		if ((k->options | EVERY_COMMAND) & BIT(o))
			print_option(out, o);
	return out == stderr ? CLI_USAGE : CLI_OK;
}

/* ---- completion: `ibvmig --complete WORD...` prints what may stand in the last word's place ----
 */

static const struct command *command_by_name(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static int option_by_name(const char *name)
{
	for (int o = 0; o < OPTIONS; o++)
		if (!strcmp(options[o].name, name))
			return o;
	return strcmp(name, "-h") ? -1 : OPT_HELP;
}

static void complete_from(const struct cli *c, const char *path, const char *list, const char *key)
{
	struct json_object *answer AUTO_JSON = NULL, *all;

	if (cli_call_quietly(c, path, COMPLETE_MS, &answer))
		return;
	all = json_opt(answer, list);
	for (size_t i = 0; i < json_count(all); i++) {
		const char *text = cli_text(json_object_array_get_idx(all, i), key, NULL);

		if (text)
			puts(text);
	}
}

/* word: of a command's arguments, such as "VM". */
static void complete_argument(const struct cli *c, const char *word)
{
	if (!strncmp(word, "VM", 2) || !strncmp(word, "[VM", 3))
		complete_from(c, "/v1/vms", "vms", "name");
	else if (!strncmp(word, "ID", 2))
		complete_from(c, "/v1/migrations", "migrations", "id");
	else if (!strncmp(word, "DEST", 4) || !strncmp(word, "HOST", 4))
		complete_from(c, "/v1/status", "peers", "name");
}

static void complete_options(const struct command *k)
{
	unsigned mask = EVERY_COMMAND | (k ? k->options : 0);

	for (int o = 0; o < OPTIONS; o++)
		if (mask & BIT(o))
			puts(options[o].name);
}

/* The values of an option that has a few: "auto|native|late|early". */
static void complete_value(int o)
{
	const char *v = options[o].value;

	for (; strchr(options[o].value, '|') && *v; v += strspn(v, "|")) {
		size_t n = strcspn(v, "|");

		printf("%.*s\n", (int)n, v);
		v += n;
	}
}

static void set_socket(struct cli *c)
{
	if (!cli_has(c, OPT_SOCKET))
		return;
	free(c->base);
	c->base = strf(SOCKET_SCHEME "%s", c->value[OPT_SOCKET]);
}

static int complete(struct cli *c, int n, char **words)
{
	const struct command *k = NULL;
	unsigned given = 0;
	const char *place;

	for (int i = 0; i + 1 < n; i++) {
		int o = option_by_name(words[i]);

		if (o >= 0 && options[o].value) {
			if (i + 2 == n) {
				complete_value(o);
				return CLI_OK;
			}
			c->value[o] = words[++i];
		} else if (words[i][0] != '-') {
			given += k != NULL;
			k = k ? k : command_by_name(words[i]);
		}
	}
	set_socket(c);
	if (n && words[n - 1][0] == '-') {
		complete_options(k);
		return CLI_OK;
	}
	for (size_t i = 0; !k && i < ARRAY_SIZE(commands); i++)
		puts(commands[i].name);
	place = k ? k->arguments : "";
	while (given-- && *place)
		place += strcspn(place, " "), place += strspn(place, " ");
	complete_argument(c, place);
	return CLI_OK;
}

/* ---- the command line ---- */

/* Takes the option at argv[*i], with its value; false if it is none of ours. */
static bool take_option(struct cli *c, int argc, char **argv, int *i)
{
	int o = option_by_name(argv[*i]);

	if (o < 0 || (options[o].value && *i + 1 >= argc))
		return false;
	c->value[o] = options[o].value ? argv[++*i] : "";
	return true;
}

static bool arguments_fit(const struct cli *c, const struct command *k)
{
	size_t words = *k->arguments != '\0', needed, given = 0;

	for (const char *p = k->arguments; *p; p++)
		words += *p == ' ';
	needed = words - (*k->arguments == '[');
	while (given < CLI_ARGUMENTS_MAX && c->args[given])
		given++;
	return given >= needed && given <= words;
}

static bool options_fit(const struct cli *c, const struct command *k)
{
	for (int o = 0; o < OPTIONS; o++) {
		if (c->value[o] && !((k->options | EVERY_COMMAND) & BIT(o))) {
			fprintf(stderr, "ibvmig: %s has no option %s\n", k->name, options[o].name);
			return false;
		}
	}
	return true;
}

static int dispatch(struct cli *c, const char *name)
{
	const struct command *k = command_by_name(name);

	if (!k) {
		if (name)
			fprintf(stderr, "ibvmig: there is no command %s\n", name);
		return usage(cli_has(c, OPT_HELP) ? stdout : stderr);
	}
	if (cli_has(c, OPT_HELP))
		return command_usage(stdout, k);
	if (!options_fit(c, k))
		return command_usage(stderr, k);
	if (!arguments_fit(c, k)) {
		fprintf(stderr, "ibvmig: %s takes %s\n", k->name,
			*k->arguments ? k->arguments : "no arguments");
		return command_usage(stderr, k);
	}
	return k->run(c);
}

static int parse_and_run(struct cli *c, int argc, char **argv)
{
	const char *name = NULL;
	bool words_only = false;
	size_t given = 0;

	for (int i = 1; i < argc; i++) {
		if (!words_only && !strcmp(argv[i], "--")) {
			words_only = true;
		} else if (!*argv[i]) {
			fprintf(stderr, "ibvmig: argument %d is empty\n", i);
			return CLI_USAGE;
		} else if (!words_only && argv[i][0] == '-') {
			if (!take_option(c, argc, argv, &i)) {
				fprintf(stderr, "ibvmig: %s is no option, or lacks its value\n",
					argv[i]);
				return usage(stderr);
			}
		} else if (!name) {
			name = argv[i];
		} else if (given < CLI_ARGUMENTS_MAX) {
			c->args[given++] = argv[i];
		} else {
			fprintf(stderr, "ibvmig: %s is one argument too many\n", argv[i]);
			return usage(stderr);
		}
	}
	set_socket(c);
	return dispatch(c, name);
}

int main(int argc, char **argv)
{
	struct cli c = {.base = strdup(SOCKET_SCHEME SOCKET_DEFAULT)};
	int rc;

	http_client_init();
	if (argc > 1 && !strcmp(argv[1], "--complete"))
		rc = complete(&c, argc - 2, argv + 2);
	else if (argc == 2 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")))
		rc = puts("ibvmig " IBVMIG_VERSION) < 0;
	else
		rc = parse_and_run(&c, argc, argv);
	free(c.base);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "ibvmig: what it has to tell cannot be written: is the disk full, "
				"or who should read it gone?\n");
		return rc ? rc : CLI_FAILED;
	}
	return rc;
}
