/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/console.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>

/* Returns whether the token stands in the file behind *from; the look goes on where it ended, less
 * what could be the token's beginning. */
static bool has_token(int fd, off_t *from, const char *token)
{
	char buf[4097];
	size_t len = strlen(token);
	ssize_t n;

	while ((n = pread(fd, buf, sizeof(buf) - 1, *from)) > 0) {
		buf[n] = '\0';
		if (memmem(buf, (size_t)n, token, len))
			return true;
		if ((size_t)n < len)
			return false;
		*from += n - (ssize_t)len + 1;
	}
	return false;
}

static int wait_token(int fd, off_t from, int changes, const char *token, uint64_t deadline)
{
	char events[4096];

	while (!has_token(fd, &from, token)) {
		struct pollfd p = {changes, POLLIN, 0};
		uint64_t now = now_ms();

		if (now >= deadline || poll(&p, 1, (int)(deadline - now)) == 0)
			return -ETIMEDOUT;
		if (read(changes, events, sizeof(events)) < 0 && errno != EINTR)
			return -errno;
	}
	return 0;
}

int console_command(const char *fifo, const char *output, const char *line, unsigned deadline_ms)
{
	int out AUTO_CLOSE = open(output, O_RDONLY | O_CLOEXEC);
	int changes AUTO_CLOSE = inotify_init1(IN_CLOEXEC);
	int fd AUTO_CLOSE = open(fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	char *token AUTO_FREE = strf("# done %d.%llu\n", getpid(), (unsigned long long)now_us());
	char *text AUTO_FREE = strf("%s\n%s", line, token);
	off_t from;

	if (fd < 0 || out < 0 || changes < 0)
		return -errno;
	if (!token || !text)
		return -ENOMEM;
	if (inotify_add_watch(changes, output, IN_MODIFY) < 0)
		return -errno;
	from = lseek(out, 0, SEEK_END);
	/* The text is one write below PIPE_BUF: lines of several writers do not mix; ibsim echoes
	 * comments. */
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		return -EIO;
	token[strlen(token) - 1] = '\0'; /* ibsim takes the newline away */
	return wait_token(out, from, changes, token, now_ms() + deadline_ms);
}
