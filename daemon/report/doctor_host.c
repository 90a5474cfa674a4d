/* SPDX-License-Identifier: GPL-2.0-or-later */
/* doctor: what the host's own files say, and of VFs their provider. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/report/doctor.h"
#include "daemon/store/lease.h"
#include "daemon/vf/provider.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define CLASS    "/sys/class/infiniband"
#define TEXT_MAX 256

/* A small file below the root, without its line end; "" if it cannot be read. */
static void read_text(const struct doctor *d, const char *path, char text[static TEXT_MAX])
{
	char *full AUTO_FREE = strf("%s%s", d->root, path), *data AUTO_FREE = NULL;

	text[0] = '\0';
	if (full && !read_file(full, 4096, &data, NULL))
		snprintf(text, TEXT_MAX, "%.*s", (int)strcspn(data, "\n"), data);
}

static bool exists(const struct doctor *d, const char *path)
{
	char *full AUTO_FREE = strf("%s%s", d->root, path);

	return full && !access(full, F_OK);
}

/* The last part of where a link leads, as sysfs names a driver; "" without the link. */
static void link_name(const struct doctor *d, const char *path, char name[static TEXT_MAX])
{
	char *full AUTO_FREE = strf("%s%s", d->root, path);
	char target[PATH_MAX];
	ssize_t n = full ? readlink(full, target, sizeof target - 1) : -1;
	const char *slash;

	name[0] = '\0';
	if (n < 0)
		return;
	target[n] = '\0';
	slash = strrchr(target, '/');
	snprintf(name, TEXT_MAX, "%.200s", slash ? slash + 1 : target);
}

/* visit() for each RDMA device; pf: it has VFs, vf: it is one. */
struct device {
	char name[64];
	bool pf, vf, ib;
};

static void each_device(const struct doctor *d, void (*visit)(const struct device *dev, void *arg),
			void *arg)
{
	char *folder AUTO_FREE = strf("%s" CLASS, d->root), *path;
	DIR *dir = folder ? opendir(folder) : NULL;
	char text[TEXT_MAX];
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		struct device dev = {0};

		if (e->d_name[0] == '.' || strlen(e->d_name) >= sizeof dev.name)
			continue;
		strcpy(dev.name, e->d_name);
		path = strf(CLASS "/%s/device/sriov_numvfs", dev.name);
		read_text(d, path, text);
		dev.pf = *text && strcmp(text, "0");
		free(path);
		path = strf(CLASS "/%s/device/physfn", dev.name);
		dev.vf = exists(d, path);
		free(path);
		path = strf(CLASS "/%s/ports/1/link_layer", dev.name);
		read_text(d, path, text);
		dev.ib = !strcmp(text, "InfiniBand");
		free(path);
		visit(&dev, arg);
	}
	if (dir)
		closedir(dir);
}

static void note_ib(const struct device *dev, void *arg)
{
	if (dev->pf && dev->ib)
		*(bool *)arg = true;
}

bool doctor_has_ib(const struct doctor *d)
{
	bool has = false;

	each_device(d, note_ib, &has);
	return has;
}

void doctor_ipoib(struct doctor *d)
{
	if (!doctor_has_ib(d))
		doctor_add(d, "ipoib", DOCTOR_SKIPPED, "ib_ipoib", NULL,
			   "no InfiniBand PF with VFs on this host");
	else if (exists(d, "/sys/module/ib_ipoib"))
		doctor_add(d, "ipoib", DOCTOR_OK, "ib_ipoib", NULL, "loaded");
	else
		doctor_add(d, "ipoib", DOCTOR_BAD, "ib_ipoib",
			   "modprobe ib_ipoib, and echo ib_ipoib >/etc/modules-load.d/ibvmig.conf",
			   "not loaded: the GUIDs of VFs are set over the PF's IPoIB interface");
}

void doctor_drained(struct doctor *d, const char *host, bool drained)
{
	char *fix AUTO_FREE = strf("ibvmig undrain %s, when VMs may come again", host);

	if (drained)
		doctor_add(d, "drained", DOCTOR_WARNING, host, fix,
			   "it is drained: no VM with a VF can migrate to it, or start there");
	else
		doctor_add(d, "drained", DOCTOR_OK, host, NULL, "it takes VMs");
}

#define DAY_S        86400
#define EXPIRY_DAYS  30
#define CERT_SUBJECT "tls-cert"
#define CERT_FIX     "ibvmig-certs cert NAME on the machine that holds the CA, and copy the files here"

static void expiry(struct doctor *d, const char *subject, int64_t ends_s, int64_t now_s)
{
	int64_t days = (ends_s - now_s) / DAY_S;

	if (ends_s <= now_s)
		doctor_add(d, "certificate", DOCTOR_BAD, subject, CERT_FIX,
			   "it, or its CA, has expired: hosts refuse who shows it");
	else if (days < EXPIRY_DAYS)
		doctor_add(d, "certificate", DOCTOR_WARNING, subject, CERT_FIX,
			   "it, or its CA, expires in %lld days", (long long)days);
	else
		doctor_add(d, "certificate", DOCTOR_OK, subject, NULL, "good for %lld days",
			   (long long)days);
}

void doctor_sm_certificate(struct doctor *d, struct json_object *status, int64_t now_s)
{
	uint64_t ends_ms = json_opt_u64(status, "certificate_ends_ms", 0);

	if (ends_ms)
		expiry(d, "ibvmig-sm", (int64_t)(ends_ms / 1000), now_s);
}

void doctor_certificate(struct doctor *d, bool listens, bool tls, int64_t ends_s, int64_t now_s)
{
	if (!tls && listens)
		doctor_add(d, "certificate", DOCTOR_WARNING, CERT_SUBJECT,
			   "tls-cert, tls-key and tls-ca in ibvmigd.conf (ibvmig-certs makes them)",
			   "none is configured: whoever reaches the daemon's port is believed");
	else if (!tls)
		doctor_add(d, "certificate", DOCTOR_SKIPPED, CERT_SUBJECT, NULL,
			   "other hosts do not reach this daemon: listen is not configured");
	else
		expiry(d, CERT_SUBJECT, ends_s, now_s);
}

/* ---- ports ---- */

static void port_state(const struct doctor *d, const char *device, char text[static TEXT_MAX])
{
	char *path AUTO_FREE = strf(CLASS "/%s/ports/1/state", device);

	read_text(d, path, text);
}

/* True if the port of the PF that a VF belongs to is up, also where sysfs does not tell. */
static bool pf_is_up(const struct doctor *d, const char *vf)
{
	char *path AUTO_FREE = strf("%s" CLASS "/%s/device/physfn/infiniband", d->root, vf);
	DIR *dir = path ? opendir(path) : NULL;
	char state[TEXT_MAX] = "ACTIVE";
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			port_state(d, e->d_name, state);
	if (dir)
		closedir(dir);
	return strstr(state, "ACTIVE");
}

/* Checks one device's port; a VF's port that is down beside a PF's that is up is the SM's doing. */
static void check_port(const struct device *dev, void *arg)
{
	struct doctor *d = arg;
	char state[TEXT_MAX];

	if (!dev->ib || (!dev->pf && !dev->vf))
		return;
	port_state(d, dev->name, state);
	if (strstr(state, "ACTIVE"))
		doctor_add(d, "port", DOCTOR_OK, dev->name, NULL, "%s", state);
	else if (dev->pf)
		doctor_add(d, "port", DOCTOR_BAD, dev->name,
			   "check the cable (ibstat), and that a subnet manager runs (sminfo)",
			   "the PF's port is \"%s\"", state);
	else if (pf_is_up(d, dev->name))
		doctor_add(d, "port", DOCTOR_BAD, dev->name,
			   "let the SM serve virtual ports (virt_enabled 2 in the configuration of "
			   "NVIDIA's OpenSM or UFM), and set the VF's policy to Follow",
			   "the VF's port is \"%s\": the subnet manager has no virtualization, or "
			   "the VF's policy is Down",
			   state);
}

void doctor_ports(struct doctor *d)
{
	size_t before = json_object_array_length(d->found);

	each_device(d, check_port, d);
	if (json_object_array_length(d->found) == before)
		doctor_add(d, "port", DOCTOR_SKIPPED, "ports", NULL,
			   "no InfiniBand PF with VFs on this host");
}

/* ---- VFs ---- */

/* "0000:0000:0000:0000" as the kernel, "00:00:..." as OFED, "0x0..." as the daemon writes it. */
static bool is_zero_guid(const char *text)
{
	return *text && strspn(text, "0:x") == strlen(text);
}

static void zero_guid(struct doctor *d, const char *vf)
{
	doctor_add(
		d, "zero-guid", DOCTOR_BAD, vf,
		"ip link set dev IPOIB-OF-THE-PF vf N node_guid GUID, and port_guid; then unbind "
		"and bind the VF's driver",
		"all zero: the subnet manager gives it no address");
}

/* Sums up for the VFs of one PF, or for all. */
static void guids_known(struct doctor *d, const char *subject, unsigned known, unsigned unknown)
{
	if (unknown)
		doctor_add(d, "zero-guid", DOCTOR_SKIPPED, subject, NULL,
			   "GUIDs of %u VFs are not known: this kernel does not tell them (Linux "
			   "5.5 does, over the PF's IPoIB interface), or only the provider's "
			   "program can ask it",
			   unknown);
	if (known)
		doctor_add(d, "zero-guid", DOCTOR_OK, subject, NULL, "%u VFs have GUIDs", known);
}

/* guids: as the provider tells them. */
static void check_told(struct doctor *d, struct json_object *vfs, struct json_object *guids)
{
	unsigned known = 0, unknown = 0;

	for (size_t i = 0; i < json_count(vfs); i++) {
		const char *name = json_opt_str(json_object_array_get_idx(vfs, i), "name", "?");
		const char *guid = json_opt_str(guids, name, "");

		if (is_zero_guid(guid))
			zero_guid(d, name);
		else
			++*(*guid ? &known : &unknown);
	}
	guids_known(d, "VFs", known, unknown);
}

/* OFED's folder sriov/N of a PF. */
static void check_sriov(const struct device *dev, void *arg)
{
	static const char *const files[] = {"node", "port"};
	unsigned known = 0, unknown = 0;
	struct doctor *d = arg;

	for (unsigned n = 0; dev->pf && dev->ib; n++) {
		char *slot AUTO_FREE = strf(CLASS "/%s/device/virtfn%u", dev->name, n);
		bool told = true, zero = false;

		if (!exists(d, slot))
			break;
		for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
			char *path AUTO_FREE = strf(CLASS "/%s/device/sriov/%u/%s", dev->name, n,
						    files[i]);
			char *vf AUTO_FREE = strf("%s, VF %u, %s GUID", dev->name, n, files[i]);
			char text[TEXT_MAX];

			read_text(d, path, text);
			told = told && *text;
			if (is_zero_guid(text)) {
				zero_guid(d, vf);
				zero = true;
			}
		}
		known += told && !zero;
		unknown += !told && !zero;
	}
	guids_known(d, dev->name, known, unknown);
}

/* A VF that the host drives itself shows the GUID that its driver found when it was bound. */
static void check_driven(const struct device *dev, void *arg)
{
	char *path AUTO_FREE = strf(CLASS "/%s/node_guid", dev->name), text[TEXT_MAX];
	struct doctor *d = arg;

	if (!dev->vf || !dev->ib)
		return;
	read_text(d, path, text);
	if (is_zero_guid(text))
		doctor_add(d, "zero-guid", DOCTOR_BAD, dev->name,
			   "set the VF's GUIDs before its driver is bound, then bind it anew",
			   "its node GUID is all zero");
}

void doctor_zero_guid(struct doctor *d, struct provider *p, struct json_object *vfs)
{
	size_t before = json_object_array_length(d->found);
	struct json_object *guids AUTO_JSON = NULL;

	if (!provider_guids(p, &guids))
		check_told(d, vfs, guids);
	else
		each_device(d, check_sriov, d);
	each_device(d, check_driven, d);
	if (json_object_array_length(d->found) == before)
		doctor_add(d, "zero-guid", DOCTOR_SKIPPED, "GUIDs", NULL,
			   "no VF's GUID can be read on this host");
}

static void check_used(struct doctor *d, struct json_object *vf, const char *vm)
{
	const char *name = json_opt_str(vf, "name", "?"), *pci = json_opt_str(vf, "pci", NULL);
	char *link AUTO_FREE = strf("/sys/bus/pci/devices/%s/driver", pci ? pci : "");
	char driver[TEXT_MAX];

	link_name(d, link, driver);
	if (!pci)
		doctor_add(d, "vfio", DOCTOR_SKIPPED, name, NULL,
			   "VM %s has it; the provider's inventory does not tell its PCI address",
			   vm);
	else if (!strcmp(driver, "vfio-pci") || !strcmp(driver, "mlx5_vfio_pci"))
		doctor_add(d, "vfio", DOCTOR_OK, name, NULL, "%s at %s, VM %s has it", driver, pci,
			   vm);
	else
		doctor_add(d, "vfio", DOCTOR_BAD, name,
			   "find out what has bound it anew (driverctl, udev rules), and start the "
			   "VM anew",
			   "VM %s has it, but %s is bound to %s", vm, pci,
			   *driver ? driver : "no driver");
}

/* True if the VF's provider could tell. */
static bool check_free(struct doctor *d, struct provider *p, const char *name)
{
	char error[HTTP_ERROR_MAX];
	int rc = provider_check(p, name, error);

	if (rc == -ENOSYS)
		return false;
	if (rc)
		doctor_add(d, "vfio", DOCTOR_BAD, name, "mend what it says", "%s", error);
	else
		doctor_add(d, "vfio", DOCTOR_OK, name, NULL, "free; a VM can have it");
	return true;
}

void doctor_vfio(struct doctor *d, struct provider *p, struct json_object *vfs)
{
	size_t before = json_object_array_length(d->found);
	unsigned unknown = 0;

	for (size_t i = 0; i < json_count(vfs); i++) {
		struct json_object *vf = json_object_array_get_idx(vfs, i);
		const char *vm = json_opt_str(vf, "vm", NULL);

		if (json_opt_bool(vf, "vfio", false))
			check_used(d, vf, vm);
		else if (!vm && !check_free(d, p, json_opt_str(vf, "name", "?")))
			unknown++;
	}
	if (unknown)
		doctor_add(d, "vfio", DOCTOR_SKIPPED, "VFs", NULL,
			   "%u are free; only the provider's program knows what they need",
			   unknown);
	if (json_object_array_length(d->found) == before)
		doctor_add(d, "vfio", DOCTOR_SKIPPED, "VFs", NULL,
			   "none is free, and no VM has one by VFIO");
}

/* ---- libvirt ---- */

void doctor_hook(struct doctor *d)
{
	static const char *const places[] = {"/etc/libvirt/hooks/qemu.d/ibvmig",
					     "/etc/libvirt/hooks/qemu"};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char *full AUTO_FREE = strf("%s%s", d->root, places[i]);

		if (full && !access(full, X_OK)) {
			doctor_add(d, "hook", DOCTOR_OK, places[i], NULL, "installed");
			return;
		}
	}
	doctor_add(d, "hook", DOCTOR_BAD, places[0], "make install, then restart libvirtd",
		   "libvirt's hook is not installed, or not executable: no VM with a VF can come "
		   "here");
}

void doctor_lease(struct doctor *d, const char *dir)
{
	char *full AUTO_FREE = strf("%s%s", d->root, dir);

	if (full && lease_is_claimed(full))
		doctor_add(d, "lease", DOCTOR_OK, dir, NULL, "ibvmig-lease watches it");
	else
		doctor_add(d, "lease", DOCTOR_WARNING, dir, "systemctl enable --now ibvmig-lease",
			   "ibvmig-lease does not run: if ibvmigd dies while a VM with a VF "
			   "migrates, nobody cancels the migration");
}

void doctor_memlock(struct doctor *d, const char *vm, uint64_t pid, uint64_t needed_bytes)
{
	char *path AUTO_FREE = strf("%s/proc/%llu/limits", d->root, (unsigned long long)pid);
	char *text AUTO_FREE = NULL, word[32] = "";
	const char *line;
	uint64_t limit = 0;

	if (path && !read_file(path, 65536, &text, NULL) &&
	    (line = strstr(text, "Max locked memory")))
		sscanf(line, "Max locked memory %31s", word);
	if (!*word) {
		doctor_add(d, "memlock", DOCTOR_SKIPPED, vm, NULL,
			   "the limits of its QEMU cannot be read");
		return;
	}
	if (!strcmp(word, "unlimited") ||
	    (!parse_u64(word, 0, UINT64_MAX, &limit) && limit >= needed_bytes))
		doctor_add(d, "memlock", DOCTOR_OK, vm, NULL, "%s bytes for %llu of memory", word,
			   (unsigned long long)needed_bytes);
	else
		doctor_add(d, "memlock", DOCTOR_BAD, vm,
			   "give the domain <memtune><hard_limit unit='M'>ITS MEMORY + 1024"
			   "</hard_limit></memtune>, or <memoryBacking><locked/>",
			   "its QEMU may lock %s bytes, a VF pins all of its %llu", word,
			   (unsigned long long)needed_bytes);
}
