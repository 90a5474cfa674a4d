/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A partition file with any content: it is read or given up, and a port always is in the default
 * partition. A member that is added to any partition is one, and is none after that. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "sm-helper/plugin/partitions/policy.h"

#define GUID 0x00a1b2fffe000101u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_added(struct policy *p, uint16_t pkey, const struct policy_port *port)
{
	enum sm_member_as before = policy_member(p, pkey, port);

	if (policy_add(p, pkey, GUID, SM_MEMBER_LIMITED) ||
	    policy_member(p, pkey, port) != SM_MEMBER_LIMITED || !policy_drop(p, pkey, GUID) ||
	    policy_member(p, pkey, port) != before)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct policy_port port = {.guid = GUID, .type = SM_NODE_CA};
	struct policy_options options = {.both = size & 1, .qos = true};
	struct policy_pkeys keys = {0};
	struct policy p;

	if (policy_parse((const char *)data, size, &options, &p))
		abort();
	policy_port_pkeys(&p, &port, &keys);
	if (!keys.count || policy_member(&p, POLICY_DEFAULT, &port) == SM_MEMBER_NONE)
		abort();
	for (size_t i = 0; i < p.partitions && i < 16; i++)
		check_added(&p, p.partition[i].pkey, &port);
	policy_free(&p);
	return 0;
}
