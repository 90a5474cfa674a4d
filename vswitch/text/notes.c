/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/text/notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void notes_add(struct text_notes *n, unsigned line, const char *fmt, ...)
{
	char what[TEXT_NOTE_MAX - 20];
	unsigned i = 0;
	va_list ap;

	if (!n)
		return;
	while (i < n->notes && strcmp(n->note[i].kind, fmt) != 0)
		i++;
	if (i == TEXT_NOTES_MAX)
		return;
	if (i == n->notes) {
		va_start(ap, fmt);
		vsnprintf(what, sizeof what, fmt, ap);
		va_end(ap);
		for (char *c = what; *c; c++)
			*c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c; /* for people */
		n->note[n->notes].kind = fmt;
		n->note[n->notes].count = 0;
		snprintf(n->note[n->notes++].first, TEXT_NOTE_MAX, "line %u: %s", line, what);
	}
	n->note[i].count++;
}
