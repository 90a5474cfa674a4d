/* SPDX-License-Identifier: GPL-2.0-or-later */
/* QEMU, libvirtd and `virsh migrate --live --p2p` on simulated hosts (sim.h). Left out: the moment
 * in which libvirt itself runs a VM twice, when the destination's answer to Finish is lost. */
#include "tests/fake/sim_virt.h"
#include "common/json.h"
#include "common/util.h"

#include <libvirt/libvirt.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define RAM_BYTES    (24ull << 20)
#define TRICKLE      (1300ull << 10) /* what a clamped stream sends each second */
#define TICK_US      (20 * SIM_MS)
#define STEP_US      (15 * SIM_MS)
#define STATE_US     (100 * SIM_MS) /* to send a device's state */
#define UNPLUG_US    (60 * SIM_MS)
#define KEEPALIVE_US (30 * SIM_S) /* after which libvirtd gives the other one up */
#define HOOK_MS      15000

struct sim_mover sim_mover = {.strategy = "late"};

static unsigned libvirtd_lives[SIM_HOSTS];
static const char *const job_names[] = {
	[QJOB_NONE] = "none",     [QJOB_SETUP] = "setup",         [QJOB_ACTIVE] = "active",
	[QJOB_DEVICE] = "device", [QJOB_COMPLETED] = "completed", [QJOB_CANCELLED] = "cancelled",
	[QJOB_FAILED] = "failed",
};

unsigned sim_libvirtd_life(int host)
{
	return libvirtd_lives[host];
}

static struct sim_qemu *qemu_at(int host, struct sim_guest *g)
{
	struct sim_qemu *q = &sim_hosts[host].qemus[sim_index(g)];

	return q->exists ? q : NULL;
}

struct sim_qemu *sim_qemu_of(struct sim_guest *g)
{
	struct sim_qemu *paused = NULL;

	for (int h = 0; h < (int)sim_size.hosts; h++) {
		struct sim_qemu *q = qemu_at(h, g);

		if (q && q->vcpu == VCPU_RUNS)
			return q;
		if (q && q->vcpu == VCPU_PAUSED && !paused)
			paused = q;
	}
	return paused;
}

unsigned sim_running(struct sim_guest *g)
{
	unsigned n = 0;

	for (int h = 0; h < (int)sim_size.hosts; h++)
		n += qemu_at(h, g) && qemu_at(h, g)->vcpu == VCPU_RUNS;
	return n;
}

static char *vf_xml(struct sim_guest *g, unsigned rail)
{
	if (rail >= sim_rails(g))
		return strdup("");
	return strf("<ibvmig:vf xmlns:ibvmig='urn:ibvmig:1' pf='pf%u' vguid='0x%016llx' "
		    "pkey='0x8001' index='%u' strategy='%s'/>",
		    rail, (unsigned long long)g->vguids[rail], rail, sim_mover.strategy);
}

char *sim_domain_xml(struct sim_guest *g, const char *channel, const char *mark)
{
	char *first AUTO_FREE = vf_xml(g, 0), *second AUTO_FREE = vf_xml(g, 1);

	return strf("<domain type='kvm'><name>%s</name><uuid>%s</uuid><metadata>%s%s%s</metadata>"
		    "<devices><controller type='pci' model='pcie-root-port' index='5'/>"
		    "<controller type='pci' model='pcie-root-port' index='6'/>"
		    "<channel type='unix'><source mode='bind' path='%s'/>"
		    "<target type='virtio' name='org.ibvmig.0'/><alias name='channel0'/></channel>"
		    "</devices></domain>",
		    g->name, g->uuid, first, second, mark, channel);
}

/* ---- QEMU ---- */

static void listen_on(struct sim_qemu *q)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	unlink(q->path);
	q->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	q->conn_fd = -1;
	memcpy(addr.sun_path, q->path, sizeof addr.sun_path);
	if (bind(q->listen_fd, (struct sockaddr *)&addr, sizeof addr) || listen(q->listen_fd, 4))
		abort();
}

struct sim_qemu *sim_qemu_new(int host, struct sim_guest *g, enum sim_vcpu vcpu)
{
	struct sim_qemu *q = &sim_hosts[host].qemus[sim_index(g)];
	unsigned life = q->life + 1;
	char path[sizeof q->path];

	memcpy(path, q->path, sizeof path);
	*q = (struct sim_qemu){
		.exists = true,
		.host = host,
		.guest = g,
		.vcpu = vcpu,
		.preset_mib = 1000,
		.downtime_ms = 300,
		.life = life,
	};
	memcpy(q->path, path, sizeof path);
	listen_on(q);
	return q;
}

void sim_qemu_gone(struct sim_qemu *q, int detail)
{
	q->exists = false;
	sim_unseen(true);
	close(q->listen_fd);
	if (q->conn_fd >= 0)
		close(q->conn_fd);
	sim_unseen(false);
	frame_parser_reset(&q->parser);
	sim_lifecycle(q->host, q->guest, VIR_DOMAIN_EVENT_STOPPED, detail);
}

void sim_qemu_start(int host, struct sim_guest *g)
{
	sim_qemu_new(host, g, VCPU_RUNS);
	sim_lifecycle(host, g, VIR_DOMAIN_EVENT_STARTED, VIR_DOMAIN_EVENT_STARTED_BOOTED);
}

void sim_channel_event(struct sim_guest *g, bool open)
{
	struct sim_qemu *q = sim_qemu_of(g);

	if (q)
		sim_monitor(q->host, g, "VSERPORT_CHANGE",
			    open ? "{\"id\":\"channel0\",\"open\":true}"
				 : "{\"id\":\"channel0\",\"open\":false}");
}

void sim_set_job(struct sim_qemu *q, enum sim_job job)
{
	char details[64];

	q->job = job;
	snprintf(details, sizeof details, "{\"status\":\"%s\"}", job_names[job]);
	sim_monitor(q->host, q->guest, "MIGRATION", details);
}

/* ---- QMP ---- */

static struct json_object *qmp_error(const char *text)
{
	struct json_object *o = json_object_new_object(), *e = json_object_new_object();

	json_set_str(e, "class", "GenericError");
	json_set_str(e, "desc", text);
	json_set(o, "error", e);
	return o;
}

static struct json_object *qmp_return(struct json_object *value)
{
	struct json_object *o = json_object_new_object();

	json_set(o, "return", value ? value : json_object_new_object());
	return o;
}

static bool migrates(const struct sim_qemu *q)
{
	return q->job == QJOB_SETUP || q->job == QJOB_ACTIVE || q->job == QJOB_DEVICE;
}

unsigned sim_devices(const struct sim_qemu *q)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SIM_RAILS; i++)
		n += q->devices[i].there;
	return n;
}

/* "ibvf0" or "ibvf1". */
static struct sim_device *device_named(struct sim_qemu *q, const char *id)
{
	return !strcmp(id, "ibvf0") ? &q->devices[0] : !strcmp(id, "ibvf1") ? &q->devices[1] : NULL;
}

static int vf_slot(int host, const char *name)
{
	for (int i = 0; i < (int)sim_size.vfs; i++)
		if (str_eq(sim_hosts[host].vfs[i].name, name))
			return i;
	return -1;
}

static struct json_object *device_add(struct sim_qemu *q, struct json_object *args)
{
	struct sim_host *h = &sim_hosts[q->host];
	struct sim_device *d = device_named(q, json_opt_str(args, "id", ""));
	int slot = vf_slot(q->host, json_opt_str(args, "vf", ""));

	if (migrates(q))
		return qmp_error("device_add not allowed while migrating");
	if (!d || d->there)
		return qmp_error("Duplicate device ID");
	if (slot < 0 || !q->netdevs[slot] || h->vfs[slot].vanished ||
	    (h->device_add_fails && d == &q->devices[sim_rails(q->guest) - 1]))
		return qmp_error("vfio: no such host device");
	*d = (struct sim_device){.there = true, .late_detach = json_opt(args, "x-late-detach")};
	d->native = !d->late_detach && !json_opt(args, "failover_pair_id");
	snprintf(d->vf, sizeof d->vf, "%s", h->vfs[slot].name);
	snprintf(d->bus, sizeof d->bus, "%s", json_opt_str(args, "bus", ""));
	return qmp_return(NULL);
}

static void deleted(struct sim_qemu *q, unsigned rail)
{
	char details[32];

	q->devices[rail].deleting = q->devices[rail].there = false;
	snprintf(details, sizeof details, "{\"device\":\"ibvf%u\"}", rail);
	sim_monitor(q->host, q->guest, "DEVICE_DELETED", details);
}

/* A guest gives one up after the other. */
static void unplug(void *arg)
{
	struct sim_qemu *q = arg;
	unsigned rail = 0;

	while (rail < SIM_RAILS && !q->devices[rail].deleting)
		rail++;
	if (!q->exists || rail == SIM_RAILS)
		return;
	if (q->vcpu == VCPU_RUNS && sim_guest_lets_go(q->guest, rail))
		deleted(q, rail);
	sim_after(NULL, UNPLUG_US, unplug, q);
}

static struct json_object *device_del(struct sim_qemu *q, struct json_object *args)
{
	struct sim_device *d = device_named(q, json_opt_str(args, "id", ""));
	bool busy = false;

	if (!d || !d->there)
		return qmp_error("Device not found");
	if (d->native && migrates(q))
		return qmp_error("device_del not allowed while migrating");
	if (d->deleting)
		return qmp_error("Device is already in the process of unplug");
	for (unsigned i = 0; i < SIM_RAILS; i++)
		busy |= q->devices[i].deleting;
	d->deleting = true;
	if (!busy)
		sim_after(NULL, UNPLUG_US, unplug, q);
	return qmp_return(NULL);
}

static struct json_object *netdev(struct sim_qemu *q, struct json_object *args, bool wanted)
{
	int slot = vf_slot(q->host, json_opt_str(args, "id", ""));

	if (slot < 0 || q->netdevs[slot] == wanted)
		return qmp_error(wanted ? "Duplicate ID of netdev" : "Device not found");
	for (unsigned i = 0; !wanted && i < SIM_RAILS; i++)
		if (q->devices[i].there && !strcmp(q->devices[i].vf, json_opt_str(args, "id", "")))
			return qmp_error("the device of the netdev is still there");
	q->netdevs[slot] = wanted;
	return qmp_return(NULL);
}

static struct json_object *query_migrate(struct sim_qemu *q)
{
	struct json_object *o = json_object_new_object(), *ram = json_object_new_object();

	if (q->job != QJOB_NONE)
		json_set_str(o, "status", job_names[q->job]);
	json_set_u64(ram, "remaining", q->remaining);
	json_set_u64(ram, "dirty-sync-count", q->passes);
	json_set(o, "ram", ram);
	return qmp_return(o);
}

static struct json_object *qom_list(struct sim_qemu *q)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < SIM_RAILS; i++) {
		struct json_object *o = json_object_new_object();

		json_set_str(o, "name", !q->devices[i].there ? "type" : i ? "ibvf1" : "ibvf0");
		json_object_array_add(list, o);
	}
	return qmp_return(list);
}

static struct json_object *properties(void)
{
	struct json_object *list = json_object_new_array(), *o = json_object_new_object();

	json_set_str(o, "name", sim_mover.pre_attach ? "x-late-detach" : "x-none");
	json_object_array_add(list, o);
	return qmp_return(list);
}

static struct json_object *parameters(struct sim_qemu *q)
{
	struct json_object *o = json_object_new_object();

	json_set_u64(o, "max-bandwidth", q->bandwidth);
	json_set_u64(o, "downtime-limit", q->downtime_ms);
	return qmp_return(o);
}

static struct json_object *capabilities(void)
{
	struct json_object *list = json_object_new_array(), *o = json_object_new_object();

	json_set_str(o, "capability", "postcopy-ram");
	json_set_bool(o, "state", sim_mover.post_copy);
	json_object_array_add(list, o);
	return qmp_return(list);
}

struct json_object *sim_qmp(struct sim_qemu *q, const char *execute, struct json_object *args)
{
	if (!strcmp(execute, "device_add"))
		return device_add(q, args);
	if (!strcmp(execute, "device_del"))
		return device_del(q, args);
	if (!strcmp(execute, "query-migrate"))
		return query_migrate(q);
	if (!strcmp(execute, "device-list-properties"))
		return properties();
	if (!strcmp(execute, "qom-list"))
		return qom_list(q);
	if (!strcmp(execute, "query-migrate-parameters"))
		return parameters(q);
	if (!strcmp(execute, "query-migrate-capabilities"))
		return capabilities();
	if (!strcmp(execute, "migrate-set-parameters")) {
		q->bandwidth = json_opt_u64(args, "max-bandwidth", q->bandwidth);
		q->downtime_ms = json_opt_u64(args, "downtime-limit", q->downtime_ms);
		if (json_opt(args, "tls-creds"))
			q->refuses_save = *json_opt_str(args, "tls-creds", "");
		return qmp_return(NULL);
	}
	if (!strcmp(execute, "netdev_add"))
		return netdev(q, args, true);
	if (!strcmp(execute, "netdev_del"))
		return netdev(q, args, false);
	return qmp_error("The command has not been found");
}

/* ---- the migration, as the two libvirtds drive it ---- */

/* What an event of a migration is told: of an older attempt it does nothing. */
static void *token(struct sim_guest *g)
{
	return (void *)(uintptr_t)(g->migration.attempt * SIM_GUESTS + sim_index(g));
}

/* NULL: that attempt is over. */
static struct sim_guest *migrating(void *token)
{
	struct sim_guest *g = &sim_guests[(uintptr_t)token % SIM_GUESTS];

	return (uintptr_t)token / SIM_GUESTS == g->migration.attempt ? g : NULL;
}

static struct sim_qemu *source_qemu(struct sim_guest *g)
{
	return qemu_at(g->migration.from, g);
}

static struct sim_qemu *incoming_qemu(struct sim_guest *g)
{
	struct sim_qemu *q = qemu_at(g->migration.to, g);

	return q && q->vcpu == VCPU_INCOMING ? q : NULL;
}

static void resume_source(struct sim_qemu *q, int detail)
{
	if (!q || q->vcpu != VCPU_PAUSED)
		return;
	q->vcpu = VCPU_RUNS;
	sim_monitor(q->host, q->guest, "RESUME", "{}");
	sim_lifecycle(q->host, q->guest, VIR_DOMAIN_EVENT_RESUMED, detail);
}

static void over(struct sim_guest *g, bool ok, const char *why)
{
	g->migration.under_way = false;
	g->migration.ok = ok;
	snprintf(g->migration.error, sizeof g->migration.error, "%s", why);
	g->migration.attempt++;
}

static bool libvirtd_works(int host)
{
	return sim_hosts[host].libvirtd_up && sim_hosts[host].libvirtd_stopped_until_us <= sim_us();
}

/* The destination's QEMU is destroyed by its libvirtd: the connection of the source is gone, or it
 * said so. A libvirtd that is dead itself does it when it is back. */
static void destroy_incoming(struct sim_guest *g)
{
	struct sim_qemu *q = incoming_qemu(g);

	if (q && libvirtd_works(q->host))
		sim_qemu_gone(q, VIR_DOMAIN_EVENT_STOPPED_FAILED);
}

/* Not when the source's libvirtd is dead: then it is done when that is back. */
static void give_up(struct sim_guest *g, enum sim_job job, const char *why)
{
	struct sim_qemu *q = source_qemu(g);

	destroy_incoming(g);
	if (q && migrates(q))
		sim_set_job(q, job);
	if (q && libvirtd_works(q->host))
		resume_source(q, VIR_DOMAIN_EVENT_RESUMED_MIGRATED);
	over(g, false, why);
}

/* The wire between the hosts is cut: true, and after a while libvirt gives up. */
static bool wire_is_cut(struct sim_guest *g)
{
	if (sim_net.cut_until_us <= sim_us()) {
		g->migration.cut_since_us = 0;
		return false;
	}
	if (!g->migration.cut_since_us)
		g->migration.cut_since_us = sim_us();
	if (sim_us() - g->migration.cut_since_us >= KEEPALIVE_US)
		give_up(g, QJOB_FAILED, "connection closed due to keepalive timeout");
	return true;
}

bool sim_libvirtd_waits(int host, void (*step)(void *arg), void *arg)
{
	if (sim_hosts[host].libvirtd_stopped_until_us <= sim_us())
		return false;
	sim_after(NULL, sim_hosts[host].libvirtd_stopped_until_us - sim_us(), step, arg);
	return true;
}

static void confirm(void *arg)
{
	struct sim_guest *g = migrating(arg);

	if (!g || sim_libvirtd_waits(g->migration.from, confirm, arg))
		return;
	sim_qemu_gone(source_qemu(g), VIR_DOMAIN_EVENT_STOPPED_MIGRATED);
	over(g, true, "");
}

/* Finish at the destination, and its answer, in one moment. */
static void finish(void *arg)
{
	struct sim_guest *g = migrating(arg);
	struct sim_qemu *q;

	if (!g || sim_libvirtd_waits(g->migration.from, finish, arg) ||
	    sim_libvirtd_waits(g->migration.to, finish, arg))
		return;
	if (wire_is_cut(g)) {
		sim_after(NULL, TICK_US, finish, arg);
		return;
	}
	q = incoming_qemu(g);
	q->vcpu = VCPU_RUNS;
	q->job = QJOB_COMPLETED;
	sim_monitor(q->host, g, "RESUME", "{}");
	sim_lifecycle(q->host, g, VIR_DOMAIN_EVENT_RESUMED, VIR_DOMAIN_EVENT_RESUMED_MIGRATED);
	sim_after(NULL, STEP_US, confirm, arg);
}

static bool must_leave(const struct sim_qemu *q)
{
	for (unsigned i = 0; i < SIM_RAILS; i++)
		if (q->devices[i].there && q->devices[i].late_detach)
			return true;
	return false;
}

static void complete(void *arg)
{
	struct sim_guest *g = migrating(arg);
	struct sim_qemu *q = g ? source_qemu(g) : NULL;

	if (!g)
		return;
	if (wire_is_cut(g)) {
		sim_after(NULL, TICK_US, complete, arg);
		return;
	}
	if (must_leave(q)) {
		give_up(g, QJOB_FAILED, "a device with x-late-detach is still there");
		return;
	}
	if (sim_devices(q) > (incoming_qemu(g) ? sim_devices(incoming_qemu(g)) : 0)) {
		give_up(g, QJOB_FAILED, "Unknown savevm section: the VF is at one end only");
		return;
	}
	sim_set_job(q, QJOB_COMPLETED);
	sim_after(NULL, STEP_US, finish, arg);
}

/* While it migrates libvirt's event is the same whoever has asked for it. */
static void stop_guest(struct sim_qemu *q)
{
	if (q->vcpu != VCPU_RUNS)
		return;
	q->vcpu = VCPU_PAUSED;
	sim_monitor(q->host, q->guest, "STOP", "{}");
	sim_lifecycle(q->host, q->guest, VIR_DOMAIN_EVENT_SUSPENDED,
		      migrates(q) ? VIR_DOMAIN_EVENT_SUSPENDED_MIGRATED
				  : VIR_DOMAIN_EVENT_SUSPENDED_PAUSED);
}

void sim_suspend(struct sim_guest *g)
{
	stop_guest(sim_qemu_of(g));
}

static void switch_over(struct sim_qemu *q, void *arg)
{
	sim_set_job(q, QJOB_DEVICE);
	stop_guest(q);
	sim_after(NULL, sim_devices(q) ? STATE_US : STEP_US, complete, arg);
}

static uint64_t dirty_bytes(struct sim_guest *g)
{
	bool runs = g->ballast_until_us > sim_us() && g->agent_stopped_until_us <= sim_us() &&
		    source_qemu(g)->vcpu == VCPU_RUNS;

	return runs ? g->ballast_bytes : 0;
}

static void next_pass(struct sim_qemu *q)
{
	char details[32];

	q->passes++;
	snprintf(details, sizeof details, "{\"pass\":%u}", (unsigned)q->passes);
	sim_monitor(q->host, q->guest, "MIGRATION_PASS", details);
	q->remaining = dirty_bytes(q->guest);
}

static void tick(void *arg)
{
	struct sim_guest *g = migrating(arg);
	struct sim_qemu *q = g ? source_qemu(g) : NULL;
	uint64_t rate, sent;

	if (!g)
		return;
	if (!wire_is_cut(g) && !q->job_hangs) {
		rate = q->bandwidth > TRICKLE ? q->bandwidth : TRICKLE;
		sent = rate * TICK_US / SIM_S;
		q->remaining = q->remaining > sent ? q->remaining - sent : 0;
		if (!q->remaining)
			next_pass(q);
		if (q->passes > 1 && q->remaining <= rate * q->downtime_ms / 1000) {
			switch_over(q, arg);
			return;
		}
	}
	if (migrating(arg))
		sim_after(NULL, TICK_US, tick, arg);
}

static void activate(void *arg)
{
	struct sim_guest *g = migrating(arg);
	struct sim_qemu *q = g ? source_qemu(g) : NULL;

	if (!g)
		return;
	q->remaining = RAM_BYTES;
	q->passes = 0;
	sim_set_job(q, QJOB_ACTIVE);
	next_pass(q);
	q->remaining = RAM_BYTES;
	g->migration.cut_since_us = 0;
	sim_after(NULL, TICK_US, tick, arg);
}

static void set_up(void *arg)
{
	struct sim_guest *g = migrating(arg);
	struct sim_qemu *q = g ? source_qemu(g) : NULL;

	if (!g || sim_libvirtd_waits(g->migration.from, set_up, arg))
		return;
	q->bandwidth = (uint64_t)q->preset_mib << 20;
	q->downtime_ms = 300;
	sim_set_job(q, QJOB_SETUP);
	sim_after(NULL, STEP_US, activate, arg);
}

/* Of the device whose bus this is: its properties come before its argument's end. */
static bool has_late_detach(const char *bus)
{
	const char *property = strstr(bus, "x-late-detach"), *end = strchr(bus, '>');

	return property && property < end;
}

/* Devices on the command line, as the hook has put them into the XML. */
static void start_with_devices(struct sim_qemu *q, const char *xml)
{
	static const char vf_key[] = "&quot;vf&quot;:&quot;", id_key[] = "&quot;id&quot;:&quot;",
			  bus_key[] = "&quot;bus&quot;:&quot;";

	while ((xml = strstr(xml, vf_key))) {
		const char *id = strstr(xml, id_key), *bus = strstr(xml, bus_key);
		char name[8] = "";
		struct sim_device *d;
		int slot;

		xml += strlen(vf_key);
		snprintf(name, sizeof name, "%.5s", id ? id + strlen(id_key) : "");
		d = device_named(q, name);
		if (!d || !bus)
			continue;
		bus += strlen(bus_key);
		*d = (struct sim_device){.there = true, .late_detach = has_late_detach(bus)};
		d->native = !d->late_detach;
		d->unseen = d->late_detach;
		snprintf(d->vf, sizeof d->vf, "%.*s", (int)strcspn(xml, "&"), xml);
		snprintf(d->bus, sizeof d->bus, "%.*s", (int)strcspn(bus, "&"), bus);
		slot = vf_slot(q->host, d->vf);
		if (slot >= 0)
			q->netdevs[slot] = true;
	}
}

static void start_incoming(void *arg)
{
	struct sim_guest *g = migrating(arg);
	struct sim_qemu *q;

	if (!g || sim_libvirtd_waits(g->migration.to, start_incoming, arg))
		return;
	q = sim_qemu_new(g->migration.to, g, VCPU_INCOMING);
	start_with_devices(q, g->migration.hook_xml ? g->migration.hook_xml : "");
	sim_lifecycle(q->host, g, VIR_DOMAIN_EVENT_STARTED, VIR_DOMAIN_EVENT_STARTED_MIGRATED);
	sim_after(NULL, STEP_US, set_up, arg);
}

static void hook_answered(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct sim_guest *g = migrating(arg);

	if (!g)
		return;
	if (rc) {
		over(g, false, error);
		return;
	}
	str_set(&g->migration.hook_xml, json_opt_str(answer, "xml", ""));
	start_incoming(arg);
}

void sim_migrate(struct sim_guest *g, int from, int to)
{
	char *xml AUTO_FREE = sim_domain_xml(g, sim_hosts[to].qemus[sim_index(g)].path, "");
	char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", sim_hosts[to].name);
	struct json_object *body AUTO_JSON = json_object_new_object();

	free(g->migration.hook_xml);
	g->migration = (struct sim_migration){
		.under_way = true, .from = from, .to = to, .attempt = g->migration.attempt + 1};
	if (!sim_hosts[from].libvirtd_up || !sim_hosts[to].libvirtd_up || !source_qemu(g) ||
	    source_qemu(g)->vcpu != VCPU_RUNS) {
		over(g, false, "libvirt refuses");
		return;
	}
	json_set_str(body, "name", g->name);
	json_set_str(body, "op", "migrate");
	json_set_str(body, "sub_op", "begin");
	json_set_str(body, "xml", xml);
	sim_http(to, base, "POST", "/v1/hook", body, HOOK_MS, hook_answered, token(g));
}

bool sim_abort(struct sim_guest *g, int host)
{
	struct sim_qemu *q = source_qemu(g);

	if (g == &sim_guests[0] && sim_save_abort(host))
		return true;
	if (!g->migration.under_way || host != g->migration.from || !q || !migrates(q) ||
	    !libvirtd_works(host))
		return false;
	if (!q->job_hangs)
		give_up(g, QJOB_CANCELLED, "operation aborted: canceled by client");
	return true;
}

/* ---- deaths ---- */

void sim_qemu_kill(struct sim_guest *g, int host)
{
	struct sim_qemu *q = qemu_at(host, g);
	bool at_source = g->migration.under_way && host == g->migration.from;
	bool at_destination = g->migration.under_way && host == g->migration.to;

	if (!q)
		return;
	sim_qemu_gone(q, VIR_DOMAIN_EVENT_STOPPED_CRASHED);
	if (at_source) {
		destroy_incoming(g);
		over(g, false, "the domain is gone");
	} else if (at_destination && q->vcpu == VCPU_INCOMING) {
		give_up(g, QJOB_FAILED, "the destination's QEMU is gone");
	}
}

/* libvirtd's own recovery: an unfinished incoming VM is killed, an unfinished outgoing one is
 * cancelled; one that had been sent stays paused, for an operator. */
static void recover(struct sim_guest *g, int host)
{
	struct sim_qemu *q = qemu_at(host, g);

	if (!q || g->migration.under_way)
		return;
	if (q->vcpu == VCPU_INCOMING) {
		sim_qemu_gone(q, VIR_DOMAIN_EVENT_STOPPED_FAILED);
	} else if (q->vcpu == VCPU_PAUSED && q->job != QJOB_COMPLETED) {
		if (migrates(q))
			q->job = QJOB_CANCELLED;
		resume_source(q, VIR_DOMAIN_EVENT_RESUMED_MIGRATED);
	}
}

static void libvirtd_back(void *arg)
{
	int host = (int)(intptr_t)arg;

	sim_hosts[host].libvirtd_up = true;
	for (unsigned i = 0; i < sim_size.guests; i++)
		recover(&sim_guests[i], host);
}

void sim_libvirtd_stop(int host, uint64_t us)
{
	sim_hosts[host].libvirtd_stopped_until_us = sim_us() + us;
	sim_after(NULL, us, libvirtd_back, (void *)(intptr_t)host);
}

static int home_of_running(struct sim_guest *g)
{
	struct sim_qemu *q = sim_qemu_of(g);

	return q && q->vcpu == VCPU_RUNS ? q->host : -1;
}

/* Who calls Perform, Finish and Confirm one after the other has died: the source's libvirtd, or
 * virsh where it does so itself. */
static void driver_gone(struct sim_guest *g, const char *why)
{
	struct sim_qemu *q = source_qemu(g);

	if (home_of_running(g) == g->migration.to) {
		/* Finish is through: what is left is the source's to remove, or an operator's. */
		over(g, true, "");
	} else if (q && q->job == QJOB_COMPLETED) {
		/* Nobody knows whether it runs there: it stays paused. */
		destroy_incoming(g);
		over(g, false, why);
	} else {
		give_up(g, QJOB_FAILED, why);
	}
}

static void lose_libvirtd(struct sim_guest *g, int host)
{
	if (!g->migration.under_way)
		return;
	if (host == g->migration.from)
		driver_gone(g, "libvirtd is gone");
	else if (host == g->migration.to && home_of_running(g) != host)
		give_up(g, QJOB_FAILED, "libvirtd is gone");
}

void sim_libvirtd_kill(int host, uint64_t down_us)
{
	sim_hosts[host].libvirtd_up = false;
	libvirtd_lives[host]++;
	sim_libvirt_conns_broke(host);
	sim_save_libvirtd_died(host);
	sim_after(NULL, down_us, libvirtd_back, (void *)(intptr_t)host);
	for (unsigned i = 0; i < sim_size.guests; i++)
		lose_libvirtd(&sim_guests[i], host);
}

void sim_virsh_kill(struct sim_guest *g)
{
	if (g->migration.under_way)
		driver_gone(g, "virsh is gone");
}

static bool virsh_mends(struct sim_guest *g)
{
	struct sim_qemu *q = sim_qemu_of(g);
	bool did = false;

	if (q && q->vcpu == VCPU_PAUSED && !g->migration.under_way) {
		resume_source(q, VIR_DOMAIN_EVENT_RESUMED_UNPAUSED);
		did = true;
	}
	/* It runs elsewhere: what stayed behind is destroyed. */
	for (int h = 0; h < (int)sim_size.hosts; h++) {
		struct sim_qemu *left = qemu_at(h, g);

		if (left && left->vcpu == VCPU_PAUSED && sim_running(g)) {
			sim_qemu_gone(left, VIR_DOMAIN_EVENT_STOPPED_DESTROYED);
			did = true;
		}
	}
	return did;
}

bool sim_virsh_mends(void)
{
	bool did = false;

	for (unsigned i = 0; i < sim_size.guests; i++)
		did |= virsh_mends(&sim_guests[i]);
	return did;
}
