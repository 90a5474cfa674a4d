/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Under the shim no device is mlx5's to a program: it then uses plain verbs. On the real libmlx5,
 * without a device; the process before it is bare. */
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake/verbs/agent.h"
#include "tests/fake/verbs/rig.h"

/* A device that libmlx5 would take for its own cannot be made without hardware. The test therefore
 * sees whose answer comes: libmlx5's reads the device. */
int main(int argc, char **argv)
{
	struct mlx5dv_context_attr devx = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
	bool ok;

	(void)argc;
	if (rig_exec_real(argv) || fake_agent_start()) {
		printf("not ok 1 - the rig starts\n1..1\n");
		return 1;
	}
	ok = !mlx5dv_is_supported(NULL); /* libmlx5's own would crash */
	printf("%s 1 - no device is mlx5's\n", ok ? "ok" : "not ok");
	errno = 0;
	ok = !mlx5dv_open_device(NULL, &devx) && errno == EOPNOTSUPP;
	printf("%s 2 - DEVX is refused\n1..2\n", ok ? "ok" : "not ok");
	return 0;
}
