/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The text form of a generated fabric. */
#include "vswitch/nets/gen.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

/* The next number at *at, which is one of few digits; *at goes behind it. */
static bool number(const char **at, unsigned long max, unsigned long *ret_value)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	*ret_value = strtoul(*at, &end, 10);
	*at = end;
	return *ret_value <= max;
}

static bool take(const char **at, char c)
{
	if (**at != c)
		return false;
	++*at;
	return true;
}

/* Numbers with `sep` between them, up to max; their count, 0 on an error. */
static unsigned row(const char **at, char sep, unsigned max, unsigned *ret_values)
{
	unsigned long v;
	unsigned n = 0;

	do {
		if (n == max || !number(at, 65535, &v) || !v)
			return 0;
		ret_values[n++] = (unsigned)v;
	} while (**at == sep && (*at)[1] >= '0' && (*at)[1] <= '9' && (*at)++);
	return n;
}

static bool parse_xgft(const char **at, struct gen_spec *s)
{
	unsigned up;

	s->shape = GEN_XGFT;
	s->levels = row(at, ',', GEN_LEVELS_MAX, s->down);
	s->up[0] = 1;
	if (s->levels < 2 || !take(at, '/'))
		return false;
	up = row(at, ',', s->levels - 1, s->up + 1);
	return up == s->levels - 1;
}

static bool parse_grid(const char **at, struct gen_spec *s, enum gen_shape shape)
{
	s->shape = shape;
	s->hosts = 1;
	s->dims = row(at, 'x', 3, s->size);
	return s->dims > 0;
}

static bool parse_irregular(const char **at, struct gen_spec *s)
{
	unsigned v[3];

	s->shape = GEN_IRREGULAR;
	s->hosts = 1;
	if (row(at, ',', 3, v) != 3)
		return false;
	s->switches = v[0];
	s->degree = v[1];
	s->seed = v[2];
	return true;
}

/* The fabrics of the paper: switches of 36 ports, half of them down. */
static bool parse_hosts(const char **at, struct gen_spec *s)
{
	static const struct {
		unsigned hosts, levels, top;
	} known[] = {{324, 2, 18}, {648, 2, 36}, {5832, 3, 18}, {11664, 3, 36}};
	unsigned long v;

	if (!number(at, 65535, &v))
		return false;
	for (unsigned i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i].hosts == v) {
			*s = (struct gen_spec){.shape = GEN_XGFT,
					       .levels = known[i].levels,
					       .down = {18, 18, 18},
					       .up = {1, 18, 18}};
			s->down[s->levels - 1] = known[i].top;
			return true;
		}
	return false;
}

static bool parse_option(const char **at, struct gen_spec *s)
{
	const struct {
		const char *name;
		unsigned *value;
		unsigned max;
	} option[] = {{"hosts=", &s->hosts, 200},
		      {"vfs=", &s->vfs, 126},
		      {"parked=", &s->parked, 126},
		      {"lmc=", &s->lmc, FABRIC_LMC_MAX},
		      {"vflmc=", &s->vf_lmc, FABRIC_LMC_MAX}};
	unsigned long v;

	if (!strncmp(*at, "vswitch", 7)) {
		*at += 7;
		s->kind = GEN_VSWITCHES;
		return true;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(option); i++) {
		size_t n = strlen(option[i].name);

		if (strncmp(*at, option[i].name, n) != 0)
			continue;
		*at += n;
		if (!number(at, option[i].max, &v))
			return false;
		*option[i].value = (unsigned)v;
		return true;
	}
	return false;
}

int gen_parse(const char *text, struct gen_spec *ret_spec, struct fabric_error *e)
{
	struct gen_spec s = {.parked = UINT32_MAX};
	const char *colon = strchr(text, ':'), *at = colon ? colon + 1 : text;
	size_t n = colon ? (size_t)(colon - text) : 0;
	bool ok;

	if (!colon)
		ok = parse_hosts(&at, &s);
	else if (n == 4 && !memcmp(text, "xgft", n))
		ok = parse_xgft(&at, &s);
	else if (n == 4 && !memcmp(text, "mesh", n))
		ok = parse_grid(&at, &s, GEN_MESH);
	else if (n == 5 && !memcmp(text, "torus", n))
		ok = parse_grid(&at, &s, GEN_TORUS);
	else if (n == 9 && !memcmp(text, "irregular", n))
		ok = parse_irregular(&at, &s);
	else
		ok = false;
	s.parked = UINT32_MAX;
	while (ok && *at)
		ok = take(&at, ',') && parse_option(&at, &s);
	if (!ok)
		return fabric_fail(e, -EINVAL,
				   "fabric \"%s\": not understood at \"%s\"; it is 324, 648, 5832, "
				   "11664, xgft:18,36/18, mesh:3x2, torus:8x8 or irregular:30,3,7, "
				   "then ,hosts= ,vfs= ,parked= ,lmc= ,vflmc= or ,vswitch",
				   text, at);
	if (s.parked > s.vfs)
		s.parked = s.vfs;
	*ret_spec = s;
	return 0;
}
