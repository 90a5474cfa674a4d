/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig-run: starts a program under the verbs shim, or says why that cannot work. */
#include "common/command.h"
#include "common/util.h"
#include "guest-agent/run/check.h"
#include "guest-agent/proto/shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define LIBRARY        "libibvmig.so"
#define EXIT_NOT_FOUND 127

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

static int set_preload(const char *library)
{
	const char *old = getenv("LD_PRELOAD");
	char *value AUTO_FREE = old && *old ? strf("%s:%s", library, old) : strdup(library);

	if (!value || setenv("LD_PRELOAD", value, 1))
		return -ENOMEM;
	return 0;
}

static bool agent_listens(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd AUTO_CLOSE = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(addr.sun_path))
		return false;
	strcpy(addr.sun_path, path);
	return fd >= 0 && !connect(fd, (struct sockaddr *)&addr, sizeof(addr));
}

static int explain(const char *program, const char *library, const struct run_verdict *v)
{
	const char *socket_path = getenv(SHIM_SOCKET_ENV);

	socket_path = socket_path ? socket_path : SHIM_SOCKET;
	if (v->covered)
		printf("%s: can be covered by %s\n", program, library);
	else
		printf("%s: cannot be covered: %s\n", program, v->why);
	for (unsigned i = 0; v->covered && i < v->notes; i++)
		printf("  %s\n", v->note[i]);
	if (v->covered && !agent_listens(socket_path))
		printf("  no ibvmig-agent listens at %s: start it first, without it the program "
		       "runs uncovered\n",
		       socket_path);
	return v->covered ? 0 : 1;
}

static int start(const char *program, char **argv, const char *library, const struct run_verdict *v)
{
	if (!v->covered)
		fprintf(stderr, "ibvmig-run: %s runs without cover: %s\n", program, v->why);
	else if (!v->preloaded && set_preload(library))
		fprintf(stderr, "ibvmig-run: no memory to set LD_PRELOAD, %s runs without cover\n",
			program);
	execv(program, argv);
	fprintf(stderr, "ibvmig-run: %s: %s\n", program, strerror(errno));
	return EXIT_NOT_FOUND - 1;
}

enum { OPT_EXPLAIN, OPTIONS };

static const struct command_option options[OPTIONS] = {
	[OPT_EXPLAIN] = {"--explain", NULL, "only say if the program can be covered, or why not",
			 0},
};

static int run(const struct command_line *l)
{
	char *library AUTO_FREE = find_library();
	char *program AUTO_FREE = run_find(l->args[0], getenv("PATH"));
	char **argv = l->argv;
	struct run_verdict v;

	if (!program || !library) {
		fprintf(stderr, "ibvmig-run: %s is not found%s\n", program ? LIBRARY : argv[0],
			program ? ": neither beside this program nor in /usr/local/lib or /usr/lib"
				: "");
		return EXIT_NOT_FOUND;
	}
	const struct run_caller caller = {.uid = geteuid(),
					  .gid = getegid(),
					  .library = library,
					  .path = getenv("PATH"),
					  .preload = getenv("LD_PRELOAD"),
					  .etc_preload = RUN_ETC_PRELOAD};
	run_check(&caller, program, &v);
	return command_has(l, OPT_EXPLAIN) ? explain(program, library, &v)
					   : start(program, argv, library, &v);
}

static const struct command run_command = {
	NULL, "PROGRAM [ARGUMENT...]", COMMAND_BIT(OPT_EXPLAIN), run,
	"start PROGRAM so that its RDMA connections survive a live migration"};

static const struct program program = {
	.name = "ibvmig-run",
	.options = options,
	.option_count = OPTIONS,
	.commands = &run_command,
	.command_count = 1,
	.hands_on = true,
};

int main(int argc, char **argv)
{
	struct command_line l;
	int rc = command_parse(&program, argc, argv, &l);

	return rc == COMMAND_RUN ? run(&l) : rc;
}
