/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The program's questions for P_Keys and GIDs of a port: its own indices count, as in port/. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/port/gid.h"
#include "guest-agent/shim/port/pkey.h"
#include "guest-agent/shim/verbs/context.h"

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	int rc;

	if (!shim_ours(context))
		return real_verbs.query_pkey(context, port, index, pkey);
	ctl_enter();
	rc = pkey_query(to_context(context), port, index, pkey);
	ctl_exit();
	return rc;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	int at;

	if (!shim_ours(context))
		return real_verbs.get_pkey_index(context, port, pkey);
	ctl_enter();
	at = pkey_find(to_context(context), port, pkey);
	ctl_exit();
	return at;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct shim_context *c;
	int rc;

	if (!shim_ours(context))
		return real_verbs.query_gid(context, port, index, gid);
	c = to_context(context);
	ctl_enter();
	rc = real_verbs.query_gid(c->real, port, (int)gid_answering(c, port, (unsigned)index), gid);
	if (!rc)
		gid_saw(c, port, (unsigned)index, gid);
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
	rc = real_verbs._query_gid_ex(c->real, port, gid_answering(c, (uint8_t)port, index), entry,
				      flags, bytes);
	if (!rc) {
		entry->gid_index = index;
		gid_saw(c, (uint8_t)port, index, &entry->gid);
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
	rc = real_verbs.query_gid_type(c->real, port, gid_answering(c, port, index), type);
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
		gid_saw(c, (uint8_t)e->port_num, e->gid_index, &e->gid);
	}
	ctl_exit();
	return n;
}
