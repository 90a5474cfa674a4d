/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Tells hosts what a fault, or any other rerouting, has changed of the path records that they hold.
 * A thread hears of each comparison that OpenSM's plugin makes (SM_OP_REROUTE), reads the held
 * records anew (paths/interest.h), and tells as the setting `signalling` says. */
#ifndef IBVMIG_SM_HELPER_NOTIFY_REROUTE_H
#define IBVMIG_SM_HELPER_NOTIFY_REROUTE_H

#include "sm-helper/moves/ops.h"

#include <json-c/json.h>

/* The first is ours, the others are those of the signalling paper. */
enum signalling {
	SIGNALLING_INTEREST,    /* each holder its changed records, in one message */
	SIGNALLING_HYBRID,      /* where any path has changed, all hosts: they ask */
	SIGNALLING_WILDCARD,    /* after every sweep, all hosts: they ask */
	SIGNALLING_REPATH_ONLY, /* each holder its changed records, a message for each */
};

/* 0 or -EINVAL. */
int signalling_parse(const char *text, enum signalling *ret_signalling);
const char *signalling_name(enum signalling s);

struct reroute;

/* kind and conf as for backend_new(); o is borrowed. A backend that cannot compare: nothing is ever
 * told. 0 or -errno. */
int reroute_new(const struct backend_kind *kind, const struct backend_conf *conf, struct ops *o,
		enum signalling mode, struct reroute **ret_reroute);
void reroute_free(struct reroute *r);

/* The last comparison and what was told of it, with changes from the list from `first` on; NULL
 * without memory. */
struct json_object *reroute_json(struct reroute *r, uint32_t first);

/* A host that was given up has come back: it is told that it knows nothing for sure. */
void reroute_host_back(struct ops *o, const char *host, const char *url);

/* A record for a host; v->none: there is no path. Owned by the caller. */
struct json_object *reroute_record(const struct path_key *k, const struct path_value *v);

#endif
