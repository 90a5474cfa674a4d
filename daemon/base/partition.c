/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/partition.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"

#include <errno.h>
#include <stdio.h>

#define ASK_MS     3000 /* libvirt's hook may wait for it */
#define GUIDS_MAX  256  /* of a question */
#define USED_MAX   1024 /* P_Keys of a guest: it is not trusted */
#define COMM_MAX   16
#define PKEY_FULL  0x8000
#define PKEY_BASE  0x7fff
#define LINE_MAX   512
#define PKEYS_TEXT 81 /* the first ten */

static struct json_object *at(struct json_object *list, size_t i)
{
	return json_object_array_get_idx(list, i);
}

static const char *str(struct json_object *o, const char *key)
{
	return json_opt_str(o, key, "");
}

static uint16_t pkey_at(struct json_object *list, size_t i)
{
	const char *text = json_object_get_string(at(list, i));
	uint16_t pkey;

	return text && !ib_pkey_parse(text, &pkey) ? pkey : 0;
}

/* ---- asking ---- */

/* Without sm-url no fabric is managed. */
static int ask_some(const struct settings *s, struct json_object *guids, bool shown,
		    struct json_object **ret_answer, char *error)
{
	struct json_object *body = json_object_new_object();

	json_set(body, "guids", guids);
	json_set_bool(body, "shown", shown);
	if (s->sm_url)
		return sm_ask(s, "/v1/memberships", body, ASK_MS, ret_answer, error);
	json_object_put(body);
	snprintf(error, HTTP_ERROR_MAX, "sm-url is not configured");
	return -ENOENT;
}

static void keep(struct json_object *all, struct json_object *answer)
{
	struct json_object *list = json_opt(answer, "guids");

	json_set_bool(all, "joins", json_opt_bool(answer, "joins", false));
	if (!*partition_why(all))
		json_set_str(all, "why", json_opt_str(answer, "why", NULL));
	for (size_t i = 0; i < json_count(list); i++)
		json_object_array_add(json_opt(all, "guids"), json_object_get(at(list, i)));
}

struct json_object *partition_ask(const struct settings *s, struct json_object *guids, bool shown)
{
	struct json_object *all = json_object_new_object(), *owned AUTO_JSON = guids;
	char error[HTTP_ERROR_MAX];
	size_t count = json_count(guids);
	int rc = 0;

	json_set(all, "guids", json_object_new_array());
	for (size_t first = 0; !rc && first < count; first += GUIDS_MAX) {
		struct json_object *some = json_object_new_array(), *answer AUTO_JSON = NULL;

		for (size_t i = first; i < count && i < first + GUIDS_MAX; i++)
			json_object_array_add(some, json_object_get(at(guids, i)));
		rc = ask_some(s, some, shown, &answer, error);
		if (rc)
			json_set_str(all, "why", error);
		else
			keep(all, answer);
	}
	return all;
}

const char *partition_why(struct json_object *answer)
{
	return answer ? str(answer, "why") : "ibvmig-sm was not asked";
}

/* ---- reading the answer ---- */

static struct json_object *entry_of(struct json_object *answer, const char *guid)
{
	struct json_object *list = json_opt(answer, "guids");
	uint64_t want, g;

	for (size_t i = 0; !ib_guid_parse(guid, &want) && i < json_count(list); i++)
		if (!ib_guid_parse(str(at(list, i), "guid"), &g) && g == want)
			return at(list, i);
	return NULL;
}

static enum partition_right right_in(struct json_object *pkeys, uint16_t pkey)
{
	enum partition_right best = PARTITION_NONE;

	for (size_t i = 0; i < json_count(pkeys); i++) {
		uint16_t has = pkey_at(pkeys, i);

		if (!has || (has ^ pkey) & PKEY_BASE)
			continue;
		if (has & PKEY_FULL)
			return PARTITION_FULL;
		best = PARTITION_LIMITED;
	}
	return best;
}

struct json_object *partition_pkeys(struct json_object *answer, const char *guid)
{
	struct json_object *pkeys = json_opt(entry_of(answer, guid), "pkeys");

	return json_object_is_type(pkeys, json_type_array) ? pkeys : NULL;
}

enum partition_right partition_right(struct json_object *answer, const char *guid, uint16_t pkey)
{
	struct json_object *pkeys = partition_pkeys(answer, guid);

	return pkeys ? right_in(pkeys, pkey) : PARTITION_UNKNOWN;
}

enum partition_right partition_own(struct json_object *answer, const char *guid, uint16_t pkey)
{
	if (answer && json_opt_bool(answer, "joins", false))
		return pkey & PKEY_FULL ? PARTITION_FULL : PARTITION_LIMITED;
	return partition_right(answer, guid, pkey);
}

static bool serves(enum partition_right right, uint16_t pkey)
{
	return right == PARTITION_UNKNOWN || right == PARTITION_FULL ||
	       (right == PARTITION_LIMITED && !(pkey & PKEY_FULL));
}

bool partition_serves(struct json_object *answer, const char *guid, uint16_t pkey)
{
	return serves(partition_right(answer, guid, pkey), pkey);
}

bool partition_is_seen(struct json_object *answer, const char *guid)
{
	return json_object_is_type(json_opt(entry_of(answer, guid), "shown"), json_type_array);
}

uint16_t partition_leftover(struct json_object *answer, const char *guid)
{
	struct json_object *shown = json_opt(entry_of(answer, guid), "shown");

	for (size_t i = 0; json_object_is_type(shown, json_type_array) && i < json_count(shown);
	     i++) {
		uint16_t pkey = pkey_at(shown, i);

		if (pkey && !partition_serves(answer, guid, pkey))
			return pkey;
	}
	return 0;
}

struct json_object *partition_guids(struct json_object *vfs)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < json_count(vfs); i++)
		json_object_array_add(list, json_object_new_string(str(at(vfs, i), "vguid")));
	return list;
}

/* ---- what a guest uses ---- */

static bool is_listed(struct json_object *list, const char *vguid, const char *pkey)
{
	for (size_t i = 0; i < json_count(list); i++)
		if (str_eq(str(at(list, i), "vguid"), vguid) &&
		    str_eq(str(at(list, i), "pkey"), pkey))
			return true;
	return false;
}

/* A log may be shown this: no control characters. */
static void copy_comm(struct json_object *to, struct json_object *process)
{
	const char *text = str(process, "comm");
	char comm[COMM_MAX];
	size_t n = 0;

	for (; n < sizeof comm - 1 && text[n]; n++)
		comm[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
	comm[n] = '\0';
	json_set_str(to, "comm", comm);
	json_set_u64(to, "pid", json_opt_u64(process, "pid", 0));
}

static bool add_used(struct json_object *list, struct json_object *process,
		     struct json_object *used)
{
	char vguid[IB_GUID_TEXT], pkey[8];
	struct json_object *o;
	uint64_t guid;
	uint16_t key;

	if (ib_guid_parse(str(used, "vguid"), &guid) || ib_pkey_parse(str(used, "pkey"), &key))
		return false;
	ib_guid_format(guid, vguid);
	snprintf(pkey, sizeof pkey, "0x%04x", key);
	if (is_listed(list, vguid, pkey) || json_count(list) >= USED_MAX)
		return false;
	o = json_object_new_object();
	json_set_str(o, "vguid", vguid);
	json_set_str(o, "pkey", pkey);
	copy_comm(o, process);
	json_object_array_add(list, o);
	return true;
}

bool partition_used(struct json_object *query, struct json_object *list)
{
	struct json_object *processes = json_opt(query, "processes");
	bool news = false;

	for (size_t i = 0; i < json_count(processes); i++) {
		struct json_object *pkeys = json_opt(at(processes, i), "pkeys");

		for (size_t k = 0; k < json_count(pkeys) && json_count(list) < USED_MAX; k++)
			news |= add_used(list, at(processes, i), at(pkeys, k));
	}
	return news;
}

/* ---- the verdict ---- */

static uint16_t pkey_of(struct json_object *o)
{
	uint16_t pkey = 0;

	ib_pkey_parse(str(o, "pkey"), &pkey);
	return pkey;
}

/* P_Keys as far as there is room for them, with ", " between them. */
static void list_pkeys(struct json_object *answer, const char *guid, char *text, size_t bytes)
{
	struct json_object *pkeys = json_opt(entry_of(answer, guid), "pkeys");
	size_t n = 0;

	*text = '\0';
	for (size_t i = 0; i < json_count(pkeys) && n + sizeof ", 0x0000" <= bytes; i++)
		n += (size_t)snprintf(text + n, bytes - n, "%s0x%04x", n ? ", " : "",
				      pkey_at(pkeys, i));
}

static int refuse_vf(struct json_object *answer, struct json_object *vf, char *why, size_t bytes)
{
	uint16_t pkey = pkey_of(vf);
	char has[PKEYS_TEXT];

	list_pkeys(answer, str(vf, "vguid"), has, sizeof has);
	snprintf(why, bytes,
		 "vGUID %.20s is no member of the partition of PKey 0x%04x at the subnet manager, "
		 "which gives it %s: make it one (ibvmig-sm partition 0x%04x %s %.20s), or correct "
		 "pkey in the VM's metadata",
		 str(vf, "vguid"), pkey, *has ? has : "none", pkey & PKEY_BASE,
		 pkey & PKEY_FULL ? "full" : "limited", str(vf, "vguid"));
	return -EACCES;
}

static int refuse_used(struct json_object *used, enum partition_right right, char *why,
		       size_t bytes)
{
	uint16_t pkey = pkey_of(used);

	snprintf(why, bytes,
		 "process %llu (%.16s) in the guest has QPs with PKey 0x%04x, of which vGUID %.20s "
		 "is "
		 "%s at the subnet manager: they would stand still after the move; end it, or make "
		 "the vGUID a member (ibvmig-sm partition 0x%04x %s %.20s)",
		 (unsigned long long)json_opt_u64(used, "pid", 0), str(used, "comm"), pkey,
		 str(used, "vguid"),
		 right == PARTITION_LIMITED ? "a limited member only" : "no member",
		 pkey & PKEY_BASE, pkey & PKEY_FULL ? "full" : "limited", str(used, "vguid"));
	return -EACCES;
}

/* VFs that the VM does not have are none of its business. */
static bool has_vf(struct json_object *vfs, const char *vguid)
{
	uint64_t want, g;

	for (size_t i = 0; !ib_guid_parse(vguid, &want) && i < json_count(vfs); i++)
		if (!ib_guid_parse(str(at(vfs, i), "vguid"), &g) && g == want)
			return true;
	return false;
}

/* A P_Key that the backend sees to by itself needs no right of now. */
static bool is_own(struct json_object *answer, struct json_object *vfs, struct json_object *used)
{
	for (size_t i = 0; json_opt_bool(answer, "joins", false) && i < json_count(vfs); i++)
		if (str_eq(str(at(vfs, i), "vguid"), str(used, "vguid")) &&
		    pkey_of(at(vfs, i)) == pkey_of(used))
			return true;
	return false;
}

int partition_judge(struct json_object *answer, struct json_object *vfs, struct json_object *used,
		    char *why, size_t bytes)
{
	for (size_t i = 0; i < json_count(vfs); i++)
		if (partition_own(answer, str(at(vfs, i), "vguid"), pkey_of(at(vfs, i))) ==
		    PARTITION_NONE)
			return refuse_vf(answer, at(vfs, i), why, bytes);
	for (size_t i = 0; i < json_count(used); i++) {
		struct json_object *u = at(used, i);
		enum partition_right right = partition_right(answer, str(u, "vguid"), pkey_of(u));

		if (has_vf(vfs, str(u, "vguid")) && !is_own(answer, vfs, u) &&
		    !serves(right, pkey_of(u)))
			return refuse_used(u, right, why, bytes);
	}
	return 0;
}

void partition_remarks(struct json_object *answer, struct json_object *vfs,
		       void (*say)(void *arg, const char *text), void *arg)
{
	char line[LINE_MAX];

	for (size_t i = 0; i < json_count(vfs); i++) {
		const char *vguid = str(at(vfs, i), "vguid");
		uint16_t pkey = pkey_of(at(vfs, i));
		enum partition_right right = partition_own(answer, vguid, pkey);

		if (right == PARTITION_LIMITED && pkey & PKEY_FULL)
			snprintf(line, sizeof line,
				 "vGUID %.20s is a limited member of the partition of PKey 0x%04x: "
				 "it speaks with full members only",
				 vguid, pkey);
		else if (right == PARTITION_UNKNOWN)
			snprintf(line, sizeof line,
				 "whether vGUID %.20s is a member of the partition of PKey 0x%04x "
				 "cannot be told: %.300s",
				 vguid, pkey, partition_why(answer));
		else
			continue;
		say(arg, line);
	}
}
