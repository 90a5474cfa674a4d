/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig-run: starts a program under the verbs shim, or says why that cannot work. */
#include "common/util.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LIBRARY        "libibvmig.so"
#define HEADERS_MAX    64
#define EXIT_USAGE     2
#define EXIT_NOT_FOUND 127

static void usage(FILE *to)
{
	fprintf(to, "usage: ibvmig-run [--explain] PROGRAM [ARGUMENT...]\n"
		    "  Starts PROGRAM so that its RDMA connections survive a live migration.\n"
		    "  --explain   only says whether the program can be covered, and if not, why\n"
		    "  --version\n");
}

/* The shim beside us (build/bin and build/lib, or the installed places). NULL: nowhere. */
static char *find_library(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n > 0) {
		self[n] = '\0';
		slash = strrchr(self, '/');
		if (slash) {
			*slash = '\0';
			char *path AUTO_FREE = strf("%s/../lib/" LIBRARY, self);
			if (path && !access(path, R_OK))
				return realpath(path, NULL);
		}
	}
	static const char *const places[] = {"/usr/local/lib/" LIBRARY, "/usr/lib/" LIBRARY};
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (!access(places[i], R_OK))
			return strdup(places[i]);
	return NULL;
}

/* As execvp() looks for it. NULL: nowhere. */
static char *find_program(const char *name)
{
	const char *path = getenv("PATH");

	if (strchr(name, '/'))
		return access(name, X_OK) ? NULL : strdup(name);
	for (const char *p = path ? path : "/bin:/usr/bin"; *p;) {
		int n = (int)strcspn(p, ":");
		char *full AUTO_FREE = strf("%.*s/%s", n, p, name);

		if (full && !access(full, X_OK))
			return TAKE(full);
		p += n + (p[n] == ':');
	}
	return NULL;
}

/* Whether the loader (and with it LD_PRELOAD) takes part. */
static const char *elf_obstacle(int fd)
{
	Elf64_Ehdr e;
	Elf64_Phdr p;

	if (pread(fd, &e, sizeof(e), 0) != sizeof(e))
		return "it cannot be read as a program";
	if (!memcmp(e.e_ident, "#!", 2))
		return NULL; /* a script: its interpreter inherits the preload */
	if (memcmp(e.e_ident, ELFMAG, SELFMAG))
		return "it is neither an ELF program nor a script";
	if (e.e_ident[EI_CLASS] != ELFCLASS64)
		return "it is a 32-bit program, the shim is built for 64 bits";
	for (unsigned i = 0; i < e.e_phnum && i < HEADERS_MAX; i++) {
		off_t at = (off_t)(e.e_phoff + (Elf64_Off)i * e.e_phentsize);

		if (pread(fd, &p, sizeof(p), at) == sizeof(p) && p.p_type == PT_INTERP)
			return NULL;
	}
	return "it is linked statically, so no library can be put in front of its verbs";
}

/* Why the program cannot be covered, or NULL. */
static const char *obstacle(const char *program)
{
	int fd AUTO_CLOSE = open(program, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return "it cannot be read";
	if (st.st_mode & (S_ISUID | S_ISGID) && geteuid() != 0)
		return "it is setuid or setgid: the loader ignores LD_PRELOAD for it";
	return elf_obstacle(fd);
}

static int set_preload(const char *library)
{
	const char *old = getenv("LD_PRELOAD");
	char *value AUTO_FREE = old && *old ? strf("%s:%s", library, old) : strdup(library);

	if (!value || setenv("LD_PRELOAD", value, 1))
		return -ENOMEM;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"explain", no_argument, NULL, 'e'},
						{"version", no_argument, NULL, 'v'},
						{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	bool explain = false;
	int c;

	while ((c = getopt_long(argc, argv, "+", options, NULL)) >= 0) {
		switch (c) {
		case 'e':
			explain = true;
			break;
		case 'v':
			puts("ibvmig-run " IBVMIG_VERSION);
			return 0;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return EXIT_USAGE;
		}
	}
	if (optind >= argc) {
		usage(stderr);
		return EXIT_USAGE;
	}
	char *library AUTO_FREE = find_library();
	char *program AUTO_FREE = find_program(argv[optind]);
	if (!program || !library) {
		fprintf(stderr, "ibvmig-run: %s is not found%s\n", program ? LIBRARY : argv[optind],
			program ? ": neither beside this program nor in /usr/local/lib or /usr/lib"
				: "");
		return EXIT_NOT_FOUND;
	}
	const char *why = obstacle(program);
	if (explain) {
		printf("%s: %s%s\n", program, why ? "cannot be covered: " : "can be covered by ",
		       why ? why : library);
		return why ? 1 : 0;
	}
	if (why)
		fprintf(stderr, "ibvmig-run: %s runs without cover: %s\n", program, why);
	else if (set_preload(library))
		fprintf(stderr, "ibvmig-run: no memory to set LD_PRELOAD, %s runs without cover\n",
			program);
	execv(program, argv + optind);
	fprintf(stderr, "ibvmig-run: %s: %s\n", program, strerror(errno));
	return EXIT_NOT_FOUND - 1;
}
