/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/plan.h"
#include "common/json.h"
#include "common/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define REASON_MAX 400
#define WHY_MAX    200

static const char *str(struct json_object *o, const char *key)
{
	return json_opt_str(o, key, "");
}

/* ---- what a host can take ---- */

static struct json_object *find_named(struct json_object *list, const char *name)
{
	for (size_t i = 0; i < json_count(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (str_eq(str(o, "name"), name))
			return o;
	}
	return NULL;
}

static bool has_text(struct json_object *list, const char *text)
{
	for (size_t i = 0; i < json_count(list); i++)
		if (str_eq(json_object_get_string(json_object_array_get_idx(list, i)), text))
			return true;
	return false;
}

/* PKeys are of one partition whether they are full members' or not. */
static bool has_pkey(struct json_object *list, const char *text)
{
	uint64_t want = 0, have;

	if (parse_u64(text, 0, UINT16_MAX, &want))
		return false;
	for (size_t i = 0; i < json_count(list); i++) {
		const char *t = json_object_get_string(json_object_array_get_idx(list, i));

		if (t && !parse_u64(t, 0, UINT16_MAX, &have) && have == want)
			return true;
	}
	return false;
}

static struct json_object *free_vf(struct json_object *target, const char *pf)
{
	struct json_object *vfs = json_opt(target, "vfs");

	for (size_t i = 0; i < json_count(vfs); i++) {
		struct json_object *vf = json_object_array_get_idx(vfs, i);

		if (str_eq(str(vf, "pf"), pf) && !*str(vf, "vm") && !*str(vf, "migration"))
			return vf;
	}
	return NULL;
}

static uint64_t room_bytes(struct json_object *target)
{
	uint64_t available = json_opt_u64(target, "memory_available_bytes", 0);

	return available > PLAN_RESERVE_BYTES ? available - PLAN_RESERVE_BYTES : 0;
}

bool plan_fits(struct json_object *target, struct json_object *domain, char *why, size_t bytes)
{
	uint64_t need = json_opt_u64(domain, "memory_bytes", 0), room = room_bytes(target);
	const char *pf_name = str(domain, "pf"), *host = str(target, "host");
	struct json_object *pf = find_named(json_opt(target, "pfs"), pf_name);

	*why = '\0';
	if (*str(target, "error"))
		snprintf(why, bytes, "%s does not answer", host);
	else if (json_opt_bool(target, "drained", false))
		snprintf(why, bytes, "%s is drained (ibvmig undrain %s ends that)", host, host);
	else if (room < need)
		snprintf(why, bytes, "%s has %" PRIu64 " MiB to give, not %" PRIu64, host,
			 room >> 20, need >> 20);
	else if (!*pf_name)
		return true;
	else if (!pf)
		snprintf(why, bytes, "%s has no PF %s", host, pf_name);
	else if (!has_pkey(json_opt(pf, "pkeys"), str(domain, "pkey")))
		snprintf(why, bytes, "%s lacks PKey %s on %s", host, str(domain, "pkey"), pf_name);
	else if (!free_vf(target, pf_name))
		snprintf(why, bytes, "%s has no free VF on %s", host, pf_name);
	return !*why;
}

/* ---- the choice ---- */

/* The less the better, from first to last. */
struct cost {
	uint64_t unranked, switches, smps, load, given;
	uint64_t minus_room;
};

static struct json_object *rank_of(struct json_object *ranks, struct json_object *domain,
				   struct json_object *target)
{
	return json_opt(json_opt(ranks, str(domain, "vguid")), str(target, "host"));
}

static struct cost cost_of(struct json_object *ranks, struct json_object *domain,
			   struct json_object *target)
{
	struct json_object *r = rank_of(ranks, domain, target);

	return (struct cost){
		.unranked = !r,
		.switches = json_opt_u64(r, "switches", 0),
		.smps = json_opt_u64(r, "smps", 0),
		.load = json_opt_u64(r, "load", 0) + json_opt_u64(target, "given", 0),
		.given = json_opt_u64(target, "given", 0),
		.minus_room = UINT64_MAX - room_bytes(target),
	};
}

static bool cheaper(const struct cost *a, const struct cost *b)
{
	const uint64_t x[] = {a->unranked, a->switches, a->smps, a->load, a->given, a->minus_room};
	const uint64_t y[] = {b->unranked, b->switches, b->smps, b->load, b->given, b->minus_room};

	for (size_t i = 0; i < ARRAY_SIZE(x); i++)
		if (x[i] != y[i])
			return x[i] < y[i];
	return false;
}

void plan_give(struct json_object *target, struct json_object *domain)
{
	uint64_t available = json_opt_u64(target, "memory_available_bytes", 0);
	struct json_object *vf = *str(domain, "pf") ? free_vf(target, str(domain, "pf")) : NULL;

	json_set_u64(target, "memory_available_bytes",
		     available - json_opt_u64(domain, "memory_bytes", 0));
	json_set_u64(target, "given", json_opt_u64(target, "given", 0) + 1);
	if (vf)
		json_set_str(vf, "vm", str(domain, "name"));
}

static void add_reason(char *all, size_t bytes, const char *why)
{
	size_t n = strlen(all);

	snprintf(all + n, bytes - n, "%s%.200s", n ? "; " : "", why);
}

static void add_candidate(struct json_object *list, struct json_object *target, const char *why,
			  struct json_object *rank)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "host", str(target, "host"));
	json_set_str(o, "reason", *why ? why : NULL);
	json_set(o, "cost", json_object_get(rank));
	json_object_array_add(list, o);
}

/* candidates: all hosts and what speaks for and against them; NULL: not wanted. */
static struct json_object *plan_one(struct json_object *domain, struct json_object *targets,
				    struct json_object *ranks, struct json_object *candidates)
{
	struct json_object *o = json_object_new_object(), *best = NULL;
	char reason[REASON_MAX] = "", why[WHY_MAX];
	struct cost least = {0};

	for (size_t i = 0; i < json_count(targets); i++) {
		struct json_object *t = json_object_array_get_idx(targets, i);
		struct cost c = cost_of(ranks, domain, t);

		if (!plan_fits(t, domain, why, sizeof why)) {
			add_reason(reason, sizeof reason, why);
		} else if (!best || cheaper(&c, &least)) {
			best = t;
			least = c;
		}
		if (candidates)
			add_candidate(candidates, t, why, rank_of(ranks, domain, t));
	}
	json_set(o, "candidates", candidates);
	json_set_str(o, "vm", str(domain, "name"));
	json_set_str(o, "uuid", str(domain, "uuid"));
	json_set_u64(o, "memory_bytes", json_opt_u64(domain, "memory_bytes", 0));
	if (*str(domain, "vguid"))
		json_set_str(o, "vguid", str(domain, "vguid"));
	json_set_str(o, "to", best ? str(best, "host") : NULL);
	if (!best) {
		json_set_str(o, "reason", *reason ? reason : "there is no other host");
		return o;
	}
	json_set(o, "cost", json_object_get(rank_of(ranks, domain, best)));
	plan_give(best, domain);
	return o;
}

static int bigger_first(const void *a, const void *b)
{
	struct json_object *x = *(struct json_object *const *)a,
			   *y = *(struct json_object *const *)b;
	uint64_t m = json_opt_u64(x, "memory_bytes", 0), n = json_opt_u64(y, "memory_bytes", 0);

	return m != n ? (m < n) - (m > n) : strcmp(str(x, "name"), str(y, "name"));
}

struct json_object *plan_moves(struct json_object *source, struct json_object *targets,
			       struct json_object *ranks, struct json_object *wanted)
{
	struct json_object *domains = json_opt(source, "domains"), *moves = json_object_new_array();
	size_t count = json_count(domains);
	struct json_object **order AUTO_FREE = calloc(count + 1, sizeof *order);

	if (!order)
		return moves;
	for (size_t i = 0; i < count; i++)
		order[i] = json_object_array_get_idx(domains, i);
	qsort(order, count, sizeof *order, bigger_first);
	for (size_t i = 0; i < count; i++)
		if (!wanted || has_text(wanted, str(order[i], "name")))
			json_object_array_add(moves,
					      plan_one(order[i], targets, ranks,
						       wanted ? json_object_new_array() : NULL));
	return moves;
}
