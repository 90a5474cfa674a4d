/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Finds the real librdmacm. */
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/callers.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

static struct cm_real real;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int absent_int(void)
{
	errno = ENOSYS;
	return -1;
}

static void *absent_pointer(void)
{
	errno = ENOSYS;
	return NULL;
}

static void *find(void *lib, const char *name, const char *version)
{
	char symbol[64];
	void *f;

	snprintf(symbol, sizeof(symbol), "rdma_%s", name);
	f = dlvsym(RTLD_NEXT, symbol, version);
	return f || !lib ? f : dlvsym(lib, symbol, version);
}

static void load(void)
{
	/* A program may dlopen() librdmacm itself: then RTLD_NEXT does not see it. */
	void *lib = dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_LOCAL);
	uintptr_t address;
	void *f;

#define REAL_CM(ret, name, version, ...)                                                           \
	f = find(lib, #name, version);                                                             \
	if (!f)                                                                                    \
		f = __builtin_types_compatible_p(ret, int) ? (void *)absent_int                    \
							   : (void *)absent_pointer;               \
	memcpy(&real.name, &f, sizeof(f));
#include "guest-agent/shim/cm/real.def"
#undef REAL_CM
	f = dlvsym(RTLD_NEXT, "rsocket", "RDMACM_1.0");
	if (!f && lib)
		f = dlvsym(lib, "rsocket", "RDMACM_1.0");
	if (!f)
		f = (void *)absent_int;
	memcpy(&real.rsocket, &f, sizeof(f));
	memcpy(&address, &real.get_cm_event, sizeof(address));
	callers_note(address);
}

const struct cm_real *cm_load(void)
{
	pthread_once(&once, load);
	return &real;
}

bool cm_is_caller(const void *return_address)
{
	cm_load();
	return callers_has(return_address);
}
