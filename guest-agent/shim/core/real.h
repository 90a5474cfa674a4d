/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The verbs below us: libibverbs' own, which ours are called in place of. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_REAL_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_REAL_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
struct shim_real {
#define REAL_VERB(ret, name, version, ...) ret (*name)(__VA_ARGS__);
#include "guest-agent/shim/core/real.def"
#undef REAL_VERB
};
/* The first call loads them; a verb that this libibverbs lacks is a stub that fails with
 * EOPNOTSUPP. */
const struct shim_real *shim_real(void);
#define real_verbs (*shim_real())

/* dlopen() without our own libraries in between (core/dl.c). */
void *shim_dlopen_real(const char *name, int flags);
#pragma GCC visibility pop

#endif
