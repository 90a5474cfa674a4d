/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The daemon's reading of a host's sysfs, on played hosts of several cards and kernels. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "tests/fake/host/hca.h"

static const struct fake_card cx4 = {
	.bdf = "0000:3b:00.0",
	.ibdev = "mlx5_0",
	.netdev = "ib0",
	.device = "0x1013",
	.vf_device = "0x1014",
	.guid = 0x248a0703004bf0a8,
	.ifindex = 4,
	.total_vfs = 16,
	.vfs = 8,
};
static const struct fake_card cx5 = {
	.bdf = "0000:5e:00.1",
	.ibdev = "mlx5_1",
	.netdev = "ibs2f1",
	.device = "0x1017",
	.vf_device = "0x1018",
	.guid = 0x506b4b0300285035,
	.ifindex = 5,
	.total_vfs = 8,
	.vfs = 1,
	.ofed = true,
	.old_kernel = true,
	.autoprobe = true,
};
static const struct fake_card cx6 = {
	.bdf = "0000:c1:00.0",
	.ibdev = "ibp193s0",
	.netdev = "ibp193s0",
	.device = "0x101b",
	.vf_device = "0x101c",
	.guid = 0xb83fd20300a41b2c,
	.ifindex = 6,
	.total_vfs = 127,
	.vfs = 2,
};
static const struct fake_card cx3 = {
	.bdf = "0000:07:00.0",
	.ibdev = "mlx4_0",
	.netdev = "ib2",
	.device = "0x1003",
	.vf_device = "0x1004",
	.guid = 0x0002c90300abcd01,
	.ifindex = 7,
	.total_vfs = 8,
	.vfs = 4,
	.ports = 2,
	.mlx4 = true,
	.old_kernel = true,
};

static struct fake_host h;
static struct hca_pf pf;
static char error[HTTP_ERROR_MAX];

static int load(const struct fake_card *card, unsigned want_vfs)
{
	fake_host_add(&h, card);
	return hca_pf_load(&h.host, card->bdf, "pf0", want_vfs, &pf, error);
}

static void assert_says(int rc, int expected, const char *reason, const char *way_out)
{
	if (rc != expected || !strstr(error, reason) || !strstr(error, way_out))
		fail_msg("%d, \"%s\"; expected %d, \"%s\", \"%s\"", rc, error, expected, reason,
			 way_out);
}

static void test_cards(void **state)
{
	const struct fake_card *const cards[] = {&cx3, &cx4, &cx5, &cx6};
	struct sysfs_list l;

	(void)state;
	for (size_t i = 0; i < 4; i++)
		fake_host_add(&h, cards[i]);
	fake_put(&h, "0x8086", "bus/pci/devices/0000:00:1f.6/vendor");
	fake_put(&h, "0x020000", "bus/pci/devices/0000:00:1f.6/class");
	l = hca_pfs(&h.host);
	assert_int_equal(l.count, 4);
	for (size_t i = 0; i < 4; i++) {
		assert_string_equal(l.names[i], cards[i]->bdf);
		assert_int_equal(hca_pf_load(&h.host, cards[i]->ibdev, NULL, 0, &pf, error), 0);
		assert_string_equal(pf.bdf, cards[i]->bdf);
		assert_string_equal(pf.name, cards[i]->ibdev);
		assert_true(pf.guid == cards[i]->guid);
		assert_int_equal(pf.vf_count, cards[i]->vfs);
		assert_int_equal(pf.mlx4, cards[i]->mlx4);
		assert_int_equal(hca_ipoib(&h.host, &pf), cards[i]->ifindex);
		hca_pf_clear(&pf);
	}
	sysfs_list_free(&l);
}

static void test_vfs(void **state)
{
	(void)state;
	assert_int_equal(load(&cx4, 0), 0);
	assert_string_equal(pf.vfs[0].name, "pf0vf0");
	assert_string_equal(pf.vfs[0].bdf, "0000:3b:00.1");
	assert_string_equal(pf.vfs[7].name, "pf0vf7");
	assert_string_equal(pf.vfs[7].bdf, "0000:3b:01.0");
	assert_ptr_equal(pf.vfs[7].pf, &pf);
}

/* Two cards, both ports of one, all VFs: never two alike, and never a card's own. */
static void test_parked_guids(void **state)
{
	const uint64_t pfs[] = {0x248a0703004bf0a8, 0x248a0703004bf0a9, 0x506b4b0300285035};
	uint64_t all[3 * 127];
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (unsigned vf = 0; vf < 127; vf++)
			all[n++] = hca_parked_guid(pfs[i], vf);
	assert_true(all[0] == 0x268a0700014bf0a8);
	for (size_t i = 0; i < n; i++) {
		assert_true(all[i] >> 56 & 2);
		for (size_t k = 0; k < i; k++)
			assert_true(all[i] != all[k]);
	}
}

/* The second port's interface is not the first one's, with and without dev_port. */
static void test_second_port(void **state)
{
	(void)state;
	fake_host_add(&h, &cx3);
	fake_put(&h, "Ethernet", "class/infiniband/mlx4_0/ports/1/link_layer");
	assert_int_equal(hca_pf_load(&h.host, "mlx4_0", "pf0", 0, &pf, error), 0);
	assert_int_equal(pf.port, 2);
	assert_true(pf.guid == cx3.guid + 1);
	assert_int_equal(hca_ipoib(&h.host, &pf), cx3.ifindex + 1);
}

static void test_no_such_pf(void **state)
{
	(void)state;
	fake_host_add(&h, &cx4);
	assert_says(hca_pf_load(&h.host, "mlx5_9", NULL, 0, &pf, error), -ENODEV, "mlx5_9",
		    "/sys/class/infiniband");
	assert_says(hca_pf_load(&h.host, "../..", NULL, 0, &pf, error), -ENODEV, "../..",
		    "/sys/class/infiniband");
	assert_says(hca_pf_load(&h.host, "0000:3b:00.1", NULL, 0, &pf, error), -ENODEV,
		    "0000:3b:00.1", "not a physical function");
}

static void test_pf_not_ready(void **state)
{
	struct fake_card c = cx4;

	(void)state;
	c.vfs = 0;
	assert_says(load(&c, 0), -ENODEV, "has no VFs (sriov_numvfs is 0, its firmware offers 16)",
		    "pf = NAME 0000:3b:00.0 16");
	c.total_vfs = 0;
	c.bdf = "0000:3c:00.0";
	c.ibdev = "mlx5_7";
	assert_says(load(&c, 0), -ENODEV, "offers no VFs",
		    "mlxconfig -d 0000:3c:00.0 set SRIOV_EN=1");
	c = cx6;
	c.link_layer = "Ethernet";
	assert_says(load(&c, 0), -ENODEV, "no InfiniBand port", "LINK_TYPE_P1=1");
	c = cx5;
	c.switchdev = true;
	assert_says(load(&c, 0), -ENODEV, "switchdev mode",
		    "devlink dev eswitch set pci/0000:5e:00.1 mode legacy");
}

static void test_pf_without_driver(void **state)
{
	(void)state;
	fake_host_add(&h, &cx4);
	h.host.sysfs.write(&h.host.sysfs, "bus/pci/drivers/mlx5_core/unbind", cx4.bdf);
	assert_says(hca_pf_load(&h.host, cx4.bdf, NULL, 0, &pf, error), -ENODEV,
		    "bound to no driver", "modprobe mlx5_core");
}

static void test_creates_vfs(void **state)
{
	struct fake_card c = cx4;

	(void)state;
	c.vfs = 0;
	c.autoprobe = true;
	assert_says(load(&c, 17), -ERANGE, "17 VFs are asked for, its firmware offers 16",
		    "NUM_OF_VFS=17");
	assert_int_equal(hca_pf_load(&h.host, c.bdf, "pf0", 3, &pf, error), 0);
	assert_int_equal(pf.vf_count, 3);
	assert_string_equal(pf.vfs[2].bdf, "0000:3b:00.3");
	/* and without RDMA devices of their own on this host */
	assert_string_equal(fake_get(&h, "bus/pci/devices/%s/sriov_drivers_autoprobe", c.bdf), "0");
	hca_pf_clear(&pf);
	/* VFs that are there are left alone */
	assert_int_equal(hca_pf_load(&h.host, c.bdf, "pf0", 8, &pf, error), 0);
	assert_int_equal(pf.vf_count, 3);
}

static void test_vfs_cannot_be_created(void **state)
{
	struct fake_card c = cx4, old = cx3;

	(void)state;
	c.vfs = old.vfs = 0;
	h.fail_path = "sriov_numvfs";
	h.fail_rc = -EACCES;
	assert_says(load(&c, 4), -EACCES, "cannot create 4 VFs on PF 0000:3b:00.0",
		    "must run as root");
	assert_says(load(&old, 4), -ENOTSUP, "mlx4_core makes them only while it is loaded",
		    "options mlx4_core num_vfs=4 probe_vf=0");
}

static int setup(void **state)
{
	(void)state;
	fake_host_init(&h);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	hca_pf_clear(&pf);
	fake_host_end(&h);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_cards),
		TEST(test_vfs),
		TEST(test_parked_guids),
		TEST(test_second_port),
		TEST(test_no_such_pf),
		TEST(test_pf_not_ready),
		TEST(test_pf_without_driver),
		TEST(test_creates_vfs),
		TEST(test_vfs_cannot_be_created),
	};

	return RUN_TESTS(tests);
}
