/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The registry: which VM holds which vGUID, on which VF of which host. SQLite, WAL, every commit
 * synced; safe to call from several threads. */
#ifndef IBVMIG_SM_HELPER_REGISTRY_REGISTRY_H
#define IBVMIG_SM_HELPER_REGISTRY_REGISTRY_H

#include "vswitch/moves/address.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define REG_TEXT_MAX 256

struct registry; /* owned by the caller of registry_open() */

/* Work that was begun and not finished when the process died. */
enum reg_intent { REG_NONE, REG_BIND, REG_MOVE, REG_UNBIND };

/* A VF and where it hangs. */
struct reg_vf {
	char host[REG_TEXT_MAX], url[REG_TEXT_MAX], vf[REG_TEXT_MAX];
	uint64_t parked_guid; /* port GUID while no VM has it */
	uint64_t parked_node; /* node GUID then */
	/* The port of the (v)switch that it hangs on; or, where VFs share the LID of their port
	 * (ADDRESS_SHARED_PORT), that port's own GUID and the entry of its GUID table. */
	uint64_t switch_guid;
	uint8_t switch_port;
	uint16_t lid; /* ADDRESS_DYNAMIC: of the VF itself, waits while the VM is there; 0: not
			 known */
};

struct reg_entry {
	uint64_t vguid;
	char vm[REG_TEXT_MAX], name[REG_TEXT_MAX];
	uint16_t pkey, lid;
	/* ADDRESS_SHARED_PORT: the last four other LIDs since it was bound, 16 bits each, the
	 * latest lowest. Programs may have told them. */
	uint64_t had_lids;
	/* Backend ufm: enum sm_member_as that its partition had of the vGUID before the bind, and
	 * has after the end of it. */
	uint8_t member_before;
	enum address_mode mode; /* owner of the LID: a VF, the VM itself (a copy), or the host */
	uint64_t since_ms;      /* wall clock: on this VF since */
	struct reg_vf at;
	enum reg_intent intent;
	struct reg_vf to; /* REG_MOVE only */
};

/* The LID of the VF itself where the VM is, as far as is known; 0: not. Not with
 * ADDRESS_SHARED_PORT. */
static inline uint16_t reg_own_lid(const struct reg_entry *e)
{
	return e->mode == ADDRESS_DYNAMIC ? e->at.lid : e->lid;
}

/* The LID becomes another one, and the one that it was stays known. */
void reg_set_lid(struct reg_entry *e, uint16_t lid);

/* True if programs may mean it by that LID. */
static inline bool reg_has_lid(const struct reg_entry *e, uint16_t lid)
{
	bool has = e->lid == lid;

	for (uint64_t had = e->had_lids; had; had >>= 16)
		has |= (uint16_t)had == lid;
	return has;
}

/* A VF is known by its host and its parked GUID. */
static inline bool reg_same_vf(const struct reg_vf *a, const struct reg_vf *b)
{
	return !strcmp(a->host, b->host) && a->parked_guid == b->parked_guid;
}

/* A move as it is asked for. */
struct move_request {
	uint64_t vguid;
	char vm[REG_TEXT_MAX];
	struct reg_vf from; /* host, vf, parked_guid */
	struct reg_vf to;   /* and url */
	uint16_t pkey;
	bool senders_alive; /* nobody has quiesced who sends to it */
};

/* The file of the registry. */
enum registry_state {
	REGISTRY_GOOD,
	REGISTRY_CORRUPT,   /* for good; what follows passes */
	REGISTRY_FULL,      /* no room on its disk */
	REGISTRY_READ_ONLY, /* not writable, or not there */
	REGISTRY_FAILING,   /* reading or writing fails otherwise */
};

#define REGISTRY_WHY_MAX 512

struct registry_health {
	enum registry_state state;
	char why[REGISTRY_WHY_MAX]; /* names the file; "": good */
};

struct reg_subscription {
	char host[REG_TEXT_MAX], url[REG_TEXT_MAX];
};

/* 0, or -errno and *ret_error (owned by the caller) names the file and the cause: -EBADMSG, it is
 * corrupt; -ENOSPC; -EROFS; -EIO. */
int registry_open(const char *path, struct registry **ret_registry, char **ret_error);
/* Stands in for a file that could not be opened: empty, in memory, and never good. rc, why: of
 * registry_open(). 0 or -errno. */
int registry_stand_in(const char *path, int rc, const char *why, struct registry **ret_registry);
/* Lays the corrupt file aside, with another name that is told, and begins a new one at its place.
 * 0, or -errno and *ret_error as above; then all is as it was. */
int registry_renew(struct registry *r, char **ret_aside, char **ret_error);
/* A write on trial, unless the last was less than fresh_ms ago, and its outcome. */
struct registry_health registry_judge(struct registry *r, unsigned fresh_ms);
/* "good", "corrupt", "full", "read-only", "failing". */
const char *registry_state_name(enum registry_state s);
/* How many vGUIDs it has; 0 also where it cannot be read. */
unsigned registry_count(struct registry *r);
void registry_close(struct registry *r);

/* Every call returns 0 or -EIO; find returns -ENOENT too. */
int registry_find(struct registry *r, uint64_t vguid, struct reg_entry *ret_entry);
/* Finds who holds the VF with this parked GUID, or is on the way to it. */
int registry_find_vf(struct registry *r, uint64_t parked_guid, struct reg_entry *ret_entry);
/* Inserts or replaces; durable on return. */
int registry_put(struct registry *r, const struct reg_entry *e);
/* Puts all or none; entries may exchange their VFs. */
int registry_put_all(struct registry *r, const struct reg_entry *e, unsigned count);
int registry_delete(struct registry *r, uint64_t vguid);

/* Calls fn for each entry, in the order of the vGUIDs. */
int registry_each(struct registry *r, void (*fn)(void *arg, const struct reg_entry *e), void *arg);

/* Moves whose batch was parked, and which nobody has ended yet (sm-helper/moves/parked.h): one a
 * vGUID. As above. */
int registry_put_move(struct registry *r, const struct move_request *m);
int registry_delete_move(struct registry *r, uint64_t vguid);
int registry_each_move(struct registry *r, void (*fn)(void *arg, const struct move_request *m),
		       void *arg);

int registry_subscribe(struct registry *r, const char *host, const char *url);
/* 0 also if there is none. */
int registry_unsubscribe(struct registry *r, const char *host);
int registry_each_subscription(struct registry *r,
			       void (*fn)(void *arg, const struct reg_subscription *s), void *arg);

#endif
