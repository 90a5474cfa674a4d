/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Plays the subnet manager by hand for one port of the InfiniBand driver:
 * rxe_tell NIC STATE LID[/LMC] SM_LID GUID PKEY...
 *
 * The frame leaves by NIC, and the port behind its other end obeys. STATE is 1 (down) to 4
 * (active), as in PortInfo; numbers may be hexadecimal. */
#include "common/util.h"
#include "tests/lab/rxe/ib_wire.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FIRST_PKEY 6

static const uint64_t prefix = 0xfe80000000000000ull;

static int send_frame(unsigned ifindex, const struct ibx_control *control)
{
	AUTO_CLOSE int fd = socket(AF_PACKET, SOCK_DGRAM, htons(IBX_ETH_CONTROL));
	const struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(IBX_ETH_CONTROL),
		.sll_ifindex = (int)ifindex,
		.sll_halen = 6,
		.sll_addr = {IBX_MAC_MULTICAST, IBX_MAC_1, IBX_MAC_2, 0xff, 0xff, 0xff},
	};

	if (fd < 0 ||
	    sendto(fd, control, sizeof(*control), 0, (const struct sockaddr *)&to, sizeof(to)) < 0)
		return -errno;
	return 0;
}

int main(int argc, char **argv)
{
	struct ibx_control control = {.magic_be = htonl(IBX_MAGIC), .op = IBX_TELL, .guids = 1};
	unsigned ifindex;
	char *lmc;
	int r;

	if (argc <= FIRST_PKEY || argc > FIRST_PKEY + IBX_PKEYS) {
		fprintf(stderr,
			"usage: rxe_tell NIC STATE LID[/LMC] SM_LID GUID PKEY... (at most %d "
			"P_Keys)\n",
			IBX_PKEYS);
		return 2;
	}
	ifindex = if_nametoindex(argv[1]);
	if (!ifindex) {
		fprintf(stderr, "rxe_tell: no NIC %s here\n", argv[1]);
		return 1;
	}
	control.state = (uint8_t)strtoul(argv[2], NULL, 0);
	control.lid_be = htons((uint16_t)strtoul(argv[3], &lmc, 0));
	control.lmc = *lmc == '/' ? (uint8_t)strtoul(lmc + 1, NULL, 0) : 0;
	control.sm_lid_be = htons((uint16_t)strtoul(argv[4], NULL, 0));
	control.prefix_be = htobe64(prefix);
	control.guid_be[0] = htobe64(strtoull(argv[5], NULL, 0));
	for (int i = FIRST_PKEY; i < argc; i++)
		control.pkey_be[control.pkeys++] = htons((uint16_t)strtoul(argv[i], NULL, 0));
	r = send_frame(ifindex, &control);
	if (r)
		fprintf(stderr, "rxe_tell: %s: %s\n", argv[1], strerror(-r));
	return r ? 1 : 0;
}
