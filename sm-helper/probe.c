/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/probe.h"
#include "common/util.h"

#include <errno.h>
#include <infiniband/mad.h>
#include <infiniband/umad.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define SMP_TIMEOUT_MS 500
#define SA_TIMEOUT_MS  2000
#define TRIES          3

struct probe {
	pthread_mutex_t lock; /* libibmad has one receive queue for a port */
	char *ca;             /* owned; NULL: any */
	unsigned port;
	struct ibmad_port *mad; /* owned; NULL: not open */
	uint64_t own_guid;
};

int probe_new(const char *ca, unsigned port, struct probe **ret_probe)
{
	struct probe *m = calloc(1, sizeof *m);

	if (!m || str_set(&m->ca, ca)) {
		free(m);
		return -ENOMEM;
	}
	m->port = port;
	pthread_mutex_init(&m->lock, NULL);
	*ret_probe = m;
	return 0;
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

static int open_port(struct probe *m, char *error)
{
	int classes[] = {IB_SMI_CLASS, IB_SMI_DIRECT_CLASS, IB_SA_CLASS};
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
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&m->lock);
	int rc = open_port(m, error);

	if (!rc)
		*ret_port_guid = m->own_guid;
	return rc;
}

static ib_portid_t directed(const struct probe_route *to)
{
	ib_portid_t id = {0};

	id.drpath.cnt = to->hops;
	memcpy(id.drpath.p, to->path, (size_t)to->hops + 1);
	id.drpath.drslid = id.drpath.drdlid = 0xffff;
	return id;
}

/* Whether a query that failed is sent again: where nothing came for the whole of timeout_ms since
 * try_ms, for the MAD or its answer may be lost. libibmad tries again by itself where the kernel
 * says that time is over; that counts. */
static bool is_lost(uint64_t start_ms, uint64_t try_ms, unsigned timeout_ms)
{
	uint64_t now = now_ms();

	return errno != EIO && now - try_ms >= timeout_ms - 1 &&
	       now - start_ms < (uint64_t)(TRIES - 1) * timeout_ms + timeout_ms / 2;
}

/* A SubnGet. Lock held by the caller. */
static int query(struct probe *m, ib_portid_t *to, unsigned attr, unsigned mod, uint8_t *data,
		 char *error)
{
	uint64_t start = now_ms(), try;
	int rc = open_port(m, error);

	if (rc)
		return rc;
	do {
		try = now_ms();
		errno = 0;
		if (smp_query_via(data, to, attr, mod, SMP_TIMEOUT_MS, m->mad))
			return 0;
	} while (is_lost(start, try, SMP_TIMEOUT_MS));
	return fail(error, -EIO, "no answer to an SMP to %s", portid2str(to));
}

int probe_node_info(struct probe *m, const struct probe_route *to, uint64_t *ret_node_guid,
		    uint64_t *ret_port_guid, char error[static PROBE_ERROR_MAX])
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&m->lock);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = directed(to);
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
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&m->lock);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t id = {.lid = lid};
	int rc = query(m, &id, IB_ATTR_NODE_INFO, 0, data, error);

	if (!rc)
		*ret_port_guid = mad_get_field64(data, 0, IB_NODE_PORT_GUID_F);
	return rc;
}

int probe_lft_block(struct probe *m, const struct probe_route *to, unsigned block,
		    uint8_t ret_data[static 64], char error[static PROBE_ERROR_MAX])
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&m->lock);
	ib_portid_t id = directed(to);

	return query(m, &id, IB_ATTR_LINEARFORWTBL, block, ret_data, error);
}

static uint16_t be16_at(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* Components of a PathRecord that a question names, and where they are: IBA 1.4, 15.2.5.16. */
#define PR_DGID      (1ull << 2)
#define PR_SGID      (1ull << 3)
#define PR_NUMB_PATH (1ull << 12)
#define PR_PKEY      (1ull << 13)
#define PR_PKEY_AT   50

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

/* SubnAdmGet(PathRecord): the record in data, which also holds the question. */
static bool sa_path(struct probe *m, ib_portid_t *sm, const struct ib_gid *sgid,
		    const struct ib_gid *dgid, uint16_t pkey, uint8_t data[IB_SA_DATA_SIZE])
{
	ib_sa_call_t call = {
		.method = IB_MAD_METHOD_GET,
		.attrid = IB_SA_ATTR_PATHRECORD,
		.mask = PR_DGID | PR_SGID | PR_NUMB_PATH | (pkey ? PR_PKEY : 0),
	};
	ibmad_gid_t from, to;

	/* cppcheck-suppress uninitvar ; these are written */
	ib_gid_to_bytes(sgid, from);
	/* cppcheck-suppress uninitvar */
	ib_gid_to_bytes(dgid, to);
	mad_set_array(data, 0, IB_SA_PR_DGID_F, to);
	mad_set_array(data, 0, IB_SA_PR_SGID_F, from);
	mad_set_field(data, 0, IB_SA_PR_NPATH_F, 1);
	data[PR_PKEY_AT] = (uint8_t)(pkey >> 8);
	data[PR_PKEY_AT + 1] = (uint8_t)pkey;
	return sa_rpc_call(m->mad, data, sm, &call, 0) != NULL;
}

int probe_path(struct probe *m, uint16_t sm_lid, const struct ib_gid *sgid,
	       const struct ib_gid *dgid, uint16_t pkey, struct probe_path *ret_path,
	       char error[static PROBE_ERROR_MAX])
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&m->lock);
	uint8_t record[IB_SA_DATA_SIZE] = {0};
	ib_portid_t sm = {.qp = 1, .qkey = IB_DEFAULT_QP1_QKEY};
	uint64_t start = now_ms(), try;
	int rc = open_port(m, error);
	bool there;

	if (rc)
		return rc;
	sm.lid = sm_lid ? sm_lid : own_sm_lid(m);
	if (!sm.lid)
		return fail(error, -ENODEV, "no subnet manager is known");
	mad_rpc_set_timeout(m->mad, SA_TIMEOUT_MS);
	do {
		try = now_ms();
		errno = 0;
		there = sa_path(m, &sm, sgid, dgid, pkey, record);
	} while (!there && is_lost(start, try, SA_TIMEOUT_MS));
	if (!there && errno == EIO) /* an answer, and it says no */
		return fail(error, -ENOENT, "the SA at LID %d knows no such path", sm.lid);
	if (!there)
		return fail(error, -ETIMEDOUT, "the SA at LID %d does not answer", sm.lid);
	parse_path(record, ret_path);
	return 0;
}
