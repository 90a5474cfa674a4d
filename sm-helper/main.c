/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig-sm: configuration, wiring, and the health check of the plugin. */
#include "common/http/client.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "sm-helper/backend/backend.h"
#include "sm-helper/cli.h"
#include "sm-helper/rest/listen.h"
#include "sm-helper/notify/notice.h"
#include "sm-helper/notify/outbox.h"
#include "sm-helper/notify/reroute.h"
#include "sm-helper/paths/interest.h"
#include "sm-helper/settings.h"
#include "sm-helper/watch/members.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>

#define DEFAULT_CONF "/etc/ibvmig/ibvmig-sm.conf"
#define WORKERS      4
#define HOST_WORKERS 4
#define SLOW_WORKERS 2
#define READ_WORKERS 4
#define PATH_WORKERS 2 /* a pool apart: a silent SA holds no bind or move up */
#define HEALTH_MS    1000
#define RENOTICE_MS  200 /* then 0.8, 3.2, 12.8, 51.2 s */

struct sm_daemon {
	sd_event *loop;
	struct work_pool *pool, *host_pool, *slow_pool, *read_pool, *path_pool, *look_pool;
	struct listeners listen;
	struct ops ops;
	struct rest rest;
	struct loop_timer *health;
	struct members members;
	struct op_error trouble; /* the last health check found; status 0: none */
	char told[sizeof((struct op_error *)0)->detail]; /* the last log line */
	bool was_healthy;
};

static void health_run(void *arg)
{
	struct sm_daemon *d = arg;

	d->trouble = (struct op_error){0};
	if (!ops_reconcile(&d->ops, &d->trouble))
		parked_watch(&d->ops);
	else
		members_follow(&d->members, &d->ops);
}

/* Says it once when OpenSM goes or comes. */
static void health_done(void *arg)
{
	struct sm_daemon *d = arg;

	if (d->trouble.status && strcmp(d->told, d->trouble.detail)) {
		log_warn("no VM can be bound or moved: %s", d->trouble.detail);
		strcpy(d->told, d->trouble.detail);
	} else if (!d->trouble.status && (*d->told || !d->was_healthy)) {
		log_notice("backend %s answers, %u switches", backend_kind(d->ops.backend)->name,
			   d->ops.fabric.switches);
		*d->told = '\0';
	}
	d->was_healthy = !d->trouble.status;
	loop_timer_arm(d->health, HEALTH_MS);
}

static void health_due(void *arg)
{
	struct sm_daemon *d = arg;

	if (work_submit(d->pool, health_run, health_done, d))
		loop_timer_arm(d->health, HEALTH_MS);
}

static uint32_t read_faults(void)
{
	const char *text = getenv("IBVMIG_FAULT");
	uint32_t flags = 0;

	if (!text)
		return 0;
	if (strstr(text, "no-swap"))
		flags |= SM_ASSIGN_NO_SWAP;
	if (strstr(text, "no-pkey"))
		flags |= SM_ASSIGN_NO_PKEYS;
	if (strstr(text, "forced-sweep"))
		flags |= SM_ASSIGN_FORCED_SWEEP;
	if (flags)
		log_error("FAULT \"%s\" is on (IBVMIG_FAULT): this instance is for tests", text);
	return flags;
}

static int open_state(struct sm_daemon *d, const struct conf *conf)
{
	const char *dir = conf_get(conf, "state-dir");
	char *path AUTO_FREE = strf("%s/ibvmig-sm.db", dir);
	char *error AUTO_FREE = NULL;
	char host[HOST_NAME_MAX + 1] = "";
	int rc;

	if (!path)
		return -ENOMEM;
	if (mkdir(dir, 0700) && errno != EEXIST) {
		log_error("state-dir \"%s\" cannot be made: %s", dir, strerror(errno));
		return -EIO;
	}
	gethostname(host, sizeof host - 1);
	snprintf(d->ops.name, sizeof d->ops.name, "%.40s:%.80s", host, path);
	if (!(rc = registry_open(path, &d->ops.registry, &error)))
		return 0;
	log_error("%s", error ? error : strerror(-rc));
	return error ? registry_stand_in(path, rc, error, &d->ops.registry) : rc;
}

static int open_twin(struct sm_daemon *d, const struct conf *conf)
{
	const char *url = conf_get(conf, "peer");
	char *error AUTO_FREE = NULL;

	/* a registry that stands in for the file is nobody's copy */
	if (!url || registry_judge(d->ops.registry, UINT32_MAX).state)
		return 0;
	if (tls_conf_check_url(&d->listen.conf, "peer", url, &error)) {
		log_error("%s (where the other ibvmig-sm listens)", error ? error : "no memory");
		return -EINVAL;
	}
	return twin_new(url, d->ops.registry, d->ops.backend, &d->ops.twin);
}

static int open_backend(struct sm_daemon *d, struct sm_settings *s)
{
	int rc;

	s->backend.probe = d->ops.probe;
	if ((rc = backend_new(s->kind, &s->backend, &d->ops.backend)) ||
	    (rc = open_twin(d, s->conf)))
		return rc;
	rc = path_service_new(s->kind, &s->backend, d->ops.probe, conf_flag(s->conf, "caching"),
			      &d->ops.paths);
	return rc ? rc : reroute_new(s->kind, &s->backend, &d->ops, s->signalling, &d->ops.reroute);
}

static int open_ops(struct sm_daemon *d, struct sm_settings *s)
{
	unsigned port = (unsigned)conf_number(s->conf, "umad-port");
	const char *ca = conf_get(s->conf, "umad-ca");
	int rc;

	pthread_mutex_init(&d->ops.lock, NULL);
	pthread_mutex_init(&d->ops.parked.lock, NULL);
	d->ops.tell_moved = notice_moved;
	d->ops.fault = read_faults();
	d->ops.verify_sources = (unsigned)conf_number(s->conf, "verify-sources");
	d->ops.leaves = !conf_flag(s->conf, "vswitches");
	d->ops.addresses = s->addresses;
	d->ops.lid_range = s->lids;
	if (!(d->ops.interest = interest_new()))
		return -ENOMEM;
	if ((rc = open_state(d, s->conf)) ||
	    (rc = outbox_new(notice_send, notice_lost, &d->ops, RENOTICE_MS, &d->ops.outbox)) ||
	    (rc = probe_new(ca, port, &d->ops.probe)) ||
	    (rc = probe_giving_way(d->ops.probe, &d->ops.eyes)))
		return rc;
	return open_backend(d, s);
}

static int start(struct sm_daemon *d, struct sm_settings *s)
{
	const struct conf *conf = s->conf;
	int rc = loop_new(&d->loop);

	if (rc || (rc = listen_secure(&d->listen, conf, d->loop)) ||
	    (rc = work_pool_new(d->loop, WORKERS, &d->pool)) ||
	    (rc = work_pool_new(d->loop, HOST_WORKERS, &d->host_pool)) ||
	    (rc = work_pool_new(d->loop, SLOW_WORKERS, &d->slow_pool)) ||
	    (rc = work_pool_new(d->loop, READ_WORKERS, &d->read_pool)) ||
	    (rc = work_pool_new(d->loop, PATH_WORKERS, &d->path_pool)) ||
	    (rc = work_pool_new(d->loop, 1, &d->look_pool)) || (rc = open_ops(d, s)))
		return rc;
	d->rest = (struct rest){
		.ops = &d->ops,
		.pool = d->pool,
		.host_pool = d->host_pool,
		.slow_pool = d->slow_pool,
		.read_pool = d->read_pool,
		.look_pool = d->look_pool,
		.tls = d->listen.tls,
		.has_peer = conf_get(conf, "peer"),
		.caching = path_service_caches(d->ops.paths),
		.holders = s->signalling == SIGNALLING_INTEREST ||
			   s->signalling == SIGNALLING_REPATH_ONLY,
		.range = s->vguids,
	};
	pthread_mutex_init(&d->rest.binding, NULL);
	pthread_mutex_init(&d->rest.verifying, NULL);
	if ((rc = listen_rest(&d->listen, conf, d->loop, &d->rest)) < 0 ||
	    (rc = listen_paths(&d->listen, conf, d->loop, &d->rest, d->path_pool)) < 0)
		return rc;
	if ((rc = loop_timer_new(d->loop, health_due, d, &d->health)))
		return rc;
	loop_timer_arm(d->health, 0);
	return 0;
}

static void stop(struct sm_daemon *d)
{
	listen_stop(&d->listen);
	loop_timer_free(d->health);
	work_pool_free(d->pool);
	work_pool_free(d->host_pool);
	work_pool_free(d->slow_pool);
	work_pool_free(d->read_pool);
	work_pool_free(d->path_pool);
	work_pool_free(d->look_pool);
	reroute_free(d->ops.reroute);
	outbox_free(d->ops.outbox);
	twin_free(d->ops.twin);
	listen_clear(&d->listen);
	path_service_free(d->ops.paths);
	interest_free(d->ops.interest);
	backend_free(d->ops.backend);
	probe_free(d->ops.eyes);
	probe_free(d->ops.probe);
	registry_close(d->ops.registry);
	fabric_clear(&d->ops.fabric);
	parked_clear(&d->ops.parked);
	sd_event_unref(d->loop);
}

static int run_daemon(struct sm_settings *s)
{
	static struct sm_daemon d;
	int rc = start(&d, s);

	if (!rc) {
		sd_notify(0, "READY=1");
		rc = sd_event_loop(d.loop);
	}
	if (rc < 0)
		log_error("stops: %s", strerror(-rc));
	stop(&d);
	return rc < 0;
}

/* Reads the file as a start does, and starts nothing. */
static int check(const char *path)
{
	char *error AUTO_FREE = NULL;
	struct sm_settings s = {0};
	int rc = sm_settings_load(path, &s, &error);

	if (!rc)
		rc = sm_settings_check(&s, &error);
	if (rc)
		fprintf(stderr, "ibvmig-sm: %s\n", error ? error : strerror(-rc));
	else
		printf("%s: good\n", path);
	sm_settings_clear(&s);
	return rc != 0;
}

enum { OPT_CONFIG, OPT_CHECK, OPT_PRINT, OPT_MAN, OPT_APPLY, OPT_SURE, OPTIONS };

static const struct command_option options[OPTIONS] = {
	[OPT_CONFIG] = {"--config", "FILE", "the configuration, instead of " DEFAULT_CONF, 'c'},
	[OPT_CHECK] = {"--check-config", NULL, "only say whether that is good", 0},
	[OPT_PRINT] = {"--print-config", NULL, "print an example of it and exit", 0},
	[OPT_APPLY] = {"--apply", NULL, "do it", 0},
	[OPT_SURE] = {"--sure", NULL, "its power is off, although its card still answers", 0},
	[OPT_MAN] = {"--man-config", NULL, "print its settings for the manual page and exit", 0},
};

static const struct command commands[] = {
	{NULL, "", COMMAND_BIT(OPT_CHECK) | COMMAND_BIT(OPT_PRINT) | COMMAND_BIT(OPT_MAN), NULL,
	 "run the daemon"},
	{"status", "", 0, cli_status, "show what the running daemon says"},
	{"vguids", "", 0, cli_vguids, "show who holds which vGUID since when"},
	{"verify", "", 0, cli_verify, "compare the fabric with it, by SMPs and SA queries"},
	{"partitions", "", 0, cli_partitions, "show partitions and their members"},
	{"partition", "PKEY full|limited|remove GUID...", 0, cli_partition,
	 "make GUIDs members of a partition, or let them leave it"},
	{"parked", "[undo|commit]", 0, cli_parked,
	 "show what a batch has left that could not be taken back; take it back, or carry it out"},
	{"rebuild", "[URL...]", COMMAND_BIT(OPT_APPLY), cli_rebuild,
	 "show the registry as hosts' daemons (also those at URL) and OpenSM know it; with --apply "
	 "make it so, and take the subnet over"},
	{"fence", "UUID HOST", COMMAND_BIT(OPT_SURE), cli_fence,
	 "say that the host is off, so that this VM may start elsewhere"},
	{"reconcile", "[release]", 0, cli_reconcile,
	 "ask all hosts which vGUIDs they use; release those that leaked"},
};

static const struct program program = {
	.name = "ibvmig-sm",
	.options = options,
	.option_count = OPTIONS,
	.commands = commands,
	.command_count = ARRAY_SIZE(commands),
	.always = COMMAND_BIT(OPT_CONFIG),
};

static int run(struct command_line *l, const char *path)
{
	char *error AUTO_FREE = NULL;
	struct sm_settings s;
	int rc;

	if (sm_settings_load(path, &s, &error)) {
		log_error("%s", error ? error : "no memory");
		return 1;
	}
	http_client_init();
	l->context = s.conf;
	rc = l->command->run ? l->command->run(l) : run_daemon(&s);
	sm_settings_clear(&s);
	return rc;
}

int main(int argc, char **argv)
{
	struct command_line l;
	const char *path;
	int rc;

	log_init("ibvmig-sm");
	if ((rc = command_parse(&program, argc, argv, &l)) != COMMAND_RUN)
		return rc;
	path = command_value(&l, OPT_CONFIG);
	path = path ? path : DEFAULT_CONF;
	if (command_has(&l, OPT_PRINT))
		settings_print_example(ibvmig_sm_settings, "ibvmig-sm", stdout);
	else if (command_has(&l, OPT_MAN))
		settings_print_man(ibvmig_sm_settings, stdout);
	else
		return command_has(&l, OPT_CHECK) ? check(path) : run(&l, path);
	return 0;
}
