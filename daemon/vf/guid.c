/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vf/guid.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <linux/if_link.h>
#include <string.h>

#define PCI       "bus/pci/devices"
#define IOV       "class/infiniband/%s/iov"
#define COLONS    24 /* "00:11:22:33:44:55:66:77" */
#define PKEYS_MAX 128

/* ---- MLNX_OFED: PF/sriov/N/{node,port,policy} ---- */

static bool has_ofed(const struct hca_host *h, const struct hca_vf *vf)
{
	return sysfs_exists(&h->sysfs, PCI "/%s/sriov/%u/node", vf->pf->bdf, vf->index);
}

static int ofed_set_guid(const struct hca_host *h, const struct hca_vf *vf, uint64_t guid)
{
	char text[COLONS];
	int rc;

	snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x",
		 (unsigned)(guid >> 56) & 0xff, (unsigned)(guid >> 48) & 0xff,
		 (unsigned)(guid >> 40) & 0xff, (unsigned)(guid >> 32) & 0xff,
		 (unsigned)(guid >> 24) & 0xff, (unsigned)(guid >> 16) & 0xff,
		 (unsigned)(guid >> 8) & 0xff, (unsigned)guid & 0xff);
	rc = sysfs_write(&h->sysfs, text, PCI "/%s/sriov/%u/node", vf->pf->bdf, vf->index);
	return rc ? rc
		  : sysfs_write(&h->sysfs, text, PCI "/%s/sriov/%u/port", vf->pf->bdf, vf->index);
}

static void ofed_read(const struct hca_host *h, const struct hca_vf *vf, struct vf_now *now)
{
	char text[SYSFS_VALUE_MAX];

	if (!now->known &&
	    !sysfs_read(&h->sysfs, text, PCI "/%s/sriov/%u/port", vf->pf->bdf, vf->index)) {
		now->known = true;
		if (ib_guid_parse(text, &now->guid))
			now->guid = 0; /* all zero */
	}
	if (!now->policy_known &&
	    !sysfs_read(&h->sysfs, text, PCI "/%s/sriov/%u/policy", vf->pf->bdf, vf->index)) {
		now->policy_known = true;
		now->policy = !strcmp(text, "Follow") ? IFLA_VF_LINK_STATE_AUTO
			      : !strcmp(text, "Up")   ? IFLA_VF_LINK_STATE_ENABLE
						      : IFLA_VF_LINK_STATE_DISABLE;
	}
}

/* ---- ConnectX-3: class/infiniband/mlx4_X/iov ---- */

static int mlx4_gid_index(const struct hca_host *h, const struct hca_vf *vf, uint64_t *ret_index)
{
	return sysfs_read_u64(&h->sysfs, ret_index, IOV "/%s/ports/%u/gid_idx/0", vf->pf->ibdev,
			      vf->bdf, vf->pf->port);
}

static int mlx4_set_guid(const struct hca_host *h, const struct hca_vf *vf, uint64_t guid)
{
	char text[IB_GUID_TEXT];
	uint64_t index;
	int rc = mlx4_gid_index(h, vf, &index);

	if (rc)
		return rc;
	ib_guid_format(guid, text);
	return sysfs_write(&h->sysfs, text, IOV "/ports/%u/admin_guids/%u", vf->pf->ibdev,
			   vf->pf->port, (unsigned)index);
}

/* Printed as hex digits without 0x or leading zeros; all ones: deleted. */
static void mlx4_read(const struct hca_host *h, const struct hca_vf *vf, struct vf_now *now)
{
	char text[SYSFS_VALUE_MAX];
	uint64_t index;

	if (mlx4_gid_index(h, vf, &index) ||
	    sysfs_read(&h->sysfs, text, IOV "/ports/%u/admin_guids/%u", vf->pf->ibdev, vf->pf->port,
		       (unsigned)index))
		return;
	now->known = true;
	now->guid = strtoull(text, NULL, 16);
	if (now->guid == UINT64_MAX)
		now->guid = 0;
}

static int mlx4_pkey_index(const struct hca_host *h, const struct hca_pf *pf, uint16_t pkey,
			   unsigned *ret_index)
{
	uint64_t value;

	for (unsigned i = 0; i < PKEYS_MAX; i++)
		if (!sysfs_read_u64(&h->sysfs, &value, IOV "/ports/%u/pkeys/%u", pf->ibdev,
				    pf->port, i) &&
		    value == pkey) {
			*ret_index = i;
			return 0;
		}
	return -ENOENT;
}

/* virt: the VM's index. A key that the port lacks leaves "none". */
static int mlx4_map_pkey(const struct hca_host *h, const struct hca_vf *vf, unsigned virt,
			 uint16_t pkey)
{
	char text[16] = "none";
	unsigned phys;

	if (!mlx4_pkey_index(h, vf->pf, pkey, &phys))
		snprintf(text, sizeof text, "%u", phys);
	return sysfs_write(&h->sysfs, text, IOV "/%s/ports/%u/pkey_idx/%u", vf->pf->ibdev, vf->bdf,
			   vf->pf->port, virt);
}

int vf_pkey_set(const struct hca_host *h, const struct hca_vf *vf, uint16_t pkey,
		char error[static HTTP_ERROR_MAX])
{
	unsigned phys;
	int rc;

	if (!vf->pf->mlx4)
		return 0;
	if (mlx4_pkey_index(h, vf->pf, pkey, &phys)) {
		snprintf(error, HTTP_ERROR_MAX,
			 "pkey 0x%04x is not in the table of PF %s: add it to the partition in the "
			 "subnet manager",
			 pkey, vf->pf->name);
		return -ENOENT;
	}
	rc = mlx4_map_pkey(h, vf, 0, pkey);
	if (!rc && (pkey | 0x8000) != 0xffff)
		rc = mlx4_map_pkey(h, vf, 1,
				   mlx4_pkey_index(h, vf->pf, 0xffff, &phys) ? 0x7fff : 0xffff);
	return rc ? hca_fail(error, rc, "map pkey 0x%04x into the table of VF %s", pkey, vf->name)
		  : 0;
}

/* ---- reading ---- */

/* The driver of this host shows the GUID that it found when it was bound. */
static void bound_read(const struct hca_host *h, const struct hca_vf *vf, struct vf_now *now)
{
	struct sysfs_list l AUTO_LIST = sysfs_list(&h->sysfs, PCI "/%s/infiniband", vf->bdf);
	char text[SYSFS_VALUE_MAX];
	struct ib_gid gid;

	if (!l.count || now->known)
		return;
	if (sysfs_read(&h->sysfs, text, PCI "/%s/infiniband/%s/ports/%u/gids/0", vf->bdf,
		       l.names[0], vf->pf->port) ||
	    ib_gid_parse(text, &gid))
		return;
	now->known = true;
	now->guid = gid.guid;
}

void vf_guid_read(const struct hca_host *h, const struct hca_pf *pf, struct vf_now *now)
{
	struct vf_link *links AUTO_FREE = calloc(pf->vf_count, sizeof *links);
	unsigned ifindex = pf->mlx4 ? 0 : hca_ipoib(h, pf);
	bool told = links && ifindex && !vf_netlink_get(&h->netlink, ifindex, links, pf->vf_count);

	for (size_t i = 0; i < pf->vf_count; i++) {
		now[i] = (struct vf_now){0};
		if (told && links[i].present) {
			now[i].known = links[i].guid_known;
			now[i].guid = links[i].port_guid;
			now[i].policy_known = true;
			now[i].policy = links[i].policy;
		}
		if (pf->mlx4)
			mlx4_read(h, &pf->vfs[i], &now[i]);
		else
			ofed_read(h, &pf->vfs[i], &now[i]);
		bound_read(h, &pf->vfs[i], &now[i]);
	}
}

/* ---- setting ---- */

static int explain(const struct hca_vf *vf, const char *what, int rc, char *error)
{
	const char *why = NULL;

	if (rc == -ENXIO)
		why = "its PF has no IPoIB interface, through which Linux sets it: modprobe "
		      "ib_ipoib";
	else if (rc == -EOPNOTSUPP)
		why = "the driver or the firmware of its PF has no InfiniBand VFs: Linux 4.7 or "
		      "MLNX_OFED 3 and a firmware with SR-IOV for InfiniBand are needed";
	else if (rc == -EINVAL || rc == -EIO || rc == -EREMOTEIO)
		why = "the firmware of its PF refused it: dmesg has its status and syndrome";
	else if (rc == -ETIMEDOUT)
		why = "the kernel did not answer: dmesg may show a hanging firmware command";
	if (!why)
		return hca_fail(error, rc, "set the %s of VF %s (VF %u of PF %s)", what, vf->name,
				vf->index, vf->pf->bdf);
	snprintf(error, HTTP_ERROR_MAX, "cannot set the %s of VF %s (VF %u of PF %s): %s", what,
		 vf->name, vf->index, vf->pf->bdf, why);
	return rc;
}

static bool no_netlink(int rc)
{
	return rc == -ENXIO || rc == -EOPNOTSUPP;
}

static int mlx5_set_guid(const struct hca_host *h, const struct hca_vf *vf, uint64_t guid)
{
	unsigned ifindex = hca_ipoib(h, vf->pf);
	int rc = ifindex ? vf_netlink_set_guid(&h->netlink, ifindex, vf->index, guid) : -ENXIO;

	return no_netlink(rc) && has_ofed(h, vf) ? ofed_set_guid(h, vf, guid) : rc;
}

static int rebind(const struct hca_host *h, const struct hca_vf *vf, char *error)
{
	char driver[SYSFS_NAME_MAX];
	int rc;

	hca_driver(h, vf->bdf, driver);
	if (strcmp(driver, vf->pf->mlx4 ? "mlx4_core" : "mlx5_core"))
		return 0;
	rc = sysfs_write(&h->sysfs, vf->bdf, "bus/pci/drivers/%s/unbind", driver);
	if (!rc)
		rc = sysfs_write(&h->sysfs, vf->bdf, "bus/pci/drivers/%s/bind", driver);
	return rc ? hca_fail(error, rc,
			     "bind VF %s (%s) to %s anew, which it needs to see its GUID", vf->name,
			     vf->bdf, driver)
		  : 0;
}

static int read_back(const struct hca_host *h, const struct hca_vf *vf, uint64_t guid, char *error)
{
	struct vf_now *all AUTO_FREE = calloc(vf->pf->vf_count, sizeof *all), *now;

	if (!all)
		return hca_fail(error, -ENOMEM, "read the GUID of VF %s back", vf->name);
	vf_guid_read(h, vf->pf, all);
	now = &all[vf->index];
	if (!now->known || now->guid == guid)
		return 0;
	if (now->guid)
		snprintf(error, HTTP_ERROR_MAX,
			 "VF %s (%s) shows GUID 0x%016llx after 0x%016llx was set: does another "
			 "program set GUIDs on this host?",
			 vf->name, vf->bdf, (unsigned long long)now->guid,
			 (unsigned long long)guid);
	else
		snprintf(error, HTTP_ERROR_MAX,
			 "the GUID of VF %s (%s) reads back all-zero after 0x%016llx was set: the "
			 "firmware of PF %s has not taken it; update it, or create the VFs anew",
			 vf->name, vf->bdf, (unsigned long long)guid, vf->pf->bdf);
	return -EIO;
}

/* mlx5 does not check the number: beyond its table, which a lower sriov_numvfs makes shorter, it
 * writes to other memory of the kernel. */
static int check_there(const struct hca_host *h, const struct hca_vf *vf, char *error)
{
	char bdf[SYSFS_NAME_MAX];

	if (!sysfs_link(&h->sysfs, bdf, PCI "/%s/virtfn%u", vf->pf->bdf, vf->index) &&
	    !strcmp(bdf, vf->bdf))
		return 0;
	snprintf(error, HTTP_ERROR_MAX,
		 "VF %s (%s) is gone: the VFs of PF %s were taken away or made anew; restart "
		 "ibvmigd",
		 vf->name, vf->bdf, vf->pf->bdf);
	return -ENODEV;
}

int vf_guid_set(const struct hca_host *h, const struct hca_vf *vf, uint64_t guid,
		char error[static HTTP_ERROR_MAX])
{
	int rc = check_there(h, vf, error);

	if (rc)
		return rc;
	rc = vf->pf->mlx4 ? mlx4_set_guid(h, vf, guid) : mlx5_set_guid(h, vf, guid);
	if (rc)
		return explain(vf, "GUID", rc, error);
	rc = rebind(h, vf, error);
	return rc ? rc : read_back(h, vf, guid, error);
}

int vf_policy_set(const struct hca_host *h, const struct hca_vf *vf, uint32_t policy,
		  char error[static HTTP_ERROR_MAX])
{
	const char *text = policy == IFLA_VF_LINK_STATE_AUTO ? "Follow" : "Up";
	unsigned ifindex = hca_ipoib(h, vf->pf);
	int rc = vf->pf->mlx4 ? 0 : check_there(h, vf, error);

	if (rc || vf->pf->mlx4)
		return rc;
	rc = ifindex ? vf_netlink_set_policy(&h->netlink, ifindex, vf->index, policy) : -ENXIO;
	if (no_netlink(rc) && has_ofed(h, vf))
		rc = sysfs_write(&h->sysfs, text, PCI "/%s/sriov/%u/policy", vf->pf->bdf,
				 vf->index);
	return rc ? explain(vf, "link policy", rc, error) : 0;
}
