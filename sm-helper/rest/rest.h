/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The REST calls of ibvmig-sm (docs/wire.md, "Fabric"): JSON in and out, nothing decided. */
#ifndef IBVMIG_SM_HELPER_REST_REST_H
#define IBVMIG_SM_HELPER_REST_REST_H

#include "common/http/server.h"
#include "common/work.h"
#include "sm-helper/moves/ops.h"
#include "sm-helper/registry/claim.h"

#define REST_READS_MAX 64

struct rest_call;

struct rest {
	struct ops *ops;                /* borrowed, as the pools */
	struct work_pool *pool;         /* serves changes: bind, unbind, move */
	struct work_pool *host_pool;    /* serves hosts' questions, on which their VMs wait */
	struct work_pool *slow_pool;    /* serves operators' changes */
	struct work_pool *read_pool;    /* serves who only looks */
	struct work_pool *look_pool;    /* serves what must be answered at once */
	unsigned reading;               /* calls in read_pool; of the loop's thread */
	pthread_mutex_t verifying;      /* guards reach; one verification at a time */
	struct reach reach;             /* as it was found by those who only look */
	const struct role_table *roles; /* borrowed: of certificates */
	struct tls *tls;                /* borrowed; NULL without TLS */
	bool has_peer;                  /* another ibvmig-sm is configured */
	bool caching;                   /* answers to path queries may be cached */
	bool holders;                   /* but only by hosts that are told of changes by name */
	struct claim_range range;       /* range that vGUIDs are allocated from */
	struct rest_call *waiting;      /* owned; single moves that wait for their batch */
	unsigned moving;                /* batches of them that are under way */
	pthread_mutex_t binding;        /* no bind while a leak is looked at again and released */
};

extern const struct http_route rest_routes[]; /* user: a struct rest */
/* A caller with a certificate has the roles that the table of roles says. Others reach us only
 * where they may do everything: on the socket, or without TLS. */
unsigned rest_roles(const struct http_who *who, void *user);

#endif
