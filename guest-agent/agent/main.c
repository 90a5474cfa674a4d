/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "guest-agent/agent/main.h"
#include "common/command.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"

#include <string.h>
#include <systemd/sd-daemon.h>

static const struct {
	const char *name;
	unsigned bit;
} faults[] = {
	{"no-marker", SHIM_FAULT_NO_MARKER}, {"no-dirtying", SHIM_FAULT_NO_DIRTYING},
	{"cache-off", SHIM_FAULT_CACHE_OFF}, {"no-counts", SHIM_FAULT_NO_COUNTS},
	{"no-sl", SHIM_FAULT_NO_SL},
};

/* A comma-separated list in $IBVMIG_FAULT. 0 or -EINVAL. */
static int parse_faults(const char *text, unsigned *ret_fault)
{
	char *list AUTO_FREE = strdup(text ? text : "");
	char *rest = NULL;
	unsigned fault = 0;

	for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		unsigned bit = 0;

		for (size_t i = 0; i < ARRAY_SIZE(faults); i++)
			if (!strcmp(word, faults[i].name))
				bit = faults[i].bit;
		if (!bit) {
			log_error("IBVMIG_FAULT has \"%s\"; allowed are no-marker, no-dirtying, "
				  "cache-off, no-counts and no-sl, separated by commas",
				  word);
			return -1;
		}
		log_warn("FAULT INJECTION: \"%s\" is on, this guest breaks its traffic on purpose",
			 word);
		fault |= bit;
	}
	*ret_fault = fault;
	return 0;
}

static int run(const char *port, const char *socket_path, bool grh_required)
{
	static struct agent a = {.listener = -1, .spare = -1};
	int rc;

	a.grh_required = grh_required;
	a.started_ms = now_ms();
	a.socket_path = socket_path;
	if (parse_faults(getenv("IBVMIG_FAULT"), &a.fault))
		return 2;
	if (!(rc = loop_new(&a.loop)) && (rc = agent_shim_listen(&a, socket_path))) {
		log_error("--socket %s: cannot listen: %s; it must be a path in a folder where "
			  "sockets can be made",
			  socket_path, strerror(-rc));
		return 1;
	}
	if (rc || (rc = agent_host_open(&a, port))) {
		log_error("cannot start: %s", strerror(-rc));
		return 1;
	}
	sd_notify(0, "READY=1");
	log_info("ready: host by %s, processes by %s", port, socket_path);
	rc = sd_event_loop(a.loop);
	agent_host_close(&a);
	agent_shim_close_all(&a);
	unlink(socket_path);
	return rc < 0 ? 1 : 0;
}

enum { OPT_PORT, OPT_SOCKET, OPT_GRH, OPTIONS };

static const struct command_option options[OPTIONS] = {
	[OPT_PORT] = {"--port", "PATH",
		      "channel to the host, a virtio port or a UNIX socket, instead of " AGENT_PORT,
		      0},
	[OPT_SOCKET] = {"--socket", "PATH",
			"where the verbs shims connect, instead of " SHIM_SOCKET, 0},
	[OPT_GRH] = {"--grh-required", NULL,
		     "InfiniBand ports tell programs that connections need a GRH", 0},
};

static int start(const struct command_line *l)
{
	const char *port = command_value(l, OPT_PORT), *path = command_value(l, OPT_SOCKET);

	return run(port ? port : AGENT_PORT, path ? path : SHIM_SOCKET, command_has(l, OPT_GRH));
}

static const struct command agent_command = {
	NULL, "", COMMAND_BIT(OPT_PORT) | COMMAND_BIT(OPT_SOCKET) | COMMAND_BIT(OPT_GRH), start,
	"run the agent of a guest"};

static const struct program program = {
	.name = "ibvmig-agent",
	.options = options,
	.option_count = OPTIONS,
	.commands = &agent_command,
	.command_count = 1,
};

int main(int argc, char **argv)
{
	struct command_line l;
	int rc;

	log_init("ibvmig-agent");
	rc = command_parse(&program, argc, argv, &l);
	return rc == COMMAND_RUN ? start(&l) : rc;
}
