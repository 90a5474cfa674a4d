/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Findings of doctor about VFs: those of the provider mlx5 on played hosts (tests/fake/host/hca.h),
 * and those of a provider that is a program, which cannot be asked. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <linux/if_link.h>
#include <string.h>
#include <unistd.h>

#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/report/doctor.h"
#include "daemon/vf/mlx5.h"
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
	.vfs = 2,
};
static const char vf0[] = "0000:3b:00.1";

static struct fake_host h;
static struct mlx5_config config;
static struct provider *provider;
static struct json_object *inventory, *vfs; /* vfs: borrowed from inventory */
static struct doctor d;
static char error[HTTP_ERROR_MAX];

/* The daemon as it is after its start. */
static void start_with(const struct fake_card *card)
{
	fake_host_add(&h, card);
	config.host = h.host;
	assert_int_equal(provider_mlx5_new(&config, &provider), 0);
	assert_int_equal(provider_inventory(provider, &inventory, error), 0);
	vfs = json_opt(inventory, "vfs");
}

/* A provider that is a program, with this inventory. */
static void start_with_program(const char *list)
{
	assert_int_equal(provider_exec_new("/nonexistent", PROVIDER_DEADLINE_MS, &provider), 0);
	inventory = json_tokener_parse(list);
	assert_non_null(inventory);
	vfs = inventory;
}

static void give_to_vm(size_t vf)
{
	struct json_object *o = json_object_array_get_idx(vfs, vf);

	json_set_str(o, "vm", "vm1");
	json_set_bool(o, "vfio", true);
}

static void look(void)
{
	json_object_put(d.found);
	d.found = json_object_new_array();
	doctor_zero_guid(&d, provider, vfs);
	doctor_vfio(&d, provider, vfs);
}

static struct json_object *finding(const char *check, const char *subject)
{
	for (size_t i = 0; i < json_count(d.found); i++) {
		struct json_object *o = json_object_array_get_idx(d.found, i);

		if (str_eq(json_opt_str(o, "check", ""), check) &&
		    str_eq(json_opt_str(o, "subject", ""), subject))
			return o;
	}
	fail_msg("no finding of %s about %s: %s", check, subject, json_text(d.found));
	return NULL;
}

/* The finding must say word, and a way out where there is something to be done. */
static void expect(const char *check, const char *subject, const char *verdict, const char *word)
{
	struct json_object *o = finding(check, subject);

	if (!str_eq(json_opt_str(o, "verdict", ""), verdict) ||
	    !strstr(json_opt_str(o, "detail", ""), word))
		fail_msg("not %s, or it does not say \"%s\": %s", verdict, word, json_text(o));
	if (!strcmp(verdict, "bad"))
		assert_non_null(json_opt_str(o, "fix", NULL));
}

static void expect_count(size_t n)
{
	if (json_count(d.found) != n)
		fail_msg("%zu findings, not %zu: %s", json_count(d.found), n, json_text(d.found));
}

/* ---- the provider mlx5 ---- */

/* As docs/hosts.md has it prepared: VFs that no VM has are bound to nothing. */
static void test_good_host(void **state)
{
	struct json_object *in AUTO_JSON = json_object_new_object(), *out AUTO_JSON = NULL;

	(void)state;
	start_with(&cx4);
	look();
	expect("vfio", "mlx5_0vf0", "ok", "free");
	expect("vfio", "mlx5_0vf1", "ok", "free");
	expect("zero-guid", "VFs", "ok", "2 VFs have GUIDs");
	expect_count(3);

	json_set_str(in, "vf", "mlx5_0vf0");
	json_set_str(in, "pkey", "0xffff");
	assert_int_equal(provider_prepare(provider, in, &out, error), 0);
	give_to_vm(0);
	look();
	expect("vfio", "mlx5_0vf0", "ok", "vfio-pci at 0000:3b:00.1, VM vm1 has it");
	expect("vfio", "mlx5_0vf1", "ok", "free");
	expect_count(3);
}

/* The provider takes it away from there. */
static void test_free_vf_of_the_host_driver(void **state)
{
	struct fake_card c = cx4;

	(void)state;
	c.autoprobe = true;
	start_with(&c);
	assert_string_equal(fake_driver(&h, vf0), "mlx5_core");
	look();
	expect("vfio", "mlx5_0vf0", "ok", "free");
	fake_put(&h, "0x1003", "bus/pci/devices/%s/net/ib5/flags", vf0);
	look();
	expect("vfio", "mlx5_0vf0", "bad", "its interface ib5 is up");
	expect("vfio", "mlx5_0vf1", "ok", "free");
}

static void test_vfio_not_loaded(void **state)
{
	(void)state;
	start_with(&cx4);
	config.driver = "mlx5_vfio_pci";
	look();
	expect("vfio", "mlx5_0vf1", "bad", "modprobe mlx5_vfio_pci");
}

static void test_vm_without_its_vf(void **state)
{
	(void)state;
	start_with(&cx4);
	give_to_vm(0);
	look();
	expect("vfio", "mlx5_0vf0", "bad", "vm1 has it, but 0000:3b:00.1 is bound to no driver");
}

/* Mainline: no folder sriov/, and a VF that nobody drives has no file that shows its GUID. */
static void test_zero_guid(void **state)
{
	(void)state;
	start_with(&cx4);
	assert_false(sysfs_exists(&h.host.sysfs, "class/infiniband/mlx5_0/device/sriov"));
	h.netlink.port_guid[1] = 0;
	look();
	expect("zero-guid", "mlx5_0vf1", "bad", "all zero");
	expect("zero-guid", "VFs", "ok", "1 VFs have GUIDs");
}

static void test_unknown_guids(void **state)
{
	(void)state;
	h.netlink.no_guids = true;
	start_with(&cx4);
	look();
	expect("zero-guid", "VFs", "skipped", "GUIDs of 2 VFs are not known");
	expect_count(3);
}

/* ---- a program ---- */

#define PF  "class/infiniband/mlx5_0/device"
#define VFS "[{\"name\":\"f0\",\"pci\":\"0000:3b:00.1\"},{\"name\":\"f1\"}]"

static void test_program(void **state)
{
	(void)state;
	fake_host_add(&h, &cx4);
	start_with_program(VFS);
	look();
	expect("zero-guid", "mlx5_0", "skipped", "GUIDs of 2 VFs are not known");
	expect("vfio", "VFs", "skipped", "2 are free");
	expect_count(2);
	give_to_vm(0);
	give_to_vm(1);
	look();
	expect("vfio", "f0", "bad", "no driver");
	expect("vfio", "f1", "skipped", "does not tell its PCI address");
	expect_count(3);
}

static void test_program_with_ofed(void **state)
{
	struct fake_card c = cx4;

	(void)state;
	c.ofed = true;
	fake_host_add(&h, &c);
	start_with_program("[]");
	fake_put(&h, "00:11:22:33:44:55:66:77", PF "/sriov/0/node");
	fake_put(&h, "00:11:22:33:44:55:66:77", PF "/sriov/0/port");
	fake_put(&h, "00:11:22:33:44:55:66:78", PF "/sriov/1/node");
	look();
	expect("zero-guid", "mlx5_0, VF 1, port GUID", "bad", "all zero");
	expect("zero-guid", "mlx5_0", "ok", "1 VFs have GUIDs");
	expect("vfio", "VFs", "skipped", "none is free");
	expect_count(3);
}

static void test_vf_that_the_host_drives(void **state)
{
	(void)state;
	start_with_program("[]");
	fake_put(&h, "0000:0000:0000:0000", "class/infiniband/mlx5_2/node_guid");
	fake_put(&h, "InfiniBand", "class/infiniband/mlx5_2/ports/1/link_layer");
	fake_put(&h, "", "class/infiniband/mlx5_2/device/physfn/uevent");
	look();
	expect("zero-guid", "mlx5_2", "bad", "its node GUID is all zero");
}

/* Ethernet's VFs have no GUIDs that matter. */
static void test_ethernet(void **state)
{
	struct fake_card c = cx4;

	(void)state;
	c.ofed = true;
	c.link_layer = "Ethernet";
	fake_host_add(&h, &c);
	start_with_program("[]");
	look();
	expect("zero-guid", "GUIDs", "skipped", "no VF's GUID can be read");
	expect_count(2);
}

static int setup(void **state)
{
	(void)state;
	fake_host_init(&h);
	config = (struct mlx5_config){.driver = "vfio-pci",
				      .policy = IFLA_VF_LINK_STATE_AUTO,
				      .properties = json_object_new_object()};
	d = (struct doctor){.root = h.root, .found = json_object_new_array()};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	provider_free(TAKE(provider));
	json_object_put(TAKE(inventory));
	json_object_put(TAKE(d.found));
	mlx5_config_clear(&config);
	fake_host_end(&h);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good_host),
		TEST(test_free_vf_of_the_host_driver),
		TEST(test_vfio_not_loaded),
		TEST(test_vm_without_its_vf),
		TEST(test_zero_guid),
		TEST(test_unknown_guids),
		TEST(test_program),
		TEST(test_program_with_ofed),
		TEST(test_vf_that_the_host_drives),
		TEST(test_ethernet),
	};

	log_set_level(LOG_ERROR);
	return RUN_TESTS(tests);
}
