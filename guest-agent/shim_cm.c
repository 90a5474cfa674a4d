/* SPDX-License-Identifier: GPL-2.0-or-later */
/* librdmacm: its verbs pass through us, but its ids live in the kernel, on the device that leaves.
 * A process that has one works as ever and refuses the migration. */
#include "guest-agent/shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <string.h>

typedef int create_id_fn(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
			 enum rdma_port_space ps);

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps)
{
	void *f = dlvsym(RTLD_NEXT, "rdma_create_id", "RDMACM_1.0");
	create_id_fn *real;

	if (!f) { /* the program has loaded librdmacm by dlopen() */
		void *lib = dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_LOCAL);

		f = lib ? dlvsym(lib, "rdma_create_id", "RDMACM_1.0") : NULL;
	}
	if (!f) {
		errno = ENOSYS;
		return -1;
	}
	memcpy(&real, &f, sizeof(real));
	if (shim_start())
		shim_set_uncovered("it uses librdmacm (rdma_create_id)");
	return real(channel, id, context, ps);
}
