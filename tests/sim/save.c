/* SPDX-License-Identifier: GPL-2.0-or-later */
/* `virsh save` and `virsh restore` of the mover, as libvirtd does them (world.h). One file, which
 * all hosts see. */
#include "tests/sim/virt.h"
#include "common/json.h"
#include "common/util.h"

#include <libvirt/libvirt.h>
#include <string.h>

#define SAVE_US (300 * SIM_MS)
#define STEP_US (15 * SIM_MS)
#define HOOK_MS 15000

struct sim_image sim_image;
uint64_t sim_load_us = 200 * SIM_MS;

static struct sim_guest *const mover = &sim_guests[0];
static uint64_t attempt; /* events of an older one do nothing */

static void *token(void)
{
	return (void *)(uintptr_t)attempt;
}

static bool stale(void *arg)
{
	return (uint64_t)(uintptr_t)arg != attempt;
}

/* ---- save ---- */

static void save_over(enum sim_job job)
{
	struct sim_qemu *q = sim_qemu_at(sim_image.host, mover);

	sim_image.saving = false;
	attempt++;
	if (!q || q->vcpu != VCPU_PAUSED)
		return;
	sim_set_job(q, job);
	q->vcpu = VCPU_RUNS;
	sim_monitor(q->host, mover, "RESUME", "{}");
	sim_lifecycle(q->host, mover, VIR_DOMAIN_EVENT_RESUMED, VIR_DOMAIN_EVENT_RESUMED_UNPAUSED);
}

static void written(void *arg)
{
	struct sim_qemu *q = sim_qemu_at(sim_image.host, mover);

	if (stale(arg) || sim_libvirtd_waits(sim_image.host, written, arg))
		return;
	if (!q || sim_devices(q)) {
		save_over(QJOB_FAILED);
		return;
	}
	sim_image.whole = true;
	sim_image.saving = false;
	attempt++;
	sim_set_job(q, QJOB_COMPLETED);
	sim_qemu_gone(q, VIR_DOMAIN_EVENT_STOPPED_SAVED);
}

void sim_image_mark(const char *xml)
{
	const char *start = strstr(xml, "<ibvmig-saved:saved"), *end;

	end = start ? strstr(start, "/>") : NULL;
	snprintf(sim_image.mark, sizeof sim_image.mark, "%.*s", end ? (int)(end + 2 - start) : 0,
		 start ? start : "");
}

bool sim_save(struct sim_qemu *q, const char *xml)
{
	if (q->vcpu != VCPU_RUNS || sim_image.saving || mover->migration.under_way)
		return false;
	sim_image = (struct sim_image){.saving = true, .host = q->host};
	sim_image_mark(xml);
	q->vcpu = VCPU_PAUSED;
	sim_monitor(q->host, mover, "STOP", "{}");
	sim_lifecycle(q->host, mover, VIR_DOMAIN_EVENT_SUSPENDED,
		      VIR_DOMAIN_EVENT_SUSPENDED_PAUSED);
	sim_set_job(q, QJOB_ACTIVE);
	attempt++;
	sim_after(NULL, SAVE_US, written, token());
	return true;
}

bool sim_save_abort(int host)
{
	if (!sim_image.saving || host != sim_image.host)
		return false;
	save_over(QJOB_CANCELLED);
	return true;
}

/* libvirtd is dead; the next one cancels what it finds, and lets the guest run. */
void sim_save_libvirtd_died(int host)
{
	if (sim_image.saving && host == sim_image.host) {
		sim_image.saving = false;
		attempt++;
	}
	if (sim_image.restoring && host == sim_image.to) {
		sim_image.restoring = false;
		snprintf(sim_image.error, sizeof sim_image.error, "libvirtd is gone");
		attempt++;
	}
}

/* ---- restore ---- */

static void not_restored(const char *why)
{
	sim_image.restoring = false;
	attempt++;
	snprintf(sim_image.error, sizeof sim_image.error, "%s", why);
}

static void runs(void *arg)
{
	struct sim_qemu *q = sim_qemu_at(sim_image.to, mover);

	if (stale(arg) || sim_libvirtd_waits(sim_image.to, runs, arg))
		return;
	if (!q) {
		not_restored("the domain is gone");
		return;
	}
	q->vcpu = VCPU_RUNS;
	sim_monitor(q->host, mover, "RESUME", "{}");
	sim_image.restoring = false;
	sim_image.restored = true;
	attempt++;
}

static void loaded(void *arg)
{
	struct sim_qemu *q;

	if (stale(arg) || sim_libvirtd_waits(sim_image.to, loaded, arg))
		return;
	if (sim_image.unreadable) {
		not_restored("error while loading state: Input/output error");
		return;
	}
	q = sim_qemu_new(sim_image.to, mover, VCPU_PAUSED);
	memcpy(q->mark, sim_image.mark, sizeof q->mark);
	sim_lifecycle(sim_image.to, mover, VIR_DOMAIN_EVENT_STARTED,
		      VIR_DOMAIN_EVENT_STARTED_RESTORED);
	sim_after(NULL, STEP_US, runs, arg);
}

static void hook_answered(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)answer;
	if (stale(arg))
		return;
	if (rc)
		not_restored(error);
	else
		sim_after(NULL, sim_load_us, loaded, arg);
}

void sim_restore(int host)
{
	char *xml AUTO_FREE = sim_domain_xml(mover, sim_hosts[host].qemus[0].path, sim_image.mark);
	char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", sim_hosts[host].name);
	struct json_object *body AUTO_JSON = json_object_new_object();

	attempt++;
	sim_image.to = host;
	sim_image.restored = false;
	sim_image.restoring = true;
	if (!sim_hosts[host].libvirtd_up || !sim_image.whole || sim_qemu_at(host, mover)) {
		not_restored("libvirt refuses");
		return;
	}
	json_set_str(body, "name", mover->name);
	json_set_str(body, "op", "restore");
	json_set_str(body, "sub_op", "begin");
	json_set_str(body, "xml", xml);
	sim_http(host, base, "POST", "/v1/hook", body, HOOK_MS, hook_answered, token());
}
