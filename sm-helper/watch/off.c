/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/watch/off.h"
#include "common/util.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/moves/ops_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static enum off_verdict unseen(char *text, const char *why)
{
	snprintf(text, OFF_TEXT_MAX, "the fabric cannot be looked at: %.250s", why);
	return OFF_UNSEEN;
}

static enum off_verdict shown(char *text, const struct reg_entry *e)
{
	snprintf(text, OFF_TEXT_MAX,
		 "its daemon is silent, but the port of VF %.100s answers and shows vGUID "
		 "0x%016" PRIx64 ": the card has power",
		 e->at.vf, e->vguid);
	return OFF_SHOWN;
}

static enum off_verdict look_at_list(struct ops *o, const struct reg_entry *e, char *text)
{
	struct sm_place *place AUTO_FREE = NULL;
	struct op_error why = {0};
	size_t n;

	if (action_places(o, &place, &n, &why))
		return unseen(text, why.detail);
	for (size_t i = 0; i < n; i++)
		if (place[i].vguid == e->vguid && place[i].lid)
			return shown(text, e);
	return OFF_GONE;
}

/* A port of ours in another subnet sees silence where there is none. */
static int check_own_port(struct ops *o, char *error)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	uint64_t own;
	int rc;

	if (!o->fabric.switches) {
		snprintf(error, PROBE_ERROR_MAX, "no subnet manager has told of it yet");
		return -ENODATA;
	}
	if ((rc = probe_own_guid(o->probe, &own, error)))
		return rc;
	if (fabric_find_end(&o->fabric, own) != FABRIC_NONE)
		return 0;
	snprintf(error, PROBE_ERROR_MAX,
		 "our own port, GUID 0x%016" PRIx64 ", is not in it: are umad-ca and umad-port "
		 "right?",
		 own);
	return -ENETUNREACH;
}

/* The port of a host whose VFs share its LID is its own; what it shows stands in its table. */
static enum off_verdict look_at_slot(struct ops *o, const struct reg_entry *e, char *text)
{
	char error[PROBE_ERROR_MAX];
	uint64_t guid = 0;
	int rc = probe_guid(o->eyes, e->lid, e->at.switch_guid, e->at.switch_port, &guid, error);

	if (rc == -ENODEV)
		return unseen(text, error);
	return !rc && guid == e->vguid ? shown(text, e) : OFF_GONE;
}

/* -ENETUNREACH: nothing hangs there. The lock is not kept while others who only look have their
 * turns: the probe is that of changes. */
static int find_port(struct ops *o, const struct reg_entry *e, struct probe_route *ret_route,
		     char *error)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	uint32_t end = fabric_end_at(&o->fabric, e->at.switch_guid, e->at.switch_port);
	int rc;

	if (end == FABRIC_NONE)
		return -ENETUNREACH;
	rc = reach_route(o->probe, &o->fabric, end, ret_route, error);
	return rc == -ENETUNREACH ? -ENODEV : rc; /* there is one, but not from us */
}

static enum off_verdict look_at_port(struct ops *o, const struct reg_entry *e, char *text)
{
	struct probe_route route = {0};
	char error[PROBE_ERROR_MAX];
	uint64_t node, guid;
	int rc = find_port(o, e, &route, error);

	if (!rc)
		rc = probe_node_info(o->eyes, &route, &node, &guid, error);
	else if (rc != -ENETUNREACH)
		return unseen(text, error);
	if (rc == -ENODEV)
		return unseen(text, error);
	return !rc && guid == e->vguid ? shown(text, e) : OFF_GONE;
}

enum off_verdict off_look(struct ops *o, const struct reg_entry *e,
			  char ret_text[static OFF_TEXT_MAX])
{
	char why[PROBE_ERROR_MAX];

	*ret_text = '\0';
	if (action_sm_moves(o))
		return look_at_list(o, e, ret_text);
	if (check_own_port(o, why))
		return unseen(ret_text, why);
	return e->mode == ADDRESS_SHARED_PORT ? look_at_slot(o, e, ret_text)
					      : look_at_port(o, e, ret_text);
}
