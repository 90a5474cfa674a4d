/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/conf.h"
#include "common/util.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

struct entry {
	const char *key, *value; /* borrowed from conf.text */
};

struct conf {
	char *text; /* owned */
	struct entry *entries;
	size_t count;
};

void conf_free(struct conf *c)
{
	if (!c)
		return;
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

static bool is_known(const char *const *known, const char *key)
{
	for (; *known; known++)
		if (!strcmp(*known, key))
			return true;
	return false;
}

static char *join(const char *const *words)
{
	char *all = strdup("");

	for (; all && *words; words++) {
		char *longer = strf("%s%s%s", all, *all ? ", " : "", *words);

		free(all);
		all = longer;
	}
	return all;
}

static int add_line(struct conf *c, char *line, const char *where, unsigned number,
		    const char *const *known, char **ret_error)
{
	char *eq;

	line = trim(line);
	if (!*line || *line == '#')
		return 0;
	eq = strchr(line, '=');
	if (!eq) {
		*ret_error = strf("%s:%u: \"%s\" has no '='; a line is key = value", where, number,
				  line);
		return -EINVAL;
	}
	*eq = '\0';
	line = trim(line);
	if (!is_known(known, line)) {
		char *all AUTO_FREE = join(known);

		*ret_error = strf("%s:%u: key \"%s\" is unknown; allowed are %s", where, number,
				  line, all ? all : "?");
		return -EINVAL;
	}
	struct entry *grown = realloc(c->entries, (c->count + 1) * sizeof *grown);
	if (!grown)
		return -ENOMEM;
	c->entries = grown;
	c->entries[c->count++] = (struct entry){line, trim(eq + 1)};
	return 0;
}

int conf_load(const char *path, const char *const *known, struct conf **ret_conf, char **ret_error)
{
	struct conf *c = calloc(1, sizeof *c);
	unsigned number = 0;
	int rc = c ? read_file(path, CONF_FILE_MAX, &c->text, NULL) : -ENOMEM;

	*ret_error = NULL;
	if (rc)
		*ret_error = strf("%s: %s%s", path, strerror(-rc),
				  rc == -ENOENT ? "; -c FILE names another one" : "");
	for (char *line, *rest = c ? c->text : NULL; !rc && (line = strsep(&rest, "\n"));)
		rc = add_line(c, line, path, ++number, known, ret_error);
	if (rc) {
		conf_free(c);
		return rc;
	}
	*ret_conf = c;
	return 0;
}

const char *conf_get(const struct conf *c, const char *key, const char *fallback)
{
	for (size_t i = c->count; i-- > 0;)
		if (!strcmp(c->entries[i].key, key))
			return c->entries[i].value;
	return fallback;
}

const char *conf_nth(const struct conf *c, const char *key, size_t n)
{
	for (size_t i = 0; i < c->count; i++)
		if (!strcmp(c->entries[i].key, key) && n-- == 0)
			return c->entries[i].value;
	return NULL;
}

int conf_read_bool(const struct conf *c, const char *key, bool *value, char **ret_error)
{
	static const char *const words[][2] = {
		{"no", "yes"}, {"false", "true"}, {"off", "on"}, {"0", "1"}};
	const char *v = conf_get(c, key, NULL);

	for (size_t i = 0; v && i < ARRAY_SIZE(words); i++)
		if (!strcmp(v, words[i][0]) || !strcmp(v, words[i][1])) {
			*value = !strcmp(v, words[i][1]);
			return 0;
		}
	if (!v)
		return 0;
	*ret_error = strf("%s = %s: must be yes or no", key, v);
	return -EINVAL;
}
