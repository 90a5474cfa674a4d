/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/conf.h"
#include "common/nearest.h"
#include "common/utf8.h"
#include "common/util.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

struct entry {
	const char *key, *value; /* borrowed from conf.text */
	unsigned line;
};

struct conf {
	const struct setting *table; /* borrowed */
	char *path, *text;           /* owned */
	struct entry *entries;
	size_t count;
};

void conf_free(struct conf *c)
{
	if (!c)
		return;
	free(c->path);
	free(c->text);
	free(c->entries);
	free(c);
}

static char *trim(char *s)
{
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return s;
}

/* ---- reading ---- */

/* Lists the keys, ", " between them. Owned by the caller. */
static char *list_keys(const struct setting *s)
{
	char *all = strdup("");

	for (; all && (s->key || s->section); s++) {
		char *longer = s->key ? strf("%s%s%s", all, *all ? ", " : "", s->key) : NULL;

		if (s->key) {
			free(all);
			all = longer;
		}
	}
	return all;
}

static char *refuse_key(const struct conf *c, const char *key, unsigned line)
{
	struct nearest near = {.typed = key};
	char *all AUTO_FREE = list_keys(c->table);

	for (const struct setting *s = c->table; s->key || s->section; s++)
		if (s->key)
			nearest_try(&near, s->key);
	return strf("%s:%u: key \"%s\" is unknown; %s%s%sallowed are %s", c->path, line, key,
		    near.word ? "did you mean " : "", near.word ? near.word : "",
		    near.word ? "? " : "", all ? all : "?");
}

static int add_line(struct conf *c, char *line, unsigned number, char **ret_error)
{
	char *eq;

	line = trim(line);
	if (!*line || *line == '#')
		return 0;
	if (!utf8_is_valid(line, strlen(line))) {
		*ret_error = strf("%s:%u: the line is not UTF-8", c->path, number);
		return -EINVAL;
	}
	eq = strchr(line, '=');
	if (!eq) {
		*ret_error = strf("%s:%u: \"%s\" has no '='; a line is key = value", c->path,
				  number, line);
		return -EINVAL;
	}
	*eq = '\0';
	line = trim(line);
	if (!setting_find(c->table, line)) {
		*ret_error = refuse_key(c, line, number);
		return -EINVAL;
	}
	struct entry *grown = realloc(c->entries, (c->count + 1) * sizeof *grown);
	if (!grown)
		return -ENOMEM;
	c->entries = grown;
	c->entries[c->count++] = (struct entry){line, trim(eq + 1), number};
	return 0;
}

/* Looks at the values that count: the last one of a key. */
static int check_values(const struct conf *c, char **ret_error)
{
	for (const struct setting *s = c->table; s->key || s->section; s++) {
		const char *value = s->key && conf_nth(c, s->key, 0) ? conf_get(c, s->key) : NULL;
		char *why AUTO_FREE = value ? setting_refuse(s, value) : NULL;

		if (why)
			return conf_refuse(c, value, ret_error, "%s", why);
	}
	return 0;
}

static int read_lines(struct conf *c, char **ret_error)
{
	unsigned number = 0;
	int rc = c->path ? read_file(c->path, CONF_FILE_MAX, &c->text, NULL) : -ENOMEM;

	if (rc)
		*ret_error = strf("%s: %s%s", c->path, strerror(-rc),
				  rc == -ENOENT ? "; -c FILE names another one" : "");
	for (char *line, *rest = c->text; !rc && (line = strsep(&rest, "\n"));)
		rc = add_line(c, line, ++number, ret_error);
	return rc;
}

int conf_load(const char *path, const struct setting *table, struct conf **ret_conf,
	      char **ret_error)
{
	struct conf *c = calloc(1, sizeof *c);
	int rc;

	*ret_error = NULL;
	if (!c)
		return -ENOMEM;
	c->table = table;
	c->path = strdup(path);
	rc = read_lines(c, ret_error);
	if (!rc)
		rc = check_values(c, ret_error);
	if (rc) {
		conf_free(c);
		return rc;
	}
	*ret_conf = c;
	return 0;
}

/* ---- values ---- */

const char *conf_get(const struct conf *c, const char *key)
{
	const struct setting *row = setting_find(c->table, key);

	for (size_t i = c->count; i-- > 0;)
		if (!strcmp(c->entries[i].key, key))
			return c->entries[i].value;
	return row ? row->fallback : NULL;
}

const char *conf_nth(const struct conf *c, const char *key, size_t n)
{
	for (size_t i = 0; i < c->count; i++)
		if (!strcmp(c->entries[i].key, key) && n-- == 0)
			return c->entries[i].value;
	return NULL;
}

uint64_t conf_number(const struct conf *c, const char *key)
{
	uint64_t n = 0;

	parse_u64(conf_get(c, key), 0, UINT64_MAX, &n);
	return n;
}

bool conf_flag(const struct conf *c, const char *key)
{
	const char *v = conf_get(c, key);

	return str_eq(v, "yes") || str_eq(v, "true") || str_eq(v, "on") || str_eq(v, "1");
}

/* ---- refusals ---- */

/* The line of a value, or of a part of one. */
static const struct entry *entry_of(const struct conf *c, const char *value)
{
	for (size_t i = 0; i < c->count; i++) {
		const struct entry *e = &c->entries[i];

		if (value >= e->value && value <= e->value + strlen(e->value))
			return e;
	}
	return NULL;
}

char *conf_where(const struct conf *c, const char *value)
{
	const struct entry *e = entry_of(c, value);

	return e ? strf("%s:%u: ", c->path, e->line) : strf("%s: ", c->path);
}

int conf_refuse(const struct conf *c, const char *value, char **ret_error, const char *fmt, ...)
{
	const struct entry *e = entry_of(c, value);
	char *where AUTO_FREE = conf_where(c, value), *why AUTO_FREE = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&why, fmt, ap) < 0)
		why = NULL;
	va_end(ap);
	*ret_error = strf("%s%s%s%s: %s", where ? where : "", e ? e->key : "", e ? " = " : "",
			  e ? e->value : value, why ? why : "no memory");
	return -EINVAL;
}
