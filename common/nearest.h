/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Finds the word that was probably meant, for messages such as "did you mean ...?". */
#ifndef IBVMIG_COMMON_NEAREST_H
#define IBVMIG_COMMON_NEAREST_H

struct nearest {
	const char *typed; /* borrowed */
	const char *word;  /* borrowed: the best one so far; NULL: none is near */
	unsigned distance; /* the word's; set by nearest_try() */
};

/* Offers a word that is allowed: a struct nearest with typed alone is the beginning. A word is near
 * if at most a third of it differs: letters that are missing, too many, others, or exchanged. */
void nearest_try(struct nearest *n, const char *word);

#endif
