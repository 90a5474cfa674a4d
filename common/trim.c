/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/trim.h"

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

typedef ElfW(Phdr) elf_phdr;
typedef ElfW(Dyn) elf_dyn;

/* An object with text relocations has been written to where its segments say that it cannot be
 * (ELF: DT_TEXTREL, or DF_TEXTREL in DT_FLAGS). */
static bool is_relocated_text(const struct dl_phdr_info *info)
{
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const elf_phdr *p = &info->dlpi_phdr[i];
		const elf_dyn *d;

		if (p->p_type != PT_DYNAMIC)
			continue;
		d = (const elf_dyn *)(uintptr_t)(info->dlpi_addr + p->p_vaddr);
		for (; d->d_tag != DT_NULL; d++)
			if (d->d_tag == DT_TEXTREL ||
			    (d->d_tag == DT_FLAGS && (d->d_un.d_val & DF_TEXTREL)))
				return true;
	}
	return false;
}

static int trim_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t page = *(const uintptr_t *)arg;

	(void)size;
	if (is_relocated_text(info))
		return 0;
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const elf_phdr *p = &info->dlpi_phdr[i];
		uintptr_t start = (info->dlpi_addr + p->p_vaddr) & ~(page - 1);
		uintptr_t end = info->dlpi_addr + p->p_vaddr + p->p_filesz;

		/* A page that the linker writes to and protects afterwards (PT_GNU_RELRO) is in a
		 * segment that is writable here. */
		if (p->p_type == PT_LOAD && !(p->p_flags & PF_W))
			madvise((void *)start, end - start, MADV_DONTNEED);
	}
	return 0;
}

void trim_code(void)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	dl_iterate_phdr(trim_object, &page);
}
