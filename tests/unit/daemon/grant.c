/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Device nodes for a running process, on this machine's kernel. The process is another user's, with
 * a /dev of its own, in device cgroups of both versions as libvirt makes them. Only the cgroups are
 * seen outside this process's mount namespace, and they go with it. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/http/client.h"
#include "common/util.h"
#include "daemon/libvirt/grant.h"

#define NODE    "/dev/vfio/7"
#define ZERO    makedev(1, 5) /* a device whose driver is always there */
#define USER    65534
#define CGROUP1 "/sys/fs/cgroup/devices"
#define CGROUP2 "/dev/cgroup2"

static char error[HTTP_ERROR_MAX];

/* The played QEMU: opens NODE when it is asked to, and says errno. */
static struct {
	pid_t pid;
	int fd;
} qemu;

static bool set_up;     /* the steps that need root's rights were allowed */
static char *own_group; /* QEMU's device cgroup of version 1, which no one else is in; NULL: none */

static int own_dev(void)
{
	return unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
			       mount("none", "/dev", "tmpfs", 0, "mode=755")
		       ? -errno
		       : 0;
}

static void setup(void)
{
	set_up = !own_dev() && !mkdir("/dev/vfio", 0755) && !mknod(NODE, S_IFCHR | 0600, ZERO);
	if (set_up && !mkdir(CGROUP2, 0755))
		mount("none", CGROUP2, "cgroup2", 0, NULL);
	own_group = strf(CGROUP1 "/ibvmig-test-%d", (int)getpid());
	if (mkdir(own_group, 0755))
		free(TAKE(own_group));
}

static void put(const char *path, const char *text)
{
	int fd AUTO_CLOSE = open(path, O_WRONLY | O_CLOEXEC);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void qemu_main(int fd)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (own_dev() || setgid(USER) || setuid(USER))
		_exit(1);
	for (byte = 0; write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1;) {
		int node = open(NODE, O_RDWR | O_CLOEXEC);

		byte = node < 0 ? (char)errno : 0;
		if (node >= 0)
			close(node);
	}
	_exit(0);
}

static void join(const char *cgroup)
{
	char *procs AUTO_FREE = strf("%s/cgroup.procs", cgroup);

	put(procs, "0");
}

/* cgroup2: its folder in version 2, or NULL. */
static void start_qemu(const char *cgroup2)
{
	char ready;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	qemu.pid = fork();
	if (!qemu.pid) {
		close(fds[0]);
		if (own_group)
			join(own_group);
		if (cgroup2)
			join(cgroup2);
		qemu_main(fds[1]);
	}
	close(fds[1]);
	qemu.fd = fds[0];
	assert_int_equal(read(qemu.fd, &ready, 1), 1);
}

static void stop_qemu(void)
{
	close(qemu.fd);
	assert_int_equal(waitpid(qemu.pid, NULL, 0), qemu.pid);
}

/* errno of QEMU's open(). */
static int opens(void)
{
	char byte = 'o';

	assert_int_equal(write(qemu.fd, &byte, 1), 1);
	assert_int_equal(read(qemu.fd, &byte, 1), 1);
	return byte;
}

/* QEMU's own node, so that only the cgroup is in the way. */
static void node_there(void)
{
	char *dir AUTO_FREE = strf("/proc/%d/root/dev/vfio", (int)qemu.pid);
	char *path AUTO_FREE = strf("%s/7", dir);

	assert_true(!mkdir(dir, 0755) || errno == EEXIST);
	assert_int_equal(mknod(path, S_IFCHR | 0600, ZERO), 0);
	assert_int_equal(chown(path, USER, USER), 0);
}

static void grant(void)
{
	if (grant_node(qemu.pid, NODE, error))
		fail_msg("%s", error);
}

static void take_back(void)
{
	if (grant_take_back(qemu.pid, NODE, error))
		fail_msg("%s", error);
}

static void test_mount_namespace(void **state)
{
	(void)state;
	if (!set_up)
		skip();
	umask(0077); /* the daemon's may be narrow */
	start_qemu(NULL);
	assert_int_equal(opens(), ENOENT);
	grant();
	assert_int_equal(opens(), 0);
	grant();
	assert_int_equal(opens(), 0);
	take_back();
	assert_int_equal(opens(), ENOENT);
	take_back();
	stop_qemu();
	umask(0022);
}

static void list_of(const char *dir, char text[static 256])
{
	char *path AUTO_FREE = strf("%s/devices.list", dir), *data AUTO_FREE = NULL;

	assert_int_equal(read_file(path, 255, &data, NULL), 0);
	snprintf(text, 256, "%s", data);
}

static void test_cgroup_v1(void **state)
{
	char *deny AUTO_FREE = strf("%s/devices.deny", own_group ? own_group : ""), list[256];

	(void)state;
	if (!set_up || !own_group)
		skip();
	start_qemu(NULL);
	/* confines nobody: nothing is written that others in it would meet */
	grant();
	take_back();
	node_there();
	assert_int_equal(opens(), 0);
	put(deny, "a");
	assert_int_equal(opens(), EPERM);
	grant();
	assert_int_equal(opens(), 0);
	list_of(own_group, list);
	assert_string_equal(list, "c 1:5 rw\n");
	take_back();
	node_there();
	assert_int_equal(opens(), EPERM);
	stop_qemu();
}

static int bpf(enum bpf_cmd cmd, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, cmd, attr, sizeof *attr);
}

/* As libvirt's: allowed is what the map has for (major << 32 | minor), access type and all. */
static int load_program(int map)
{
	const struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 6, .src_reg = 1},
		{.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 1, .src_reg = 6, .off = 8},
		{.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 6, .off = 4},
		{.code = BPF_ALU64 | BPF_LSH | BPF_K, .dst_reg = 2, .imm = 32},
		{.code = BPF_ALU64 | BPF_OR | BPF_X, .dst_reg = 2, .src_reg = 1},
		{.code = BPF_STX | BPF_MEM | BPF_DW, .dst_reg = 10, .src_reg = 2, .off = -8},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 2, .src_reg = 10},
		{.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 2, .imm = -8},
		{.code = BPF_LD | BPF_DW | BPF_IMM,
		 .dst_reg = 1,
		 .src_reg = BPF_PSEUDO_MAP_FD,
		 .imm = map},
		{0},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_lookup_elem},
		{.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = 0, .off = 6},
		{.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 1, .src_reg = 0},
		{.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 6},
		{.code = BPF_ALU64 | BPF_AND | BPF_X, .dst_reg = 1, .src_reg = 2},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 1},
		{.code = BPF_JMP | BPF_JEQ | BPF_X, .dst_reg = 1, .src_reg = 2, .off = 1},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE,
			       .insns = (uintptr_t)insns,
			       .insn_cnt = ARRAY_SIZE(insns),
			       .license = (uintptr_t) "GPL"};

	return bpf(BPF_PROG_LOAD, &attr);
}

/* The map, a descriptor; < 0: this kernel, or who runs this, may not. */
static int confine(const char *dir)
{
	union bpf_attr attr = {.map_type = BPF_MAP_TYPE_HASH,
			       .key_size = sizeof(uint64_t),
			       .value_size = sizeof(uint32_t),
			       .max_entries = 64};
	int map = bpf(BPF_MAP_CREATE, &attr);
	int program AUTO_CLOSE = map < 0 ? -1 : load_program(map);
	int cgroup AUTO_CLOSE = open(dir, O_RDONLY | O_CLOEXEC);

	attr = (union bpf_attr){.target_fd = (uint32_t)cgroup,
				.attach_bpf_fd = (uint32_t)program,
				.attach_type = BPF_CGROUP_DEVICE,
				.attach_flags = BPF_F_ALLOW_MULTI};
	return program < 0 || bpf(BPF_PROG_ATTACH, &attr) ? -1 : map;
}

static void test_cgroup_v2(void **state)
{
	char *dir AUTO_FREE = strf(CGROUP2 "/ibvmig-test-%d", (int)getpid());
	char *leaf AUTO_FREE = strf("%s/emulator", dir);
	uint64_t key = (uint64_t)1 << 32 | 5;
	uint32_t access = 0;
	union bpf_attr attr = {.key = (uintptr_t)&key, .value = (uintptr_t)&access};
	int map AUTO_CLOSE = -1;

	(void)state;
	if (!set_up || mkdir(dir, 0755))
		skip();
	assert_int_equal(mkdir(leaf, 0755), 0);
	map = confine(dir);
	if (map >= 0) {
		start_qemu(leaf);
		node_there();
		assert_int_equal(opens(), EPERM);
		grant();
		assert_int_equal(opens(), 0);
		attr.map_fd = (uint32_t)map;
		assert_int_equal(bpf(BPF_MAP_LOOKUP_ELEM, &attr), 0);
		assert_int_equal(access, BPF_DEVCG_DEV_CHAR |
						 (BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE) << 16);
		take_back();
		node_there();
		assert_int_equal(opens(), EPERM);
		stop_qemu();
	}
	assert_int_equal(rmdir(leaf), 0);
	assert_int_equal(rmdir(dir), 0);
	if (map < 0)
		skip();
}

static void test_what_cannot_be(void **state)
{
	(void)state;
	assert_int_equal(grant_node(getpid(), "/dev/none/1", error), -ENOENT);
	assert_non_null(strstr(error, "/dev/none/1 cannot be given to process"));
	assert_int_equal(grant_node(getpid(), "/etc/passwd", error), -ENODEV);
	assert_non_null(strstr(error, "no character device"));
	if (!set_up)
		skip();
	start_qemu(NULL);
	stop_qemu();
	assert_int_equal(grant_node(qemu.pid, NODE, error), -ENOENT);
	assert_int_equal(grant_take_back(qemu.pid, NODE, error), 0);
}

int main(void)
{
	const struct CMUnitTest daemon_grant[] = {
		cmocka_unit_test(test_mount_namespace), cmocka_unit_test(test_cgroup_v2),
		cmocka_unit_test(test_what_cannot_be),
		cmocka_unit_test(test_cgroup_v1), /* the test's cgroup stays confined */
	};

	int failed;

	setup();
	failed = RUN_TESTS(daemon_grant);
	if (own_group)
		rmdir(own_group);
	return failed;
}
