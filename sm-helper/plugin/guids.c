/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A batch of entries of ports' GUID tables, where VFs share the LID of their port (docs/fabric.md,
 * "Addresses"). First the GUIDs that move leave the ports that show them, then they are written to
 * those that shall; between the two nobody shows them. OpenSM's own tables change with the first
 * step. The SA answers with the new port from then on, and refuses a host that asks for the GUID at
 * the old one. */
#include "sm-helper/plugin/alias.h"
#include "sm-helper/plugin/master/master.h"
#include "sm-helper/plugin/partitions/partitions.h"
#include "sm-helper/plugin/paths.h"
#include "sm-helper/plugin/partitions/pkeys.h"
#include "sm-helper/plugin/smps.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <opensm/osm_node.h>

#define UNDO_US  5000000
#define ALL_SMPS UINT32_MAX

struct guid_change {
	struct plugin *p;
	const struct sm_guids_request *req;
	struct sm_guids_reply *r;
	struct alias_entry e[SM_ASSIGN_MAX];
	unsigned count;
	uint64_t deadline_us;
	struct pkeys pkeys; /* its owner; of the ports */
	struct lock_time lock_time;
};

static void lock_tables(struct guid_change *b)
{
	lock_time_begin(b->p, &b->lock_time);
}

static void unlock_tables(struct guid_change *b)
{
	lock_time_end(b->p, &b->lock_time);
}

static const char *name_of(const osm_port_t *port)
{
	return port->p_node->print_desc;
}

/* ---- which ports, and what they hold ---- */

static int find_port(struct guid_change *b, unsigned i)
{
	const struct sm_slot *s = &b->req->slot[i];
	osm_port_t *port = osm_get_port_by_guid(&b->p->osm->subn, cl_hton64(s->port_guid));

	if (!port || !port->p_physp || !port->lid)
		return plugin_refuse(&b->r->h, -ENOENT,
				     "OpenSM sees no port 0x%016" PRIx64 " with a LID",
				     s->port_guid);
	if (osm_node_get_type(port->p_node) != IB_NODE_TYPE_CA ||
	    s->index >= port->p_physp->port_info.guid_cap)
		return plugin_refuse(
			&b->r->h, -EOPNOTSUPP,
			"%s, port 0x%016" PRIx64
			": its GUID table has %u entries (GuidCap), entry %u is wanted",
			name_of(port), s->port_guid, port->p_physp->port_info.guid_cap, s->index);
	b->e[i] = (struct alias_entry){.port = port, .index = s->index};
	return 0;
}

static struct smp get_block(const osm_port_t *port, unsigned block)
{
	return (struct smp){
		.physp = port->p_physp, .attr = IB_MAD_ATTR_GUID_INFO, .block = (uint16_t)block};
}

/* As OpenSM's table has it. Tables locked. */
static struct smp set_block(const osm_port_t *port, unsigned block)
{
	struct smp s = get_block(port, block);

	s.set = true;
	memcpy(&s.data.guids, &(*port->p_physp->p_guids)[block * GUID_TABLE_MAX_ENTRIES],
	       sizeof s.data.guids);
	return s;
}

/* Tells what the batch says of an entry: the registry knows better than the order in which ports
 * are read which of two ports shall show a GUID. */
static enum alias_say says(const struct guid_change *b, const osm_port_t *port, unsigned index,
			   ib_net64_t guid)
{
	enum alias_say say = ALIAS_ASK;

	for (unsigned i = 0; guid && i < b->count; i++) {
		const struct sm_slot *s = &b->req->slot[i];

		if (b->e[i].port == port && s->index == index)
			return ALIAS_OURS; /* or leaves in the first step */
		if (cl_hton64(s->guid) == guid)
			say = ALIAS_WRONG;
	}
	return say;
}

/* OpenSM does not read the tables of ports; a Set writes eight entries, so they must be known. */
static int learn(struct guid_change *b, osm_port_t *port)
{
	struct smp smp[ALIAS_BLOCKS_MAX];
	ib_guid_info_t info[ALIAS_BLOCKS_MAX];
	enum alias_say say[ALIAS_BLOCKS_MAX * GUID_TABLE_MAX_ENTRIES];
	bool wrong[ALIAS_BLOCKS_MAX] = {false};
	unsigned blocks = alias_blocks(port), n = 0;
	int rc;

	for (unsigned i = 0; i < blocks; i++)
		smp[i] = get_block(port, i);
	if (smps_send(b->p, smp, blocks, b->deadline_us))
		return plugin_refuse(&b->r->h, -ENOTCONN, "%s does not say what GUIDs it shows",
				     name_of(port));
	for (unsigned i = 0; i < blocks; i++)
		info[i] = smp[i].data.guids;
	lock_tables(b);
	for (unsigned i = 0; i < blocks * GUID_TABLE_MAX_ENTRIES; i++)
		say[i] = says(b, port, i,
			      info[i / GUID_TABLE_MAX_ENTRIES].guid[i % GUID_TABLE_MAX_ENTRIES]);
	rc = alias_learn(b->p, port, info, say, wrong);
	for (unsigned i = 0; !rc && i < blocks; i++) {
		if (!wrong[i])
			continue;
		smp[n++] = set_block(port, i);
	}
	unlock_tables(b);
	if (!rc && n && (rc = smps_send(b->p, smp, n, b->deadline_us))) {
		lock_tables(b); /* the port still shows them: look again the next time */
		alias_unlearn(port);
		unlock_tables(b);
	}
	b->r->guid_smps += n;
	return rc ? plugin_refuse(&b->r->h, rc, "%s: its GUID table cannot be taken over",
				  name_of(port))
		  : 0;
}

/* ---- whether it can be ---- */

/* OpenSM clears all tables of ports before the sweep in which it takes a subnet over. A master that
 * another one hands its part of the subnet to does so too, and asks no gate. Tables locked, shared
 * at least. */
static int check_known(struct guid_change *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		if (alias_is_known(b->e[i].port))
			continue;
		return *b->r->h.reason
			       ? -EAGAIN
			       : plugin_refuse(&b->r->h, -EAGAIN,
					       "OpenSM has forgotten what %s shows: it takes over",
					       name_of(b->e[i].port));
	}
	return 0;
}

static bool wanted(const struct guid_change *b, ib_net64_t guid)
{
	for (unsigned i = 0; i < b->count; i++)
		if (b->e[i].after == guid)
			return true;
	return false;
}

static bool shown(const struct guid_change *b, ib_net64_t guid)
{
	for (unsigned i = 0; i < b->count; i++)
		if (b->e[i].before == guid)
			return true;
	return false;
}

static int check_entry(const struct guid_change *b, unsigned i)
{
	const struct alias_entry *e = &b->e[i];
	const struct sm_slot *s = &b->req->slot[i];
	const osm_port_t *has = e->after ? osm_get_port_by_alias_guid(&b->p->osm->subn, e->after)
					 : NULL;

	if (e->before && e->before != e->after && e->before != cl_hton64(s->was_guid) &&
	    !wanted(b, e->before))
		return plugin_refuse(&b->r->h, -EEXIST,
				     "entry %u of %s shows 0x%016" PRIx64
				     ", which is somebody else's",
				     e->index, name_of(e->port), cl_ntoh64(e->before));
	if (has && !shown(b, e->after))
		return plugin_refuse(&b->r->h, -EEXIST, "GUID 0x%016" PRIx64 " belongs to %s",
				     s->guid, name_of(has));
	return 0;
}

static void plan(struct guid_change *b, bool back)
{
	for (unsigned i = 0; back && i < b->count; i++) {
		ib_net64_t before = b->e[i].before;

		b->e[i].before = b->e[i].after;
		b->e[i].after = before;
	}
	for (unsigned i = 0; i < b->count; i++) {
		struct alias_entry *e = &b->e[i];
		bool leaves = e->before && e->before != e->after && wanted(b, e->before);

		e->between = !leaves ? e->before : shown(b, e->after) ? 0 : e->after;
	}
}

static int resolve(struct guid_change *b)
{
	int rc = check_known(b);

	for (unsigned i = 0; !rc && i < b->count; i++) {
		b->e[i].before = alias_entry(b->e[i].port, b->e[i].index);
		b->e[i].after = cl_hton64(b->req->slot[i].guid);
		b->r->before[i] = cl_ntoh64(b->e[i].before);
		b->r->lid[i] = cl_ntoh16(b->e[i].port->lid);
	}
	for (unsigned i = 0; !rc && i < b->count; i++)
		rc = check_entry(b, i);
	plan(b, false);
	return rc;
}

static int prepare(struct guid_change *b)
{
	int rc = 0;

	b->count = b->req->count;
	cl_plock_acquire(&b->p->osm->lock);
	for (unsigned i = 0; !rc && i < b->count; i++)
		rc = find_port(b, i);
	cl_plock_release(&b->p->osm->lock);
	for (unsigned i = 0; !rc && i < b->count; i++)
		if (!alias_is_known(b->e[i].port))
			rc = learn(b, b->e[i].port);
	if (rc)
		return rc;
	cl_plock_acquire(&b->p->osm->lock);
	rc = resolve(b);
	cl_plock_release(&b->p->osm->lock);
	return rc;
}

/* ---- carrying it out ---- */

/* The block of each entry for which `now` differs from `then`, once. Tables locked. */
static unsigned make_smps(struct guid_change *b, bool second, struct smp smp[static SM_ASSIGN_MAX])
{
	unsigned n = 0;

	for (unsigned i = 0; i < b->count; i++) {
		const struct alias_entry *e = &b->e[i];
		uint8_t block = e->index / GUID_TABLE_MAX_ENTRIES;
		unsigned k = 0;

		if (second ? e->between == e->after : e->before == e->between)
			continue;
		while (k < n && (smp[k].physp != e->port->p_physp || smp[k].block != block))
			k++;
		if (k == n)
			smp[n++] = set_block(e->port, block);
	}
	return n;
}

/* Fault: of all SMPs of the batch the first die_at ones, then the end. */
static void cut_short(struct guid_change *b, struct smp *smp, unsigned n)
{
	unsigned die_at = (unsigned)b->p->die_at, sent = b->r->guid_smps;

	if (b->p->die_at < 0 || die_at > sent + n)
		return;
	smps_send(b->p, smp, die_at > sent ? die_at - sent : 0, now_us() + UNDO_US);
	master_die(b->p, "in the middle of a batch");
}

static int send_smps(struct guid_change *b, struct smp *smp, unsigned n, uint64_t deadline_us)
{
	int rc;

	cut_short(b, smp, n);
	rc = n ? smps_send(b->p, smp, n, deadline_us) : 0;

	b->r->guid_smps += n;
	for (unsigned k = 0; rc && k < n; k++)
		if (!smp[k].taken && !*b->r->h.reason)
			return plugin_refuse(&b->r->h, rc, "%s did not take its GUIDs",
					     smp[k].physp->p_node->print_desc);
	return rc;
}

/* A host may have asked the SA for something else since it was looked at. Tables locked. */
static int check_still(struct guid_change *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		const struct alias_entry *e = &b->e[i];

		if (!alias_is_known(e->port) || alias_entry(e->port, e->index) != e->before ||
		    check_entry(b, i))
			return plugin_refuse(&b->r->h, -ESTALE,
					     "entry %u of %s is not what it was when looked at",
					     e->index, name_of(e->port));
	}
	return 0;
}

static bool is_planned(const struct guid_change *b, const osm_port_t *port)
{
	for (unsigned i = 0; i < b->pkeys.count; i++)
		if (b->pkeys.port[i].own.physp == port->p_physp)
			return true;
	return false;
}

/* The P_Keys that the ports shall have for all that they show afterwards. Tables locked. */
static int plan_pkeys(struct guid_change *b)
{
	int rc = check_known(b);

	if (rc)
		return rc;
	b->pkeys.p = b->p;
	for (unsigned i = 0; i < b->count; i++)
		alias_set_entry(&b->e[i], b->e[i].after);
	for (unsigned i = 0; !rc && i < b->count; i++) {
		osm_port_t *port = b->e[i].port;
		struct policy_pkeys keys;

		if (is_planned(b, port))
			continue;
		partitions_pkeys(b->p, port->guid, port, &keys);
		rc = pkeys_add(&b->pkeys, port->p_physp, &keys, port->p_physp, &b->r->h);
	}
	for (unsigned i = 0; i < b->count; i++)
		alias_set_entry(&b->e[i], b->e[i].before);
	return rc;
}

/* OpenSM's records, and its maps of members, for what the ports show now; then the ports. */
static int put_pkeys(struct guid_change *b, bool back, uint64_t deadline_us,
		     struct sm_reply_head *h)
{
	int rc;

	lock_tables(b);
	pkeys_apply(&b->pkeys, back);
	for (unsigned i = 0; i < b->count; i++) {
		osm_port_t *port = b->e[i].port;
		struct policy_pkeys keys;

		partitions_note_aliases(b->p, port);
		partitions_pkeys(b->p, port->guid, port, &keys);
		if (partitions_hand_over(b->p, port->guid, port->p_physp, &keys))
			plugin_want_sweep(b->p);
	}
	unlock_tables(b);
	partitions_store(b->p);
	rc = pkeys_send(&b->pkeys, back, ALL_SMPS, deadline_us, h);
	b->r->pkey_smps = b->pkeys.sent;
	b->r->pkey_us = b->pkeys.us;
	return rc;
}

/* As they were before; what a port holds that does not take that is left to a heavy sweep. */
static int put_pkeys_back(struct guid_change *b, uint64_t deadline_us)
{
	struct sm_reply_head h;

	if (!put_pkeys(b, true, deadline_us, &h))
		return 0;
	lock_tables(b);
	pkeys_doubt(&b->pkeys);
	unlock_tables(b);
	plugin_want_sweep(b->p);
	return -EIO;
}

/* First step: GUIDs that move leave. OpenSM's tables, then the ports. */
static int take_out(struct guid_change *b, bool check, uint64_t deadline_us)
{
	struct smp smp[SM_ASSIGN_MAX];
	unsigned n;
	int rc;

	lock_tables(b);
	rc = check ? check_still(b) : check_known(b);
	if (!rc && check)
		rc = plan_pkeys(b);
	if (rc) {
		unlock_tables(b);
		return rc;
	}
	for (unsigned i = 0; i < b->count; i++)
		alias_set_entry(&b->e[i], b->e[i].between);
	alias_hand_over(b->p, b->e, b->count);
	n = make_smps(b, false, smp);
	unlock_tables(b);
	return send_smps(b, smp, n, deadline_us);
}

/* Second step. */
static int put_in(struct guid_change *b, uint64_t deadline_us)
{
	struct smp smp[SM_ASSIGN_MAX];
	unsigned n = 0;
	int rc;

	lock_tables(b);
	rc = check_known(b);
	for (unsigned i = 0; !rc && i < b->count; i++)
		alias_set_entry(&b->e[i], b->e[i].after);
	if (!rc)
		n = make_smps(b, true, smp);
	unlock_tables(b);
	return rc ? rc : send_smps(b, smp, n, deadline_us);
}

/* Puts in doubt what the ports of the batch hold: it is read again before the next change. The SA's
 * answers name the ports that may show the GUIDs, so that they are given to no other. */
static void doubt(struct guid_change *b)
{
	lock_tables(b);
	alias_hand_over(b->p, b->e, b->count);
	for (unsigned i = 0; i < b->count; i++)
		alias_unlearn(b->e[i].port);
	unlock_tables(b);
}

/* The first step alone is undone by the ports that were written in it: no other has heard of it. */
static void begin_back(struct guid_change *b)
{
	lock_tables(b);
	alias_hand_over(b->p, b->e, b->count);
	for (unsigned i = 0; i < b->count; i++) {
		struct alias_entry *e = &b->e[i];
		bool written = e->after && e->after != e->before && shown(b, e->after);

		e->between = written ? 0 : e->after;
	}
	unlock_tables(b);
}

/* An SMP that was not answered may have been taken all the same. So what the second step wrote is
 * taken out again, and only when that is certain shown where it was. */
static int undo(struct guid_change *b, bool second)
{
	uint64_t deadline = now_us() + UNDO_US;
	size_t at = strlen(b->r->h.reason);
	int rc = 0;

	plan(b, true);
	if (second && (rc = take_out(b, false, deadline)))
		plan(b, true); /* the ports that they were to go to may show them */
	else if (!second)
		begin_back(b);
	rc = rc ? rc : put_in(b, deadline);
	if (rc)
		doubt(b);
	if (put_pkeys_back(b, deadline))
		rc = -EIO;
	snprintf(b->r->h.reason + at, sizeof b->r->h.reason - at, "%s",
		 rc ? "; taking it back failed as well: these GUIDs may be shown by nobody"
		    : "; taken back");
	return rc ? -EIO : -EREMOTEIO;
}

static bool is_changed(const struct guid_change *b)
{
	for (unsigned i = 0; i < b->count; i++)
		if (b->e[i].before != b->e[i].after)
			return true;
	return false;
}

/* Reports each GUID that has another LID than peers know: its paths, and trap 69. */
static void report(struct guid_change *b)
{
	struct sm_guids_reply *r = b->r;

	for (unsigned i = 0; i < b->count; i++) {
		const struct sm_slot *s = &b->req->slot[i];
		unsigned n;

		if (!s->guid || !s->was_lid || s->was_lid == r->lid[i])
			continue;
		n = paths_of(b->p, s->guid, r->path, &r->path_count);
		r->changed[i] = (uint16_t)n;
		r->paths_changed += n;
		lock_tables(b);
		paths_report(b->p, SM_REPATH_TRAP, s->guid);
		unlock_tables(b);
		r->repath_notices++;
	}
}

static int carry_out(struct guid_change *b)
{
	int rc = take_out(b, true, b->deadline_us);

	if (rc && rc != -EIO)
		return rc;
	if (rc)
		rc = undo(b, false);
	else if (put_in(b, b->deadline_us) || put_pkeys(b, false, b->deadline_us, &b->r->h))
		rc = undo(b, true);
	if (b->p->die_at == PLUGIN_DIE_STORE)
		master_die(b->p, "after a batch");
	plugin_changed(b->p);
	return rc;
}

/* Entries that are so already still need this: the call that made them so may have died before the
 * P_Keys. */
static int keep_pkeys(struct guid_change *b)
{
	int rc;

	lock_tables(b);
	rc = plan_pkeys(b);
	unlock_tables(b);
	if (rc || !put_pkeys(b, false, b->deadline_us, &b->r->h))
		return rc;
	return put_pkeys_back(b, now_us() + UNDO_US) ? -EIO : -EREMOTEIO;
}

static int run(struct guid_change *b)
{
	int rc = prepare(b);

	if (!rc)
		rc = is_changed(b) ? carry_out(b) : keep_pkeys(b);
	if (!rc)
		report(b);
	return rc;
}

int plugin_guids(struct plugin *p, const struct sm_guids_request *req, struct sm_guids_reply *r)
{
	uint64_t start = now_us();
	static struct guid_change b; /* large, and only our thread comes here */
	int rc;

	b = (struct guid_change){
		.p = p, .req = req, .r = r, .deadline_us = start + req->deadline_ms * 1000ull};
	if (plugin_gate_enter(p, b.deadline_us))
		return plugin_refuse(&r->h, -EBUSY, "a heavy sweep has run for over %u ms",
				     req->deadline_ms);
	master_arm(p);
	r->instance = p->instance;
	r->generation_before = atomic_load(&p->count.generation);
	rc = plugin_refuse_state(p, &r->h);
	if (!rc)
		rc = run(&b);
	r->generation = atomic_load(&p->count.generation);
	plugin_gate_leave(p);
	pkeys_free(&b.pkeys);
	r->lock_us = b.lock_time.longest_us;
	r->elapsed_us = now_us() - start;
	return rc ? rc
		  : (int)(offsetof(struct sm_guids_reply, path) +
			  r->path_count * sizeof r->path[0]);
}
