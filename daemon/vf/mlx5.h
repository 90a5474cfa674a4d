/* SPDX-License-Identifier: GPL-2.0-or-later */
/* VFs of ConnectX cards, by sysfs, rtnetlink and VFIO (docs/hosts.md). */
#ifndef IBVMIG_DAEMON_VF_MLX5_H
#define IBVMIG_DAEMON_VF_MLX5_H

#include "daemon/vf/hca.h"
#include "daemon/vf/provider.h"

struct conf;
struct vfio_calls;

enum mlx5_backend {
	MLX5_AUTO,    /* iommufd where the kernel has a node for each device */
	MLX5_IOMMUFD, /* the daemon opens the nodes and hands them to QEMU (8.2 and newer) */
	MLX5_GROUP,   /* QEMU opens /dev/vfio/N itself */
};

struct mlx5_pf {
	char name[VF_NAME_MAX], device[SYSFS_NAME_MAX];
	unsigned vfs; /* to be created where there are none; 0: none */
};

struct mlx5_config {
	struct hca_host host;
	struct mlx5_pf pfs[VF_PFS_MAX];
	size_t pf_count;    /* 0: all PFs that are ready, by the names of their RDMA devices */
	const char *driver; /* borrowed */
	uint32_t policy;    /* IFLA_VF_LINK_STATE_AUTO or _ENABLE */
	enum mlx5_backend backend;
	const struct vfio_calls *vfio;  /* borrowed; NULL: the kernel's */
	struct json_object *properties; /* owned; of device_add, beside the provider's own */
};

/* The keys "pf", "vf-policy", "vfio-driver", "vfio-backend", "device-property" of the
 * configuration (base/settings_table.c), which must outlive the result. 0, or -EINVAL or -ENOMEM;
 * *ret_error (owned by the caller) says what to change. */
int mlx5_config_read(const struct conf *conf, struct mlx5_config *ret, char **ret_error);
void mlx5_config_clear(struct mlx5_config *c);
void mlx5_config_free(struct mlx5_config *c);

/* config: borrowed. 0 or -ENOMEM. */
int provider_mlx5_new(const struct mlx5_config *config, struct provider **ret_provider);

#endif
