/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Backend "umad": no plugin in the subnet manager. The fabric is read by SMPs and SA queries.
 *
 * With umad-writes only, it writes the LID of a VF whose vGUID has moved, and then asks the SM for
 * a heavy sweep. The sweep finds vGUID and LID together at the new place, as the SM has them in its
 * own tables, and routes to it. Entries of GUID tables are written through the SM's SA. LFTs are
 * the SM's: an entry written by somebody else is one that the SM does not know of (docs/fabric.md,
 * "Backends"). */
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/backend/backend.h"
#include "sm-helper/fabric/discover.h"
#include "sm-helper/fabric/lft_reader.h"
#include "sm-helper/fabric/umad_guids.h"
#include "vswitch/moves/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define FRESH_MS     2000 /* a topology may be used for so long */
#define FRESH_TIMES  20   /* or for so many times what it took to read it, if that is longer */
#define POLL_US      20000
#define TRAP_MS      2000 /* an SM that does nothing is asked again: a trap may be lost */
#define STILL_MS     1000 /* an SM without a word for so long is not in a sweep */
#define ANSWERS      3    /* to us and to other SMs, between two looks */
#define SWEEP_END_MS 10000
#define WALK_SOURCES 256 /* CA ports from which LFTs are walked */

struct umad {
	struct probe *probe; /* borrowed */
	bool writes;
	pthread_mutex_t lock; /* guards all below */
	uint64_t instance, generation;
	uint64_t sm_guid;
	uint32_t activity;
	uint64_t fresh_until_ms; /* 0: read anew */
	uint64_t sweeps;         /* asked for, and ended */
	uint32_t switches, endports;
};

/* A probe's error, in the terms that callers of a backend know. */
static int fail_probe(char *error, int rc, const char *text)
{
	return backend_fail(error, rc == -ENODEV ? -ECONNREFUSED : rc, "%s", text);
}

static int umad_open(const struct backend_conf *conf, void **ret_self)
{
	struct umad *u = calloc(1, sizeof *u);

	if (!u)
		return -ENOMEM;
	u->probe = conf->probe;
	u->writes = conf->umad_writes;
	u->instance = wall_ms();
	u->generation = 1;
	pthread_mutex_init(&u->lock, NULL);
	*ret_self = u;
	return 0;
}

static void umad_close(void *self)
{
	struct umad *u = self;

	pthread_mutex_destroy(&u->lock);
	free(u);
}

/* Another SM, or the same one started anew (its count of SMPs is smaller), is another instance;
 * what was read too long ago is of another generation. */
static void take_sm(struct umad *u, const struct probe_sm *sm, struct sm_status_reply *s)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&u->lock);

	if (u->sm_guid && (sm->guid != u->sm_guid || sm->activity < u->activity)) {
		u->instance++;
		u->fresh_until_ms = 0;
	}
	u->sm_guid = sm->guid;
	u->activity = sm->activity;
	if (now_ms() >= u->fresh_until_ms) {
		u->generation++;
		u->fresh_until_ms = UINT64_MAX; /* until it is read */
	}
	s->instance = u->instance;
	s->generation = u->generation;
	s->heavy_sweeps = u->sweeps;
	s->switches = u->switches;
	s->endports = u->endports;
}

static int umad_status(void *self, struct sm_status_reply *ret_status, char *error)
{
	char text[PROBE_ERROR_MAX];
	struct umad *u = self;
	struct probe_sm sm;
	int rc = probe_sm(u->probe, &sm, text);

	if (rc)
		return fail_probe(error, rc == -EIO ? -ETIMEDOUT : rc, text);
	take_sm(u, &sm, ret_status);
	ret_status->sm_guid = sm.guid;
	ret_status->sm_lid = sm.lid;
	ret_status->sm_state = sm.state;
	ret_status->ready = sm.state == SM_STATE_MASTER;
	if (!u->writes)
		return backend_fail(
			error, -ECONNREFUSED,
			"backend umad only reads: no address can be bound or moved. See "
			"docs/fabric.md, \"Backends\", before umad-writes is set");
	return 0;
}

static int umad_fabric(void *self, struct fabric *f, struct backend_epoch *ret_epoch, char *error)
{
	char text[PROBE_ERROR_MAX];
	uint64_t start = now_ms(), generation, took;
	struct umad *u = self;
	unsigned silent;
	int rc;

	pthread_mutex_lock(&u->lock);
	generation = u->generation;
	pthread_mutex_unlock(&u->lock);
	if ((rc = discover_fabric(u->probe, f, &silent, text)))
		return fail_probe(error, rc, text);
	if (silent)
		log_warn("topology: %u neighbours of switches do not answer", silent);
	took = now_ms() - start;
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&u->lock);
	u->switches = f->switches;
	u->endports = f->ends;
	u->fresh_until_ms = now_ms() +
			    (FRESH_TIMES * took > FRESH_MS ? FRESH_TIMES * took : FRESH_MS);
	*ret_epoch = (struct backend_epoch){u->instance, generation};
	return 0;
}

static void make_stale(struct umad *u)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&u->lock);

	u->fresh_until_ms = 0;
}

/* Watches whether the SM sends SMPs. */
struct stillness {
	uint32_t activity;
	uint64_t since_ms; /* 0: not looked yet */
};

/* Tells for how long the SM has sent none but answers to such questions as this, which it counts,
 * too. */
static uint64_t still_ms(struct umad *u, struct stillness *s)
{
	char text[PROBE_ERROR_MAX];
	struct probe_sm sm = {0};

	if (probe_sm(u->probe, &sm, text) || !s->since_ms || sm.activity - s->activity > ANSWERS)
		s->since_ms = now_ms();
	s->activity = sm.activity;
	return now_ms() - s->since_ms;
}

/* ---- a change of LIDs ---- */

struct umad_change {
	struct umad *u;
	const struct sm_target *t; /* borrowed */
	unsigned count;
	struct fabric f; /* owned: read for this batch */
	uint64_t own_guid;
	struct probe_route route[SM_ASSIGN_MAX];
	uint32_t end[SM_ASSIGN_MAX];
	bool shown[SM_ASSIGN_MAX]; /* the place shows the GUID that the statement names */
	bool write[SM_ASSIGN_MAX]; /* the port's LID differs, and may be written */
	uint16_t lid[SM_ASSIGN_MAX];
	bool want_sweep;
	unsigned written;
	char *error;
};

/* Finds the place of statement i, and refuses one that is no longer as its author has seen it. */
static int find_place(struct umad_change *b, unsigned i)
{
	const struct sm_target *t = &b->t[i];
	struct probe_route *r = &b->route[i];
	const struct fabric_end *e;
	int rc;

	b->end[i] = fabric_end_at(&b->f, t->switch_guid, t->switch_port);
	if (b->end[i] == FABRIC_NONE)
		return backend_fail(b->error, -ENOENT,
				    "no VF answers at port %u of switch 0x%016" PRIx64,
				    t->switch_port, t->switch_guid);
	e = &b->f.end[b->end[i]];
	for (unsigned k = 0; k < i; k++)
		if (b->end[k] == b->end[i])
			return backend_fail(b->error, -EINVAL,
					    "the VF at port %u of switch 0x%016" PRIx64
					    " is named twice in one batch",
					    t->switch_port, t->switch_guid);
	if (t->was_lid && t->was_lid != e->lid)
		return backend_fail(b->error, -ESTALE,
				    "VF 0x%016" PRIx64 " has LID %u, no longer %u", e->port_guid,
				    e->lid, t->was_lid);
	b->shown[i] = e->port_guid == t->port_guid;
	if (!b->shown[i] && t->lid)
		return backend_fail(b->error, -ESTALE,
				    "the VF at port %u of switch 0x%016" PRIx64
				    " shows 0x%016" PRIx64 ", not 0x%016" PRIx64,
				    t->switch_port, t->switch_guid, e->port_guid, t->port_guid);
	b->lid[i] = e->lid;
	rc = fabric_route(&b->f, fabric_find_end(&b->f, b->own_guid),
			  fabric_find_switch(&b->f, t->switch_guid), r->path);
	if (rc < 0)
		return backend_fail(b->error, -ENOTCONN, "no route to switch 0x%016" PRIx64,
				    t->switch_guid);
	r->hops = rc;
	r->path[++r->hops] = t->switch_port;
	return 0;
}

/* Decides if statement i's LID is written. A LID that a port outside of the change has is left to
 * the SM, which has to settle that; the end result is looked at afterwards. */
static int check_lid(struct umad_change *b, unsigned i)
{
	const uint16_t lid = b->t[i].lid;
	const struct fabric_owner o = fabric_find_lid(&b->f, lid);
	bool ours = o.sw == FABRIC_NONE && o.end == FABRIC_NONE;

	if (!lid)
		return 0;
	if (!ib_lid_is_unicast(lid))
		return backend_fail(b->error, -EINVAL, "LID %u is not one of 1 to %u", lid,
				    IB_LID_UCAST_MAX);
	for (unsigned k = 0; k < b->count; k++) {
		ours |= o.end != FABRIC_NONE && b->end[k] == o.end;
		if (k < i && b->t[k].lid == lid)
			return backend_fail(b->error, -EINVAL, "LID %u is named twice in one batch",
					    lid);
	}
	b->write[i] = ours && lid != b->f.end[b->end[i]].lid;
	b->want_sweep |= lid != b->f.end[b->end[i]].lid;
	return 0;
}

static int prepare(struct umad_change *b)
{
	char text[PROBE_ERROR_MAX];
	unsigned silent;
	int rc;

	if ((rc = probe_own_guid(b->u->probe, &b->own_guid, text)) ||
	    (rc = discover_fabric(b->u->probe, &b->f, &silent, text)))
		return fail_probe(b->error, rc == -EEXIST ? -EAGAIN : rc, text);
	for (unsigned i = 0; !rc && i < b->count; i++)
		rc = find_place(b, i);
	for (unsigned i = 0; !rc && i < b->count; i++)
		rc = check_lid(b, i);
	return rc;
}

static int put_lid(struct umad_change *b, unsigned i, uint16_t lid)
{
	char text[PROBE_ERROR_MAX];
	int rc = probe_set_lid(b->u->probe, &b->route[i], b->f.end[b->end[i]].port, lid, text);

	return rc ? fail_probe(b->error, rc, text) : 0;
}

/* The LIDs as they were, at the first n statements. */
static bool put_back(struct umad_change *b, unsigned n)
{
	bool all = true;

	for (unsigned i = 0; i < n; i++)
		if (b->write[i])
			all &= !put_lid(b, i, b->f.end[b->end[i]].lid);
	return all;
}

/* Writes all LIDs, or none as far as ports answer. */
static int write_lids(struct umad_change *b)
{
	char cause[BACKEND_ERROR_MAX - 64];
	bool back;

	for (unsigned i = 0; i < b->count; i++) {
		if (!b->write[i])
			continue;
		if (!put_lid(b, i, b->t[i].lid)) {
			b->written++;
			continue;
		}
		snprintf(cause, sizeof cause, "%s", b->error);
		back = put_back(b, i);
		return backend_fail(b->error, back ? -EREMOTEIO : -EIO, "%s%s", cause,
				    back ? "; taken back" : "; taking it back has failed, too");
	}
	return 0;
}

/* True if VF, SM and LFTs agree about statement i: the VF's LID is that of the SA's record, and
 * leads to the VF from here. */
static bool settled(struct umad_change *b, unsigned i, char *why)
{
	const struct ib_gid own = {IB_GID_PREFIX_LL, b->own_guid};
	const struct ib_gid gid = {IB_GID_PREFIX_LL, b->t[i].port_guid};
	struct probe *m = b->u->probe;
	struct probe_path path;
	struct probe_port port;
	struct probe_node n;
	uint64_t answers;

	if (!b->shown[i])
		return true; /* the SM learns when the VF shows it */
	if (probe_node(m, &b->route[i], &n, why) ||
	    probe_port_info(m, &b->route[i], b->f.end[b->end[i]].port, &port, why))
		return false;
	b->lid[i] = port.lid;
	if (n.port_guid != b->t[i].port_guid)
		return snprintf(why, PROBE_ERROR_MAX, "VF shows 0x%016" PRIx64, n.port_guid) < 0;
	if (probe_path(m, 0, &own, &gid, 0, &path, why))
		return false;
	if (!port.lid || path.dlid != port.lid)
		return snprintf(why, PROBE_ERROR_MAX, "0x%016" PRIx64 " has LID %u, the SA says %u",
				gid.guid, port.lid, path.dlid) < 0;
	if (probe_node_info_lid(m, port.lid, &answers, why))
		return false;
	if (answers != gid.guid)
		return snprintf(why, PROBE_ERROR_MAX, "LID %u answers as 0x%016" PRIx64, port.lid,
				answers) < 0;
	return true;
}

/* The switches' LFTs, read anew, lead from everywhere to the VF. */
static bool routed(struct umad_change *b, unsigned i, char *why)
{
	struct lft_reader lfts = {b->u->probe, b->own_guid};
	unsigned walks;

	return !b->shown[i] || !walk_verify(&b->f, b->lid[i], b->end[i], WALK_SOURCES, lft_fetch,
					    &lfts, &walks, why, PROBE_ERROR_MAX);
}

static bool all_settled(struct umad_change *b, char *why)
{
	for (unsigned i = 0; i < b->count; i++)
		if (!settled(b, i, why))
			return false;
	fabric_forget_lfts(&b->f);
	for (unsigned i = 0; i < b->count; i++)
		if (!routed(b, i, why))
			return false;
	return true;
}

/* The VF that the batch is for, the first one, must have the LID that is wanted. For other VFs the
 * SM's own table of GUIDs and LIDs has the last word. */
static bool as_wanted(const struct umad_change *b, char *why)
{
	if (!b->t[0].lid || b->lid[0] == b->t[0].lid)
		return true;
	snprintf(why, PROBE_ERROR_MAX, "it has given 0x%016" PRIx64 " LID %u, not %u",
		 b->t[0].port_guid, b->lid[0], b->t[0].lid);
	return false;
}

/* In the middle of a sweep the SM may know a GUID that is new to it by the LID that it has found.
 * The GUID gets a LID of its own only later. So a LID that is left to the SM and has not changed is
 * only believed once the SM is still. */
static bool may_change(const struct umad_change *b)
{
	for (unsigned i = 0; i < b->count; i++)
		if (b->shown[i] && !b->t[i].lid && b->lid[i] == b->f.end[b->end[i]].lid)
			return true;
	return false;
}

/* A sweep, and what it makes of the batch. Where all is of one mind already, nothing is asked. Nor
 * is an SM that works: a trap makes OpenSM begin its discovery again. */
static int let_sweep(struct umad_change *b, unsigned deadline_ms)
{
	char why[PROBE_ERROR_MAX] = "", text[PROBE_ERROR_MAX];
	uint64_t start = now_ms(), asked = 0, still = 0;
	struct stillness s = {0};
	int rc;

	if (!b->want_sweep && all_settled(b, why) && !may_change(b))
		return 0;
	do {
		if (!asked || (now_ms() - asked >= TRAP_MS && still >= STILL_MS)) {
			if ((rc = probe_ask_sweep(b->u->probe, text)))
				return fail_probe(b->error, rc, text);
			asked = now_ms();
		}
		usleep(POLL_US);
		still = still_ms(b->u, &s);
		if (all_settled(b, why) && as_wanted(b, why) &&
		    (!may_change(b) || still >= STILL_MS))
			return 0;
	} while (now_ms() - start < deadline_ms);
	return backend_fail(b->error, -EIO, "the subnet manager has not taken it within %u ms: %s",
			    deadline_ms, why);
}

static int carry_out(struct umad_change *b, unsigned deadline_ms)
{
	int rc = prepare(b);

	if (rc || (rc = write_lids(b)))
		return rc;
	return let_sweep(b, deadline_ms);
}

static int may_write(const struct umad *u, unsigned count, char *error)
{
	if (!u->writes)
		return backend_fail(error, -ECONNREFUSED,
				    "backend umad only reads (umad-writes is off)");
	if (!count || count > SM_ASSIGN_MAX)
		return backend_fail(error, -EINVAL, "a batch of %u; allowed is 1 to %u", count,
				    SM_ASSIGN_MAX);
	return 0;
}

static int umad_assign(void *self, const struct sm_target *targets, unsigned count, uint32_t flags,
		       unsigned deadline_ms, struct sm_assign_reply *ret_reply, char *error)
{
	struct umad *u = self;
	struct umad_change b = {.u = u, .t = targets, .count = count, .error = error};
	uint64_t start = now_us();
	int rc;

	if ((rc = may_write(u, count, error)))
		return rc;
	if (flags)
		return backend_fail(error, -EINVAL, "faults on purpose need backend opensm-plugin");
	rc = carry_out(&b, deadline_ms);
	make_stale(u);
	if (!rc) {
		*ret_reply = (struct sm_assign_reply){
			.port_info_smps = b.written,
			.switches_total = b.f.switches,
			/* SL, MTU and rate may be others, and nobody tells which */
			.paths_changed = b.f.ends,
			.elapsed_us = now_us() - start,
		};
		for (unsigned i = 0; i < count; i++) {
			const struct fabric_end *e = &b.f.end[b.end[i]];

			ret_reply->lid[i] = b.lid[i];
			ret_reply->changed[i] = (uint16_t)b.f.ends;
			ret_reply->before[i] = targets[i];
			ret_reply->before[i].port_guid = e->port_guid;
			ret_reply->before[i].node_guid = e->node_guid;
			ret_reply->before[i].lid = e->lid;
		}
	}
	fabric_clear(&b.f);
	return rc;
}

/* SL, MTU and rate of a GUID with another LID may be others, and nobody tells which. */
static void fill_guids(struct umad *u, const struct sm_slot *slots, unsigned count,
		       struct sm_guids_reply *r)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&u->lock);

	r->instance = u->instance;
	r->generation_before = r->generation = u->generation;
	for (unsigned i = 0; i < count; i++)
		if (slots[i].guid && slots[i].was_lid && slots[i].was_lid != r->lid[i]) {
			r->changed[i] = (uint16_t)u->endports;
			r->paths_changed += u->endports;
		}
}

static int umad_guids(void *self, const struct sm_slot *slots, unsigned count, unsigned deadline_ms,
		      struct sm_guids_reply *ret_reply, char *error)
{
	struct umad *u = self;
	char text[PROBE_ERROR_MAX];
	uint64_t start = now_us();
	int rc;

	if ((rc = may_write(u, count, error)))
		return rc;
	memset(ret_reply, 0, sizeof *ret_reply);
	if ((rc = umad_guids_write(u->probe, slots, count, deadline_ms, ret_reply, text)))
		return fail_probe(error, rc, text);
	fill_guids(u, slots, count, ret_reply);
	ret_reply->elapsed_us = now_us() - start;
	return 0;
}

/* Returns when the sweep is over, as far as one can tell from outside: the SM has sent more SMPs
 * than there are nodes, and then none for a while. */
static int umad_sweep(void *self, char *error)
{
	uint64_t give_up = now_ms() + SWEEP_END_MS;
	char text[PROBE_ERROR_MAX];
	struct stillness s = {0};
	struct umad *u = self;
	struct probe_sm first;
	uint32_t nodes;
	int rc;

	if ((rc = probe_sm(u->probe, &first, text)) || (rc = probe_ask_sweep(u->probe, text)))
		return fail_probe(error, rc, text);
	pthread_mutex_lock(&u->lock);
	nodes = u->switches + u->endports;
	pthread_mutex_unlock(&u->lock);
	do {
		usleep(POLL_US);
	} while ((still_ms(u, &s) < STILL_MS || s.activity - first.activity < nodes) &&
		 now_ms() < give_up);
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&u->lock);
	u->sweeps++;
	u->fresh_until_ms = 0;
	return 0;
}

const struct backend_kind backend_umad = {
	.name = "umad",
	.open = umad_open,
	.close = umad_close,
	.status = umad_status,
	.assign = umad_assign,
	.guids = umad_guids,
	.sweep = umad_sweep,
	.fabric = umad_fabric,
};
