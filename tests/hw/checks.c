/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/hw/checks.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/libvirt/memlock.h"
#include "daemon/vf/guid.h"
#include "daemon/vf/vfio_migration.h"

#include <errno.h>
#include <linux/if_link.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define PCI           "bus/pci/devices"
#define DEVICE_MS     10000 /* mlx5_core and mlx5_ib take seconds for a VF */
#define MEMLOCK_BYTES 65536

static void result(struct hw_results *r, bool ok, const char *what, const char *why)
{
	r->tell(r, ok ? HW_OK : HW_FAILED, what, ok ? "" : why);
}

/* ---- a PF, as it is ---- */

static void check_numvfs(struct hw_results *r, const struct hca_host *h, const struct hca_pf *pf)
{
	char why[HTTP_ERROR_MAX] = "", link[SYSFS_NAME_MAX];
	uint64_t now = 0, total = 0;

	sysfs_read_u64(&h->sysfs, &now, PCI "/%s/sriov_numvfs", pf->bdf);
	sysfs_read_u64(&h->sysfs, &total, PCI "/%s/sriov_totalvfs", pf->bdf);
	if (now != pf->vf_count || now > total)
		snprintf(why, sizeof why, "sriov_numvfs %llu, %zu VFs found, sriov_totalvfs %llu",
			 (unsigned long long)now, pf->vf_count, (unsigned long long)total);
	else if (sysfs_exists(&h->sysfs, PCI "/%s/virtfn%zu", pf->bdf, pf->vf_count))
		snprintf(why, sizeof why, "there is a virtfn%zu too", pf->vf_count);
	for (size_t i = 0; i < pf->vf_count && !*why; i++)
		if (sysfs_link(&h->sysfs, link, PCI "/%s/physfn", pf->vfs[i].bdf) ||
		    strcmp(link, pf->bdf))
			snprintf(why, sizeof why, "physfn of %s does not lead to %s",
				 pf->vfs[i].bdf, pf->bdf);
	result(r, !*why, "sriov_numvfs VFs, whose physfn is the PF", why);
}

static void check_ids(struct hw_results *r, const struct hca_host *h, const struct hca_pf *pf)
{
	const char *what = "each VF has the PCI id that the PF tells";
	char want[SYSFS_VALUE_MAX], id[SYSFS_VALUE_MAX], why[HTTP_ERROR_MAX] = "";

	if (sysfs_read(&h->sysfs, want, PCI "/%s/sriov_vf_device", pf->bdf)) {
		r->tell(r, HW_SKIPPED, what, "this kernel has no sriov_vf_device");
		return;
	}
	for (size_t i = 0; i < pf->vf_count && !*why; i++)
		if (sysfs_read(&h->sysfs, id, PCI "/%s/device", pf->vfs[i].bdf) ||
		    strtoul(id, NULL, 16) != strtoul(want, NULL, 16))
			snprintf(why, sizeof why, "%s is a %.16s, not a %.16s", pf->vfs[i].bdf, id,
				 want);
	result(r, !*why, what, why);
}

static void check_pkeys(struct hw_results *r, const struct hca_host *h, const struct hca_pf *pf)
{
	char text[SYSFS_VALUE_MAX], why[HTTP_ERROR_MAX];
	struct sysfs_list l AUTO_LIST = sysfs_list(&h->sysfs, "class/infiniband/%s/ports/%u/pkeys",
						   pf->ibdev, pf->port);
	unsigned valid = 0, bad = 0;
	uint16_t pkey;

	for (size_t i = 0; i < l.count; i++) {
		if (sysfs_read(&h->sysfs, text, "class/infiniband/%s/ports/%u/pkeys/%s", pf->ibdev,
			       pf->port, l.names[i]))
			bad++;
		else
			valid += !ib_pkey_parse(text, &pkey);
	}
	snprintf(why, sizeof why,
		 "of %zu entries %u are PKeys and %u cannot be read: has the "
		 "subnet manager seen this port?",
		 l.count, valid, bad);
	result(r, valid && !bad, "the PKey table of the PF's port", why);
}

/* 0, or -errno with why */
static int look_at_links(const struct hca_host *h, const struct hca_pf *pf, char *why)
{
	struct vf_link *links AUTO_FREE = calloc(pf->vf_count, sizeof *links);
	unsigned ifindex = hca_ipoib(h, pf);
	int rc = links && ifindex ? vf_netlink_get(&h->netlink, ifindex, links, pf->vf_count)
				  : -ENXIO;

	if (rc)
		snprintf(why, HTTP_ERROR_MAX, "interface %u: %s", ifindex, strerror(-rc));
	for (size_t i = 0; i < pf->vf_count && !rc; i++) {
		if (links[i].present && links[i].policy <= IFLA_VF_LINK_STATE_DISABLE)
			continue;
		rc = -ENODEV;
		snprintf(why, HTTP_ERROR_MAX, "VF %zu: %s, link state %u", i,
			 links[i].present ? "present" : "not there", links[i].policy);
	}
	return rc;
}

static void check_links(struct hw_results *r, const struct hca_host *h, const struct hca_pf *pf)
{
	const char *what = "the PF's IPoIB interface tells of each VF";
	char why[HTTP_ERROR_MAX] = "";
	int rc = pf->mlx4 ? 0 : look_at_links(h, pf, why);

	if (pf->mlx4)
		r->tell(r, HW_SKIPPED, what, "a ConnectX-3, which has them below iov/");
	else if (rc == -EMSGSIZE)
		r->tell(r, HW_SKIPPED, what, "this kernel has no room for the GUIDs of many VFs");
	else
		result(r, !rc, what, why);
}

void hw_check_pf(struct hw_results *r, const struct hca_host *h, const struct hca_pf *pf)
{
	check_numvfs(r, h, pf);
	check_ids(r, h, pf);
	check_pkeys(r, h, pf);
	check_links(r, h, pf);
}

/* ---- a VF ---- */

/* A VF's checks; the PF is loaded beside the provider's own, to look behind it. */
struct life {
	struct hw_results *r;
	const struct mlx5_config *config;
	const struct hca_host *h;
	struct provider *p;
	struct hca_pf pf;
	const struct hca_vf *vf; /* borrowed from pf */
	uint64_t other;          /* a locally administered GUID that no VF of this host has */
	char error[HTTP_ERROR_MAX];
};

static void told(struct life *l, bool ok, const char *what)
{
	result(l->r, ok, what, l->error);
}

static struct vf_now now(const struct life *l)
{
	struct vf_now *all AUTO_FREE = calloc(l->pf.vf_count, sizeof *all);

	if (!all)
		return (struct vf_now){0};
	vf_guid_read(l->h, &l->pf, all);
	return all[l->vf->index];
}

static int find(struct life *l, const char *name)
{
	struct sysfs_list found AUTO_LIST = hca_pfs(l->h);
	const struct mlx5_config *c = l->config;

	for (size_t i = 0; i < (c->pf_count ? c->pf_count : found.count); i++) {
		if (hca_pf_load(l->h, c->pf_count ? c->pfs[i].device : found.names[i],
				c->pf_count ? c->pfs[i].name : NULL, 0, &l->pf, l->error))
			continue;
		for (size_t k = 0; k < l->pf.vf_count; k++)
			if (!strcmp(l->pf.vfs[k].name, name)) {
				l->vf = &l->pf.vfs[k];
				return 0;
			}
		hca_pf_clear(&l->pf);
	}
	snprintf(l->error, sizeof l->error, "no ready PF has a VF %s", name);
	return -ENODEV;
}

static bool is_free(struct life *l)
{
	struct vf_now n = now(l);
	bool parked = !n.known || n.guid == l->vf->parked_guid;

	if (!parked)
		snprintf(l->error, sizeof l->error,
			 "it shows 0x%016llx, which is not its parked "
			 "GUID",
			 (unsigned long long)n.guid);
	return parked && !provider_check(l->p, l->vf->name, l->error);
}

static void check_policy(struct life *l, const char *what)
{
	struct vf_now n = now(l);

	if (!n.policy_known) {
		l->r->tell(l->r, HW_SKIPPED, what, "this host does not tell it");
		return;
	}
	snprintf(l->error, sizeof l->error, "link state %u, not %u", n.policy, l->config->policy);
	told(l, n.policy == l->config->policy, what);
}

static bool has_override(const struct life *l, const char *driver)
{
	char text[SYSFS_VALUE_MAX];

	return !sysfs_read(&l->h->sysfs, text, PCI "/%s/driver_override", l->vf->bdf) &&
	       !strcmp(text, driver);
}

static void check_bound(struct life *l, const char *driver, const char *override, const char *what)
{
	char bound[SYSFS_NAME_MAX];

	hca_driver(l->h, l->vf->bdf, bound);
	snprintf(l->error, sizeof l->error,
		 "it has driver \"%s\", not \"%s\", or driver_override "
		 "is not %s",
		 bound, driver, override);
	told(l, !strcmp(bound, driver) && has_override(l, override), what);
}

static void check_migration(struct life *l)
{
	const char *what = "VFIO tells whether the device's state can migrate";
	bool plain = !strcmp(l->config->driver, "vfio-pci"), can = false;
	char text[96];
	int rc = vfio_migration_probe(l->h, l->vf, l->config->vfio, &can, l->error);

	if (rc == -ENOENT) {
		l->r->tell(l->r, HW_SKIPPED, what, "this kernel has no VFIO groups");
		return;
	}
	if (!rc && plain && can)
		snprintf(l->error, sizeof l->error, "plain vfio-pci says that it can");
	snprintf(text, sizeof text, "%s: %s", what, can ? "it can" : "it cannot");
	told(l, !rc && !(plain && can), text);
}

static bool prepare(struct life *l)
{
	struct json_object *in AUTO_JSON = json_object_new_object(), *first AUTO_JSON = NULL,
			       *second AUTO_JSON = NULL;

	json_set_str(in, "vf", l->vf->name);
	json_set_guid(in, "vguid", l->vf->parked_guid);
	json_set_str(in, "pkey", "0xffff");
	told(l, !provider_prepare(l->p, in, &first, l->error), "prepare");
	told(l, !provider_prepare(l->p, in, &second, l->error), "prepare once more");
	snprintf(l->error, sizeof l->error, "other commands for QEMU");
	told(l, first && json_object_equal(first, second), "it has the effect of one");
	return first;
}

static bool change_guid(struct life *l, uint64_t guid)
{
	struct vf_now n;

	if (provider_set_guid(l->p, l->vf->name, guid, l->error))
		return false;
	n = now(l);
	snprintf(l->error, sizeof l->error, "it shows 0x%016llx after 0x%016llx was set",
		 (unsigned long long)n.guid, (unsigned long long)guid);
	return !n.known || n.guid == guid;
}

static bool check_for_vm(struct life *l)
{
	if (!prepare(l))
		return false;
	check_bound(l, l->config->driver, l->config->driver,
		    "it has the VFIO driver, by driver_override");
	check_policy(l, "its policy is the configured one");
	check_migration(l);
	told(l, change_guid(l, l->other), "a vGUID, read back");
	told(l, change_guid(l, l->vf->parked_guid), "the parked GUID again, read back");
	return true;
}

static void release(struct life *l, const char *own)
{
	uint64_t autoprobe = 1; /* before Linux 4.12 always */

	sysfs_read_u64(&l->h->sysfs, &autoprobe, PCI "/%s/sriov_drivers_autoprobe", l->pf.bdf);
	told(l, !provider_release(l->p, l->vf->name, l->error), "release");
	told(l, !provider_release(l->p, l->vf->name, l->error), "release once more");
	check_bound(l, autoprobe ? own : "", "(null)",
		    "it is given back as sriov_drivers_autoprobe says");
}

/* ---- the host's own driver, which reads the GUIDs when it is bound ---- */

/* driver: "\n" for any. Leaves the VF to what drivers_probe chooses. */
static int bind_anew(struct life *l, const char *driver)
{
	char bound[SYSFS_NAME_MAX];
	int rc = sysfs_write(&l->h->sysfs, driver, PCI "/%s/driver_override", l->vf->bdf);

	hca_driver(l->h, l->vf->bdf, bound);
	if (!rc && *bound)
		rc = sysfs_write(&l->h->sysfs, l->vf->bdf, "bus/pci/drivers/%s/unbind", bound);
	return rc ? rc : sysfs_write(&l->h->sysfs, l->vf->bdf, "bus/pci/drivers_probe");
}

/* Four groups of digits, the lower half of a GID's text. */
static uint64_t node_guid(const struct life *l, const char *ibdev)
{
	char text[SYSFS_VALUE_MAX], half[SYSFS_VALUE_MAX + 2];
	struct ib_gid gid;

	if (sysfs_read(&l->h->sysfs, text, PCI "/%s/infiniband/%s/node_guid", l->vf->bdf, ibdev))
		return 0;
	snprintf(half, sizeof half, "::%s", text);
	return ib_gid_parse(half, &gid) ? 0 : gid.guid;
}

/* Returns the GUID of the VF's own RDMA device, once there is one. 0: none in time. */
static uint64_t shown_by_driver(const struct life *l)
{
	uint64_t deadline_ms = now_ms() + DEVICE_MS, guid = 0;

	do {
		struct sysfs_list d AUTO_LIST = sysfs_list(&l->h->sysfs, PCI "/%s/infiniband",
							   l->vf->bdf);

		guid = d.count ? node_guid(l, d.names[0]) : 0;
	} while (!guid && now_ms() < deadline_ms && !poll(NULL, 0, 50));
	return guid;
}

static void check_rebind(struct life *l, const char *own)
{
	const char *what = "the host's own driver shows a new GUID: the VF was bound anew";
	uint64_t shown;

	if (l->pf.mlx4) {
		l->r->tell(l->r, HW_SKIPPED, what, "a ConnectX-3: GUIDs are aliases of the PF's");
		return;
	}
	if (bind_anew(l, own) || !shown_by_driver(l)) {
		snprintf(l->error, sizeof l->error, "%s makes no RDMA device of it", own);
		told(l, false, what);
	} else {
		bool set = change_guid(l, l->other);

		shown = shown_by_driver(l);
		if (set)
			snprintf(l->error, sizeof l->error, "its RDMA device shows 0x%016llx",
				 (unsigned long long)shown);
		told(l, set && shown == l->other, what);
	}
	told(l, change_guid(l, l->vf->parked_guid), "and its parked one again");
	/* back to what sriov_drivers_autoprobe says */
	result(l->r, !bind_anew(l, "\n"), "driver_override is empty again", "it cannot be written");
}

static void check_life(struct life *l)
{
	const char *own = l->pf.mlx4 ? "mlx4_core" : "mlx5_core";

	/* The VF's number in a parked GUID is at most 127 here. */
	l->other = l->vf->parked_guid ^ 0x8000ull << 24;
	if (!is_free(l)) {
		told(l, false, "the VF is free");
		return;
	}
	told(l, true, "the VF is free");
	check_policy(l, "the inventory has set the policy");
	if (!check_for_vm(l))
		return;
	release(l, own);
	check_rebind(l, own);
}

void hw_check_vf(struct hw_results *r, const struct mlx5_config *config, const char *vf)
{
	struct life l = {.r = r, .config = config, .h = &config->host};
	struct json_object *inventory AUTO_JSON = NULL;

	snprintf(l.error, sizeof l.error, "out of memory");
	if (provider_mlx5_new(config, &l.p) || provider_inventory(l.p, &inventory, l.error) ||
	    find(&l, vf)) {
		told(&l, false, "inventory");
	} else {
		told(&l, true, "inventory");
		check_life(&l);
	}
	hca_pf_clear(&l.pf);
	provider_free(l.p);
}

/* ---- memory that a VM may lock ---- */

/* A process that waits, with a low limit. */
static pid_t start_small(void)
{
	const struct rlimit small = {MEMLOCK_BYTES, MEMLOCK_BYTES};
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	if (pid > 0)
		prlimit(pid, RLIMIT_MEMLOCK, &small, NULL);
	return pid;
}

/* In dir is what libvirt writes of a VM: its process. */
static void check_limit_of(struct hw_results *r, const char *dir, pid_t pid)
{
	const char *what = "the limit of locked memory of a VM's process is lifted";
	char why[HTTP_ERROR_MAX];
	struct rlimit limit = {0};
	int rc = memlock_lift(dir, "vm", why);

	prlimit(pid, RLIMIT_MEMLOCK, NULL, &limit);
	if (!rc)
		snprintf(why, sizeof why, "it is %llu", (unsigned long long)limit.rlim_cur);
	if (rc == -EPERM) /* in most containers */
		r->tell(r, HW_SKIPPED, what, why);
	else
		result(r, !rc && limit.rlim_cur == RLIM_INFINITY, what, why);
}

void hw_check_memlock(struct hw_results *r)
{
	char dir[] = "/tmp/ibvmig-memlock-XXXXXX", path[64];
	pid_t pid = start_small();
	FILE *f;

	if (pid <= 0 || !mkdtemp(dir)) {
		result(r, false, "a process, and its file", strerror(errno));
		return;
	}
	snprintf(path, sizeof path, "%s/vm.pid", dir);
	f = fopen(path, "w");
	if (f) {
		fprintf(f, "%d\n", (int)pid);
		fclose(f);
	}
	check_limit_of(r, dir, pid);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(path);
	rmdir(dir);
}
