/* SPDX-License-Identifier: GPL-2.0-or-later */
/* VMs of this host that are suspended as peers of a migration: they must not stay so when the
 * mover's daemons fall silent. In the journal, so that a restart of ours does not forget them. */
#ifndef IBVMIG_DAEMON_PEER_WATCH_H
#define IBVMIG_DAEMON_PEER_WATCH_H

#include <json-c/json.h>

struct daemon;

/* body: of the suspend, borrowed. From now on who asked for it is asked for its end. */
void peer_watch_start(struct daemon *d, struct json_object *body);
/* Somebody resumes the VMs: nobody need be asked for a while. */
void peer_watch_heard(struct daemon *d, const char *migration);
/* All VMs of this host have resumed. */
void peer_watch_end(struct daemon *d, const char *migration);
/* Those of the journal, before the first request. */
void peer_watch_load(struct daemon *d);
void peer_watch_free_all(struct daemon *d);

#endif
