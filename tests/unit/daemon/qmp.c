/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How a VF gets into a QEMU of which nobody knows the version: a played monitor, with the
 * properties and the refusals of several. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/libvirt/virt.h"

#define UUID "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

enum pci_class { ETHERNET = 0x020000, INFINIBAND = 0x020700 };

/* The played QEMU. */
static struct {
	const char *properties; /* vfio-pci's, a JSON array; NULL: there is no such driver */
	const char *late;       /* answer about x-late-detach of a device, NULL: an error */
	enum pci_class vf;      /* the VF's own word */
	struct json_object
		*device; /* owned; the arguments of the device_add that it took, or NULL */
	unsigned netdevs, device_adds;
} qemu;

static char opened[256]; /* "+NODE;" when QEMU was let, "-NODE;" when not any more */

static char *device_add(struct json_object *args)
{
	uint64_t class = json_opt_u64(args, QMP_CLASS_CODE, qemu.vf);

	qemu.device_adds++;
	if (json_opt(args, QMP_PAIR_ID) && class != ETHERNET)
		return strdup("{\"error\":{\"class\":\"GenericError\",\"desc\":\"failover primary "
			      "device is not an Ethernet device\"}}");
	json_object_put(qemu.device);
	qemu.device = json_object_get(args);
	return strdup("{\"return\":{}}");
}

static char *properties(void)
{
	return qemu.properties ? strf("{\"return\":%s}", qemu.properties)
			       : strdup("{\"error\":{\"desc\":\"Device 'vfio-pci' not found\"}}");
}

static char *qom_get(struct json_object *args)
{
	assert_string_equal(json_opt_str(args, "path", ""), "/machine/peripheral/ibvf3");
	assert_string_equal(json_opt_str(args, "property", ""), QMP_LATE_DETACH);
	return strdup(qemu.late ? qemu.late : "{\"error\":{\"desc\":\"no such property\"}}");
}

int virt_monitor(struct virt *v, const char *uuid, const char *command, int fd, char **ret_answer,
		 char *error)
{
	struct json_object *c AUTO_JSON = NULL;
	const char *execute;

	(void)v;
	(void)fd;
	(void)error;
	assert_string_equal(uuid, UUID);
	assert_int_equal(json_parse(command, strlen(command), &c), 0);
	execute = json_opt_str(c, "execute", "");
	if (!strcmp(execute, "device_add"))
		*ret_answer = device_add(json_opt(c, "arguments"));
	else if (!strcmp(execute, "device-list-properties"))
		*ret_answer = properties();
	else if (!strcmp(execute, "netdev_add"))
		*ret_answer = strdup(qemu.netdevs++ ? "{\"error\":{\"desc\":\"Duplicate ID 'n0'\"}}"
						    : "{\"return\":{}}");
	else if (!strcmp(execute, "qom-get"))
		*ret_answer = qom_get(json_opt(c, "arguments"));
	else
		*ret_answer = strdup("{\"error\":{\"desc\":\"no such command\"}}");
	return 0;
}

int virt_let_open(struct virt *v, const char *uuid, const char *node, bool may, char *error)
{
	char *line AUTO_FREE = strf("%s%s%s;", opened, may ? "+" : "-", node);

	(void)v;
	assert_string_equal(uuid, UUID);
	snprintf(opened, sizeof opened, "%s", line);
	snprintf(error, HTTP_ERROR_MAX, "no");
	return strstr(node, "refused") ? -EPERM : 0;
}

int virt_allow_pinning(struct virt *v, const char *uuid, char *error)
{
	(void)v;
	(void)uuid;
	(void)error;
	return 0;
}

/* device_add of a vfio-pci with these arguments more, behind a netdev_add. */
static int attach(const char *more, bool *ret_stays, char *error)
{
	char *commands AUTO_FREE = strf(
		"[{\"execute\":\"netdev_add\",\"arguments\":{\"id\":\"n0\"}},{\"execute\":"
		"\"device_add\",\"arguments\":{\"driver\":\"vfio-pci\"%s}}]",
		more);

	return qmp_attach(NULL, UUID, commands, "ibvf0", "pci.5", ret_stays, error);
}

struct scene {
	const char *name, *properties;
	enum pci_class vf;
	const char *more; /* the provider's further properties */
	bool stays;
	const char *arguments; /* arguments of the device that QEMU then has */
};

#define OF_10_0      "[{\"name\":\"host\"}]"
#define OF_10_1      "[{\"name\":\"host\"},{\"name\":\"x-pci-class-code\"}]"
#define PATCHED_10_0 "[{\"name\":\"x-late-detach\"}]"
#define PATCHED_10_1 "[{\"name\":\"x-pci-class-code\"},{\"name\":\"x-late-detach\"}]"
#define AT           "\"driver\":\"vfio-pci\""
#define PLACE        ",\"id\":\"ibvf0\",\"bus\":\"pci.5\""
#define LATE         ",\"x-late-detach\":true"
#define PAIR         ",\"failover_pair_id\":\"ibvmig-none\""
#define ETH          ",\"x-pci-class-code\":131072"
#define OTHER        ",\"x-pci-class-code\":131072,\"rombar\":0"

static const struct scene scenes[] = {
	{"patched", PATCHED_10_0, INFINIBAND, "", false, "{" AT PLACE LATE "}"},
	{"patched 10.1: no other class", PATCHED_10_1, INFINIBAND, "", false,
	 "{" AT PLACE LATE "}"},
	{"10.1", OF_10_1, INFINIBAND, "", false, "{" AT PLACE PAIR ETH "}"},
	{"10.1, class of the provider", OF_10_1, INFINIBAND, OTHER, false,
	 "{" AT OTHER PLACE PAIR "}"},
	{"10.1, a class that QEMU refuses", OF_10_1, INFINIBAND, ",\"x-pci-class-code\":132864",
	 true, "{" AT ",\"x-pci-class-code\":132864" PLACE "}"},
	{"10.0, RoCE", OF_10_0, ETHERNET, "", false, "{" AT PLACE PAIR "}"},
	{"10.0: the VF works, and stays", OF_10_0, INFINIBAND, "", true, "{" AT PLACE "}"},
};

static void test_what_lets_it_leave(void **state)
{
	char error[HTTP_ERROR_MAX] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(scenes); i++) {
		const struct scene *s = &scenes[i];
		bool stays = !s->stays;

		qemu.properties = s->properties;
		qemu.vf = s->vf;
		qemu.netdevs = qemu.device_adds = 0;
		print_message("# %s\n", s->name);
		assert_int_equal(attach(s->more, &stays, error), 0);
		assert_int_equal(stays, s->stays);
		assert_int_equal(qemu.device_adds, s->stays ? 2 : 1);
		assert_string_equal(json_text(qemu.device), s->arguments);
	}
}

static void test_mark_of_one_that_stays(void **state)
{
	static const char commands[] = "[{\"execute\":\"netdev_add\"},{\"execute\":\"device_add\","
				       "\"migrates_state\":true}]";
	char *marked AUTO_FREE = qmp_mark_stays(commands);
	char *none AUTO_FREE = qmp_mark_stays("[]");

	(void)state;
	assert_false(qmp_device_flag(commands, QMP_STAYS));
	assert_true(qmp_device_flag(marked, QMP_STAYS));
	assert_true(qmp_device_flag(marked, QMP_MIGRATES_STATE));
	assert_string_equal(none, "[]");
}

static void test_other_refusals_are_errors(void **state)
{
	char error[HTTP_ERROR_MAX] = "";
	bool stays = true;

	(void)state;
	assert_int_equal(qmp_attach(NULL, UUID, "[{\"execute\":\"other\"}]", "ibvf0", "pci.5",
				    &stays, error),
			 -EREMOTEIO);
	assert_false(stays);
	assert_string_equal(error, "QEMU refused other: no such command");
}

#define OPENS                                                                                      \
	"[{\"execute\":\"device_add\",\"arguments\":{\"driver\":\"vfio-pci\"},\"opens\":["         \
	"\"" QMP_VFIO_CONTAINER "\",\"/dev/vfio/7\",\"/dev/refused\"]}]"

/* Before the device is added; a refusal is QEMU's to judge. The container stays. */
static void test_nodes_that_qemu_opens(void **state)
{
	char error[HTTP_ERROR_MAX] = "";
	bool stays;

	(void)state;
	qemu.properties = PATCHED_10_0;
	qemu.vf = INFINIBAND;
	qemu.device_adds = 0;
	assert_int_equal(qmp_attach(NULL, UUID, OPENS, "ibvf0", "pci.5", &stays, error), 0);
	assert_string_equal(opened, "+/dev/vfio/vfio;+/dev/vfio/7;+/dev/refused;");
	assert_int_equal(qemu.device_adds, 1);
	opened[0] = '\0';
	qmp_take_back(NULL, UUID, OPENS);
	assert_string_equal(opened, "-/dev/vfio/7;-/dev/refused;");
}

static bool keeps(const char *driver, const char *late, bool emulated_too)
{
	char *commands AUTO_FREE = strf(
		"[{\"execute\":\"netdev_add\"},{\"execute\":\"device_add\",\"arguments\":"
		"{\"driver\":\"%s\"}}]",
		driver);
	char error[HTTP_ERROR_MAX] = "";
	bool is = !late;

	qemu.late = late;
	assert_int_equal(qmp_keeps_vm(NULL, UUID, commands, "ibvf3", emulated_too, &is, error), 0);
	return is;
}

static void test_what_keeps_the_vm(void **state)
{
	(void)state;
	assert_true(keeps("vfio-pci", "{\"return\":true}", true));
	assert_false(keeps("vfio-pci", "{\"return\":false}", true));
	assert_false(keeps("vfio-pci", NULL, true)); /* QEMU as it is */
	assert_false(keeps("vfio-pci-nohotplug", NULL, true));
	assert_true(keeps("virtio-net-pci", NULL, true));   /* nobody there can load its state */
	assert_false(keeps("virtio-net-pci", NULL, false)); /* pre-attached there */
	assert_true(keeps("virtio-net-pci", "{\"return\":true}", false));
}

static int teardown(void **state)
{
	(void)state;
	json_object_put(qemu.device);
	qemu.device = NULL;
	return 0;
}

int main(void)
{
	const struct CMUnitTest daemon_qmp[] = {
		cmocka_unit_test_teardown(test_what_lets_it_leave, teardown),
		cmocka_unit_test(test_mark_of_one_that_stays),
		cmocka_unit_test(test_other_refusals_are_errors),
		cmocka_unit_test_teardown(test_nodes_that_qemu_opens, teardown),
		cmocka_unit_test(test_what_keeps_the_vm),
	};

	return RUN_TESTS(daemon_qmp);
}
