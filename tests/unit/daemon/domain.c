/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/libvirt/domain.h"

#define UUID "11111111-2222-3333-4444-555555555555"

static struct domain_info *parse(const char *metadata, const char *devices)
{
	struct domain_info *info = NULL;
	char xml[8192];

	snprintf(xml, sizeof xml,
		 "<domain type='qemu'><name>g1</name><uuid>" UUID "</uuid>"
		 "<metadata>%s</metadata><devices>%s</devices></domain>",
		 metadata, devices);
	assert_int_equal(domain_parse(xml, strlen(xml), &info), 0);
	assert_string_equal(info->uuid, UUID);
	assert_string_equal(info->name, "g1");
	return info;
}

#define VF(attributes) "<ibvmig:vf xmlns:ibvmig='urn:ibvmig:1' " attributes "/>"
#define GOOD           "pf='pf0' vguid='0x00a1b2fffe000101' pkey='0x8001' index='3'"

#define OTHER "pf='pf1' vguid='0x00a1b2fffe000102' pkey='0x8001' index='1'"
#define TWIN  "pf='pf1' vguid='0x00a1b2fffe000101' pkey='0x8001' index='4'"

/* By index, however the metadata has them; one strategy is enough. */
static void test_two_rails(void **state)
{
	struct domain_info *info = parse(VF(GOOD) VF(OTHER " strategy='early'"), "");
	char id[QMP_DEV_ID];

	(void)state;
	assert_null(info->problem);
	assert_int_equal(info->vf_count, 2);
	assert_string_equal(info->vfs[0].pf, "pf1");
	assert_int_equal(info->vfs[1].vguid, 0x00a1b2fffe000101);
	assert_int_equal(info->strategy, STRATEGY_EARLY);
	domain_dev_id(&info->vfs[1], id);
	assert_string_equal(id, "ibvf3");
	domain_free(info);
}

static void test_good_metadata(void **state)
{
	struct domain_info *info = parse(VF(GOOD " strategy='early' pci='0000:77:00.1'"), "");

	(void)state;
	assert_true(info->wants_vf);
	assert_null(info->problem);
	assert_string_equal(info->vfs[0].pf, "pf0");
	assert_int_equal(info->vfs[0].vguid, 0x00a1b2fffe000101);
	assert_int_equal(info->vfs[0].pkey, 0x8001);
	assert_int_equal(info->vfs[0].index, 3);
	assert_int_equal(info->strategy, STRATEGY_EARLY);
	assert_string_equal(info->vfs[0].pci, "0000:77:00.1");
	domain_free(info);
}

static void test_foreign_metadata_is_not_ours(void **state)
{
	struct domain_info *info = parse("<x:vf xmlns:x='urn:other' pf='pf0'/>", "");

	(void)state;
	assert_false(info->wants_vf);
	domain_free(info);
}

/* A message must name the value and what is allowed. */
static void test_bad_metadata_says_why(void **state)
{
	static const struct {
		const char *metadata, *says[2];
	} bad[] = {
		{VF("vguid='0x00a1b2fffe000101' pkey='0x8001'"), {"pf is missing", "pf0"}},
		{VF("pf='pf0' pkey='0x8001'"), {"vguid is missing", "16 hex digits"}},
		{VF("pf='pf0' vguid='0xzz' pkey='0x8001'"), {"\"0xzz\"", "16 hex digits"}},
		{VF("pf='pf0' vguid='0x0000000000000000' pkey='0x8001'"),
		 {"0x0000000000000000", "neither 0"}},
		{VF("pf='pf0' vguid='0x00a1b2fffe000101'"), {"pkey is missing", "0x0001"}},
		{VF("pf='pf0' vguid='0x00a1b2fffe000101' pkey='0x8000'"), {"0x8000", "0xffff"}},
		{VF("pf='pf0' vguid='0x00a1b2fffe000101' pkey='8001x'"), {"8001x", "0xffff"}},
		{VF(GOOD " strategy='fast'"), {"\"fast\"", "auto, native, late, early or cold"}},
		{VF("pf='pf0' vguid='0x00a1b2fffe000101' pkey='0x8001' index='16'"),
		 {"\"16\"", "0 to 7"}},
		{VF(GOOD " pci='77:00.1'"), {"\"77:00.1\"", "0000:3b:00.2"}},
		{VF(GOOD " pci='0000:77:00.x'"), {"\"0000:77:00.x\"", "0000:3b:00.2"}},
		{VF(GOOD) VF(GOOD), {"index 3", "0 to 7"}},
		{VF(GOOD) VF(TWIN), {"0x00a1b2fffe000101", "unique"}},
		{VF(GOOD " strategy='late'") VF(OTHER " strategy='early'"),
		 {"\"late\"", "\"early\""}},
		{VF(OTHER) VF(OTHER) VF(OTHER) VF(OTHER) VF(OTHER) VF(OTHER) VF(OTHER) VF(OTHER)
			 VF(OTHER),
		 {"9 <ibvmig:vf>", "8 VFs"}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct domain_info *info = parse(bad[i].metadata, "");

		assert_true(info->wants_vf);
		if (!info->problem)
			fail_msg("accepted: %s", bad[i].metadata);
		for (int k = 0; k < 2; k++)
			if (!strstr(info->problem, bad[i].says[k]))
				fail_msg("\"%s\" does not say \"%s\"", info->problem,
					 bad[i].says[k]);
		domain_free(info);
	}
}

static void test_long_pf_is_refused(void **state)
{
	char metadata[512], pf[200];

	(void)state;
	memset(pf, 'p', sizeof pf);
	pf[sizeof pf - 1] = '\0';
	snprintf(metadata, sizeof metadata, VF("pf='%s' vguid='0x00a1b2fffe000101' pkey='0x8001'"),
		 pf);
	struct domain_info *info = parse(metadata, "");
	assert_non_null(strstr(info->problem, "at most 63"));
	domain_free(info);
}

#define PORT(n) "<controller type='pci' index='" n "' model='pcie-root-port'/>"

static void test_free_root_port(void **state)
{
	struct domain_info *info = parse(
		VF(GOOD),
		"<controller type='pci' index='0' model='pcie-root'/>" PORT("1") PORT("2") PORT(
			"3") "<interface><address type='pci' bus='0x03' slot='0'/></interface>"
			     "<interface><address type='pci' bus='0x00' slot='1'/></interface>");

	(void)state;
	assert_int_equal(info->root_port_count, 2);
	assert_string_equal(info->root_ports[0], "pci.2");
	assert_string_equal(info->root_ports[1], "pci.1");
	domain_free(info);
	info = parse(VF(GOOD), PORT("1") "<disk><address type='pci' bus='0x01'/></disk>");
	assert_int_equal(info->root_port_count, 0);
	domain_free(info);
}

static void test_channel(void **state)
{
	struct domain_info *info = parse(
		"", "<channel type='unix'><source mode='bind' path='/run/other'/>"
		    "<target type='virtio' name='org.qemu.guest_agent.0'/>"
		    "<alias name='channel0'/></channel>"
		    "<channel type='unix'><source mode='bind' path='/run/ours'/>"
		    "<target type='virtio' name='org.ibvmig.0' state='connected'/>"
		    "<alias name='channel1'/></channel>");

	(void)state;
	assert_string_equal(info->channel_path, "/run/ours");
	assert_string_equal(info->channel_alias, "channel1");
	domain_free(info);
}

static void test_no_domain(void **state)
{
	static const char *const bad[] = {"",
					  "garbage",
					  "<domain/>",
					  "<domain><name>x</name><uuid>1</uuid></domain>",
					  "<domain><name>x</name>",
					  ("<!DOCTYPE d [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>"
					   "<domain><name>&x;</name></domain>")};
	struct domain_info *info = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(domain_parse(bad[i], strlen(bad[i]), &info), -EBADMSG);
	assert_null(info);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_metadata),
		cmocka_unit_test(test_two_rails),
		cmocka_unit_test(test_foreign_metadata_is_not_ours),
		cmocka_unit_test(test_bad_metadata_says_why),
		cmocka_unit_test(test_long_pf_is_refused),
		cmocka_unit_test(test_free_root_port),
		cmocka_unit_test(test_channel),
		cmocka_unit_test(test_no_domain),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
