/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Configuration files: "key = value" lines, # comments, a key may stand several times. */
#ifndef IBVMIG_COMMON_CONF_H
#define IBVMIG_COMMON_CONF_H

#include <stdbool.h>
#include <stddef.h>

#define CONF_FILE_MAX (64u << 10)

struct conf; /* owned by the caller of conf_load() */

/* known: a NULL-ended list of the allowed keys. An unknown key or a line without '=' is an error:
 * -EINVAL, and *ret_error (owned by the caller) says file, line and what is allowed. Otherwise
 * -errno of reading. */
int conf_load(const char *path, const char *const *known, struct conf **ret_conf, char **ret_error);
void conf_free(struct conf *c);

/* The last value of key, or fallback. Borrowed from c. */
const char *conf_get(const struct conf *c, const char *key, const char *fallback);
/* The n-th value of a repeated key, or NULL. Borrowed from c. */
const char *conf_nth(const struct conf *c, const char *key, size_t n);
/* *value: what the key says (yes, true, on, 1; no, false, off, 0); as it was without the key. 0, or
 * -EINVAL with a line in *ret_error (owned by the caller) for another word. */
int conf_read_bool(const struct conf *c, const char *key, bool *value, char **ret_error);

#endif
