/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmigd: on each hypervisor, gives VMs their VFs and moves them with the VMs. */
#include "common/command.h"
#include "common/http/client.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/settings.h"
#include "daemon/migrate/machine.h"
#include "daemon/start.h"
#include "daemon/vf/mlx5.h"

#include <libxml/parser.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#define DEFAULT_CONF "/etc/ibvmig/ibvmigd.conf"

static int fail(const char *what, char *error, int rc)
{
	log_error("%s: %s", what, error ? error : strerror(-rc));
	free(error);
	return 1;
}

static int run(const char *config)
{
	static struct daemon d;
	char *error = NULL;
	int rc;

	daemon_set_heap();
	rc = daemon_configure(&d, config, &error);
	if (rc)
		return fail("configuration", error, rc);
	http_client_init();
	xmlInitParser();
	rc = loop_new(&d.loop);
	if (!rc)
		rc = daemon_start(&d, &error);
	if (rc)
		return fail("start", error, rc);
	log_notice("ibvmigd %s on %s", IBVMIG_VERSION, d.settings->host_name);
	sd_notify(0, "READY=1");
	rc = sd_event_loop(d.loop);
	sd_notify(0, "STOPPING=1");
	daemon_stop(&d);
	return rc < 0;
}

/* Reads the file as a start does, and starts nothing. */
static int check(const char *config)
{
	static struct daemon d;
	char *error AUTO_FREE = NULL;
	int rc = daemon_configure(&d, config, &error);

	if (rc)
		fprintf(stderr, "ibvmigd: %s\n", error ? error : strerror(-rc));
	else
		printf("%s: good\n", config);
	settings_free(d.settings);
	mlx5_config_free(d.mlx5);
	return rc != 0;
}

enum { OPT_CONFIG, OPT_CHECK, OPT_PRINT, OPT_MAN, OPT_STATES, OPTIONS };

static const struct command_option options[OPTIONS] = {
	[OPT_CONFIG] = {"--config", "FILE", "the configuration, instead of " DEFAULT_CONF, 'c'},
	[OPT_CHECK] = {"--check-config", NULL, "only say whether that is good", 0},
	[OPT_PRINT] = {"--print-config", NULL, "print an example of it and exit", 0},
	[OPT_MAN] = {"--man-config", NULL, "print its settings for the manual page and exit", 0},
	[OPT_STATES] = {"--dump-states", NULL, "print a migration's states and their ways", 0},
};

static int start(const struct command_line *l)
{
	const char *config = command_value(l, OPT_CONFIG);

	config = config ? config : DEFAULT_CONF;
	if (command_has(l, OPT_PRINT))
		settings_print_example(ibvmigd_settings, "ibvmigd", stdout);
	else if (command_has(l, OPT_MAN))
		settings_print_man(ibvmigd_settings, stdout);
	else if (command_has(l, OPT_STATES))
		migrate_dump_states(stdout);
	else
		return command_has(l, OPT_CHECK) ? check(config) : run(config);
	return 0;
}

static const struct command daemon_command = {NULL, "", ~UINT64_C(0), start,
					      "run the daemon of a hypervisor"};

static const struct program program = {
	.name = "ibvmigd",
	.options = options,
	.option_count = OPTIONS,
	.commands = &daemon_command,
	.command_count = 1,
};

int main(int argc, char **argv)
{
	struct command_line l;
	int rc;

	log_init("ibvmigd");
	rc = command_parse(&program, argc, argv, &l);
	return rc == COMMAND_RUN ? start(&l) : rc;
}
