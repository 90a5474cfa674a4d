/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/port/port.h"
#include "common/util.h"

#include <errno.h>
#include <infiniband/mad.h>
#include <string.h>

#define SMP_TIMEOUT_MS 500
#define PKEY_FULL      0x8000
#define LID_TOP        0xbfff
#define PORT_DOWN      1

static const char *const states[] = {"none", "down", "init", "armed", "active"};

int port_open(struct ibmad_port **ret_mad)
{
	int classes[] = {IB_SMI_CLASS, IB_SMI_DIRECT_CLASS};
	struct ibmad_port *mad = mad_rpc_open_port(NULL, 0, classes, ARRAY_SIZE(classes));

	if (!mad)
		return errno ? -errno : -ENODEV;
	*ret_mad = mad;
	return 0;
}

static int get(struct ibmad_port *mad, unsigned attr, uint8_t data[static IB_SMP_DATA_SIZE])
{
	ib_portid_t self = {0};

	memset(data, 0, IB_SMP_DATA_SIZE);
	return smp_query_via(data, &self, attr, 0, SMP_TIMEOUT_MS, mad) ? 0 : -EIO;
}

static int read_info(struct ibmad_port *mad, struct port *p)
{
	uint8_t d[IB_SMP_DATA_SIZE];
	int r = get(mad, IB_ATTR_PORT_INFO, d);

	if (r)
		return r;
	p->state = (uint8_t)mad_get_field(d, 0, IB_PORT_STATE_F);
	p->lid = (uint16_t)mad_get_field(d, 0, IB_PORT_LID_F);
	p->lmc = (uint8_t)mad_get_field(d, 0, IB_PORT_LMC_F);
	p->sm_lid = (uint16_t)mad_get_field(d, 0, IB_PORT_SMLID_F);
	p->sm_sl = (uint8_t)mad_get_field(d, 0, IB_PORT_SMSL_F);
	p->mtu = (uint8_t)mad_get_field(d, 0, IB_PORT_NEIGHBOR_MTU_F);
	p->reregister = mad_get_field(d, 0, IB_PORT_CLIENT_REREG_F);
	p->prefix = mad_get_field64(d, 0, IB_PORT_GID_PREFIX_F);
	return !p->state || p->state >= ARRAY_SIZE(states) || p->lid > LID_TOP || p->mtu > 5
		       ? -EPROTO
		       : 0;
}

static int read_pkeys(struct ibmad_port *mad, struct port *p)
{
	uint8_t d[IB_SMP_DATA_SIZE];
	int r = get(mad, IB_ATTR_PKEY_TBL, d);

	for (unsigned i = 0; !r && i < IBX_PKEYS; i++)
		p->pkey[i] = (uint16_t)(d[2 * i] << 8 | d[2 * i + 1]);
	return r;
}

static int read_guids(struct ibmad_port *mad, struct port *p)
{
	uint8_t d[IB_SMP_DATA_SIZE];
	int r = get(mad, IB_ATTR_GUID_INFO, d);

	for (unsigned i = 0; !r && i < IBX_GUIDS; i++)
		p->guid[i] = mad_get_field64(d, 0, IB_GI_GUID0_F + (int)i);
	return r;
}

int port_read(struct ibmad_port *mad, struct port *ret_port)
{
	struct port p = {0};
	int r = read_info(mad, &p);

	if (!r)
		r = read_pkeys(mad, &p);
	if (!r)
		r = read_guids(mad, &p);
	if (!r)
		*ret_port = p;
	return r;
}

void port_share(struct port *port, unsigned entry)
{
	uint64_t guid = port->guid[entry];

	memset(port->guid, 0, sizeof(port->guid));
	port->guid[0] = guid;
	if (guid)
		return;
	port->state = PORT_DOWN;
	port->lid = 0;
}

void port_text(const struct port *p, char text[static PORT_TEXT])
{
	int n = snprintf(text, PORT_TEXT,
			 "state %s, LID %u, SM LID %u, SL %u, LMC %u, MTU %u, GUID",
			 states[p->state], p->lid, p->sm_lid, p->sm_sl, p->lmc, p->mtu);

	for (unsigned i = 0; i < IBX_GUIDS; i++)
		if (p->guid[i])
			n += snprintf(text + n, PORT_TEXT - (size_t)n, " 0x%016llx",
				      (unsigned long long)p->guid[i]);
	n += snprintf(text + n, PORT_TEXT - (size_t)n, ", P_Key");
	for (unsigned i = 0; i < IBX_PKEYS; i++)
		if (p->pkey[i])
			n += snprintf(text + n, PORT_TEXT - (size_t)n, " 0x%04x", p->pkey[i]);
	if (p->reregister)
		snprintf(text + n, PORT_TEXT - (size_t)n, ", clients register again");
}

bool port_has_lid(const struct port *p, uint16_t lid)
{
	return p->lid && (lid & ~((1u << p->lmc) - 1)) == p->lid;
}

bool port_sends_pkey(const struct port *p, uint16_t pkey)
{
	for (unsigned i = 0; i < IBX_PKEYS; i++)
		if (p->pkey[i] && (pkey == p->pkey[i] || pkey == (p->pkey[i] & ~PKEY_FULL)))
			return true;
	return false;
}
