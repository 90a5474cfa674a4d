/* SPDX-License-Identifier: GPL-2.0-or-later */
/* P_Keys by the program's indices. Until the first move both tables are the same one, and all that
 * is done is to note which value stands where. */
#include "guest-agent/shim/port/pkey.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define FULL_MEMBER 0x8000 /* IBA 1.4, 10.9.1.1 */
#define PKEY_BASE   0x7fff

/* Around the tables of all contexts: QPs are built by several threads. */
static pthread_mutex_t tables = PTHREAD_MUTEX_INITIALIZER;

void pkeys_forget_all(void)
{
	pthread_mutex_init(&tables, NULL);
}

/* NULL: an index or port beyond what is kept, which passes through. */
static struct shim_pkeys *table_of(struct shim_context *c, uint8_t port, int index)
{
	return port >= 1 && port <= SHIM_PORTS_MAX && index >= 0 && index < SHIM_PKEYS_MAX
		       ? &c->pkeys[port - 1]
		       : NULL;
}

/* The device's entry; 0: it has none there. */
static uint16_t device_has(struct shim_context *c, uint8_t port, int index)
{
	__be16 pkey = 0;

	return real_verbs.query_pkey(c->real, port, index, &pkey) ? 0 : be16toh(pkey);
}

static int device_entries(struct shim_context *c, uint8_t port)
{
	struct verbs_context *v = verbs_get_ctx_op(c->real, query_port);
	struct ibv_port_attr attr;

	memset(&attr, 0, sizeof(attr));
	if (!v || v->query_port(c->real, port, &attr, sizeof(attr)))
		return 0;
	return attr.pkey_tbl_len < SHIM_PKEYS_MAX ? attr.pkey_tbl_len : SHIM_PKEYS_MAX;
}

/* The program's index of the value, or -ENOENT. */
static int seen_at(const struct shim_pkeys *t, uint16_t pkey)
{
	for (int i = 0; pkey && i < SHIM_PKEYS_MAX; i++)
		if (t->seen[i] == pkey)
			return i;
	return -ENOENT;
}

static void place(struct shim_pkeys *t, uint16_t pkey)
{
	for (int i = 0; i < SHIM_PKEYS_MAX; i++)
		if (!t->seen[i]) {
			t->seen[i] = pkey;
			return;
		}
}

/* Gives an index to each P_Key of this device that the program has not seen: the device's own where
 * that is free. */
static void complete(struct shim_context *c, uint8_t port, struct shim_pkeys *t)
{
	uint16_t at[SHIM_PKEYS_MAX];
	int n = device_entries(c, port);

	for (int i = 0; i < n; i++) {
		at[i] = device_has(c, port, i);
		if (!t->seen[i] && seen_at(t, at[i]) < 0)
			t->seen[i] = at[i];
	}
	for (int i = 0; i < n; i++)
		if (at[i] && seen_at(t, at[i]) < 0)
			place(t, at[i]);
	t->completed = true;
}

/* The value at the program's index; 0: none. */
static uint16_t value(struct shim_context *c, uint8_t port, struct shim_pkeys *t, int index)
{
	uint16_t pkey;

	if (t->seen[index])
		return t->seen[index];
	if (c->moved && !t->completed)
		complete(c, port, t);
	if (t->seen[index])
		return t->seen[index];
	pkey = device_has(c, port, index);
	if (seen_at(t, pkey) < 0 || !c->moved)
		t->seen[index] = pkey;
	return t->seen[index];
}

/* A limited member that is a full one by now can do all that it could; not so the other way
 * round. */
static bool stands_for(uint16_t device, uint16_t pkey)
{
	return device == pkey || (!(pkey & FULL_MEMBER) && device == (pkey | FULL_MEMBER));
}

/* The device's index of the value, or -EADDRNOTAVAIL. Mostly it is where it was. */
static int find(struct shim_context *c, uint8_t port, uint16_t pkey, int index)
{
	int n, other = -EADDRNOTAVAIL;

	if (device_has(c, port, index) == pkey)
		return index;
	n = device_entries(c, port);
	for (int i = 0; i < n; i++) {
		uint16_t at = device_has(c, port, i);

		if (at == pkey)
			return i;
		if (other < 0 && stands_for(at, pkey))
			other = i;
	}
	return other;
}

bool pkey_matters(const struct shim_qp *q)
{
	return q->attr_mask & IBV_QP_PKEY_INDEX && q->v.state != IBV_QPS_RESET &&
	       q->v.state != IBV_QPS_ERR;
}

void pkeys_opened(struct shim_context *c)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);

	for (int i = 0; i < SHIM_PORTS_MAX; i++) {
		memset(c->pkeys[i].at, 0, sizeof(c->pkeys[i].at));
		c->pkeys[i].completed = false;
	}
}

int pkey_index(struct shim_context *c, uint8_t port, int index)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);
	struct shim_pkeys *t = table_of(c, port, index);
	uint16_t pkey = t ? value(c, port, t, index) : 0;
	int at;

	if (!pkey || !c->moved) /* none there is for the device to refuse */
		return index;
	if (t->at[index])
		return t->at[index] - 1;
	at = find(c, port, pkey, index);
	if (at >= 0)
		t->at[index] = (uint16_t)(at + 1);
	return at;
}

int pkey_index_of_device(struct shim_context *c, uint8_t port, int index)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);
	struct shim_pkeys *t = table_of(c, port, index);
	uint16_t pkey;
	int at;

	if (!t || !c->moved)
		return index;
	pkey = device_has(c, port, index);
	if (!pkey || t->seen[index] == pkey)
		return index;
	at = seen_at(t, pkey);
	if (at < 0) {
		complete(c, port, t);
		at = seen_at(t, pkey);
	}
	return at < 0 ? index : at;
}

void pkeys_refresh(struct shim_context *c)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);

	for (uint8_t port = 1; c->real && !c->moved && port <= SHIM_PORTS_MAX; port++) {
		uint16_t *seen = c->pkeys[port - 1].seen, now;

		for (int i = 0; i < SHIM_PKEYS_MAX; i++)
			if (seen[i] && (now = device_has(c, port, i)))
				seen[i] = now;
	}
}

bool pkey_is_limited_now(struct shim_context *c, uint8_t port, int index)
{
	uint16_t pkey = pkey_value(c, port, index);
	int n = device_entries(c, port);

	for (int i = 0; pkey & FULL_MEMBER && i < n; i++)
		if (device_has(c, port, i) == (pkey & PKEY_BASE))
			return true;
	return false;
}

uint16_t pkey_value(struct shim_context *c, uint8_t port, int index)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);
	struct shim_pkeys *t = table_of(c, port, index);

	return t ? value(c, port, t, index) : device_has(c, port, index);
}

int pkey_query(struct shim_context *c, uint8_t port, int index, __be16 *ret_pkey)
{
	struct shim_pkeys *t = table_of(c, port, index);
	int rc = real_verbs.query_pkey(c->real, port, index, ret_pkey);

	if (t && c->moved && (!rc || t->seen[index])) {
		*ret_pkey = htobe16(pkey_value(c, port, index));
		rc = 0;
	} else if (t && !rc && *ret_pkey) {
		pthread_mutex_lock(&tables);
		t->seen[index] = be16toh(*ret_pkey);
		pthread_mutex_unlock(&tables);
	}
	return rc;
}

/* The program's index of a value that the device has, or -ENOENT. */
static int index_of(struct shim_context *c, uint8_t port, uint16_t pkey)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&tables);
	struct shim_pkeys *t = table_of(c, port, 0);

	if (!t)
		return -ENOENT;
	if (seen_at(t, pkey) < 0)
		complete(c, port, t);
	return seen_at(t, pkey);
}

int pkey_find(struct shim_context *c, uint8_t port, __be16 pkey)
{
	int at = c->moved ? index_of(c, port, be16toh(pkey)) : -ENOENT;

	if (at < 0)
		at = real_verbs.get_pkey_index(c->real, port, pkey);
	if (at >= 0 && !c->moved)
		pkey_value(c, port, at);
	return at;
}
