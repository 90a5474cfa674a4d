/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/partitions/policy.h"
#include "common/util.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_MAX 4094 /* OpenSM reads longer lines in pieces of so many bytes */
#define BLANKS    " \t\n"

/* ---- rules and partitions ---- */

void policy_free(struct policy *p)
{
	free(p->rule);
	free(p->partition);
	*p = (struct policy){0};
}

const struct policy_partition *policy_find(const struct policy *p, uint16_t pkey)
{
	for (size_t i = 0; i < p->partitions; i++)
		if (p->partition[i].pkey == (pkey & ~POLICY_FULL))
			return &p->partition[i];
	return NULL;
}

static int add_rule(struct policy *p, const struct policy_rule *r)
{
	if (p->rules == p->room) {
		size_t room = p->room ? 2 * p->room : 64;
		struct policy_rule *grown = realloc(p->rule, room * sizeof *grown);

		if (!grown || room > 2 * POLICY_RULES_MAX)
			return -ENOMEM;
		p->rule = grown;
		p->room = room;
	}
	p->rule[p->rules++] = *r;
	return 0;
}

/* The name of a partition is that of its first definition, the rest that of its last. */
static int add_partition(struct policy *p, const struct policy_partition *x)
{
	struct policy_partition *known = (struct policy_partition *)policy_find(p, x->pkey);

	if (known) {
		known->sl = x->sl;
		known->indx0 = x->indx0;
		known->groups = known->groups || x->groups;
		return 0;
	}
	struct policy_partition *grown = realloc(p->partition, (p->partitions + 1) * sizeof *grown);

	if (!grown)
		return -ENOMEM;
	p->partition = grown;
	p->partition[p->partitions++] = *x;
	return 0;
}

/* The default partition, as OpenSM makes it before it reads the file. */
static int add_default(struct policy *p, bool full)
{
	struct policy_partition x = {.pkey = POLICY_DEFAULT, .name = "Default"};
	struct policy_rule all = {.pkey = POLICY_DEFAULT,
				  .who = SM_WHO_ALL,
				  .as = full ? SM_MEMBER_FULL : SM_MEMBER_LIMITED};
	struct policy_rule self = {
		.pkey = POLICY_DEFAULT, .who = SM_WHO_SELF, .as = SM_MEMBER_FULL};
	int rc = add_partition(p, &x);

	if (!rc)
		rc = add_rule(p, &all);
	return rc ? rc : add_rule(p, &self);
}

/* ---- the file ---- */

struct reader {
	struct policy *p;
	const struct policy_options *options;
	uint16_t last_generated;
	/* the definition under way */
	bool open, has_header, skip;
	uint8_t as; /* of members without a word of their own */
	struct policy_partition now;
};

/* True if the word is a beginning of the keyword: that is enough for OpenSM. */
static bool begins(const char *word, const char *keyword)
{
	return !strncmp(word, keyword, strlen(word));
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, BLANKS);
	for (n = strlen(s); n && strchr(BLANKS, s[n - 1]); n--)
		s[n - 1] = '\0';
	return s;
}

/* Cuts the next of the words between commas off *rest; NULL: there is none. *ret_value: behind "=",
 * or NULL. */
static char *next_word(char **rest, char **ret_value)
{
	char *word = *rest, *comma, *equals;

	if (!word)
		return NULL;
	if ((comma = strchr(word, ',')))
		*comma++ = '\0';
	*rest = comma;
	*ret_value = NULL;
	if ((equals = strchr(word, '='))) {
		*equals++ = '\0';
		*ret_value = trim(equals);
	}
	return trim(word);
}

static void take_sl(struct reader *r, const char *value)
{
	char *end;
	unsigned long sl;

	if (!value || !*value)
		return;
	sl = strtoul(value, &end, 0);
	if (sl <= 15 && (!*end || isspace((unsigned char)*end)))
		r->now.sl = (uint8_t)sl;
}

static void take_flag(struct reader *r, const char *flag, const char *value)
{
	static const char *const unused[] = {"mtu", "rate", "scope", "Q_Key", "TClass"};

	for (size_t i = 0; i < ARRAY_SIZE(unused); i++)
		if (begins(flag, unused[i]))
			return;
	if (begins(flag, "sl"))
		take_sl(r, value);
	else if (begins(flag, "FlowLabel"))
		return;
	else if (begins(flag, "ipoib"))
		r->now.groups = true;
	else if (begins(flag, "defmember") && value)
		r->as = begins(value, "full")      ? SM_MEMBER_FULL
			: begins(value, "both")    ? SM_MEMBER_BOTH
			: begins(value, "limited") ? SM_MEMBER_LIMITED
						   : r->as;
	else if (!strcmp(flag, "indx0"))
		r->now.indx0 = true;
}

static uint16_t pkey_by_name(struct reader *r, const char *name)
{
	for (size_t i = 0; *name && i < r->p->partitions; i++)
		if (!strcmp(r->p->partition[i].name, name))
			return r->p->partition[i].pkey;
	if (r->options->pkey_of)
		return r->options->pkey_of(r->options->context, name);
	while (policy_find(r->p, ++r->last_generated))
		;
	return r->last_generated;
}

/* 0; -EINVAL: OpenSM gives up; -ENOMEM. */
static int take_header(struct reader *r, char *header)
{
	char *rest = header, *id = NULL, *value, *name = next_word(&rest, &id), *flag, *end;
	unsigned long number = 0;

	if (!id && isdigit((unsigned char)*name)) {
		id = name;
		name = "";
	}
	while ((flag = next_word(&rest, &value)))
		take_flag(r, flag, value);
	if (id) {
		number = strtoul(id, &end, 0);
		if (end == id || *end)
			return -EINVAL;
	}
	if (!r->options->qos)
		r->now.sl = 0;
	r->now.pkey = (uint16_t)(number & POLICY_DEFAULT);
	snprintf(r->now.name, sizeof r->now.name, "%s", name);
	if (!r->now.pkey)
		r->now.pkey = pkey_by_name(r, r->now.name);
	r->has_header = true;
	r->skip = !r->now.pkey;
	return r->skip ? 0 : add_partition(r->p, &r->now);
}

static int take_member(struct reader *r, const char *name, const char *flag)
{
	static const struct {
		const char *keyword;
		enum sm_who who;
	} group[] = {
		{"ALL", SM_WHO_ALL},
		{"ALL_CAS", SM_WHO_CAS},
		{"ALL_SWITCHES", SM_WHO_SWITCHES},
		{"ALL_ROUTERS", SM_WHO_ROUTERS},
		{"SELF", SM_WHO_SELF},
	};
	struct policy_rule x = {.pkey = r->now.pkey, .as = r->as, .indx0 = r->now.indx0};
	char *end;

	if (begins(name, "NONE")) /* or nothing at all */
		return 0;
	if (flag)
		x.as = begins(flag, "full")   ? SM_MEMBER_FULL
		       : begins(flag, "both") ? SM_MEMBER_BOTH
					      : SM_MEMBER_LIMITED;
	if (x.as == SM_MEMBER_BOTH && !r->options->both)
		x.as = SM_MEMBER_FULL;
	for (size_t i = 0; x.who == SM_WHO_GUID && i < ARRAY_SIZE(group); i++)
		if (begins(name, group[i].keyword))
			x.who = group[i].who;
	if (x.who == SM_WHO_GUID) {
		x.guid = strtoull(name, &end, 0);
		if (!x.guid || *end)
			return -EINVAL;
	}
	return r->skip ? 0 : add_rule(r->p, &x);
}

/* One definition, or a piece of one that goes over several lines. */
static int take_piece(struct reader *r, char *piece)
{
	char *rest = piece, *word, *value;
	int rc = 0;

	if (!r->has_header) {
		char *colon = strchr(piece, ':');

		if (!colon)
			return -EINVAL;
		*colon = '\0';
		if ((rc = take_header(r, piece)))
			return rc;
		rest = colon + 1;
	}
	while (!rc && (word = next_word(&rest, &value))) {
		if (!strcmp(word, "mgid")) { /* a multicast group: the rest is about that */
			r->now.groups = true;
			return r->skip ? 0 : add_partition(r->p, &r->now);
		}
		rc = take_member(r, word, value);
	}
	return rc;
}

/* A line, or as much of it as OpenSM reads at once. *ret_any: there was something in it. */
static int take_chunk(struct reader *r, char *chunk, bool *ret_any)
{
	char *at = chunk, *hash = strchr(chunk, '#'), *semicolon;
	bool none;

	if (hash)
		*hash = '\0';
	do {
		int rc;

		at += strspn(at, BLANKS);
		if (!*at)
			return 0;
		if (!r->open) {
			r->open = true;
			r->has_header = r->skip = false;
			r->as = SM_MEMBER_LIMITED;
			r->now = (struct policy_partition){0};
		}
		if ((semicolon = strchr(at, ';')))
			*semicolon = '\0';
		none = semicolon == at; /* OpenSM reads on behind it, to the end */
		if ((rc = take_piece(r, none ? at + 1 : at)))
			return rc;
		*ret_any = true;
		r->open = !semicolon;
		at = semicolon + 1;
	} while (semicolon && !none);
	return 0;
}

/* 0; -EINVAL: OpenSM gives up at p->bad_line; -ENOMEM. */
static int read_text(struct policy *p, const char *text, size_t bytes,
		     const struct policy_options *options)
{
	struct reader r = {.p = p, .options = options};
	unsigned line = 0;
	bool any = false;

	for (size_t at = 0, n; at < bytes; at += n) {
		char chunk[CHUNK_MAX + 1];
		const char *end;
		int rc;

		n = bytes - at < CHUNK_MAX ? bytes - at : CHUNK_MAX;
		if ((end = memchr(text + at, '\n', n)))
			n = (size_t)(end - text) - at + 1;
		memcpy(chunk, text + at, n);
		chunk[n] = '\0';
		line++;
		if ((rc = take_chunk(&r, chunk, &any))) {
			p->bad_line = line;
			return rc;
		}
	}
	p->open_end = r.open;
	if (any)
		return 0;
	p->bad_line = line ? line : 1;
	return -EINVAL;
}

int policy_parse(const char *text, size_t bytes, const struct policy_options *options,
		 struct policy *ret_policy)
{
	struct policy p = {.both = options->both};
	int rc = add_default(&p, !text);

	if (!rc && text && (rc = read_text(&p, text, bytes, options)) == -EINVAL) {
		unsigned bad_line = p.bad_line;

		policy_free(&p);
		p = (struct policy){.both = options->both, .bad_line = bad_line};
		rc = add_default(&p, true);
	}
	if (rc) {
		policy_free(&p);
		return rc;
	}
	*ret_policy = p;
	return 0;
}

/* ---- changes ---- */

bool policy_drop(struct policy *p, uint16_t pkey, uint64_t guid)
{
	for (size_t i = 0; i < p->rules; i++) {
		const struct policy_rule *r = &p->rule[i];

		if (!r->ours || r->pkey != (pkey & ~POLICY_FULL) || r->guid != guid)
			continue;
		memmove(&p->rule[i], r + 1, (--p->rules - i) * sizeof *r);
		return true;
	}
	return false;
}

int policy_append(struct policy *p, uint16_t pkey, uint64_t guid, enum sm_member_as as)
{
	const struct policy_partition *partition = policy_find(p, pkey);
	struct policy_rule r = {.guid = guid, .as = (uint8_t)as, .ours = true};

	if (!partition)
		return -ENOENT;
	r.pkey = partition->pkey;
	r.indx0 = partition->indx0;
	return add_rule(p, &r);
}

int policy_add(struct policy *p, uint16_t pkey, uint64_t guid, enum sm_member_as as)
{
	policy_drop(p, pkey, guid);
	return policy_append(p, pkey, guid, as);
}

/* ---- answers ---- */

static bool fits(const struct policy_rule *r, const struct policy_port *port)
{
	switch (r->who) {
	case SM_WHO_GUID:
		return r->guid == port->guid;
	case SM_WHO_ALL:
		return true;
	case SM_WHO_CAS:
		return port->type == SM_NODE_CA;
	case SM_WHO_SWITCHES:
		return port->type == SM_NODE_SWITCH;
	case SM_WHO_ROUTERS:
		return port->type == SM_NODE_ROUTER;
	default:
		return port->self;
	}
}

enum sm_member_as policy_member(const struct policy *p, uint16_t pkey,
				const struct policy_port *port)
{
	for (size_t i = p->rules; i--;)
		if (p->rule[i].pkey == (pkey & ~POLICY_FULL) && fits(&p->rule[i], port))
			return p->rule[i].as;
	return SM_MEMBER_NONE;
}

/* The P_Key that goes to index 0 by this rule: of a port that is both it is the limited one. */
static uint16_t index0_of(const struct policy_rule *r)
{
	return r->as == SM_MEMBER_FULL ? r->pkey | POLICY_FULL : r->pkey;
}

/* OpenSM's order is that of the number's bytes in its memory, network order read as the machine
 * does; limited goes before full. */
static bool goes_before(uint16_t a, uint16_t b)
{
	uint16_t x = htobe16(a & ~POLICY_FULL), y = htobe16(b & ~POLICY_FULL);

	return x != y ? x < y : a < b;
}

static void insert(struct policy_pkeys *keys, uint16_t pkey, bool both)
{
	unsigned at = 0, n = keys->count < SM_PKEYS_MAX ? keys->count : SM_PKEYS_MAX;

	for (unsigned i = 0; i < n; i++) {
		uint16_t *k = &keys->pkey[i];

		if (*k == pkey)
			return;
		if (!both && !((*k ^ pkey) & ~POLICY_FULL)) {
			*k |= pkey & POLICY_FULL;
			return;
		}
	}
	keys->count++;
	if (n == SM_PKEYS_MAX)
		return;
	while (at < n && goes_before(keys->pkey[at], pkey))
		at++;
	memmove(&keys->pkey[at + 1], &keys->pkey[at], (n - at) * sizeof pkey);
	keys->pkey[at] = pkey;
}

void policy_port_pkeys(const struct policy *p, const struct policy_port *port,
		       struct policy_pkeys *keys)
{
	bool seen[POLICY_DEFAULT + 1] = {false};
	uint16_t index0 = 0;

	for (size_t i = 0; i < p->rules; i++) {
		const struct policy_rule *r = &p->rule[i];

		if (!fits(r, port))
			continue;
		if (r->indx0)
			index0 = index0_of(r);
		else if (!((index0 ^ r->pkey) & ~POLICY_FULL))
			index0 = 0;
	}
	for (size_t i = p->rules; i--;) {
		const struct policy_rule *r = &p->rule[i];

		if (seen[r->pkey] || !fits(r, port))
			continue;
		seen[r->pkey] = true;
		if (r->as & SM_MEMBER_LIMITED)
			insert(keys, r->pkey, p->both);
		if (r->as & SM_MEMBER_FULL)
			insert(keys, r->pkey | POLICY_FULL, p->both);
	}
	if (index0)
		keys->index0 = index0;
}
