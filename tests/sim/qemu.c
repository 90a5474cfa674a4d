/* SPDX-License-Identifier: GPL-2.0-or-later */
/* QEMU on simulated hosts (world.h): its devices, and what it answers on QMP. */
#include "tests/sim/virt.h"
#include "common/json.h"
#include "common/util.h"

#include <libvirt/libvirt.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define UNPLUG_US (60 * SIM_MS)
#define MIRROR    "drive-virtio-disk0"

static const char *const job_names[] = {
	[QJOB_NONE] = "none",     [QJOB_SETUP] = "setup",         [QJOB_ACTIVE] = "active",
	[QJOB_DEVICE] = "device", [QJOB_COMPLETED] = "completed", [QJOB_CANCELLED] = "cancelled",
	[QJOB_FAILED] = "failed",
};

struct sim_qemu *sim_qemu_at(int host, struct sim_guest *g)
{
	struct sim_qemu *q = &sim_hosts[host].qemus[sim_index(g)];

	return q->exists ? q : NULL;
}

struct sim_qemu *sim_qemu_of(struct sim_guest *g)
{
	struct sim_qemu *paused = NULL;

	for (int h = 0; h < (int)sim_size.hosts; h++) {
		struct sim_qemu *q = sim_qemu_at(h, g);

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
		n += sim_qemu_at(h, g) && sim_qemu_at(h, g)->vcpu == VCPU_RUNS;
	return n;
}

/* ---- its life ---- */

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
		.throttle_by = SIM_THROTTLE,
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

bool sim_migrates(const struct sim_qemu *q)
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

	if (sim_migrates(q))
		return qmp_error("device_add not allowed while migrating");
	if (!d || d->there)
		return qmp_error("Duplicate device ID");
	if (slot < 0 || !q->netdevs[slot] || h->vfs[slot].vanished ||
	    (h->device_add_fails && d == &q->devices[sim_rails(q->guest) - 1]))
		return qmp_error("vfio: no such host device");
	if (sim_mover.stays && json_opt(args, "failover_pair_id"))
		return qmp_error("failover primary device is not an Ethernet device");
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
	if (d->native && sim_migrates(q))
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
	json_set_u64(ram, "normal", q->sent / 4096);
	json_set_u64(ram, "page-size", 4096);
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

static struct json_object *qom_get(struct sim_qemu *q, struct json_object *args)
{
	const char *path = json_opt_str(args, "path", ""), *id = strrchr(path, '/');
	struct sim_device *d = id ? device_named(q, id + 1) : NULL;
	struct json_object *o = json_object_new_object();

	if (!d || !d->there || !sim_mover.pre_attach ||
	    strcmp(json_opt_str(args, "property", ""), "x-late-detach") != 0) {
		json_object_put(o);
		return qmp_error("Property not found");
	}
	json_set_bool(o, "return", d->late_detach);
	return o;
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
	json_set_u64(o, "cpu-throttle-initial", q->throttle_by.initial);
	json_set_u64(o, "cpu-throttle-increment", q->throttle_by.increment);
	return qmp_return(o);
}

static void add_capability(struct json_object *list, const char *name, bool on)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "capability", name);
	json_set_bool(o, "state", on);
	json_object_array_add(list, o);
}

static struct json_object *capabilities(void)
{
	struct json_object *list = json_object_new_array();

	add_capability(list, "auto-converge", sim_mover.converges);
	add_capability(list, "postcopy-ram", sim_mover.post_copy);
	add_capability(list, "xbzrle", sim_mover.compresses == SIM_XBZRLE);
	add_capability(list, "compress", sim_mover.compresses == SIM_COMPRESS);
	return qmp_return(list);
}

static struct json_object *block_jobs(struct sim_qemu *q)
{
	struct json_object *list = json_object_new_array(), *o;

	if (q->disk_left) {
		o = json_object_new_object();
		json_set_str(o, "type", "mirror");
		json_set_str(o, "device", MIRROR);
		json_set_u64(o, "speed", q->disk_speed);
		json_object_array_add(list, o);
	}
	return qmp_return(list);
}

static struct json_object *set_speed(struct sim_qemu *q, struct json_object *args)
{
	if (!q->disk_left || !str_eq(json_opt_str(args, "device", ""), MIRROR))
		return qmp_error("Block job not found");
	q->disk_speed = json_opt_u64(args, "speed", 0);
	return qmp_return(NULL);
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
	if (!strcmp(execute, "qom-get"))
		return qom_get(q, args);
	if (!strcmp(execute, "query-migrate-parameters"))
		return parameters(q);
	if (!strcmp(execute, "query-migrate-capabilities"))
		return capabilities();
	if (!strcmp(execute, "migrate-set-parameters")) {
		q->bandwidth = json_opt_u64(args, "max-bandwidth", q->bandwidth);
		q->downtime_ms = json_opt_u64(args, "downtime-limit", q->downtime_ms);
		q->throttle_by.initial = json_opt_u64(args, "cpu-throttle-initial",
						      q->throttle_by.initial);
		q->throttle_by.increment = json_opt_u64(args, "cpu-throttle-increment",
							q->throttle_by.increment);
		if (json_opt(args, "tls-creds"))
			q->refuses_save = *json_opt_str(args, "tls-creds", "");
		return qmp_return(NULL);
	}
	if (!strcmp(execute, "query-block-jobs"))
		return block_jobs(q);
	if (!strcmp(execute, "block-job-set-speed"))
		return set_speed(q, args);
	if (!strcmp(execute, "netdev_add"))
		return netdev(q, args, true);
	if (!strcmp(execute, "netdev_del"))
		return netdev(q, args, false);
	if (!strcmp(execute, "getfd"))
		return qmp_return(NULL);
	return qmp_error("The command has not been found");
}

/* ---- started with devices ---- */

/* The device is the one whose bus this is: its properties come before its argument's end. */
static bool has_late_detach(const char *bus)
{
	const char *property = strstr(bus, "x-late-detach"), *end = strchr(bus, '>');

	return property && property < end;
}

/* Devices on the command line, as the hook has put them into the XML. */
bool sim_qemu_start_devices(struct sim_qemu *q, const char *xml)
{
	static const char vf_key[] = "&quot;vf&quot;:&quot;", id_key[] = "&quot;id&quot;:&quot;",
			  bus_key[] = "&quot;bus&quot;:&quot;";

	while (!sim_mover.starts_empty && (xml = strstr(xml, vf_key))) {
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
		if (slot < 0 || sim_hosts[q->host].vfs[slot].vanished)
			return false;
		q->netdevs[slot] = true;
	}
	return true;
}
