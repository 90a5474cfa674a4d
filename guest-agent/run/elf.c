/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "guest-agent/run/elf.h"
#include "common/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADERS_MAX               1024
#define SYMBOLS_MAX               (64u << 20) /* bytes */
#define HOST_ENDIAN               (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)
#define HEADER_AT(start, i, size) ((off_t)((start) + (uint64_t)(i) * (size)))

static bool read_at(int fd, void *to, size_t bytes, off_t at)
{
	return at >= 0 && pread(fd, to, bytes, at) == (ssize_t)bytes;
}

static void read_loader(int fd, const Elf64_Ehdr *h, struct run_elf *e)
{
	Elf64_Phdr p;

	for (unsigned i = 0; i < h->e_phnum && i < HEADERS_MAX; i++) {
		if (!read_at(fd, &p, sizeof(p), HEADER_AT(h->e_phoff, i, h->e_phentsize)) ||
		    p.p_type != PT_INTERP)
			continue;
		if (p.p_filesz < sizeof(e->loader) &&
		    read_at(fd, e->loader, p.p_filesz, (off_t)p.p_offset))
			e->loader[p.p_filesz] = '\0';
		if (!e->loader[0])
			strcpy(e->loader, "(unreadable)");
		return;
	}
}

/* The section's contents and a NUL; owned by the caller. NULL: damaged, too large or empty. */
static void *read_section(int fd, const Elf64_Shdr *s)
{
	char *data;

	if (!s->sh_size || s->sh_size > SYMBOLS_MAX || !(data = malloc(s->sh_size + 1)))
		return NULL;
	if (!read_at(fd, data, s->sh_size, (off_t)s->sh_offset)) {
		free(data);
		return NULL;
	}
	data[s->sh_size] = '\0';
	return data;
}

static bool read_header(int fd, const Elf64_Ehdr *h, unsigned i, Elf64_Shdr *s)
{
	return i < h->e_shnum &&
	       read_at(fd, s, sizeof(*s), HEADER_AT(h->e_shoff, i, h->e_shentsize));
}

/* Without sections (stripped of them) nothing is known of the symbols. */
static void read_symbols(int fd, const Elf64_Ehdr *h, struct run_elf *e)
{
	Elf64_Shdr s, strings;

	for (unsigned i = 0; i < h->e_shnum && i < HEADERS_MAX; i++) {
		if (!read_header(fd, h, i, &s) || s.sh_type != SHT_DYNSYM)
			continue;
		if (!read_header(fd, h, s.sh_link, &strings))
			return;
		e->symbols = read_section(fd, &s);
		e->strings = read_section(fd, &strings);
		if (e->symbols && e->strings) {
			e->count = s.sh_size / sizeof(Elf64_Sym);
			e->string_bytes = strings.sh_size;
		}
		return;
	}
}

int run_elf_read(int fd, struct run_elf *ret_elf)
{
	struct run_elf e = {0};
	Elf64_Ehdr h;

	/* Ident, type and machine are at the same places in all classes. */
	if (!read_at(fd, &h, offsetof(Elf64_Ehdr, e_version), 0) ||
	    memcmp(h.e_ident, ELFMAG, SELFMAG))
		return -ENOEXEC;
	e.class = h.e_ident[EI_CLASS];
	e.data = h.e_ident[EI_DATA];
	e.machine = e.data == HOST_ENDIAN ? h.e_machine : __builtin_bswap16(h.e_machine);
	if (e.class == ELFCLASS64 && e.data == HOST_ENDIAN) {
		if (!read_at(fd, &h, sizeof(h), 0))
			return -ENOEXEC;
		read_loader(fd, &h, &e);
		read_symbols(fd, &h, &e);
	}
	*ret_elf = e;
	return 0;
}

void run_elf_free(struct run_elf *e)
{
	free(TAKE(e->symbols));
	free(TAKE(e->strings));
	e->count = 0;
}

const char *run_elf_symbol(const struct run_elf *e, size_t i, bool *ret_defined)
{
	Elf64_Sym s;

	memcpy(&s, e->symbols + i * sizeof(s), sizeof(s));
	if (s.st_name >= e->string_bytes || !e->strings[s.st_name])
		return NULL;
	*ret_defined = s.st_shndx != SHN_UNDEF;
	return e->strings + s.st_name;
}

bool run_elf_defines(const struct run_elf *e, const char *name)
{
	for (size_t i = 0; i < e->count; i++) {
		bool defined = false;
		const char *own = run_elf_symbol(e, i, &defined);

		if (own && defined && !strcmp(own, name))
			return true;
	}
	return false;
}

const char *run_elf_machine(unsigned machine, char text[static 24])
{
	static const struct {
		unsigned machine;
		const char *name;
	} known[] = {
		{EM_386, "32-bit x86"},     {EM_X86_64, "x86-64"},      {EM_ARM, "32-bit ARM"},
		{EM_AARCH64, "64-bit ARM"}, {EM_PPC64, "64-bit POWER"}, {EM_S390, "IBM Z"},
		{EM_RISCV, "RISC-V"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i].machine == machine)
			return known[i].name;
	snprintf(text, 24, "machine %u", machine);
	return text;
}
