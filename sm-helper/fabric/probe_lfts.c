/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Many LFT blocks at once: a window of SMPs instead of a round trip for each. */
#include "sm-helper/fabric/probe_int.h"
#include "common/util.h"

#include <errno.h>
#include <infiniband/umad.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW    16 /* on ibsim more is slower; a walk asks each switch for one at most */
#define SILENT_MS (2 * PROBE_SMP_MS)

static bool send_get(struct probe *m, void *umad, const struct probe_block *b, uint32_t tid)
{
	ib_portid_t to = probe_directed(&b->to);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_rpc_t rpc = {
		.mgtclass = IB_SMI_DIRECT_CLASS,
		.method = IB_MAD_METHOD_GET,
		.attr = {.id = IB_ATTR_LINEARFORWTBL, .mod = b->block},
		.datasz = IB_SMP_DATA_SIZE,
		.dataoffs = IB_SMP_DATA_OFFS,
		.trid = tid,
	};

	memset(umad, 0, umad_size() + IB_MAD_SIZE);
	return mad_build_pkt(umad, &rpc, &to, NULL, data) >= 0 &&
	       umad_send(mad_rpc_portid(m->mad), mad_rpc_class_agent(m->mad, IB_SMI_DIRECT_CLASS),
			 umad, IB_MAD_SIZE, PROBE_SMP_MS, 0) >= 0;
}

/* Takes what has arrived, if it answers one of the SMPs from number `first` on. True: that SMP is
 * over, with an answer or without. */
static bool take_answer(void *umad, struct probe_block *b, unsigned count, uint32_t first)
{
	uint8_t *mad = umad_get_mad(umad);
	uint32_t i = (uint32_t)mad_get_field64(mad, 0, IB_MAD_TRID_F) - first;

	if (i >= count || b[i].read ||
	    mad_get_field(mad, 0, IB_MAD_ATTRID_F) != IB_ATTR_LINEARFORWTBL ||
	    mad_get_field(mad, 0, IB_MAD_ATTRMOD_F) != b[i].block)
		return false;
	if (umad_status(umad) || mad_get_field(mad, 0, IB_DRSMP_STATUS_F))
		return true;
	memcpy(b[i].data, mad + IB_SMP_DATA_OFFS, sizeof b[i].data);
	b[i].read = true;
	return true;
}

/* Sends all that are not read yet, once. */
static void try_all(struct probe *m, void *umad, struct probe_block *b, unsigned count)
{
	unsigned flying = 0, next = 0;
	uint32_t first = m->serial + 1;
	uint64_t answered_ms = now_ms();
	int length;

	m->serial += count;
	for (;;) {
		for (; next < count && flying < WINDOW; next++)
			if (!b[next].read)
				flying += send_get(m, umad, &b[next], first + next);
		if (!flying)
			return;
		length = IB_MAD_SIZE;
		if (umad_recv(mad_rpc_portid(m->mad), umad, &length, SILENT_MS) < 0) {
			flying = 0; /* lost, all that were on their way */
		} else if (take_answer(umad, b, count, first)) {
			flying--;
			answered_ms = now_ms();
		} else if (now_ms() - answered_ms >= SILENT_MS) {
			flying = 0;
		}
	}
}

int probe_lft_blocks(struct probe *m, struct probe_block *b, unsigned count,
		     char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	void *umad AUTO_FREE = NULL;
	unsigned missing = count;
	int rc = probe_open(m, error);

	for (unsigned i = 0; i < count; i++)
		b[i].read = false;
	if (!rc && !(umad = malloc(umad_size() + IB_MAD_SIZE)))
		rc = -ENOMEM;
	for (int tries = 0; !rc && missing && tries < PROBE_TRIES; tries++) {
		try_all(m, umad, b, count);
		missing = 0;
		for (unsigned i = 0; i < count; i++)
			missing += !b[i].read;
	}
	if (!rc && missing)
		snprintf(error, PROBE_ERROR_MAX, "no answer to %u of %u SMPs", missing, count);
	return rc ? rc : missing ? -EIO : 0;
}
