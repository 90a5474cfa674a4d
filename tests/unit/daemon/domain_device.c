/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A device for the destination's QEMU in the XML that libvirt starts it with. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "daemon/libvirt/domain_device.h"
#include "daemon/libvirt/qmp.h"

#define NS " xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"
#define COMMANDS                                                                                   \
	"[{\"execute\":\"netdev_add\",\"arguments\":{\"type\":\"tap\",\"id\":\"n\"}},"             \
	"{\"execute\":\"device_add\",\"arguments\":{\"driver\":\"virtio-net-pci\"},"               \
	"\"migrates_state\":true}]"

static char error[HTTP_ERROR_MAX];

static char *with(const char *xml, const char *commands)
{
	const struct domain_plug plug = {.commands = commands, .dev_id = "ibvf0", .bus = "pci.5"};
	char *out = NULL;

	assert_int_equal(domain_with_devices(xml, &plug, commands ? 1 : 0, &out, error), 0);
	return out;
}

static unsigned count(const char *text, const char *word)
{
	unsigned n = 0;

	for (; text && (text = strstr(text, word)); text += strlen(word))
		n++;
	return n;
}

static void test_added(void **state)
{
	char *xml AUTO_FREE = with("<domain type='kvm'><name>g&amp;1</name></domain>", COMMANDS);

	(void)state;
	assert_non_null(strstr(xml, "xmlns:qemu=\"http://libvirt.org/schemas/domain/qemu/1.0\""));
	assert_non_null(strstr(xml, "<name>g&amp;1</name>"));
	assert_non_null(strstr(xml, "<qemu:arg value=\"-netdev\"/>"));
	assert_non_null(
		strstr(xml, "&quot;id&quot;:&quot;ibvf0&quot;,&quot;bus&quot;:&quot;pci.5"));
	assert_null(strstr(xml, "failover_pair_id"));
	assert_null(strstr(xml, "migrates_state"));
	assert_int_equal(count(xml, "<qemu:arg "), 4);
}

static void test_each_at_its_place(void **state)
{
	const struct domain_plug plugs[] = {
		{.commands = COMMANDS, .dev_id = "ibvf0", .bus = "pci.6"},
		{.commands = COMMANDS, .dev_id = "ibvf1", .bus = "pci.5"},
	};
	char *xml AUTO_FREE = NULL, *bare AUTO_FREE = NULL;

	(void)state;
	assert_int_equal(domain_with_devices("<domain/>", plugs, 2, &xml, error), 0);
	assert_non_null(
		strstr(xml, "&quot;id&quot;:&quot;ibvf0&quot;,&quot;bus&quot;:&quot;pci.6"));
	assert_non_null(
		strstr(xml, "&quot;id&quot;:&quot;ibvf1&quot;,&quot;bus&quot;:&quot;pci.5"));
	assert_int_equal(count(xml, "<qemu:arg "), 8);
	assert_int_equal(domain_with_devices(xml, NULL, 0, &bare, error), 0);
	assert_int_equal(count(bare, "<qemu:arg "), 0);
}

/* The device gets the property by which it can leave again in the VM's next migration. */
static void test_leaves_by(void **state)
{
	struct domain_plug plug = {
		.commands = COMMANDS, .dev_id = "ibvf0", .bus = "pci.5", .leaves_by = QMP_PAIR_ID};
	char *pair AUTO_FREE = NULL, *patched AUTO_FREE = NULL;

	(void)state;
	assert_int_equal(domain_with_devices("<domain/>", &plug, 1, &pair, error), 0);
	assert_non_null(strstr(pair, "&quot;failover_pair_id&quot;:&quot;ibvmig-none&quot;"));
	plug.leaves_by = QMP_LATE_DETACH;
	assert_int_equal(domain_with_devices("<domain/>", &plug, 1, &patched, error), 0);
	assert_non_null(strstr(patched, "&quot;x-late-detach&quot;:true"));
	assert_null(strstr(patched, "failover_pair_id"));
}

/* The VM's next migration takes away what the last one has added, and leaves what the user has. */
static void test_replaced_and_removed(void **state)
{
	static const char user[] = "<domain" NS "><qemu:commandline><qemu:arg value='-s'/>"
				   "<qemu:env name='USER' value='1'/></qemu:commandline></domain>";
	char *first AUTO_FREE = with(user, COMMANDS);
	char *second AUTO_FREE = with(first, COMMANDS);
	char *bare AUTO_FREE = with(second, NULL);

	(void)state;
	assert_int_equal(count(second, "<qemu:arg "), 5);
	assert_int_equal(count(second, "IBVMIG_ARGS"), 1);
	assert_int_equal(count(bare, "<qemu:arg "), 1);
	assert_non_null(strstr(bare, "value=\"-s\""));
	assert_non_null(strstr(bare, "name=\"USER\""));
	assert_int_equal(count(bare, "IBVMIG_ARGS"), 0);
}

static void test_nothing_to_change(void **state)
{
	(void)state;
	assert_null(with("<domain><name>g1</name></domain>", NULL));
	assert_null(with("<domain" NS "><qemu:commandline><qemu:arg value='-s'/>"
			 "</qemu:commandline></domain>",
			 NULL));
	/* this mark is not ours */
	assert_null(with("<domain" NS "><qemu:commandline><qemu:env name='IBVMIG_ARGS' "
			 "value='-3'/><qemu:arg value='-s'/></qemu:commandline></domain>",
			 NULL));
}

/* Somebody has taken out some of what was added: no device of ours may be left. */
static void test_a_mark_of_more_than_there_is(void **state)
{
	char *xml AUTO_FREE = with("<domain" NS "><qemu:commandline><qemu:arg value='-device'/>"
				   "<qemu:env name='IBVMIG_ARGS' value='4'/></qemu:commandline>"
				   "</domain>",
				   NULL);

	(void)state;
	assert_int_equal(count(xml, "<qemu:arg "), 0);
	assert_int_equal(count(xml, "IBVMIG_ARGS"), 0);
}

static void test_what_cannot_be(void **state)
{
	const struct domain_plug plug = {
		.commands = "[{\"execute\":\"getfd\",\"arguments\":{},\"file\":\"/x\"}]",
		.dev_id = "ibvf0",
		.bus = "pci.5",
	};
	char *out = NULL;

	(void)state;
	assert_int_equal(domain_with_devices("<domain/>", &plug, 1, &out, error), -EOPNOTSUPP);
	assert_non_null(strstr(error, "getfd"));
	assert_int_equal(domain_with_devices("<pool/>", NULL, 0, &out, error), -EBADMSG);
	assert_int_equal(domain_with_devices("<domain", NULL, 0, &out, error), -EBADMSG);
	assert_null(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_added),
		cmocka_unit_test(test_each_at_its_place),
		cmocka_unit_test(test_leaves_by),
		cmocka_unit_test(test_replaced_and_removed),
		cmocka_unit_test(test_nothing_to_change),
		cmocka_unit_test(test_a_mark_of_more_than_there_is),
		cmocka_unit_test(test_what_cannot_be),
	};

	return RUN_TESTS(tests);
}
