/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Path records that have changed, as the host tells (docs/wire.md, "Guest channel"). What cannot be
 * understood is forgotten rather than kept: a record too few costs a query. */
#include "guest-agent/agent/main.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "guest-agent/agent/path_cache.h"

#include <errno.h>
#include <string.h>

#define RECORDS_MAX 4096 /* in one message; more: everything is forgotten */

/* True if the field is there; else *ret_value is untouched. */
static bool number(struct json_reader *r, const char *key, uint64_t min, uint64_t max,
		   uint64_t *ret_value)
{
	if (!json_opt(r->obj, key))
		return false;
	*ret_value = json_need_u64(r, key, min, max);
	return !r->error;
}

/* "0x0000" is the question without a partition. */
static void read_pkey(struct json_reader *r, struct path_change *c)
{
	const char *text = json_opt_str(r->obj, "pkey", NULL);
	uint16_t pkey = 0;

	if (!text)
		return;
	if (strcmp(text, "0x0000") && ib_pkey_parse(text, &pkey)) {
		r->error = -EINVAL;
		snprintf(r->message, sizeof(r->message), "pkey \"%.16s\" is none", text);
		return;
	}
	c->has_pkey = true;
	c->pkey = pkey & 0x7fff;
}

static int parse_change(struct json_object *o, struct path_change *ret_change)
{
	struct path_change c = {0};
	struct json_reader r;
	uint64_t n = 0;

	json_reader_init(&r, o);
	c.dguid = json_need_guid(&r, "dguid");
	if (json_opt(o, "sguid"))
		c.sguid = json_need_guid(&r, "sguid");
	if (!r.error)
		*ret_change = c; /* enough to forget it */
	read_pkey(&r, &c);
	if (number(&r, "dlid", IB_LID_UCAST_MIN, IB_LID_UCAST_MAX, &n)) {
		c.dlid = (uint16_t)n;
		c.mask |= PATH_DLID;
	}
	if (number(&r, "slid", IB_LID_UCAST_MIN, IB_LID_UCAST_MAX, &n)) {
		c.slid = (uint16_t)n;
		c.mask |= PATH_SLID;
	}
	if (number(&r, "sl", 0, 15, &n)) {
		c.sl = (uint8_t)n;
		c.mask |= PATH_SL;
	}
	if (number(&r, "mtu", 256, 4096, &n)) {
		c.mtu = (uint16_t)n;
		c.mask |= PATH_MTU;
	}
	if (number(&r, "rate", 0, 63, &n)) {
		c.rate = (uint8_t)n;
		c.mask |= PATH_RATE;
	}
	if (r.error) {
		log_warn("the host's notice of a path: %s", r.message);
		return r.error;
	}
	*ret_change = c;
	return 0;
}

/* The elements of list; false: it is no list, or too long. */
static bool each(struct agent *a, struct json_object *list,
		 void (*fn)(struct agent *a, struct json_object *o))
{
	if (!json_object_is_type(list, json_type_array) ||
	    json_object_array_length(list) > RECORDS_MAX)
		return false;
	for (size_t i = 0; i < json_object_array_length(list); i++)
		fn(a, json_object_array_get_idx(list, i));
	return true;
}

static void change_one(struct agent *a, struct json_object *o)
{
	struct path_change c = {0};

	if (parse_change(o, &c) && !c.dguid)
		agent_path_flush(a);
	else
		agent_path_change(a, &c);
}

static void drop_one(struct agent *a, struct json_object *o)
{
	const char *text = json_object_get_string(o);
	struct path_change c = {0};

	if (ib_guid_parse(text ? text : "", &c.dguid)) {
		log_warn("the host's notice names \"%.40s\", which is no GUID", text ? text : "");
		agent_path_flush(a);
		return;
	}
	agent_path_change(a, &c);
}

void agent_repath(struct agent *a, uint64_t id, struct json_object *msg)
{
	(void)id;
	if (!each(a, json_opt(msg, "paths"), change_one))
		agent_path_flush(a);
}

void agent_unpath(struct agent *a, uint64_t id, struct json_object *msg)
{
	(void)id;
	if (!each(a, json_opt(msg, "guids"), drop_one))
		agent_path_flush(a);
}

void agent_path_cache(struct agent *a, uint64_t id, struct json_object *msg)
{
	(void)id;
	agent_path_use(a, json_opt_bool(msg, "on", false));
}

void agent_notice_moved(struct agent *a, struct json_object *resume)
{
	struct json_object *list = json_opt(resume, "paths");

	if (list && !each(a, list, change_one))
		agent_path_flush(a);
}
