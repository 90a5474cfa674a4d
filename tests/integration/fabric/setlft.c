/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fabric_setlft SWITCH-LID LID PORT: writes one LFT entry behind the subnet manager's back. With a
 * multicast LID it is one of the MFT, and PORT a mask of the ports 0 to 15. */
#include <infiniband/mad.h>
#include <stdio.h>
#include <stdlib.h>

#define MLID_BASE 0xc000
#define MFT_BLOCK 32

static int set_lft(struct ibmad_port *port, ib_portid_t *sw, unsigned lid, unsigned to)
{
	uint8_t block[IB_SMP_DATA_SIZE];

	if (!smp_query_via(block, sw, IB_ATTR_LINEARFORWTBL, lid / IB_SMP_DATA_SIZE, 0, port))
		return 1;
	block[lid % IB_SMP_DATA_SIZE] = (uint8_t)to;
	return !smp_set_via(block, sw, IB_ATTR_LINEARFORWTBL, lid / IB_SMP_DATA_SIZE, 0, port);
}

static int set_mft(struct ibmad_port *port, ib_portid_t *sw, unsigned mlid, unsigned mask)
{
	unsigned number = (mlid - MLID_BASE) / MFT_BLOCK, at = 2 * (mlid % MFT_BLOCK);
	uint8_t block[IB_SMP_DATA_SIZE];

	if (!smp_query_via(block, sw, IB_ATTR_MULTICASTFORWTBL, number, 0, port))
		return 1;
	block[at] = (uint8_t)(mask >> 8);
	block[at + 1] = (uint8_t)mask;
	return !smp_set_via(block, sw, IB_ATTR_MULTICASTFORWTBL, number, 0, port);
}

int main(int argc, char **argv)
{
	int classes[] = {IB_SMI_CLASS, IB_SMI_DIRECT_CLASS};
	ib_portid_t sw = {0};
	struct ibmad_port *port;
	unsigned lid, to;

	if (argc != 4) {
		fputs("usage: fabric_setlft SWITCH-LID LID PORT\n", stderr);
		return 2;
	}
	sw.lid = atoi(argv[1]);
	lid = (unsigned)strtoul(argv[2], NULL, 0);
	to = (unsigned)strtoul(argv[3], NULL, 0);
	port = mad_rpc_open_port(NULL, 0, classes, 2);
	if (!port)
		return 1;
	return (lid < MLID_BASE ? set_lft : set_mft)(port, &sw, lid, to);
}
