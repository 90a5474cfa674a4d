/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The lab's VF provider (docs/wire.md, "VF provider"). A VF is a channel adapter of the simulated
 * fabric. For the guest it is a virtio NIC on the host's data bridge whose MAC comes from the
 * vGUID. */
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "tests/lab/console.h"
#include "tests/lab/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

#define LAB         "/run/lab"
#define INPUT_MAX   (64u << 10)
#define CONSOLE_MS  5000
#define PF          "pf0"
#define PF_VFS      4
#define PCI         "0000:77:00." /* and the VF's number: addresses where no host has a device */
#define PARKED_BASE 0x00fab0fffe000000ull
#define HOSTS_MAX   64

/* Of the PF, as the lab's lists of partitions have it. On InfiniBand a VF's P_Keys are its vGUID's,
 * and the subnet manager's to give: the provider has no say. */
static const char *const pkeys[] = {"0xffff", "0x8001"};
#define PKEYS_OF_ALL 1

struct provider {
	char host[64];
	unsigned index; /* number of the host in the lab */
	bool fabric;    /* an ibsim runs */
	bool infiniband;
	bool shared_port; /* VFs are entries of the PF's GUID table, which the SM writes */
	struct json_object *in, *out;
};

static _Noreturn void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static _Noreturn void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static void provider_init(struct provider *p)
{
	char *text AUTO_FREE = NULL;
	struct json_object *conf, *hosts;
	size_t bytes;

	gethostname(p->host, sizeof(p->host) - 1);
	if (read_file(LAB "/lab.json", INPUT_MAX, &text, &bytes) || json_parse(text, bytes, &conf))
		fail("%s/lab.json: %s; run this on a host of the lab", LAB, strerror(errno));
	p->fabric = json_opt_bool(conf, "fabric", false);
	p->infiniband = str_eq(json_opt_str(conf, "link", ""), "ib");
	p->shared_port = str_eq(json_opt_str(conf, "addresses", ""), "shared-port");
	hosts = json_opt(conf, "hosts");
	for (p->index = 0; p->index < json_object_array_length(hosts); p->index++)
		if (str_eq(json_object_get_string(json_object_array_get_idx(hosts, p->index)),
			   p->host)) {
			json_object_put(conf);
			return;
		}
	fail("host %s is not one of the lab", p->host);
}

static uint64_t parked_guid(const struct provider *p, unsigned vf)
{
	return PARKED_BASE | (uint64_t)(p->index + 1) << 8 | vf;
}

/* 1 to PF_VFS; the name is checked. */
static unsigned need_vf(const struct provider *p)
{
	const char *name = json_opt_str(p->in, "vf", "");
	uint64_t n;

	if (strncmp(name, PF "vf", 5) || parse_u64(name + 5, 1, PF_VFS, &n))
		fail("vf %s: this host has " PF "vf1 to " PF "vf%d", name, PF_VFS);
	return (unsigned)n;
}

static uint64_t need_guid(const struct provider *p, const char *key)
{
	uint64_t guid;

	if (ib_guid_parse(json_opt_str(p->in, key, ""), &guid))
		fail("%s %s: not a GUID (0x and 16 hex digits)", key,
		     json_opt_str(p->in, key, "missing"));
	return guid;
}

static char *guid_file(const struct provider *p, unsigned vf)
{
	return strf(LAB "/hosts/%s/vfs/" PF "vf%u", p->host, vf);
}

/* Returns the GUID that set-guid has noted; the parked one before its first call. */
static uint64_t present_guid(const struct provider *p, unsigned vf)
{
	char *path AUTO_FREE = guid_file(p, vf);
	char *text AUTO_FREE = NULL;
	uint64_t guid;
	size_t n;

	if (read_file(path, IB_GUID_TEXT, &text, &n) || ib_guid_parse(text, &guid))
		return parked_guid(p, vf);
	return guid;
}

static void note_guid(const struct provider *p, unsigned vf, uint64_t guid)
{
	char *path AUTO_FREE = guid_file(p, vf);
	char text[IB_GUID_TEXT];
	int fd AUTO_CLOSE = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ib_guid_format(guid, text);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fail("%s: %s", path, strerror(errno));
}

static void inventory(struct provider *p)
{
	struct json_object *pfs = json_object_new_array(), *vfs = json_object_new_array();
	struct json_object *pf = json_object_new_object(), *keys = json_object_new_array();

	for (size_t i = 0; i < (p->infiniband ? PKEYS_OF_ALL : ARRAY_SIZE(pkeys)); i++)
		json_object_array_add(keys, json_object_new_string(pkeys[i]));
	json_set_str(pf, "name", PF);
	json_set_guid(pf, "guid", parked_guid(p, 0));
	json_set(pf, "pkeys", keys);
	json_object_array_add(pfs, pf);
	for (unsigned n = 1; n <= PF_VFS; n++) {
		struct json_object *vf = json_object_new_object();
		char *name AUTO_FREE = strf(PF "vf%u", n);
		char *pci AUTO_FREE = strf(PCI "%u", n);

		json_set_str(vf, "name", name);
		json_set_str(vf, "pf", PF);
		json_set_u64(vf, "index", n);
		json_set_str(vf, "pci", pci);
		json_set_guid(vf, "parked_guid", parked_guid(p, n));
		json_set_guid(vf, "guid", present_guid(p, n));
		json_object_array_add(vfs, vf);
	}
	json_set(p->out, "pfs", pfs);
	json_set(p->out, "vfs", vfs);
}

static void check_pkey(const char *pkey)
{
	for (size_t i = 0; i < ARRAY_SIZE(pkeys); i++)
		if (str_eq(pkey, pkeys[i]))
			return;
	fail("pkey %s: " PF " has 0xffff and 0x8001", pkey);
}

/* {"execute": name, "arguments": *ret_arguments}, appended to list. */
static struct json_object *add_command(struct json_object *list, const char *name)
{
	struct json_object *cmd = json_object_new_object(), *args = json_object_new_object();

	json_set_str(cmd, "execute", name);
	json_set(cmd, "arguments", args);
	json_object_array_add(list, cmd);
	return args;
}

static void prepare(struct provider *p)
{
	unsigned vf = need_vf(p);
	uint64_t vguid = need_guid(p, "vguid");
	struct json_object *attach = json_object_new_array(), *detach = json_object_new_array();
	struct json_object *a;
	char tap[IF_NAMESIZE], mac[IB_MAC_TEXT];
	char *id AUTO_FREE = strf("ibvmig-" PF "vf%u", vf);
	int r;

	if (!p->infiniband)
		check_pkey(json_opt_str(p->in, "pkey", "0xffff"));
	if (ib_guid_to_mac(vguid, mac))
		fail("vguid %s: a lab VF needs ff:fe in the middle, as in 0x00a1b2fffe000101",
		     json_opt_str(p->in, "vguid", ""));
	tap_name(json_opt_str(p->in, "vf", ""), tap);
	r = tap_create(tap);
	if (r)
		fail("tap %s on bridge " DATA_BRIDGE ": %s", tap, strerror(-r));
	a = add_command(attach, "netdev_add");
	json_set_str(a, "type", "tap");
	json_set_str(a, "id", id);
	json_set_str(a, "ifname", tap);
	json_set_str(a, "script", "no");
	json_set_str(a, "downscript", "no");
	json_set_bool(a, "vhost", false);
	a = add_command(attach, "device_add");
	json_set_str(a, "driver", "virtio-net-pci");
	json_set_str(a, "netdev", id);
	json_set_str(a, "mac", mac);
	/* an option ROM would be a RAM block that the destination of a migration lacks */
	json_set_u64(a, "rombar", 0);
	json_set_str(a, "romfile", "");
	/* QEMU migrates an emulated NIC by itself: it can stand for a VF whose driver does so */
	if (!access(LAB "/native", F_OK))
		json_set_bool(json_object_array_get_idx(attach, 1), "migrates_state", true);
	a = add_command(detach, "netdev_del");
	json_set_str(a, "id", id);
	/* a descriptor, as providers of VFIO devices pass them; after the device, because no QEMU
	 * can start with one that has such commands before it */
	a = add_command(detach, "getfd");
	json_set_str(a, "fdname", id);
	json_set_str(json_object_array_get_idx(detach, 1), "file", "/dev/null");
	a = add_command(detach, "closefd");
	json_set_str(a, "fdname", id);
	json_set(p->out, "attach", attach);
	json_set(p->out, "detach", detach);
}

static void set_guid(struct provider *p)
{
	unsigned vf = need_vf(p);
	uint64_t guid = need_guid(p, "guid");
	char *line AUTO_FREE = NULL;
	int r;

	/* ibsim takes the node's GUID; the port's is that plus one */
	line = strf("Guid \"%s-" PF "vf%u\" 0x%016llx", p->host, vf, (unsigned long long)guid - 1);
	if (p->fabric && !p->shared_port) {
		r = console_command(LAB "/sm/console", LAB "/log/ibsim@sm.log", line, CONSOLE_MS);
		if (r)
			fail("ibsim's console: %s",
			     r == -ENXIO ? "ibsim does not run" : strerror(-r));
	}
	note_guid(p, vf, guid);
}

static void release(struct provider *p)
{
	char tap[IF_NAMESIZE];
	int r;

	need_vf(p);
	tap_name(json_opt_str(p->in, "vf", ""), tap);
	r = tap_delete(tap);
	if (r)
		fail("tap %s: %s", tap, strerror(-r));
}

static const struct {
	const char *name;
	void (*run)(struct provider *p);
} ops[] = {
	{"inventory", inventory},
	{"prepare", prepare},
	{"set-guid", set_guid},
	{"release", release},
};

/* A test's fault: this host's provider does not do this. */
static void refuse_if_asked(const struct provider *p, const char *op)
{
	char *path AUTO_FREE = strf(LAB "/hosts/%s/refuse", p->host);
	char *text AUTO_FREE = NULL;
	size_t n;

	if (!read_file(path, IF_NAMESIZE, &text, &n) && str_eq(text, op))
		fail("%s: refused, as %s has it", op, path);
}

static struct json_object *read_input(void)
{
	char buf[INPUT_MAX];
	struct json_object *in;
	size_t have = 0;
	ssize_t n = 1;

	while (have < sizeof(buf) && (n = read(0, buf + have, sizeof(buf) - have)) > 0)
		have += (size_t)n;
	if (json_parse(buf, have, &in))
		fail("standard input is not a JSON object");
	return in;
}

int main(int argc, char **argv)
{
	struct provider p = {0};

	for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(ops); i++) {
		if (strcmp(argv[1], ops[i].name))
			continue;
		provider_init(&p);
		refuse_if_asked(&p, ops[i].name);
		p.in = read_input();
		p.out = json_object_new_object();
		ops[i].run(&p);
		puts(json_text(p.out));
		json_object_put(p.in);
		json_object_put(p.out);
		return fflush(stdout) ? 1 : 0;
	}
	fail("usage: lab_provider inventory|prepare|set-guid|release <json");
}
