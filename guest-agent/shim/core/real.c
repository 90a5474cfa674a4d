/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Finds the real verbs. By version: a plain symbol of this name would be the compatible one of
 * 2006 (IBVERBS_1.0), which has other structs. */
#include "guest-agent/shim/core/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

static struct shim_real verbs;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* For verbs that this libibverbs is too old for. */
static int absent_int(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

static void *absent_pointer(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

static void *find(void *lib, const char *name, const char *version, bool is_int)
{
	char symbol[64];
	void *f;

	/* _ibv_query_gid_ex and its sister have the underscore in front. */
	snprintf(symbol, sizeof(symbol), "%sibv_%s", *name == '_' ? "_" : "",
		 name + (*name == '_'));
	f = dlvsym(RTLD_NEXT, symbol, version);
	if (!f && lib)
		f = dlvsym(lib, symbol, version);
	if (!f)
		f = is_int ? (void *)absent_int : (void *)absent_pointer;
	return f;
}

static void load(void)
{
	/* A program may dlopen() libibverbs itself: then RTLD_NEXT does not see it. */
	void *lib = shim_dlopen_real("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
	void *f;

#define REAL_VERB(ret, name, version, ...)                                                         \
	f = find(lib, #name, version, __builtin_types_compatible_p(ret, int));                     \
	memcpy(&verbs.name, &f, sizeof(f));
#include "guest-agent/shim/core/real.def"
#undef REAL_VERB
}

const struct shim_real *shim_real(void)
{
	pthread_once(&once, load);
	return &verbs;
}
