/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fabric_ping LID PORT-GUID: asks the port at a LID who it is (NodeInfo, routed by the switches'
 * LFTs), one question after the other, until its standard input ends. Each is sent once only.
 *
 * After the first answer, and whenever a line comes in, it prints how many were sent, how many were
 * not answered, and how many another port has answered. */
#include <infiniband/mad.h>
#include <infiniband/umad.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAUSE_US 100
/* The simulator says at once what it has dropped; an answer may be late on a busy machine. */
#define TIMEOUT_MS 60000

static unsigned long sent, lost, wrong;

static void ask(struct ibmad_port *port, int lid, uint64_t guid)
{
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t to = {.lid = lid};

	sent++;
	if (!smp_query_via(data, &to, IB_ATTR_NODE_INFO, 0, TIMEOUT_MS, port))
		lost++;
	else if (mad_get_field64(data, 0, IB_NODE_PORT_GUID_F) != guid)
		wrong++;
}

static void tell(void)
{
	printf("%lu %lu %lu\n", sent, lost, wrong);
	fflush(stdout);
}

/* False: no more questions. */
static bool goes_on(void)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	char line[64];

	if (poll(&in, 1, 0) <= 0)
		return true;
	if (read(STDIN_FILENO, line, sizeof line) <= 0)
		return false;
	tell();
	return true;
}

int main(int argc, char **argv)
{
	int classes[] = {IB_SMI_CLASS, IB_SMI_DIRECT_CLASS};
	struct ibmad_port *port;
	uint64_t guid;
	int lid;

	if (argc != 3) {
		fputs("usage: fabric_ping LID PORT-GUID\n", stderr);
		return 2;
	}
	lid = atoi(argv[1]);
	guid = strtoull(argv[2], NULL, 0);
	if (!(port = mad_rpc_open_port(NULL, 0, classes, 2)))
		return 1;
	mad_rpc_set_retries(port, 1);
	ask(port, lid, guid);
	tell();
	while (goes_on()) {
		ask(port, lid, guid);
		usleep(PAUSE_US);
	}
	return 0;
}
