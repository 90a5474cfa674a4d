/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmigd: on each hypervisor, gives VMs their VFs and moves them with the VMs. */
#include "common/http_client.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/daemon.h"
#include "daemon/events.h"
#include "daemon/events_libvirt.h"
#include "daemon/journal.h"
#include "daemon/migrate_step.h"
#include "daemon/mover.h"
#include "daemon/provider.h"
#include "daemon/provider_mlx5.h"
#include "daemon/relay.h"
#include "daemon/repath.h"
#include "daemon/rest.h"
#include "daemon/settings.h"
#include "daemon/virt.h"
#include "daemon/vm.h"

#include <getopt.h>
#include <libxml/parser.h>
#include <string.h>
#include <systemd/sd-daemon.h>

/* Each may wait for a peer or libvirt; relays and polls must not queue behind them. */
#define WORKERS 32

static const char usage[] = "usage: ibvmigd [-c FILE] [--dump-states] [--version]\n"
			    "  -c FILE        configuration (default /etc/ibvmig/ibvmigd.conf)\n"
			    "  --dump-states  print the table of migration states and exit\n";

static int fail(const char *what, char *error, int rc)
{
	log_error("%s: %s", what, error ? error : strerror(-rc));
	free(error);
	return 1;
}

static int provider_new(const struct settings *s, struct provider **ret_provider)
{
	return s->mlx5 ? provider_mlx5_new(s->mlx5, ret_provider)
		       : provider_exec_new(s->provider_exec, ret_provider);
}

/* At the start, before the loop runs: the only blocking call of its thread. */
static void load_inventory(struct daemon *d)
{
	struct json_object *answer AUTO_JSON = NULL;

	if (!provider_inventory(d->provider, &answer, d->vf_error) &&
	    !vf_table_load(&d->vfs, d->journal, answer, d->vf_error)) {
		d->vf_error[0] = '\0';
		log_info("%zu VFs on %zu PFs", d->vfs.vf_count, d->vfs.pf_count);
		return;
	}
	log_error("no VM gets a VF, and none can come here: %s", d->vf_error);
}

static int start(struct daemon *d, char **ret_error)
{
	int rc = journal_open(d->settings->state_dir, &d->journal, ret_error);

	if (rc || (rc = provider_new(d->settings, &d->provider)))
		return rc;
	load_inventory(d);
	if ((rc = events_libvirt_register(d->loop)) ||
	    (rc = work_pool_new(d->loop, WORKERS, &d->pool)) ||
	    (rc = events_new(d->loop, &d->events)) || (rc = relay_new(d, &d->relay)) ||
	    (rc = mover_new(d, &d->movers)) || (rc = repath_new(d, &d->repath)))
		return rc;
	migrate_load_open(d);
	if ((rc = rest_start(d, ret_error)))
		return rc;
	return virt_new(d, &vm_virt_ops, &d->virt);
}

static void stop(struct daemon *d)
{
	events_free(d->events);
	rest_stop(d);
	virt_free(d->virt);
	mover_free(TAKE(d->movers));
	work_pool_free(d->pool);
	vm_free_all(d);
	peer_free_all(d);
	migrate_free_all(d);
	relay_free(d->relay);
	repath_free(TAKE(d->repath));
	vf_table_clear(&d->vfs);
	journal_close(d->journal);
	provider_free(TAKE(d->provider));
	settings_free(d->settings);
	sd_event_unref(d->loop);
}

static int run(const char *config)
{
	static struct daemon d;
	char *error = NULL;
	int rc = settings_load(config, &d.settings, &error);

	if (rc)
		return fail("configuration", error, rc);
	http_client_init();
	xmlInitParser();
	rc = loop_new(&d.loop);
	if (!rc)
		rc = start(&d, &error);
	if (rc)
		return fail("start", error, rc);
	log_notice("ibvmigd %s on %s", IBVMIG_VERSION, d.settings->host_name);
	sd_notify(0, "READY=1");
	rc = sd_event_loop(d.loop);
	sd_notify(0, "STOPPING=1");
	stop(&d);
	return rc < 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"dump-states", no_argument, NULL, 'd'},
		{"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	const char *config = "/etc/ibvmig/ibvmigd.conf";
	int opt;

	log_init("ibvmigd");
	while ((opt = getopt_long(argc, argv, "c:Vh", options, NULL)) != -1) {
		switch (opt) {
		case 'c':
			config = optarg;
			break;
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
	return run(config);
}
