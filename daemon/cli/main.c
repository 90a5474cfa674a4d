/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig: asks the daemon of this host. One table is dispatch, usage and completion; the manual
 * page is compared with it by tests/integration/daemon/cli_table. */
#include "daemon/cli/main.h"
#include "common/http/client.h"
#include "common/json.h"
#include "common/util.h"

#include <string.h>

#define SOCKET_DEFAULT "/run/ibvmig/ibvmigd.sock"
#define COMPLETE_MS    5000 /* a daemon that is away refuses at once */

#define BIT(o) COMMAND_BIT(o)

static const struct command_option options[OPTIONS] = {
	[OPT_SOCKET] = {"--socket", "PATH", "the daemon's socket, instead of " SOCKET_DEFAULT, 0},
	[OPT_JSON] = {"--json", NULL, "as the daemon answers", 0},
	[OPT_QPS] = {"--qps", NULL, "the VM's processes, their QPs and peers", 0},
	[OPT_WATCH] = {"--watch", NULL, "again each second, until stopped", 0},
	[OPT_STRATEGY] = {"--strategy", "auto|native|late|early", "instead of the VM's own", 0},
	[OPT_BANDWIDTH] = {"--bandwidth", "MIB", "of the memory's copy, per second", 0},
	[OPT_PERSISTENT] = {"--persistent", NULL, "the VM's definition moves along", 0},
	[OPT_NO_WAIT] = {"--no-wait", NULL, "start it and return", 0},
	[OPT_SVG] = {"--svg", "FILE", "draw it into FILE", 0},
	[OPT_TO] = {"--to", "HOST,...", "only to these hosts", 0},
	[OPT_PARALLEL] = {"--parallel", "N", "so many VMs at once (default 2)", 0},
	[OPT_DRY_RUN] = {"--dry-run", NULL, "show the plan, move nothing", 0},
	[OPT_APPLY] = {"--apply", NULL, "carry the proposals out", 0},
	[OPT_SOURCE_LOST] = {"--source-lost", NULL, "the host where it comes from is off for good",
			     0},
	[OPT_DESTINATION_LOST] = {"--destination-lost", NULL,
				  "the host where it goes is off for good", 0},
};

/* The words of arguments also say what completes them. */
static const struct command commands[] = {
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

static const struct program program = {
	.name = "ibvmig",
	.options = options,
	.option_count = OPTIONS,
	.commands = commands,
	.command_count = ARRAY_SIZE(commands),
	.always = BIT(OPT_SOCKET),
};

/* ---- completion: `ibvmig --complete WORD...` prints what may stand in the last word's place ----
 */

static void complete_from(const struct command_line *c, const char *path, const char *list,
			  const char *key)
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
static void complete_argument(const struct command_line *c, const char *word)
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
	uint64_t mask = program.always | (k ? k->options : 0);

	puts("--help");
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

/* The socket's URL, owned by the caller; path: NULL for the default. */
static char *make_base(const char *path)
{
	return strf(CLI_SCHEME "%s", path ? path : SOCKET_DEFAULT);
}

static int complete(int n, char **words)
{
	struct command_line c = {.program = &program};
	const struct command *k = NULL;
	const char *place, *socket = NULL;
	unsigned given = 0;

	for (int i = 0; i + 1 < n; i++) {
		int o = command_option_find(&program, words[i]);

		if (o >= 0 && options[o].value) {
			if (i + 2 == n) {
				complete_value(o);
				return CLI_OK;
			}
			i++;
			socket = o == OPT_SOCKET ? words[i] : socket;
		} else if (words[i][0] != '-') {
			given += k != NULL;
			k = k ? k : command_find(&program, words[i]);
		}
	}
	if (n && words[n - 1][0] == '-') {
		complete_options(k);
		return CLI_OK;
	}
	for (size_t i = 0; !k && i < ARRAY_SIZE(commands); i++)
		puts(commands[i].name);
	place = k ? k->arguments : "";
	while (given-- && *place)
		place += strcspn(place, " "), place += strspn(place, " ");
	char *base AUTO_FREE = make_base(socket);
	c.context = base;
	complete_argument(&c, place);
	return CLI_OK;
}

static int parse_and_run(int argc, char **argv)
{
	struct command_line c;
	char *base AUTO_FREE = NULL;
	int rc = command_parse(&program, argc, argv, &c);

	if (rc != COMMAND_RUN)
		return rc;
	base = make_base(command_value(&c, OPT_SOCKET));
	c.context = base;
	return base ? c.command->run(&c) : CLI_FAILED;
}

int main(int argc, char **argv)
{
	int rc;

	http_client_init();
	if (argc > 1 && !strcmp(argv[1], "--complete"))
		rc = complete(argc - 2, argv + 2);
	else
		rc = parse_and_run(argc, argv);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "ibvmig: what it has to tell cannot be written: is the disk full, "
				"or who should read it gone?\n");
		return rc ? rc : CLI_FAILED;
	}
	return rc;
}
