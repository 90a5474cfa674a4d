/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Facts from an ELF file, which nobody vouches for: each offset is checked. */
#ifndef IBVMIG_GUEST_AGENT_RUN_ELF_H
#define IBVMIG_GUEST_AGENT_RUN_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run_elf {
	unsigned char class, data; /* EI_CLASS, EI_DATA */
	uint16_t machine;
	char loader[256]; /* PT_INTERP; "": none */
	uint8_t *symbols; /* owned; Elf64_Sym of .dynsym */
	char *strings;    /* owned; ends with NUL */
	size_t count, string_bytes;
};

/* 0, -ENOEXEC (no ELF file), or -errno of reading it. Of a file for another kind of machine only
 * the first three fields are filled. */
int run_elf_read(int fd, struct run_elf *ret_elf);
void run_elf_free(struct run_elf *e);

/* Name of the dynamic symbol i, NULL where it has none. */
const char *run_elf_symbol(const struct run_elf *e, size_t i, bool *ret_defined);
bool run_elf_defines(const struct run_elf *e, const char *name);
/* "x86-64", or "machine 40". */
const char *run_elf_machine(unsigned machine, char text[static 24]);

#endif
