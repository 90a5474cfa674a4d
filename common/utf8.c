/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/utf8.h"

#include <string.h>

/* The first bytes of characters by their number of bytes (RFC 3629, 4). The second byte has a range
 * of its own; all others are 0x80 to 0xbf. */
static const struct {
	unsigned char first, last; /* of the first byte */
	unsigned char low, high;   /* of the second */
	unsigned char bytes;
} forms[] = {
	{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
	{0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
	{0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

/* Bytes of the character that is not ASCII at s, of which bytes are there; 0: there is none. */
static size_t long_character(const unsigned char *s, size_t bytes)
{
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		if (*s < forms[i].first || *s > forms[i].last)
			continue;
		if (bytes < forms[i].bytes || s[1] < forms[i].low || s[1] > forms[i].high)
			return 0;
		for (size_t k = 2; k < forms[i].bytes; k++)
			if ((s[k] & 0xc0) != 0x80)
				return 0;
		return forms[i].bytes;
	}
	return 0;
}

static size_t character(const unsigned char *s, size_t bytes)
{
	return *s < 0x80 ? 1 : long_character(s, bytes);
}

bool utf8_is_valid(const char *text, size_t bytes)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = 1;

	for (size_t at = 0; n && at < bytes; at += n)
		n = character(s + at, bytes - at);
	return n;
}

char *utf8_mend(const char *text)
{
	char *copy = strdup(text);
	size_t bytes = strlen(text), n;

	for (size_t at = 0; copy && at < bytes; at += n ? n : 1) {
		n = character((const unsigned char *)copy + at, bytes - at);
		if (!n)
			copy[at] = '?';
	}
	return copy;
}
