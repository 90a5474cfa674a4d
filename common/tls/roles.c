/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/tls/roles.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static const struct {
	const char *name;
	enum rest_role role;
	bool given; /* by a certificate */
} names[] = {
	{"read-only", REST_READ_ONLY, true}, {"nova", REST_NOVA, true},  {"peer", REST_PEER, true},
	{"replica", REST_REPLICA, true},     {"root", REST_ROOT, false},
};

const char *rest_role_name(enum rest_role r)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (names[i].role == r)
			return names[i].name;
	return "?";
}

static unsigned roles_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (names[i].given && str_eq(names[i].name, name))
			return names[i].role | REST_READ_ONLY;
	return 0;
}

int role_table_add(struct role_table *t, const char *line)
{
	size_t n = strcspn(line, " \t");
	const char *name = line + n + strspn(line + n, " \t");
	char role[16] = "";
	unsigned roles;

	if (n < sizeof role)
		memcpy(role, line, n);
	roles = n < sizeof role ? roles_of(role) : 0;
	if (!roles || !*name || strpbrk(name, " \t") || strrchr(name, '*') > name ||
	    (*name == '*' && (name[1] != '.' || !name[2])))
		return -EINVAL;
	if (t->count == ROLE_ROWS_MAX)
		return -E2BIG;
	struct role_row *grown = realloc(t->row, (t->count + 1) * sizeof *grown);
	if (!grown)
		return -ENOMEM;
	t->row = grown;
	t->row[t->count++] = (struct role_row){.roles = roles, .name = name};
	return 0;
}

void role_table_clear(struct role_table *t)
{
	free(t->row);
	*t = (struct role_table){0};
}

static bool fits(const char *row, const char *name, size_t n)
{
	size_t tail = strlen(row);

	if (*row != '*')
		return tail == n && !strncasecmp(row, name, n);
	tail--; /* ".DOMAIN" */
	return n > tail && !strncasecmp(row + 1, name + n - tail, tail);
}

unsigned role_table_find(const struct role_table *t, const char *all)
{
	unsigned roles = 0;
	size_t n;

	for (const char *name = all; *name; name += n + (name[n] == '\n')) {
		n = strcspn(name, "\n");
		for (size_t i = 0; n && i < t->count; i++)
			if (fits(t->row[i].name, name, n))
				roles |= t->row[i].roles;
	}
	return roles;
}
