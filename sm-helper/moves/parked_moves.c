/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The parked entries as they were read last, and the moves that can be made again or taken back. */
#include "sm-helper/moves/parked.h"
#include "common/util.h"
#include "sm-helper/moves/ops.h"

#include <stdlib.h>

void parked_clear(struct parked *k)
{
	free(k->entry);
	free(k->guid);
	free(k->move);
	k->entry = NULL;
	k->guid = NULL;
	k->move = NULL;
	k->entries = k->guids = k->moves = 0;
}

enum parked_state parked_state(const struct parked_entry *e)
{
	if (!e->read)
		return PARKED_UNKNOWN;
	if (e->holds == e->of.before)
		return PARKED_OLD;
	return e->holds == e->of.after ? PARKED_NEW : PARKED_OTHER;
}

enum parked_state parked_guid_state(const struct parked_guid *g)
{
	if (!g->read)
		return PARKED_UNKNOWN;
	return g->holds == g->before  ? PARKED_OLD
	       : g->holds == g->after ? PARKED_NEW
				      : PARKED_OTHER;
}

const char *parked_state_name(enum parked_state s)
{
	static const char *const name[PARKED_STATES] = {"old", "new", "other", "unknown"};

	return name[s];
}

/* ---- moves ---- */

static bool drop_move(struct parked *k, uint64_t vguid)
{
	for (unsigned i = 0; i < k->moves; i++)
		if (k->move[i].vguid == vguid) {
			k->move[i] = k->move[--k->moves];
			return true;
		}
	return false;
}

void parked_drop_move(struct ops *o, uint64_t vguid)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->parked.lock);

	if (drop_move(&o->parked, vguid))
		registry_delete_move(o->registry, vguid);
}

static void add_move(void *arg, const struct move_request *m)
{
	struct parked *k = arg;

	if (!k->move && !(k->move = calloc(OPS_MOVES_MAX, sizeof *k->move)))
		return;
	drop_move(k, m->vguid);
	if (k->moves < OPS_MOVES_MAX)
		k->move[k->moves++] = *m;
}

void parked_add_moves(struct ops *o, const struct move_request *m, unsigned count)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->parked.lock);

	for (unsigned i = 0; i < count; i++) {
		add_move(&o->parked, &m[i]);
		registry_put_move(o->registry, &m[i]);
	}
}

void parked_load_moves(struct ops *o)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->parked.lock);

	o->parked.moves = 0;
	registry_each_move(o->registry, add_move, &o->parked);
}

unsigned parked_moves(struct parked *k, struct move_request *ret_move)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&k->lock);

	for (unsigned i = 0; i < k->moves; i++)
		ret_move[i] = k->move[i];
	return k->moves;
}
