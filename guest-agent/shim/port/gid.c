/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GIDs as the program has seen them. Until the first move the table is the device's, and all that
 * is done is to note which GID stands where. The address of a port may change for other reasons, so
 * an index whose GID has gone stands for what is there now. */
#include "guest-agent/shim/port/gid.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"

#include <errno.h>
#include <string.h>

static pthread_mutex_t tables = PTHREAD_MUTEX_INITIALIZER;

void gids_forget_all(void)
{
	pthread_mutex_init(&tables, NULL);
}

/* NULL: an index or port beyond what is kept, which passes through. */
static struct shim_gids *table_of(struct shim_context *c, uint8_t port, unsigned index)
{
	return port >= 1 && port <= SHIM_PORTS_MAX && index < SHIM_GIDS_KEPT ? &c->gids[port - 1]
									     : NULL;
}

static bool device_has(const struct shim_context *c, uint8_t port, unsigned index,
		       union ibv_gid *ret_gid)
{
	return !real_verbs.query_gid(c->real, port, (int)index, ret_gid) &&
	       ret_gid->global.interface_id;
}

static bool is_seen(const struct shim_gids *t, unsigned index)
{
	return t->seen[index].global.interface_id;
}

static bool same(const union ibv_gid *a, const union ibv_gid *b)
{
	return !memcmp(a->raw, b->raw, sizeof(a->raw));
}

/* The kernel is asked for each entry. */
int gid_find(const struct shim_context *c, uint8_t port, const uint8_t gid[16])
{
	struct ibv_port_attr attr;
	union ibv_gid g;
	struct verbs_context *v = verbs_get_ctx_op(c->real, query_port);

	memset(&attr, 0, sizeof(attr));
	if (!v || v->query_port(c->real, port, &attr, sizeof(attr)))
		return -ENODEV;
	for (int i = 0; i < attr.gid_tbl_len; i++)
		if (!real_verbs.query_gid(c->real, port, i, &g) && !memcmp(g.raw, gid, 16))
			return i;
	return -EADDRNOTAVAIL;
}

/* Notes what the device has there, unless the program has seen something else at that index. */
static void note(struct shim_context *c, uint8_t port, struct shim_gids *t, unsigned index)
{
	union ibv_gid gid;

	if (!is_seen(t, index) && device_has(c, port, index, &gid))
		t->seen[index] = gid;
}

/* A GID that stands twice (RoCE, with several types) is taken at the same index. */
static int to_device(struct shim_context *c, uint8_t port, struct shim_gids *t, unsigned index)
{
	union ibv_gid gid;

	note(c, port, t, index);
	if (!c->moved || !is_seen(t, index) ||
	    (device_has(c, port, index, &gid) && same(&gid, &t->seen[index])))
		return (int)index;
	return gid_find(c, port, t->seen[index].raw);
}

int gid_index_at_device(struct shim_context *c, uint8_t port, unsigned index)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);
	struct shim_gids *t = table_of(c, port, index);

	return t ? to_device(c, port, t, index) : (int)index;
}

unsigned gid_index_of_device(struct shim_context *c, uint8_t port, unsigned index)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);
	struct shim_gids *t = table_of(c, port, index);
	union ibv_gid gid;

	if (!t || !c->moved || !device_has(c, port, index, &gid) || same(&gid, &t->seen[index]))
		return index;
	for (unsigned i = 0; i < SHIM_GIDS_KEPT; i++)
		if (same(&gid, &t->seen[i]))
			return i;
	for (unsigned i = 0; i < SHIM_GIDS_KEPT; i++) {
		unsigned at = (index + i) % SHIM_GIDS_KEPT;

		if (!is_seen(t, at)) {
			t->seen[at] = gid;
			return at;
		}
	}
	return index;
}

unsigned gid_answering(struct shim_context *c, uint8_t port, unsigned index)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);
	struct shim_gids *t = table_of(c, port, index);
	int at;

	if (!t || !c->moved)
		return index;
	at = to_device(c, port, t, index);
	return at < 0 ? index : (unsigned)at;
}

/* Before the first move the newest counts, after it the first. */
void gid_saw(struct shim_context *c, uint8_t port, unsigned index, const union ibv_gid *gid)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);
	struct shim_gids *t = table_of(c, port, index);

	if (t && gid->global.interface_id)
		t->seen[index] = *gid;
}
