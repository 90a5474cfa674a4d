/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Calls to the subnet manager, through whichever backend is configured
 * (sm-helper/backend/backend.h). Blocking, from worker threads; one at a time, in turn. Connects by
 * itself whenever it is not connected. */
#ifndef IBVMIG_SM_HELPER_BACKEND_CLIENT_H
#define IBVMIG_SM_HELPER_BACKEND_CLIENT_H

#include "sm-helper/proto/plugin.h"
#include "vswitch/model/fabric.h"

#define CLIENT_ERROR_MAX 512

/* Which state of which OpenSM process something was read from. */
struct client_epoch {
	uint64_t instance, generation; /* 0: none */
};

struct client; /* owned by the caller of client_new() */
struct backend;
struct backend_conf;

/* backend, and what conf points to: borrowed. 0 or -errno. */
int client_new(const struct backend *backend, const struct backend_conf *conf,
	       struct client **ret_client);
void client_free(struct client *c);
const struct backend *client_backend(const struct client *c);
void *client_self(const struct client *c); /* for the backend's own functions */

/* All: 0 or -errno with one line in error. -ECONNREFUSED: nobody is there, or the backend does not
 * do that; nothing was sent. -ECONNRESET, -ETIMEDOUT: it is unknown what was done; others are the
 * subnet manager's (sm-helper/proto/plugin.h). A status may tell something even then. */
int client_status(struct client *c, struct sm_status_reply *ret_status,
		  char error[static CLIENT_ERROR_MAX]);
/* The same for who only wants to see: does not wait for other calls, nor for an OpenSM that is
 * busy; then it is what was told last, *ret_age_ms ago. */
int client_look(struct client *c, struct sm_status_reply *ret_status, uint64_t *ret_age_ms,
		char error[static CLIENT_ERROR_MAX]);
int client_assign(struct client *c, const struct sm_target *targets, unsigned count, uint32_t flags,
		  unsigned deadline_ms, struct sm_assign_reply *ret_reply,
		  char error[static CLIENT_ERROR_MAX]);
int client_guids(struct client *c, const struct sm_slot *slots, unsigned count,
		 unsigned deadline_ms, struct sm_guids_reply *ret_reply,
		 char error[static CLIENT_ERROR_MAX]);
/* Asks for a heavy sweep. All has been looked at since then when client_status() says that none
 * runs. */
int client_sweep(struct client *c, char error[static CLIENT_ERROR_MAX]);
/* Replaces *f (zeroed or filled) by what OpenSM knows now, LFTs left out. */
int client_fabric(struct client *c, struct fabric *f, struct client_epoch *ret_epoch,
		  char error[static CLIENT_ERROR_MAX]);
/* To a standby's plugin: the batch that its master is about to begin; count 0: none. -EPERM: it is
 * master itself. */
int client_intent(struct client *c, const struct sm_target *targets, unsigned count,
		  char error[static CLIENT_ERROR_MAX]);
/* What failed batches have left, from entry `first` on; flags: enum sm_parked_flag. */
int client_parked(struct client *c, uint32_t first, uint32_t flags,
		  struct sm_parked_reply *ret_reply, char error[static CLIENT_ERROR_MAX]);
/* Path records of up to SM_RECORDS_MAX pairs, in their order. */
int client_records(struct client *c, const struct sm_record_key *keys, unsigned count,
		   struct sm_records_reply *ret_reply, char error[static CLIENT_ERROR_MAX]);
/* Waits until OpenSM's state is another one than *epoch, which it then becomes; {0, 0}: what it is
 * now. -ECANCELED as soon as stop_fd is readable. For a client that no other thread uses. */
int client_watch(struct client *c, struct client_epoch *epoch, int stop_fd,
		 char error[static CLIENT_ERROR_MAX]);

#endif
