/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/master/master.h"
#include "sm-helper/plugin/guid2lid.h"
#include "sm-helper/plugin/keep.h"
#include "sm-helper/proto/check.h"
#include "sm-helper/plugin/master/takeover.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include <opensm/osm_log.h>
#include <opensm/osm_node.h>
#include <opensm/osm_port.h>
#include <opensm/osm_remote_sm.h>
#include <opensm/osm_switch.h>

/* ---- the record ---- */

struct record_file {
	uint64_t check; /* checksum of the record: a kill may cut the write short */
	struct sm_intent_request record;
};

char *master_cache_path(const char *name)
{
	const char *dir = getenv("OSM_CACHE_DIR");

	return strf("%s/%s", dir ? dir : OSM_DEFAULT_CACHE_DIR, name);
}

int master_open(struct plugin *p)
{
	char *path AUTO_FREE = master_cache_path("ibvmig-intent");
	char reason[SM_REASON_MAX];
	struct record_file f = {0};
	int rc;

	if (!path)
		return -ENOMEM;
	if ((p->record_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0) {
		rc = -errno;
		osm_log(&p->osm->log, OSM_LOG_ERROR, "ibvmig: %s: %s\n", path, strerror(-rc));
		return rc;
	}
	if (pread(p->record_fd, &f, sizeof f, 0) != sizeof f || !f.record.count)
		return 0;
	if (f.check != checksum64(&f.record, sizeof f.record) ||
	    proto_check_request(&f.record, f.record.head.bytes, reason)) {
		osm_log(&p->osm->log, OSM_LOG_ERROR,
			"ibvmig: %s is damaged or of another release, and ignored\n", path);
		return 0;
	}
	p->record = f.record;
	osm_log(&p->osm->log, OSM_LOG_SYS,
		"ibvmig: %s names %u places of a batch that may not have ended\n", path,
		p->record.count);
	return 0;
}

int master_record(struct plugin *p, const struct sm_target *target, unsigned count)
{
	struct record_file f = {0};
	struct sm_intent_request *r = &f.record;

	r->head = (struct sm_head){
		SM_PROTO_MAGIC,
		SM_PROTO_VERSION,
		SM_OP_INTENT,
		0,
		(uint32_t)(offsetof(struct sm_intent_request, target) + count * sizeof *target),
	};
	r->count = count;
	if (count)
		memcpy(r->target, target, count * sizeof *target);
	f.check = checksum64(r, sizeof *r);
	if (pwrite(p->record_fd, &f, sizeof f, 0) != sizeof f)
		return errno ? -errno : -EIO;
	p->record = *r;
	return 0;
}

int plugin_intent(struct plugin *p, const struct sm_intent_request *req, struct sm_intent_reply *r)
{
	osm_subn_t *subn = &p->osm->subn;
	int rc = 0;

	cl_plock_excl_acquire(&p->osm->lock);
	if (subn->sm_state == IB_SMINFO_STATE_MASTER ||
	    subn->sm_state == IB_SMINFO_STATE_DISCOVERING)
		rc = plugin_refuse(&r->h, -EPERM, "this OpenSM is master itself, or about to be");
	else if ((rc = master_record(p, req->target, req->count)))
		plugin_refuse(&r->h, rc, "the record cannot be written: %s", strerror(-rc));
	cl_plock_release(&p->osm->lock);
	return rc ? rc : (int)sizeof *r;
}

/* ---- the first sweep as master ---- */

/* A switch has one LID, unless OpenSM gives its port 0 an LMC as well. */
static uint16_t lids_of(struct plugin *p, const osm_port_t *port)
{
	const osm_switch_t *sw = port->p_node->sw;

	return !sw || osm_switch_sp0_is_lmc_capable(sw, &p->osm->subn) ? (uint16_t)plugin_lids(p)
								       : 1;
}

static void fill_port(struct plugin *p, osm_port_t *port, struct takeover_port *t)
{
	const osm_physp_t *peer = port->p_node->sw ? NULL : port->p_physp->p_remote_physp;

	*t = (struct takeover_port){
		.guid = cl_ntoh64(port->guid),
		.lids = lids_of(p, port),
		.lid = cl_ntoh16(osm_physp_get_base_lid(port->p_physp)),
		.known = guid2lid_get(p, cl_ntoh64(port->guid)),
	};
	if (peer && peer->p_node->sw) {
		t->switch_guid = cl_ntoh64(osm_node_get_node_guid(peer->p_node));
		t->switch_port = peer->port_num;
	}
}

/* Lists the ports that this sweep has found: OpenSM drops the others only afterwards. */
static unsigned fill_ports(struct plugin *p, struct takeover_port *ports)
{
	cl_qmap_t *map = &p->osm->subn.port_guid_tbl;
	unsigned n = 0;

	for (cl_map_item_t *i = cl_qmap_head(map); i != cl_qmap_end(map); i = cl_qmap_next(i)) {
		osm_port_t *port = (osm_port_t *)i;

		if (port->discovery_count && port->p_physp)
			fill_port(p, port, &ports[n++]);
	}
	return n;
}

/* Entries of ports that are away stay, doubted, unless somebody has their LID now. */
static void drop_past(struct plugin *p)
{
	struct known_lid *known AUTO_FREE = NULL;
	unsigned n = guid2lid_all(p, &known), away = 0;
	uint64_t *guid = calloc(n + 1, sizeof *guid);

	for (unsigned i = 0; i < n; i++) {
		const struct known_lid *x = &known[i];

		if (memchr(p->osm->sm.lid_mgr.used_lids + x->lid, 1, x->lids)) {
			guid2lid_drop(p, x->guid);
			continue;
		}
		guid2lid_keep(p, x->lid, x->lids, true);
		if (guid)
			guid[away++] = x->guid;
	}
	keep_doubt(p, guid, away);
}

static void write_file(struct plugin *p, const struct takeover_port *ports, unsigned n)
{
	osm_lid_mgr_t *m = &p->osm->sm.lid_mgr;

	memset(m->used_lids, 0, sizeof m->used_lids);
	for (unsigned i = 0; i < n; i++) {
		guid2lid_drop(p, ports[i].guid);
		if (ports[i].gets)
			guid2lid_keep(p, ports[i].gets, ports[i].lids, true);
	}
	drop_past(p);
	for (unsigned i = 0; i < n; i++)
		if (ports[i].gets)
			guid2lid_set(p, ports[i].guid, ports[i].gets, ports[i].lids);
	/* Coming out of standby, OpenSM empties the table and, so told, reads the file again. */
	p->osm->subn.opt.honor_guid2lid_file = TRUE;
	if (osm_db_store(m->p_g2l, p->osm->subn.opt.fsync_high_avail_files))
		osm_log(&p->osm->log, OSM_LOG_ERROR,
			"ibvmig: the file guid2lid cannot be written: LIDs may change\n");
}

static void settle(struct plugin *p)
{
	static const char *const intent[] = {
		[TAKEOVER_NONE] = "no batch was under way",
		[TAKEOVER_WHOLE] = "the last batch is whole",
		[TAKEOVER_MENDED] = "a batch that was cut short is mended",
		[TAKEOVER_PAST] = "the recorded batch is of long ago",
	};
	struct takeover_result r;
	struct takeover_port *ports AUTO_FREE = calloc(
		cl_qmap_count(&p->osm->subn.port_guid_tbl) + 1, sizeof *ports);
	unsigned n = ports ? fill_ports(p, ports) : 0;

	if (!ports || takeover_settle(ports, n, p->record.target, p->record.count, &r)) {
		osm_log(&p->osm->log, OSM_LOG_ERROR, "ibvmig: no memory: LIDs may change\n");
		return;
	}
	write_file(p, ports, n);
	osm_log(&p->osm->log, OSM_LOG_SYS,
		"ibvmig: becomes master: %s; %u ports, %u keep LIDs that OpenSM's file did not "
		"have, %u had one together\n",
		intent[r.intent], n, r.kept, r.doubled);
}

bool master_swept(struct plugin *p)
{
	osm_subn_t *subn = &p->osm->subn;
	bool first;

	cl_plock_excl_acquire(&p->osm->lock);
	first = subn->sm_state == IB_SMINFO_STATE_DISCOVERING || subn->first_time_master_sweep ||
		subn->coming_out_of_standby;
	if (first) {
		if (subn->opt.reassign_lids)
			osm_log(&p->osm->log, OSM_LOG_ERROR,
				"ibvmig: LIDs are left to OpenSM: reassign_lids is TRUE\n");
		else
			settle(p);
	}
	cl_plock_release(&p->osm->lock);
	return first;
}

void master_up(struct plugin *p)
{
	cl_plock_excl_acquire(&p->osm->lock);
	if (p->record.count && p->osm->subn.sm_state == IB_SMINFO_STATE_MASTER)
		master_record(p, NULL, 0);
	cl_plock_release(&p->osm->lock);
}

unsigned master_others(const struct plugin *p)
{
	const cl_qmap_t *map = &p->osm->subn.sm_guid_tbl;
	unsigned n = 0;

	for (cl_map_item_t *i = cl_qmap_head(map); i != cl_qmap_end(map); i = cl_qmap_next(i))
		n += ib_sminfo_get_state(&((osm_remote_sm_t *)i)->smi) != IB_SMINFO_STATE_NOTACTIVE;
	return n;
}

/* ---- fault on purpose ---- */

void master_read_fault(struct plugin *p)
{
	const char *text = getenv("IBVMIG_FAULT");

	p->die_at = -1;
	p->may_die = text && strstr(text, "die-at");
	if (p->may_die)
		osm_log(&p->osm->log, OSM_LOG_ERROR,
			"ibvmig: FAULT die-at is on (IBVMIG_FAULT): this OpenSM is for tests\n");
}

void master_arm(struct plugin *p)
{
	char *path AUTO_FREE = p->may_die ? master_cache_path("ibvmig-die-at") : NULL;
	FILE *f = path ? fopen(path, "re") : NULL;
	char word[16] = "";

	if (!f)
		return;
	if (fscanf(f, "%15s", word) == 1)
		p->die_at = strcmp(word, "store") ? (int)strtol(word, NULL, 10) : PLUGIN_DIE_STORE;
	fclose(f);
}

void master_die(struct plugin *p, const char *where)
{
	osm_log(&p->osm->log, OSM_LOG_ERROR, "ibvmig: FAULT: dies now, %s\n", where);
	raise(SIGKILL);
	abort();
}
