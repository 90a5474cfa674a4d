/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Configuration files: "key = value" lines, # comments. A table of settings (settings.h) says which
 * keys there are; conf_load() looks at all values, so that a reader gets only good ones. */
#ifndef IBVMIG_COMMON_CONF_H
#define IBVMIG_COMMON_CONF_H

#include "common/settings.h"

#include <stddef.h>

#define CONF_FILE_MAX (64u << 10)

struct conf; /* owned by the caller of conf_load() */

/* -EINVAL for an unknown key, a line without '=', or a value that its row does not allow.
 * Then *ret_error (owned by the caller) names file, line, key, value, and what is allowed.
 * Otherwise -errno of reading. table: borrowed for the life of *ret_conf. */
int conf_load(const char *path, const struct setting *table, struct conf **ret_conf,
	      char **ret_error);
void conf_free(struct conf *c);

/* The last value of a key of the table, else its fallback, which may be NULL. Borrowed from c. */
const char *conf_get(const struct conf *c, const char *key);
/* The n-th value of a repeated key, or NULL. Borrowed from c. */
const char *conf_nth(const struct conf *c, const char *key, size_t n);
/* The value of a number and of a flag that have a fallback. */
uint64_t conf_number(const struct conf *c, const char *key);
bool conf_flag(const struct conf *c, const char *key);

/* -EINVAL, with *ret_error (owned by the caller) as "FILE:LINE: KEY = VALUE: " and the rest: what
 * it must be. value: as conf_get() or conf_nth() returned it, or a part of that; of a fallback,
 * which has no line, the message is "FILE: VALUE: ". */
int conf_refuse(const struct conf *c, const char *value, char **ret_error, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* "FILE:LINE: " of a value, "FILE: " without a line. Owned by the caller. */
char *conf_where(const struct conf *c, const char *value);

#endif
