/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/settings.h"
#include "common/util.h"

#include <inttypes.h>
#include <string.h>

#define COLUMNS_MAX 98

static bool is_row(const struct setting *s)
{
	return s->key || s->section;
}

const struct setting *setting_find(const struct setting *table, const char *key)
{
	for (; is_row(table); table++)
		if (table->key && !strcmp(table->key, key))
			return table;
	return NULL;
}

/* ---- values ---- */

static bool is_word(const char *words, const char *value)
{
	size_t n = strlen(value), w;

	for (; *words; words += w + (words[w] == '|')) {
		w = strcspn(words, "|");
		if (w == n && !strncmp(words, value, n))
			return true;
	}
	return false;
}

/* "a|b|c" as "a, b or c". Owned by the caller. */
static char *list_words(const char *words)
{
	char *text = strdup("");

	while (text && *words) {
		size_t n = strcspn(words, "|");
		bool last = !words[n];
		char *longer = strf("%s%s%.*s", text,
				    !*text ? ""
				    : last ? " or "
					   : ", ",
				    (int)n, words);

		free(text);
		text = longer;
		words += n + !last;
	}
	return text;
}

/* "a number of bytes from 1 to 10". Owned by the caller. */
static char *describe_number(const struct setting *row)
{
	return strf("a number%s%s from %" PRIu64 " to %" PRIu64, row->form ? " of " : "",
		    row->form ? row->form : "", row->min, row->max);
}

char *setting_refuse(const struct setting *row, const char *value)
{
	char *what AUTO_FREE = NULL;
	uint64_t number;

	switch (row->type) {
	case SETTING_NUMBER:
		if (!parse_u64(value, row->min, row->max, &number))
			return NULL;
		what = describe_number(row);
		break;
	case SETTING_FLAG:
		if (is_word("yes|no|true|false|on|off|1|0", value))
			return NULL;
		what = strdup("yes or no");
		break;
	case SETTING_WORD:
		if (is_word(row->form, value))
			return NULL;
		what = list_words(row->form);
		break;
	case SETTING_TEXT:
		return NULL;
	}
	return strf("must be %s%s%s%s%s", what ? what : "another value", row->means ? ": " : "",
		    row->means ? row->means : "", row->fallback ? "; without the line it is " : "",
		    row->fallback ? row->fallback : "");
}

/* ---- text ---- */

/* Prints sentences in lines that begin with begin; for man(7), begin is "" and each sentence has a
 * line of its own. */
static void print_text(const char *text, const char *begin, FILE *out)
{
	bool roff = !*begin;
	size_t column = 0;

	while (*text) {
		size_t n = strcspn(text, " ");
		bool is_request = roff && (*text == '.' || *text == '\'');

		if (column && column + 1 + n > COLUMNS_MAX) {
			fputc('\n', out);
			column = 0;
		}
		column += (size_t)fprintf(out, "%s%s%.*s", column ? " " : begin,
					  !column && is_request ? "\\&" : "", (int)n, text);
		if (roff && text[n - 1] == '.' && text[n]) {
			fputc('\n', out);
			column = 0;
		}
		text += n + (text[n] == ' ');
	}
	fputc('\n', out);
}

/* ---- the example ---- */

static void print_comment(const char *text, FILE *out)
{
	print_text(text, "# ", out);
}

static void print_example_row(const struct setting *s, FILE *out)
{
	const char *line = s->example;

	if (s->help)
		print_comment(s->help, out);
	if (!line)
		fprintf(out, "#%s = %s\n", s->key, s->fallback ? s->fallback : s->form);
	while (line) {
		size_t n = strcspn(line, "\n");

		fprintf(out, "#%s = %.*s\n", s->key, (int)n, line);
		line = line[n] ? line + n + 1 : NULL;
	}
}

void settings_print_example(const struct setting *table, const char *program, FILE *out)
{
	fprintf(out,
		"# Configuration of %s. Lines are \"key = value\"; all keys: %s.conf(5).\n"
		"# \"%s --check-config\" looks at it, and starts nothing.\n",
		program, program, program);
	for (const struct setting *s = table; is_row(s); s++) {
		fputc('\n', out);
		if (s->key) {
			print_example_row(s, out);
			continue;
		}
		fprintf(out, "# ==== %s ====\n", s->section);
		if (s->help)
			print_comment(s->help, out);
	}
}

/* ---- the manual page ---- */

static void print_roff(const char *text, FILE *out)
{
	print_text(text, "", out);
}

static char *describe_value(const struct setting *s)
{
	switch (s->type) {
	case SETTING_NUMBER:
		return describe_number(s);
	case SETTING_FLAG:
		return strdup("yes or no");
	case SETTING_WORD:
		return list_words(s->form);
	case SETTING_TEXT:
		break;
	}
	return s->form ? strdup(s->form) : NULL;
}

static void print_man_row(const struct setting *s, FILE *out)
{
	char *value AUTO_FREE = describe_value(s), *facts AUTO_FREE;
	const char *fallback = s->fallback ? s->fallback : s->unset;

	facts = strf("Value: %s%s; default: %s.", value ? value : "?",
		     s->many ? ", any number of lines" : "", fallback ? fallback : "none");
	fprintf(out, ".TP\n.B %s\n", s->key);
	print_roff(s->help, out);
	print_roff(facts ? facts : "", out);
}

void settings_print_man(const struct setting *table, FILE *out)
{
	for (const struct setting *s = table; is_row(s); s++) {
		if (s->key) {
			print_man_row(s, out);
			continue;
		}
		fprintf(out, ".SS %s\n", s->section);
		if (s->help)
			print_roff(s->help, out);
	}
}
