/* SPDX-License-Identifier: GPL-2.0-or-later */
/* P_Key tables of CA ports, by directed route. */
#include "sm-helper/fabric/probe_int.h"
#include "common/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_PKEYS 32 /* in a P_KeyTable: IBA 1.4, 14.2.5.7 */

static bool ask(struct probe *m, ib_portid_t *to, unsigned attr, unsigned mod, uint8_t *data)
{
	uint64_t start = now_ms(), try;

	do {
		try = now_ms();
		errno = 0;
		if (smp_query_via(data, to, attr, mod, PROBE_SMP_MS, m->mad))
			return true;
	} while (probe_is_lost(start, try, PROBE_SMP_MS));
	return false;
}

static void take_block(const uint8_t *data, struct pkeys *keys)
{
	for (unsigned i = 0; i < BLOCK_PKEYS && keys->count < PKEYS_MAX; i++) {
		uint16_t key = (uint16_t)(data[2 * i] << 8 | data[2 * i + 1]);

		if (key & PKEY_BASE)
			keys->key[keys->count++] = key;
	}
}

int probe_pkeys(struct probe *m, const struct probe_route *to, struct pkeys *ret_keys,
		char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = probe_directed(to);
	int rc = probe_open(m, error);
	unsigned room = 0;
	bool there = !rc && ask(m, &id, IB_ATTR_NODE_INFO, 0, data);

	ret_keys->count = 0;
	if (there)
		room = mad_get_field(data, 0, IB_NODE_PARTITION_CAP_F);
	for (unsigned block = 0; there && block * BLOCK_PKEYS < room; block++) {
		memset(data, 0, sizeof data);
		there = ask(m, &id, IB_ATTR_PKEY_TBL, block, data);
		if (there)
			take_block(data, ret_keys);
	}
	if (rc || there)
		return rc;
	snprintf(error, PROBE_ERROR_MAX, "no answer to a question for the P_Keys of %s",
		 portid2str(&id));
	return -EIO;
}
