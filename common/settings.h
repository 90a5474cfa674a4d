/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of a program's settings: one row a key, from which the reader of the file (conf.h), the
 * example file and the manual page come. */
#ifndef IBVMIG_COMMON_SETTINGS_H
#define IBVMIG_COMMON_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum setting_type {
	SETTING_TEXT,   /* the program itself checks what it needs */
	SETTING_NUMBER, /* from min to max, in base 10 or, with 0x, 16 */
	SETTING_FLAG,   /* yes, true, on, 1; no, false, off, 0 */
	SETTING_WORD,   /* a word of those in form: "a|b|c" */
};

/* A row with a key is a setting; one without begins a section. The last row has neither. */
struct setting {
	const char *section; /* the heading of the rows that follow */
	const char *key;
	enum setting_type type;
	bool many;            /* the key may stand several times */
	uint64_t min, max;    /* a number's range */
	const char *form;     /* how a value looks, such as "ADDR:PORT"; a number's unit */
	const char *fallback; /* the value without the key; NULL: there is none */
	const char *means;    /* says in a refusal what the value is; or NULL */
	const char *unset;    /* says what holds then; NULL: nothing */
	const char *example;  /* lines of the example file, '\n' between them; NULL: the fallback */
	const char *help;     /* sentences; of a section: what it is about, or NULL */
};

/* The row of a key, or NULL. */
const struct setting *setting_find(const struct setting *table, const char *key);
/* NULL: the value fits its row; else what it must be, owned by the caller: "must be yes or no". */
char *setting_refuse(const struct setting *row, const char *value);

/* Prints the file that is installed: all keys as comments. program: "ibvmigd". */
void settings_print_example(const struct setting *table, const char *program, FILE *out);
/* Prints the list of settings for the manual page, in man(7). */
void settings_print_man(const struct setting *table, FILE *out);

#endif
