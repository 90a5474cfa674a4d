/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vf/mlx5.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/vf/guid.h"
#include "daemon/vf/vfio.h"
#include "daemon/vf/vfio_migration.h"

#include <errno.h>
#include <string.h>

/* A VM has one iommufd for all its VFs. QEMU keeps it when they leave: deleting it would race with
 * QEMU's close. */
#define IOMMUFD_ID "ibvmig-iommufd"
#define IOMMUFD_FD "ibvmig-iommu"

struct mlx5 {
	struct provider base;
	const struct mlx5_config *config; /* borrowed */
	struct hca_pf *pfs;               /* owned; constant after the inventory */
	size_t pf_count;
};

static const struct hca_host *host(const struct mlx5 *m)
{
	return &m->config->host;
}

static struct hca_vf *find_vf(struct mlx5 *m, const char *name, char *error)
{
	for (size_t i = 0; i < m->pf_count; i++)
		for (size_t k = 0; k < m->pfs[i].vf_count; k++)
			if (!strcmp(m->pfs[i].vfs[k].name, name))
				return &m->pfs[i].vfs[k];
	snprintf(error, HTTP_ERROR_MAX,
		 "VF %s is not on this host any more (\"ibvmig vf\" lists those that are): were "
		 "VFs or PFs taken away? Restart ibvmigd after such a change",
		 name);
	return NULL;
}

/* ---- inventory ---- */

/* A VF that never had a GUID gets its parked one, and a port that comes up: the subnet manager
 * cannot give it a LID otherwise. Others may belong to VMs that run. */
static int settle_pf(struct mlx5 *m, struct hca_pf *pf, struct vf_now *now, char *error)
{
	int rc = 0;

	vf_guid_read(host(m), pf, now);
	for (size_t i = 0; !rc && i < pf->vf_count; i++) {
		if (now[i].known && !now[i].guid) {
			rc = vf_guid_set(host(m), &pf->vfs[i], pf->vfs[i].parked_guid, error);
			now[i].guid = pf->vfs[i].parked_guid;
		}
		if (!rc && (!now[i].policy_known || now[i].policy != m->config->policy))
			rc = vf_policy_set(host(m), &pf->vfs[i], m->config->policy, error);
	}
	if (!rc && !now[0].known)
		log_notice("PF %s: this kernel does not tell the GUIDs of VFs (Linux 5.5 does), so "
			   "they are not read back",
			   pf->name);
	return rc;
}

static struct json_object *pf_json(const struct mlx5 *m, const struct hca_pf *pf)
{
	struct sysfs_list l AUTO_LIST = sysfs_list(
		&host(m)->sysfs, "class/infiniband/%s/ports/%u/pkeys", pf->ibdev, pf->port);
	struct json_object *o = json_object_new_object(), *pkeys = json_object_new_array();
	char text[SYSFS_VALUE_MAX];
	uint16_t pkey;

	for (size_t i = 0; i < l.count; i++)
		if (!sysfs_read(&host(m)->sysfs, text, "class/infiniband/%s/ports/%u/pkeys/%s",
				pf->ibdev, pf->port, l.names[i]) &&
		    !ib_pkey_parse(text, &pkey))
			json_object_array_add(pkeys, json_object_new_string(text));
	json_set_str(o, "name", pf->name);
	json_set_guid(o, "guid", pf->guid);
	json_set(o, "pkeys", pkeys);
	return o;
}

static struct json_object *vf_json(const struct hca_vf *vf, const struct vf_now *now)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "name", vf->name);
	json_set_str(o, "pf", vf->pf->name);
	json_set_u64(o, "index", vf->index);
	json_set_str(o, "pci", vf->bdf);
	json_set_guid(o, "parked_guid", vf->parked_guid);
	if (now->known)
		json_set_guid(o, "guid", now->guid);
	return o;
}

/* Cards are made so that this does not happen; two ports with one GUID would stop OpenSM. */
static int check_parked(const struct mlx5 *m, const struct hca_pf *pf, char *error)
{
	for (size_t i = 0; i < m->pf_count; i++) {
		if (m->pfs[i].vfs[0].parked_guid != pf->vfs[0].parked_guid)
			continue;
		snprintf(error, HTTP_ERROR_MAX,
			 "PF %s: its GUID 0x%016llx is too like 0x%016llx of PF %s: their VFs "
			 "would get the same parked GUIDs",
			 pf->bdf, (unsigned long long)pf->guid, (unsigned long long)m->pfs[i].guid,
			 m->pfs[i].bdf);
		return -EEXIST;
	}
	return 0;
}

/* Into the next place of m->pfs, and into the answer. */
static int add_pf(struct mlx5 *m, const char *device, const char *name, unsigned want_vfs,
		  struct json_object *pfs, struct json_object *vfs, char *error)
{
	struct hca_pf *pf = &m->pfs[m->pf_count];
	struct vf_now *now AUTO_FREE = NULL;
	int rc = hca_pf_load(host(m), device, name, want_vfs, pf, error);

	if (!rc)
		rc = check_parked(m, pf, error);
	if (!rc) {
		now = calloc(pf->vf_count, sizeof *now);
		rc = now ? settle_pf(m, pf, now, error)
			 : hca_fail(error, -ENOMEM, "read PF %s", device);
	}
	if (rc) {
		hca_pf_clear(pf);
		return rc;
	}
	json_object_array_add(pfs, pf_json(m, pf));
	for (size_t i = 0; i < pf->vf_count; i++)
		json_object_array_add(vfs, vf_json(&pf->vfs[i], &now[i]));
	m->pf_count++;
	return 0;
}

/* A PF that is not ready takes no other with it. */
static int add_all(struct mlx5 *m, struct json_object *pfs, struct json_object *vfs, char *error)
{
	const struct mlx5_config *c = m->config;
	struct sysfs_list found AUTO_LIST = hca_pfs(host(m));
	size_t n = c->pf_count ? c->pf_count : found.count;
	char why[HTTP_ERROR_MAX];
	int rc = -ENODEV;

	snprintf(error, HTTP_ERROR_MAX,
		 "this host has no ConnectX card: lspci -d 15b3: lists those that the kernel sees");
	for (size_t i = 0; i < n && i < VF_PFS_MAX; i++) {
		int one = c->pf_count ? add_pf(m, c->pfs[i].device, c->pfs[i].name, c->pfs[i].vfs,
					       pfs, vfs, why)
				      : add_pf(m, found.names[i], NULL, 0, pfs, vfs, why);

		if (!one)
			continue;
		log_warn("not used: %s", why);
		if (rc == -ENODEV && !i)
			snprintf(error, HTTP_ERROR_MAX, "%s", why);
		rc = one;
	}
	return m->pf_count ? 0 : rc;
}

static int inventory(struct provider *p, struct json_object **ret_out, char *error)
{
	struct mlx5 *m = container_of(p, struct mlx5, base);
	struct json_object *out AUTO_JSON = json_object_new_object();
	struct json_object *pfs = json_object_new_array(), *vfs = json_object_new_array();
	int rc;

	json_set(out, "pfs", pfs);
	json_set(out, "vfs", vfs);
	rc = add_all(m, pfs, vfs, error);
	if (!rc)
		*ret_out = TAKE(out);
	return rc;
}

/* ---- prepare ---- */

/* {"execute": name, "arguments": *ret}, appended to list. file: below /dev, what the monitor gets a
 * descriptor of; NULL for none. */
static struct json_object *add_command(const struct mlx5 *m, struct json_object *list,
				       const char *name, const char *file)
{
	struct json_object *cmd = json_object_new_object(), *args = json_object_new_object();
	char *path AUTO_FREE = file ? strf("%s/%s", host(m)->dev, file) : NULL;

	json_set_str(cmd, "execute", name);
	json_set(cmd, "arguments", args);
	if (path)
		json_set_str(cmd, "file", path);
	json_object_array_add(list, cmd);
	return args;
}

static void add_iommufd(const struct mlx5 *m, struct json_object *list, const char *fd_name,
			const char *node)
{
	struct json_object *a = add_command(m, list, "getfd", "iommu");

	json_set_str(a, "fdname", IOMMUFD_FD);
	a = add_command(m, list, "object-add", NULL);
	json_set_str(a, "qom-type", "iommufd");
	json_set_str(a, "id", IOMMUFD_ID);
	json_set_str(a, "fd", IOMMUFD_FD);
	a = add_command(m, list, "getfd", node);
	json_set_str(a, "fdname", fd_name);
}

static void add_opens(const struct mlx5 *m, struct json_object *nodes, const char *node)
{
	char *path AUTO_FREE = strf("%s/%s", host(m)->dev, node);

	json_object_array_add(nodes, json_object_new_string(path));
}

/* QEMU opens the container of all groups, and the VF's group. */
static void add_group(const struct mlx5 *m, const struct hca_vf *vf, struct json_object *cmd)
{
	struct json_object *nodes = json_object_new_array();
	char node[VFIO_NODE_MAX];

	json_set(cmd, "opens", nodes);
	add_opens(m, nodes, "vfio/vfio");
	if (!vfio_group(host(m), vf, node))
		add_opens(m, nodes, node);
}

static void copy_properties(struct json_object *from, struct json_object *to)
{
	struct json_object_iterator i = json_object_iter_begin(from);
	struct json_object_iterator end = json_object_iter_end(from);

	for (; !json_object_iter_equal(&i, &end); json_object_iter_next(&i))
		json_set(to, json_object_iter_peek_name(&i),
			 json_object_get(json_object_iter_peek_value(&i)));
}

static int attach_commands(const struct mlx5 *m, const struct hca_vf *vf, struct json_object *list,
			   char *error)
{
	char node[VFIO_NODE_MAX], fd_name[VF_NAME_MAX + 8];
	bool has_node = !vfio_cdev(host(m), vf, node);
	bool iommufd = m->config->backend == MLX5_IOMMUFD ||
		       (m->config->backend == MLX5_AUTO && has_node);
	struct json_object *a, *cmd;

	if (iommufd && !has_node) {
		snprintf(error, HTTP_ERROR_MAX,
			 "VF %s (%s) has no node of its own in /dev/vfio/devices: Linux 6.6 with "
			 "CONFIG_VFIO_DEVICE_CDEV makes them; or set vfio-backend = group",
			 vf->name, vf->bdf);
		return -ENODEV;
	}
	snprintf(fd_name, sizeof fd_name, "ibvmig-%s", vf->name);
	if (iommufd)
		add_iommufd(m, list, fd_name, node);
	a = add_command(m, list, "device_add", NULL);
	copy_properties(m->config->properties, a);
	json_set_str(a, "driver", "vfio-pci");
	if (iommufd) {
		json_set_str(a, "fd", fd_name);
		json_set_str(a, "iommufd", IOMMUFD_ID);
	} else {
		json_set_str(a, "host", vf->bdf);
	}
	cmd = json_object_array_get_idx(list, json_object_array_length(list) - 1);
	if (!iommufd)
		add_group(m, vf, cmd);
	json_set_bool(cmd, "pins_memory", true);
	return 0;
}

static int prepare_host(const struct mlx5 *m, const struct hca_vf *vf, uint16_t pkey, char *error)
{
	int rc = vfio_check(host(m), vf, m->config->driver, error);

	if (!rc)
		rc = vf_policy_set(host(m), vf, m->config->policy, error);
	if (!rc)
		rc = vf_pkey_set(host(m), vf, pkey, error);
	return rc ? rc : vfio_bind(host(m), vf, m->config->driver, error);
}

/* Plain vfio-pci never does. Only a device that QEMU opens itself can be there when the
 * destination's QEMU starts, which the state needs. Such a device is of an IOMMU group; one whose
 * descriptor is passed need not be asked. */
static void mark_migration(const struct mlx5 *m, const struct hca_vf *vf,
			   struct json_object *attach)
{
	struct json_object *add = json_object_array_get_idx(attach, json_count(attach) - 1);
	char error[HTTP_ERROR_MAX];
	bool can = false;

	if (!strcmp(m->config->driver, "vfio-pci"))
		return;
	if (json_opt(json_opt(add, "arguments"), "fd")) {
		json_set_bool(add, "needs_group", true);
		return;
	}
	if (vfio_migration_probe(host(m), vf, m->config->vfio, &can, error))
		log_warn("%s: it is taken for one that does not", error);
	json_set_bool(add, "migrates_state", can);
}

static int prepare(struct provider *p, struct json_object *in, struct json_object **ret_out,
		   char *error)
{
	struct mlx5 *m = container_of(p, struct mlx5, base);
	struct json_object *out AUTO_JSON = json_object_new_object();
	struct json_object *attach = json_object_new_array();
	struct hca_vf *vf = find_vf(m, json_opt_str(in, "vf", ""), error);
	const char *text = json_opt_str(in, "pkey", "");
	uint16_t pkey;
	int rc;

	json_set(out, "attach", attach);
	json_set(out, "detach", json_object_new_array());
	if (!vf)
		return -ENODEV;
	if (ib_pkey_parse(text, &pkey)) {
		snprintf(error, HTTP_ERROR_MAX, "pkey %s: must be 0x0001 to 0xffff", text);
		return -EINVAL;
	}
	rc = prepare_host(m, vf, pkey, error);
	if (!rc && (rc = attach_commands(m, vf, attach, error))) {
		char ignored[HTTP_ERROR_MAX];

		vfio_unbind(host(m), vf, ignored);
	}
	if (rc)
		return rc;
	mark_migration(m, vf, attach);
	*ret_out = TAKE(out);
	return 0;
}

/* ---- the others ---- */

static int set_guid(struct provider *p, const char *vf, uint64_t guid, char *error)
{
	struct mlx5 *m = container_of(p, struct mlx5, base);
	struct hca_vf *found = find_vf(m, vf, error);

	return found ? vf_guid_set(host(m), found, guid, error) : -ENODEV;
}

static int release(struct provider *p, const char *vf, char *error)
{
	struct mlx5 *m = container_of(p, struct mlx5, base);
	struct hca_vf *found = find_vf(m, vf, error);

	return found ? vfio_unbind(host(m), found, error) : -ENODEV;
}

/* ---- for doctor ---- */

static int check(struct provider *p, const char *vf, char *error)
{
	struct mlx5 *m = container_of(p, struct mlx5, base);
	struct hca_vf *found = find_vf(m, vf, error);

	return found ? vfio_check(host(m), found, m->config->driver, error) : -ENODEV;
}

static int guids(struct provider *p, struct json_object **ret_guids)
{
	struct mlx5 *m = container_of(p, struct mlx5, base);
	struct json_object *out AUTO_JSON = json_object_new_object();

	for (size_t i = 0; i < m->pf_count; i++) {
		const struct hca_pf *pf = &m->pfs[i];
		struct vf_now *now AUTO_FREE = calloc(pf->vf_count, sizeof *now);

		if (!now)
			return -ENOMEM;
		vf_guid_read(host(m), pf, now);
		for (size_t k = 0; k < pf->vf_count; k++)
			if (now[k].known)
				json_set_guid(out, pf->vfs[k].name, now[k].guid);
	}
	*ret_guids = TAKE(out);
	return 0;
}

static void mlx5_free(struct provider *p)
{
	struct mlx5 *m = container_of(p, struct mlx5, base);

	for (size_t i = 0; i < m->pf_count; i++)
		hca_pf_clear(&m->pfs[i]);
	free(m->pfs);
	free(m);
}

int provider_mlx5_new(const struct mlx5_config *config, struct provider **ret_provider)
{
	static const struct provider_ops ops = {
		.inventory = inventory,
		.prepare = prepare,
		.set_guid = set_guid,
		.release = release,
		.check = check,
		.guids = guids,
		.free = mlx5_free,
	};
	struct mlx5 *m = calloc(1, sizeof *m);

	if (!m || !(m->pfs = calloc(VF_PFS_MAX, sizeof *m->pfs))) {
		free(m);
		return -ENOMEM;
	}
	m->base.ops = &ops;
	m->config = config;
	*ret_provider = &m->base;
	return 0;
}
