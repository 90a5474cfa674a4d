/* SPDX-License-Identifier: GPL-2.0-or-later */
/* P_Key tables as the ports tell them, many in one run: smpquery takes a process for each.
 *   umad_pkeys LID:PORT...    a line for each: the P_Keys of its table in order, without those that
 *                             are 0. PORT 0: the table of a CA port.
 * Ends with 1 where a port does not answer. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/mad.h>

#define TIMEOUT_MS 5000
#define BLOCK      32 /* P_Keys */

static int query(struct ibmad_port *via, ib_portid_t *to, unsigned attr, unsigned mod,
		 uint8_t data[static IB_SMP_DATA_SIZE])
{
	return smp_query_via(data, to, attr, mod, TIMEOUT_MS, via) ? 0 : -1;
}

/* IBA 1.4, 14.2.5.3 and 14.2.5.4: PartitionCap, and of the ports of a switch
 * PartitionEnforcementCap. */
static int room_of(struct ibmad_port *via, ib_portid_t *to, unsigned port, unsigned *ret_room)
{
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	bool of_switch = port;

	if (query(via, to, of_switch ? IB_ATTR_SWITCH_INFO : IB_ATTR_NODE_INFO, 0, data))
		return -1;
	*ret_room = mad_get_field(
		data, 0, of_switch ? IB_SW_PARTITION_ENFORCE_CAP_F : IB_NODE_PARTITION_CAP_F);
	return 0;
}

static int table(struct ibmad_port *via, unsigned lid, unsigned port)
{
	ib_portid_t to = {.lid = (int)lid};
	unsigned room;

	if (room_of(via, &to, port, &room))
		return -1;
	for (unsigned block = 0; block * BLOCK < room; block++) {
		uint8_t data[IB_SMP_DATA_SIZE] = {0};

		if (query(via, &to, IB_ATTR_PKEY_TBL, port << 16 | block, data))
			return -1;
		for (unsigned i = 0; i < BLOCK; i++) {
			unsigned key = (unsigned)data[2 * i] << 8 | data[2 * i + 1];

			if (key)
				printf("0x%04x ", key);
		}
	}
	puts("");
	return 0;
}

int main(int argc, char **argv)
{
	int classes[] = {IB_SMI_CLASS, IB_SMI_DIRECT_CLASS};
	struct ibmad_port *via = mad_rpc_open_port(NULL, 0, classes, 2);
	unsigned lid, port;

	if (!via) {
		fputs("no port\n", stderr);
		return 2;
	}
	for (int i = 1; i < argc; i++)
		if (sscanf(argv[i], "%u:%u", &lid, &port) != 2 || table(via, lid, port)) {
			fprintf(stderr, "%s: no answer\n", argv[i]);
			return 1;
		}
	return 0;
}
