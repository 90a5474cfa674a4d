/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The loader puts the shim in front of libibverbs if it takes part at all (no static program),
 * heeds LD_PRELOAD (no privileges gained), and is of the shim's own kind. */
#include "guest-agent/run/check.h"
#include "common/util.h"
#include "guest-agent/run/elf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#define LIBRARY         "libibvmig.so"
#define SCRIPT_LINE_MAX 256 /* Linux: BINPRM_BUF_SIZE */
#define SCRIPT_DEPTH    4   /* interpreters that are scripts themselves; Linux allows as many */
#define NAMES_SHOWN     3

static void refuse(struct run_verdict *v, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void refuse(struct run_verdict *v, const char *fmt, ...)
{
	char text[RUN_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	v->covered = false;
	memcpy(v->why, text, sizeof(text));
}

static void note(struct run_verdict *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct run_verdict *v, const char *fmt, ...)
{
	va_list ap;

	if (v->notes == RUN_NOTES_MAX)
		return;
	va_start(ap, fmt);
	vsnprintf(v->note[v->notes++], RUN_TEXT_MAX, fmt, ap);
	va_end(ap);
}

char *run_find(const char *name, const char *path)
{
	if (strchr(name, '/'))
		return access(name, X_OK) ? NULL : strdup(name);
	for (const char *p = path ? path : "/bin:/usr/bin"; *p;) {
		int n = (int)strcspn(p, ":");
		char *full AUTO_FREE = strf("%.*s/%s", n ? n : 1, n ? p : ".", name);
		struct stat st;

		if (full && !access(full, X_OK) && !stat(full, &st) && S_ISREG(st.st_mode))
			return TAKE(full);
		p += n + (p[n] == ':');
	}
	return NULL;
}

/* ---- privileges ---- */

/* execve(2): set-id bits and file capabilities do nothing on a mount with nosuid. */
static void check_privileges(const struct run_caller *c, int fd, const struct stat *st,
			     struct run_verdict *v)
{
	struct statvfs fs;

	if (v->for_all)
		return;
	if (!fstatvfs(fd, &fs) && fs.f_flag & ST_NOSUID)
		return;
	if (st->st_mode & S_ISUID && st->st_uid != c->uid)
		refuse(v, "it is setuid: the loader ignores LD_PRELOAD for it. Start it as the "
			  "user that owns it, or name the shim in " RUN_ETC_PRELOAD);
	else if (st->st_mode & S_ISGID && st->st_mode & S_IXGRP && st->st_gid != c->gid)
		refuse(v, "it is setgid: the loader ignores LD_PRELOAD for it. Start it with the "
			  "group that owns it, or name the shim in " RUN_ETC_PRELOAD);
	else if (c->uid && fgetxattr(fd, "security.capability", NULL, 0) > 0)
		refuse(v, "it has file capabilities (setcap): the loader ignores LD_PRELOAD for "
			  "it. Name the shim in " RUN_ETC_PRELOAD
			  ", or give the capabilities to its service instead");
}

/* ---- symbols ---- */

/* Symbols of libibverbs that are not about an object of ours need no shim. */
static bool is_harmless(const char *name)
{
	static const char *const names[] = {
		"ibv_get_device_list", "ibv_free_device_list",    "ibv_get_device_name",
		"ibv_fork_init",       "ibv_is_fork_initialized", "ibv_dofork_range",
		"ibv_dontfork_range",  "ibv_get_sysfs_path",      "ibv_read_sysfs_file",
		"ibv_rate_to_mult",    "ibv_rate_to_mbps",        "ibv_wc_status_str",
		"ibv_node_type_str",   "ibv_port_state_str",      "ibv_event_type_str",
		"ibv_import_device",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return !strncmp(name, "ibv_copy_", 9);
}

static bool is_verb(const char *name)
{
	return !strncmp(name, "ibv_", 4) || !strncmp(name, "_ibv_", 5);
}

static bool is_direct(const char *name)
{
	static const char *const prefixes[] = {"mlx5dv_", "mlx4dv_", "efadv_", "hnsdv_", "manadv_"};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/* Names of functions, the first ones spelt out. */
struct names {
	unsigned count;
	char text[256];
};

static void add_name(struct names *n, const char *name)
{
	size_t at = strlen(n->text);

	if (n->count++ < NAMES_SHOWN)
		snprintf(n->text + at, sizeof(n->text) - at, "%s%.60s", at ? ", " : "", name);
}

static const char *list_of(struct names *n)
{
	size_t at = strlen(n->text);

	if (n->count > NAMES_SHOWN)
		snprintf(n->text + at, sizeof(n->text) - at, " and %u more",
			 n->count - NAMES_SHOWN);
	return n->text;
}

static void check_symbols(const struct run_elf *e, const struct run_elf *shim,
			  struct run_verdict *v)
{
	struct names missing = {0}, direct = {0};
	unsigned verbs = 0;

	for (size_t i = 0; i < e->count; i++) {
		bool defined = true;
		const char *name = run_elf_symbol(e, i, &defined);

		if (!name || defined)
			continue;
		verbs += is_verb(name);
		if (is_direct(name))
			add_name(&direct, name);
		else if (is_verb(name) && !is_harmless(name) && !run_elf_defines(shim, name))
			add_name(&missing, name);
	}
	if (missing.count) {
		refuse(v,
		       "it calls verbs that the shim does not have (%s): it would hand objects "
		       "of the shim to libibverbs",
		       list_of(&missing));
		return;
	}
	if (direct.count)
		note(v,
		     "it can also call the driver directly (%s); what it makes in that way is "
		     "not covered",
		     list_of(&direct));
	if (e->count && !verbs)
		note(v, "it calls no verbs itself; those of libraries that it loads are covered");
}

/* ---- kinds of files ---- */

static bool is_glibc(const char *loader)
{
	const char *name = strrchr(loader, '/');

	name = name ? name + 1 : loader;
	return !strncmp(name, "ld-linux", 8) || !strncmp(name, "ld64.", 5) ||
	       !strncmp(name, "ld.so", 5) || !strncmp(name, "ld-2.", 5);
}

static void check_elf(const struct run_caller *c, const struct run_elf *e, struct run_verdict *v)
{
	int fd AUTO_CLOSE = open(c->library, O_RDONLY | O_CLOEXEC);
	struct run_elf shim = {0};
	char ours[24], its[24];

	if (fd < 0 || run_elf_read(fd, &shim)) {
		refuse(v, "the shim %s cannot be read: %s", c->library,
		       fd < 0 ? strerror(errno) : "it is no library");
		return;
	}
	if (e->class != shim.class || e->machine != shim.machine || e->data != shim.data)
		refuse(v, "it is a %sprogram for %s, the shim is built for %s",
		       e->class == ELFCLASS32 ? "32-bit " : "", run_elf_machine(e->machine, its),
		       run_elf_machine(shim.machine, ours));
	else if (!e->loader[0])
		refuse(v,
		       "it is linked statically, so no library can be put in front of its verbs");
	else if (!is_glibc(e->loader))
		refuse(v, "its loader is %s, the shim needs that of the GNU C library", e->loader);
	else
		check_symbols(e, &shim, v);
	run_elf_free(&shim);
}

static void check_file(const struct run_caller *c, const char *program, unsigned depth,
		       struct run_verdict *v);

/* The program that `env` will start: the first word that is neither an option nor an assignment.
 * "": none. */
static void env_program(const char *words, char *name, size_t max)
{
	while (*words) {
		size_t n = strcspn(words, " \t");

		if (n && *words != '-' && !memchr(words, '=', n)) {
			snprintf(name, max, "%.*s", (int)n, words);
			return;
		}
		words += n;
		words += strspn(words, " \t");
	}
	*name = '\0';
}

/* The program that runs the script: what its first line names, or what env finds for it. */
static void check_script(const struct run_caller *c, char *line, unsigned depth,
			 struct run_verdict *v)
{
	char *name = line + strspn(line, " \t"), *rest, program[SCRIPT_LINE_MAX];
	const char *base;
	char *found AUTO_FREE = NULL;

	name[strcspn(name, "\n")] = '\0';
	rest = name + strcspn(name, " \t");
	if (*rest)
		*rest++ = '\0';
	base = strrchr(name, '/');
	snprintf(program, sizeof(program), "%s", name);
	if (str_eq(base ? base + 1 : name, "env")) {
		env_program(rest, program, sizeof(program));
		found = *program ? run_find(program, c->path) : NULL;
	} else {
		found = *program && !access(program, X_OK) ? strdup(program) : NULL;
	}
	if (!found) {
		refuse(v, "it is a script, and its interpreter \"%s\" is not found", program);
		return;
	}
	if (depth >= SCRIPT_DEPTH) {
		refuse(v, "it is a script of a script of a script: Linux does not start it");
		return;
	}
	check_file(c, found, depth + 1, v);
	if (v->covered)
		note(v, "it is a script: %s is covered, and what it starts", found);
	else if (!depth) {
		char why[RUN_TEXT_MAX];

		memcpy(why, v->why, sizeof(why));
		refuse(v, "it is a script, and of its interpreter %s: %.400s", found, why);
	}
}

static void check_file(const struct run_caller *c, const char *program, unsigned depth,
		       struct run_verdict *v)
{
	int fd AUTO_CLOSE = open(program, O_RDONLY | O_CLOEXEC);
	char line[SCRIPT_LINE_MAX + 1] = "";
	struct run_elf e;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		refuse(v, "it cannot be read: %s",
		       fd < 0 ? strerror(errno) : "it is not a regular file");
		return;
	}
	if (pread(fd, line, SCRIPT_LINE_MAX, 0) > 2 && !strncmp(line, "#!", 2)) {
		check_script(c, line + 2, depth, v); /* the set-id bits of a script do nothing */
		return;
	}
	if (run_elf_read(fd, &e)) {
		refuse(v, "it is neither an ELF program nor a script with a #! line");
		return;
	}
	check_privileges(c, fd, &st, v);
	if (v->covered)
		check_elf(c, &e, v);
	run_elf_free(&e);
}

/* ---- preloaded already ---- */

/* True if a list of paths names the shim, whichever copy of it. */
static bool names_shim(const char *list, char *ret_path, size_t max)
{
	while (list && *list) {
		size_t n = strcspn(list, " :\t\n"), l = strlen(LIBRARY);

		if (n >= l && !strncmp(list + n - l, LIBRARY, l) &&
		    (n == l || list[n - l - 1] == '/')) {
			snprintf(ret_path, max, "%.*s", (int)n, list);
			return true;
		}
		list += n + (list[n] != '\0');
	}
	return false;
}

static void check_preloaded(const struct run_caller *c, struct run_verdict *v)
{
	char *etc AUTO_FREE = NULL;
	char path[RUN_TEXT_MAX / 2];
	const char *where = "LD_PRELOAD";

	v->preloaded = names_shim(c->preload, path, sizeof(path));
	if (!v->preloaded && !read_file(c->etc_preload, 65536, &etc, NULL)) {
		v->preloaded = v->for_all = names_shim(etc, path, sizeof(path));
		where = c->etc_preload;
	}
	if (v->preloaded)
		note(v, "%s names %s already: that one is used", where, path);
}

void run_check(const struct run_caller *c, const char *program, struct run_verdict *ret_verdict)
{
	struct run_verdict v = {.covered = true};

	check_preloaded(c, &v);
	check_file(c, program, 0, &v);
	*ret_verdict = v;
}
