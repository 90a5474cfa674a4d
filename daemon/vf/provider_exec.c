/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vf/provider.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/vf/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#define STDERR_MAX   4096
#define KILL_MS      2000 /* the kernel may take so long to end a killed process */
#define KILL_POLL_MS 5

struct exec {
	struct provider base;
	const char *program; /* borrowed */
	unsigned deadline_ms;
};

struct stream {
	int fd;
	char *data; /* owned */
	size_t bytes, max;
};

struct child {
	pid_t pid; /* and process group */
	int pidfd; /* readable: it has ended */
	int in;
	const char *text; /* borrowed: what is still to be written */
	size_t text_bytes;
	struct stream out, err;
};

extern char **environ;

/* Workers block all signals; the program must not inherit that. It has a process group of its own,
 * which what it starts belongs to. */
static int spawn(const char *program, const char *op, int in, int out, int err, pid_t *ret_pid)
{
	char *const argv[] = {(char *)program, (char *)op, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, pipe_only;
	int rc;

	sigemptyset(&none);
	sigemptyset(&pipe_only);
	sigaddset(&pipe_only, SIGPIPE);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_adddup2(&files, in, 0);
	posix_spawn_file_actions_adddup2(&files, out, 1);
	posix_spawn_file_actions_adddup2(&files, err, 2);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &pipe_only);
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						POSIX_SPAWN_SETPGROUP);
	rc = posix_spawn(ret_pid, program, &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return -rc;
}

static int child_start(const char *program, const char *op, struct child *c)
{
	int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, rc;

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		rc = -errno;
	else
		rc = spawn(program, op, in[0], out[1], err[1], &c->pid);
	for (int i = 0; i < 3; i++) {
		int theirs = i == 0 ? in[0] : i == 1 ? out[1] : err[1];

		if (theirs >= 0)
			close(theirs);
	}
	c->in = in[1];
	c->out.fd = out[0];
	c->err.fd = err[0];
	if (rc)
		return rc;
	fcntl(c->in, F_SETFL, O_NONBLOCK);
	c->pidfd = pidfd_open(c->pid, 0);
	if (c->pidfd < 0) {
		rc = -errno;
		kill(-c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
	}
	return rc;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void write_some(struct child *c)
{
	ssize_t n = write(c->in, c->text, c->text_bytes);

	if (n > 0) {
		c->text += n;
		c->text_bytes -= (size_t)n;
	}
	if (!c->text_bytes || (n < 0 && errno != EAGAIN && errno != EINTR))
		close_fd(&c->in);
}

/* How many bytes came; those above the maximum are forgotten. */
static int read_some(struct stream *s)
{
	char chunk[16384];
	ssize_t n = read(s->fd, chunk, sizeof chunk);
	size_t keep;

	if (n <= 0) {
		if (n == 0 || errno != EINTR)
			close_fd(&s->fd);
		return 0;
	}
	keep = s->bytes + (size_t)n > s->max ? s->max - s->bytes : (size_t)n;
	char *grown = realloc(s->data, s->bytes + keep + 1);
	if (!grown)
		return (int)n;
	memcpy(grown + s->bytes, chunk, keep);
	s->data = grown;
	s->bytes += keep;
	s->data[s->bytes] = '\0';
	return (int)n;
}

/* Until the program has ended, whoever else has its streams open. 0 or -ETIMEDOUT. */
static int child_talk(struct child *c, uint64_t deadline_ms)
{
	for (;;) {
		struct pollfd p[4] = {
			{.fd = c->in, .events = POLLOUT},
			{.fd = c->out.fd, .events = POLLIN},
			{.fd = c->err.fd, .events = POLLIN},
			{.fd = c->pidfd, .events = POLLIN},
		};
		uint64_t now = now_ms();

		if (now >= deadline_ms)
			return -ETIMEDOUT;
		if (poll(p, 4, (int)(deadline_ms - now)) <= 0)
			continue;
		if (p[0].revents)
			write_some(c);
		if (p[1].revents)
			read_some(&c->out);
		if (p[2].revents)
			read_some(&c->err);
		if (p[3].revents)
			return 0;
	}
}

/* The answer of a program that has ended is in the pipe; bytes that may still come are no part of
 * it. */
static void read_rest(struct stream *s)
{
	int left = 0, n;

	if (s->fd < 0 || ioctl(s->fd, FIONREAD, &left))
		return;
	for (; left > 0 && (n = read_some(s)) > 0; left -= n)
		;
}

/* True if a process of this group runs; processes that only wait for init to reap them do not. */
static bool group_runs(pid_t group)
{
	const struct sysfs proc = {.root = "/proc"};
	struct sysfs_list pids AUTO_LIST = {0};
	char text[SYSFS_VALUE_MAX], state;
	int its_group;

	if (kill(-group, 0))
		return false;
	pids = sysfs_list(&proc, ".");
	for (size_t i = 0; i < pids.count; i++) {
		if (strspn(pids.names[i], "0123456789") != strlen(pids.names[i]) ||
		    sysfs_read(&proc, text, "%s/stat", pids.names[i]))
			continue;
		/* proc_pid_stat(5): the name before may have blanks and brackets */
		const char *after = strrchr(text, ')');
		if (after && sscanf(after, ") %c %*d %d", &state, &its_group) == 2 &&
		    its_group == group && state != 'Z' && state != 'X')
			return true;
	}
	return false;
}

/* Ends what the program has started and not waited for, and the program itself where it has not
 * ended. A tool that goes on could write a GUID to a VF that somebody else has by then. The group
 * is killed before its leader is reaped, while its number cannot be another's. The exit status. */
static int child_end(struct child *c, const char *op)
{
	uint64_t deadline_ms = now_ms() + KILL_MS;
	int status = -1;

	kill(-c->pid, SIGKILL);
	waitpid(c->pid, &status, 0);
	while (group_runs(c->pid)) {
		if (now_ms() >= deadline_ms) {
			log_warn("what the VF provider has started in \"%s\" (process group %d) "
				 "runs %d s after it was killed: it may still change a VF",
				 op, (int)c->pid, KILL_MS / 1000);
			break;
		}
		poll(NULL, 0, KILL_POLL_MS);
	}
	return status;
}

/* 0, -ETIMEDOUT or -EREMOTEIO. */
static int child_run(struct child *c, const char *op, uint64_t deadline_ms)
{
	int rc = child_talk(c, deadline_ms), status = child_end(c, op);

	read_rest(&c->out);
	read_rest(&c->err);
	if (!rc && !(WIFEXITED(status) && !WEXITSTATUS(status)))
		rc = -EREMOTEIO;
	return rc;
}

static int finish(const struct exec *e, const char *op, struct child *c, int rc,
		  struct json_object **ret_out, char *error)
{
	if (rc == -ETIMEDOUT) {
		snprintf(error, HTTP_ERROR_MAX,
			 "the VF provider did not finish \"%s\" within %g s and was killed", op,
			 e->deadline_ms / 1000.0);
	} else if (rc) {
		const char *line = c->err.data ? c->err.data : "it gave no reason on stderr";

		snprintf(error, HTTP_ERROR_MAX, "the VF provider failed in \"%s\": %.*s", op,
			 (int)strcspn(line, "\n"), line);
	} else if (json_parse(c->out.data ? c->out.data : "", c->out.bytes, ret_out)) {
		rc = -EBADMSG;
		snprintf(error, HTTP_ERROR_MAX,
			 "the VF provider answered \"%s\" with something else than one JSON object",
			 op);
	}
	return rc;
}

/* in: borrowed, NULL for {}. *ret_out (owned by the caller) is the answer. */
static int call(struct provider *p, const char *op, struct json_object *in,
		struct json_object **ret_out, char *error)
{
	const struct exec *e = container_of(p, struct exec, base);
	uint64_t deadline_ms = now_ms() + e->deadline_ms;
	struct child c = {
		.pidfd = -1,
		.in = -1,
		.out = {.fd = -1, .max = PROVIDER_ANSWER_MAX},
		.err = {.fd = -1, .max = STDERR_MAX},
	};
	int rc;

	c.text = in ? json_text(in) : "{}";
	c.text_bytes = strlen(c.text);
	rc = child_start(e->program, op, &c);
	if (rc)
		snprintf(error, HTTP_ERROR_MAX, "cannot run the VF provider %s: %s", e->program,
			 strerror(-rc));
	else
		rc = finish(e, op, &c, child_run(&c, op, deadline_ms), ret_out, error);
	close_fd(&c.pidfd);
	close_fd(&c.in);
	close_fd(&c.out.fd);
	close_fd(&c.err.fd);
	free(c.out.data);
	free(c.err.data);
	return rc;
}

static int inventory(struct provider *p, struct json_object **ret_out, char *error)
{
	return call(p, "inventory", NULL, ret_out, error);
}

static int prepare(struct provider *p, struct json_object *in, struct json_object **ret_out,
		   char *error)
{
	return call(p, "prepare", in, ret_out, error);
}

static int set_guid(struct provider *p, const char *vf, uint64_t guid, char *error)
{
	struct json_object *in AUTO_JSON = json_object_new_object(), *out AUTO_JSON = NULL;

	json_set_str(in, "vf", vf);
	json_set_guid(in, "guid", guid);
	return call(p, "set-guid", in, &out, error);
}

static int release(struct provider *p, const char *vf, char *error)
{
	struct json_object *in AUTO_JSON = json_object_new_object(), *out AUTO_JSON = NULL;

	json_set_str(in, "vf", vf);
	return call(p, "release", in, &out, error);
}

static void exec_free(struct provider *p)
{
	free(container_of(p, struct exec, base));
}

int provider_exec_new(const char *program, unsigned deadline_ms, struct provider **ret_provider)
{
	static const struct provider_ops ops = {
		.inventory = inventory,
		.prepare = prepare,
		.set_guid = set_guid,
		.release = release,
		.free = exec_free,
	};
	struct exec *e = calloc(1, sizeof *e);

	if (!e)
		return -ENOMEM;
	e->base.ops = &ops;
	e->program = program;
	e->deadline_ms = deadline_ms;
	*ret_provider = &e->base;
	return 0;
}
