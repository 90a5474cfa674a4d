/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whatever peers say to the shim of a process: its tables keep their bounds, QPs are only connected
 * to numbers that can be. The input: one byte of state, then packets, each after its length. */
#include <stddef.h>
#include <stdint.h>

#include "tests/unit/guest-agent/peer_world.h"

#define PACKETS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static bool is_a_peer(const struct shim_peer *peer)
{
	struct shim_peer *p;

	list_for_each (p, &shim.peers, link)
		if (p == peer)
			return true;
	return !peer;
}

static void check(void)
{
	unsigned chunks = 0;
	struct shim_peer *p;

	must(world_peers() <= 4096);
	list_for_each (p, &shim.peers, link)
		chunks += p->keys.chunks + (p->srqns ? p->srqns->chunks : 0);
	must(chunks == shim.peer_chunks);
	for (unsigned i = 0; i < 2; i++) {
		must(world_qp[i].dqpn <= SHIM_QPN_MAX);
		must(is_a_peer(world_qp[i].peer));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct peer_head h;
	uint16_t bytes;

	if (!size)
		return 0;
	world_begin();
	if (data[0] & 1)
		world_asks(&world_qp[0]);
	world_qp[0].resolved = data[0] & 4; /* once it has a peer it is connected */
	if (data[0] & 2)
		world_qp[1].phase = QP_DRAINING;
	data++;
	size--;
	for (unsigned i = 0; i < PACKETS_MAX && size >= sizeof(bytes); i++) {
		memcpy(&bytes, data, sizeof(bytes));
		data += sizeof(bytes);
		size -= sizeof(bytes);
		if (bytes > size)
			bytes = (uint16_t)size;
		if (bytes >= sizeof(h)) {
			memcpy(&h, data, sizeof(h));
			h.dst_slot = shim.slot; /* by which the agent has found us */
			h.dst_instance = shim.instance;
			world_deliver(&h, data + sizeof(h), bytes - sizeof(h));
			check();
		}
		data += bytes;
		size -= bytes;
	}
	world_end();
	return 0;
}
