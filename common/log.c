/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static const char *log_program = "ibvmig";
static enum log_level log_threshold = LOG_INFO;
static bool log_to_journal;

void log_set_level(enum log_level level)
{
	log_threshold = level;
}

void log_init(const char *program)
{
	static const char *const names[] = {
		[LOG_ERROR] = "error", [LOG_WARN] = "warn",   [LOG_NOTICE] = "notice",
		[LOG_INFO] = "info",   [LOG_DEBUG] = "debug",
	};
	const char *want = secure_getenv("IBVMIG_LOG");

	log_program = program;
	log_to_journal = secure_getenv("JOURNAL_STREAM") != NULL;
	for (int i = LOG_ERROR; want && i <= LOG_DEBUG; i++)
		if (!strcmp(want, names[i]))
			log_threshold = (enum log_level)i;
}

void log_at(enum log_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[LINE_MAX_BYTES];
	struct timespec now;
	struct tm tm;
	size_t n = 0;
	va_list ap;

	if (level > log_threshold)
		return;
	if (log_to_journal) {
		n = (size_t)snprintf(line, sizeof line, "<%d>", (int)level);
	} else {
		clock_gettime(CLOCK_REALTIME, &now);
		localtime_r(&now.tv_sec, &tm);
		n = strftime(line, sizeof line, "%H:%M:%S", &tm);
		n += (size_t)snprintf(line + n, sizeof line - n,
				      ".%03ld %s: ", now.tv_nsec / 1000000, log_program);
	}
	va_start(ap, fmt);
	int body = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	va_end(ap);
	if (body > 0) {
		size_t said = (size_t)body < sizeof line - n - 1 ? (size_t)body
								 : sizeof line - n - 2;

		line[n + said] = '\0';
		str_make_printable(line + n); /* guests and other hosts have a part in it */
		n += said;
	}
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0) {
		/* nobody is left to tell */
	}
	errno = saved;
}
