/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The parts of ibvmigd share this, as pointers only: daemon/start.c, on the top floor, makes them.
 * All of it belongs to the loop's thread but what is said to be constant or to lock itself. */
#ifndef IBVMIG_DAEMON_BASE_DAEMON_H
#define IBVMIG_DAEMON_BASE_DAEMON_H

#include "common/http/client.h"

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct daemon;
struct settings;
struct journal;
struct durable;
struct virt;
struct events;
struct movers;
struct mlx5_config;
struct provider;
struct relay;
struct repath;
struct vf_table;
struct vm;
struct vm_watcher;
struct migration;
struct peer_watch;
struct work_pool;
struct tls;
struct http_server;

/* The last answer of ibvmig-sm's status, for `ibvmig status` and the agents' hello. */
struct sm_state {
	bool known;
	bool caching, caching_known; /* the last word on path records, also while it is silent */
	char error[256];             /* why moves are not possible; "" if they are */
	uint64_t asked_ms;
	bool asking;                          /* an answer is under way */
	struct sm_waiter *waiters;            /* owned; for it */
	void (*on_caching)(struct daemon *d); /* sm_on_caching() */
	struct json_object *partitions;       /* owned; vm/rights.c: the last answer, or NULL */
	uint64_t partitions_ms;
	bool partitions_asking, partitions_news; /* news: a VM has come since it was asked */
};

struct daemon {
	sd_event *loop;
	struct work_pool *pool;    /* locks itself */
	struct work_pool *callers; /* locks itself; of jobs that wait for another host's pool */
	struct work_pool *guests;  /* locks itself; of guests' questions to ibvmig-sm */
	struct work_pool *relays;  /* locks itself; of guests' messages to other hosts */
	struct work_pool *lookers; /* locks itself; of job_look() */
	struct settings *settings; /* constant */
	struct mlx5_config *mlx5;  /* owned, constant; NULL with the provider exec */
	struct provider *provider; /* constant; workers call it */
	struct virt *virt;         /* locks itself */
	struct journal *journal;
	struct durable *durable;
	struct events *events;
	struct movers *movers;
	struct drains *drains;
	struct lease_keeper *leases;
	struct relay *relay;
	struct repath *repath;
	struct beat *beat;
	struct vf_table *vfs;             /* owned */
	char vf_error[HTTP_ERROR_MAX];    /* why there is no inventory, or "" */
	struct vm *vms;                   /* list, owned */
	const struct vm_watcher *watcher; /* set once; migrations, as VMs see them */
	struct migration *migrations;     /* list, owned; newest first */
	/* Set once; hears of each record that has just ended. NULL in tests of parts. */
	void (*ended)(const struct migration *m);
	struct peer_watch *peer_watches; /* list, owned: VMs suspended for movers */
	struct sm_state sm;
	struct tls *tls; /* NULL without TLS; locks itself */
	struct http_server *unix_server, *tcp_server;
	struct json_object *restores; /* owned; files of restores under way in libvirt, as keys */
	struct json_object *unseen; /* owned; VMs that libvirt would not tell of, by UUID: name, and
				     * whether it is being asked again */
	bool unlisted;              /* libvirt would not list the VMs that run */
	unsigned to_inspect; /* VMs that ran at the start and are still to be looked at, and one */
	uint64_t drained_ms; /* wall clock: since when no migration may come here; 0: they may */
	bool recovered;      /* open migrations of the journal have been taken up again */
	unsigned looking;    /* jobs of job_look() that have not ended */
	bool stopping;       /* the loop has ended: no migration goes on */
};

#endif
