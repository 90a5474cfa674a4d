/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/fake/host/hca.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <linux/if_link.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#define PCI       "bus/pci/devices"
#define GUID_TEXT 20

static void must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "the played host: %s: %s\n", what, strerror(errno));
		abort();
	}
}

/* ---- the tree ---- */

static void make_dirs(const char *path)
{
	char dir[PATH_MAX];

	for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		snprintf(dir, sizeof dir, "%.*s", (int)(p - path), path);
		must(!mkdir(dir, 0755) || errno == EEXIST, dir);
	}
}

static void write_text(const char *path, const char *text)
{
	FILE *f;

	make_dirs(path);
	f = fopen(path, "w");
	must(f, path);
	fprintf(f, "%s\n", text);
	fclose(f);
}

#define PATH(h, path, fmt)                                                                         \
	do {                                                                                       \
		va_list ap_;                                                                       \
		int n_ = snprintf(path, sizeof path, "%s/", (h)->sys);                             \
                                                                                                   \
		va_start(ap_, fmt);                                                                \
		vsnprintf(path + n_, sizeof path - (size_t)n_, fmt, ap_);                          \
		va_end(ap_);                                                                       \
	} while (0)

void fake_put(struct fake_host *h, const char *text, const char *fmt, ...)
{
	char path[PATH_MAX];

	PATH(h, path, fmt);
	write_text(path, text);
}

const char *fake_get(struct fake_host *h, const char *fmt, ...)
{
	static char text[SYSFS_VALUE_MAX];
	const struct sysfs s = {.root = ""};
	char path[PATH_MAX];

	PATH(h, path, fmt);
	if (sysfs_read(&s, text, "%s", path))
		text[0] = '\0';
	return text;
}

/* The link is as relative as those of sysfs. */
void fake_put_link(struct fake_host *h, const char *to, const char *fmt, ...)
{
	char path[PATH_MAX], target[PATH_MAX] = "";

	PATH(h, path, fmt);
	make_dirs(path);
	for (const char *p = strchr(path + strlen(h->sys) + 1, '/'); p; p = strchr(p + 1, '/'))
		strcat(target, "../");
	strcat(target, to);
	unlink(path);
	must(!symlink(target, path), path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_tree(struct fake_host *h, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void remove_tree(struct fake_host *h, const char *fmt, ...)
{
	char path[PATH_MAX];

	PATH(h, path, fmt);
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- devices ---- */

/* devices/pci0000:3a/BDF, without a link between, as on real hosts */
static void device_path(const char *bdf, char path[static 64])
{
	snprintf(path, 64, "devices/pci%.5s%.2s/%s", bdf, bdf + 5, bdf);
}

static void put_driver(struct fake_host *h, const char *bdf, const char *driver)
{
	char dir[64], to[64];

	device_path(bdf, dir);
	snprintf(to, sizeof to, "bus/pci/drivers/%s", driver);
	fake_put_link(h, to, "%s/driver", dir);
}

static void put_device(struct fake_host *h, const char *bdf, const char *device, unsigned group)
{
	char dir[64], to[64];

	device_path(bdf, dir);
	fake_put(h, "0x15b3", "%s/vendor", dir);
	fake_put(h, device, "%s/device", dir);
	fake_put(h, "0x020700", "%s/class", dir);
	fake_put(h, "(null)", "%s/driver_override", dir);
	fake_put_link(h, dir, PCI "/%s", bdf);
	snprintf(to, sizeof to, "kernel/iommu_groups/%u", group);
	fake_put_link(h, to, "%s/iommu_group", dir);
	fake_put_link(h, dir, "kernel/iommu_groups/%u/devices/%s", group, bdf);
}

static void guid_text(uint64_t guid, char text[static GUID_TEXT])
{
	snprintf(text, GUID_TEXT, "%04x:%04x:%04x:%04x", (unsigned)(guid >> 48) & 0xffff,
		 (unsigned)(guid >> 32) & 0xffff, (unsigned)(guid >> 16) & 0xffff,
		 (unsigned)guid & 0xffff);
}

static void put_gid(struct fake_host *h, const char *dir, const char *ibdev, unsigned port,
		    uint64_t guid)
{
	char text[64] = "fe80:0000:0000:0000:";

	guid_text(guid, text + strlen(text));
	fake_put(h, text, "%s/infiniband/%s/ports/%u/gids/0", dir, ibdev, port);
}

static void put_ibdev(struct fake_host *h, const struct fake_card *c, const char *dir)
{
	char to[128];

	for (unsigned port = 1; port <= c->ports; port++) {
		put_gid(h, dir, c->ibdev, port, c->guid + port - 1);
		fake_put(h, c->link_layer ? c->link_layer : "InfiniBand",
			 "%s/infiniband/%s/ports/%u/link_layer", dir, c->ibdev, port);
		fake_put(h, "4: ACTIVE", "%s/infiniband/%s/ports/%u/state", dir, c->ibdev, port);
		fake_put(h, "0xffff", "%s/infiniband/%s/ports/%u/pkeys/0", dir, c->ibdev, port);
		fake_put(h, "0x8001", "%s/infiniband/%s/ports/%u/pkeys/1", dir, c->ibdev, port);
		fake_put(h, "0x0000", "%s/infiniband/%s/ports/%u/pkeys/2", dir, c->ibdev, port);
	}
	snprintf(to, sizeof to, "%s/infiniband/%s", dir, c->ibdev);
	fake_put_link(h, to, "class/infiniband/%s", c->ibdev);
	fake_put_link(h, dir, "%s/infiniband/%s/device", dir, c->ibdev);
}

/* ib0 for port 1, ib0.8001 its child; ConnectX-3 has ib1 for port 2 in the same folder. */
static void put_netdevs(struct fake_host *h, const struct fake_card *c, const char *dir)
{
	char number[16], name[32];

	for (unsigned i = 0; c->netdev && i <= c->ports; i++) {
		bool child = i == c->ports;

		snprintf(name, sizeof name, "%s%s", c->netdev, child ? ".8001" : i ? "p2" : "");
		fake_put(h, "32", "%s/net/%s/type", dir, name);
		snprintf(number, sizeof number, "%u", c->ifindex + i);
		fake_put(h, number, "%s/net/%s/ifindex", dir, name);
		snprintf(number, sizeof number, "%u", child ? 0 : i);
		if (!c->old_kernel)
			fake_put(h, number, "%s/net/%s/dev_port", dir, name);
		snprintf(number, sizeof number, "0x%x", child ? 0 : i);
		fake_put(h, number, "%s/net/%s/dev_id", dir, name);
		if (child)
			fake_put(h, c->netdev, "%s/net/%s/parent", dir, name);
	}
	if (c->switchdev)
		fake_put(h, "a088c2fffe9d1c2e", "%s/net/%s/phys_switch_id", dir, c->netdev);
}

/* ConnectX-3: aliases GUIDs by GID index, which is the function's number. */
static void put_iov(struct fake_host *h, const struct fake_card *c, const char *dir,
		    const char *vf_bdf, unsigned vf)
{
	char number[16];
	const char *base = c->ibdev;

	snprintf(number, sizeof number, "%u", vf + 1);
	fake_put(h, number, "%s/infiniband/%s/iov/%s/ports/1/gid_idx/0", dir, base, vf_bdf);
	fake_put(h, "0", "%s/infiniband/%s/iov/%s/ports/1/pkey_idx/0", dir, base, vf_bdf);
	fake_put(h, "none", "%s/infiniband/%s/iov/%s/ports/1/pkey_idx/1", dir, base, vf_bdf);
	fake_put(h, "0", "%s/infiniband/%s/iov/ports/1/admin_guids/%u", dir, base, vf + 1);
	fake_put(h, "0xffff", "%s/infiniband/%s/iov/ports/1/pkeys/0", dir, base);
	fake_put(h, "0x8001", "%s/infiniband/%s/iov/ports/1/pkeys/1", dir, base);
}

static void vf_address(const char *bdf, unsigned vf, char text[static 16])
{
	unsigned function = (unsigned)(bdf[11] - '0') + 1 + vf;

	snprintf(text, 16, "%.8s%02x.%u", bdf, function / 8 & 0x1f, function % 8);
}

static unsigned vf_index(struct fake_host *h, const char *bdf)
{
	char vf[SYSFS_NAME_MAX];

	for (unsigned i = 0; i < FAKE_VFS_MAX; i++)
		if (!sysfs_link(&h->host.sysfs, vf, PCI "/%s/physfn/virtfn%u", bdf, i) &&
		    !strcmp(vf, bdf))
			return i;
	must(false, bdf);
	return 0;
}

/* mlx5_ib asks for the GUIDs of its function once, when it is bound. */
static void put_own_ibdev(struct fake_host *h, const char *bdf, const char *dir)
{
	unsigned vf = vf_index(h, bdf);
	char name[16], text[GUID_TEXT];

	snprintf(name, sizeof name, "mlx5_%u", 100 + vf);
	if (!h->no_reread || !h->shown[vf])
		h->shown[vf] = h->netlink.node_guid[vf];
	guid_text(h->shown[vf], text);
	fake_put(h, text, "%s/infiniband/%s/node_guid", dir, name);
	put_gid(h, dir, name, 1, h->shown[vf]);
}

static const char *const ofed_policies[] = {
	[IFLA_VF_LINK_STATE_AUTO] = "Follow",
	[IFLA_VF_LINK_STATE_ENABLE] = "Up",
	[IFLA_VF_LINK_STATE_DISABLE] = "Down",
};

static void show_ofed_guid(struct fake_host *h, unsigned vf, const char *name, uint64_t guid)
{
	char text[3 * 8 + 1] = "";

	for (int i = 0; i < 8; i++)
		snprintf(text + 3 * i, 4, "%02x:", (unsigned)(guid >> (56 - 8 * i)) & 0xff);
	text[3 * 8 - 1] = '\0';
	fake_put(h, text, "%s/sriov/%u/%s", h->ofed, vf, name);
}

void fake_show_ofed(struct fake_host *h, unsigned vf)
{
	if (!*h->ofed)
		return;
	show_ofed_guid(h, vf, "node", h->netlink.node_guid[vf]);
	show_ofed_guid(h, vf, "port", h->netlink.port_guid[vf]);
	fake_put(h, ofed_policies[h->netlink.policy[vf]], "%s/sriov/%u/policy", h->ofed, vf);
}

/* A write to one of these files. */
static int set_ofed(struct fake_host *h, const char *path, const char *text)
{
	struct fake_netlink *n = &h->netlink;
	const char *at = strstr(path, "/sriov/") + strlen("/sriov/");
	unsigned vf = (unsigned)atoi(at);
	uint64_t guid = 0;

	must(vf < n->vfs, path);
	at = strchr(at, '/') + 1;
	if (!strcmp(at, "policy")) {
		for (uint32_t p = 0; p < ARRAY_SIZE(ofed_policies); p++)
			if (!strcmp(text, ofed_policies[p]))
				n->policy[vf] = p;
	} else if (ib_guid_parse(text, &guid)) {
		return -EINVAL;
	} else {
		(strcmp(at, "node") ? n->port_guid : n->node_guid)[vf] = guid;
	}
	fake_show_ofed(h, vf);
	return 0;
}

static void put_vf(struct fake_host *h, const struct fake_card *c, const char *dir, unsigned vf)
{
	char bdf[16], vf_dir[64];

	vf_address(c->bdf, vf, bdf);
	device_path(bdf, vf_dir);
	put_device(h, bdf, c->vf_device, c->ifindex * 100 + vf + 1);
	fake_put_link(h, dir, "%s/physfn", vf_dir);
	fake_put_link(h, vf_dir, "%s/virtfn%u", dir, vf);
	if (c->ofed) {
		strcpy(h->ofed, dir);
		fake_show_ofed(h, vf);
	}
	if (c->mlx4)
		put_iov(h, c, dir, bdf, vf);
	if (!c->autoprobe)
		return;
	put_driver(h, bdf, c->mlx4 ? "mlx4_core" : "mlx5_core");
	if (!c->mlx4)
		put_own_ibdev(h, bdf, vf_dir);
}

void fake_host_add(struct fake_host *h, const struct fake_card *card)
{
	struct fake_card c = *card;
	char dir[64], number[16];

	if (!c.ports)
		c.ports = 1;
	device_path(c.bdf, dir);
	put_device(h, c.bdf, c.device, c.ifindex * 100);
	put_driver(h, c.bdf, c.mlx4 ? "mlx4_core" : "mlx5_core");
	put_ibdev(h, &c, dir);
	put_netdevs(h, &c, dir);
	if (c.total_vfs) {
		snprintf(number, sizeof number, "%u", c.total_vfs);
		fake_put(h, number, "%s/sriov_totalvfs", dir);
		snprintf(number, sizeof number, "%u", c.vfs);
		fake_put(h, number, "%s/sriov_numvfs", dir);
		fake_put(h, c.vf_device + 2, "%s/sriov_vf_device", dir);
		if (!c.old_kernel)
			fake_put(h, c.autoprobe ? "1" : "0", "%s/sriov_drivers_autoprobe", dir);
	}
	h->netlink.ifindex = c.ifindex;
	h->netlink.vfs = c.vfs;
	for (unsigned i = 0; i < c.vfs; i++)
		put_vf(h, &c, dir, i);
	fake_put(h, c.old_kernel ? "old" : "new", "kernel/played");
}

/* ---- the kernel ---- */

const char *fake_driver(struct fake_host *h, const char *bdf)
{
	static char name[SYSFS_NAME_MAX];

	hca_driver(&h->host, bdf, name);
	return name;
}

static bool vf_autoprobes(struct fake_host *h, const char *bdf)
{
	/* pci_device_can_probe(): without the attribute always */
	const char *text = fake_get(h, PCI "/%s/physfn/sriov_drivers_autoprobe", bdf);

	return !*text || !strcmp(text, "1");
}

static void bind_to(struct fake_host *h, const char *bdf, const char *driver)
{
	bool old = !strcmp(fake_get(h, "kernel/played"), "old");
	char dir[64];

	if (h->no_driver)
		return;
	put_driver(h, bdf, driver);
	device_path(bdf, dir);
	if (!strcmp(driver, "mlx5_core"))
		put_own_ibdev(h, bdf, dir);
	if (strstr(driver, "vfio") && !old)
		fake_put(h, "511:0", "%s/vfio-dev/vfio%s/dev", dir, bdf + 11);
}

static int probe(struct fake_host *h, const char *bdf)
{
	char override[SYSFS_VALUE_MAX];
	bool wanted;

	strcpy(override, fake_get(h, PCI "/%s/driver_override", bdf));
	wanted = *override && strcmp(override, "(null)");

	if (*fake_driver(h, bdf))
		return 0;
	if (wanted && sysfs_exists(&h->host.sysfs, "bus/pci/drivers/%s", override))
		bind_to(h, bdf, override);
	else if (!wanted && vf_autoprobes(h, bdf))
		bind_to(h, bdf, "mlx5_core");
	return 0;
}

static int unbind(struct fake_host *h, const char *bdf)
{
	char dir[64];

	if (!*fake_driver(h, bdf))
		return -ENODEV;
	device_path(bdf, dir);
	remove_tree(h, "%s/driver", dir);
	remove_tree(h, "%s/vfio-dev", dir);
	remove_tree(h, "%s/infiniband", dir);
	return 0;
}

static int set_numvfs(struct fake_host *h, const char *path, const char *text)
{
	struct fake_card c = {.vf_device = "0x101e", .ifindex = h->netlink.ifindex};
	char bdf[16], dir[64];

	must(sscanf(path, PCI "/%15[^/]", bdf) == 1, path);
	device_path(bdf, dir);
	c.bdf = bdf;
	if (strcmp(fake_get(h, "%s/sriov_numvfs", dir), "0"))
		return -EBUSY;
	h->netlink.vfs = (unsigned)atoi(text);
	for (unsigned i = 0; i < h->netlink.vfs; i++)
		put_vf(h, &c, dir, i);
	fake_put(h, text, "%s/sriov_numvfs", dir);
	return 0;
}

static int plain_write(struct fake_host *h, const char *path, const char *text)
{
	char full[PATH_MAX], value[SYSFS_VALUE_MAX];

	snprintf(full, sizeof full, "%s/%s", h->sys, path);
	if (access(full, F_OK))
		return -errno;
	snprintf(value, sizeof value, "%s", text);
	value[strcspn(value, "\n")] = '\0';
	if (strstr(path, "driver_override") && !*value) {
		if (h->keeps_override)
			return 0;
		strcpy(value, "(null)");
	}
	if (strstr(path, "admin_guids"))
		snprintf(value, sizeof value, "%llx", strtoull(text, NULL, 16));
	write_text(full, value);
	return 0;
}

/* There is one at a time; the code under test has a copy of its host. */
static struct fake_host *played;

static int played_write(const struct sysfs *s, const char *path, const char *text)
{
	struct fake_host *h = played;
	const char *last = strrchr(path, '/') + 1;

	(void)s;
	if (h->logged < FAKE_LOG_MAX)
		snprintf(h->log[h->logged++], sizeof h->log[0], "%s=%.*s", path,
			 (int)strcspn(text, "\n"), text);
	if (h->fail_path && strstr(path, h->fail_path))
		return h->fail_rc;
	if (!strcmp(last, "drivers_probe"))
		return probe(h, text);
	if (!strcmp(last, "unbind"))
		return unbind(h, text);
	if (!strcmp(last, "bind")) {
		bind_to(h, text, "mlx5_core");
		return 0;
	}
	if (!strcmp(last, "sriov_numvfs"))
		return set_numvfs(h, path, text);
	if (strstr(path, "/sriov/"))
		return set_ofed(h, path, text);
	return plain_write(h, path, text);
}

bool fake_wrote(const struct fake_host *h, const char *line)
{
	for (unsigned i = 0; i < h->logged; i++)
		if (strstr(h->log[i], line))
			return true;
	return false;
}

void fake_host_init(struct fake_host *h)
{
	played = h;
	*h = (struct fake_host){.root = "/tmp/ibvmig-hca-XXXXXX"};
	must(mkdtemp(h->root), h->root);
	snprintf(h->sys, sizeof h->sys, "%s/sys", h->root);
	snprintf(h->dev, sizeof h->dev, "%s/dev", h->root);
	h->host = (struct hca_host){
		.sysfs = {.root = h->sys, .write = played_write},
		.dev = h->dev,
		.proc = "/proc",
	};
	for (unsigned i = 0; i < FAKE_VFS_MAX; i++)
		h->netlink.policy[i] = IFLA_VF_LINK_STATE_DISABLE;
	fake_put(h, "", "bus/pci/drivers/mlx5_core/unbind");
	fake_put(h, "", "bus/pci/drivers/mlx4_core/unbind");
	fake_put(h, "", "bus/pci/drivers/vfio-pci/unbind");
	fake_put(h, "", "../dev/vfio/vfio");
	fake_netlink_start(h);
}

void fake_host_end(struct fake_host *h)
{
	fake_netlink_end(h);
	nftw(h->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
