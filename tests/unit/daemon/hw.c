/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The checks of real cards (tests/hw/checks.h), on played hosts: they pass on good ones, and each
 * finds the fault that it is for. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/vfio.h>
#include <string.h>

#include "common/log.h"
#include "common/util.h"
#include "daemon/vf/vfio_migration.h"
#include "tests/fake/host/hca.h"
#include "tests/hw/checks.h"

#define RESULTS_MAX 32

static const struct fake_card cx6 = {
	.bdf = "0000:3b:00.0",
	.ibdev = "mlx5_0",
	.netdev = "ib0",
	.device = "0x101b",
	.vf_device = "0x101c",
	.guid = 0x248a0703004bf0a8,
	.ifindex = 4,
	.total_vfs = 8,
	.vfs = 3,
};
#define PF  "bus/pci/devices/0000:3b:00.0"
#define VF1 "bus/pci/devices/0000:3b:00.2"

static struct fake_host h;
static struct mlx5_config config;

static struct {
	char what[RESULTS_MAX][96];
	char bad[1024]; /* every failure, with its reason */
	unsigned count, failed, skipped;
} seen;

static void tell(struct hw_results *r, enum hw_verdict v, const char *what, const char *why)
{
	size_t n = strlen(seen.bad);

	(void)r;
	assert_in_range(seen.count, 0, RESULTS_MAX - 1);
	snprintf(seen.what[seen.count++], sizeof seen.what[0], "%s", what);
	seen.failed += v == HW_FAILED;
	seen.skipped += v == HW_SKIPPED;
	if (v == HW_FAILED)
		snprintf(seen.bad + n, sizeof seen.bad - n, "%s: %s\n", what, why);
	assert_true(v == HW_OK || *why);
}

static struct hw_results results = {tell};

/* ---- VFIO, as far as it is asked for its feature ---- */

static struct {
	int open_errno, feature_errno;
} vfio;

static int played_open(const char *path, int flags)
{
	(void)path;
	errno = vfio.open_errno;
	return errno ? -1 : open("/dev/null", flags);
}

static int played_ioctl(int fd, unsigned long request, void *arg)
{
	struct vfio_device_feature *f = arg;

	(void)fd;
	if (request == VFIO_GROUP_GET_DEVICE_FD)
		return open("/dev/null", O_RDONLY);
	if (request != VFIO_DEVICE_FEATURE)
		return 0;
	errno = vfio.feature_errno;
	if (!errno)
		((struct vfio_device_feature_migration *)f->data)->flags = VFIO_MIGRATION_STOP_COPY;
	return errno ? -1 : 0;
}

static const struct vfio_calls calls = {played_open, played_ioctl};

/* ---- good hosts ---- */

static void check_pf(const char *bdf)
{
	char error[HTTP_ERROR_MAX];
	struct hca_pf pf;

	assert_int_equal(hca_pf_load(&h.host, bdf, NULL, 0, &pf, error), 0);
	hw_check_pf(&results, &h.host, &pf);
	hca_pf_clear(&pf);
}

static void check_vf(const char *name)
{
	config.host = h.host;
	hw_check_vf(&results, &config, name);
}

static void assert_all_well(unsigned count, unsigned skipped)
{
	if (seen.failed || seen.count != count || seen.skipped != skipped)
		fail_msg("%u results, %u skipped, not %u and %u\n%s", seen.count, seen.skipped,
			 count, skipped, seen.bad);
}

static void test_plain(void **state)
{
	(void)state;
	fake_host_add(&h, &cx6);
	check_pf(cx6.bdf);
	assert_all_well(4, 0);
	assert_int_equal(h.netlink.sets, 0);
	check_vf("mlx5_0vf1");
	assert_all_well(21, 0);
	/* as before, but for the parked GUID and the policy that the inventory gives */
	assert_string_equal(fake_driver(&h, "0000:3b:00.2"), "");
	assert_string_equal(fake_get(&h, VF1 "/driver_override"), "(null)");
	assert_true(h.netlink.port_guid[1] == hca_parked_guid(cx6.guid, 1));
	assert_int_equal(h.netlink.policy[1], IFLA_VF_LINK_STATE_AUTO);
}

/* VFs that the host's own driver has, before and after. */
static void test_autoprobe(void **state)
{
	struct fake_card c = cx6;

	(void)state;
	c.autoprobe = true;
	fake_host_add(&h, &c);
	check_vf("mlx5_0vf1");
	assert_all_well(17, 0);
	assert_string_equal(fake_driver(&h, "0000:3b:00.2"), "mlx5_core");
}

static void test_variant_driver(void **state)
{
	(void)state;
	config.driver = "mlx5_vfio_pci";
	vfio.feature_errno = 0;
	fake_put(&h, "", "bus/pci/drivers/mlx5_vfio_pci/unbind");
	fake_host_add(&h, &cx6);
	check_vf("mlx5_0vf1");
	assert_all_well(17, 0);
}

/* MLNX_OFED on a kernel without GUIDs in rtnetlink, and no sriov_drivers_autoprobe. */
static void test_old_kernel_with_ofed(void **state)
{
	struct fake_card c = cx6;

	(void)state;
	c.ofed = c.old_kernel = c.autoprobe = true;
	h.netlink.no_guids = true;
	fake_host_add(&h, &c);
	check_pf(c.bdf);
	check_vf("mlx5_0vf1");
	assert_all_well(21, 0);
	h.netlink.get_rc = -EMSGSIZE; /* many VFs */
	check_pf(c.bdf);
	assert_all_well(25, 1);
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
	};

	(void)state;
	fake_host_add(&h, &c);
	check_pf(c.bdf);
	assert_all_well(4, 1);
	check_vf("mlx4_0vf1");
	assert_all_well(19, 4); /* no policy, no RDMA device of the VF that shows its GUID */
}

static void test_memlock(void **state)
{
	(void)state;
	hw_check_memlock(&results);
	assert_all_well(1, seen.skipped); /* without CAP_SYS_RESOURCE */
}

/* ---- each fault ---- */

static void physfn_elsewhere(void)
{
	fake_host_add(&h, &(struct fake_card){.bdf = "0000:5e:00.0",
					      .ibdev = "mlx5_1",
					      .device = "0x101b",
					      .guid = 1,
					      .ifindex = 9});
	h.netlink.ifindex = cx6.ifindex;
	h.netlink.vfs = cx6.vfs;
	fake_put_link(&h, "devices/pci0000:5e/0000:5e:00.0",
		      "devices/pci0000:3b/0000:3b:00.2/physfn");
}

static void more_vfs_than_said(void)
{
	fake_put(&h, "2", PF "/sriov_numvfs");
}

static void more_vfs_than_possible(void)
{
	fake_put(&h, "2", PF "/sriov_totalvfs");
}

static void another_kind(void)
{
	fake_put(&h, "0x1018", VF1 "/device");
}

static void no_pkeys(void)
{
	for (unsigned i = 0; i < 3; i++)
		fake_put(&h, "0x0000", "class/infiniband/mlx5_0/ports/1/pkeys/%u", i);
}

static void fewer_told(void)
{
	h.netlink.vfs = 2;
}

static void no_answer(void)
{
	h.netlink.get_rc = -EPERM;
}

static void in_use(void)
{
	h.netlink.port_guid[1] = h.netlink.node_guid[1] = 0x00a1b2fffe000101;
}

static void policy_is_lost(void)
{
	h.netlink.forgets_policy = true;
}

static void guid_is_lost(void)
{
	for (unsigned i = 0; i < cx6.vfs; i++)
		h.netlink.port_guid[i] = h.netlink.node_guid[i] = hca_parked_guid(cx6.guid, i);
	h.netlink.forgets = true;
}

static void no_driver(void)
{
	h.no_driver = true;
}

static void override_stays(void)
{
	h.keeps_override = true;
}

static void feature_fails(void)
{
	vfio.feature_errno = EIO;
}

static void plain_that_migrates(void)
{
	vfio.feature_errno = 0;
}

static void old_guid_is_shown(void)
{
	h.no_reread = true;
}

static void test_faults(void **state)
{
	static const struct {
		void (*provoke)(void);
		const char *what; /* the first result that fails */
	} faults[] = {
		{physfn_elsewhere,
		 "sriov_numvfs VFs, whose physfn is the PF: physfn of 0000:3b:00.2"},
		{more_vfs_than_said,
		 "sriov_numvfs VFs, whose physfn is the PF: there is a virtfn2"},
		{more_vfs_than_possible,
		 "sriov_numvfs VFs, whose physfn is the PF: sriov_numvfs 3"},
		{another_kind,
		 "each VF has the PCI id that the PF tells: 0000:3b:00.2 is a 0x1018"},
		{no_pkeys, "the PKey table"},
		{fewer_told, "the PF's IPoIB interface tells of each VF: VF 2: not there"},
		{no_answer, "the PF's IPoIB interface tells of each VF: interface 4"},
		{in_use, "the VF is free: it shows 0x00a1b2fffe000101"},
		{policy_is_lost, "the inventory has set the policy: link state 2"},
		{guid_is_lost, "a vGUID, read back"},
		{no_driver, "prepare: "},
		{override_stays, "it is given back as sriov_drivers_autoprobe says"},
		{feature_fails, "VFIO tells whether"},
		{plain_that_migrates, "VFIO tells whether"},
		{old_guid_is_shown,
		 "the host's own driver shows a new GUID: the VF was bound anew: "
		 "its RDMA device shows 0x268a0700024bf0a8"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		fake_host_end(&h);
		fake_host_init(&h);
		memset(&seen, 0, sizeof seen);
		vfio.feature_errno = ENOTTY;
		fake_host_add(&h, &cx6);
		faults[i].provoke();
		check_pf(cx6.bdf);
		if (!seen.failed)
			check_vf("mlx5_0vf1");
		if (!seen.failed || strncmp(seen.bad, faults[i].what, strlen(faults[i].what)))
			fail_msg("not \"%s\", but\n%s", faults[i].what, seen.bad);
	}
}

static void test_no_such_vf(void **state)
{
	(void)state;
	fake_host_add(&h, &cx6);
	check_vf("mlx5_0vf3");
	assert_int_equal(seen.count, 1);
	assert_non_null(strstr(seen.bad, "no ready PF has a VF mlx5_0vf3"));
}

static int setup(void **state)
{
	(void)state;
	fake_host_init(&h);
	memset(&seen, 0, sizeof seen);
	vfio.open_errno = 0;
	vfio.feature_errno = ENOTTY; /* plain vfio-pci */
	config = (struct mlx5_config){.driver = "vfio-pci",
				      .policy = IFLA_VF_LINK_STATE_AUTO,
				      .vfio = &calls,
				      .properties = json_object_new_object()};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	mlx5_config_clear(&config);
	fake_host_end(&h);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_plain),          TEST(test_autoprobe),
		TEST(test_variant_driver), TEST(test_old_kernel_with_ofed),
		TEST(test_connectx3),      TEST(test_memlock),
		TEST(test_faults),         TEST(test_no_such_vf),
	};

	log_set_level(LOG_ERROR);
	return RUN_TESTS(tests);
}
