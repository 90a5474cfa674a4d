/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Ways to a subnet manager (docs/fabric.md, "Backends"): a struct of functions for each kind, one
 * table of them in backend.c, and the calls that the rest of ibvmig-sm makes. A call blocks, may
 * come from any worker thread, and takes its turn; a backend connects again by itself whenever its
 * connection is gone. */
#ifndef IBVMIG_SM_HELPER_BACKEND_BACKEND_H
#define IBVMIG_SM_HELPER_BACKEND_BACKEND_H

#include <stdarg.h>
#include <stdio.h>

#include "sm-helper/backend/ufm_http.h"
#include "sm-helper/proto/plugin.h"
#include "vswitch/model/fabric.h"

#define BACKEND_ERROR_MAX 512
#define BACKEND_DEFAULT   "opensm-plugin"

struct probe;
struct backend; /* owned by the caller of backend_new() */

/* The OpenSM process, and the state of it, from which something was read. */
struct backend_epoch {
	uint64_t instance, generation; /* 0: none */
};

/* The configuration's part, with all that it points to: borrowed for the life of the process. */
struct backend_conf {
	const char *plugin_socket;
	struct probe *probe;
	bool umad_writes;
	struct ufm_conf ufm;
};

/* A backend refuses a call whose member is NULL. Arguments and errors are those of the backend_*
 * function of the same name: 0, or -errno with one line in error. */
struct backend_kind {
	const char *name;
	bool copies; /* LIDs that no VF has, with a port's routes: dynamic addresses */
	int (*open)(const struct backend_conf *conf, void **ret_self); /* NULL: without a state */
	void (*close)(void *self);
	/* On an error *ret_status (zeroed before) may still tell what is known. */
	int (*status)(void *self, struct sm_status_reply *ret_status, char *error);
	/* Answers at once; without it backend_look() takes the status. */
	int (*look)(void *self, struct sm_status_reply *ret_status, uint64_t *ret_age_ms,
		    char *error);
	int (*assign)(void *self, const struct sm_target *targets, unsigned count, uint32_t flags,
		      unsigned deadline_ms, struct sm_assign_reply *ret_reply, char *error);
	int (*guids)(void *self, const struct sm_slot *slots, unsigned count, unsigned deadline_ms,
		     struct sm_guids_reply *ret_reply, char *error);
	int (*sweep)(void *self, char *error);
	int (*fabric)(void *self, struct fabric *f, struct backend_epoch *ret_epoch, char *error);
	int (*intent)(void *self, const struct sm_target *targets, unsigned count, char *error);
	int (*claim)(void *self, const struct sm_owner_request *want, struct sm_owner *ret_owner,
		     char *error);
	int (*homes)(void *self, uint32_t first, struct sm_homes_reply *ret_reply, char *error);
	int (*parked)(void *self, uint32_t first, uint32_t flags, struct sm_parked_reply *ret_reply,
		      char *error);
	int (*records)(void *self, const struct sm_record_key *keys, unsigned count,
		       struct sm_records_reply *ret_reply, char *error);
	int (*memberships)(void *self, const uint64_t *guids, unsigned count,
			   struct sm_memberships_reply *ret_reply, char *error);
	int (*partitions)(void *self, uint32_t first, struct sm_partitions_reply *ret_reply,
			  char *error);
	int (*members)(void *self, uint16_t pkey, const struct sm_member *members, unsigned count,
		       unsigned flags, unsigned deadline_ms, struct sm_members_reply *ret_reply,
		       char *error);
	/* Without it nobody hears of the subnet's changes, and no path record may be kept. */
	int (*watch)(void *self, struct backend_epoch *epoch, int stop_fd, char *error);
	/* Without it faults are not told, for nobody finds out what they have changed. */
	int (*reroute)(void *self, const struct sm_reroute_request *after, int stop_fd,
		       struct sm_reroute_reply *ret_reply, char *error);
};

extern const struct backend_kind backend_plugin, backend_umad, backend_ufm, backend_none;

/* NULL: none has this name. */
const struct backend_kind *backend_find(const char *name);
/* The names of all, with ", " between them; cut to room bytes with the NUL. */
void backend_names(char *text, size_t room);

/* kind, and what conf points to: borrowed. 0 or -errno. */
int backend_new(const struct backend_kind *kind, const struct backend_conf *conf,
		struct backend **ret_backend);
void backend_free(struct backend *b);
const struct backend_kind *backend_kind(const struct backend *b);
void *backend_self(const struct backend *b); /* for functions that only its kind has */

/* Every call: 0 or -errno with one line in error. -ECONNREFUSED: nobody is there, or the backend
 * does not do that; nothing was sent. -ECONNRESET, -ETIMEDOUT: what was done is unknown; others are
 * the subnet manager's (sm-helper/proto/plugin.h). A status may tell something even then. */
int backend_status(struct backend *b, struct sm_status_reply *ret_status,
		   char error[static BACKEND_ERROR_MAX]);
/* A status for who only wants to see: neither other calls nor a busy OpenSM hold it up; then it is
 * what was told last, *ret_age_ms ago. *ret_age_ms is 0 for a status of now. */
int backend_look(struct backend *b, struct sm_status_reply *ret_status, uint64_t *ret_age_ms,
		 char error[static BACKEND_ERROR_MAX]);
int backend_assign(struct backend *b, const struct sm_target *targets, unsigned count,
		   uint32_t flags, unsigned deadline_ms, struct sm_assign_reply *ret_reply,
		   char error[static BACKEND_ERROR_MAX]);
/* Writes entries of GUID tables: shared-port addresses. */
int backend_guids(struct backend *b, const struct sm_slot *slots, unsigned count,
		  unsigned deadline_ms, struct sm_guids_reply *ret_reply,
		  char error[static BACKEND_ERROR_MAX]);
/* Asks for a heavy sweep. OpenSM has looked at everything since then when backend_status() says
 * that no sweep runs. */
int backend_sweep(struct backend *b, char error[static BACKEND_ERROR_MAX]);
/* Replaces *f (zeroed or filled) by what OpenSM knows now, LFTs left out. */
int backend_fabric(struct backend *b, struct fabric *f, struct backend_epoch *ret_epoch,
		   char error[static BACKEND_ERROR_MAX]);
/* Tells a standby's plugin which batch its master is about to begin; count 0: none. -EPERM: this
 * OpenSM is master itself. */
int backend_intent(struct backend *b, const struct sm_target *targets, unsigned count,
		   char error[static BACKEND_ERROR_MAX]);
/* Claims the right to change something, also for connections to come; without it every change is
 * refused. want: all but its head. -EKEYREJECTED: another registry has it. A backend that lets
 * everybody write has no claims: backend_claims(). */
int backend_claim(struct backend *b, const struct sm_owner_request *want,
		  struct sm_owner *ret_owner, char error[static BACKEND_ERROR_MAX]);
bool backend_claims(const struct backend *b);
/* Lists places that show a vGUID, from `first` on. */
int backend_homes(struct backend *b, uint32_t first, struct sm_homes_reply *ret_reply,
		  char error[static BACKEND_ERROR_MAX]);
/* Lists what failed batches have left, from entry `first` on; flags: enum sm_parked_flag. */
int backend_parked(struct backend *b, uint32_t first, uint32_t flags,
		   struct sm_parked_reply *ret_reply, char error[static BACKEND_ERROR_MAX]);
/* Path records of up to SM_RECORDS_MAX pairs, in their order. */
int backend_records(struct backend *b, const struct sm_record_key *keys, unsigned count,
		    struct sm_records_reply *ret_reply, char error[static BACKEND_ERROR_MAX]);
/* P_Keys that ports which show these GUIDs have by the partition policy, whether there are such
 * ports or not: up to SM_RECORDS_MAX GUIDs, in their order. */
int backend_memberships(struct backend *b, const uint64_t *guids, unsigned count,
			struct sm_memberships_reply *ret_reply,
			char error[static BACKEND_ERROR_MAX]);
/* The policy itself, from entry `first` on. */
int backend_partitions(struct backend *b, uint32_t first, struct sm_partitions_reply *ret_reply,
		       char error[static BACKEND_ERROR_MAX]);
/* Adds members to a partition, or takes them away again: all or none. Ports that show the GUIDs
 * have their P_Keys before the answer. flags: enum sm_members_flag. */
int backend_members(struct backend *b, uint16_t pkey, const struct sm_member *members,
		    unsigned count, unsigned flags, unsigned deadline_ms,
		    struct sm_members_reply *ret_reply, char error[static BACKEND_ERROR_MAX]);
/* Waits until OpenSM's state is another one than *epoch, which it then becomes; {0, 0}: what it is
 * now. -ECANCELED as soon as stop_fd is readable. For a backend that no other thread uses. */
int backend_watch(struct backend *b, struct backend_epoch *epoch, int stop_fd,
		  char error[static BACKEND_ERROR_MAX]);

/* Waits as backend_watch() for another comparison of paths than the one in *after; its `first` not
 * 0: gives more of the list of that one at once. -ESTALE: there is a later one. */
int backend_reroute(struct backend *b, const struct sm_reroute_request *after, int stop_fd,
		    struct sm_reroute_reply *ret_reply, char error[static BACKEND_ERROR_MAX]);

/* Writes the reason for an operator, BACKEND_ERROR_MAX bytes at most; returns rc. */
static inline __attribute__((format(printf, 3, 4))) int backend_fail(char *error, int rc,
								     const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, BACKEND_ERROR_MAX, fmt, ap);
	va_end(ap);
	return rc;
}

#endif
