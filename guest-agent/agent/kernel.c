/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The users of the VM's RDMA devices inside the kernel: IPoIB, NFS/RDMA, iSER, SRP, NVMe. The
 * kernel tracks each QP and each CM id with the module that made it (RDMA netlink, since 4.17),
 * whatever the protocol above is. A QP that a module has made by the RDMA CM is rdma_cm's (Linux
 * 6.1): the module has the CM id with that QP's number. */
#include "guest-agent/agent/main.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"

#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <rdma/rdma_netlink.h>
#include <string.h>

#define USERS_MAX  16
#define MODULE_MAX 64

static const struct {
	const char *module, *what;
} known[] = {
	{"ib_ipoib", "IPoIB"},
	{"rpcrdma", "NFS/RDMA"},
	{"ib_iser", "iSER"},
	{"ib_srp", "SRP"},
	{"nvme_rdma", "NVMe/RDMA"},
	{"nvmet_rdma", "an NVMe/RDMA target"},
	{"ib_isert", "an iSER target"},
	{"ib_srpt", "an SRP target"},
	{"rds_rdma", "RDS"},
	{"smc", "SMC-R"},
};

/* The kernel's own management QPs go with the device, and what they receive is used at once. */
static bool is_infrastructure(const char *module)
{
	return !strcmp(module, "ib_core") || !strcmp(module, "ib_cm") ||
	       !strcmp(module, "mlx5_ib") || !strcmp(module, "mlx4_ib");
}

static bool is_ours(struct agent *a, const char *device)
{
	char name[SHIM_DEVICE_MAX];

	for (unsigned i = 0; i < a->vf_count; i++)
		if (agent_device_find(a->vf[i], name) != -ENODEV && !strcmp(name, device))
			return true;
	return false;
}

void agent_kernel_user_add(struct json_object *list, const char *device, const char *module)
{
	char *what AUTO_FREE = NULL;
	struct json_object *o;

	if (is_infrastructure(module) || json_count(list) == USERS_MAX)
		return;
	for (size_t i = 0; i < json_count(list); i++) {
		o = json_object_array_get_idx(list, i);
		if (str_eq(json_opt_str(o, "module", ""), module) &&
		    str_eq(json_opt_str(o, "device", ""), device))
			return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(known) && !what; i++)
		if (!strcmp(known[i].module, module))
			what = strf("%s (on %s)", known[i].what, device);
	if (!what)
		what = strf("kernel module %s (on %s)", module, device);
	o = json_object_new_object();
	json_set_str(o, "device", device);
	json_set_str(o, "module", module);
	json_set_str(o, "what", what);
	json_object_array_add(list, o);
}

/* ---- interfaces of IPoIB ---- */

/* A number in a file of sysfs, decimal or with 0x; 0 where there is none. */
static unsigned long read_number(const char *dir, const char *interface, const char *name)
{
	char *path AUTO_FREE = strf("%s/%s/%s", dir, interface, name), *text AUTO_FREE = NULL;

	if (!path || read_file(path, 4096, &text, NULL))
		return 0;
	return strtoul(text, NULL, 0);
}

/* net: the folder of the device's interfaces. One that is up has a QP, also where the kernel lists
 * none: mlx5 makes those of its own IPoIB below ib_core. */
static void add_ipoib(struct json_object *list, const char *device, const char *net)
{
	DIR *dir = opendir(net);
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (*d->d_name != '.' && read_number(net, d->d_name, "type") == ARPHRD_INFINIBAND &&
		    read_number(net, d->d_name, "flags") & IFF_UP)
			agent_kernel_user_add(list, device, "ib_ipoib");
	if (dir)
		closedir(dir);
}

static void add_ipoib_of_all(struct agent *a, struct json_object *list)
{
	char device[SHIM_DEVICE_MAX];

	for (unsigned i = 0; i < a->vf_count; i++) {
		char *net AUTO_FREE = NULL;

		if (agent_device_find(a->vf[i], device) == -ENODEV)
			continue;
		net = strf("/sys/class/infiniband/%s/device/net", device);
		if (net)
			add_ipoib(list, device, net);
	}
}

/* ---- RDMA netlink ---- */

struct walk {
	struct agent *agent;
	struct json_object *list; /* the users that were found, without doubles */
	uint32_t devices[AGENT_VFS_MAX];
	unsigned count;
	struct json_object *callers; /* by QP number of one device, in text: the CM id's module */
};

static void text_of(struct nlattr *a, char *ret_text, size_t max)
{
	*ret_text = '\0';
	if (a)
		nla_strlcpy(ret_text, a, max);
}

static int on_device(struct nl_msg *msg, void *arg)
{
	struct walk *w = arg;
	struct nlattr *a[RDMA_NLDEV_ATTR_MAX];
	char name[SHIM_DEVICE_MAX];

	if (nlmsg_parse(nlmsg_hdr(msg), 0, a, RDMA_NLDEV_ATTR_MAX - 1, NULL) ||
	    !a[RDMA_NLDEV_ATTR_DEV_INDEX])
		return NL_SKIP;
	text_of(a[RDMA_NLDEV_ATTR_DEV_NAME], name, sizeof(name));
	if (w->count < ARRAY_SIZE(w->devices) && is_ours(w->agent, name))
		w->devices[w->count++] = nla_get_u32(a[RDMA_NLDEV_ATTR_DEV_INDEX]);
	return NL_OK;
}

static struct nlattr *field(struct nlattr *entry, int type)
{
	return nla_find(nla_data(entry), nla_len(entry), type);
}

static void number_of(struct nlattr *entry, char ret_text[static 16])
{
	struct nlattr *qpn = field(entry, RDMA_NLDEV_ATTR_RES_LQPN);

	snprintf(ret_text, 16, "%u", qpn ? nla_get_u32(qpn) : 0);
}

/* An object has the PID of the process that made it, or the name of the module. */
static void module_of(struct nlattr *entry, char ret_module[static MODULE_MAX])
{
	text_of(field(entry, RDMA_NLDEV_ATTR_RES_KERN_NAME), ret_module, MODULE_MAX);
}

static int on_cm_ids(struct nl_msg *msg, void *arg)
{
	struct walk *w = arg;
	struct nlattr *a[RDMA_NLDEV_ATTR_MAX], *entry;
	char module[MODULE_MAX], qpn[16];
	int rest;

	if (nlmsg_parse(nlmsg_hdr(msg), 0, a, RDMA_NLDEV_ATTR_MAX - 1, NULL) ||
	    !a[RDMA_NLDEV_ATTR_RES_CM_ID])
		return NL_SKIP;
	nla_for_each_nested(entry, a[RDMA_NLDEV_ATTR_RES_CM_ID], rest)
	{
		module_of(entry, module);
		number_of(entry, qpn);
		if (*module)
			json_set_str(w->callers, qpn, module);
	}
	return NL_OK;
}

/* Nothing is written for a QP in RESET: IPoIB keeps one while its interface is down. */
static bool is_idle(struct nlattr *entry)
{
	struct nlattr *state = field(entry, RDMA_NLDEV_ATTR_RES_STATE);

	return state && nla_get_u8(state) == IBV_QPS_RESET;
}

static int on_qps(struct nl_msg *msg, void *arg)
{
	struct walk *w = arg;
	struct nlattr *a[RDMA_NLDEV_ATTR_MAX], *entry;
	char device[SHIM_DEVICE_MAX], module[MODULE_MAX], qpn[16];
	int rest;

	if (nlmsg_parse(nlmsg_hdr(msg), 0, a, RDMA_NLDEV_ATTR_MAX - 1, NULL) ||
	    !a[RDMA_NLDEV_ATTR_RES_QP])
		return NL_SKIP;
	text_of(a[RDMA_NLDEV_ATTR_DEV_NAME], device, sizeof(device));
	nla_for_each_nested(entry, a[RDMA_NLDEV_ATTR_RES_QP], rest)
	{
		module_of(entry, module);
		number_of(entry, qpn);
		if (*module && !is_idle(entry))
			agent_kernel_user_add(w->list, device,
					      strcmp(module, "rdma_cm")
						      ? module
						      : json_opt_str(w->callers, qpn, module));
	}
	return NL_OK;
}

/* Asks for a list and walks it. device: NULL for all. 0 or a negative error of libnl. */
static int dump(struct nl_sock *sock, int command, const uint32_t *device,
		int (*each)(struct nl_msg *msg, void *arg), struct walk *w)
{
	int type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), rc;
	struct nl_msg *msg = nlmsg_alloc_simple(type, NLM_F_REQUEST | NLM_F_DUMP);

	if (!msg)
		return -NLE_NOMEM;
	if (device)
		nla_put_u32(msg, RDMA_NLDEV_ATTR_DEV_INDEX, *device);
	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, each, w);
	rc = nl_send_auto(sock, msg);
	nlmsg_free(msg);
	return rc < 0 ? rc : nl_recvmsgs_default(sock);
}

static int dump_users(struct nl_sock *sock, uint32_t device, struct walk *w)
{
	struct json_object *callers AUTO_JSON = json_object_new_object();
	int rc;

	w->callers = callers;
	rc = dump(sock, RDMA_NLDEV_CMD_RES_CM_ID_GET, &device, on_cm_ids, w);
	return rc ? rc : dump(sock, RDMA_NLDEV_CMD_RES_QP_GET, &device, on_qps, w);
}

int agent_kernel_users(struct agent *a, struct json_object *list)
{
	static bool complained;
	struct nl_sock *sock = nl_socket_alloc();
	struct walk w = {.agent = a, .list = list};
	int rc = sock ? nl_connect(sock, NETLINK_RDMA) : -NLE_NOMEM;

	if (!rc)
		rc = dump(sock, RDMA_NLDEV_CMD_GET, NULL, on_device, &w);
	for (unsigned i = 0; !rc && i < w.count; i++)
		rc = dump_users(sock, w.devices[i], &w);
	nl_socket_free(sock);
	add_ipoib_of_all(a, list);
	if (rc && !complained)
		log_warn("the kernel does not tell who uses the RDMA devices: %s", nl_geterror(rc));
	complained = rc;
	return rc ? -EIO : 0;
}
