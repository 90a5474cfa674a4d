/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Programs that load libibverbs themselves (NCCL does) and look verbs up in that library's handle
 * do not see what is preloaded. They get the handle of libibvmig-dl.so, a library without symbols
 * that needs us first and then libibverbs. A look-up in it, by version or not, finds ours before
 * the real ones. */
#include "guest-agent/shim/core/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#define VERBS_LIBRARY "libibverbs.so"
#define OUR_LIBRARY   "libibvmig-dl.so"

typedef void *dlopen_fn(const char *name, int flags);

dlopen_fn shim_dlopen, shim_dlopen_old; /* both are dlopen, see below */

static dlopen_fn *next_dlopen(void)
{
	static _Atomic(dlopen_fn *) next;
	dlopen_fn *f = atomic_load(&next);
	void *p;

	if (!f) {
		p = dlsym(RTLD_NEXT, "dlopen");
		memcpy(&f, &p, sizeof(f));
		atomic_store(&next, f);
	}
	return f;
}

void *shim_dlopen_real(const char *name, int flags)
{
	return next_dlopen()(name, flags);
}

static bool is_verbs(const char *name)
{
	const char *slash = name ? strrchr(name, '/') : NULL;
	size_t n = strlen(VERBS_LIBRARY);

	if (slash)
		name = slash + 1;
	return name && !strncmp(name, VERBS_LIBRARY, n) && (!name[n] || name[n] == '.');
}

/* Beside us. NULL where it is missing: the program then goes on without cover, and is named. */
static void *open_ours(int flags)
{
	char path[PATH_MAX];
	const char *slash;
	Dl_info us;

	if (!dladdr((void *)(uintptr_t)is_verbs, &us) || !(slash = strrchr(us.dli_fname, '/')) ||
	    (size_t)(slash - us.dli_fname) + sizeof("/" OUR_LIBRARY) > sizeof(path))
		return NULL;
	snprintf(path, sizeof(path), "%.*s/" OUR_LIBRARY, (int)(slash - us.dli_fname),
		 us.dli_fname);
	return shim_dlopen_real(path, flags);
}

/* Must stay a jump at its end: the real one looks at its caller's RUNPATH. */
void *shim_dlopen(const char *name, int flags)
{
	void *ours;

	if (is_verbs(name)) {
		/* the program must learn that there is none */
		if (flags & RTLD_NOLOAD && !shim_dlopen_real(name, flags))
			return NULL;
		ours = open_ours(flags & ~RTLD_NOLOAD);
		if (ours)
			return ours;
	}
	return next_dlopen()(name, flags);
}

/* As programs refer to it: before glibc 2.34 it was in libdl, with each platform's first version.
 */
dlopen_fn shim_dlopen_old __attribute__((alias("shim_dlopen")));
__asm__(".symver shim_dlopen, dlopen@@GLIBC_2.34");
#if defined(__x86_64__)
__asm__(".symver shim_dlopen_old, dlopen@GLIBC_2.2.5");
#else
__asm__(".symver shim_dlopen_old, dlopen@GLIBC_2.17");
#endif
