/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who carries out what ibvmig-sm wants of a subnet: one struct of functions for each way to a
 * subnet manager, one table of them (docs/fabric.md, "Backends"). Used through
 * sm-helper/backend/client.h.
 *
 * All functions: 0 or -errno with one line in error, blocking, from any worker thread; the meaning
 * of arguments and errors is that of the client_* function of the same name. */
#ifndef IBVMIG_SM_HELPER_BACKEND_BACKEND_H
#define IBVMIG_SM_HELPER_BACKEND_BACKEND_H

#include <stdarg.h>
#include <stdio.h>

#include "sm-helper/backend/client.h"
#include "sm-helper/moves/ufm_http.h"

struct probe;
struct ops;
struct op_error;
struct reg_entry;
struct reg_vf;
struct move_request;
struct move_result;

/* What the configuration says. It and all that it points to: borrowed for the life of the process.
 */
struct backend_conf {
	const char *plugin_socket;
	struct probe *probe;
	bool umad_writes;
	struct ufm_conf ufm;
};

/* A NULL member: this backend cannot do that, and the call is refused. */
struct backend {
	const char *name;
	bool copies; /* LIDs that no VF has, with a port's routes: dynamic addresses */
	int (*open)(const struct backend_conf *conf, void **ret_self); /* NULL: without a state */
	void (*close)(void *self);
	/* On an error *ret_status (zeroed before) may still tell what is known. */
	int (*status)(void *self, struct sm_status_reply *ret_status, char *error);
	/* For who only wants to see, at once: *ret_age_ms old, 0 if it is of now. Without it:
	 * status. */
	int (*look)(void *self, struct sm_status_reply *ret_status, uint64_t *ret_age_ms,
		    char *error);
	int (*assign)(void *self, const struct sm_target *targets, unsigned count, uint32_t flags,
		      unsigned deadline_ms, struct sm_assign_reply *ret_reply, char *error);
	/* Entries of GUID tables: shared-port addresses. */
	int (*guids)(void *self, const struct sm_slot *slots, unsigned count, unsigned deadline_ms,
		     struct sm_guids_reply *ret_reply, char *error);
	/* Asks for a heavy sweep; it is over as soon as the status says that none runs. */
	int (*sweep)(void *self, char *error);
	int (*fabric)(void *self, struct fabric *f, struct client_epoch *ret_epoch, char *error);
	int (*intent)(void *self, const struct sm_target *targets, unsigned count, char *error);
	int (*parked)(void *self, uint32_t first, uint32_t flags, struct sm_parked_reply *ret_reply,
		      char *error);
	int (*records)(void *self, const struct sm_record_key *keys, unsigned count,
		       struct sm_records_reply *ret_reply, char *error);
	/* Tells every change of the subnet; without it no path record may be kept. */
	int (*watch)(void *self, struct client_epoch *epoch, int stop_fd, char *error);

	/* Whole operations, where the subnet manager does the work by itself; as ops_* of the same
	 * name, which are used without them and call the functions above. */
	int (*bind)(void *self, struct ops *o, const struct reg_entry *want, uint64_t deadline_us,
		    uint16_t *ret_lid, struct op_error *e);
	int (*unbind)(void *self, struct ops *o, uint64_t vguid, const char *vm,
		      const struct reg_vf *from, uint64_t deadline_us, struct op_error *e);
	int (*move)(void *self, struct ops *o, const struct move_request *m, unsigned count,
		    uint64_t deadline_us, struct move_result *ret_result, struct op_error *e);
};

extern const struct backend backend_plugin, backend_umad, backend_ufm, backend_none;

#define BACKEND_DEFAULT "opensm-plugin"

/* NULL: none has this name. */
const struct backend *backend_find(const char *name);
/* The names of all, with ", " between them; cut to room bytes with the NUL. */
void backend_names(char *text, size_t room);

/* Writes the reason for an operator, CLIENT_ERROR_MAX bytes at most; returns rc. */
static inline __attribute__((format(printf, 3, 4))) int backend_fail(char *error, int rc,
								     const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, CLIENT_ERROR_MAX, fmt, ap);
	va_end(ap);
	return rc;
}

#endif
