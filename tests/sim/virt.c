/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libvirtd and `virsh migrate --live --p2p` on simulated hosts (world.h). Left out: the moment in
 * which libvirt itself runs a VM twice, when the destination's answer to Finish is lost. */
#include "tests/sim/virt.h"
#include "common/json.h"
#include "common/util.h"

#include <libvirt/libvirt.h>
#include <string.h>

#define RAM_BYTES    (24ull << 20)
#define TRICKLE      (1300ull << 10) /* a clamped stream sends that much each second */
#define DISK_SPEED   (1000ull << 20)
#define SYNC_US      (5 * SIM_S) /* QEMU asks so often what is dirty, with auto-converge */
#define TICK_US      (20 * SIM_MS)
#define DOWNTIME_MS  300 /* QEMU's own limit */
#define STEP_US      (15 * SIM_MS)
#define STATE_US     (100 * SIM_MS) /* to send a device's state */
#define KEEPALIVE_US (30 * SIM_S)   /* after which libvirtd gives the other one up */
#define HOOK_MS      15000

struct sim_mover sim_mover = {.strategy = "late"};

static unsigned libvirtd_lives[SIM_HOSTS];

unsigned sim_libvirtd_life(int host)
{
	return libvirtd_lives[host];
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

/* ---- the migration, as the two libvirtds drive it ---- */

/* An event carries the attempt of its migration, so that an event of an older one does nothing. */
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
	return sim_qemu_at(g->migration.from, g);
}

static struct sim_qemu *incoming_qemu(struct sim_guest *g)
{
	struct sim_qemu *q = sim_qemu_at(g->migration.to, g);

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

/* A dead libvirtd of the source does this only when it is back. */
/* libvirt sets again what it had found before it set the user's. */
static void reset_parameters(struct sim_qemu *q)
{
	q->downtime_ms = DOWNTIME_MS;
	q->throttle_by = SIM_THROTTLE;
	q->throttle = 0;
}

static void give_up(struct sim_guest *g, enum sim_job job, const char *why)
{
	struct sim_qemu *q = source_qemu(g);

	destroy_incoming(g);
	if (q && sim_migrates(q))
		sim_set_job(q, job);
	if (q && libvirtd_works(q->host)) {
		reset_parameters(q);
		resume_source(q, VIR_DOMAIN_EVENT_RESUMED_MIGRATED);
	}
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
	q->vcpu = g->migration.paused ? VCPU_PAUSED : VCPU_RUNS;
	q->job = QJOB_COMPLETED;
	if (!g->migration.paused) {
		sim_monitor(q->host, g, "RESUME", "{}");
		sim_lifecycle(q->host, g, VIR_DOMAIN_EVENT_RESUMED,
			      VIR_DOMAIN_EVENT_RESUMED_MIGRATED);
	}
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
		      sim_migrates(q) ? VIR_DOMAIN_EVENT_SUSPENDED_MIGRATED
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

/* The guest writes here and there, so that in a pass it comes back to pages that it has dirtied. */
static uint64_t written_bytes(const struct sim_qemu *q)
{
	uint64_t bytes = sim_mover.writes_per_s * (sim_us() - q->pass_us) / SIM_S;

	return bytes < sim_mover.writes_to ? bytes : sim_mover.writes_to;
}

static void next_pass(struct sim_qemu *q)
{
	char details[32];

	q->passes++;
	snprintf(details, sizeof details, "{\"pass\":%u}", (unsigned)q->passes);
	sim_monitor(q->host, q->guest, "MIGRATION_PASS", details);
	q->remaining += dirty_bytes(q->guest) + written_bytes(q);
	q->pass_us = sim_us();
	/* The guest dirties all of its memory again, each second time: QEMU's
	 * dirty_rate_high_cnt. */
	if (sim_mover.converges && q->passes > 2 && !(q->passes % 2))
		q->throttle += q->throttle ? q->throttle_by.increment : q->throttle_by.initial;
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
		sent = q->remaining > sent ? sent : q->remaining;
		q->remaining -= sent;
		q->sent += sent;
		if (sim_mover.converges && q->passes > 1 && sim_us() - q->pass_us >= SYNC_US)
			next_pass(q); /* in the middle of one */
		/* QEMU asks what is dirty again before it stops the guest for the rest. */
		if (q->remaining <= rate * q->downtime_ms / 1000)
			next_pass(q);
		if (q->remaining <= rate * q->downtime_ms / 1000) {
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
	q->passes = q->sent = 0;
	sim_set_job(q, QJOB_ACTIVE);
	next_pass(q);
	q->remaining = sim_mover.ram_bytes ? sim_mover.ram_bytes : RAM_BYTES;
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
	reset_parameters(q);
	if (sim_mover.converges)
		q->throttle_by = SIM_ASKED_THROTTLE;
	sim_set_job(q, QJOB_SETUP);
	sim_after(NULL, STEP_US, activate, arg);
}

static void copy_disk(void *arg)
{
	struct sim_guest *g = migrating(arg);
	struct sim_qemu *q = g ? source_qemu(g) : NULL;
	uint64_t sent;

	if (!g)
		return;
	sent = q->disk_speed ? q->disk_speed : DISK_SPEED;
	q->disk_left = q->disk_left > sent ? q->disk_left - sent : 0;
	sim_after(NULL, q->disk_left ? SIM_S : STEP_US, q->disk_left ? copy_disk : set_up, arg);
}

static void start_disk(struct sim_qemu *q, void *arg)
{
	q->disk_left = (uint64_t)sim_mover.disk_mib << 20;
	q->disk_speed = (uint64_t)q->preset_mib << 20;
	sim_after(NULL, STEP_US, q->disk_left ? copy_disk : set_up, arg);
}

static void start_incoming(void *arg)
{
	struct sim_guest *g = migrating(arg);
	struct sim_qemu *q;

	if (!g || sim_libvirtd_waits(g->migration.to, start_incoming, arg))
		return;
	q = sim_qemu_new(g->migration.to, g, VCPU_INCOMING);
	if (!sim_qemu_start_devices(q, g->migration.hook_xml ? g->migration.hook_xml : "")) {
		give_up(g, QJOB_FAILED, "vfio: no such host device");
		return;
	}
	sim_lifecycle(q->host, g, VIR_DOMAIN_EVENT_STARTED, VIR_DOMAIN_EVENT_STARTED_MIGRATED);
	start_disk(source_qemu(g), arg);
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

/* A paused VM may leave, too, but for what an earlier migration has left so. */
static bool may_leave(const struct sim_qemu *q)
{
	return q && (q->vcpu == VCPU_RUNS ||
		     (q->vcpu == VCPU_PAUSED && q->job != QJOB_COMPLETED && !sim_migrates(q)));
}

void sim_migrate(struct sim_guest *g, int from, int to)
{
	char *xml AUTO_FREE = sim_domain_xml(g, sim_hosts[to].qemus[sim_index(g)].path, "");
	char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", sim_hosts[to].name);
	struct json_object *body AUTO_JSON = json_object_new_object();

	free(g->migration.hook_xml);
	g->migration = (struct sim_migration){
		.under_way = true, .from = from, .to = to, .attempt = g->migration.attempt + 1};
	if (!sim_hosts[from].libvirtd_up || !sim_hosts[to].libvirtd_up ||
	    !may_leave(source_qemu(g))) {
		over(g, false, "libvirt refuses");
		return;
	}
	g->migration.paused = source_qemu(g)->vcpu == VCPU_PAUSED;
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
	if (!g->migration.under_way || host != g->migration.from || !q || !sim_migrates(q) ||
	    !libvirtd_works(host))
		return false;
	if (!q->job_hangs)
		give_up(g, QJOB_CANCELLED, "operation aborted: canceled by client");
	return true;
}

/* ---- deaths ---- */

void sim_qemu_kill(struct sim_guest *g, int host)
{
	struct sim_qemu *q = sim_qemu_at(host, g);
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
	struct sim_qemu *q = sim_qemu_at(host, g);

	if (!q || g->migration.under_way)
		return;
	if (q->vcpu == VCPU_INCOMING) {
		sim_qemu_gone(q, VIR_DOMAIN_EVENT_STOPPED_FAILED);
		return;
	}
	reset_parameters(q);
	if (q->vcpu == VCPU_PAUSED && q->job != QJOB_COMPLETED) {
		if (sim_migrates(q))
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

/* The caller of Perform, Finish and Confirm has died: the source's libvirtd, or virsh where it does
 * so itself. */
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

	if (g->migration.under_way)
		return false;
	if (q && q->vcpu == VCPU_PAUSED) {
		resume_source(q, VIR_DOMAIN_EVENT_RESUMED_UNPAUSED);
		did = true;
	}
	/* The VM runs elsewhere: QEMU processes that stayed behind are destroyed. */
	for (int h = 0; h < (int)sim_size.hosts; h++) {
		struct sim_qemu *left = sim_qemu_at(h, g);

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
