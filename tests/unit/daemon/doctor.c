/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Traps of a host are set, and found; without them all is well. The host's files are a folder. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/report/doctor.h"
#include "daemon/store/lease.h"

#define PF "/sys/class/infiniband/mlx5_0"
#define VF "/sys/class/infiniband/mlx5_2"

static char root[64];
static struct doctor d;

/* ---- the host's files ---- */

static void make_folders(char *path)
{
	for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(path, 0755);
		*p = '/';
	}
}

static void put(const char *path, const char *text)
{
	char *full AUTO_FREE = strf("%s%s", root, path);
	FILE *f;

	make_folders(full);
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void drop(const char *path)
{
	char *full AUTO_FREE = strf("%s%s", root, path);

	assert_int_equal(remove(full), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* A good host: an InfiniBand PF, and a VF of it that the host drives itself. */
static int setup(void **state)
{
	(void)state;
	strcpy(root, "/tmp/ibvmig-doctor-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	d = (struct doctor){.root = root, .found = json_object_new_array()};
	put(PF "/device/sriov_numvfs", "2\n");
	put(PF "/ports/1/link_layer", "InfiniBand\n");
	put(PF "/ports/1/state", "4: ACTIVE\n");
	put(VF "/device/physfn/infiniband/mlx5_0/node_guid", "b8ce:f603:0012:3456\n");
	put(VF "/ports/1/link_layer", "InfiniBand\n");
	put(VF "/ports/1/state", "4: ACTIVE\n");
	put("/sys/module/ib_ipoib/refcnt", "0\n");
	put("/etc/libvirt/hooks/qemu.d/ibvmig", "");
	put("/proc/77/limits", "Max open files            1024                 4096     files\n"
			       "Max locked memory         2147483648           2147483648 bytes\n");
	char *hook AUTO_FREE = strf("%s/etc/libvirt/hooks/qemu.d/ibvmig", root);
	return chmod(hook, 0755);
}

static int teardown(void **state)
{
	(void)state;
	json_object_put(d.found);
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- findings ---- */

static struct json_object *finding(const char *check, const char *verdict)
{
	for (size_t i = 0; i < json_object_array_length(d.found); i++) {
		struct json_object *o = json_object_array_get_idx(d.found, i);

		if (str_eq(json_opt_str(o, "check", ""), check) &&
		    str_eq(json_opt_str(o, "verdict", ""), verdict))
			return o;
	}
	return NULL;
}

static void clear(void)
{
	json_object_put(d.found);
	d.found = json_object_new_array();
}

static void expect_well(void)
{
	assert_true(json_object_array_length(d.found) > 0);
	if (strstr(json_text(d.found), "\"bad\"") || strstr(json_text(d.found), "\"warning\"") ||
	    strstr(json_text(d.found), "\"skipped\""))
		fail_msg("all should be well: %s", json_text(d.found));
	clear();
}

/* The finding must name word, and a way out. */
static void expect(const char *check, const char *verdict, const char *word)
{
	struct json_object *o = finding(check, verdict);

	if (!o)
		fail_msg("no %s finding of %s: %s", verdict, check, json_text(d.found));
	if (!strstr(json_text(o), word))
		fail_msg("it does not name %s: %s", word, json_text(o));
	if (strcmp(verdict, "skipped"))
		assert_non_null(json_opt_str(o, "fix", NULL));
	clear();
}

static struct json_object *parse(const char *text)
{
	struct json_object *o = json_tokener_parse(text);

	assert_non_null(o);
	return o;
}

static void look_at_files(void)
{
	doctor_ipoib(&d);
	doctor_ports(&d);
	doctor_hook(&d);
}

static void test_good_host(void **state)
{
	(void)state;
	assert_true(doctor_has_ib(&d));
	look_at_files();
	doctor_memlock(&d, "g1", 77, 2147483648);
	expect_well();
}

static void test_ipoib(void **state)
{
	(void)state;
	drop("/sys/module/ib_ipoib/refcnt");
	drop("/sys/module/ib_ipoib");
	doctor_ipoib(&d);
	expect("ipoib", "bad", "modprobe ib_ipoib");
}

static void test_port_without_virtualization(void **state)
{
	(void)state;
	put(VF "/ports/1/state", "1: DOWN\n");
	doctor_ports(&d);
	expect("port", "bad", "virt_enabled");
	put(PF "/ports/1/state", "2: INIT\n");
	doctor_ports(&d);
	expect("port", "bad", "sminfo");
}

static void test_lease(void **state)
{
	char *dir AUTO_FREE = strf("%s/leases", root);
	int claim;

	(void)state;
	doctor_lease(&d, "/leases");
	expect("lease", "warning", "systemctl enable --now ibvmig-lease");
	claim = lease_claim(dir);
	assert_true(claim >= 0);
	assert_int_equal(lease_claim(dir), -EWOULDBLOCK);
	doctor_lease(&d, "/leases");
	assert_non_null(finding("lease", "ok"));
	close(claim);
	assert_false(lease_is_claimed(dir));
}

static void test_hook(void **state)
{
	char *hook AUTO_FREE = strf("%s/etc/libvirt/hooks/qemu.d/ibvmig", root);

	(void)state;
	drop("/etc/libvirt/hooks/qemu.d/ibvmig");
	doctor_hook(&d);
	expect("hook", "bad", "make install");
	put("/etc/libvirt/hooks/qemu.d/ibvmig", "");
	chmod(hook, 0644);
	/* root may execute nothing either that nobody may */
	doctor_hook(&d);
	expect("hook", "bad", "not executable");
}

static void test_memlock(void **state)
{
	(void)state;
	doctor_memlock(&d, "g1", 77, 2147483649);
	expect("memlock", "bad", "hard_limit");
	doctor_memlock(&d, "g1", 78, 5);
	expect("memlock", "skipped", "g1");
	put("/proc/77/limits", "Max locked memory         unlimited            unlimited bytes\n");
	doctor_memlock(&d, "g1", 77, UINT64_MAX);
	expect_well();
}

static void test_host_without_hca(void **state)
{
	(void)state;
	d.root = "/nonexistent";
	look_at_files();
	d.root = root;
	assert_non_null(finding("ipoib", "skipped"));
	expect("port", "skipped", "no InfiniBand PF");
}

/* ---- what others say ---- */

static void inventory(const char *vfs, const char *why)
{
	struct json_object *list AUTO_JSON = parse(vfs);

	doctor_inventory(&d, list, why);
}

#define FREE_VF(name, guid) "{\"name\":\"" name "\",\"parked_guid\":\"" guid "\"}"

static void test_inventory(void **state)
{
	(void)state;
	inventory("[" FREE_VF("f1", "0x1") "," FREE_VF("f2", "0x2") "]", "");
	expect_well();
	inventory("[" FREE_VF("f1", "0xa") "," FREE_VF("f2", "0xA") "]", "");
	expect("duplicate-guid", "bad", "f2 and f1");
	inventory("[" FREE_VF("f1", "0xa") ",{\"name\":\"f2\",\"parked_guid\":\"0x2\",\"vguid\":"
					   "\"0xa\"}]",
		  "");
	expect("duplicate-guid", "bad", "f2 and f1");
	inventory("[]", "");
	expect("inventory", "bad", "sriov_numvfs");
	inventory("[]", "no such program");
	expect("inventory", "bad", "no such program");
}

static void agents(const char *text)
{
	struct json_object *vms AUTO_JSON = parse(text);

	doctor_agents(&d, vms);
}

static void test_agents(void **state)
{
	(void)state;
	agents("[{\"name\":\"g1\",\"agent\":{\"state\":\"up\",\"version\":\"1\"}}]");
	expect_well();
	agents("[{\"name\":\"g1\",\"agent\":{\"state\":\"waiting\"}}]");
	expect("agent", "bad", "start ibvmig-agent");
	agents("[{\"name\":\"g1\",\"agent\":{\"state\":\"none\"}}]");
	expect("agent", "bad", "org.ibvmig.0");
	agents("[{\"name\":\"g1\",\"problem\":\"no VF is free\",\"agent\":{\"state\":\"up\"}}]");
	expect("vm", "bad", "no VF is free");
	agents("[]");
	expect("agent", "skipped", "no VM");
}

/* state and whether it migrates, and what its agent tells of its VF. */
static void guest_ports(const char *state, const char *migrates, const char *told)
{
	char *text AUTO_FREE = strf("[{\"name\":\"g1\",\"state\":\"%s\",\"migrates\":%s,"
				    "\"vfs\":[{\"vguid\":\"0x1\",\"vf\":\"vf3\"}]%s}]",
				    state, migrates, told);
	struct json_object *vms AUTO_JSON = parse(text);

	doctor_guest_ports(&d, vms);
}

#define TOLD(guid, port) ",\"guest_vfs\":[{\"vguid\":\"" guid "\",\"port\":\"" port "\"}]"

static void test_guest_ports(void **state)
{
	(void)state;
	guest_ports("attached", "false", TOLD("0x1", "active"));
	expect_well();
	guest_ports("attached", "false", TOLD("0x1", "down"));
	expect("guest-port", "bad", "virt_enabled 2");
	guest_ports("attached", "false", TOLD("0x1", "none"));
	expect("guest-port", "bad", "modprobe mlx5_ib");
	guest_ports("attached", "false", TOLD("0x2", "active"));
	expect("guest-port", "skipped", "g1, VF vf3");
	guest_ports("attached", "false", "");
	expect("guest-port", "skipped", "g1, VF vf3");
	/* The guest has no VF, or may have it elsewhere. */
	guest_ports("without-vf", "false", TOLD("0x1", "none"));
	guest_ports("attached", "true", TOLD("0x1", "none"));
	assert_int_equal(json_object_array_length(d.found), 0);
}

static void sm(const char *text)
{
	struct json_object *status AUTO_JSON = parse(text);

	doctor_sm(&d, status, "");
}

static void test_sm(void **state)
{
	(void)state;
	sm("{\"sm\":{\"plugin\":true,\"state\":\"master\",\"plugin_version\":\"" IBVMIG_VERSION
	   "\"}}");
	expect_well();
	sm("{\"sm\":{\"plugin\":false,\"error\":\"nobody listens\"}}");
	expect("plugin", "bad", "nobody listens");
	sm("{\"sm\":{\"plugin\":true,\"state\":\"master\",\"plugin_version\":\"0.0.9\"}}");
	expect("plugin", "bad", "0.0.9");
	sm("{\"sm\":{\"plugin\":true,\"state\":\"master\",\"backend\":\"ufm\",\"plugin_version\":"
	   "\"6."
	   "14\"}}");
	expect_well();
	sm("{\"sm\":{\"plugin\":true,\"state\":\"standby\",\"plugin_version\":\"" IBVMIG_VERSION
	   "\"}}");
	expect("sm", "bad", "standby");
	doctor_sm(&d, NULL, "connection refused");
	expect("sm", "bad", "connection refused");
}

static void test_duplicate_vguids(void **state)
{
	struct json_object *vms AUTO_JSON = parse(
		"[{\"uuid\":\"u1\",\"name\":\"g1\",\"vfs\":[{\"vguid\":\"0x2\"},{\"vguid\":"
		"\"0x00a1b2fffe000101\"}]}]");
	struct json_object *ours AUTO_JSON = parse("[{\"vguid\":\"0x00A1B2fffe000101\",\"vm\":"
						   "\"u1\"}]");
	struct json_object *others AUTO_JSON = parse("[{\"vguid\":\"0x00a1b2fffe000101\",\"vm\":"
						     "\"u2\",\"name\":\"g9\",\"host\":\"hostc\"}]");
	struct json_object *both AUTO_JSON = parse(
		"[{\"uuid\":\"u1\",\"name\":\"g1\",\"vfs\":[{\"vguid\":\"0x3\"},{\"vguid\":\"0x1"
		"\"}]},{\"uuid\":\"u2\",\"name\":\"g2\",\"vfs\":[{\"vguid\":\"0x2\"},{\"vguid\":"
		"\"0x1\"}]}]");

	(void)state;
	doctor_duplicates(&d, vms, ours);
	expect_well();
	doctor_duplicates(&d, vms, others);
	expect("duplicate-vguid", "bad", "g9 on host hostc");
	doctor_duplicates(&d, both, NULL);
	expect("duplicate-vguid", "bad", "g2 and g1");
}

#define MEMBER(guid, pkeys, shown) "{\"guid\":\"" guid "\",\"pkeys\":" pkeys ",\"shown\":" shown "}"

static const char *no_word = "\"why\":\"no word\",";

static void partitions(const char *guids, const char *used)
{
	char *vms_text AUTO_FREE = strf("[{\"name\":\"g1\",\"vfs\":[{\"vguid\":"
					"\"0x00a1b2fffe000101\",\"pkey\":\"0x8001\"}],"
					"\"guest_pkeys\":[%s]}]",
					used);
	char *answer_text AUTO_FREE = strf("{%s\"guids\":[%s]}", no_word, guids);
	struct json_object *vms AUTO_JSON = parse(vms_text), *answer AUTO_JSON = parse(answer_text);
	struct json_object *vfs AUTO_JSON = parse(
		"[{\"name\":\"pf0vf0\",\"parked_guid\":\"0x1001\",\"vguid\":\"0x00a1b2fffe000101\"}"
		","
		"{\"name\":\"pf0vf1\",\"parked_guid\":\"0x0000000000001002\"}]");

	doctor_partitions(&d, vms, vfs, answer);
}

/* What the subnet manager gives the vGUID, what the guest's QPs use, and what ports still have. */
static void test_partitions(void **state)
{
	static const char vguid[] = MEMBER("0x00a1b2fffe000101", "[\"0x7fff\",\"0x8001\"]",
					   "[\"0x7fff\",\"0x8001\"]");

	(void)state;
	partitions(vguid, "");
	expect_well();
	partitions(MEMBER("0x00a1b2fffe000101", "[\"0x0001\"]", "null"), "");
	assert_non_null(
		strstr(json_text(d.found), "a limited member of the partition of PKey 0x8001"));
	expect_well();
	partitions(MEMBER("0x00a1b2fffe000101", "[\"0x7fff\"]", "null"), "");
	expect("pkey", "bad", "is no member of the partition of PKey 0x8001");
	partitions(MEMBER("0x00a1b2fffe000101", "null", "null"), "");
	expect("pkey", "skipped", "no word");
	partitions(
		vguid,
		"{\"vguid\":\"0x00a1b2fffe000101\",\"pkey\":\"0x8002\",\"pid\":12,\"comm\":\"x\"}");
	expect("guest-pkey", "bad", "process 12 (x) has QPs with PKey 0x8002");
	partitions(MEMBER("0x0000000000001002", "[\"0x7fff\"]", "[\"0x7fff\",\"0x8001\"]"), "");
	expect("leftover-pkey", "bad",
	       "its port has PKey 0x8001, and GUID 0x0000000000001002 has no right");
	no_word = "";
	partitions(vguid, "");
	assert_non_null(strstr(json_text(d.found), "none of 1 ports has a PKey"));
	expect_well();
	partitions(MEMBER("0x00a1b2fffe000101", "[\"0x8001\"]", "null"), "");
	expect("leftover-pkey", "skipped", "sees no port of a VF");
}

static void peer(const char *text)
{
	struct json_object *vms AUTO_JSON = parse(
		"[{\"name\":\"g1\",\"vfs\":[{\"pf\":\"pf0\",\"pkey\":\"0xffff\"},{\"pf\":\"pf0\","
		"\"pkey\":\"0x8001\"}]}]");
	struct json_object *status AUTO_JSON = parse(text);

	doctor_peer(&d, "hostb", vms, status, "");
}

#define PEER(version, pf, pkeys, vms)                                                              \
	"{\"version\":\"" version "\",\"pfs\":[{\"name\":\"" pf "\",\"pkeys\":[" pkeys "]}],"      \
	"\"vfs\":[{\"vm\":\"x\"}" vms "]}"

static void test_peers(void **state)
{
	(void)state;
	peer(PEER(IBVMIG_VERSION, "pf0", "\"0xffff\",\"0x8001\"", ",{}"));
	expect_well();
	peer(PEER(IBVMIG_VERSION, "pf0", "\"0xffff\"", ",{}"));
	expect_well(); /* a PF outside the VM's partition */
	peer(PEER(IBVMIG_VERSION, "pf7", "\"0x8001\"", ",{}"));
	expect("pf", "bad", "no PF");
	peer(PEER("0.0.9", "pf0", "\"0x8001\"", ",{}"));
	expect("peer", "warning", "0.0.9");
	peer(PEER(IBVMIG_VERSION, "pf0", "\"0x8001\"", ""));
	expect("peer", "warning", "none of its 1 VFs is free");
	peer("{\"version\":\"" IBVMIG_VERSION "\",\"drained\":true}");
	expect("peer", "warning", "it is drained");
	doctor_drained(&d, "hosta", false);
	expect_well();
	doctor_drained(&d, "hosta", true);
	expect("drained", "warning", "no VM with a VF can migrate to it, or start there");
	doctor_peer(&d, "hostb", NULL, NULL, "no route to host");
	expect("peer", "bad", "no route to host");
}

static void qemu(const char *text)
{
	struct json_object *properties AUTO_JSON = parse(text);

	doctor_qemu(&d, "g1", properties);
}

static void test_qemu(void **state)
{
	(void)state;
	qemu("[{\"name\":\"host\"},{\"name\":\"x-pci-class-code\"}]");
	expect_well();
	qemu("[{\"name\":\"x-late-detach\"}]");
	expect_well();
	qemu("[{\"name\":\"host\"}]");
	expect("qemu", "bad", "10.1");
	doctor_qemu(&d, "g1", NULL);
	expect("qemu", "skipped", "g1");
	doctor_qemu(&d, NULL, NULL);
	expect("qemu", "skipped", "no VM with a VF");
}

static void sm_certificate(const char *text)
{
	struct json_object *status AUTO_JSON = parse(text);

	doctor_sm_certificate(&d, status, 1800000000);
}

static void test_certificate(void **state)
{
	const int64_t now = 1800000000, day = 86400;

	(void)state;
	doctor_certificate(&d, true, true, now + 30 * day, now);
	expect_well();
	doctor_certificate(&d, true, true, now + 30 * day - 1, now);
	expect("certificate", "warning", "expires in 29 days");
	doctor_certificate(&d, true, true, now, now);
	expect("certificate", "bad", "has expired");
	doctor_certificate(&d, true, false, 0, now);
	expect("certificate", "warning", "ibvmig-certs");
	doctor_certificate(&d, false, false, 0, now);
	expect("certificate", "skipped", "listen");
	sm_certificate("{\"certificate_ends_ms\":1802592000000}");
	expect_well();
	sm_certificate("{\"certificate_ends_ms\":1802591999000}");
	expect("certificate", "warning", "expires in 29 days");
	sm_certificate("{\"certificate_ends_ms\":1800000000000}");
	expect("certificate", "bad", "has expired");
	/* ibvmig-sm is on AF_UNIX, or has no certificate. */
	sm_certificate("{}");
	assert_int_equal(json_object_array_length(d.found), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_good_host, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ipoib, setup, teardown),
		cmocka_unit_test_setup_teardown(test_port_without_virtualization, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hook, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lease, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memlock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_host_without_hca, setup, teardown),
		cmocka_unit_test_setup_teardown(test_inventory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_agents, setup, teardown),
		cmocka_unit_test_setup_teardown(test_guest_ports, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sm, setup, teardown),
		cmocka_unit_test_setup_teardown(test_duplicate_vguids, setup, teardown),
		cmocka_unit_test_setup_teardown(test_partitions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_peers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_qemu, setup, teardown),
		cmocka_unit_test_setup_teardown(test_certificate, setup, teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
