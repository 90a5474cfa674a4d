/* SPDX-License-Identifier: GPL-2.0-or-later */
/* In the lab's guests: runs what the lab asks for over the virtio-serial port org.ibvmig.lab.0.
 *
 * The lab writes "ID BASE64-OF-A-SHELL-COMMAND\n", the answer is "ID EXIT-CODE BASE64-OF-OUTPUT\n"
 * (stdout and stderr together, the last OUTPUT_MAX bytes; 128 + N after signal N). Commands run
 * side by side; a child that a command leaves in the background does not hold its answer up. The
 * port may lose its host at any byte, as in a migration: the lab connects again and sends the same
 * line, and the same ID never runs twice. A line without command ("ping\n") is answered "ping 0
 * \n". */
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#define LINE_MAX_BYTES (256u << 10)
#define OUTPUT_MAX     (512u << 10)
#define JOBS_MAX       32
#define ID_MAX         32

struct job {
	char id[ID_MAX];
	pid_t pid;  /* 0 when it has ended */
	int output; /* memfd, or -1 */
	int code;
	bool asked; /* an answer is due */
};

struct execd {
	int port, signals;
	bool connected;
	char line[LINE_MAX_BYTES];
	size_t have;
	bool skip; /* the rest of an oversized line */
	struct job jobs[JOBS_MAX];
	unsigned next;
};

/* Whole or not at all: without a host nobody reads, and the lab asks again. */
static void port_write(struct execd *e, const char *data, size_t n)
{
	while (n > 0) {
		ssize_t w = write(e->port, data, n);

		if (w < 0 && errno == EAGAIN) {
			struct pollfd p = {e->port, POLLOUT, 0};

			if (poll(&p, 1, -1) > 0 && !(p.revents & POLLHUP))
				continue;
		}
		if (w <= 0)
			return;
		data += w;
		n -= (size_t)w;
	}
}

static void job_answer(struct execd *e, struct job *j)
{
	off_t size = j->output >= 0 ? lseek(j->output, 0, SEEK_END) : 0;
	off_t from = size > OUTPUT_MAX ? size - OUTPUT_MAX : 0;
	size_t n = (size_t)(size - from);
	char *raw AUTO_FREE = malloc(n + 1);
	char *text AUTO_FREE = NULL;
	char *line AUTO_FREE = NULL;

	if (!raw || (n && pread(j->output, raw, n, from) != (ssize_t)n))
		n = 0;
	text = base64_encode(raw, n);
	line = strf("%s %d %s\n", j->id, j->code, text ? text : "");
	if (line)
		port_write(e, line, strlen(line));
	j->asked = false;
}

static void job_refuse(struct execd *e, const char *id)
{
	static const char why[] = "too many commands run already\n";
	char *text AUTO_FREE = base64_encode(why, sizeof(why) - 1);
	char *line AUTO_FREE = strf("%s 126 %s\n", id, text ? text : "");

	if (line)
		port_write(e, line, strlen(line));
}

static _Noreturn void job_child(struct execd *e, int output, const char *command)
{
	sigset_t none;
	int null = open("/dev/null", O_RDONLY);

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	dup2(null, 0);
	dup2(output, 1);
	dup2(output, 2);
	close(e->port);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(127);
}

/* For a new job, in turn; one that still runs keeps its place. NULL: all do. */
static struct job *job_place(struct execd *e)
{
	for (unsigned i = 0; i < JOBS_MAX; i++) {
		struct job *j = &e->jobs[e->next++ % JOBS_MAX];

		if (!j->pid)
			return j;
	}
	return NULL;
}

static void job_start(struct execd *e, const char *id, const char *command)
{
	struct job *j = job_place(e);

	if (!j) {
		job_refuse(e, id);
		return;
	}
	if (j->output >= 0)
		close(j->output);
	*j = (struct job){.asked = true, .code = 127, .output = memfd_create("output", 0)};
	snprintf(j->id, sizeof(j->id), "%s", id);
	/* A write must go to the end: command and background children share the file. */
	if (j->output >= 0)
		fcntl(j->output, F_SETFL, O_APPEND);
	j->pid = j->output >= 0 ? fork() : -1;
	if (j->pid == 0)
		job_child(e, j->output, command);
	if (j->pid < 0) {
		j->pid = 0;
		job_answer(e, j);
	}
}

static struct job *job_find(struct execd *e, const char *id)
{
	for (unsigned i = 0; i < JOBS_MAX; i++)
		if (e->jobs[i].id[0] && str_eq(e->jobs[i].id, id))
			return &e->jobs[i];
	return NULL;
}

static void on_line(struct execd *e, char *line)
{
	char *space = strchr(line, ' ');
	char *command AUTO_FREE = NULL;
	struct job *j;
	size_t n;

	if (space)
		*space = '\0';
	if (!line[0] || strlen(line) >= ID_MAX)
		return;
	if (!space) {
		char *pong AUTO_FREE = strf("%s 0 \n", line);

		port_write(e, pong, strlen(pong));
		return;
	}
	j = job_find(e, line);
	if (j) {
		j->asked = true;
		if (!j->pid)
			job_answer(e, j);
		return;
	}
	command = malloc(strlen(space + 1) + 1);
	if (!command)
		return;
	if (base64_decode(space + 1, command, strlen(space + 1), &n)) {
		log_error("command %s is not base 64", line);
		return;
	}
	command[n] = '\0';
	job_start(e, line, command);
}

/* A host that connects anew may begin in the middle of what another one left: it sends an empty
 * line first. */
static void on_bytes(struct execd *e, const char *data, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (data[i] != '\n') {
			if (e->have < sizeof(e->line) - 1)
				e->line[e->have++] = data[i];
			else
				e->skip = true;
			continue;
		}
		e->line[e->have] = '\0';
		if (!e->skip)
			on_line(e, e->line);
		e->have = 0;
		e->skip = false;
	}
}

static void on_port(struct execd *e)
{
	char buf[4096];
	ssize_t n;

	while ((n = read(e->port, buf, sizeof(buf))) > 0)
		on_bytes(e, buf, (size_t)n);
	/* 0: no host. poll() would say so without end, so wait for SIGIO, which tells of a new one.
	 */
	e->connected = n < 0 && errno == EAGAIN;
}

static void on_child(struct execd *e)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (unsigned i = 0; i < JOBS_MAX; i++) {
			struct job *j = &e->jobs[i];

			if (j->pid != pid)
				continue;
			j->pid = 0;
			j->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			if (j->asked)
				job_answer(e, j);
		}
}

static void on_signal(struct execd *e)
{
	struct signalfd_siginfo info;

	while (read(e->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			on_child(e);
		else
			e->connected = true; /* or not: the next read tells */
	}
}

static int open_all(struct execd *e, const char *path)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGIO);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	e->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	e->port = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (e->signals < 0 || e->port < 0)
		return -errno;
	if (fcntl(e->port, F_SETOWN, getpid()) || fcntl(e->port, F_SETFL, O_NONBLOCK | O_ASYNC))
		return -errno;
	return 0;
}

int main(int argc, char **argv)
{
	static struct execd e;
	int r;

	log_init("execd");
	if (argc != 2) {
		log_error("usage: guest_execd /dev/vportNpM");
		return 2;
	}
	for (unsigned i = 0; i < JOBS_MAX; i++)
		e.jobs[i].output = -1;
	r = open_all(&e, argv[1]);
	if (r) {
		log_error("%s: %s", argv[1], strerror(-r));
		return 1;
	}
	e.connected = true;
	for (;;) {
		struct pollfd p[] = {{e.signals, POLLIN, 0}, {e.port, POLLIN, 0}};

		if (poll(p, e.connected ? 2 : 1, -1) < 0 && errno != EINTR)
			return 1;
		if (p[0].revents)
			on_signal(&e);
		if (e.connected && p[1].revents)
			on_port(&e);
	}
}
