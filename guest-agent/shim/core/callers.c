/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Code that calls verbs by name as a program does, and is none. */
#include "guest-agent/shim/core/callers.h"
#include "common/util.h"

#include <link.h>
#include <stdatomic.h>

static atomic_bool noted;
static struct {
	uintptr_t from, to;
} ranges[2];

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

void callers_note(uintptr_t in_librdmacm)
{
	struct search s = {in_librdmacm, 0};

	dl_iterate_phdr(note_range, &s);
	s = (struct search){(uintptr_t)note_range, 1};
	dl_iterate_phdr(note_range, &s);
	atomic_store_explicit(&noted, true, memory_order_release);
}

bool callers_has(const void *return_address)
{
	uintptr_t a = (uintptr_t)return_address;

	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
		if (a >= ranges[i].from && a < ranges[i].to)
			return true;
	return false;
}

bool cm_opens_device(const void *return_address)
{
	return atomic_load_explicit(&noted, memory_order_acquire) && callers_has(return_address);
}
