/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmigd: on each hypervisor, gives VMs their VFs and moves them with the VMs. */
#include "common/http/client.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/settings.h"
#include "daemon/migrate/machine.h"
#include "daemon/start.h"

#include <getopt.h>
#include <libxml/parser.h>
#include <string.h>
#include <systemd/sd-daemon.h>

static const char usage[] =
	"usage: ibvmigd [-c FILE] [--check-config] [--version]\n"
	"  -c FILE         configuration (default /etc/ibvmig/ibvmigd.conf)\n"
	"  --check-config  only say whether that is good\n"
	"  --print-config  print an example of it and exit\n"
	"  --man-config    print its settings for the manual page and exit\n"
	"  --dump-states   print the migration states and their ways and exit\n";

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
	return rc != 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'}, {"check-config", no_argument, NULL, 'k'},
		{"print-config", no_argument, NULL, 'p'}, {"man-config", no_argument, NULL, 'm'},
		{"dump-states", no_argument, NULL, 'd'},  {"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},         {0},
	};
	const char *config = "/etc/ibvmig/ibvmigd.conf";
	bool only_check = false;
	int opt;

	log_init("ibvmigd");
	while ((opt = getopt_long(argc, argv, "c:Vh", options, NULL)) != -1) {
		switch (opt) {
		case 'c':
			config = optarg;
			break;
		case 'k':
			only_check = true;
			break;
		case 'p':
			settings_print_example(ibvmigd_settings, "ibvmigd", stdout);
			return 0;
		case 'm':
			settings_print_man(ibvmigd_settings, stdout);
			return 0;
		case 'd':
			migrate_dump_states(stdout);
			return 0;
		case 'V':
			puts("ibvmigd " IBVMIG_VERSION);
			return 0;
		default:
			fputs(usage, opt == 'h' ? stdout : stderr);
			return opt == 'h' ? 0 : 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "ibvmigd: %s is no option\n%s", argv[optind], usage);
		return 2;
	}
	return only_check ? check(config) : run(config);
}
