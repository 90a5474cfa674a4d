/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "guest-agent/agent/main.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"

#include <getopt.h>
#include <string.h>
#include <systemd/sd-daemon.h>

static const struct {
	const char *name;
	unsigned bit;
} faults[] = {
	{"no-marker", SHIM_FAULT_NO_MARKER},
	{"no-dirtying", SHIM_FAULT_NO_DIRTYING},
	{"cache-off", SHIM_FAULT_CACHE_OFF},
	{"no-counts", SHIM_FAULT_NO_COUNTS},
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
				  "cache-off and no-counts, separated by commas",
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

static void usage(FILE *to)
{
	fprintf(to,
		"usage: ibvmig-agent [--port PATH] [--socket PATH]\n"
		"  --port PATH    channel to the host: a virtio port or a UNIX socket to connect "
		"to\n"
		"                 (default %s)\n"
		"  --socket PATH  where the verbs shims connect (default %s)\n"
		"  --version\n",
		AGENT_PORT, SHIM_SOCKET);
}

static int run(const char *port, const char *socket_path)
{
	static struct agent a = {.listener = -1, .spare = -1};
	int rc;

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

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"port", required_argument, NULL, 'p'},
		{"socket", required_argument, NULL, 's'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	const char *port = AGENT_PORT, *socket_path = SHIM_SOCKET;
	int c;

	log_init("ibvmig-agent");
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 'p':
			port = optarg;
			break;
		case 's':
			socket_path = optarg;
			break;
		case 'v':
			puts("ibvmig-agent " IBVMIG_VERSION);
			return 0;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (optind < argc) {
		usage(stderr);
		return 2;
	}
	return run(port, socket_path);
}
