/* SPDX-License-Identifier: GPL-2.0-or-later */
/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. Text of
 * others is refused where its bytes come in, and text of ours that was cut is mended where it goes
 * out. */
#ifndef IBVMIG_COMMON_UTF8_H
#define IBVMIG_COMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool utf8_is_valid(const char *text, size_t bytes);
/* A copy, owned by the caller, with '?' for each byte that belongs to no character. NULL without
 * memory. */
char *utf8_mend(const char *text);

#endif
