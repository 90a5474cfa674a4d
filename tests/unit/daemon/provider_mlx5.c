/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A VF's life with the provider mlx5, on played hosts (tests/fake/host/hca.h). */
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/vfio.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/conf.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/settings.h"
#include "daemon/libvirt/memlock.h"
#include "daemon/vf/mlx5.h"
#include "daemon/vf/vfio_migration.h"
#include "daemon/vf/guid.h"
#include "tests/fake/host/hca.h"

#define VGUID   0x00a1b2fffe000101ull
#define PARKED0 0x268a0700014bf0a8ull

static const struct fake_card cx4 = {
	.bdf = "0000:3b:00.0",
	.ibdev = "mlx5_0",
	.netdev = "ib0",
	.device = "0x1013",
	.vf_device = "0x1014",
	.guid = 0x248a0703004bf0a8,
	.ifindex = 4,
	.total_vfs = 16,
	.vfs = 4,
};
static const char vf0[] = "0000:3b:00.1";

static struct fake_host h;
static struct mlx5_config config;
static struct provider *provider;
static struct json_object *out;
static char error[HTTP_ERROR_MAX];

/* The daemon as it is after its start: the inventory must succeed. */
static void start_with(const struct fake_card *card)
{
	fake_host_add(&h, card);
	config.host = h.host;
	assert_int_equal(provider_mlx5_new(&config, &provider), 0);
	assert_int_equal(provider_inventory(provider, &out, error), 0);
}

static int prepare(const char *vf)
{
	struct json_object *in AUTO_JSON = json_object_new_object();

	json_set_str(in, "vf", vf);
	json_set_str(in, "vguid", "0x00a1b2fffe000101");
	json_set_str(in, "pkey", "0x8001");
	json_object_put(TAKE(out));
	return provider_prepare(provider, in, &out, error);
}

static void assert_says(int rc, int expected, const char *reason, const char *way_out)
{
	if (rc != expected || !strstr(error, reason) || !strstr(error, way_out))
		fail_msg("%d, \"%s\"; expected %d, \"%s\", \"%s\"", rc, error, expected, reason,
			 way_out);
}

static const char *command(size_t i, const char *key)
{
	return json_opt_str(json_object_array_get_idx(json_opt(out, "attach"), i), key, "");
}

static const char *argument(size_t i, const char *key)
{
	struct json_object *c = json_object_array_get_idx(json_opt(out, "attach"), i);

	return json_opt_str(json_opt(c, "arguments"), key, "");
}

/* ---- what goes well ---- */

static void test_inventory(void **state)
{
	struct json_object *pf, *vf;

	(void)state;
	start_with(&cx4);
	pf = json_object_array_get_idx(json_opt(out, "pfs"), 0);
	assert_string_equal(json_opt_str(pf, "name", ""), "mlx5_0");
	assert_string_equal(json_opt_str(pf, "guid", ""), "0x248a0703004bf0a8");
	/* the table's empty places are none */
	assert_string_equal(json_text(json_opt(pf, "pkeys")), "[\"0xffff\",\"0x8001\"]");
	assert_int_equal(json_object_array_length(json_opt(out, "vfs")), 4);
	vf = json_object_array_get_idx(json_opt(out, "vfs"), 0);
	assert_string_equal(json_opt_str(vf, "name", ""), "mlx5_0vf0");
	assert_string_equal(json_opt_str(vf, "parked_guid", ""), "0x268a0700014bf0a8");
	assert_string_equal(json_opt_str(vf, "guid", ""), "0x268a0700014bf0a8");
	for (unsigned i = 0; i < 4; i++) {
		assert_true(h.netlink.node_guid[i] == hca_parked_guid(cx4.guid, i));
		assert_true(h.netlink.port_guid[i] == hca_parked_guid(cx4.guid, i));
		assert_int_equal(h.netlink.policy[i], IFLA_VF_LINK_STATE_AUTO);
	}
}

/* A daemon that starts anew beside VMs that run changes nothing of theirs. */
static void test_inventory_of_used_vfs(void **state)
{
	unsigned sets;

	(void)state;
	start_with(&cx4);
	assert_int_equal(provider_set_guid(provider, "mlx5_0vf1", VGUID, error), 0);
	sets = h.netlink.sets;
	provider_free(TAKE(provider));
	json_object_put(TAKE(out));
	assert_int_equal(provider_mlx5_new(&config, &provider), 0);
	assert_int_equal(provider_inventory(provider, &out, error), 0);
	assert_int_equal(h.netlink.sets, sets);
	assert_true(h.netlink.port_guid[1] == VGUID);
	assert_string_equal(
		json_opt_str(json_object_array_get_idx(json_opt(out, "vfs"), 1), "guid", ""),
		"0x00a1b2fffe000101");
}

static void test_life_of_a_vf(void **state)
{
	(void)state;
	start_with(&cx4);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(prepare("mlx5_0vf0"), 0);
		assert_string_equal(fake_driver(&h, vf0), "vfio-pci");
		assert_int_equal(provider_set_guid(provider, "mlx5_0vf0", VGUID, error), 0);
		assert_true(h.netlink.node_guid[0] == VGUID && h.netlink.port_guid[0] == VGUID);
	}
	/* the others have stayed as they were */
	assert_true(h.netlink.port_guid[1] == hca_parked_guid(cx4.guid, 1));
	assert_string_equal(fake_driver(&h, "0000:3b:00.2"), "");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(provider_set_guid(provider, "mlx5_0vf0", PARKED0, error), 0);
		assert_int_equal(provider_release(provider, "mlx5_0vf0", error), 0);
		assert_string_equal(fake_driver(&h, vf0), "");
	}
	assert_string_equal(fake_get(&h, "bus/pci/devices/%s/driver_override", vf0), "(null)");
	assert_true(h.netlink.port_guid[0] == PARKED0);
}

static void test_descriptors_for_qemu(void **state)
{
	struct json_object *last;

	(void)state;
	fake_put(&h, "", "../dev/iommu");
	start_with(&cx4);
	assert_int_equal(prepare("mlx5_0vf0"), 0);
	assert_int_equal(json_object_array_length(json_opt(out, "attach")), 4);
	assert_string_equal(command(0, "execute"), "getfd");
	assert_non_null(strstr(command(0, "file"), "/dev/iommu"));
	assert_string_equal(command(1, "execute"), "object-add");
	assert_string_equal(argument(1, "fd"), argument(0, "fdname"));
	assert_non_null(strstr(command(2, "file"), "/dev/vfio/devices/vfio1"));
	assert_string_equal(command(3, "execute"), "device_add");
	assert_string_equal(argument(3, "driver"), "vfio-pci");
	assert_string_equal(argument(3, "fd"), argument(2, "fdname"));
	assert_string_equal(argument(3, "iommufd"), argument(1, "id"));
	assert_string_equal(argument(3, "host"), "");
	last = json_object_array_get_idx(json_opt(out, "attach"), 3);
	assert_true(json_opt_bool(last, "pins_memory", false));
}

/* Kernels without device nodes, and hosts whose QEMU is too old for them. */
static void test_group(void **state)
{
	struct fake_card c = cx4;
	char *want AUTO_FREE = NULL;

	(void)state;
	c.old_kernel = true;
	json_set(config.properties, "x-pci-class-code", json_object_new_int(0x020000));
	start_with(&c);
	assert_int_equal(prepare("mlx5_0vf0"), 0);
	want = strf("[{\"execute\":\"device_add\",\"arguments\":{\"x-pci-class-code\":131072,"
		    "\"driver\":\"vfio-pci\",\"host\":\"0000:3b:00.1\"},"
		    "\"opens\":[\"%s/dev/vfio/vfio\",\"%s/dev/vfio/401\"],\"pins_memory\":true}]",
		    h.root, h.root);
	assert_string_equal(json_text(json_opt(out, "attach")), want);
	config.backend = MLX5_IOMMUFD;
	assert_says(prepare("mlx5_0vf0"), -ENODEV, "no node of its own", "vfio-backend = group");
	/* nothing is left half done; such a kernel gives VFs to its own driver by itself */
	assert_string_equal(fake_driver(&h, vf0), "mlx5_core");
}

static struct {
	int errnum; /* the driver's answer */
	unsigned asked;
} vfio;

static int played_open(const char *path, int flags)
{
	(void)path;
	return open("/dev/null", flags);
}

static int played_ioctl(int fd, unsigned long request, void *arg)
{
	struct vfio_device_feature *f = arg;

	(void)fd;
	if (request == VFIO_GROUP_GET_DEVICE_FD)
		return open("/dev/null", O_RDONLY);
	if (request != VFIO_DEVICE_FEATURE)
		return 0;
	vfio.asked++;
	errno = vfio.errnum;
	if (!errno)
		((struct vfio_device_feature_migration *)f->data)->flags = VFIO_MIGRATION_STOP_COPY;
	return errno ? -1 : 0;
}

static const struct vfio_calls calls = {played_open, played_ioctl};

/* Returns prepare's word on a VF's state: a flag of its device_add, "" without it. */
static const char *state_flag(const char *driver, enum mlx5_backend backend, const char *flag)
{
	struct json_object *list, *value;

	config.driver = driver;
	config.backend = backend;
	vfio.asked = 0;
	assert_int_equal(prepare("mlx5_0vf0"), 0);
	assert_string_equal(fake_driver(&h, vf0), driver);
	assert_int_equal(provider_release(provider, "mlx5_0vf0", error), 0);
	list = json_opt(out, "attach");
	value = json_opt(json_object_array_get_idx(list, json_count(list) - 1), flag);
	return value ? json_text(value) : "";
}

static void test_state(void **state)
{
	const char *variant = "mlx5_vfio_pci";

	(void)state;
	config.vfio = &calls;
	vfio.errnum = 0;
	fake_put(&h, "", "../dev/iommu");
	fake_put(&h, "", "bus/pci/drivers/mlx5_vfio_pci/unbind");
	start_with(&cx4);
	assert_string_equal(state_flag(variant, MLX5_GROUP, "migrates_state"), "true");
	vfio.errnum = ENOTTY;
	assert_string_equal(state_flag(variant, MLX5_GROUP, "migrates_state"), "false");
	vfio.errnum = EIO; /* nobody knows */
	assert_string_equal(state_flag(variant, MLX5_GROUP, "migrates_state"), "false");
	assert_int_equal(vfio.asked, 1);
	vfio.errnum = 0;
	/* A descriptor cannot be there when QEMU starts. */
	assert_string_equal(state_flag(variant, MLX5_IOMMUFD, "migrates_state"), "");
	assert_string_equal(state_flag(variant, MLX5_IOMMUFD, "needs_group"), "true");
	assert_string_equal(state_flag("vfio-pci", MLX5_GROUP, "migrates_state"), "");
	assert_string_equal(state_flag("vfio-pci", MLX5_IOMMUFD, "needs_group"), "");
	assert_int_equal(vfio.asked, 0);
}

/* The host's own driver gets its VF back, and has seen the GUID. */
static void test_vf_of_the_host_driver(void **state)
{
	struct fake_card c = cx4;

	(void)state;
	c.autoprobe = true;
	start_with(&c);
	assert_string_equal(fake_driver(&h, vf0), "mlx5_core");
	assert_true(fake_wrote(&h, "mlx5_core/unbind=0000:3b:00.1"));
	assert_true(fake_wrote(&h, "mlx5_core/bind=0000:3b:00.1"));
	assert_int_equal(prepare("mlx5_0vf0"), 0);
	assert_string_equal(fake_driver(&h, vf0), "vfio-pci");
	assert_int_equal(provider_release(provider, "mlx5_0vf0", error), 0);
	assert_string_equal(fake_driver(&h, vf0), "mlx5_core");
}

static void test_ofed(void **state)
{
	struct fake_card c = cx4;

	(void)state;
	c.ofed = true;
	h.netlink.set_rc = -EOPNOTSUPP;
	h.netlink.no_guids = true;
	start_with(&c);
	assert_string_equal(fake_get(&h, "bus/pci/devices/%s/sriov/3/port", c.bdf),
			    "26:8a:07:00:04:4b:f0:a8");
	assert_string_equal(fake_get(&h, "bus/pci/devices/%s/sriov/3/policy", c.bdf), "Follow");
	assert_int_equal(provider_set_guid(provider, "mlx5_0vf3", VGUID, error), 0);
	assert_string_equal(fake_get(&h, "bus/pci/devices/%s/sriov/3/node", c.bdf),
			    "00:a1:b2:ff:fe:00:01:01");
	h.fail_path = "sriov/3/port";
	h.fail_rc = -EINVAL;
	assert_says(provider_set_guid(provider, "mlx5_0vf3", PARKED0, error), -EINVAL,
		    "cannot set the GUID of VF mlx5_0vf3", "dmesg");
}

/* Before Linux 5.5, and where it cannot answer for many VFs: set, but not read back. */
static void test_unknown_guids(void **state)
{
	(void)state;
	h.netlink.no_guids = true;
	start_with(&cx4);
	assert_null(json_opt(json_object_array_get_idx(json_opt(out, "vfs"), 0), "guid"));
	assert_true(h.netlink.port_guid[0] == 0); /* the GUID could be that of a VM */
	assert_int_equal(provider_set_guid(provider, "mlx5_0vf0", VGUID, error), 0);
	h.netlink.no_guids = false;
	h.netlink.get_rc = -EMSGSIZE;
	assert_int_equal(provider_set_guid(provider, "mlx5_0vf0", PARKED0, error), 0);
	assert_true(h.netlink.port_guid[0] == PARKED0);
}

/* A ConnectX-5 with MLNX_OFED on a kernel before 5.5 (docs/hosts.md) was recorded so. rtnetlink
 * tells no GUIDs, but the RDMA device that the host has made of each VF shows an all-zero one. */
static void test_recorded_with_own_devices(void **state)
{
	struct fake_card c = cx4;

	(void)state;
	c.ofed = c.autoprobe = c.old_kernel = true;
	h.netlink.no_guids = true;
	start_with(&c);
	assert_true(h.netlink.port_guid[3] == hca_parked_guid(cx4.guid, 3));
	assert_string_equal(
		fake_get(&h, "bus/pci/devices/0000:3b:00.4/infiniband/mlx5_103/node_guid"),
		"268a:0700:044b:f0a8");
}

/* As recorded with Linux 5.6: all-zero GUIDs, and a port that follows the PF's from the start. */
static void test_recorded_that_follows(void **state)
{
	(void)state;
	for (unsigned i = 0; i < cx4.vfs; i++)
		h.netlink.policy[i] = IFLA_VF_LINK_STATE_AUTO;
	start_with(&cx4);
	assert_true(h.netlink.port_guid[3] == hca_parked_guid(cx4.guid, 3));
	assert_int_equal(h.netlink.sets, 2 * cx4.vfs); /* node and port GUIDs, no policy */
}

static void test_connectx3(void **state)
{
	struct fake_card c = {
		.bdf = "0000:07:00.0",
		.ibdev = "mlx4_0",
		.netdev = "ib2",
		.device = "0x1003",
		.vf_device = "0x1004",
		.guid = 0x0002c90300abcd01,
		.ifindex = 7,
		.total_vfs = 8,
		.vfs = 2,
		.ports = 2,
		.mlx4 = true,
		.old_kernel = true,
	};
	const char *iov = "class/infiniband/mlx4_0/iov";

	(void)state;
	start_with(&c);
	assert_string_equal(fake_get(&h, "%s/ports/1/admin_guids/2", iov), "202c90002abcd01");
	assert_int_equal(prepare("mlx4_0vf1"), 0);
	assert_string_equal(fake_get(&h, "%s/0000:07:00.2/ports/1/pkey_idx/0", iov), "1");
	assert_string_equal(fake_get(&h, "%s/0000:07:00.2/ports/1/pkey_idx/1", iov), "0");
	assert_int_equal(provider_set_guid(provider, "mlx4_0vf1", VGUID, error), 0);
	assert_string_equal(fake_get(&h, "%s/ports/1/admin_guids/2", iov), "a1b2fffe000101");
	assert_int_equal(h.netlink.sets, 0);
}

/* ---- what goes wrong ---- */

/* Returns the result of the inventory on a host with this card. */
static int refused(const struct fake_card *card)
{
	fake_host_add(&h, card);
	config.host = h.host;
	assert_int_equal(provider_mlx5_new(&config, &provider), 0);
	return provider_inventory(provider, &out, error);
}

static void test_no_card(void **state)
{
	(void)state;
	config.host = h.host;
	assert_int_equal(provider_mlx5_new(&config, &provider), 0);
	assert_says(provider_inventory(provider, &out, error), -ENODEV, "no ConnectX card",
		    "lspci -d 15b3:");
}

static void test_not_root(void **state)
{
	(void)state;
	h.netlink.set_rc = -EPERM;
	assert_says(refused(&cx4), -EPERM, "cannot set the GUID of VF mlx5_0vf0",
		    "must run as root");
}

static void test_no_vf_support(void **state)
{
	(void)state;
	h.netlink.set_rc = -EOPNOTSUPP;
	assert_says(refused(&cx4), -EOPNOTSUPP, "no InfiniBand VFs", "firmware with SR-IOV");
}

static void test_no_ipoib(void **state)
{
	struct fake_card c = cx4;

	(void)state;
	c.netdev = NULL;
	assert_says(refused(&c), -ENXIO, "no IPoIB interface", "modprobe ib_ipoib");
}

static void test_one_bad_pf_of_two(void **state)
{
	struct fake_card bad = cx4;

	(void)state;
	bad.bdf = "0000:01:00.0";
	bad.ibdev = "mlx5_9";
	bad.vfs = 0;
	fake_host_add(&h, &bad);
	start_with(&cx4);
	assert_int_equal(json_object_array_length(json_opt(out, "pfs")), 1);
	assert_int_equal(prepare("mlx5_0vf3"), 0);
}

/* The kernel would write elsewhere: the played one ends the test. */
static void test_vf_is_gone(void **state)
{
	unsigned sets;

	(void)state;
	start_with(&cx4);
	sets = h.netlink.sets;
	h.netlink.vfs = 2;
	snprintf(error, sizeof error, "%s/bus/pci/devices/%s/virtfn3", h.sys, cx4.bdf);
	assert_int_equal(unlink(error), 0);
	assert_says(provider_set_guid(provider, "mlx5_0vf3", VGUID, error), -ENODEV,
		    "VF mlx5_0vf3 (0000:3b:00.4) is gone", "restart ibvmigd");
	assert_says(prepare("mlx5_0vf3"), -ENODEV, "is gone", "restart ibvmigd");
	assert_int_equal(h.netlink.sets, sets);
}

/* Two cards that differ only where parked GUIDs have the VF's number. */
static void test_alike_pfs(void **state)
{
	struct fake_card twin = cx4;

	(void)state;
	twin.bdf = "0000:5e:00.0";
	twin.ibdev = "mlx5_1";
	twin.guid = cx4.guid ^ 0x100000000;
	fake_host_add(&h, &twin);
	start_with(&cx4);
	assert_int_equal(json_object_array_length(json_opt(out, "pfs")), 1);
	assert_int_equal(json_object_array_length(json_opt(out, "vfs")), 4);
}

static void test_firmware_forgets(void **state)
{
	(void)state;
	start_with(&cx4);
	h.netlink.port_guid[2] = 0;
	h.netlink.forgets = true;
	assert_says(provider_set_guid(provider, "mlx5_0vf2", VGUID, error), -EIO,
		    "reads back all-zero", "update it");
	/* and a GUID of somebody else's */
	h.netlink.port_guid[2] = PARKED0;
	assert_says(provider_set_guid(provider, "mlx5_0vf2", VGUID, error), -EIO,
		    "shows GUID 0x268a0700014bf0a8 after 0x00a1b2fffe000101 was set",
		    "another program");
}

static void test_policy_refused(void **state)
{
	(void)state;
	start_with(&cx4);
	h.netlink.set_rc = -EINVAL;
	assert_says(prepare("mlx5_0vf0"), -EINVAL, "cannot set the link policy of VF mlx5_0vf0",
		    "dmesg");
	assert_string_equal(fake_driver(&h, vf0), "");
}

static void test_busy(void **state)
{
	struct fake_card c = cx4;

	(void)state;
	c.autoprobe = true;
	start_with(&c);
	fake_put(&h, "0x1003", "bus/pci/devices/%s/net/ib5/flags", vf0);
	assert_says(prepare("mlx5_0vf0"), -EBUSY, "its interface ib5 is up",
		    "ip link set ib5 down");
	fake_put(&h, "0x1002", "bus/pci/devices/%s/net/ib5/flags", vf0);
	assert_int_equal(prepare("mlx5_0vf0"), 0);
	fake_put(&h, "", "bus/pci/drivers/xen-pciback/unbind");
	assert_int_equal(h.host.sysfs.write(&h.host.sysfs, "bus/pci/drivers/vfio-pci/unbind", vf0),
			 0);
	fake_put(&h, "xen-pciback", "bus/pci/devices/%s/driver_override", vf0);
	h.host.sysfs.write(&h.host.sysfs, "bus/pci/drivers_probe", vf0);
	assert_says(prepare("mlx5_0vf0"), -EBUSY, "is bound to xen-pciback",
		    "echo 0000:3b:00.1 >/sys/bus/pci/drivers/xen-pciback/unbind");
}

/* Another VM's QEMU, by the group or by the device's own node. */
static void test_open_elsewhere(void **state)
{
	char path[160], me[32];
	int fd;

	(void)state;
	start_with(&cx4);
	snprintf(me, sizeof me, "(pid %d)", (int)getpid());
	fake_put(&h, "", "../dev/vfio/401"); /* the VF's IOMMU group */
	snprintf(path, sizeof path, "%s/vfio/401", h.dev);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_says(prepare("mlx5_0vf0"), -EBUSY, "is open in ", me);
	assert_int_equal(prepare("mlx5_0vf1"), 0);
	close(fd);
	assert_int_equal(prepare("mlx5_0vf0"), 0);
	/* and it is not taken from a QEMU that has it: the kernel would hang */
	fake_put(&h, "", "../dev/vfio/devices/vfio1");
	snprintf(path, sizeof path, "%s/vfio/devices/vfio1", h.dev);
	fd = open(path, O_RDWR);
	assert_says(provider_release(provider, "mlx5_0vf0", error), -EBUSY, "is still open in ",
		    me);
	assert_string_equal(fake_driver(&h, vf0), "vfio-pci");
	close(fd);
	assert_int_equal(provider_release(provider, "mlx5_0vf0", error), 0);
}

static void test_iommu(void **state)
{
	(void)state;
	start_with(&cx4);
	/* the PF itself is in the group: no ACS */
	fake_put(&h, "", "kernel/iommu_groups/401/devices/0000:3b:00.0/x");
	assert_says(prepare("mlx5_0vf0"), -EBUSY,
		    "shares its IOMMU group with 0000:3b:00.0 (driver mlx5_core)", "ACS");
	snprintf(error, sizeof error, "%s/bus/pci/devices/%s/iommu_group", h.sys, "0000:3b:00.2");
	assert_int_equal(unlink(error), 0);
	assert_says(prepare("mlx5_0vf1"), -ENODEV, "has no IOMMU group", "intel_iommu=on");
}

static void test_bind_fails(void **state)
{
	(void)state;
	start_with(&cx4);
	h.no_driver = true;
	assert_says(prepare("mlx5_0vf0"), -ENXIO, "cannot bind VF mlx5_0vf0 (0000:3b:00.1)",
		    "dmesg");
	assert_string_equal(fake_get(&h, "bus/pci/devices/%s/driver_override", vf0), "(null)");
	config.driver = "mlx5_vfio_pci";
	assert_says(prepare("mlx5_0vf0"), -ENODEV, "mlx5_vfio_pci is not loaded",
		    "modprobe mlx5_vfio_pci");
	assert_says(prepare("mlx5_0vf9"), -ENODEV, "mlx5_0vf9 is not on this host", "ibvmig vf");
	h.no_driver = false;
	h.fail_path = "driver_override";
	h.fail_rc = -EACCES;
	config.driver = "vfio-pci";
	assert_says(prepare("mlx5_0vf0"), -EACCES, "cannot bind", "must run as root");
}

/* The kernel of this machine understands the request as far as its interfaces go. Its answer for an
 * interface that is not InfiniBand is -EOPNOTSUPP; for a bad request it would be -EINVAL. */
static void test_real_kernel(void **state)
{
	const struct vf_netlink real = {NETLINK_ROUTE, 0};
	struct vf_link link;

	(void)state;
	if (unshare(CLONE_NEWNET)) {
		print_message("# not root: no network namespace\n");
		skip();
	}
	assert_int_equal(vf_netlink_set_guid(&real, 1, 0, VGUID), -EOPNOTSUPP);
	assert_int_equal(vf_netlink_set_policy(&real, 1, 0, IFLA_VF_LINK_STATE_AUTO), -EOPNOTSUPP);
	assert_int_equal(vf_netlink_get(&real, 1, &link, 1), 0);
	assert_false(link.present);
	assert_int_equal(vf_netlink_set_guid(&real, 4711, 0, VGUID), -ENODEV);
}

/* ---- the rest of the host ---- */

static void test_memlock(void **state)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit limit = {65536, 65536};
	char number[16];
	pid_t pid = fork();
	bool may; /* CAP_SYS_RESOURCE, which containers often lack */

	(void)state;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	snprintf(number, sizeof number, "%d", (int)pid);
	fake_put(&h, number, "../run/vm1.pid");
	may = !prlimit(pid, RLIMIT_MEMLOCK, &none, NULL);
	assert_int_equal(prlimit(pid, RLIMIT_MEMLOCK, &limit, NULL), 0);
	snprintf(error, sizeof error, "%s/run", h.root);
	assert_int_equal(memlock_lift(strdupa(error), "vm1", error), may ? 0 : -EPERM);
	assert_true(may || strstr(error, "CAP_SYS_RESOURCE"));
	assert_int_equal(prlimit(pid, RLIMIT_MEMLOCK, NULL, &limit), 0);
	assert_true(limit.rlim_cur == (may ? RLIM_INFINITY : 65536));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	snprintf(error, sizeof error, "%s/run", h.root);
	assert_int_equal(memlock_lift(strdupa(error), "vm1", error), -ESRCH);
	assert_int_equal(memlock_lift("/nowhere", "vm2", error), -ENOENT);
	assert_non_null(strstr(error, "/nowhere/vm2.pid"));
}

static int read_config(const char *text, char **ret_error)
{
	char path[96];
	struct conf *conf = NULL;
	struct mlx5_config c;
	int rc;

	fake_put(&h, text, "../test.conf");
	snprintf(path, sizeof path, "%s/test.conf", h.root);
	rc = conf_load(path, ibvmigd_settings, &conf, ret_error);
	if (rc)
		return rc;
	rc = mlx5_config_read(conf, &c, ret_error);
	if (!rc) {
		assert_int_equal(c.pf_count, 2);
		assert_string_equal(c.pfs[1].device, "mlx5_2");
		assert_int_equal(c.pfs[0].vfs, 16);
		assert_int_equal(c.pfs[1].vfs, 0);
		assert_string_equal(c.driver, "mlx5_vfio_pci");
		assert_int_equal(c.policy, IFLA_VF_LINK_STATE_ENABLE);
		assert_int_equal(c.backend, MLX5_GROUP);
		assert_string_equal(json_text(c.properties),
				    "{\"x-pci-class-code\":131072,\"x-late-detach\":true}");
		mlx5_config_clear(&c);
	}
	conf_free(conf);
	return rc;
}

static void test_configuration(void **state)
{
	static const char *const bad[] = {
		"pf = pf0",
		"pf = pf0 mlx5_0 128",
		"pf = pf0 mlx5_0 4 5",
		"pf = pf0 mlx5_0\npf = pf1 mlx5_0",
		"vf-policy = down",
		"vfio-driver = mlx5_core",
		"vfio-backend = none",
		"device-property = host=0000:00:00.0",
		"device-property = rombar",
	};
	char *why = NULL;

	(void)state;
	assert_int_equal(read_config("pf = pf0 0000:3b:00.0 16\npf = pf1 mlx5_2\nvf-policy = up\n"
				     "vfio-driver = mlx5_vfio_pci\nvfio-backend = group\n"
				     "device-property = x-pci-class-code=0x020000\n"
				     "device-property = x-late-detach=true",
				     &why),
			 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(read_config(bad[i], &why), -EINVAL);
		assert_non_null(strstr(why, "must be") ?: strstr(why, "another line"));
		free(TAKE(why));
	}
}

static int setup(void **state)
{
	(void)state;
	fake_host_init(&h);
	config = (struct mlx5_config){.driver = "vfio-pci",
				      .policy = IFLA_VF_LINK_STATE_AUTO,
				      .properties = json_object_new_object()};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	provider_free(TAKE(provider));
	json_object_put(TAKE(out));
	mlx5_config_clear(&config);
	fake_host_end(&h);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_inventory),
		TEST(test_inventory_of_used_vfs),
		TEST(test_life_of_a_vf),
		TEST(test_descriptors_for_qemu),
		TEST(test_group),
		TEST(test_state),
		TEST(test_vf_of_the_host_driver),
		TEST(test_ofed),
		TEST(test_unknown_guids),
		TEST(test_recorded_with_own_devices),
		TEST(test_recorded_that_follows),
		TEST(test_connectx3),
		TEST(test_no_card),
		TEST(test_not_root),
		TEST(test_no_vf_support),
		TEST(test_no_ipoib),
		TEST(test_one_bad_pf_of_two),
		TEST(test_vf_is_gone),
		TEST(test_alike_pfs),
		TEST(test_firmware_forgets),
		TEST(test_policy_refused),
		TEST(test_busy),
		TEST(test_open_elsewhere),
		TEST(test_iommu),
		TEST(test_bind_fails),
		TEST(test_memlock),
		TEST(test_configuration),
		TEST(test_real_kernel),
	};

	log_set_level(LOG_ERROR);
	return RUN_TESTS(tests);
}
