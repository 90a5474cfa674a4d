/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/nearest.h"

#include <string.h>

#define WORD_MAX 32

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* The distance of Damerau and Levenshtein, in which no letter is moved twice. */
static unsigned distance(const char *a, size_t na, const char *b, size_t nb)
{
	unsigned row[WORD_MAX + 1][WORD_MAX + 1];

	for (size_t i = 0; i <= na; i++)
		row[i][0] = (unsigned)i;
	for (size_t k = 0; k <= nb; k++)
		row[0][k] = (unsigned)k;
	for (size_t i = 1; i <= na; i++)
		for (size_t k = 1; k <= nb; k++) {
			unsigned best = least(row[i - 1][k], row[i][k - 1]) + 1;

			best = least(best, row[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				best = least(best, row[i - 2][k - 2] + 1);
			row[i][k] = best;
		}
	return row[na][nb];
}

void nearest_try(struct nearest *n, const char *word)
{
	size_t typed = strlen(n->typed), length = strlen(word);
	unsigned d;

	if (typed > WORD_MAX || length > WORD_MAX)
		return;
	d = distance(n->typed, typed, word, length);
	if (d * 3 <= length && (!n->word || d < n->distance)) {
		n->word = word;
		n->distance = d;
	}
}
