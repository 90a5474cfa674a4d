/* SPDX-License-Identifier: GPL-2.0-or-later */
/* mlx5's own verbs (DEVX, DC, ...) go past libibverbs. On a device of ours libmlx5 refuses them by
 * itself, because it is not one of its own. Here a program is told so before it opens one, and what
 * would open the real device opens ours. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/verbs/refuse.h"

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

static void *next(const char *name, const char *version)
{
	return dlvsym(RTLD_NEXT, name, version);
}

bool mlx5dv_is_supported(struct ibv_device *device)
{
	void *f = next("mlx5dv_is_supported", "MLX5_1.8");
	bool (*real)(struct ibv_device * device);

	if (!f || shim_start())
		return false;
	memcpy(&real, &f, sizeof(f));
	return real(device);
}

struct ibv_context *mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr)
{
	void *f = next("mlx5dv_open_device", "MLX5_1.7");
	struct ibv_context *(*real)(struct ibv_device * device, struct mlx5dv_context_attr * attr);

	if (shim_start()) {
		if (!attr || !(attr->flags & MLX5DV_CONTEXT_FLAGS_DEVX))
			return ibv_open_device(device);
		refuse_devx("mlx5dv_open_device");
		return NULL;
	}
	if (!f) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	memcpy(&real, &f, sizeof(f));
	return real(device, attr);
}
