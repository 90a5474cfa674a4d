/* SPDX-License-Identifier: GPL-2.0-or-later */
/* VMs of this host that are suspended as peers of a migration: they must not stay so when the
 * mover's daemons fall silent. In the journal, so that a restart of ours does not forget them. */
#ifndef IBVMIG_DAEMON_MIGRATE_PEER_WATCH_H
#define IBVMIG_DAEMON_MIGRATE_PEER_WATCH_H

#include <json-c/json.h>
#include <stdbool.h>

struct daemon;
struct vm;

/* body: of the suspend, borrowed. From now on who asked for it is asked for its end. */
void peer_watch_start(struct daemon *d, struct json_object *body);
/* The same before any agent is asked: its VMs are kept for this migration. */
void peer_watch_reserve(struct daemon *d, struct json_object *body);
/* Ends that; a suspend that has followed stays. */
void peer_watch_release(struct daemon *d, const char *migration);
/* The migration that has vm as its peer, if it is another one than this; NULL: none. Borrowed. */
const char *peer_watch_holder(struct daemon *d, const struct vm *vm, const char *migration);
/* Somebody resumes the VMs: nobody need be asked for a while. */
void peer_watch_heard(struct daemon *d, const char *migration);
/* Ends the watch: every VM of this host has resumed. */
void peer_watch_end(struct daemon *d, const char *migration);
/* Reads the journal's watches, before the first request. */
void peer_watch_load(struct daemon *d);
void peer_watch_free_all(struct daemon *d);

#endif
