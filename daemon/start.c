/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/start.h"
#include "common/http/client.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/base/daemon.h"
#include "daemon/base/events.h"
#include "daemon/base/settings.h"
#include "daemon/beat.h"
#include "daemon/fleet/drain.h"
#include "daemon/fleet/drained.h"
#include "daemon/fleet/jobs.h"
#include "daemon/libvirt/loop.h"
#include "daemon/libvirt/virt.h"
#include "daemon/migrate/peer_watch.h"
#include "daemon/migrate/step.h"
#include "daemon/report/metrics.h"
#include "daemon/rest.h"
#include "daemon/store/durable.h"
#include "daemon/store/journal.h"
#include "daemon/store/lease.h"
#include "daemon/vf/mlx5.h"
#include "daemon/vf/provider.h"
#include "daemon/vf/table.h"
#include "daemon/vm/discover.h"
#include "daemon/vm/relay.h"
#include "daemon/vm/repath.h"
#include "daemon/vm/vm.h"

#include <errno.h>
#include <malloc.h>

/* Every worker may wait for a peer or libvirt; polls must not queue behind them. */
#define WORKERS 32
/* Workers of two hosts that all waited for each other's would stand still. As many migrations are
 * prepared, switched or undone at once. */
#define CALLERS 64
/* A guest occupies a few of them at a time. While ibvmig-sm is silent all may wait for it, and a
 * migration that ends meanwhile needs its guests' messages to pass: those have others. */
#define GUEST_WORKERS 32
#define RELAY_WORKERS 32
/* Whoever only looks may wait for silent hosts; that delays no migration. */
#define LOOKERS 8

#define HEAP_MAPPED_BYTES (2 << 20)
#define HEAP_KEPT_BYTES   (4 << 20)

void daemon_set_heap(void)
{
	/* A single heap serves all threads: in a heap for each worker, gaps of some 80 bytes a
	 * migration stay (docs/measurements.md, The daemon). */
	mallopt(M_ARENA_MAX, 1);
	/* Lists of many VMs and migrations are some 100 KB each. Mapped for each answer, or given
	 * back to the kernel after each, their pages cost a fault each time. */
	mallopt(M_MMAP_THRESHOLD, HEAP_MAPPED_BYTES);
	mallopt(M_TRIM_THRESHOLD, HEAP_KEPT_BYTES);
}

int daemon_configure(struct daemon *d, const char *path, char **ret_error)
{
	int rc = settings_load(path, &d->settings, ret_error);

	if (rc || d->settings->provider_exec)
		return rc;
	d->mlx5 = calloc(1, sizeof *d->mlx5);
	return d->mlx5 ? mlx5_config_read(d->settings->conf, d->mlx5, ret_error) : -ENOMEM;
}

static int provider_new(struct daemon *d)
{
	return d->mlx5 ? provider_mlx5_new(d->mlx5, &d->provider)
		       : provider_exec_new(d->settings->provider_exec, PROVIDER_DEADLINE_MS,
					   &d->provider);
}

/* At the start, before the loop runs: the only blocking call of its thread. */
static void load_inventory(struct daemon *d)
{
	struct json_object *answer AUTO_JSON = NULL;

	if (!provider_inventory(d->provider, &answer, d->vf_error) &&
	    !vf_table_load(d->vfs, d->journal, answer, d->vf_error)) {
		d->vf_error[0] = '\0';
		log_info("%zu VFs on %zu PFs", d->vfs->vf_count, d->vfs->pf_count);
		return;
	}
	log_error("no VM gets a VF, and none can come here: %s", d->vf_error);
}

static int start_tls(struct daemon *d, char **ret_error)
{
	const struct tls_conf *t = &d->settings->tls;
	int rc = t->on ? tls_new(&t->files, &d->tls, ret_error) : 0;

	http_client_secure(d->tls, !t->on || t->insecure);
	return rc || !t->on ? rc : tls_watch(d->tls, d->loop);
}

int daemon_start(struct daemon *d, char **ret_error)
{
	int rc = journal_open(d->settings->state_dir, d->settings->keep_migrations, &d->journal,
			      ret_error);

	d->watcher = &migrate_vm_watcher;
	d->ended = metrics_count;
	d->vfs = calloc(1, sizeof *d->vfs);
	if (!rc && !d->vfs)
		rc = -ENOMEM;
	if (rc || (rc = durable_new(d->loop, d->journal, &d->durable)) ||
	    (rc = start_tls(d, ret_error)) || (rc = provider_new(d)))
		return rc;
	load_inventory(d);
	if ((rc = events_libvirt_register(d->loop)) ||
	    (rc = work_pool_new(d->loop, WORKERS, &d->pool)) ||
	    (rc = work_pool_new(d->loop, CALLERS, &d->callers)) ||
	    (rc = work_pool_new(d->loop, GUEST_WORKERS, &d->guests)) ||
	    (rc = work_pool_new(d->loop, RELAY_WORKERS, &d->relays)) ||
	    (rc = work_pool_new(d->loop, LOOKERS, &d->lookers)) ||
	    (rc = events_new(d->loop, &d->events)) || (rc = relay_new(d, &d->relay)) ||
	    (rc = mover_new(d, &d->movers)) || (rc = drain_new(d, &d->drains)) ||
	    (rc = lease_keeper_new(d, &d->leases)) || (rc = repath_new(d, &d->repath)) ||
	    (rc = beat_new(d)))
		return rc;
	drained_load(d);
	migrate_load_open(d);
	peer_watch_load(d);
	if ((rc = rest_start(d, ret_error)))
		return rc;
	return virt_new(d, &vm_virt_ops, &d->virt);
}

void daemon_stop(struct daemon *d)
{
	d->stopping = true;
	vm_free_all(d); /* first: who waits for an agent is answered */
	beat_free(d);
	events_free(d->events);
	rest_stop(d);
	virt_free(d->virt);
	drain_free(TAKE(d->drains));
	mover_free(TAKE(d->movers));
	work_pool_free(d->guests);
	work_pool_free(d->relays);
	work_pool_free(d->callers);
	work_pool_free(d->lookers);
	work_pool_free(d->pool);
	durable_free(d->durable);
	peer_watch_free_all(d);
	migrate_free_all(d);
	relay_free(d->relay);
	repath_free(TAKE(d->repath));
	lease_keeper_free(TAKE(d->leases));
	json_object_put(d->restores);
	json_object_put(d->unseen);
	json_object_put(d->sm.partitions);
	vf_table_free(TAKE(d->vfs));
	journal_close(d->journal);
	provider_free(TAKE(d->provider));
	mlx5_config_free(TAKE(d->mlx5));
	tls_free(d->tls);
	settings_free(d->settings);
	sd_event_unref(d->loop);
}
