/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Users of the VF in the guest's kernel, as RDMA netlink lists QPs. */
#include "tests/unit/tap.h"

#include <sys/stat.h>
#include <unistd.h>

#include "guest-agent/agent/kernel.c"

/* The guest's first vGUID is on rdma0. */
int agent_device_find(uint64_t vguid, char ret_name[static SHIM_DEVICE_MAX])
{
	if (vguid != 1)
		return -ENODEV;
	strcpy(ret_name, "rdma0");
	return -ENETDOWN; /* a device is there before its port is ACTIVE */
}

static struct agent agent = {.vf_count = 2, .vf = {2, 1}};

static struct nl_msg *message(uint32_t index, const char *name)
{
	struct nl_msg *msg = nlmsg_alloc_simple(RDMA_NLDEV_CMD_GET, 0);

	nla_put_u32(msg, RDMA_NLDEV_ATTR_DEV_INDEX, index);
	nla_put_string(msg, RDMA_NLDEV_ATTR_DEV_NAME, name);
	return msg;
}

/* A QP or a CM id; module NULL: a process has it. */
static void add_entry(struct nl_msg *msg, int type, uint32_t qpn, const char *module,
		      enum ibv_qp_state state)
{
	struct nlattr *entry = nla_nest_start(msg, type);

	nla_put_u32(msg, RDMA_NLDEV_ATTR_RES_LQPN, qpn);
	nla_put_u8(msg, RDMA_NLDEV_ATTR_RES_STATE, (uint8_t)state);
	if (module)
		nla_put_string(msg, RDMA_NLDEV_ATTR_RES_KERN_NAME, module);
	else
		nla_put_u32(msg, RDMA_NLDEV_ATTR_RES_PID, 4711);
	nla_nest_end(msg, entry);
}

static void add_qp(struct nl_msg *msg, const char *module, enum ibv_qp_state state)
{
	add_entry(msg, RDMA_NLDEV_ATTR_RES_QP_ENTRY, 17, module, state);
}

static void test_only_our_devices(void **state)
{
	static const char *const names[] = {"rdma1", "rdma0", "rdma2"};
	struct walk w = {.agent = &agent};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct nl_msg *msg = message(i + 5, names[i]);

		on_device(msg, &w);
		nlmsg_free(msg);
	}
	assert_int_equal(w.count, 1);
	assert_int_equal(w.devices[0], 6);
}

static void test_modules_by_name(void **state)
{
	static const char *const modules[] = {"ib_core", NULL,      "ib_ipoib", "ib_ipoib",
					      "rpcrdma", "new_one", "mlx5_ib"};
	struct json_object *list AUTO_JSON = json_object_new_array();
	struct walk w = {.agent = &agent, .list = list};
	struct nl_msg *msg = message(6, "rdma0");
	struct nlattr *qps = nla_nest_start(msg, RDMA_NLDEV_ATTR_RES_QP);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(modules); i++)
		add_qp(msg, modules[i], IBV_QPS_RTS);
	add_qp(msg, "ib_srp", IBV_QPS_RESET);
	nla_nest_end(msg, qps);
	on_qps(msg, &w);
	nlmsg_free(msg);
	assert_string_equal(
		json_text(list),
		"[{\"device\":\"rdma0\",\"module\":\"ib_ipoib\",\"what\":\"IPoIB (on rdma0)\"},"
		"{\"device\":\"rdma0\",\"module\":\"rpcrdma\",\"what\":\"NFS/RDMA (on rdma0)\"},"
		"{\"device\":\"rdma0\",\"module\":\"new_one\","
		"\"what\":\"kernel module new_one (on rdma0)\"}]");
}

/* SRP at both ends, and a third one whose CM id has not been seen. */
static void test_modules_behind_the_rdma_cm(void **state)
{
	static const char *const owners[] = {NULL, "ib_srpt", "ib_srp"};
	struct json_object *list AUTO_JSON = json_object_new_array();
	struct json_object *callers AUTO_JSON = json_object_new_object();
	struct walk w = {.agent = &agent, .list = list, .callers = callers};
	struct nl_msg *ids = message(6, "rdma0"), *qps = message(6, "rdma0");
	struct nlattr *id_table = nla_nest_start(ids, RDMA_NLDEV_ATTR_RES_CM_ID),
		      *qp_table = nla_nest_start(qps, RDMA_NLDEV_ATTR_RES_QP);

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(owners); i++) {
		add_entry(ids, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY, 16 + i, owners[i], IBV_QPS_RTS);
		add_entry(qps, RDMA_NLDEV_ATTR_RES_QP_ENTRY, 17 + i, "rdma_cm", IBV_QPS_RTS);
	}
	nla_nest_end(ids, id_table);
	nla_nest_end(qps, qp_table);
	on_cm_ids(ids, &w);
	on_qps(qps, &w);
	nlmsg_free(ids);
	nlmsg_free(qps);
	assert_string_equal(
		json_text(list),
		"[{\"device\":\"rdma0\",\"module\":\"ib_srpt\",\"what\":\"an SRP target (on "
		"rdma0)\"},"
		"{\"device\":\"rdma0\",\"module\":\"ib_srp\",\"what\":\"SRP (on rdma0)\"},"
		"{\"device\":\"rdma0\",\"module\":\"rdma_cm\","
		"\"what\":\"kernel module rdma_cm (on rdma0)\"}]");
}

static void test_a_device_without_qps(void **state)
{
	struct json_object *list AUTO_JSON = json_object_new_array();
	struct walk w = {.agent = &agent, .list = list};
	struct nl_msg *msg = message(6, "rdma0");

	(void)state;
	on_qps(msg, &w);
	nlmsg_free(msg);
	assert_int_equal(json_count(list), 0);
}

static void write_line(const char *dir, const char *interface, const char *name, const char *text)
{
	char *path AUTO_FREE = strf("%s/%s/%s", dir, interface, name);
	FILE *f AUTO_FILE = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
}

/* An interface as sysfs shows it. */
static void set_interface(const char *dir, const char *name, const char *type, const char *flags)
{
	char *path AUTO_FREE = strf("%s/%s", dir, name);

	mkdir(path, 0700);
	write_line(dir, name, "type", type);
	write_line(dir, name, "flags", flags);
}

static void remove_interface(const char *dir, const char *name)
{
	char *path AUTO_FREE = strf("%s/%s", dir, name), *type AUTO_FREE = strf("%s/type", path),
		   *flags AUTO_FREE = strf("%s/flags", path);

	unlink(type);
	unlink(flags);
	rmdir(path);
}

static unsigned found_in(const char *net)
{
	struct json_object *list AUTO_JSON = json_object_new_array();

	add_ipoib(list, "rdma0", net);
	if (json_count(list))
		assert_string_equal(json_text(list),
				    "[{\"device\":\"rdma0\",\"module\":\"ib_ipoib\","
				    "\"what\":\"IPoIB (on rdma0)\"}]");
	return (unsigned)json_count(list);
}

static void test_interfaces_that_are_up(void **state)
{
	char dir[] = "/tmp/ibvmig-net-XXXXXX";

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(found_in("/nowhere"), 0);
	set_interface(dir, "eth0", "1\n", "0x1003\n");
	set_interface(dir, "ib0", "32\n", "0x1002\n");
	assert_int_equal(found_in(dir), 0);
	set_interface(dir, "ib0.8001", "32\n", "0x1043\n");
	assert_int_equal(found_in(dir), 1);
	set_interface(dir, "ib0", "32\n", "0x1003\n");
	assert_int_equal(found_in(dir), 1); /* named once */
	remove_interface(dir, "eth0");
	remove_interface(dir, "ib0");
	remove_interface(dir, "ib0.8001");
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_our_devices),
		cmocka_unit_test(test_modules_by_name),
		cmocka_unit_test(test_modules_behind_the_rdma_cm),
		cmocka_unit_test(test_a_device_without_qps),
		cmocka_unit_test(test_interfaces_that_are_up),
	};

	return RUN_TESTS(tests);
}
