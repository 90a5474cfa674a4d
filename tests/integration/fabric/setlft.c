/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fabric_setlft SWITCH-LID LID PORT: writes one LFT entry behind the subnet manager's back. */
#include <infiniband/mad.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int classes[] = {IB_SMI_CLASS, IB_SMI_DIRECT_CLASS};
	ib_portid_t sw = {0};
	uint8_t block[IB_SMP_DATA_SIZE];
	struct ibmad_port *port;
	unsigned lid;

	if (argc != 4) {
		fputs("usage: fabric_setlft SWITCH-LID LID PORT\n", stderr);
		return 2;
	}
	sw.lid = atoi(argv[1]);
	lid = (unsigned)atoi(argv[2]);
	port = mad_rpc_open_port(NULL, 0, classes, 2);
	if (!port || !smp_query_via(block, &sw, IB_ATTR_LINEARFORWTBL, lid / 64, 0, port))
		return 1;
	block[lid % 64] = (uint8_t)atoi(argv[3]);
	return !smp_set_via(block, &sw, IB_ATTR_LINEARFORWTBL, lid / 64, 0, port);
}
