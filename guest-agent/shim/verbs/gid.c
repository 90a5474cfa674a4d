/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GIDs as the program has seen them. Until the first move the table is the device's, and all that
 * is done is to note which GID stands where. The address of a port may change for other reasons, so
 * an index whose GID has gone stands for what is there now. */
#include "guest-agent/shim/verbs/gid.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/verbs/context.h"

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

/* Where the same GID stands twice (RoCE, with several types), it is that at the same index. */
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

/* The device's index that answers for the program's. */
static unsigned answering(struct shim_context *c, uint8_t port, unsigned index)
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
static void saw(struct shim_context *c, uint8_t port, unsigned index, const union ibv_gid *gid)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);
	struct shim_gids *t = table_of(c, port, index);

	if (t && gid->global.interface_id)
		t->seen[index] = *gid;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct shim_context *c;
	int rc;

	if (!shim_ours(context))
		return real_verbs.query_gid(context, port, index, gid);
	c = to_context(context);
	ctl_enter();
	rc = real_verbs.query_gid(c->real, port, (int)answering(c, port, (unsigned)index), gid);
	if (!rc)
		saw(c, port, (unsigned)index, gid);
	ctl_exit();
	return rc;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
	struct shim_context *c;
	int rc;

	if (!shim_ours(context))
		return real_verbs._query_gid_ex(context, port, index, entry, flags, bytes);
	c = to_context(context);
	ctl_enter();
	rc = real_verbs._query_gid_ex(c->real, port, answering(c, (uint8_t)port, index), entry,
				      flags, bytes);
	if (!rc) {
		entry->gid_index = index;
		saw(c, (uint8_t)port, index, &entry->gid);
	}
	ctl_exit();
	return rc;
}

/* Private of libibverbs, whose headers do not declare it; *type is an enum of RoCE v1 and v2.
 * Programs call it (pyverbs does), and it takes what lies before a context of libibverbs' own. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	struct shim_context *c;
	int rc;

	if (!shim_ours(context))
		return real_verbs.query_gid_type(context, port, index, type);
	c = to_context(context);
	ctl_enter();
	rc = real_verbs.query_gid_type(c->real, port, answering(c, port, index), type);
	ctl_exit();
	return rc;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t bytes)
{
	struct shim_context *c;
	ssize_t n;

	if (!shim_ours(context))
		return real_verbs._query_gid_table(context, entries, max, flags, bytes);
	c = to_context(context);
	ctl_enter();
	n = real_verbs._query_gid_table(c->real, entries, max, flags, bytes);
	for (ssize_t i = 0; i < n; i++) {
		struct ibv_gid_entry *e = (void *)((char *)entries + (size_t)i * bytes);

		e->gid_index = gid_index_of_device(c, (uint8_t)e->port_num, e->gid_index);
		saw(c, (uint8_t)e->port_num, e->gid_index, &e->gid);
	}
	ctl_exit();
	return n;
}
