/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whatever comes back from the fabric: the MADs that answer ibvmig-sm's queries. libibumad is
 * played: what is sent gets its answer from the input, with the right transaction ID so that
 * libibmad takes it. The input: one byte that chooses the query, then answers of ANSWER_BYTES each:
 * status of the kernel, length, MAD. */
#include <errno.h>
#include <infiniband/mad.h>
#include <infiniband/umad.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/fabric/probe.h"

#define ANSWER_BYTES (2 + IB_MAD_SIZE)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	const uint8_t *data; /* rest of the input */
	size_t size;
	uint8_t tid[8]; /* TID of the query */
} played;

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* ---- libibumad, as far as libibmad and probe.c use it ---- */

int umad_init(void)
{
	return 0;
}

int umad_open_port(const char *ca, int port)
{
	(void)ca;
	(void)port;
	return 3;
}

int umad_close_port(int port)
{
	(void)port;
	return 0;
}

int umad_register(int port, int mgmt_class, int version, uint8_t rmpp, long mask[16 / sizeof(long)])
{
	(void)port;
	(void)version;
	(void)rmpp;
	(void)mask;
	return mgmt_class & 0x1f;
}

int umad_get_port(const char *ca, int number, umad_port_t *port)
{
	(void)ca;
	(void)number;
	memset(port, 0, sizeof *port);
	port->sm_lid = 1;
	return 0;
}

int umad_release_port(umad_port_t *port)
{
	(void)port;
	return 0;
}

int umad_send(int port, int agent, void *umad, int length, int timeout_ms, int retries)
{
	(void)port;
	(void)agent;
	(void)timeout_ms;
	(void)retries;
	must(length >= 24 && length <= IB_MAD_SIZE);
	memcpy(played.tid, (uint8_t *)umad_get_mad(umad) + 8, sizeof played.tid);
	return 0;
}

int umad_recv(int port, void *umad, int *length, int timeout_ms)
{
	struct ib_user_mad *u = umad;
	uint8_t *mad = umad_get_mad(umad);
	size_t n = played.size < ANSWER_BYTES ? played.size : ANSWER_BYTES;

	(void)port;
	(void)timeout_ms;
	if (n < 2) {
		errno = ETIMEDOUT;
		return -1;
	}
	memset(mad, 0, (size_t)*length < IB_MAD_SIZE ? (size_t)*length : IB_MAD_SIZE);
	memcpy(mad, played.data + 2, n - 2 < (size_t)*length ? n - 2 : (size_t)*length);
	memcpy(mad + 8, played.tid, sizeof played.tid);
	u->status = played.data[0] & 1 ? ETIMEDOUT : 0;
	*length = IB_MAD_SIZE;
	played.data += n;
	played.size -= n;
	return 0;
}

/* ---- ---- */

static void ask(struct probe *m, unsigned which)
{
	const struct probe_route to = {.path = {0, 1, 2}, .hops = 2};
	const struct ib_gid gid = {IB_GID_PREFIX_LL, 5};
	uint64_t node = 1, port = 2;
	char error[PROBE_ERROR_MAX] = "";
	struct probe_block block[3] = {{.to = to, .block = 3}, {.to = to}, {.to = to, .block = 1}};
	struct probe_path p = {0};
	char desc[PROBE_DESC_MAX];
	struct probe_node n;
	struct probe_port pi;
	struct probe_sm sm;
	int rc = 0;

	switch (which % 8) {
	case 0:
		rc = probe_node_info(m, &to, &node, &port, error);
		must(!rc || (node == 1 && port == 2));
		break;
	case 1:
		rc = probe_node_info_lid(m, 7, &port, error);
		must(!rc || port == 2);
		break;
	case 2:
		rc = probe_lft_blocks(m, block, ARRAY_SIZE(block), error);
		must(!rc == (block[0].read && block[1].read && block[2].read));
		break;
	case 4:
		rc = probe_node(m, &to, &n, error);
		must(rc || (n.ports && n.port <= n.ports && (n.is_switch || n.port)));
		break;
	case 5:
		rc = probe_node_desc(m, &to, desc, error);
		must(rc || strlen(desc) < sizeof desc);
		break;
	case 6:
		rc = probe_port_info(m, &to, 1, &pi, error);
		must(rc || pi.lid <= IB_LID_UCAST_MAX);
		break;
	case 7:
		rc = probe_sm(m, &sm, error);
		break;
	default:
		rc = probe_path(m, 1, &gid, &gid, 0xffff, &p, error);
		must(!rc || !p.dlid);
		must(p.sl <= 15 && p.mtu <= 63 && p.rate <= 63);
	}
	must(!rc == !*error && memchr(error, 0, sizeof error));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct probe *m = NULL;

	if (!size || probe_new(NULL, 0, &m))
		return 0;
	played.data = data + 1;
	played.size = size - 1;
	while (played.size > 1) {
		size_t before = played.size;

		ask(m, data[0]);
		if (played.size == before)
			break;
	}
	probe_free(m);
	return 0;
}
