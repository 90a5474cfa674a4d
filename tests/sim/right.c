/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/right.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/store/journal.h"
#include "daemon/migrate/machine.h"

#include <stdarg.h>
#include <string.h>

static struct sim_guest *const mover = &sim_guests[0], *const peer = &sim_guests[1];

char sim_wrong[SIM_WRONG_MAX];

bool sim_is_wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sim_wrong, sizeof sim_wrong, fmt, ap);
	va_end(ap);
	return false;
}

/* The host where g must be. */
int sim_home(struct sim_guest *g)
{
	struct sim_qemu *q = sim_qemu_of(g);

	return q ? q->host : -1;
}

struct migration *sim_record(int host, enum migrate_role role)
{
	for (struct migration *m = sim_hosts[host].d.migrations; m; m = m->next)
		if (m->rec.role == role)
			return m;
	return NULL;
}

struct json_object *sim_record_json(void)
{
	struct migration *m = sim_hosts[HOST_A].d.migrations;
	struct printbuf *text = m ? printbuf_new() : NULL;

	if (!m)
		return NULL;
	record_write(text, &m->rec, migrate_failures(m));
	return json_read_back(text);
}

/* The index of the VM's VF that is this one, or -1. */
static int rail_of(struct sim_guest *g, int at, int host, const char *vf_name)
{
	struct sim_qemu *q = sim_qemu_of(g);

	for (unsigned i = 0; q && host == at && i < sim_rails(g); i++)
		if (!strcmp(q->devices[i].vf, vf_name))
			return (int)i;
	return -1;
}

static bool leases_right(int h, struct sim_guest *g, int at)
{
	const struct vf_table *t = sim_hosts[h].d.vfs; /* NULL while no daemon runs there */

	for (size_t i = 0; t && i < t->vf_count; i++) {
		struct vf *vf = &t->vfs[i];
		bool ours = vf->leased && !strcmp(vf->vm, g->uuid);
		int rail = rail_of(g, at, h, vf->name);

		if (ours != (rail >= 0))
			return sim_is_wrong("host %s %s VF %s for %s", sim_hosts[h].name,
					    ours ? "has leased" : "has not leased", vf->name,
					    g->name);
		if (ours && vf->vguid != g->vguids[rail])
			return sim_is_wrong("VF %s is leased for another vGUID", vf->name);
		if (ours && *vf->migration)
			return sim_is_wrong("the lease of VF %s is still a migration's", vf->name);
	}
	return true;
}

static bool shows_one_of(const struct sim_vf *vf, const struct sim_guest *g)
{
	bool shows = false;

	for (unsigned i = 0; i < sim_rails(g); i++)
		shows |= vf->guid == g->vguids[i];
	return shows;
}

/* at: the host that has all of its VFs; -1: none has any. */
static bool vfs_right(struct sim_guest *g, int at)
{
	for (int h = 0; h < (int)sim_size.hosts; h++) {
		for (unsigned i = 0; i < sim_size.vfs; i++) {
			struct sim_vf *vf = &sim_hosts[h].vfs[i];
			int rail = rail_of(g, at, h, vf->name);

			if (rail < 0 ? shows_one_of(vf, g) : vf->guid != g->vguids[rail])
				return sim_is_wrong("VF %s %s the vGUID of %s", vf->name,
						    rail < 0 ? "shows" : "does not show", g->name);
			if (rail >= 0 && !vf->prepared)
				return sim_is_wrong("VF %s is not prepared", vf->name);
			if (rail < 0 && vf->guid == vf->parked_guid && vf->prepared)
				return sim_is_wrong("VF %s was not released", vf->name);
		}
		if (!leases_right(h, g, at))
			return false;
	}
	return true;
}

static bool binding_right(struct sim_guest *g, const struct sim_qemu *q, unsigned rail)
{
	struct sim_binding *b = sim_binding(g->vguids[rail]);
	const char *vf = q->devices[rail].vf;

	if (!b)
		return sim_is_wrong("%s is not bound in ibvmig-sm", g->name);
	if (strcmp(b->host, sim_hosts[q->host].name) || strcmp(b->vf, vf))
		return sim_is_wrong("ibvmig-sm has %s on host %s, VF %s, not %s", g->name, b->host,
				    b->vf, vf);
	return b->lid == 20u + (unsigned)(b - sim_fabric.bindings)
		       ? true
		       : sim_is_wrong("%s has LID %u", g->name, b->lid);
}

static bool rail_right(struct sim_guest *g, const struct sim_qemu *q, const struct vm *vm,
		       unsigned rail)
{
	const struct vf *lease = vm->vfs[rail].lease;
	const struct sim_device *device = &q->devices[rail];

	if (!device->there)
		return sim_is_wrong("%s has no VF %u in QEMU on %s", g->name, rail,
				    sim_hosts[q->host].name);
	if (device->unseen)
		return sim_is_wrong("%s has not looked for its VF %u", g->name, rail);
	if (!lease || strcmp(lease->name, device->vf))
		return sim_is_wrong("%s has VF %s in QEMU, %s in the daemon", g->name, device->vf,
				    lease ? lease->name : "none");
	if (strcmp(lease->bus, device->bus))
		return sim_is_wrong("VF %s is at %s, not %s", device->vf, device->bus, lease->bus);
	return binding_right(g, q, rail);
}

static bool guest_right(struct sim_guest *g)
{
	struct sim_qemu *q = sim_qemu_of(g);
	struct vm *vm;

	if (sim_running(g) != 1)
		return sim_is_wrong("%s runs on %u hosts", g->name, sim_running(g));
	if (!sim_hosts[q->host].proc.up)
		return sim_is_wrong("ibvmigd is down on %s", sim_hosts[q->host].name);
	vm = vm_find(&sim_hosts[q->host].d, g->uuid);
	if (!vm || vm->state != VM_ATTACHED || vm->vf_count != sim_rails(g) || vm->problem)
		return sim_is_wrong("%s is \"%s\" at ibvmigd of %s (%s)", g->name,
				    vm ? vm_state_name(vm) : "unknown", sim_hosts[q->host].name,
				    vm && vm->problem ? vm->problem : "-");
	for (unsigned i = 0; i < sim_rails(g); i++)
		if (!rail_right(g, q, vm, i))
			return false;
	if (q->preset_mib != 1)
		return sim_is_wrong("the speed of %s is not preset (%u MiB/s)", g->name,
				    q->preset_mib);
	if (!q->refuses_save)
		return sim_is_wrong("a plain save of %s is not refused", g->name);
	if (*g->suspended || !g->live)
		return sim_is_wrong("%s is suspended", g->name);
	if (agent_state(vm->agent) != AGENT_UP)
		return sim_is_wrong("the agent of %s is not connected", g->name);
	return vfs_right(g, q->host);
}

/* Looks only at the peer, where nobody is left to say how the migration has ended. The rest waits
 * for an operator, and so does a peer whose mover lives and has no VF yet. */
bool sim_peer_right(void)
{
	if (sim_qemu_of(mover) && !mover->live)
		return true;
	if (*peer->suspended || !peer->live)
		return sim_is_wrong("%s waits for a source that is lost", peer->name);
	return sim_hosts[HOST_C].d.peer_watches
		       ? sim_is_wrong("the peer's host still watches a migration")
		       : true;
}

static bool gone_right(struct sim_guest *g)
{
	for (unsigned i = 0; i < sim_rails(g); i++)
		if (sim_binding(g->vguids[i]))
			return sim_is_wrong("%s is dead, and still bound", g->name);
	/* The peer has given its QPs up, and takes part in the next migration. */
	return vfs_right(g, -1) && guest_right(g->other);
}

static bool records_right(void)
{
	for (int h = 0; h < (int)sim_size.hosts; h++) {
		for (struct migration *m = sim_hosts[h].d.migrations; m; m = m->next)
			if (!m->rec.ended)
				return sim_is_wrong(
					"host %s: migration is %s%s (%.200s)", sim_hosts[h].name,
					m->rec.back ? "undo of " : "",
					migrate_state_name(m->rec.state), m->rec.trouble);
		if (sim_hosts[h].d.peer_watches)
			return sim_is_wrong("host %s still watches a migration", sim_hosts[h].name);
	}
	return true;
}

bool sim_vm_may_be_dead;
int sim_lost_host = -1;

static bool pair_right(struct sim_guest *g)
{
	if (sim_vm_may_be_dead && !sim_qemu_of(g))
		return gone_right(g);
	if (!guest_right(g->other))
		return false;
	if (g->ballast_until_us > sim_us())
		return sim_is_wrong("the ballast of %s is still on", g->name);
	return guest_right(g);
}

bool sim_all_right(void *arg)
{
	(void)arg;
	for (int h = 0; h < (int)sim_size.hosts; h++)
		if (!sim_hosts[h].proc.up && h != sim_lost_host)
			return sim_is_wrong("ibvmigd is down on %s", sim_hosts[h].name);
	if (!records_right())
		return false;
	for (unsigned i = 0; i < sim_size.guests; i++)
		if (sim_guests[i].mover && !pair_right(&sim_guests[i]))
			return false;
	return true;
}

/* The breach of what must never be, not even for a moment. */
char sim_broken[SIM_WRONG_MAX];

static struct sim_host *host_at(const char *url)
{
	for (int h = 0; h < (int)sim_size.hosts; h++)
		if (!strcmp(sim_hosts[h].url, url))
			return &sim_hosts[h];
	return NULL;
}

/* vGUIDs of a rail follow each other as their guests do. */
static struct sim_guest *guest_with(uint64_t vguid)
{
	for (unsigned r = 0; r < SIM_RAILS; r++)
		if (vguid - sim_guests[0].vguids[r] < sim_size.guests)
			return &sim_guests[vguid - sim_guests[0].vguids[r]];
	return NULL;
}

/* The source's VFs are kept for as long as the destination may still give the VM up. */
static void look_at_source(const struct migration *dst)
{
	struct sim_host *src = host_at(dst->rec.from.url);

	for (unsigned i = 0; src && src->proc.up && i < dst->rec.vf_count; i++) {
		struct vf *vf = vf_by_name(src->d.vfs, dst->rec.vfs[i].from.vf);

		if (!record_did(&dst->rec, DID_ARM))
			continue; /* the destination has not told which VFs it has */
		if (!vf || !vf->leased || strcmp(vf->vm, dst->rec.vm_uuid))
			snprintf(sim_broken, sizeof sim_broken,
				 "the source has given VF %s up while the destination is in %s",
				 dst->rec.vfs[i].from.vf, migrate_state_name(dst->rec.state));
	}
}

static bool lives(const struct migration *m)
{
	struct sim_guest *g = m->rec.vf_count ? guest_with(m->rec.vfs[0].vguid) : NULL;

	return g && sim_qemu_of(g);
}

static void look_at_sources(void)
{
	for (int h = 0; h < (int)sim_size.hosts; h++) {
		struct sim_host *host = &sim_hosts[h];

		if (!host->proc.up)
			continue;
		for (struct migration *m = host->d.migrations; m; m = m->next)
			if (m->rec.role == ROLE_DESTINATION && !m->rec.ended && lives(m))
				look_at_source(m);
	}
}

static void look_at_vfs(void)
{
	bool shown[SIM_RAILS][SIM_GUESTS] = {0};

	for (unsigned h = 0; h < sim_size.hosts; h++) {
		for (unsigned i = 0; i < sim_size.vfs; i++) {
			uint64_t guid = sim_hosts[h].vfs[i].guid;
			struct sim_guest *g = guest_with(guid);
			bool *once = g ? &shown[guid != g->vguids[0]][sim_index(g)] : NULL;

			if (once && *once)
				snprintf(sim_broken, sizeof sim_broken,
					 "two VFs show a vGUID of %s", g->name);
			if (once)
				*once = true;
		}
	}
}

static void look_at_mover(struct sim_guest *g)
{
	struct sim_qemu *q = sim_qemu_of(g);

	if (q && q->vcpu == VCPU_RUNS && g->live && !g->process_dead &&
	    sim_devices(q) < sim_rails(g))
		snprintf(sim_broken, sizeof sim_broken, "the QPs of %s run without a device",
			 g->name);
	else if (q && g->live != sim_end_lives(g->other, g) && !g->process_dead &&
		 !g->connection_ended)
		snprintf(sim_broken, sizeof sim_broken, "one end of %s runs without the other",
			 g->name);
}

void sim_never_twice(void)
{
	if (*sim_broken)
		return;
	look_at_vfs();
	for (unsigned i = 0; i < sim_size.guests; i++)
		if (sim_running(&sim_guests[i]) > 1)
			snprintf(sim_broken, sizeof sim_broken, "%s runs twice",
				 sim_guests[i].name);
}

void sim_never(void)
{
	sim_never_twice();
	if (*sim_broken)
		return;
	for (unsigned i = 0; i < sim_size.guests; i++)
		if (sim_guests[i].mover)
			look_at_mover(&sim_guests[i]);
	look_at_sources();
}

/* The other half of the migration waits for an operator. */
static bool other_half_parked(const struct migration *m)
{
	enum migrate_role other = m->rec.role == ROLE_SOURCE ? ROLE_DESTINATION : ROLE_SOURCE;

	for (int h = 0; h < (int)sim_size.hosts; h++) {
		struct migration *o = migrate_find(&sim_hosts[h].d, m->rec.id, other);

		if (o && o->rec.state == M_PARKED)
			return true;
	}
	return false;
}

/* The journal agrees on what a restarted daemon would take up. */
static bool journal_agrees(struct daemon *d, const char *host)
{
	struct json_object *open AUTO_JSON = NULL;
	size_t n = 0;

	if (!d->journal)
		return true;
	for (struct migration *m = d->migrations; m; m = m->next)
		n += !m->rec.ended;
	open = journal_open_migrations(d->journal, SIM_GUESTS);
	return n == json_object_array_length(open) ||
	       sim_is_wrong("host %s: %zu open records, %zu in its journal", host, n,
			    json_object_array_length(open));
}

bool sim_is_kept(const struct migration *m)
{
	return m->rec.state == M_SAVED && record_did(&m->rec, DID_SAVE) && !m->rec.back &&
	       !m->rec.committed && !*m->rec.to.url && !m->recovery.unprobed && !m->inflight;
}

bool sim_quiet(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < sim_size.guests; i++)
		if (sim_guests[i].migration.under_way)
			return sim_is_wrong("%s still migrates", sim_guests[i].name);
	for (int h = 0; h < (int)sim_size.hosts; h++)
		for (struct migration *m = sim_hosts[h].d.migrations; m; m = m->next)
			if (!m->rec.ended && m->rec.state != M_PARKED && !other_half_parked(m) &&
			    !sim_is_kept(m))
				return sim_is_wrong(
					"host %s: migration does not end: %s%s (%.200s)",
					sim_hosts[h].name, m->rec.back ? "undo of " : "",
					migrate_state_name(m->rec.state), m->rec.trouble);
	for (int h = 0; h < (int)sim_size.hosts; h++)
		if (!journal_agrees(&sim_hosts[h].d, sim_hosts[h].name))
			return false;
	return true;
}
