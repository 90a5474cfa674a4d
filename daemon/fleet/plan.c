/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/fleet/plan.h"
#include "daemon/base/partition.h"
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

static bool has_text(struct json_object *list, const char *text)
{
	for (size_t i = 0; i < json_count(list); i++)
		if (str_eq(json_object_get_string(json_object_array_get_idx(list, i)), text))
			return true;
	return false;
}

static bool is_free(struct json_object *vf, const char *pf)
{
	return str_eq(str(vf, "pf"), pf) && !*str(vf, "vm") && !*str(vf, "migration");
}

static struct json_object *free_vf(struct json_object *target, const char *pf)
{
	struct json_object *vfs = json_opt(target, "vfs");

	for (size_t i = 0; i < json_count(vfs); i++)
		if (is_free(json_object_array_get_idx(vfs, i), pf))
			return json_object_array_get_idx(vfs, i);
	return NULL;
}

static unsigned count_free(struct json_object *target, const char *pf)
{
	struct json_object *vfs = json_opt(target, "vfs");
	unsigned n = 0;

	for (size_t i = 0; i < json_count(vfs); i++)
		n += is_free(json_object_array_get_idx(vfs, i), pf);
	return n;
}

static unsigned count_needed(struct json_object *domain, const char *pf)
{
	struct json_object *vfs = json_opt(domain, "vfs");
	unsigned n = 0;

	for (size_t i = 0; i < json_count(vfs); i++)
		n += str_eq(str(json_object_array_get_idx(vfs, i), "pf"), pf);
	return n;
}

static uint64_t room_bytes(struct json_object *target)
{
	uint64_t available = json_opt_u64(target, "memory_available_bytes", 0);

	return available > PLAN_RESERVE_BYTES ? available - PLAN_RESERVE_BYTES : 0;
}

/* True if target has what one of the domain's VFs needs, and as many as the domain needs like it.
 */
static bool vf_fits(struct json_object *target, struct json_object *domain, struct json_object *vf,
		    char *why, size_t bytes)
{
	const char *name = str(vf, "pf"), *host = str(target, "host");
	struct json_object *pf = json_find(json_opt(target, "pfs"), "name", name);
	unsigned need = count_needed(domain, name), have = count_free(target, name);
	uint64_t pkey = 0;

	parse_u64(str(vf, "pkey"), 0, UINT16_MAX, &pkey);
	if (!pf)
		snprintf(why, bytes, "%s has no PF %s", host, name);
	else if (partition_own(json_opt(target, "partitions"), str(vf, "vguid"), (uint16_t)pkey) ==
		 PARTITION_NONE)
		snprintf(why, bytes, "vGUID %s is no member of the partition of PKey %s",
			 str(vf, "vguid"), str(vf, "pkey"));
	else if (!have)
		snprintf(why, bytes, "%s has no free VF on %s", host, name);
	else if (have < need)
		snprintf(why, bytes, "%s has %u free VF%s on %s, not %u", host, have,
			 have == 1 ? "" : "s", name, need);
	return !*why;
}

bool plan_fits(struct json_object *target, struct json_object *domain, char *why, size_t bytes)
{
	uint64_t need = json_opt_u64(domain, "memory_bytes", 0), room = room_bytes(target);
	struct json_object *vfs = json_opt(domain, "vfs");
	const char *host = str(target, "host");

	*why = '\0';
	if (*str(target, "error"))
		snprintf(why, bytes, "%s does not answer", host);
	else if (json_opt_bool(target, "drained", false))
		snprintf(why, bytes, "%s is drained (ibvmig undrain %s ends that)", host, host);
	else if (room < need)
		snprintf(why, bytes, "%s has %" PRIu64 " MiB to give, not %" PRIu64, host,
			 room >> 20, need >> 20);
	for (size_t i = 0; !*why && i < json_count(vfs); i++)
		vf_fits(target, domain, json_object_array_get_idx(vfs, i), why, bytes);
	return !*why;
}

/* ---- the choice ---- */

/* The less the better, from first to last. */
struct cost {
	uint64_t unranked, switches, smps, load, given;
	uint64_t minus_room;
};

static struct json_object *rank_of(struct json_object *ranks, struct json_object *vf,
				   struct json_object *target)
{
	struct json_object *hosts = json_opt(ranks, str(vf, "vguid"));

	return json_opt(json_opt(hosts, str(target, "host")), str(vf, "pf"));
}

static void add_rank(struct json_object *all, struct json_object *r)
{
	uint64_t load = json_opt_u64(all, "load", 0), more = json_opt_u64(r, "load", 0);
	static const char *const summed[] = {"switches", "smps"};

	for (size_t i = 0; i < ARRAY_SIZE(summed); i++)
		json_set_u64(all, summed[i],
			     json_opt_u64(all, summed[i], 0) + json_opt_u64(r, summed[i], 0));
	json_set_u64(all, "load", load > more ? load : more);
	json_set_bool(all, "same_leaf",
		      json_opt_bool(all, "same_leaf", true) &&
			      json_opt_bool(r, "same_leaf", false));
}

/* Sums the ranks of all the domain's VFs; NULL: it has none, or the fabric cannot tell it of each.
 * Owned by the caller. */
static struct json_object *sum_ranks(struct json_object *ranks, struct json_object *domain,
				     struct json_object *target)
{
	struct json_object *vfs = json_opt(domain, "vfs"), *all = NULL;

	for (size_t i = 0; i < json_count(vfs); i++) {
		struct json_object *r = rank_of(ranks, json_object_array_get_idx(vfs, i), target);

		if (!r) {
			json_object_put(all);
			return NULL;
		}
		all = all ? all : json_object_new_object();
		add_rank(all, r);
	}
	return all;
}

/* r: of sum_ranks(). */
static struct cost cost_of(struct json_object *r, struct json_object *target)
{
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
	struct json_object *vfs = json_opt(domain, "vfs");

	json_set_u64(target, "memory_available_bytes",
		     available - json_opt_u64(domain, "memory_bytes", 0));
	json_set_u64(target, "given", json_opt_u64(target, "given", 0) + 1);
	for (size_t i = 0; i < json_count(vfs); i++) {
		const char *pf = str(json_object_array_get_idx(vfs, i), "pf");
		struct json_object *vf = free_vf(target, pf);

		if (vf)
			json_set_str(vf, "vm", str(domain, "name"));
	}
}

/* A reason that does not depend on the host is said once. */
static void add_reason(char *all, size_t bytes, const char *why)
{
	size_t n = strlen(all);

	if (strstr(all, why))
		return;
	snprintf(all + n, bytes - n, "%s%.200s", n ? "; " : "", why);
}

/* rank: handed over. */
static void add_candidate(struct json_object *list, struct json_object *target, const char *why,
			  struct json_object *rank)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "host", str(target, "host"));
	json_set_str(o, "reason", *why ? why : NULL);
	json_set(o, "cost", rank);
	json_object_array_add(list, o);
}

/* Returns the part of a move that stays the same wherever the domain goes. */
static struct json_object *move_of(struct json_object *domain)
{
	struct json_object *o = json_object_new_object(), *vfs = json_opt(domain, "vfs");
	struct json_object *vguids = json_object_new_array();

	json_set_str(o, "vm", str(domain, "name"));
	json_set_str(o, "uuid", str(domain, "uuid"));
	json_set_u64(o, "memory_bytes", json_opt_u64(domain, "memory_bytes", 0));
	for (size_t i = 0; i < json_count(vfs); i++)
		json_object_array_add(vguids, json_object_new_string(str(
						      json_object_array_get_idx(vfs, i), "vguid")));
	json_set(o, "vguids", vguids);
	return o;
}

/* candidates: all hosts and what speaks for and against them; NULL: not wanted. */
static struct json_object *plan_one(struct json_object *domain, struct json_object *targets,
				    struct json_object *ranks, struct json_object *candidates)
{
	struct json_object *o = move_of(domain), *best = NULL;
	char reason[REASON_MAX] = "", why[WHY_MAX];
	struct cost least = {0};

	for (size_t i = 0; i < json_count(targets); i++) {
		struct json_object *t = json_object_array_get_idx(targets, i);
		struct json_object *rank AUTO_JSON = sum_ranks(ranks, domain, t);
		struct cost c = cost_of(rank, t);

		if (!plan_fits(t, domain, why, sizeof why)) {
			add_reason(reason, sizeof reason, why);
		} else if (!best || cheaper(&c, &least)) {
			best = t;
			least = c;
		}
		if (candidates)
			add_candidate(candidates, t, why, json_object_get(rank));
	}
	json_set(o, "candidates", candidates);
	json_set_str(o, "to", best ? str(best, "host") : NULL);
	if (!best) {
		json_set_str(o, "reason", *reason ? reason : "there is no other host");
		return o;
	}
	json_set(o, "cost", sum_ranks(ranks, domain, best));
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
