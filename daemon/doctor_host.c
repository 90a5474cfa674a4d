/* SPDX-License-Identifier: GPL-2.0-or-later */
/* doctor: what the host's own files say. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/doctor.h"
#include "daemon/lease.h"

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

/* Whether the port of the PF that a VF belongs to is up; true where sysfs does not tell. */
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

/* One device's port; a VF's port that is down beside a PF's that is up is the SM's doing. */
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

/* "0000:0000:0000:0000" as the kernel, "00:00:..." as OFED writes it. */
static bool is_zero_guid(const char *text)
{
	return *text && strspn(text, "0:") == strlen(text);
}

/* OFED's folder sriov/N of a PF, and the VF's own device where the host drives it. */
static void check_guids(const struct device *dev, void *arg)
{
	static const char *const files[] = {"node", "port"};
	struct doctor *d = arg;
	char text[TEXT_MAX], *path;
	unsigned seen = 0;

	for (unsigned n = 0; dev->pf && n < 256; n++) {
		for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
			path = strf(CLASS "/%s/device/sriov/%u/%s", dev->name, n, files[i]);
			read_text(d, path, text);
			free(path);
			seen += *text != '\0';
			path = strf("%s, VF %u, %s GUID", dev->name, n, files[i]);
			if (is_zero_guid(text))
				doctor_add(
					d, "zero-guid", DOCTOR_BAD, path,
					"ip link set dev IPOIB-OF-THE-PF vf N node_guid GUID, and "
					"port_guid; then unbind and bind the VF's driver",
					"all zero: the subnet manager gives it no address");
			free(path);
		}
	}
	path = strf(CLASS "/%s/node_guid", dev->name);
	read_text(d, path, text);
	free(path);
	seen += *text != '\0';
	if (dev->vf && is_zero_guid(text))
		doctor_add(d, "zero-guid", DOCTOR_BAD, dev->name,
			   "set the VF's GUIDs before its driver is bound, then bind it anew",
			   "its node GUID is all zero");
	else if (seen)
		doctor_add(d, "zero-guid", DOCTOR_OK, dev->name, NULL, "%u GUIDs looked at", seen);
}

void doctor_zero_guid(struct doctor *d)
{
	size_t before = json_object_array_length(d->found);

	each_device(d, check_guids, d);
	if (json_object_array_length(d->found) == before)
		doctor_add(d, "zero-guid", DOCTOR_SKIPPED, "GUIDs", NULL,
			   "no RDMA device on this host");
}

static void check_vfio(const struct device *dev, void *arg)
{
	struct doctor *d = arg;

	for (unsigned n = 0; dev->pf && n < 256; n++) {
		char *slot = strf(CLASS "/%s/device/virtfn%u", dev->name, n);
		char *link = strf("%s/driver", slot), *subject = strf("%s, VF %u", dev->name, n);
		char driver[TEXT_MAX], address[TEXT_MAX];

		link_name(d, link, driver);
		link_name(d, slot, address);
		if (*address && (!strcmp(driver, "vfio-pci") || !strcmp(driver, "mlx5_vfio_pci")))
			doctor_add(d, "vfio", DOCTOR_OK, subject, NULL, "%s at %s", driver,
				   address);
		else if (*address)
			doctor_add(d, "vfio", DOCTOR_BAD, subject,
				   "modprobe vfio-pci; driverctl set-override ADDRESS vfio-pci",
				   "%s is bound to %s: QEMU cannot take it", address,
				   *driver ? driver : "no driver");
		free(slot);
		free(link);
		free(subject);
	}
}

void doctor_vfio(struct doctor *d)
{
	size_t before = json_object_array_length(d->found);

	each_device(d, check_vfio, d);
	if (json_object_array_length(d->found) == before)
		doctor_add(d, "vfio", DOCTOR_SKIPPED, "VFs", NULL, "no PF with VFs on this host");
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
