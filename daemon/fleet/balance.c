/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/fleet/balance.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/libvirt/domain.h"
#include "daemon/fleet/plan.h"

#include <stdint.h>
#include <string.h>

#define WHY_MAX 200

/* The link of one of a host's PFs, as it would be after what is proposed so far. */
struct link {
	struct json_object *host, *from; /* borrowed: of hosts and of links */
	const char *pf;                  /* borrowed from host */
	uint64_t mbps, in, out;
	bool waits;
	bool unknown; /* a counter was reset while it was looked at: no VM comes or goes by it */
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

static bool is_null(struct json_object *o, const char *key)
{
	struct json_object *value;

	return json_object_object_get_ex(o, key, &value) && !value;
}

/* PortXmitWait that is stuck is known: it waits. */
static bool is_unknown(struct json_object *o)
{
	return is_null(o, "in_mbps") || is_null(o, "out_mbps") ||
	       (is_null(o, "wait_per_s") && !json_opt_bool(o, "wait_stuck", false));
}

/* The PF of the host's VF that shows, or has as its own, this GUID; NULL: it has none. */
static const char *pf_of(struct json_object *host, const char *guid)
{
	struct json_object *domains = json_opt(host, "domains");
	struct json_object *vf = json_find(json_opt(host, "vfs"), "parked_guid", guid);

	for (size_t i = 0; !vf && i < json_count(domains); i++)
		vf = json_find(json_opt(json_object_array_get_idx(domains, i), "vfs"), "vguid",
			       guid);
	return vf ? str(vf, "pf") : NULL;
}

/* Finds the host whose VF has one of the ports behind the link. */
static bool find_host(struct link *l, struct json_object *hosts)
{
	struct json_object *ports = json_opt(l->from, "ports");

	for (size_t i = 0; i < json_count(hosts); i++) {
		l->host = json_object_array_get_idx(hosts, i);
		for (size_t k = 0; k < json_count(ports); k++) {
			l->pf = pf_of(l->host, str(json_object_array_get_idx(ports, k), "guid"));
			if (l->pf)
				return true;
		}
	}
	return false;
}

static uint64_t percent(const struct link *l, uint64_t in, uint64_t out)
{
	return l->mbps ? (in > out ? in : out) * 100 / l->mbps : 0;
}

static bool is_full(const struct link *l)
{
	return l->waits || percent(l, l->in, l->out) >= BALANCE_FULL_PERCENT;
}

/* The share of a VF in its host's link, and the link that it would come to. */
struct share {
	struct link *from, *to;
	uint64_t in, out;
};

/* A VM and a host for it. */
struct choice {
	struct json_object *domain, *host;
	struct share share[DOMAIN_VFS_MAX]; /* a share for each VF whose traffic is known */
	unsigned shares;
	uint64_t percent; /* load of the fullest link: that to be relieved, or those it comes to */
};

static struct link *link_of(struct balance *b, struct json_object *host, const char *pf)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->link[i].host == host && str_eq(b->link[i].pf, pf))
			return &b->link[i];
	return NULL;
}

/* Counters of two ports are not read at the same moment: never more than the link has. */
static void leave(struct share *s, uint64_t in, uint64_t out)
{
	s->in = in < s->from->in ? in : s->from->in;
	s->out = out < s->from->out ? out : s->from->out;
	s->from->in -= s->in;
	s->from->out -= s->out;
}

/* False: what one of its VFs sends or receives is unknown. */
static bool leave_all(struct balance *b, struct choice *c, struct json_object *host)
{
	struct json_object *vfs = json_opt(c->domain, "vfs");
	bool known = true;

	for (size_t i = 0; i < json_count(vfs) && c->shares < DOMAIN_VFS_MAX; i++) {
		struct json_object *vf = json_object_array_get_idx(vfs, i);
		struct link *l = link_of(b, host, str(vf, "pf"));
		struct json_object *port = json_find(l ? json_opt(l->from, "ports") : NULL, "guid",
						     str(vf, "vguid"));

		if (!port)
			continue;
		known = known && !is_unknown(port);
		c->share[c->shares].from = l;
		leave(&c->share[c->shares++], num(port, "in_mbps"), num(port, "out_mbps"));
	}
	return known;
}

static void come_back(struct choice *c)
{
	for (unsigned i = 0; i < c->shares; i++) {
		c->share[i].from->in += c->share[i].in;
		c->share[i].from->out += c->share[i].out;
	}
}

/* True if the host has, for each share, a link of that PF that is not full. */
static bool find_links(struct balance *b, struct choice *c, struct json_object *host)
{
	c->host = host;
	for (unsigned i = 0; i < c->shares; i++) {
		struct share *s = &c->share[i];

		s->to = link_of(b, host, s->from->pf);
		if (!s->to || s->to->unknown || is_full(s->to))
			return false;
	}
	return true;
}

/* How full `to` would be. */
static uint64_t percent_there(const struct choice *c, const struct link *to)
{
	uint64_t in = to->in, out = to->out;

	for (unsigned i = 0; i < c->shares; i++) {
		in += c->share[i].to == to ? c->share[i].in : 0;
		out += c->share[i].to == to ? c->share[i].out : 0;
	}
	return percent(to, in, out);
}

static void measure(struct choice *c, const struct link *from)
{
	c->percent = percent(from, from->in, from->out);
	for (unsigned i = 0; i < c->shares; i++) {
		uint64_t there = percent_there(c, c->share[i].to);

		c->percent = there > c->percent ? there : c->percent;
	}
}

static bool relieves(const struct choice *c, const struct link *from)
{
	for (unsigned i = 0; i < c->shares; i++)
		if (c->share[i].from == from && (c->share[i].in || c->share[i].out))
			return true;
	return false;
}

static void consider(struct balance *b, struct link *from, struct json_object *domain,
		     struct choice *best)
{
	struct choice c = {.domain = domain};
	char why[WHY_MAX];
	bool known;

	if (json_opt(domain, "proposed"))
		return;
	known = leave_all(b, &c, from->host);
	for (size_t i = 0; known && relieves(&c, from) && i < b->count; i++) {
		struct json_object *host = b->link[i].host;

		if (host == from->host || !find_links(b, &c, host))
			continue;
		measure(&c, from);
		if (c.percent < best->percent && plan_fits(host, domain, why, sizeof why))
			*best = c;
	}
	come_back(&c);
}

static struct json_object *move_json(const struct choice *c, const struct link *from)
{
	struct json_object *o = json_object_new_object();
	uint64_t in = 0, out = 0;

	for (unsigned i = 0; i < c->shares; i++) {
		in += c->share[i].in;
		out += c->share[i].out;
	}
	json_set_str(o, "vm", str(c->domain, "name"));
	json_set_str(o, "from", str(from->host, "host"));
	json_set_str(o, "to", str(c->host, "host"));
	json_set_u64(o, "in_mbps", in);
	json_set_u64(o, "out_mbps", out);
	return o;
}

/* false: nothing helps this one. */
static bool propose(struct balance *b, struct link *from)
{
	struct json_object *domains = json_opt(from->host, "domains");
	struct choice best = {.percent = percent(from, from->in, from->out)};

	for (size_t i = 0; i < json_count(domains); i++)
		consider(b, from, json_object_array_get_idx(domains, i), &best);
	if (!best.domain)
		return false;
	json_object_array_add(b->moves, move_json(&best, from));
	json_set_bool(best.domain, "proposed", true);
	plan_give(best.host, best.domain);
	for (unsigned i = 0; i < best.shares; i++) {
		struct share *s = &best.share[i];

		leave(s, s->in, s->out);
		s->from->waits = false; /* the rest of its waiting cannot be told */
		s->to->in += s->in;
		s->to->out += s->out;
	}
	return true;
}

static struct link *fullest(struct balance *b, const bool *hopeless)
{
	struct link *found = NULL;

	for (size_t i = 0; i < b->count; i++) {
		struct link *l = &b->link[i];

		if (!hopeless[i] && !l->unknown && is_full(l) &&
		    (!found || percent(l, l->in, l->out) > percent(found, found->in, found->out)))
			found = l;
	}
	return found;
}

static void fill_links(struct balance *b, struct json_object *links, struct json_object *hosts)
{
	for (size_t i = 0; i < json_count(links); i++) {
		struct json_object *o = json_object_array_get_idx(links, i);
		struct link l = {
			.from = o,
			.mbps = num(o, "mbps"),
			.in = num(o, "in_mbps"),
			.out = num(o, "out_mbps"),
			.waits = json_opt_bool(o, "wait_stuck", false) ||
				 num(o, "wait_per_s") >= BALANCE_WAIT_PER_S,
			.unknown = is_unknown(o),
		};

		if (find_host(&l, hosts))
			b->link[b->count++] = l;
	}
}

static struct json_object *link_json(const struct link *l)
{
	struct json_object *o = json_object_new_object();
	static const char *const same[] = {"mbps", "in_mbps", "out_mbps", "wait_per_s"};

	json_set_str(o, "host", str(l->host, "host"));
	json_set_str(o, "pf", l->pf);
	for (size_t i = 0; i < ARRAY_SIZE(same); i++)
		if (is_null(l->from, same[i]))
			json_set(o, same[i], NULL);
		else
			json_set_u64(o, same[i], num(l->from, same[i]));
	json_set_bool(o, "wait_stuck", json_opt_bool(l->from, "wait_stuck", false));
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
