/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Programs that the shim can be put into, and ibvmig-run's words about the others. The programs are
 * files that this test writes: only headers, nothing that could run. */
#include "tests/unit/tap.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/util.h"
#include "guest-agent/run/check.h"

#define GLIBC "/lib64/ld-linux-x86-64.so.2"
#define OURS  EM_X86_64

static char dir[] = "/tmp/ibvmig-run-XXXXXX";
static char shim[64], program[64], script[64], etc[64], bin[64];
static struct run_caller caller;
static struct run_verdict v;

struct image {
	Elf64_Ehdr h;
	Elf64_Phdr p;
	Elf64_Shdr s[3]; /* none, .dynsym, .dynstr */
	Elf64_Sym sym[8];
	char strings[256], loader[64];
};

static struct image image(unsigned machine, const char *loader)
{
	struct image i = {.h = {.e_type = ET_DYN,
				.e_machine = (Elf64_Half)machine,
				.e_phoff = offsetof(struct image, p),
				.e_phentsize = sizeof(Elf64_Phdr),
				.e_phnum = loader ? 1 : 0,
				.e_shoff = offsetof(struct image, s),
				.e_shentsize = sizeof(Elf64_Shdr),
				.e_shnum = 3},
			  .p = {.p_type = PT_INTERP, .p_offset = offsetof(struct image, loader)},
			  .s = {{0},
				{.sh_type = SHT_DYNSYM,
				 .sh_offset = offsetof(struct image, sym),
				 .sh_size = sizeof(Elf64_Sym),
				 .sh_link = 2},
				{.sh_type = SHT_STRTAB,
				 .sh_offset = offsetof(struct image, strings),
				 .sh_size = 1}}};

	memcpy(i.h.e_ident, ELFMAG, SELFMAG);
	i.h.e_ident[EI_CLASS] = ELFCLASS64;
	i.h.e_ident[EI_DATA] = ELFDATA2LSB;
	if (loader) {
		snprintf(i.loader, sizeof(i.loader), "%s", loader);
		i.p.p_filesz = strlen(loader) + 1;
	}
	return i;
}

static void symbol(struct image *i, const char *name, bool defined)
{
	Elf64_Sym *s = &i->sym[i->s[1].sh_size / sizeof(Elf64_Sym)];

	s->st_name = (Elf64_Word)i->s[2].sh_size;
	s->st_shndx = defined ? 1 : SHN_UNDEF;
	i->s[1].sh_size += sizeof(Elf64_Sym);
	strcpy(i->strings + i->s[2].sh_size, name);
	i->s[2].sh_size += strlen(name) + 1;
}

static void write_file(const char *path, const void *data, size_t bytes, mode_t mode)
{
	int fd AUTO_CLOSE = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, bytes), bytes);
	assert_int_equal(fchmod(fd, mode), 0);
}

static void write_image(const char *path, const struct image *i)
{
	write_file(path, i, sizeof(*i), 0700);
}

static void check(const char *path)
{
	run_check(&caller, path, &v);
}

static void check_script(const char *text)
{
	write_file(script, text, strlen(text), 0700);
	check(script);
}

static void assert_refused(const char *words)
{
	if (v.covered || !strstr(v.why, words))
		print_message("# covered %d: %s\n", v.covered, v.why);
	assert_false(v.covered);
	assert_non_null(strstr(v.why, words));
}

static bool noted(const char *words)
{
	for (unsigned i = 0; i < v.notes; i++)
		if (strstr(v.note[i], words))
			return true;
	return false;
}

static int setup(void **state)
{
	struct image lib = image(OURS, NULL), good = image(OURS, GLIBC);

	(void)state;
	symbol(&lib, "ibv_create_qp", true);
	symbol(&lib, "ibv_later", false);
	write_image(shim, &lib);
	symbol(&good, "ibv_create_qp", false);
	symbol(&good, "ibv_get_device_list", false);
	symbol(&good, "memcpy", false);
	write_image(program, &good);
	unlink(etc);
	caller = (struct run_caller){.uid = geteuid(),
				     .gid = getegid(),
				     .library = shim,
				     .path = bin,
				     .etc_preload = etc};
	return 0;
}

static void ordinary(void **state)
{
	struct image i = image(OURS, GLIBC);

	(void)state;
	check(program);
	assert_true(v.covered && !v.preloaded);
	assert_int_equal(v.notes, 0);
	symbol(&i, "main", true);
	write_image(program, &i);
	check(program);
	assert_true(v.covered && noted("calls no verbs itself"));
}

static void static_program(void **state)
{
	struct image i = image(OURS, NULL);

	(void)state;
	write_image(program, &i);
	check(program);
	assert_refused("linked statically");
}

static void wrong_architecture(void **state)
{
	struct image i = image(EM_AARCH64, "/lib/ld-linux-aarch64.so.1");

	(void)state;
	write_image(program, &i);
	check(program);
	assert_refused("a program for 64-bit ARM, the shim is built for x86-64");
	i = image(EM_386, "/lib/ld-linux.so.2");
	i.h.e_ident[EI_CLASS] = ELFCLASS32;
	write_image(program, &i);
	check(program);
	assert_refused("32-bit");
	i = image(__builtin_bswap16(EM_S390), "/lib/ld64.so.1");
	i.h.e_ident[EI_DATA] = ELFDATA2MSB;
	write_image(program, &i);
	check(program);
	assert_refused("IBM Z");
	i = image(OURS, "/lib/ld-musl-x86_64.so.1");
	write_image(program, &i);
	check(program);
	assert_refused("ld-musl");
}

static void setuid_program(void **state)
{
	struct statvfs fs;

	(void)state;
	if (statvfs(dir, &fs) || fs.f_flag & ST_NOSUID)
		skip(); /* set-id bits do nothing here */
	assert_int_equal(chmod(program, 04711), 0);
	check(program);
	assert_true(v.covered); /* ours: nothing is gained */
	caller.uid++;
	check(program);
	assert_refused("setuid: the loader ignores LD_PRELOAD");
	assert_int_equal(chmod(program, 02711), 0);
	caller.uid--;
	caller.gid++;
	check(program);
	assert_refused("setgid");
	write_file(etc, "/opt/x.so\n/opt/lib/libibvmig.so\n", 32, 0600);
	check(program);
	assert_true(v.covered && v.preloaded && v.for_all);
}

static void missing_symbols(void **state)
{
	struct image i = image(OURS, GLIBC);

	(void)state;
	symbol(&i, "ibv_create_qp", false);
	symbol(&i, "mlx5dv_create_qp", false);
	symbol(&i, "ibv_wc_status_str", false);
	write_image(program, &i);
	check(program);
	assert_true(v.covered && noted("mlx5dv_create_qp"));
	symbol(&i, "ibv_later", false); /* the shim only uses it itself */
	write_image(program, &i);
	check(program);
	assert_refused("verbs that the shim does not have (ibv_later)");
}

static void preloaded(void **state)
{
	char list[128];

	(void)state;
	snprintf(list, sizeof(list), "/lib/a.so:%s", "/elsewhere/libibvmig.so");
	caller.preload = list;
	check(program);
	assert_true(v.covered && v.preloaded && !v.for_all);
	assert_true(noted("LD_PRELOAD names /elsewhere/libibvmig.so already"));
	caller.preload = "/lib/notlibibvmig.so:/lib/libibvmig.so.bak";
	check(program);
	assert_true(v.covered && !v.preloaded);
	write_file(etc, "/usr/lib/libibvmig.so\n", 22, 0600);
	check(program);
	assert_true(v.covered && v.preloaded && noted(etc));
}

static void scripts(void **state)
{
	char text[300];
	struct image none = image(OURS, NULL);

	(void)state;
	snprintf(text, sizeof(text), "#!%s -x\ntrue\n", program);
	check_script(text);
	assert_true(v.covered && noted(program));
	assert_int_equal(chmod(script, 04711), 0); /* Linux ignores it for scripts */
	caller.uid++;
	check(script);
	assert_true(v.covered);
	caller.uid--;
	check_script("#!/usr/bin/env -S A=b program arg\n");
	assert_true(v.covered);
	check_script("#! /usr/bin/env nowhere\n");
	assert_refused("interpreter \"nowhere\" is not found");
	check_script("#!/nowhere\n");
	assert_refused("interpreter \"/nowhere\" is not found");
	check_script("#!\n");
	assert_refused("not found");
	snprintf(text, sizeof(text), "#!%s\n", script); /* a script of itself, for ever */
	check_script(text);
	assert_refused("script of a script");
	memset(text, 'x', sizeof(text));
	memcpy(text, "#!/", 3);
	write_file(script, text, sizeof(text), 0700);
	check(script);
	assert_refused("not found");
	write_image(program, &none);
	snprintf(text, sizeof(text), "#!%s\n", program);
	check_script(text);
	assert_refused("linked statically");
	assert_non_null(strstr(v.why, "its interpreter"));
}

static void no_programs(void **state)
{
	struct image i;

	(void)state;
	check_script("echo hello\n");
	assert_refused("neither an ELF program nor a script");
	check(dir);
	assert_refused("not a regular file");
	check("/nowhere");
	assert_refused("cannot be read");
	write_file(program, ELFMAG, SELFMAG, 0700);
	check(program);
	assert_refused("neither");
	caller.library = "/nowhere";
	i = image(OURS, GLIBC);
	write_image(program, &i);
	check(program);
	assert_refused("the shim /nowhere cannot be read");
}

/* Every byte of the headers wrong once, and files cut off: nothing is read outside of them. */
static void damaged(void **state)
{
	struct image good = image(OURS, GLIBC), bad;

	(void)state;
	symbol(&good, "ibv_create_qp", false);
	for (size_t at = SELFMAG; at < offsetof(struct image, sym) + 64; at++) {
		bad = good;
		((unsigned char *)&bad)[at] ^= 0xff;
		write_image(program, &bad);
		check(program);
	}
	for (size_t n = 0; n < sizeof(good); n += 7) {
		write_file(program, &good, n, 0700);
		check(program);
	}
}

static void finding(void **state)
{
	char *found AUTO_FREE = run_find("program", bin);
	char *direct AUTO_FREE = run_find(program, NULL);

	(void)state;
	assert_string_equal(found, program);
	assert_string_equal(direct, program);
	assert_null(run_find("nowhere", bin));
	assert_null(run_find("/nowhere", bin));
	assert_null(run_find(strrchr(dir, '/') + 1, "/tmp")); /* a folder */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
		T(ordinary),       T(static_program),  T(wrong_architecture),
		T(setuid_program), T(missing_symbols), T(preloaded),
		T(scripts),        T(no_programs),     T(damaged),
		T(finding),
	};
	int rc;

	if (!mkdtemp(dir))
		return 1;
	snprintf(shim, sizeof(shim), "%s/libibvmig.so", dir);
	snprintf(program, sizeof(program), "%s/program", dir);
	snprintf(script, sizeof(script), "%s/script", dir);
	snprintf(etc, sizeof(etc), "%s/preload", dir);
	snprintf(bin, sizeof(bin), "/nowhere:%s", dir);
	rc = RUN_TESTS(tests);
	unlink(shim);
	unlink(program);
	unlink(script);
	unlink(etc);
	rmdir(dir);
	return rc;
}
