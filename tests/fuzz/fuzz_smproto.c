/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The checks of the plugin on its socket, and of ibvmig-sm on those of the path record service. A
 * request that is let in names no more than its bytes hold, and nothing twice. The input: one byte
 * that chooses (even: plugin, odd: path records), then the packet. Version 0 in a packet for the
 * plugin stands for the one that it speaks, so that the corpus outlives a new version. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sm-helper/paths/wire.h"
#include "sm-helper/proto/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void check_assign(const struct sm_assign_request *r, size_t size)
{
	must(r->count >= 1 && r->count <= SM_ASSIGN_MAX);
	must(offsetof(struct sm_assign_request, target) + r->count * sizeof r->target[0] == size);
	must(!(r->flags & ~(uint32_t)SM_ASSIGN_FLAGS));
	must(r->deadline_ms >= 1 && r->deadline_ms <= SM_DEADLINE_MAX_MS);
	for (uint32_t i = 0; i < r->count; i++) {
		const struct sm_target *t = &r->target[i];

		must(t->port_guid && t->node_guid && t->switch_guid && t->switch_port);
		must(t->lid <= IB_LID_UCAST_MAX);
		for (uint32_t k = 0; k < i; k++) {
			must(r->target[k].port_guid != t->port_guid);
			must(!t->lid || r->target[k].lid != t->lid);
		}
	}
}

static void check_guids(const struct sm_guids_request *r, size_t size)
{
	must(r->count >= 1 && r->count <= SM_ASSIGN_MAX);
	must(offsetof(struct sm_guids_request, slot) + r->count * sizeof r->slot[0] == size);
	for (uint32_t i = 0; i < r->count; i++) {
		const struct sm_slot *s = &r->slot[i];

		must(s->port_guid && s->index);
		for (uint32_t k = 0; k < i; k++) {
			must(r->slot[k].port_guid != s->port_guid || r->slot[k].index != s->index);
			must(!s->guid || r->slot[k].guid != s->guid);
		}
	}
}

static void check_plugin(void *packet, size_t size)
{
	char reason[SM_REASON_MAX] = "";
	struct sm_head *h = packet;

	if (size >= sizeof *h && !h->version)
		h->version = SM_PROTO_VERSION;
	if (proto_check_request(packet, size, reason)) {
		must(*reason && memchr(reason, 0, sizeof reason));
		return;
	}
	must(h->bytes == size && h->op >= 1 && h->op < SM_OP_COUNT);
	if (h->op == SM_OP_ASSIGN)
		check_assign(packet, size);
	if (h->op == SM_OP_GUIDS)
		check_guids(packet, size);
	if (h->op == SM_OP_RECORDS) {
		const struct sm_records_request *r = packet;

		must(r->count >= 1 && r->count <= SM_RECORDS_MAX);
		must(offsetof(struct sm_records_request, key) + r->count * sizeof r->key[0] ==
		     size);
	}
}

/* Read and written again, a question is the same up to its zeros. */
static void check_paths(const uint8_t *data, size_t size)
{
	struct path_wire_head h;
	struct path_query q;
	struct path_answer a;
	uint8_t again[PATH_WIRE_QUERY_BYTES];

	if (size < PATH_WIRE_HEAD_BYTES || path_wire_get_head(data, &h))
		return;
	must(h.count >= 1 && h.count <= PATH_WIRE_MAX);
	data += PATH_WIRE_HEAD_BYTES;
	size -= PATH_WIRE_HEAD_BYTES;
	for (; size >= PATH_WIRE_QUERY_BYTES; size -= PATH_WIRE_QUERY_BYTES) {
		path_wire_get_query(data, &q);
		path_wire_put_query(again, &q);
		must(!memcmp(data, again, 34));
		path_wire_get_answer(data, &a);
		path_wire_put_answer(again, &a);
		must(again[0] <= PATH_UNAVAILABLE);
		data += PATH_WIRE_QUERY_BYTES;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* In memory of exactly this size, aligned as a receive buffer is. */
	void *packet = size > 1 ? malloc(size - 1) : NULL;

	if (!packet)
		return 0;
	memcpy(packet, data + 1, size - 1);
	if (data[0] & 1)
		check_paths(packet, size - 1);
	else
		check_plugin(packet, size - 1);
	free(packet);
	return 0;
}
