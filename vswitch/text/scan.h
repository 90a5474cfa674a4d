/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reading text line by line, from left to right. */
#ifndef IBVMIG_VSWITCH_TEXT_SCAN_H
#define IBVMIG_VSWITCH_TEXT_SCAN_H

#include "vswitch/model/fabric.h"
#include "vswitch/text/notes.h"

#include <stdio.h>

struct span {
	const char *at; /* borrowed from the text */
	uint32_t bytes;
};

#define SCAN_WINDOW 65536 /* bytes of a file that are in memory at a time */

struct scan {
	const char *text, *end;   /* the rest behind the line, of the window if there is one */
	FILE *in;                 /* borrowed; NULL: all is in memory */
	char *window;             /* owned by the caller: SCAN_WINDOW bytes */
	unsigned line;            /* from 1 */
	const char *at, *stop;    /* the rest of the line */
	struct text_notes *notes; /* borrowed, or NULL */
	struct fabric_error *e;
};

/* The next line: 1, 0 at the end, -EINVAL (longer than TEXT_LINE_MAX, a byte 0, or the file cannot
 * be read). */
int scan_line(struct scan *s);
void scan_blanks(struct scan *s);
bool scan_done(struct scan *s); /* nothing but blanks is left of the line */
/* Goes behind the word if it comes next. */
bool scan_word(struct scan *s, const char *word);
/* Goes behind "open...close" if it comes next, as "[ext 3]"; false: it does not, or is not closed.
 */
bool scan_group(struct scan *s, const char *open, char close);
/* Goes behind the next place where the word is; false: it is not in the line. */
bool scan_find(struct scan *s, const char *word);
/* A number without sign; base 10 or 16 (with or without 0x). */
bool scan_number(struct scan *s, unsigned base, uint64_t max, uint64_t *ret_value);
/* A "name" in quotes: up to the next quote or, `last`, the last one of the line. */
bool scan_quoted(struct scan *s, bool last, struct span *ret_span);

/* -EINVAL and "line N: what". */
int scan_fail(struct scan *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for the next thing in the line. */
int scan_strange(struct scan *s);
/* A note that the line is not understood and left out. */
void scan_skip(struct scan *s);

#endif
