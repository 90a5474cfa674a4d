/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/balance.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/plan.h"

#include <stdint.h>
#include <string.h>

#define WHY_MAX 200

/* A host's link, as it would be after what is proposed so far. */
struct link {
	struct json_object *host, *from; /* borrowed: of hosts and of links */
	uint64_t mbps, in, out;
	bool waits;
};

struct balance {
	struct link *link; /* owned */
	size_t count;
	struct json_object *moves; /* owned until it is handed over */
};

static const char *str(struct json_object *o, const char *key)
{
	return json_opt_str(o, key, "");
}

static uint64_t num(struct json_object *o, const char *key)
{
	return json_opt_u64(o, key, 0);
}

static struct json_object *find(struct json_object *list, const char *key, const char *value)
{
	for (size_t i = 0; i < json_count(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (*value && str_eq(str(o, key), value))
			return o;
	}
	return NULL;
}

/* The host whose VF, or VM, has one of the ports behind the link. */
static struct json_object *host_of(struct json_object *link, struct json_object *hosts)
{
	struct json_object *ports = json_opt(link, "ports");

	for (size_t i = 0; i < json_count(hosts); i++) {
		struct json_object *h = json_object_array_get_idx(hosts, i);

		for (size_t k = 0; k < json_count(ports); k++) {
			const char *guid = str(json_object_array_get_idx(ports, k), "guid");

			if (find(json_opt(h, "vfs"), "parked_guid", guid) ||
			    find(json_opt(h, "domains"), "vguid", guid))
				return h;
		}
	}
	return NULL;
}

static uint64_t percent(const struct link *l, uint64_t in, uint64_t out)
{
	return l->mbps ? (in > out ? in : out) * 100 / l->mbps : 0;
}

static bool is_full(const struct link *l)
{
	return l->waits || percent(l, l->in, l->out) >= BALANCE_FULL_PERCENT;
}

/* How full the fuller one of both would be. */
static uint64_t after(const struct link *from, const struct link *to, uint64_t in, uint64_t out)
{
	uint64_t left = percent(from, from->in - in, from->out - out);
	uint64_t there = percent(to, to->in + in, to->out + out);

	return left > there ? left : there;
}

struct choice {
	struct link *to;
	struct json_object *domain;
	uint64_t in, out, percent;
};

/* What a domain has of its link; counters of two ports are not read at the same moment. */
static void rates_of(const struct link *l, struct json_object *domain, uint64_t *in, uint64_t *out)
{
	struct json_object *p = find(json_opt(l->from, "ports"), "guid", str(domain, "vguid"));

	*in = num(p, "in_mbps") < l->in ? num(p, "in_mbps") : l->in;
	*out = num(p, "out_mbps") < l->out ? num(p, "out_mbps") : l->out;
}

static void consider(struct balance *b, struct link *from, struct json_object *domain,
		     struct choice *best)
{
	char why[WHY_MAX];
	struct choice c = {.domain = domain};

	rates_of(from, domain, &c.in, &c.out);
	if (!*str(domain, "vguid") || (!c.in && !c.out) || json_opt(domain, "proposed"))
		return;
	for (size_t i = 0; i < b->count; i++) {
		c.to = &b->link[i];
		c.percent = after(from, c.to, c.in, c.out);
		if (c.to != from && !is_full(c.to) && c.percent < best->percent &&
		    plan_fits(c.to->host, domain, why, sizeof why))
			*best = c;
	}
}

/* false: nothing helps this one. */
static bool propose(struct balance *b, struct link *from)
{
	struct json_object *domains = json_opt(from->host, "domains"), *o;
	struct choice best = {.percent = percent(from, from->in, from->out)};

	for (size_t i = 0; i < json_count(domains); i++)
		consider(b, from, json_object_array_get_idx(domains, i), &best);
	if (!best.to)
		return false;
	o = json_object_new_object();
	json_set_str(o, "vm", str(best.domain, "name"));
	json_set_str(o, "from", str(from->host, "host"));
	json_set_str(o, "to", str(best.to->host, "host"));
	json_set_u64(o, "in_mbps", best.in);
	json_set_u64(o, "out_mbps", best.out);
	json_object_array_add(b->moves, o);
	json_set_bool(best.domain, "proposed", true);
	plan_give(best.to->host, best.domain);
	from->in -= best.in;
	from->out -= best.out;
	from->waits = false; /* what is left of it cannot be told */
	best.to->in += best.in;
	best.to->out += best.out;
	return true;
}

static struct link *fullest(struct balance *b, const bool *hopeless)
{
	struct link *found = NULL;

	for (size_t i = 0; i < b->count; i++) {
		struct link *l = &b->link[i];

		if (!hopeless[i] && is_full(l) &&
		    (!found || percent(l, l->in, l->out) > percent(found, found->in, found->out)))
			found = l;
	}
	return found;
}

static void fill_links(struct balance *b, struct json_object *links, struct json_object *hosts)
{
	for (size_t i = 0; i < json_count(links); i++) {
		struct json_object *o = json_object_array_get_idx(links, i);
		struct json_object *host = host_of(o, hosts);

		if (host)
			b->link[b->count++] = (struct link){
				.host = host,
				.from = o,
				.mbps = num(o, "mbps"),
				.in = num(o, "in_mbps"),
				.out = num(o, "out_mbps"),
				.waits = num(o, "wait_per_s") >= BALANCE_WAIT_PER_S,
			};
	}
}

static struct json_object *link_json(const struct link *l)
{
	struct json_object *o = json_object_new_object();
	static const char *const same[] = {"mbps", "in_mbps", "out_mbps", "wait_per_s"};

	json_set_str(o, "host", str(l->host, "host"));
	for (size_t i = 0; i < ARRAY_SIZE(same); i++)
		json_set_u64(o, same[i], num(l->from, same[i]));
	json_set_u64(o, "in_after", l->in);
	json_set_u64(o, "out_after", l->out);
	return o;
}

struct json_object *balance_moves(struct json_object *links, struct json_object *hosts)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	struct balance b = {.moves = json_object_new_array()};
	bool *hopeless AUTO_FREE = calloc(json_count(links) + 1, sizeof *hopeless);
	bool *was_full AUTO_FREE = calloc(json_count(links) + 1, sizeof *was_full);
	struct link *l;

	b.link = calloc(json_count(links) + 1, sizeof *b.link);
	if (b.link && hopeless && was_full)
		fill_links(&b, links, hosts);
	for (size_t i = 0; i < b.count; i++)
		was_full[i] = is_full(&b.link[i]);
	while (b.count && (l = fullest(&b, hopeless)))
		if (!propose(&b, l))
			hopeless[l - b.link] = true;
	for (size_t i = 0; i < b.count; i++) {
		struct json_object *one = link_json(&b.link[i]);

		json_set_bool(one, "full", was_full[i]);
		json_object_array_add(list, one);
	}
	free(b.link);
	json_set(o, "links", list);
	json_set(o, "moves", b.moves);
	return o;
}
