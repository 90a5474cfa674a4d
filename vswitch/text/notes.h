/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Notes on what a reader found odd and left out: each kind is counted, its first case is named. */
#ifndef IBVMIG_VSWITCH_TEXT_NOTES_H
#define IBVMIG_VSWITCH_TEXT_NOTES_H

#define TEXT_NOTES_MAX 16 /* kinds */
#define TEXT_NOTE_MAX  200

struct text_notes {
	struct {
		const char *kind; /* borrowed: the format of its first case */
		char first[TEXT_NOTE_MAX];
		unsigned count;
	} note[TEXT_NOTES_MAX];
	unsigned notes;
};

/* Counts one more of the kind that `fmt` names; the first one is kept as "line N: text". NULL is
 * allowed. Kinds beyond the maximum are left out. */
void notes_add(struct text_notes *n, unsigned line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
