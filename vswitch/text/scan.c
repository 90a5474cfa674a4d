/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/text/scan.h"
#include "vswitch/text/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int scan_fail(struct scan *s, const char *fmt, ...)
{
	char what[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return fabric_fail(s->e, -EINVAL, "line %u: %s", s->line, what);
}

int scan_strange(struct scan *s)
{
	size_t left = (size_t)(s->stop - s->at);

	return scan_fail(s, "\"%.*s\" is not understood", (int)(left > 20 ? 20 : left), s->at);
}

void scan_skip(struct scan *s)
{
	size_t left = (size_t)(s->stop - s->at);

	while (left && strchr(" \t\r", s->at[left - 1]))
		left--;
	notes_add(s->notes, s->line, "\"%.*s\" is not understood: left out",
		  (int)(left > 40 ? 40 : left), s->at);
}

/* Fills the window behind what is left of it; nothing more comes at the end of the file. */
static int refill(struct scan *s)
{
	size_t left = (size_t)(s->end - s->text);

	if (left)
		memmove(s->window, s->text, left);
	s->text = s->window;
	s->end = s->window + left + fread(s->window + left, 1, SCAN_WINDOW - left, s->in);
	return ferror(s->in) ? scan_fail(s, "the file cannot be read: %s", strerror(errno)) : 0;
}

int scan_line(struct scan *s)
{
	size_t left = (size_t)(s->end - s->text);
	const char *stop = left ? memchr(s->text, '\n', left) : NULL;

	if (!stop && s->in && left <= TEXT_LINE_MAX) {
		int rc = refill(s);

		if (rc)
			return rc;
		left = (size_t)(s->end - s->text);
		stop = left ? memchr(s->text, '\n', left) : NULL;
	}
	if (!left)
		return 0;
	if (!s->line && left >= 3 && !memcmp(s->text, "\xef\xbb\xbf", 3))
		s->text += 3; /* the mark of UTF-8 */
	s->line++;
	s->at = s->text;
	s->stop = stop ? stop : s->end;
	s->text = stop ? stop + 1 : s->end;
	if (s->stop - s->at > TEXT_LINE_MAX)
		return scan_fail(s, "longer than %d bytes", TEXT_LINE_MAX);
	if (memchr(s->at, 0, (size_t)(s->stop - s->at)))
		return scan_fail(s, "not text");
	return 1;
}

void scan_blanks(struct scan *s)
{
	while (s->at < s->stop && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r'))
		s->at++;
}

bool scan_done(struct scan *s)
{
	scan_blanks(s);
	return s->at == s->stop;
}

bool scan_word(struct scan *s, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(s->stop - s->at) < n || memcmp(s->at, word, n) != 0)
		return false;
	s->at += n;
	return true;
}

bool scan_group(struct scan *s, const char *open, char close)
{
	const char *before = s->at, *found;

	if (!scan_word(s, open))
		return false;
	found = memchr(s->at, close, (size_t)(s->stop - s->at));
	s->at = found ? found + 1 : before;
	return found;
}

bool scan_find(struct scan *s, const char *word)
{
	const char *found = memmem(s->at, (size_t)(s->stop - s->at), word, strlen(word));

	if (found)
		s->at = found + strlen(word);
	return found;
}

static unsigned digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return (unsigned)(c - '0');
	if ((c | 32) >= 'a' && (c | 32) <= 'f')
		return (unsigned)((c | 32) - 'a' + 10);
	return 99;
}

bool scan_number(struct scan *s, unsigned base, uint64_t max, uint64_t *ret_value)
{
	uint64_t v = 0;
	const char *first;

	if (base == 16)
		scan_word(s, "0x");
	first = s->at;
	for (; s->at < s->stop && digit_of(*s->at) < base; s->at++) {
		unsigned digit = digit_of(*s->at);

		if (digit > max || v > (max - digit) / base)
			return false;
		v = v * base + digit;
	}
	*ret_value = v;
	return s->at > first;
}

bool scan_quoted(struct scan *s, bool last, struct span *ret_span)
{
	size_t left;
	const char *quote;

	if (!scan_word(s, "\""))
		return false;
	left = (size_t)(s->stop - s->at);
	quote = last ? memrchr(s->at, '"', left) : memchr(s->at, '"', left);
	if (!quote)
		return false;
	*ret_span = (struct span){s->at, (uint32_t)(quote - s->at)};
	s->at = quote + 1;
	return true;
}
