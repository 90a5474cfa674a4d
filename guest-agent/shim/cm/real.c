/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Finds the real librdmacm. */
#include "guest-agent/shim/cm/id.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

static struct cm_real real;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool loaded;

/* Code of librdmacm and of this library: a tail call from there seems to come from here. */
static struct {
	uintptr_t from, to;
} ranges[2];

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

struct search {
	uintptr_t address;
	unsigned index;
};

static int note_range(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct search *s = arg;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + p->p_vaddr, to = from + p->p_memsz;

		if (p->p_type != PT_LOAD || s->address < from || s->address >= to)
			continue;
		ranges[s->index].from = from;
		ranges[s->index].to = to;
		return 1;
	}
	return 0;
}

static void load(void)
{
	/* A program may dlopen() librdmacm itself: then RTLD_NEXT does not see it. */
	void *lib = dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_LOCAL);
	struct search s = {.index = 0};
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
	memcpy(&s.address, &real.get_cm_event, sizeof(s.address));
	dl_iterate_phdr(note_range, &s);
	s = (struct search){(uintptr_t)load, 1};
	dl_iterate_phdr(note_range, &s);
	atomic_store_explicit(&loaded, true, memory_order_release);
}

const struct cm_real *cm_load(void)
{
	pthread_once(&once, load);
	return &real;
}

static bool in_ranges(const void *return_address)
{
	uintptr_t a = (uintptr_t)return_address;

	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
		if (a >= ranges[i].from && a < ranges[i].to)
			return true;
	return false;
}

bool cm_is_caller(const void *return_address)
{
	cm_load();
	return in_ranges(return_address);
}

bool cm_opens_device(const void *return_address)
{
	return atomic_load_explicit(&loaded, memory_order_acquire) && in_ranges(return_address);
}
