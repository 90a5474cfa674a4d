/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/paths/wire.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static void put16(uint8_t *to, uint16_t v)
{
	v = htobe16(v);
	memcpy(to, &v, sizeof v);
}

static void put32(uint8_t *to, uint32_t v)
{
	v = htobe32(v);
	memcpy(to, &v, sizeof v);
}

static uint16_t get16(const uint8_t *from)
{
	uint16_t v;

	memcpy(&v, from, sizeof v);
	return be16toh(v);
}

static uint32_t get32(const uint8_t *from)
{
	uint32_t v;

	memcpy(&v, from, sizeof v);
	return be32toh(v);
}

void path_wire_put_head(uint8_t *to, const struct path_wire_head *h)
{
	put32(to, PATH_WIRE_MAGIC);
	put16(to + 4, PATH_WIRE_VERSION);
	put16(to + 6, h->count);
	put32(to + 8, h->id);
	put16(to + 12, h->flags);
	put16(to + 14, 0);
}

int path_wire_get_head(const uint8_t *from, struct path_wire_head *ret_head)
{
	struct path_wire_head h = {
		.id = get32(from + 8),
		.count = get16(from + 6),
		.flags = get16(from + 12),
	};

	if (get32(from) != PATH_WIRE_MAGIC || get16(from + 4) != PATH_WIRE_VERSION)
		return -EPROTO;
	if (h.count < 1 || h.count > PATH_WIRE_MAX)
		return -EINVAL;
	*ret_head = h;
	return 0;
}

void path_wire_put_query(uint8_t *to, const struct path_query *q)
{
	ib_gid_to_bytes(&q->sgid, to);
	ib_gid_to_bytes(&q->dgid, to + 16);
	put16(to + 32, q->pkey);
	memset(to + 34, 0, 6);
}

/* Any bytes are a question; one about GIDs that are none is answered by PATH_NONE. */
void path_wire_get_query(const uint8_t *from, struct path_query *ret_query)
{
	ib_gid_from_bytes(from, &ret_query->sgid);
	ib_gid_from_bytes(from + 16, &ret_query->dgid);
	ret_query->pkey = get16(from + 32);
}

void path_wire_put_answer(uint8_t *to, const struct path_answer *a)
{
	const struct path_value *v = &a->path;

	memset(to, 0, PATH_WIRE_REPLY_BYTES);
	to[0] = !a->error ? PATH_OK : a->error == -ENOENT ? PATH_NONE : PATH_UNAVAILABLE;
	if (a->error)
		return;
	to[1] = v->sl;
	to[2] = v->mtu;
	to[3] = v->rate;
	put16(to + 4, v->dlid);
	put16(to + 6, v->slid);
	put16(to + 8, v->pkey);
}

void path_wire_get_answer(const uint8_t *from, struct path_answer *ret_answer)
{
	*ret_answer = (struct path_answer){
		.error = from[0] == PATH_OK     ? 0
			 : from[0] == PATH_NONE ? -ENOENT
						: -EAGAIN,
		.path =
			{
				.none = from[0] == PATH_NONE,
				.sl = from[1],
				.mtu = from[2],
				.rate = from[3],
				.dlid = get16(from + 4),
				.slid = get16(from + 6),
				.pkey = get16(from + 8),
			},
	};
}
