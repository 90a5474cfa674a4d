/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The requests of hosts to the SA:
 *   fabric_sa guid SM-LID LID INDEX GUID   an entry of a port's GUID table; GUID 0: deletes it
 *   fabric_sa join SM-LID PORT-GUID        a multicast group of our own, by one of the port's GUIDs
 *   fabric_sa paths SM-LID GUID GUID...    path records, of each two GUIDs: "DLID SLID SL MTU RATE"
 *                                          (codes), or "none"
 * Ends with 1 where the SA refuses. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mad.h>

#define ATTR_GUIDINFO_RECORD 0x30
#define METHOD_DELETE        0x15
#define TIMEOUT_MS           20000 /* the SA on a busy machine: late is not refused */

static int call(int method, int attr, uint64_t mask, unsigned sm_lid, uint8_t *record)
{
	int classes[] = {IB_SA_CLASS};
	struct ibmad_port *port = mad_rpc_open_port(NULL, 0, classes, 1);
	ib_portid_t sm = {.lid = (int)sm_lid, .qp = 1, .qkey = IB_DEFAULT_QP1_QKEY};
	ib_sa_call_t sa = {.method = (unsigned)method, .attrid = (unsigned)attr, .mask = mask};

	if (!port) {
		fputs("no port\n", stderr);
		return 2;
	}
	mad_rpc_set_timeout(port, TIMEOUT_MS);
	if (!sa_rpc_call(port, record, &sm, &sa, 0)) {
		fputs("refused\n", stderr);
		return 1;
	}
	return 0;
}

static void put64(uint8_t *to, uint64_t v)
{
	for (int i = 7; i >= 0; i--, v >>= 8)
		to[i] = (uint8_t)v;
}

static uint64_t get64(const uint8_t *from)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | from[i];
	return v;
}

/* IBA 1.4, 15.2.5.18: LID, block, and eight GUIDs; each has a component of its own. */
static int set_guid(unsigned sm_lid, unsigned lid, unsigned index, uint64_t guid)
{
	uint8_t record[IB_SA_DATA_SIZE] = {(uint8_t)(lid >> 8), (uint8_t)lid, (uint8_t)(index / 8)};
	uint8_t *at = record + 8 + 8 * (index % 8);
	int rc;

	put64(at, guid);
	rc = call(guid ? IB_MAD_METHOD_SET : METHOD_DELETE, ATTR_GUIDINFO_RECORD,
		  3 | 1ull << (4 + index % 8), sm_lid, record);
	if (rc || !guid || get64(at) == guid)
		return rc;
	fputs("refused: another port has it\n", stderr); /* OpenSM answers with an empty entry */
	return 1;
}

/* IBA 1.4, 15.2.5.17, as a full member. */
static int join(unsigned sm_lid, uint64_t port_guid)
{
	uint8_t record[IB_SA_DATA_SIZE] = {0xff, 0x15, 0x12, 0x34};
	const uint64_t mask = 1ull << 0 | 1ull << 1 | 1ull << 2 | 1ull << 6 | 1ull << 7 |
			      1ull << 12 | 1ull << 13 | 1ull << 16;

	record[15] = 0x42;
	put64(record + 16, 0xfe80000000000000);
	put64(record + 24, port_guid);
	record[35] = 1; /* Q_Key */
	record[40] = record[41] = 0xff;
	record[48] = 0x51; /* scope site-local, full member */
	return call(IB_MAD_METHOD_SET, IB_SA_ATTR_MCRECORD, mask, sm_lid, record);
}

/* IBA 1.4, 15.2.5.16: DGID, SGID, NumbPath. */
static int path(struct ibmad_port *port, ib_portid_t *sm, uint64_t sguid, uint64_t dguid)
{
	uint8_t r[IB_SA_DATA_SIZE] = {0};
	ib_sa_call_t sa = {.method = IB_MAD_METHOD_GET,
			   .attrid = IB_SA_ATTR_PATHRECORD,
			   .mask = 1ull << 2 | 1ull << 3 | 1ull << 12};

	put64(r + 8, 0xfe80000000000000);
	put64(r + 16, dguid);
	put64(r + 24, 0xfe80000000000000);
	put64(r + 32, sguid);
	r[51] = 1;
	if (!sa_rpc_call(port, r, sm, &sa, 0))
		return puts("none");
	return printf("%d %d %d %d %d\n", r[40] << 8 | r[41], r[42] << 8 | r[43], r[53] & 15,
		      r[54] & 63, r[55] & 63);
}

static int paths(unsigned sm_lid, char **guid, int count)
{
	int classes[] = {IB_SA_CLASS};
	struct ibmad_port *port = mad_rpc_open_port(NULL, 0, classes, 1);
	ib_portid_t sm = {.lid = (int)sm_lid, .qp = 1, .qkey = IB_DEFAULT_QP1_QKEY};

	if (!port) {
		fputs("no port\n", stderr);
		return 2;
	}
	mad_rpc_set_timeout(port, TIMEOUT_MS);
	for (int i = 0; i + 1 < count; i += 2)
		path(port, &sm, strtoull(guid[i], NULL, 0), strtoull(guid[i + 1], NULL, 0));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "guid"))
		return set_guid((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]),
				(unsigned)atoi(argv[4]), strtoull(argv[5], NULL, 0));
	if (argc == 4 && !strcmp(argv[1], "join"))
		return join((unsigned)atoi(argv[2]), strtoull(argv[3], NULL, 0));
	if (argc > 4 && !strcmp(argv[1], "paths"))
		return paths((unsigned)atoi(argv[2]), argv + 3, argc - 3);
	fputs("usage: fabric_sa guid SM-LID LID INDEX GUID | join SM-LID PORT-GUID | "
	      "paths SM-LID GUID GUID...\n",
	      stderr);
	return 2;
}
