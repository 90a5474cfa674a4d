/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/fabric/probe_int.h"
#include "common/util.h"

#include <errno.h>
#include <infiniband/mad.h>
#include <infiniband/umad.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define SA_TIMEOUT_MS  2000
#define PORTS_MAX      254
#define IB_ATTR_NOTICE 0x02 /* libibmad has no name for it */

int probe_new(const char *ca, unsigned port, struct probe **ret_probe)
{
	struct probe *m = calloc(1, sizeof *m);

	if (!m || str_set(&m->ca, ca)) {
		free(m);
		return -ENOMEM;
	}
	m->port = port;
	pthread_mutex_init(&m->lock, NULL);
	pthread_mutex_init(&m->next, NULL);
	*ret_probe = m;
	return 0;
}

int probe_giving_way(struct probe *of, struct probe **ret_probe)
{
	int rc = probe_new(NULL, 0, ret_probe);

	if (!rc)
		(*ret_probe)->of = of;
	return rc;
}

void probe_free(struct probe *m)
{
	if (!m)
		return;
	if (m->mad)
		mad_rpc_close_port(m->mad);
	free(m->ca);
	free(m);
}

static int fail(char *error, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(char *error, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, PROBE_ERROR_MAX, fmt, ap);
	va_end(ap);
	return rc;
}

int probe_open(struct probe *m, char *error)
{
	int classes[] = {IB_SMI_CLASS, IB_SMI_DIRECT_CLASS, IB_SA_CLASS, IB_PERFORMANCE_CLASS};
	umad_port_t port;

	if (m->mad)
		return 0;
	if (umad_init() < 0 || umad_get_port(m->ca, (int)m->port, &port) < 0)
		return fail(error, -ENODEV,
			    "no InfiniBand port for management (umad-ca \"%s\", umad-port %u): is "
			    "ib_umad loaded and may this process open /dev/infiniband/umad*?",
			    m->ca ? m->ca : "any", m->port);
	m->own_guid = be64toh(port.port_guid);
	umad_release_port(&port);
	m->mad = mad_rpc_open_port(m->ca, (int)m->port, classes, ARRAY_SIZE(classes));
	if (!m->mad)
		return fail(error, -ENODEV, "the management port cannot be opened: %s",
			    strerror(errno));
	return 0;
}

int probe_own_guid(struct probe *m, uint64_t *ret_port_guid, char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	int rc = probe_open(m, error);

	if (!rc)
		*ret_port_guid = m->own_guid;
	return rc;
}

ib_portid_t probe_directed(const struct probe_route *to)
{
	ib_portid_t id = {0};

	id.drpath.cnt = to->hops;
	memcpy(id.drpath.p, to->path, (size_t)to->hops + 1);
	id.drpath.drslid = id.drpath.drdlid = 0xffff;
	return id;
}

bool probe_is_lost(uint64_t start_ms, uint64_t try_ms, unsigned timeout_ms)
{
	uint64_t now = now_ms();

	return errno != EIO && now - try_ms >= timeout_ms - 1 &&
	       now - start_ms < (uint64_t)(PROBE_TRIES - 1) * timeout_ms + timeout_ms / 2;
}

/* A SubnGet. Lock held by the caller. */
static int query(struct probe *m, ib_portid_t *to, unsigned attr, unsigned mod, uint8_t *data,
		 char *error)
{
	uint64_t start = now_ms(), try;
	int rc = probe_open(m, error);

	if (rc)
		return rc;
	do {
		try = now_ms();
		errno = 0;
		if (smp_query_via(data, to, attr, mod, PROBE_SMP_MS, m->mad))
			return 0;
	} while (probe_is_lost(start, try, PROBE_SMP_MS));
	return fail(error, -EIO, "no answer to an SMP to %s", portid2str(to));
}

int probe_node_info(struct probe *m, const struct probe_route *to, uint64_t *ret_node_guid,
		    uint64_t *ret_port_guid, char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = probe_directed(to);
	int rc = query(m, &id, IB_ATTR_NODE_INFO, 0, data, error);

	if (rc)
		return rc;
	*ret_node_guid = mad_get_field64(data, 0, IB_NODE_GUID_F);
	*ret_port_guid = mad_get_field64(data, 0, IB_NODE_PORT_GUID_F);
	return 0;
}

int probe_node_info_lid(struct probe *m, uint16_t lid, uint64_t *ret_port_guid,
			char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = {.lid = lid};
	int rc = query(m, &id, IB_ATTR_NODE_INFO, 0, data, error);

	if (!rc)
		*ret_port_guid = mad_get_field64(data, 0, IB_NODE_PORT_GUID_F);
	return rc;
}

int probe_guid_block(struct probe *m, uint16_t lid, uint64_t port_guid, unsigned block,
		     uint64_t ret_guid[static PROBE_GUID_BLOCK], char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = {.lid = lid};
	uint64_t shown;
	int rc = query(m, &id, IB_ATTR_GUID_INFO, 0, data, error);

	if (rc)
		return rc;
	shown = mad_get_field64(data, 0, IB_GI_GUID0_F);
	if (shown != port_guid)
		return fail(error, -EPROTO, "LID %u answers as 0x%016" PRIx64, lid, shown);
	if (block && (rc = query(m, &id, IB_ATTR_GUID_INFO, block, data, error)))
		return rc;
	for (int i = 0; i < PROBE_GUID_BLOCK; i++)
		ret_guid[i] = mad_get_field64(data, 0, IB_GI_GUID0_F + i);
	return 0;
}

int probe_guid(struct probe *m, uint16_t lid, uint64_t port_guid, unsigned index,
	       uint64_t *ret_guid, char error[static PROBE_ERROR_MAX])
{
	uint64_t guid[PROBE_GUID_BLOCK];
	int rc = probe_guid_block(m, lid, port_guid, index / PROBE_GUID_BLOCK, guid, error);

	if (!rc)
		*ret_guid = guid[index % PROBE_GUID_BLOCK];
	return rc;
}

static uint16_t own_sm_lid(struct probe *m)
{
	umad_port_t port;
	uint16_t lid;

	if (umad_get_port(m->ca, (int)m->port, &port) < 0)
		return 0;
	lid = (uint16_t)port.sm_lid;
	umad_release_port(&port);
	return lid;
}

int probe_node(struct probe *m, const struct probe_route *to, struct probe_node *ret_node,
	       char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = probe_directed(to);
	int rc = query(m, &id, IB_ATTR_NODE_INFO, 0, data, error);
	unsigned type, ports, port;

	if (rc)
		return rc;
	type = mad_get_field(data, 0, IB_NODE_TYPE_F);
	ports = mad_get_field(data, 0, IB_NODE_NPORTS_F);
	port = mad_get_field(data, 0, IB_NODE_LOCAL_PORT_F);
	if (type < IB_NODE_CA || type > IB_NODE_ROUTER || !ports || ports > PORTS_MAX ||
	    port > ports || (!port && type != IB_NODE_SWITCH))
		return fail(error, -EPROTO, "node at %s: type %u, %u ports, port %u cannot be",
			    portid2str(&id), type, ports, port);
	*ret_node = (struct probe_node){
		.node_guid = mad_get_field64(data, 0, IB_NODE_GUID_F),
		.port_guid = mad_get_field64(data, 0, IB_NODE_PORT_GUID_F),
		.is_switch = type == IB_NODE_SWITCH,
		.ports = (uint8_t)ports,
		.port = (uint8_t)port,
	};
	return 0;
}

int probe_node_desc(struct probe *m, const struct probe_route *to,
		    char ret_desc[static PROBE_DESC_MAX], char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = probe_directed(to);
	int rc = query(m, &id, IB_ATTR_NODE_DESC, 0, data, error);
	size_t n = 0;

	if (rc)
		return rc;
	while (n < PROBE_DESC_MAX - 1 && data[n] >= ' ' && data[n] < 0x7f)
		n++;
	memcpy(ret_desc, data, n);
	ret_desc[n] = '\0';
	return 0;
}

/* Lock held. The attribute as it is in data, for who wants to write it. */
static int read_port(struct probe *m, ib_portid_t *id, unsigned port, uint8_t *data,
		     struct probe_port *ret_port, char *error)
{
	int rc = query(m, id, IB_ATTR_PORT_INFO, port, data, error);
	unsigned lid;

	if (rc)
		return rc;
	lid = mad_get_field(data, 0, IB_PORT_LID_F);
	*ret_port = (struct probe_port){
		.lid = (uint16_t)(ib_lid_is_unicast(lid) ? lid : 0),
		.lmc = (uint8_t)mad_get_field(data, 0, IB_PORT_LMC_F),
		.state = (uint8_t)mad_get_field(data, 0, IB_PORT_STATE_F),
	};
	return 0;
}

int probe_port_info(struct probe *m, const struct probe_route *to, unsigned port,
		    struct probe_port *ret_port, char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = probe_directed(to);

	return read_port(m, &id, port, data, ret_port, error);
}

int probe_set_lid(struct probe *m, const struct probe_route *to, unsigned port, uint16_t lid,
		  char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = probe_directed(to);
	struct probe_port is;
	int rc = read_port(m, &id, port, data, &is, error);

	if (rc)
		return rc;
	/* IBA 1.4, 14.2.5.6: 0 leaves these three as they are */
	mad_set_field(data, 0, IB_PORT_STATE_F, 0);
	mad_set_field(data, 0, IB_PORT_PHYS_STATE_F, 0);
	mad_set_field(data, 0, IB_PORT_LINK_DOWN_DEF_F, 0);
	mad_set_field(data, 0, IB_PORT_LID_F, lid);
	if (!smp_set_via(data, &id, IB_ATTR_PORT_INFO, port, PROBE_SMP_MS, m->mad))
		return fail(error, -EIO,
			    "port %u at %s has not taken LID %u (does the subnet use an M_Key?)",
			    port, portid2str(&id), lid);
	return 0;
}

int probe_sm(struct probe *m, struct probe_sm *ret_sm, char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = {0};
	int rc = probe_open(m, error);

	if (rc)
		return rc;
	if (!(id.lid = own_sm_lid(m)))
		return fail(error, -ENODEV, "no subnet manager is known");
	if ((rc = query(m, &id, IB_ATTR_SMINFO, 0, data, error)))
		return rc;
	*ret_sm = (struct probe_sm){
		.guid = mad_get_field64(data, 0, IB_SMINFO_GUID_F),
		.lid = (uint16_t)id.lid,
		.state = (uint8_t)mad_get_field(data, 0, IB_SMINFO_STATE_F),
		.activity = mad_get_field(data, 0, IB_SMINFO_ACT_F),
	};
	return 0;
}

/* Trap 144 of our own port, with the capability mask that it has: IBA 1.4, 13.4.8.2 and 14.2.5.1.
 */
static void put_notice(uint8_t data[IB_SMP_DATA_SIZE], const umad_port_t *own)
{
	const uint16_t lid = (uint16_t)own->base_lid;

	memset(data, 0, IB_SMP_DATA_SIZE);
	data[0] = 0x80 | 4; /* generic, informational */
	data[3] = IB_NODE_CA;
	data[5] = 144;
	data[6] = data[12] = (uint8_t)(lid >> 8);
	data[7] = data[13] = (uint8_t)lid;
	memcpy(data + 16, &own->capmask, sizeof own->capmask); /* big-endian as it is */
}

int probe_ask_sweep(struct probe *m, char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	ib_rpc_t rpc = {
		.mgtclass = IB_SMI_CLASS,
		.method = IB_MAD_METHOD_TRAP,
		.attr = {.id = IB_ATTR_NOTICE},
		.datasz = IB_SMP_DATA_SIZE,
		.dataoffs = IB_SMP_DATA_OFFS,
	};
	uint64_t mad[(sizeof(struct ib_user_mad) + IB_MAD_SIZE) / 8 + 1] = {0};
	uint8_t data[IB_SMP_DATA_SIZE];
	ib_portid_t sm = {0};
	umad_port_t own;
	int rc = probe_open(m, error);

	if (rc)
		return rc;
	if (umad_get_port(m->ca, (int)m->port, &own) < 0)
		return fail(error, -ENODEV, "our own port is gone");
	sm.lid = (int)own.sm_lid;
	put_notice(data, &own);
	umad_release_port(&own);
	/* no TrapRepress is waited for: the sweep shows by what it does */
	if (mad_build_pkt(mad, &rpc, &sm, NULL, data) < 0 ||
	    umad_send(mad_rpc_portid(m->mad), mad_rpc_class_agent(m->mad, IB_SMI_CLASS), mad,
		      IB_MAD_SIZE, 0, 0) < 0)
		return fail(error, -EIO, "a trap to the subnet manager at LID %d cannot be sent",
			    sm.lid);
	return 0;
}

static uint16_t be16_at(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* Components of a PathRecord that a question names, and where they are: IBA 1.4, 15.2.5.16. */
#define PR_DGID      (1ull << 2)
#define PR_SGID      (1ull << 3)
#define PR_DLID      (1ull << 4)
#define PR_NUMB_PATH (1ull << 12)
#define PR_PKEY      (1ull << 13)
#define PR_PKEY_AT   50
#define PR_DGID_AT   8

static void parse_path(const uint8_t *r, struct probe_path *path)
{
	*path = (struct probe_path){
		.dlid = be16_at(r + 40),
		.slid = be16_at(r + 42),
		.pkey = be16_at(r + PR_PKEY_AT),
		.sl = r[53] & 0x0f,
		.mtu = r[54] & 0x3f,
		.rate = r[55] & 0x3f,
	};
}

/* A question to the SA at sm_lid (0: the one that our port knows), sent again where it got lost;
 * data: the record of the question, then of the answer. -EACCES: an answer, and it says no. */
static int call_sa(struct probe *m, uint16_t sm_lid, ib_sa_call_t *call,
		   uint8_t data[static IB_SA_DATA_SIZE], char *error)
{
	ib_portid_t sm = {.qp = 1, .qkey = IB_DEFAULT_QP1_QKEY};
	uint8_t question[IB_SA_DATA_SIZE];
	uint64_t start = now_ms(), try;
	int rc = probe_open(m, error);
	bool there;

	if (rc)
		return rc;
	sm.lid = sm_lid ? sm_lid : own_sm_lid(m);
	if (!sm.lid)
		return fail(error, -ENODEV, "no subnet manager is known");
	mad_rpc_set_timeout(m->mad, SA_TIMEOUT_MS);
	memcpy(question, data, sizeof question);
	do {
		memcpy(data, question, sizeof question);
		try = now_ms();
		errno = 0;
		there = sa_rpc_call(m->mad, data, &sm, call, 0) != NULL;
	} while (!there && probe_is_lost(start, try, SA_TIMEOUT_MS));
	if (there)
		return 0;
	return errno == EIO ? fail(error, -EACCES, "the SA at LID %d refuses", sm.lid)
			    : fail(error, -ETIMEDOUT, "the SA at LID %d does not answer", sm.lid);
}

/* The destination is in the record already, as the component `to`. Lock held. */
static int ask_path(struct probe *m, uint16_t sm_lid, const struct ib_gid *sgid, uint16_t pkey,
		    uint64_t to, uint8_t record[static IB_SA_DATA_SIZE], char *error)
{
	ib_sa_call_t call = {
		.method = IB_MAD_METHOD_GET,
		.attrid = IB_SA_ATTR_PATHRECORD,
		.mask = to | PR_SGID | PR_NUMB_PATH | (pkey ? PR_PKEY : 0),
	};
	ibmad_gid_t from;
	int rc;

	/* cppcheck-suppress uninitvar ; it is written */
	ib_gid_to_bytes(sgid, from);
	mad_set_array(record, 0, IB_SA_PR_SGID_F, from);
	mad_set_field(record, 0, IB_SA_PR_NPATH_F, 1);
	record[PR_PKEY_AT] = (uint8_t)(pkey >> 8);
	record[PR_PKEY_AT + 1] = (uint8_t)pkey;
	rc = call_sa(m, sm_lid, &call, record, error);
	return rc == -EACCES ? fail(error, -ENOENT, "the SA knows no such path") : rc;
}

int probe_path(struct probe *m, uint16_t sm_lid, const struct ib_gid *sgid,
	       const struct ib_gid *dgid, uint16_t pkey, struct probe_path *ret_path,
	       char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t record[IB_SA_DATA_SIZE] = {0};
	ibmad_gid_t to;
	int rc;

	/* cppcheck-suppress uninitvar ; it is written */
	ib_gid_to_bytes(dgid, to);
	mad_set_array(record, 0, IB_SA_PR_DGID_F, to);
	rc = ask_path(m, sm_lid, sgid, pkey, PR_DGID, record, error);
	if (!rc)
		parse_path(record, ret_path);
	return rc;
}

int probe_path_to_lid(struct probe *m, const struct ib_gid *sgid, uint16_t dlid, uint16_t pkey,
		      struct probe_path *ret_path, struct ib_gid *ret_dgid,
		      char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t record[IB_SA_DATA_SIZE] = {0};
	int rc;

	mad_set_field(record, 0, IB_SA_PR_DLID_F, dlid);
	rc = ask_path(m, 0, sgid, pkey, PR_DLID, record, error);
	if (rc)
		return rc;
	parse_path(record, ret_path);
	ib_gid_from_bytes(record + PR_DGID_AT, ret_dgid);
	return 0;
}

/* A GUIDInfoRecord: LID, block and eight GUIDs, each a component: IBA 1.4, 15.2.5.18. */
#define GIR_LID_BLOCK 3ull
#define GIR_GUID0     4 /* bit of the first */
#define GIR_GUIDS_AT  8
#define SA_ATTR_GIR   0x30
#define SA_DELETE     0x15

int probe_write_guids(struct probe *m, uint16_t lid, unsigned block, bool set, uint8_t mask,
		      uint64_t guid[static PROBE_GUID_BLOCK], char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t record[IB_SA_DATA_SIZE] = {(uint8_t)(lid >> 8), (uint8_t)lid, (uint8_t)block};
	ib_sa_call_t call = {
		.method = set ? IB_MAD_METHOD_SET : SA_DELETE,
		.attrid = SA_ATTR_GIR,
		.mask = GIR_LID_BLOCK | (uint64_t)mask << GIR_GUID0,
	};
	int rc;

	for (int i = 0; i < PROBE_GUID_BLOCK; i++)
		mad_set_field64(record + GIR_GUIDS_AT, 0, IB_GI_GUID0_F + i, guid[i]);
	if ((rc = call_sa(m, 0, &call, record, error)))
		return rc;
	for (int i = 0; i < PROBE_GUID_BLOCK; i++)
		guid[i] = mad_get_field64(record + GIR_GUIDS_AT, 0, IB_GI_GUID0_F + i);
	return 0;
}
