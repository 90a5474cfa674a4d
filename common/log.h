/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Log lines on stderr, with the journal's <N> priority prefix when stderr is the journal. */
#ifndef IBVMIG_COMMON_LOG_H
#define IBVMIG_COMMON_LOG_H

enum log_level { LOG_ERROR = 3, LOG_WARN = 4, LOG_NOTICE = 5, LOG_INFO = 6, LOG_DEBUG = 7 };

/* program: borrowed for the life of the process. The level comes from $IBVMIG_LOG (error, warn,
 * notice, info, debug), info without it. */
void log_init(const char *program);
void log_set_level(enum log_level level);

/* Logs one line, given without a newline; what cannot be printed in it becomes spaces. Never
 * changes errno. */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)  log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)   log_at(LOG_WARN, __VA_ARGS__)
#define log_notice(...) log_at(LOG_NOTICE, __VA_ARGS__)
#define log_info(...)   log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...)  log_at(LOG_DEBUG, __VA_ARGS__)

#endif
